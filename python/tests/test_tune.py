"""The search without a GPU: its steps, its log and its records."""
import json
import sys
import types

import numpy as np
import pytest

import flash_mlir
from flash_mlir import _api, _records, tune

P = next(tune.problems(["128"], ["causal"], [4096], 16384, 2048, ["bf16"]))
AXES = {"tile": [(128, n) for n in range(32, 257, 16)], "stages": [1, 2, 3], "overlap": [False, True]}


def cost(fields):
    """A bowl whose bottom is one step at a time away: tile n 176, three stages, overlap."""
    return 1 + abs(fields["tile"][1] - 176) / 100 + abs(fields.get("stages", 2) - 3) / 10 + (not fields.get("overlap"))


def test_walk_finds_the_bottom():
    best, tried = tune.walk([{"tile": (128, 128)}], lambda plans: [cost(f) for f in plans], AXES)
    assert best == {"tile": (128, 176), "stages": 3, "overlap": True} and 10 < tried < 100


def test_walk_leaves_out_what_is_out_and_what_is_noise():
    start = {"tile": (128, 128), "stages": 2, "overlap": True}
    assert tune.walk([start], lambda plans: [1.0] + [None] * (len(plans) - 1), AXES)[0] == start
    assert tune.walk([start], lambda plans: [1.0] + [0.999] * (len(plans) - 1), AXES)[0] == start


def test_walk_starts_from_the_best_start_and_stops_in_time():
    seen = []
    starts = [{"tile": (128, 64)}, {"tile": (128, 160)}]
    best, _ = tune.walk(starts, lambda plans: seen.append(plans) or [cost(f) for f in plans], AXES, more=lambda: False)
    assert best == starts[1] and seen == [starts]


def test_plans_are_written_and_read():
    fields = {"stages": 2, "tile": (128, 176), "overlap": True, "order": "dynamic"}
    text = tune.written(fields)
    assert text == '#flash.plan<tile = [128, 176], stages = 2, overlap = true, order = "dynamic">'
    assert tune.read(text) == fields and tune.written(tune.read(text)) == text


def test_the_plan_in_use_is_a_fixed_point():
    """Its own fields by hand change nothing but the reasons."""
    fields, report = tune.in_use(P)
    assert fields["tile"][0] % 64 == 0
    plan = lambda **by: {k: v for k, v in flash_mlir.explain(*tune.shapes(P), causal=True, json=True, **by)["tile"].items() if k != "why"}
    assert plan(plan=tune.written(fields)) == plan()


@pytest.mark.parametrize("report, words", [
    ("ptxas info    : 0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads", None),
    ("    40 bytes stack frame, 36 bytes spill stores, 36 bytes spill loads", "spills 36 bytes"),
    ("ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized", "C7510"),
])
def test_what_ptxas_complains_of(report, words):
    said = tune.complaint(report)
    assert said is None if words is None else words in said
    assert "spills" not in (tune.complaint(report, allowed_spill=36) or "")


def test_seeds_are_whole_plans_without_unknown_fields(monkeypatch):
    monkeypatch.setattr(tune, "axes", lambda *_: {"tile": [], "stages": [], "overlap": []})
    assert list(tune.seeds(dict(P, d=40, dv=72), {})) == []
    plans = list(tune.seeds(P, {"overlap": True}))
    assert plans and all(plan.keys() == {"tile", "stages", "overlap"} for plan in plans)


def test_seeds_without_roles_cross_tiles_and_switches():
    p = dict(P, target="sm_80")
    plans = [tune.written(seed) for seed in tune.seeds(p, tune.in_use(p)[0])]
    assert len(set(plans)) == len(plans) == len(tune.SM80_KEYS[p["d"]]) * 16
    for by_hand in ("tile = [128, 48], stages = 2, overlap = true, defer_max = true, q_in_regs = false, warps = 4", "tile = [128, 96], stages = 2, overlap = false"):
        assert any(by_hand in plan for plan in plans)


def test_candidates_are_compiled_or_refused_with_a_sentence():
    assert "232448" in tune.prepare(P, "#flash.plan<tile = [128, 128], stages = 9>", 0)
    assert "fits_no" in tune.prepare(P, "#flash.plan<fits_no = 1>", 0)
    assert tune.prepare(P, "#flash.plan<tile = [128, 64]>", 0) is None


def test_axes_are_those_of_this_build(monkeypatch):
    monkeypatch.setitem(tune.AXES, "fits_no", [1])
    tune.axes.cache_clear()
    assert "fits_no" not in tune.axes() and {"tile", "stages", "overlap", "order"} <= tune.axes().keys()
    tune.axes.cache_clear()


