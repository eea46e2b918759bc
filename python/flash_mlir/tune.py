"""Searches the best plans on the present GPU and writes them as records, which the planner prefers from then on.

    python3 -m flash_mlir.tune                                        head sizes 64, 128 and 256, dense and causal
    python3 -m flash_mlir.tune --heads 128 --lengths 4096 --masks causal,256
    python3 -m flash_mlir.tune --seconds 240 --log tune.jsonl         stops in time
    python3 -m flash_mlir.tune --backward                             plans of gradients

For every combination of --heads, --masks, --lengths and --elements (batch x length = --tokens, heads x head size = --width), starts
from the plan in use, what won before and seeds, and walks: all plans that differ in one axis of AXES are compiled by a pool of
processes, those that the planner refuses, that spill or that ptxas calls slow are dropped, the others are checked against float64
and timed in turn, and the fastest is the next to start from. The winner is timed against the plan in use (A B A B) and becomes a
record if it is faster by MARGIN. Records go to --out (default: the user's folder, where the planner finds them), every measurement to
--log: the same command again goes on from there.
"""
import argparse
import concurrent.futures
import functools
import itertools
import json
import math
import multiprocessing
import os
import pathlib
import re
import sys
import threading
import time

from . import _api, _cache, _records, _timing
from ._library import cache_folder, losses

# field of a plan: its values. Consumers and registers follow the tile. Fields that this build does not know are skipped.
AXES = {
    "tile": list(itertools.product((64, 128, 192, 256), range(32, 257, 16))),
    "stages": [1, 2, 3, 4],
    "overlap": [False, True],
    "defer_max": [False, True],
    "q_in_regs": [False, True],
    "ping_pong": [False, True],
    "early_wait": [False, True],
    "exact_counts": [False, True],
    "stealing": [False, True],
    "multicast": [False, True],
    "staged_columns": [0, 64, 128, 192, 256],
    "order": ["static", "dynamic"],
    "warps": [4, 8],
    "registers": [(255, 255), (168, 168)],
}
# Of them, what kernels without roles have.
SM80_AXES = ("tile", "stages", "overlap", "defer_max", "q_in_regs", "warps", "registers")
# Of gradients. Consumers follow a tile's keys; of staged columns each tile takes 0 and one more. A record serves sums in any order and
# in one.
BACKWARD_AXES = {
    "tile": list(itertools.product((32, 64, 128), (32, 64, 128, 192))),
    "stages": [1, 2, 3],
    "consumers": [1, 2, 3],
    "overlap": [False, True],
    "own_dv": [False, True],
    "late_v": [False, True],
    "late_dp": [False, True],
    "split_by": ["rows", "columns"],
    "staged_columns": [0, 32, 64, 128],
    "warps": [4, 8],
}
KEYS_A_CONSUMER = 64
# Several fields at once, by head size: what was fast on Hopper, each tried with and without a deferred maximum. Single steps from the
# plan in use need not lead there.
SEEDS = {
    64: [
        dict(tile=(256, 64), stages=3, ping_pong=True, q_in_regs=False),
        dict(tile=(256, 64), stages=3, ping_pong=False, q_in_regs=False),
        dict(tile=(192, 112), stages=2, ping_pong=True, early_wait=True),
        dict(tile=(192, 128), stages=2, ping_pong=True),
    ],
    128: [
        dict(tile=(128, 128), stages=2, q_in_regs=True, early_wait=True),
        dict(tile=(128, 64), stages=4, q_in_regs=True, ping_pong=True),
        dict(tile=(128, 128), stages=2, q_in_regs=True, multicast=True),
        dict(tile=(192, 80), stages=2),
        dict(tile=(192, 64), stages=3),
    ],
    192: [
        dict(tile=(128, 64), stages=3, ping_pong=True),
        dict(tile=(128, 64), stages=2, q_in_regs=True, early_wait=True),
        dict(tile=(128, 96), stages=2, multicast=True),
    ],
    (192, 128): [
        dict(tile=(128, 96), stages=2, q_in_regs=True, early_wait=True),
        dict(tile=(128, 128), stages=2, early_wait=True),
        dict(tile=(128, 128), stages=2, multicast=True),
        dict(tile=(192, 80), stages=2),
    ],
    256: [
        dict(tile=(128, 64), stages=2, early_wait=True),
        dict(tile=(128, 80), stages=2, early_wait=True),
        dict(tile=(128, 64), stages=2, early_wait=True, multicast=True),
        dict(tile=(128, 80), stages=2, early_wait=True, multicast=True),
    ],
}
# For kernels without roles, where most single steps from a good plan spill: all combinations of these keys a tile and SWITCHES.
SM80_KEYS = {64: (32, 48, 64, 80, 96), 128: (32, 48, 64, 96), 256: (16, 32, 48, 64)}
SWITCHES = {field: AXES[field] for field in ("warps", "overlap", "defer_max", "q_in_regs")}
# Narrower heads load too little for blocks to share keys: there the axis is not searched.
MULTICAST_FROM = 128
MARGIN = 1.005  # a gain below this is noise
SWEEPS = 4
SAMPLED_ROWS = 96
PATIENCE = 30  # seconds for a check, after which a plan counts as hanging


