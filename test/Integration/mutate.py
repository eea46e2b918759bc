#!/usr/bin/env python3
"""Mutates the lit tests and looks for tools that die of a signal.

    python3 test/Integration/mutate.py [--count 3000] [--seed 0] [--only N] [--build build]

Every mutation is drawn from (seed, number), so `--only N` repeats one and prints its input. A tool may
refuse an input (exit code 1 and an error with a place); it may not hang, and it may not die with one of
our frames on the stack. Deaths inside MLIR's own code are compared with upstream-crashes.txt, which holds
one function a line, the innermost of the stack. Prints `N mutations, M failed`.
"""

import argparse
import concurrent.futures
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
TESTS = HERE.parent
TOKEN = re.compile(r'"[^"\n]*"|[%@#!^]?[A-Za-z_$][\w.$-]*|-?\d+(?:\.\d+)?|\s+|->|::|.', re.S)
FRAME = re.compile(r"^ *#\d+ 0x[0-9a-f]+ (.*)$", re.M)
NUMBERS = ["-1", "0", "1", "2", "7", "255", "4294967296", "9223372036854775807", "-9223372036854775808",
           "99999999999999999999", "1.0e+400", "?"]
TIMEOUT = 30  # seconds


def corpus():
    """Every chunk of every lit test as (name, tokens, flags of its first flash-opt run)."""
    chunks = []
    for path in sorted(TESTS.rglob("*.mlir")):
        if path.is_relative_to(HERE):
            continue
        text = path.read_text()
        runs = re.findall(r"RUN:.*?\bflash-opt\b([^|\n]*)", text)
        flags = [f for f in runs[0].split() if f.startswith("--flash") or f.startswith("--convert")] if runs else []
        body = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("//") or "-----" in line)
        for chunk in body.split("// -----"):
            if chunk.strip():
                chunks.append((str(path.relative_to(TESTS)), TOKEN.findall(chunk), flags))
    return chunks


def mutate(rng, tokens, others):
    """A mutated copy of `tokens`: one to four edits, or a truncation."""
    tokens = list(tokens)
    words = [i for i, t in enumerate(tokens) if not t.isspace()]
    if rng.random() < 0.15:
        text = "".join(tokens)
        return text[: rng.randrange(len(text))]
    for _ in range(rng.randint(1, 4)):
        words = [i for i, t in enumerate(tokens) if t and not t.isspace()]
        if not words:
            break
        at, edit = rng.choice(words), rng.randrange(8)
        if edit == 0:  # drop a token
            tokens[at] = ""
        elif edit == 1:  # repeat a run of tokens
            tokens[at:at] = tokens[at : at + rng.randint(1, 12)]
        elif edit == 2:  # drop a run of tokens
            del tokens[at : at + rng.randint(1, 12)]
        elif edit == 3:  # another file's token, of the same kind where there is one
            pool = rng.choice(others)[1]
            same = [t for t in pool if t[0] == tokens[at][0] and t != tokens[at]]
            tokens[at] = rng.choice(same or pool)
        elif edit == 4:  # swap two tokens
            other = rng.choice(words)
            tokens[at], tokens[other] = tokens[other], tokens[at]
        elif edit == 5:  # a number at its limits
            numbers = [i for i in words if tokens[i].lstrip("-")[:1].isdigit()]
            tokens[rng.choice(numbers or [at])] = rng.choice(NUMBERS)
        elif edit == 6:  # a number inside a shape, such as 4x?x8xf16
            shapes = [i for i in words if re.search(r"\dx|x\d|x\w+\d", tokens[i])]
            if shapes:
                i = rng.choice(shapes)
                tokens[i] = re.sub(r"\d+", lambda m: rng.choice([m[0], rng.choice(NUMBERS[:8])]), tokens[i])
        else:  # a broken character
            t = tokens[at]
            i = rng.randrange(len(t))
            tokens[at] = t[:i] + rng.choice("<>(){}[]#!%^@\"\\x0,:=-?*\t") + t[i + 1 :]
    return "".join(tokens)


def command(rng, flags, tools):
    """Which tool reads the mutation, and how."""
    opt, compile_ = tools
    return rng.choice([
        [opt],
        [opt, *flags],
        [opt, "--flash-to-cpu"],
        [opt, "--flash-to-nvvm"],
        [compile_, "--target=sm_90a", "--emit=" + rng.choice(["mlir", "llvm", "ptx"])],
        [compile_, "--target=cpu", "--emit=" + rng.choice(["mlir", "llvm"])],
        [compile_, "--explain", "--json"],
    ])


def innermost(stderr):
    """(whether a frame is ours, the innermost mlir:: or llvm:: function) of LLVM's stack dump.

    Ours are the frames inside the tool itself, other than its start: the shared libraries are stripped, so
    that only the tool's own symbols come with a source file (`name file.cpp:0:0`).
    """
    ours, top = False, None
    for frame in FRAME.findall(stderr):
        if frame.startswith(("main ", "_start ", "llvm::sys::PrintStackTrace", "llvm::sys::RunSignal")):
            continue
        ours |= "flash::" in frame or frame.endswith(":0:0")
        if top is None and "::" in frame:
            top = re.sub(r"[<(].*", "", frame).strip()
    return ours, top


def run(number, args, chunks, tools, known):
    """Runs mutation `number`; returns (what is wrong or None, command, text)."""
    rng = random.Random(f"{args.seed}/{number}")
    _, tokens, flags = rng.choice(chunks)
    text, line = mutate(rng, tokens, chunks), command(rng, flags, tools)
    environment = dict(os.environ, LLVM_SYMBOLIZER_PATH=args.symbolizer)
    try:
        done = subprocess.run([*line, "-o", os.devnull], input=text.encode(), capture_output=True, timeout=TIMEOUT,
                              env=environment, cwd=args.scratch)
    except subprocess.TimeoutExpired:
        return f"no answer within {TIMEOUT} s", line, text
    stderr = done.stderr.decode(errors="replace")
    if done.returncode < 0 or done.returncode > 128:
        ours, top = innermost(stderr)
        if ours or top not in known:
            return f"exit code {done.returncode}, in {top}\n{stderr[-6000:]}", line, text
    elif done.returncode and "error:" not in stderr:
        return f"exit code {done.returncode} without an error: {stderr[-400:]}", line, text
    return None, line, text


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=3000, help="how many mutations (default: 3000)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="run this mutation alone and print its input")
    parser.add_argument("--build", type=pathlib.Path, default=TESTS.parent / "build")
    parser.add_argument("--symbolizer", default="/usr/lib/llvm-22/bin/llvm-symbolizer")
    args = parser.parse_args()
    tools = [str(args.build.resolve() / "bin" / name) for name in ("flash-opt", "flash-compile")]
    known = [line.strip() for line in (HERE / "upstream-crashes.txt").read_text().splitlines()
             if line.strip() and not line.startswith("#")]
    chunks = corpus()
    numbers = [args.only] if args.only is not None else range(args.count)
    failed = 0
    with tempfile.TemporaryDirectory() as args.scratch, \
            concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for number, (wrong, line, text) in zip(
                numbers, pool.map(lambda n: run(n, args, chunks, tools, known), numbers)):
            if args.only is not None:
                print(text)
            if wrong:
                failed += 1
                print(f"mutation {number} (seed {args.seed}): {' '.join(line)}: {wrong}", flush=True)
    print(f"{len(numbers)} mutations, {failed} failed")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