def test_problems():
    names = [tune.name_of(p) for p in tune.problems(["64", "192x128"], ["dense", "1024"], [512, 4096], 16384, 2048, ["f16"])]
    assert names == ["d64 dense 32x512 f16", "d64 dense 4x4096 f16", "d64 window 1024 4x4096 f16", "d192x128 dense 32x512 f16", "d192x128 dense 4x4096 f16",
                     "d192x128 window 1024 4x4096 f16"]


def test_the_call_of_a_plan_is_attentions():
    q, k, v = np.random.default_rng(0).standard_normal((3, 2, 70, 2, 64)).astype("float16")
    out, lse = np.full_like(q, np.nan), np.empty((2, 2, 70), "float32")
    _api.planned(q, k, v, out, causal=True, window=(20, -1), plan="#flash.plan<tile = [32, 32]>", target="cpu").run(q, k, v, out, lse)
    o, expected = flash_mlir.attention(q, k, v, causal=True, window=(20, -1), return_lse=True, target="cpu")
    assert np.allclose(out, o, atol=2e-3) and np.allclose(lse, expected, atol=1e-5)


GRADIENTS = next(tune.problems(["64"], ["causal"], [4096], 16384, 2048, ["bf16"], "sm_80", backward=True))


def test_gradients_have_axes_of_their_own():
    fields, report = tune.in_use(GRADIENTS)
    assert tune.name_of(GRADIENTS) == "gradients d64 causal 4x4096 bf16 sm_80" and "spill" in report
    assert fields == {"tile": (128, 128), "stages": 2, "split_by": "columns", "warps": 8} and tune.axes("sm_80", True).keys() == fields.keys()
    assert list(tune.seeds(GRADIENTS, fields)) == []
    assert tune.prepare(GRADIENTS, tune.written(fields), tune.spilled_bytes(report)) is None
    assert "ping_pong" in tune.prepare(GRADIENTS, "#flash.plan<ping_pong = true>", 0)
    more = list(tune.neighbours({"tile": (64, 128), "consumers": 2}, {"tile": [(64, 128), (64, 192)], "consumers": [2]}))
    assert more == [{"tile": (64, 192), "consumers": 3}]


def test_records_of_gradients_are_theirs_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("FLASH_RECORDS", str(tmp_path))
    attention, gradients = (tune.record(dict(entry(), fields=p, winner=plan)) for p, plan in
                            ((dict(GRADIENTS, backward=False), "#flash.plan<tile = [128, 48]>"), (GRADIENTS, "#flash.plan<tile = [64, 64], stages = 2>")))
    assert gradients["backward"] is True and "backward" not in attention and gradients["tflops"] == pytest.approx(2.5 * attention["tflops"], rel=1e-3)
    plan = lambda **by: _api.compile(*tune.shapes(GRADIENTS), causal=True, target="sm_80", **by).text("plan")
    before = plan()
    _records.write(tmp_path / "a.json", "NVIDIA H200", [gradients])
    assert "tile = [64, 64], stages = 2" in plan(backward=True) and plan() == before
    assert "ordered = true" in plan(backward=True, deterministic=True) and "tile = [64, 64]" in plan(backward=True, deterministic=True)
    _records.write(tmp_path / "a.json", "NVIDIA H200", [attention])
    assert len(json.loads((tmp_path / "a.json").read_text())["records"]) == 2 and "tile = [64, 64]" in plan(backward=True) and "tile = [128, 48]" in plan()


def entry(**other):
    return dict(problem=tune.name_of(P), winner="#flash.plan<tile = [128, 64]>", fields=P, before_ms=1.1, after_ms=1.0, gain=1.1, tried=30, dropped=4, **other)


def test_the_log_goes_on_where_it_ended(tmp_path):
    path = tmp_path / "log"
    log = tune.Log(path, "build 1")
    log.add(kernel="a", started="x")
    log.add(kernel="a", checked="x")
    log.add(kernel="a", started="y")
    log.add(**entry())
    path.write_text(path.read_text() + '{"problem": "half a li')
    again = tune.Log(path, "build 1")
    assert list(again.finished) == [tune.name_of(P)] and again.started == {("a", "y")}
    assert not tune.Log(path, "build 2").finished


def test_a_winner_becomes_a_record_that_the_planner_takes(tmp_path, monkeypatch):
    monkeypatch.setenv("FLASH_RECORDS", str(tmp_path))
    _records.write(tmp_path / _records.file_name("NVIDIA H200"), "NVIDIA H200", [tune.record(entry())])
    assert (tmp_path / "nvidia-h200.json").exists()
    assert "128 queries x 64 keys" in flash_mlir.explain(*tune.shapes(P), causal=True)
    assert "275 TFLOP/s at 4 x 4096, 250 before; the best of 30 plans" in flash_mlir.explain(*tune.shapes(P), causal=True)


