#!/usr/bin/env python3
"""Everything that a GPU must show, in one run: timings one by one first, then all checks at once, then the sanitizers.

    python3 test/Integration/accept_gpu.py CASES_FOLDER [--stages timings,checks,sanitizers] [--only TEXT] [--out FOLDER] [--seconds 600]
    python3 test/Integration/accept_gpu.py CASES_FOLDER --backward [--plan "#flash.plan<consumers = 2>"]      what gradients must show
    python3 bundle/cases/accept_gpu.py bundle/cases --stages checks      of what ./dev bundle packed

Needs torch and, for the sanitizers, compute-sanitizer. CASES_FOLDER holds handed.jsonl, run.py and reference.py. Each command's output
goes to FOLDER; the last line of each is printed as it ends, with its seconds. Ends with `N passed, M failed`: a command passes if it
exits with 0. A bar that a benchmark misses is in its output and fails nothing.
"""
import argparse
import concurrent.futures
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOTS = (HERE.parent, HERE.parents[1])  # of a bundle, of the sources
BENCHMARKS = next(root / "benchmarks" for root in ROOTS if (root / "benchmarks").exists())
PACKAGE = next(place for place in (ROOTS[0], ROOTS[1] / "python") if (place / "flash_mlir").exists())
ENVIRONMENT = {
    "OMP_NUM_THREADS": "2",  # of NumPy's float64 products: a thread per core in each of the processes is four times slower
    **os.environ,
    "PYTHONPATH": os.pathsep.join(filter(None, [str(PACKAGE), os.environ.get("PYTHONPATH")])),
}
TARGETS = ("sm_90a", "sm_80")
SHARDS = 4  # processes that share one list of problems
SANITIZERS = ("memcheck", "racecheck", "synccheck")


def benchmark(name, script, *options):
    return name, lambda a: [BENCHMARKS / script, *options, "--json", a.out / f"{name}.jsonl"]


def timings():
    yield benchmark("grid", "grid.py", "--suite", "fwd,gqa,local")
    yield benchmark("serving", "serving.py")
    yield benchmark("grid-sm_80", "grid.py", "--target", "sm_80", "--peers", "fa2")
    yield benchmark("heads", "grid.py", "--suite", "heads")
    yield benchmark("grid-f16", "grid.py", "--element", "f16")


def handed(a, target, shard, of=""):
    """A file, of this target's own, of every SHARDS-th case, of those whose line holds `of`."""
    path = a.out / f"handed-{target}-{shard}.jsonl"
    lines = (a.folder / "handed.jsonl").read_text().splitlines(keepends=True)
    path.write_text("".join([line for line in lines if of in line][shard::SHARDS]))
    return path


def checks():
    for target in TARGETS:  # the longest first
        yield f"launches-{target}", lambda a, t=target: [HERE / "launches_gpu.py", "--targets", t, "--jobs", str(SHARDS)]
        yield f"graph-{target}", lambda a, t=target: [HERE / "graph_gpu.py", "--target", t, "--jobs", str(SHARDS)]
    for target in TARGETS:
        for shard in range(SHARDS):
            yield f"handed-{target}-{shard}", lambda a, t=target, s=shard: [a.folder / "run.py", handed(a, t, s), "--target", t, "--skip-backward"]
            yield f"serving-{target}-{shard}", lambda a, t=target, s=shard: [HERE / "random_serving.py", a.folder, "--target", t, "--seed", str(1000 * (s + 1)), "--count", "75"]
        yield f"redo-{target}", lambda a, t=target: [HERE / "redo_gpu.py", a.folder, "--targets", t, "--jobs", str(SHARDS)]
        yield f"random-{target}", lambda a, t=target: [HERE / "random_gpu.py", a.folder, "--target", t, "--seed", "5", "--jobs", str(SHARDS)]
    yield "offsets", lambda a: [HERE / "offsets_gpu.py"]
    yield "repeat", lambda a: [HERE / "repeat_gpu.py", "--jobs", str(SHARDS)]
    yield "streams", lambda a: [HERE / "streams_gpu.py"]


def sanitizers():
    for tool in SANITIZERS:
        for target in TARGETS:  # blocks that take a second tile, and redo rows
            yield f"{tool}-redo_gpu-{target}", lambda a, t=target: [HERE / "redo_gpu.py", a.folder, "--targets", t, "--jumps", "3000", "--only", "64x64", "--reference", "cpu"]
    yield from sanitizers_of_random()


def sanitizers_of_random(own=lambda a, target: []):
    for tool in SANITIZERS:
        for target in TARGETS:
            for script, jobs in (("random_gpu.py", ["--jobs", "1"]), ("random_serving.py", [])):
                yield f"{tool}-{script[:-3]}-{target}", lambda a, f=script, t=target, jobs=jobs: [HERE / f, a.folder, "--target", t, "--seed", "40", "--count", "10", *jobs, *own(a, t)]


# The same of gradients.


