"""Measured plans: the planner prefers them, says so, and takes none that does not fit."""
import json
import os
import shutil
import threading

import pytest

import flash_mlir
from flash_mlir import _cache, _records, tune

SHAPE = (4, 4096, 16, 128)
DENSE = dict(target="sm_90a", element="bf16", head_size=128, head_size_v=128, mask="dense", queries=4096, keys=4096, plan="#flash.plan<tile = [128, 64]>", why="fast")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("FLASH_RECORDS", str(tmp_path))
    return tmp_path


def explained(**options):
    return flash_mlir.explain(SHAPE, SHAPE, SHAPE, **options)


def test_a_record_wins_over_the_default_and_says_so(folder):
    before = explained()
    _records.write(folder / "h200.json", "NVIDIA H200", [DENSE])
    assert "128 queries x 64 keys" in explained() and "because: record for NVIDIA H200: fast" in explained()
    assert "fast" not in explained(causal=True)  # of another mask
    assert "128 queries x 64 keys" not in before


def test_a_plan_by_hand_wins_over_a_record(folder):
    _records.write(folder / "h200.json", "NVIDIA H200", [DENSE])
    text = explained(plan="#flash.plan<tile = [128, 96]>")
    assert "128 queries x 96 keys" in text and "record for" not in text


def test_a_changed_file_is_read_again(folder):
    for why in ("fast", "slow", "faster"):
        _records.write(folder / "h200.json", "NVIDIA H200", [dict(DENSE, why=why)])
        assert f"NVIDIA H200: {why}" in explained()


@pytest.mark.parametrize("put", [os.replace, shutil.copy2, lambda new, path: (path.unlink(missing_ok=True), new.rename(path))])
def test_a_file_of_the_same_size_and_time_is_read_again(folder, put):
    path, new = folder / "h200.json", folder / "new"
    for why in ("fast", "slow"):
        _records.write(new, "NVIDIA H200", [dict(DENSE, why=why)])
        os.utime(new, (1, 1))
        put(new, path)
        assert f"NVIDIA H200: {why}" in explained()


@pytest.mark.parametrize("spoil", [lambda path: path.write_text(""), lambda path: (path.unlink(), path.symlink_to(path.parent / "none")), lambda path: (path.unlink(), path.mkdir())])
def test_a_file_that_becomes_unreadable_is_named_until_it_is_back(folder, spoil):
    path = folder / "h200.json"
    _records.write(path, "NVIDIA H200", [DENSE])
    assert "NVIDIA H200: fast" in explained()
    spoil(path)
    for _ in range(2):
        with pytest.raises(ValueError, match="records at .*h200.json cannot be read"):
            explained()
    path.rmdir() if path.is_dir() else path.unlink()
    _records.write(path, "NVIDIA H200", [DENSE])
    assert "NVIDIA H200: fast" in explained()


def test_threads_plan_while_the_file_is_replaced(folder):
    """Each sees one of the file's contents, whole."""
    path, found = folder / "h200.json", set()
    _records.write(path, "NVIDIA H200", [DENSE])

    def plan():
        for i in range(100):
            found.add(explained(json=True)["tile"]["why"])

    threads = [threading.Thread(target=plan) for _ in range(4)]
    for t in threads:
        t.start()
    while any(t.is_alive() for t in threads):
        for why in ("fast", "slow"):
            _records.write(path, "NVIDIA H200", [dict(DENSE, why=why)])
    assert found and found <= {f"record for NVIDIA H200: {why}" for why in ("fast", "slow")}


def test_records_can_be_hidden(folder, monkeypatch):
    _records.write(folder / "h200.json", "NVIDIA H200", [DENSE])
    monkeypatch.setenv("FLASH_RECORDS", "none")
    assert "record for" not in explained() and _records.files() == []