def test_the_plan_in_use_needs_no_record():
    assert tune.record(dict(entry(), gain=1.001)) is None


def test_a_window_is_recorded_as_local():
    p = next(tune.problems(["64"], ["256"], [4096], 16384, 2048, ["bf16"]))
    r = tune.record(dict(entry(), fields=p))
    assert (r["mask"], r["left"], r["right"], r["keys"]) == ("local", 256, 0, 4096)
    assert json.loads(json.dumps(r)) == r


# ---- the command, on a GPU that only pretends -----------------------------------------------------------------------------------


class PretendedBench:
    """Times by a formula; a plan of 96 keys is wrong, and one of 80 takes the process with it."""

    def __init__(self, p, flush):
        self.p = p

    def call(self, plan):
        return plan or tune.written(tune.in_use(self.p)[0])

    def wrong(self, plan):
        if tune.read(plan)["tile"] == (128, 80):
            raise RuntimeError("an illegal memory access was encountered")
        return "1.0e+00 from float64" if tune.read(plan)["tile"][1] == 96 else None

    def times(self, plans, thorough):
        return [1 + abs(tune.read(plan)["tile"][1] - 96) / 1000 for plan in plans]


class InProcess:
    def __init__(self, *_):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    map = map


@pytest.fixture
def pretended(monkeypatch, tmp_path):
    cuda = types.SimpleNamespace(device_count=lambda: 1, get_device_name=lambda *_: "NVIDIA Pretended")
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=cuda, zeros=lambda *_, **__: None, int32="int32", Tensor=type(None)))
    monkeypatch.setattr(tune, "Bench", PretendedBench)
    monkeypatch.setattr(tune, "axes", lambda *_: {"tile": [(128, n) for n in range(64, 257, 16)], "stages": [1, 2]})
    monkeypatch.setattr(tune.concurrent.futures, "ProcessPoolExecutor", InProcess)
    monkeypatch.setattr(tune, "prepare", refused)
    monkeypatch.setattr(tune, "SEEDS", {})
    monkeypatch.setenv("FLASH_RECORDS", str(tmp_path))
    return tmp_path


def refused(p, plan, spill):
    try:
        flash_mlir.explain(*tune.shapes(p), causal=True, plan=plan)
    except ValueError as e:
        return str(e)


def tuned(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["tune", "--heads", "128", "--masks", "causal", "--lengths", "4096,8192", "--elements", "bf16", *map(str, arguments)])
    tune.main()


def test_a_search_ends_in_records_and_goes_on_after_a_crash(pretended, monkeypatch, capsys):
    log = pretended / "tune.log"
    again = []
    monkeypatch.setattr(tune.os, "execv", lambda _, arguments: again.append(arguments) or sys.exit())
    with pytest.raises(SystemExit):
        tuned(monkeypatch, "--log", log, "--seconds", 100)
    assert again[0][1:3] == ["-m", "flash_mlir.tune"] and again[0][-2] == "--seconds" and 90 < float(again[0][-1]) < 100
    tuned(monkeypatch, "--log", log)
    assert len(again) == 1
    said = capsys.readouterr().out
    assert "2 of 2 problems" in said
    content = json.loads((pretended / "nvidia-pretended.json").read_text())
    assert content["gpu"] == "NVIDIA Pretended" and [r["keys"] for r in content["records"]] == [4096, 8192]
    # Neither the wrong plan, nor the one that crashed, nor one that a record was there for.
    assert all("[128, 112]" in r["plan"] for r in content["records"])
    assert "128 queries x 112 keys" in flash_mlir.explain(*tune.shapes(P), causal=True)
    before = log.read_text()
    tuned(monkeypatch, "--log", log)
    assert log.read_text() == before and "2 of them in the log" in capsys.readouterr().out


def test_of_other_elements_only_the_winners_are_tried(pretended, monkeypatch):
    monkeypatch.setattr(PretendedBench, "wrong", lambda *_: None)
    log = pretended / "log"
    tuned(monkeypatch, "--log", log, "--elements", "bf16,f16")
    entries = [e for e in map(json.loads, log.read_text().splitlines()) if "winner" in e]
    assert [e["problem"].split()[-1] for e in entries] == ["bf16", "f16"] * 2
    assert entries[0]["tried"] > 4 and entries[1]["tried"] == 1  # the record of the first is in use for both
    assert len({e["winner"] for e in entries}) == 1 and "[128, 96]" in entries[1]["winner"]


def test_a_search_ends_in_time(pretended, monkeypatch, capsys):
    tuned(monkeypatch, "--seconds", 0, "--log", pretended / "log", "--out", pretended / "other.json")
    assert "0 of 2 problems" in capsys.readouterr().out and not (pretended / "other.json").exists()