def backward(a, target):
    """--backward of a script, on sm_90a with the plan that was asked for."""
    return ["--backward", *(["--plan", a.plan] if a.plan and target == "sm_90a" else [])]


def backward_timings():
    for target, peers in (("sm_90a", "cudnn,fa2"), ("sm_80", "fa2")):
        plan = lambda a, t=target: ["--plan", a.plan] if a.plan and t == "sm_90a" else []
        name, command = benchmark(f"gradients-{target}", "grid.py", "--suite", "bwd", "--deterministic", "--target", target, "--peers", peers)
        yield name, lambda a, command=command, plan=plan: [*command(a), *plan(a)]


def backward_checks():
    of = lambda script, t, *options: lambda a: [HERE / script, *options, *backward(a, t)]
    for target in TARGETS:  # the longest first
        yield f"repeat-{target}", of("repeat_gpu.py", target, "--target", target, "--jobs", str(SHARDS))
        yield f"launches-{target}", of("launches_gpu.py", target, "--targets", target, "--jobs", str(SHARDS))
        yield f"graph-{target}", of("graph_gpu.py", target, "--target", target, "--jobs", str(SHARDS), "--replays", "2000")
    for target in TARGETS:
        for shard in range(SHARDS):
            yield f"handed-{target}-{shard}", lambda a, t=target, s=shard: [HERE / "by_hand.py", *backward(a, t), a.folder / "run.py", handed(a, t, s, '"bwd": true'), "--target", t]
            yield f"serving-{target}-{shard}", lambda a, t=target, s=shard: [HERE / "random_serving.py", a.folder, "--target", t, "--seed", str(1000 * (s + 1)), "--count", "75", *backward(a, t)]
            yield f"random-{target}-{shard}", lambda a, t=target, s=shard: [HERE / "random_gpu.py", a.folder, "--target", t, "--seed", str(5 + 50 * s), "--count", "50", "--jobs", "2", *backward(a, t)]
        yield f"train-{target}", lambda a, t=target: [HERE / "train_gpu.py", "--target", t, *backward(a, t)[1:]]


STAGES = {"timings": (timings, 1), "checks": (checks, os.cpu_count()), "sanitizers": (sanitizers, os.cpu_count())}
BACKWARD = {"timings": backward_timings, "checks": backward_checks, "sanitizers": lambda: sanitizers_of_random(backward)}


def run(name, command, arguments, until):
    """Whether the command ended well; its last line and seconds are printed."""
    start, output = time.time(), arguments.out / f"{name}.txt"
    tool = name.split("-")[0]
    prefix = [shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer", "--tool", tool, "--error-exitcode", "9"] if tool in SANITIZERS else []
    with open(output, "w") as f:
        try:
            code = subprocess.run([*prefix, sys.executable, *command(arguments)], stdout=f, stderr=subprocess.STDOUT, env=ENVIRONMENT, timeout=max(until - start, 1)).returncode
        except subprocess.TimeoutExpired:
            code = "out of time"
        except OSError as e:
            code = str(e)
    lines = output.read_text(errors="replace").strip().splitlines()
    print(f"{'ok' if code == 0 else f'FAIL ({code})'}  {name}, {time.time() - start:.0f} s: {lines[-1][:160] if lines else 'no output'}", flush=True)
    return code == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path, help="where handed.jsonl, run.py and reference.py are")
    parser.add_argument("--stages", default=",".join(STAGES), help="(default: %(default)s)")
    parser.add_argument("--only", default="", help="commands whose name holds this")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("accept"), help="(default: %(default)s)")
    parser.add_argument("--backward", action="store_true", help="gradients in place of attention")
    parser.add_argument("--plan", default="", help='of gradients on sm_90a, as "#flash.plan<consumers = 2>"')
    parser.add_argument("--seconds", type=float, default=600, help="for all of it")
    arguments = parser.parse_args()
    unknown = [s for s in arguments.stages.split(",") if s not in STAGES]
    if unknown:
        parser.error(f"expected --stages to be of {', '.join(STAGES)}, got {unknown[0]}")
    missing = [name for name in ("handed.jsonl", "run.py", "reference.py") if not (arguments.folder / name).is_file()]
    if missing:
        parser.error(f"expected {missing[0]} in {arguments.folder}, it has none")
    try:
        arguments.out.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        parser.error(f"expected --out to be a folder: {e}")
    if not importlib.util.find_spec("torch"):
        sys.exit(f"accept_gpu.py: expected PyTorch, which all of it needs, it is not installed here; {sys.executable} -m pip install torch")
    until, good = time.time() + arguments.seconds, []
    for stage in arguments.stages.split(","):
        commands, jobs = STAGES[stage]
        if arguments.backward:
            commands = BACKWARD[stage]
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            good += pool.map(lambda x: run(*x, arguments, until), [x for x in commands() if arguments.only in x[0]])
    print(f"{sum(good)} passed, {len(good) - sum(good)} failed")
    return not good or not all(good)


if __name__ == "__main__":
    sys.exit(main())
