"""What benchmarks/grid.py times and how it counts; the rows of a run are played."""
import json
import math
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
import grid  # noqa: E402

ABOUT = dict(gpu="H200", torch="2", cudnn=1, matrix_tflops=700.0, target="sm_90a")


def row(suite="bwd", ours=1.0, peer=1.0, target="sm_90a", **ms):
    p = dict(suite=suite, b=4, hq=16, hkv=16, sq=4096, sk=4096, d=128, causal=False, peer="cudnn")
    return dict(p, name=grid.name_of(p), element="bf16", flops=1e12, target=target, ms=dict(ours=ours, cudnn=peer, **ms), bar_ms=peer, ratio=peer / ours)


def read(tmp_path, rows, about=ABOUT):
    """Exit code and lines of the table of those rows."""
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(x) + "\n" for x in (about, *rows)))
    done = subprocess.run([sys.executable, ROOT / "benchmarks/grid.py", "--read", file], capture_output=True, text=True)
    assert not done.stderr
    return done.returncode, done.stdout.splitlines()


def found(lines, start):
    return next(line for line in lines if line.strip().startswith(start))


def test_gradients_are_timed_at_three_head_sizes_six_lengths_and_two_masks():
    rows = list(grid.problems(["bwd"]))
    assert {(r["d"], r["sq"], r["causal"]) for r in rows} == {(d, 512 << i, c) for d in (64, 128, 256) for i in range(6) for c in (False, True)}
    assert len(rows) == 36 and all(r["b"] * r["sq"] == 16384 and r["peer"] == "cudnn" for r in rows)
    assert all((r["peer"], r["best_over_peer"]) == ("fa2", 1.0) for r in grid.problems(["bwd"], target="sm_80"))


def test_a_narrow_v_is_timed_at_six_lengths_and_held_to_the_wide_one():
    rows = [r for r in grid.problems(["heads"]) if grid.widened(r)]
    assert {(r["d"], r["dv"], r["sq"], r["causal"]) for r in rows} == {(192, 128, 512 << i, c) for i in range(6) for c in (False, True)}
    assert len(rows) == 12 and all(r["b"] * r["sq"] == 16384 for r in rows)
    assert all(grid.work_of(r) / grid.work_of(grid.widened(r)) == pytest.approx(320 / 384) for r in rows)
    assert all(grid.widened(r) is None for r in grid.problems(["fwd", "gqa", "local"]))


def test_the_wide_one_has_the_rows_share_of_its_time(monkeypatch):
    monkeypatch.setattr(grid, "inputs", lambda p, element: (element, p.get("dv", p["d"])))
    monkeypatch.setattr(grid, "ours", lambda p, arrays, target, element=None: lambda: (arrays, p.get("dv", p["d"])))
    monkeypatch.setattr(grid._timing, "measure", lambda calls, flush: [float(call()[1]) for call in calls])
    timed = lambda p: grid.compare(p, grid.columns("bf16", False, [], wide=True), [], None, "sm_90a")["ms"]
    assert timed(next(grid.problems(["heads"], "d192/128"))) == dict(ours=128.0, wide=pytest.approx(192 * 320 / 384))
    assert timed(next(grid.problems(["fwd"], "d128"))) == dict(ours=128.0)


def test_columns():
    assert list(grid.columns("bf16", False, [])) == ["ours"]
    own = grid.columns("f16", True, ["stages = 2", "#flash.plan<stages = 3>"], wide=True)
    assert own == {"ours": dict(element="f16"), "bf16": dict(element="bf16"), "determ.": dict(element="f16", deterministic=True),
                   "wide": dict(element="f16", wide=True), "plan 1": dict(element="f16", plan="stages = 2"), "plan 2": dict(element="f16", plan="#flash.plan<stages = 3>")}
    for name, over, under, _ in grid.KEEPS:
        assert {over, under} <= own.keys(), name


@pytest.mark.parametrize("target, suite, ratio, low", [("sm_90a", "fwd", 0.97, True), ("sm_90a", "fwd", 0.99, False), ("sm_90a", "bwd", 0.93, False),
                                                       ("sm_90a", "bwd", 0.91, True), ("sm_80", "fwd", 0.99, True), ("sm_80", "bwd", 0.99, False)])
def test_low_rows(tmp_path, target, suite, ratio, low):
    code, lines = read(tmp_path, [row(suite, peer=ratio, target=target)], dict(ABOUT, target=target))
    assert not code and ("LOW" in found(lines, f"{suite} d128")) == low
    assert found(lines, "rows under their least") == f"rows under their least ratio: {int(low)}"


@pytest.mark.parametrize("target, ratio, verdict", [("sm_90a", 1.01, "must be 1.00: ok"), ("sm_90a", 0.99, "must be 1.00: MISSED"), ("sm_80", 1.04, "must be 1.05: MISSED")])
def test_means_of_gradients(tmp_path, target, ratio, verdict):
    _, lines = read(tmp_path, [row(peer=ratio, target=target), row(peer=ratio, target=target)], dict(ABOUT, target=target))
    for name in ("all", "head size 128", "dense"):
        assert found(lines, f"bwd    {name}").endswith(f"{ratio:.3f} of  2 rows   {verdict}")


def test_what_must_not_be_lost(tmp_path):
    _, lines = read(tmp_path, [row(bf16=0.98, **{"determ.": 1.25}), row(bf16=0.96, **{"determ.": 1.25}), row("fwd"), row("heads", wide=1.01)])
    assert found(lines, "speed of f16 over bf16") == f"speed of f16 over bf16:  {math.sqrt(0.98 * 0.96):.3f} of  2 rows   must be 0.97: MISSED, the least 0.960"
    assert found(lines, "speed of deterministic") == "speed of deterministic over not:  0.800 of  2 rows   must be 0.85: MISSED, the least 0.800"
    assert found(lines, "speed of (192, 128)") == "speed of (192, 128) over 192, by work:  1.010 of  1 rows   must be 1.00: ok, the least 1.010"
    header = found(lines, "TFLOP/s").split()
    assert header == ["TFLOP/s", "ours", "bf16", "determ.", "wide", "cuDNN", "bar", "ratio"]


def test_refused_rows_are_counted(tmp_path):
    sentence = "gradients of head sizes above 128 are not built for sm_90a; use cpu"
    refused = {key: x for key, x in row().items() if key not in ("ms", "ratio", "bar_ms")} | dict(refused=sentence)
    code, lines = read(tmp_path, [row(), refused, refused])
    assert not code and f"refused: {sentence}" in "\n".join(lines)
    at = lines.index("rows refused: 2 of 3")
    assert lines[at + 1].strip() == f"2 {sentence}"
    assert read(tmp_path, [refused])[0]  # nothing was timed


def test_wrong_results_fail(tmp_path):
    for suite, apart, wrong in (("fwd", 0.011, False), ("fwd", 0.013, True), ("bwd", 0.013, False), ("bwd", 0.025, True), ("bwd", math.nan, True)):
        code, lines = read(tmp_path, [dict(row(suite), apart=apart)])
        assert bool(code) == wrong == ("WRONG" in found(lines, f"{suite} d128"))


def test_the_largest_distance_counts(monkeypatch):
    monkeypatch.setattr(grid._timing, "apart", lambda got, want: abs(got - want))
    assert grid.distance((1, 2, 3), (1, 4, 3)) == 2 and grid.distance(1, 4) == 3
    assert math.isnan(grid.distance((0, math.nan, 0), (5, 1, 1)))
