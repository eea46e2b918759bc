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
TOKEN = re.compile(r'"[^"\n]*"|(?<=[\d?])x|[%@#!^]?[A-Za-z_$][\w.$-]*|-?\d+|\s+|->|::|.', re.S)
FRAME = re.compile(r"^ *#\d+ 0x[0-9a-f]+ (.*)$", re.M)
SIZES = ["0", "1", "2", "3", "4", "7", "8", "16", "40", "64", "100", "128", "256", "512", "4096", "65536", "1000000",
         "2147483647", "2147483648", "4294967296", "9223372036854775807"]
ODD_NUMBERS = ["-1", "-9223372036854775808", "99999999999999999999", "1.0e+400", "?"]
TYPES = ["f16", "bf16", "f32", "f64", "i1", "i32", "i64", "index"]
TIMEOUT = 30  # seconds


def corpus():
    """Every chunk of every lit test as (name, text, flags of its first flash-opt run)."""
    chunks = []
    for path in sorted(TESTS.rglob("*.mlir")):
        if path.is_relative_to(HERE):
            continue
        joined = re.sub(r"\\\n\s*//\s*RUN:", "", path.read_text())
        runs = re.findall(r"RUN:.*?\bflash-opt\b([^|\n]*)", joined)
        flags = [f for f in runs[0].split() if f.startswith(("--flash", "--convert"))] if runs else []
        lines = [line for line in path.read_text().splitlines() if not re.match(r"\s*//(?! -----)", line)]
        for chunk in "\n".join(lines).split("// -----"):
            if chunk.strip() and not chunk.lstrip().startswith("{"):  # MLIR, not the language server's JSON
                chunks.append((str(path.relative_to(TESTS)), chunk, flags))
    return chunks


def choose(rng, chunks):
    """A chunk; mostly one that is right before the mutation, so that it gets beyond the parser."""
    right = [c for c in chunks if "invalid" not in c[0] and "refused" not in c[0]]
    return rng.choice(right if rng.random() < 0.8 else chunks)


def kind(token):
    """What a token may be replaced by: another of its kind. Signs and spaces have none."""
    if token.lstrip("-").isdigit():
        return "number"
    if token in TYPES or token[0] in "%@#!^":
        return "type" if token in TYPES else token[0]
    return "x" if token == "x" else "op" if "." in token and token[0].isalpha() else "word" if token[0].isalpha() else None


def other(rng, token, chunks, text):
    """Another token of the same kind, of this chunk or of any."""
    if kind(token) == "number":
        return rng.choice(SIZES if rng.random() < 0.85 else ODD_NUMBERS)
    if kind(token) == "type":
        return rng.choice(TYPES)
    pool = TOKEN.findall(text if token[0] in "%@^" or rng.random() < 0.5 else rng.choice(chunks)[1])
    same = [t for t in pool if t != token and kind(t) == kind(token)]
    return rng.choice(same) if same else token


def mutate(rng, text, chunks):
    """A mutated copy of `text`: a truncation, or one to three edits of numbers, tokens, lines, characters."""
    if rng.random() < 0.1:
        return text[: rng.randrange(len(text))]
    for _ in range(rng.randint(1, 3)):
        lines, tokens = text.split("\n"), TOKEN.findall(text)
        wanted = rng.choice(["number"] * 5 + ["type", "%", "%", "op", "word", "#"])
        words = ([i for i, t in enumerate(tokens) if kind(t) == wanted] or
                 [i for i, t in enumerate(tokens) if not t.isspace()])
        if not words:
            break
        edit = rng.choice(["everywhere"] * 4 + ["once"] * 5 + ["line", "token", "character"] + ["rank"] * 2)
        if edit == "everywhere":  # stays consistent: sizes, types, names
            old = tokens[rng.choice(words)]
            new = other(rng, old, chunks, text)
            text = "".join(new if t == old else t for t in tokens)
        elif edit == "once":
            at = rng.choice(words)
            tokens[at] = other(rng, tokens[at], chunks, text)
            text = "".join(tokens)
        elif edit == "rank":  # drop or repeat dimensions of a type, everywhere or once
            shapes = [m[0] for m in re.finditer(r"\b(tensor|memref)<([\d?]+x)+", text)]
            if shapes:
                old = rng.choice(shapes)
                name, dims = old.split("<")
                count, dims = rng.randint(1, 2), dims[:-1].split("x")
                new = dims[count:] if rng.random() < 0.7 else dims[:count] + dims
                new = name + "<" + "".join(dim + "x" for dim in new)
                text = text.replace(old, new) if rng.random() < 0.5 else text.replace(old, new, 1)
        elif edit == "line":  # drop, repeat or move a line
            line = lines[rng.randrange(len(lines))]
            if rng.random() < 0.6:
                lines.remove(line)
            if rng.random() < 0.6:
                lines.insert(rng.randrange(len(lines) + 1), line)
            text = "\n".join(lines)
        elif edit == "token":  # drop or repeat a run of tokens
            at, count = rng.choice(words), rng.randint(1, 8)
            tokens[at : at + count] = tokens[at : at + count] * rng.choice([0, 0, 2])
            text = "".join(tokens)
        else:
            at = rng.randrange(len(text))
            text = text[:at] + rng.choice("<>(){}[]#!%^@\"\\x0,:=-?*\t") + text[at + 1 :]
    return text


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
        if frame.startswith(("main ", "_start ", "llvm::sys::PrintStackTrace", "llvm::sys::RunSignal", "llvm::report_")):
            continue
        ours |= "flash::" in frame or frame.endswith(":0:0")
        if top is None and "::" in frame:
            top = re.sub(r"[<(].*", "", frame).strip()
    return ours, top


def run(number, args, chunks, tools, known):
    """Runs mutation `number`; returns (what is wrong or None, command, text)."""
    rng = random.Random(f"{args.seed}/{number}")
    _, text, flags = choose(rng, chunks)
    text, line = mutate(rng, text, chunks), command(rng, flags, tools)
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