@pytest.mark.parametrize("plan, words", [("#flash.plan<tile = [128, 128], stages = 9>", "232448"), ("#flash.plan<tiles = 1>", "tiles"), ("nonsense", "nonsense")])
def test_a_record_that_does_not_fit_is_left_out_and_the_reason_said(folder, plan, words):
    default = explained(json=True)
    _records.write(folder / "h200.json", "NVIDIA H200", [dict(DENSE, plan=plan)])
    now = explained(json=True)
    assert (now["tile"]["m"], now["tile"]["n"]) == (default["tile"]["m"], default["tile"]["n"])
    assert "the record for NVIDIA H200 is left out" in now["tile"]["why"] and words in now["tile"]["why"]


@pytest.mark.parametrize("text, words", [("{", "JSON object"), ('{"gpu": "x", "records": [{}]}', "record 0: expected target to be a string, it is missing")])
def test_a_broken_file_is_a_sentence_that_names_it(folder, text, words):
    (folder / "mine.json").write_text(text)
    with pytest.raises(ValueError, match="mine.json") as error:
        explained()
    assert words in str(error.value)


def test_the_kernel_is_the_records_and_outlives_its_file(folder):
    """What the cache keeps must not be planned anew with other records."""
    _records.write(folder / "h200.json", "NVIDIA H200", [DENSE])
    with_record = flash_mlir.compile(SHAPE, SHAPE, SHAPE)
    assert "[128, 64]" in with_record.text("plan")
    blob = with_record.part("blob")
    (folder / "h200.json").unlink()
    assert type(with_record).load(blob).text("plan") == with_record.text("plan")
    assert flash_mlir.compile(SHAPE, SHAPE, SHAPE).text("plan") != with_record.text("plan")


def test_whose_records_count(folder):
    _records.write(folder / "h200.json", "NVIDIA H200", [DENSE])
    problem = dict(target="sm_90a", element="bf16", head_size=128, len_q=4096, len_k=4096, records=_records.files())
    ours, others, none = (_cache.key(json.dumps(dict(problem, **gpu))) for gpu in (dict(gpu="NVIDIA H200"), dict(gpu="NVIDIA H100"), {}))
    assert ours == none != others


def test_writing_replaces_records_of_the_same_problem(folder):
    path = folder / "h200.json"
    _records.write(path, "NVIDIA H200", [DENSE, dict(DENSE, keys=8192)])
    _records.write(path, "NVIDIA H200", [dict(DENSE, why="faster")])
    content = json.loads(path.read_text())
    assert [r["why"] for r in content["records"]] == ["faster", "fast"]
    with pytest.raises(ValueError, match="NVIDIA H100"):
        _records.write(path, "NVIDIA H100", [DENSE])


def test_a_place_that_is_missing_is_said(folder, monkeypatch):
    _records.files()  # an empty folder is a place
    for missing in (folder / "none", folder / "none.json"):
        monkeypatch.setenv("FLASH_RECORDS", str(missing))
        with pytest.warns(UserWarning, match=f"FLASH_RECORDS names {missing}, where there is nothing"):
            explained()


def test_records_are_not_written_over_what_is_wrong(folder):
    path = folder / "h200.json"
    for wrong, words in ((dict(DENSE, target="sm_999"), "expected target"), (dict(DENSE, softcapp=True), "no field 'softcapp'")):
        _records.write(path, "NVIDIA H200", [wrong])
        before = path.read_bytes()
        for act in (explained, lambda: _records.write(path, "NVIDIA H200", [DENSE])):
            with pytest.raises(ValueError, match=f"h200.json: record 0: .*{words}"):
                act()
        assert path.read_bytes() == before
        path.unlink()
    path.write_text(json.dumps(dict(gpu="NVIDIA H200", records=[DENSE, dict(DENSE, plan="#flash.plan<tile = [128, 96]>")])))
    with pytest.raises(ValueError, match="record 1: it and record 0 have different plans for one problem; leave one out"):
        explained()


def test_the_packages_records_are_read_and_fit(folder):
    """Every record that ships is of a plan that this build takes."""
    for file in _records.files():
        for r in json.loads(open(file).read())["records"]:
            q, v = ((4, r["queries"], 8, r[d]) for d in ("head_size", "head_size_v"))
            mask = dict(causal=r["mask"] == "causal", window=(r.get("left", -1), r.get("right", -1)))
            assert "because: record for" in flash_mlir.explain(q, q, v, element=r["element"], **mask), r
