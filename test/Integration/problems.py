"""What checks share: the run over named cases; and of random problems, their options and the run over them."""
import concurrent.futures
import functools
import json
import multiprocessing
import random
import sys
import time

# Options of attention() for masks that run in every kind of loop.
MASKS = {
    "dense": {},
    "causal": {"causal": True},
    "window": {"window": (256, 0)},
    "band": {"window": (100, 100)},
    "chunk": {"window": (256, 0), "attention_chunk": 512, "sink_tokens": 4},
}


def timed(check, case):
    """What is wrong with a case, or None, and its seconds."""
    start = time.time()
    try:
        wrong = check(case)
    except Exception as e:
        wrong = f"{type(e).__name__}: {str(e)[:300]}"
    return wrong, time.time() - start


def check_each(cases, check, jobs=1, skips=False):
    """check(case): what is wrong, or None, of each (name, case); prints a line each, counts, and gives the exit code. More than one
    job: processes of their own (a GPU does not survive a fork), which get `check` by its name and the arguments bound to it. With
    `skips`, what is not built is skipped."""
    passed = failed = skipped = 0
    names, values = zip(*cases) if cases else ((), ())
    with concurrent.futures.ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        done = (map if jobs == 1 else pool.map)(functools.partial(timed, check), values)
        for name, (wrong, seconds) in zip(names, done):
            if skips and wrong and wrong.startswith(NotImplementedError.__name__):
                skipped += 1
                print(f"skipped  {name}: {wrong}", flush=True)
                continue
            passed, failed = passed + (not wrong), failed + bool(wrong)
            print(f"{'FAIL' if wrong else 'ok'}  {name}, {seconds:.1f} s{': ' + wrong if wrong else ''}", flush=True)
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skips else ""))
    return failed > 0 or not passed


def differ(one, other):
    """Whether two lists of tensors differ in a bit; every NaN is as good as another."""
    torch = sys.modules["torch"]
    bits = lambda x: x.nan_to_num(nan=1e30).view(torch.int16 if x.element_size() == 2 else torch.int32)
    return any(not torch.equal(bits(x), bits(y)) or not torch.equal(x.isnan(), y.isnan()) for x, y in zip(one, other, strict=True))


def nan_where_unwritten():
    """From here on memory that PyTorch hands out holds NaN."""
    sys.modules["torch"].use_deterministic_algorithms(True)


def add_backward(parser, says):
    parser.add_argument("--backward", action="store_true", help=says)


def add_options(parser, target, count):
    parser.add_argument("folder", help="where run.py and reference.py of the cases are")
    parser.add_argument("--target", default=target)
    parser.add_argument("--count", type=int, default=count)
    parser.add_argument("--seed", type=int, default=1, help="problems seed, seed + 1, ...")
    add_backward(parser, "gradients too, of problems that have them")


def with_gradients(case):
    """The case with its gradients checked, where there are any: over caches that are only read there are none."""
    if case["dv"] > 256 or any(case.get(field) for field in ("page_size", "append", "kv_batch_idx", "leftpad_k")):
        return case
    rng = random.Random(-1 - case["seed"])
    return dict(case, bwd=True, deterministic=rng.random() < 0.3, **({"dout": "expanded"} if rng.random() < 0.1 else {}))


def check_all(cases, target, api, every, skips=False):
    """Checks `cases`, with api(case) in flash_mlir's place, and says how far it is after `every` many. Counts (passed, failed, skipped):
    with `skips`, what is not built is skipped."""
    import run

    start = time.time()
    passed = failed = skipped = 0
    for done, c in enumerate(cases, 1):
        try:
            bad = run.check(c, api(c), target, c.get("bwd", False))
            if target != "cpu":  # a kernel that died is this problem's, even where nothing was read
                sys.modules["torch"].cuda.synchronize()
        except Exception as e:
            if skips and isinstance(e, NotImplementedError):
                skipped += 1
                continue
            bad = f"{type(e).__name__}: {str(e)[:300]}"
        passed, failed = passed + (bad is None), failed + (bad is not None)
        if bad:
            print(f"{bad}\n    {json.dumps(c)}", flush=True)
        if done % every == 0:
            print(f"{done} of {len(cases)}, {time.time() - start:.0f} s", flush=True)
    return passed, failed, skipped