# ---- problems and plans ---------------------------------------------------------------------------------------------------------


def problems(heads, masks, lengths, tokens, width, elements, target="sm_90a", backward=False):
    """The problems, those that share kernels one after the other; of each, all elements."""
    for size, mask, length, element in itertools.product(heads, masks, lengths, elements):
        d, _, dv = size.partition("x")
        left = int(mask) if mask.isdigit() else -1
        if left < length:
            yield dict(b=max(tokens // length, 1), h=max(width // int(d), 1), s=length, d=int(d), dv=int(dv or d), element=element, causal=mask != "dense", left=left, target=target,
                       **({"backward": True} if backward else {}))


def is_backward(p):
    return p.get("backward", False)


def name_of(p):
    mask = f"window {p['left']}" if p["left"] >= 0 else "causal" if p["causal"] else "dense"
    return ("gradients " if is_backward(p) else "") + f"d{p['d']}" + (f"x{p['dv']}" if p["dv"] != p["d"] else "") + f" {mask} {p['b']}x{p['s']} {p['element']}" + (f" {p['target']}" if p["target"] != "sm_90a" else "")


def kernel_of(p, **other):
    """What problems have in common that run the same kernels."""
    return name_of(dict(p, b="", s="", **other))


def shapes(p):
    return tuple((p["b"], p["s"], p["h"], d) for d in (p["d"], p["d"], p["dv"]))


def options(p):
    return dict(causal=p["causal"], window=(p["left"], -1))


def compiled(p, plan=None):
    """The program of a problem under a plan."""
    return _api.compile(*shapes(p), element=p["element"], plan=plan, target=p["target"], backward=is_backward(p), **options(p))


def written(fields):
    """A plan as text; fields in the order of AXES, so that equal plans have equal texts."""
    def value(x):
        return f'"{x}"' if isinstance(x, str) else str(list(x) if isinstance(x, (list, tuple)) else x).lower()

    return "#flash.plan<" + ", ".join(f"{field} = {value(fields[field])}" for field in AXES | BACKWARD_AXES if field in fields) + ">"


def read(plan):
    """The fields of a plan's text that AXES or BACKWARD_AXES has."""
    fields = {field: json.loads(value) for field, value in re.findall(r'(\w+) = (\[[^\]]*\]|"[^"]*"|[^,>]+)', plan)}
    return {field: tuple(value) if isinstance(value, list) else value for field, value in fields.items() if field in AXES | BACKWARD_AXES}


@functools.cache
def axes(target="sm_90a", backward=False):
    """AXES of a target, without the fields that this build's plans do not have."""
    def known(field, value):
        try:
            _api.explain((1, 1, 1, 128), (1, 1, 1, 128), (1, 1, 1, 128), plan=written({field: value}))
        except (ValueError, NotImplementedError) as e:
            return f"no field '{field}'" not in str(e)
        return True

    if backward:
        wanted = [field for field in BACKWARD_AXES if (field in ("tile", "stages", "split_by", "warps") if target != "sm_90a" else field not in ("split_by", "warps"))]
        return {field: BACKWARD_AXES[field] for field in wanted if known(field, BACKWARD_AXES[field][0])}
    wanted = SM80_AXES if target != "sm_90a" else [field for field in AXES if field not in ("warps", "registers")]
    return {field: AXES[field] for field in wanted if known(field, AXES[field][0])}


def in_use(p):
    """The fields of the plan that the planner picks, and what ptxas says of its kernel."""
    program = compiled(p)
    if is_backward(p):  # fields that its text leaves out have their defaults
        fields = read(program.text("plan"))
        return {field: fields[field] for field in axes(p["target"], True) if field in fields and field != "staged_columns"}, program.text("report")
    plan = _api.explain(*shapes(p), element=p["element"], target=p["target"], json=True, **options(p))
    known = {"warps": 4 * plan["tile"]["consumers"], "registers": (plan["registers"]["consumer"],) * 2, **plan["tile"], **plan["output"], **plan["order"], "order": plan["order"]["name"], **read(program.text("plan")), "tile": (plan["tile"]["m"], plan["tile"]["n"])}
    return {field: known[field] for field in axes(p["target"]) if field in known}, program.text("report")


def seeds(p, fields):
    """What the target's table of seeds has for a problem as whole plans, as far as this build knows their fields."""
    size = p["d"] if p["dv"] == p["d"] else (p["d"], p["dv"])
    if is_backward(p):
        return  # so few plans that single steps reach them
    if p["target"] == "sm_90a":
        some = [dict(seed, defer_max=defer) for seed in SEEDS.get(size, []) for defer in (True, False)]
    else:
        tiles = [(128, keys) for keys in SM80_KEYS.get(max(p["d"], p["dv"]), (32, 48, 64))]
        some = [dict(zip(("tile", *SWITCHES), seed)) for seed in itertools.product(tiles, *SWITCHES.values())]
    for seed in some:
        yield {field: value for field, value in {**fields, **seed}.items() if field in axes(p["target"])}


def neighbours(fields, axes):
    """Every plan that differs from `fields` in one axis."""
    for field, values in axes.items():
        for value in values:
            if fields.get(field) != value:
                yield {**fields, field: value, **({"consumers": value[1] // KEYS_A_CONSUMER} if field == "tile" and "consumers" in axes else {})}


def complaint(report, allowed_spill=0):
    """Why a kernel with that report of ptxas is not worth running, or nothing."""
    if lost := losses(report):
        return lost[0]
    spilled = spilled_bytes(report)
    return f"spills {spilled} bytes" if spilled > allowed_spill else None


def spilled_bytes(report):
    return sum(map(int, re.findall(r"(\d+) bytes spill stores", report)))


def prepare(p, plan, allowed_spill):
    """Compiles a candidate into the disk cache; the sentence if it is out."""
    try:
        program = compiled(p, plan)
    except (ValueError, NotImplementedError, RuntimeError) as e:
        return str(e).splitlines()[0]
    return complaint(program.text("report"), allowed_spill)


# ---- measuring ------------------------------------------------------------------------------------------------------------------


class Bench:
    """One problem on the GPU: checks and times plans."""

    def __init__(self, p, flush):
        import torch

        self.torch, self.p, self.flush = torch, p, flush
        torch.manual_seed(0)
        dtype = {"bf16": torch.bfloat16, "f16": torch.float16}[p["element"]]
        self.q, self.k, self.v = (torch.randn(shape, device="cuda", dtype=dtype) for shape in shapes(p))
        self.out = torch.empty(*self.q.shape[:3], p["dv"], device="cuda", dtype=dtype)
        self.lse = torch.empty(p["b"], p["h"], p["s"], device="cuda", dtype=torch.float32)
        step = max(p["s"] // SAMPLED_ROWS, 1)
        self.rows = torch.arange(p["s"] - 1, -1, -step, device="cuda")  # the last row sees the most
        self.results, self.base, self.allowed = [self.out], None, _timing.ALLOWED
        if is_backward(p):
            self.do, self.allowed = torch.randn_like(self.out), 2 * _timing.ALLOWED
            _api.planned(self.q, self.k, self.v, self.out, **options(p)).run(self.q, self.k, self.v, self.out, self.lse)
            self.results = [torch.empty_like(x) for x in (self.q, self.k, self.v)]
        self.want = self.in_float64()

    def scores(self, q, k, i, j):
        """Of queries i [., 1] and keys j, masked."""
        s = q @ k.transpose(1, 2) * self.p["d"] ** -0.5
        hidden = (j > i) | ((j < i - self.p["left"]) if self.p["left"] >= 0 else False)
        return s.masked_fill(hidden, -math.inf) if self.p["causal"] else s

    def in_float64(self):
        """The sampled rows of the first batch entry's first four heads, of each result."""
        torch, rows, every = self.torch, self.rows, self.torch.arange(self.p["s"], device="cuda")
        q, k, v = map(self.first, (self.q, self.k, self.v))
        p = torch.softmax(self.scores(q[:, rows], k, rows[:, None], every), -1)
        if not is_backward(self.p):
            return [p @ v]
        do, o, scale = self.first(self.do), self.first(self.out), self.p["d"] ** -0.5
        delta = (do * o).sum(-1, keepdim=True)
        dq = p * (do[:, rows] @ v.transpose(1, 2) - delta[:, rows]) @ k * scale
        p = (self.scores(q, k[:, rows], every[:, None], rows) - self.lse[0, :4, :, None].double()).exp()
        ds = p * (do @ v[:, rows].transpose(1, 2) - delta)
        return [dq, ds.transpose(1, 2) @ q * scale, p.transpose(1, 2) @ do]

    @staticmethod
    def first(x):
        return x[0, :, :4].transpose(0, 1).double()

    def call(self, plan):
        arrays, asked = (self.q, self.k, self.v), dict(plan=plan, target=self.p["target"], **options(self.p))
        if is_backward(self.p):
            made = _api.planned_backward(self.do, *arrays, self.out, self.lse, **asked)
            return lambda: made.run(*arrays, self.do, self.out, self.lse, *self.results)
        made = _api.planned(*arrays, self.out, **asked)
        return lambda: made.run(*arrays, self.out, self.lse)

    def wrong(self, call):
        """The sentence for a result that is off; the first one right is what later ones are held to."""
        for x in self.results:
            x.fill_(math.nan)
        call()
        for of, wanted in (("float64", self.want), ("the plan in use", self.base)):
            for got, want in zip(self.results, wanted or ()):
                apart = _timing.apart(self.first(got)[:, self.rows] if of == "float64" else got, want)
                if not apart < self.allowed:
                    return f"{apart:.1e} from {of}"
        if self.base is None:
            self.base = [x.clone() for x in self.results]
        return None

    def times(self, calls, thorough):
        if thorough:
            return _timing.measure(calls, self.flush, rounds_ms=400, rounds=(20, 60))
        return _timing.measure(calls, self.flush, warm_up_ms=15, rounds_ms=1200, rounds=(5, 9))


# ---- the log --------------------------------------------------------------------------------------------------------------------


class Log:
    """What was measured, a JSON line each, of this build. A plan that was started and never reported took the process with it:
    `started` holds it, and it is not tried again for any problem that shares its kernel."""

    def __init__(self, path, build):
        self.path, self.build, self.finished, self.started = path, build, {}, set()
        if path.exists():
            for line in path.read_text().splitlines():
                try:
                    entry = json.loads(line)
                except ValueError:  # the last line of a process that was ended
                    continue
                if entry.get("build") == build:
                    self._take(entry)

    def _take(self, entry):
        if "winner" in entry:
            self.finished[entry["problem"]] = entry
        elif "started" in entry:
            self.started.add((entry["kernel"], entry["started"]))
        elif "checked" in entry:
            self.started.discard((entry["kernel"], entry["checked"]))

    def add(self, **entry):
        entry["build"] = self.build
        self._take(entry)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.path, "a") as f:
            f.write(json.dumps(entry) + "\n")


def build():
    """What identifies the compiler: the tail of every key."""
    problem = dict(target="sm_90a", element="bf16", head_size=64)
    return _cache.key(json.dumps(problem)).split(" compiler ")[1]


# ---- searching ------------------------------------------------------------------------------------------------------------------


def walk(starts, evaluate, axes, sweeps=SWEEPS, more=lambda: True):
    """The fastest plan (fields) that single steps from the fastest of `starts` lead to, and how many were tried.

    evaluate(list of fields) -> milliseconds of each, None for a plan that is out; the first of a list is always the one to beat."""
    seen, best = {written(f) for f in starts}, starts[0]
    tried, candidates = len(seen), starts
    for _ in range(sweeps + 1):
        times = evaluate(candidates)
        fastest, ms = min(((f, t) for f, t in zip(candidates, times) if t is not None), key=lambda x: x[1], default=(best, None))
        moved = ms is not None and (times[0] is None or times[0] > ms * MARGIN)
        best = fastest if moved else best
        fresh = [f for f in neighbours(best, axes) if written(f) not in seen]
        if (candidates is not starts and not moved) or not fresh or not more():
            break
        seen |= {written(f) for f in fresh}
        tried += len(fresh)
        candidates = [best, *fresh]
    return best, tried


class Search:
    def __init__(self, pool, flush, log, deadline, leader):
        """leader: the element that is searched; of others only its winners are tried."""
        self.pool, self.flush, self.log, self.deadline, self.leader = pool, flush, log, deadline, leader
        self.winners = {}  # of problems that share kernels, but for the element
        for entry in log.finished.values():
            self._keep(entry)

    def _keep(self, entry):
        p, best = entry["fields"], read(entry["winner"])
        if entry["gain"] >= MARGIN and best not in self.winners.setdefault(kernel_of(p, element=""), []):
            self.winners[kernel_of(p, element="")].append(best)

    def more(self):
        return time.monotonic() < self.deadline

    def give_up(self, why):
        """Starts this command anew, without the plan that spoilt the GPU's context; the log knows everything else."""
        print(f"{why}; starting anew without it", flush=True)
        for child in multiprocessing.active_children():
            child.kill()
        left = max(self.deadline - time.monotonic(), 0)
        os.execv(sys.executable, [sys.executable, "-m", "flash_mlir.tune", *sys.argv[1:], "--seconds", str(left)])

    def problem(self, p):
        """Searches one problem; its entry in the log."""
        name, (default, report) = name_of(p), in_use(p)
        spill, bench, group, notes = spilled_bytes(report), Bench(p, self.flush), kernel_of(p), {}

        def evaluate(candidates):
            plans = [written(f) for f in candidates]
            notes.update(zip(plans, self.pool.map(prepare, [p] * len(plans), plans, [spill] * len(plans))))
            notes.update({plan: "took the process with it" for plan in plans if (group, plan) in self.log.started})
            calls = {}
            for plan in (plan for plan in plans if not notes[plan]):
                self.log.add(kernel=group, started=plan)
                watch = threading.Timer(PATIENCE, self.give_up, ["a plan hangs"])
                watch.start()
                try:
                    calls[plan] = bench.call(plan)
                    notes[plan] = bench.wrong(calls[plan])
                except (ValueError, NotImplementedError) as e:
                    notes[plan] = str(e).splitlines()[0]
                finally:
                    watch.cancel()
                if notes[plan]:
                    calls.pop(plan, None)
                self.log.add(kernel=group, checked=plan)
            times = dict(zip(calls, bench.times(list(calls.values()), thorough=False) if calls else []))
            self.log.add(problem=name, ms={plan: times.get(plan, notes[plan]) for plan in plans})
            return [times.get(plan) for plan in plans]

        follows = p["element"] != self.leader
        others = self.winners.get(kernel_of(p, element=""), []) + ([in_use(dict(p, element=self.leader))[0]] if follows else [])
        starts = list({written(f): f for f in [default, *others, *(() if follows else seeds(p, default))]}.values())
        searched = {field: values for field, values in axes(p["target"], is_backward(p)).items() if field != "multicast" or max(p["d"], p["dv"]) >= MULTICAST_FROM}
        best, tried = walk(starts, evaluate, searched, more=lambda: self.more() and not follows)
        plan = written(best)
        if plan == written(default):
            before = after = bench.times([bench.call(None)], thorough=True)[0]
        else:
            before, after = bench.times([bench.call(None), bench.call(plan)], thorough=True)
        if before < after * MARGIN:
            plan, after = written(default), before
        self.log.add(problem=name, winner=plan, fields=p, before_ms=before, after_ms=after, gain=before / after, tried=tried,
                     dropped=sum(bool(note) for note in notes.values()))
        self._keep(self.log.finished[name])
        return self.log.finished[name]


def tflops(p, ms):
    return (_timing.BACKWARD_WORK if is_backward(p) else 1) * _timing.flops(p["b"], p["h"], p["s"], p["s"], p["d"], p["dv"], p["causal"], p["left"]) / ms / 1e9


def record(entry):
    """The record of a log's entry, or nothing where the planner's own plan won."""
    p = entry["fields"]
    if entry["gain"] < MARGIN:
        return None
    after, before = (tflops(p, entry[key]) for key in ("after_ms", "before_ms"))
    mask = dict(mask="local", left=p["left"], right=0) if p["left"] >= 0 else dict(mask="causal" if p["causal"] else "dense")
    return dict(target=p["target"], element=p["element"], **({"backward": True} if is_backward(p) else {}), head_size=p["d"], head_size_v=p["dv"], **mask, queries=p["s"], keys=p["s"], plan=entry["winner"],
                tflops=round(after, 1), why=f"{after:.0f} TFLOP/s at {p['b']} x {p['s']}, {before:.0f} before; the best of {entry['tried']} plans")


# ---- the command ----------------------------------------------------------------------------------------------------------------


def line(entry):
    p = entry["fields"]
    return (f"{name_of(p):34} {tflops(p, entry['before_ms']):8.1f} {tflops(p, entry['after_ms']):8.1f} {entry['gain']:7.3f} {entry['tried']:6} "
            f"{entry['dropped']:7}  {entry['winner'] if entry['gain'] >= MARGIN else 'the plan in use'}")


HEADER = f"{'TFLOP/s':34} {'in use':>8} {'found':>8} {'gain':>7} {'tried':>6} {'dropped':>7}  plan"


def show(entries):
    """The table at the end, by rich where that is installed."""
    try:
        from rich.console import Console
        from rich.table import Table
    except ImportError:
        print("\n" + HEADER + "".join("\n" + line(e) for e in entries))
        return
    table = Table("problem", "in use", "found", "gain", "tried", "dropped", "plan", title="TFLOP/s")
    for e in entries:
        p = e["fields"]
        table.add_row(name_of(p), f"{tflops(p, e['before_ms']):.1f}", f"{tflops(p, e['after_ms']):.1f}", f"{e['gain']:.3f}", str(e["tried"]), str(e["dropped"]),
                      e["winner"].removeprefix("#flash.plan") if e["gain"] >= MARGIN else "in use")
    Console(width=None if sys.stdout.isatty() else 200).print(table)


def follow(items, total):
    """Passes items on; shows how far it is where rich is installed and someone watches."""
    if sys.stdout.isatty():
        try:
            from rich.progress import track

            return track(items, "tuning", total=total)
        except ImportError:
            pass
    return items


def arguments():
    ap = argparse.ArgumentParser(prog="flash_mlir.tune", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--heads", default="64,128,256", help='head sizes; "192x128" where v has another (default: %(default)s)')
    ap.add_argument("--masks", default="dense,causal", help="dense, causal, or a number: a causal window of as many keys (default: %(default)s)")
    ap.add_argument("--lengths", default="512,1024,2048,4096,8192,16384", help="(default: %(default)s)")
    ap.add_argument("--tokens", type=int, default=16384, help="batch times length (default: %(default)s)")
    ap.add_argument("--width", type=int, default=2048, help="heads times head size (default: %(default)s)")
    ap.add_argument("--elements", default="bf16,f16", help="the first is searched, of others only what won there is tried (default: %(default)s)")
    ap.add_argument("--target", default="sm_90a", help="sm_80: the kernels of older devices, on this one (default: %(default)s)")
    ap.add_argument("--backward", action="store_true", help="plans of gradients")
    ap.add_argument("--seconds", type=float, default=math.inf, help="stop in time")
    ap.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="processes that compile")
    ap.add_argument("--log", type=pathlib.Path, default=cache_folder() / "tune.jsonl",
                    help="every measurement; what it holds of this build is not measured again (default: %(default)s)")
    ap.add_argument("--out", type=pathlib.Path, help="the record file (default: of this GPU, in the folder FLASH_RECORDS or ~/.config/flash_mlir/records)")
    return ap.parse_args()


def main():
    start, a = time.monotonic(), arguments()
    torch = _timing.pytorch("tune")
    gpu = torch.cuda.get_device_name()
    out = a.out or (_records.place() if _records.place().suffix == ".json" else _records.place() / _records.file_name(gpu))
    log = Log(a.log, build())
    wanted = list(problems(a.heads.split(","), a.masks.split(","), [int(s) for s in a.lengths.split(",")], a.tokens, a.width, a.elements.split(","), a.target, a.backward))
    entries = [log.finished[name_of(p)] for p in wanted if name_of(p) in log.finished]
    left = [p for p in wanted if name_of(p) not in log.finished]
    print(f"{gpu}: {len(wanted)} problems, {len(entries)} of them in the log\n{HEADER}", flush=True)
    # Processes of their own, not forks: CUDA is in use here.
    with concurrent.futures.ProcessPoolExecutor(a.jobs, multiprocessing.get_context("spawn")) as pool:
        search = Search(pool, _timing.l2_flush(), log, start + a.seconds, a.elements.split(",")[0])
        for p in follow(left, len(left)):
            if not search.more():
                break
            known = len(log.started)
            try:
                entries.append(search.problem(p))
            except RuntimeError as e:
                if len(log.started) == known:
                    raise
                search.give_up(str(e).splitlines()[0])
            print(line(entries[-1]), flush=True)
            if found := record(entries[-1]):
                _records.write(out, gpu, [found])
    for found in filter(None, map(record, entries)):
        _records.write(out, gpu, [found])
    show(entries)
    print(f"{len(entries)} of {len(wanted)} problems in {time.monotonic() - start:.0f} s; records in {out}")


if __name__ == "__main__":
    main()
