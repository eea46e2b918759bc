"""Programs in memory and on disk."""
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest

import flash_mlir
from flash_mlir import _cache, _library
from flash_mlir._library import Program

PROBLEM = json.dumps(dict(target="sm_90a", element="bf16", head_size=64, causal=True, batch=1, heads=4, kv_heads=4, len_q=512, len_k=512))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("FLASH_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(_cache, "_programs", {})
    return tmp_path


@pytest.fixture
def compiled(monkeypatch):
    """Problems that are really compiled."""
    seen, compile = [], Program.compile.__func__
    monkeypatch.setattr(Program, "compile", classmethod(lambda cls, problem: seen.append(problem) or compile(cls, problem)))
    return seen


def only_file(folder):
    (path,) = folder.glob("*")
    return path


def forget():
    _cache._programs.clear()


def test_once_in_memory_and_once_on_disk(folder, compiled):
    first = _cache.program(PROBLEM)
    assert _cache.program(PROBLEM) is first and len(compiled) == 1
    forget()
    second = _cache.program(PROBLEM)
    assert len(compiled) == 1
    for part in ("mlir", "plan", "metadata", "ptx", "cubin"):
        assert second.part(part) == first.part(part)
    assert first.text("ptx").count(".visible .entry") == 2  # parts of the keys, and their combine


@pytest.mark.parametrize("damage", [lambda b: b"", lambda b: b[: len(b) // 2], lambda b: b[:-1] + bytes([b[-1] ^ 1]), lambda b: b"x" * 100, lambda b: b.replace(b'"build":"', b'"build":"0', 1)], ids=["empty", "half", "one bit", "other", "another build's"])
def test_a_damaged_file_is_compiled_anew(folder, compiled, damage):
    _cache.program(PROBLEM)
    path = only_file(folder)
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    forget()
    _cache.program(PROBLEM)
    assert len(compiled) == 2
    assert path.read_bytes() == whole


def test_what_is_no_file_is_not_waited_for(folder, compiled):
    _cache.program(PROBLEM)
    path = only_file(folder)
    path.unlink()
    os.mkfifo(path)
    forget()
    _cache.program(PROBLEM)
    assert len(compiled) == 2 and path.is_file()


def test_a_kernel_that_ptxas_calls_slow_is_said(folder, tmp_path):
    fake = tmp_path / "ptxas"
    fake.write_text("#!/bin/sh\necho 'ptxas info : (C7512) Potential Performance Loss: products are serialized'\necho 'ptxas assembler 1'\n")
    fake.chmod(0o755)
    env = dict(os.environ, FLASH_PTXAS=str(fake), PYTHONPATH=os.pathsep.join(sys.path))
    run = subprocess.run([sys.executable, "-c", f"from flash_mlir import _cache; _cache.program({PROBLEM!r})"], env=env, capture_output=True, text=True, check=True)
    assert "(C7512) Potential Performance Loss: products are serialized; the kernel is right but slow" in run.stderr


def test_a_blob_that_is_none_is_refused(folder):
    blob = _cache.program(PROBLEM).part("blob")
    first, second = re.search(rb'"sizes":\[(\d+),(\d+)', blob).groups()
    moved = blob.replace(b"[%s,%s" % (first, second), b"[%d,%d" % (int(first) + 1, int(second) - 1), 1)
    for bad in (b"", b"{}", b"\n", b'{"sizes":[1,2,3,4,5,6]}\n', blob[:100], blob[:-1], blob + b"x", moved):
        with pytest.raises(ValueError, match="blob"):
            Program.load(bad)


def test_without_a_folder_that_can_be_written(monkeypatch, folder, compiled):
    (folder / "file").write_text("")
    monkeypatch.setenv("FLASH_CACHE_DIR", str(folder / "file" / "below"))
    assert _cache.program(PROBLEM).part("ptx")


def test_the_folder(monkeypatch):
    monkeypatch.delenv("FLASH_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert _library.cache_folder() == pathlib.Path("/x/flash_mlir")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert _library.cache_folder() == pathlib.Path.home() / ".cache" / "flash_mlir"


def test_an_error_is_not_kept(folder, monkeypatch):
    def broken(cls, problem):
        raise RuntimeError("no luck")

    with monkeypatch.context() as m:
        m.setattr(Program, "compile", classmethod(broken))
        with pytest.raises(RuntimeError, match="no luck"):
            _cache.program(PROBLEM)
    assert _cache.program(PROBLEM).part("ptx")


WORKER = """
import json, sys, hashlib
from flash_mlir import _cache, _library
for head_size in (64, 128, 64, 128):
    p = _cache.program(json.dumps(dict(target="sm_90a", element="f16", head_size=head_size)))
    print(head_size, hashlib.sha256(p.part("ptx")).hexdigest())
    _cache._programs.clear()
"""


def test_eight_processes_at_once(folder):
    env = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path), FLASH_CACHE_DIR=str(folder))
    run = lambda _: subprocess.run([sys.executable, "-c", WORKER], env=env, capture_output=True, text=True)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        results = list(pool.map(run, range(8)))
    assert [r.stderr for r in results] == [""] * 8
    assert len({line for r in results for line in r.stdout.splitlines()}) == 2
    assert sorted(p.suffix for p in folder.iterdir()) == [".flash", ".flash"]


def test_the_cpus_code_is_kept_too(folder, compiled):
    q, k = np.full((1, 64, 2, 64), 0.5, np.float16), np.eye(64, dtype=np.float16)[None, :, None].repeat(2, 2)
    want = flash_mlir.attention(q, k, k, causal=True)
    forget()
    flash_mlir._api._calls.clear()
    assert np.array_equal(flash_mlir.attention(q, k, k, causal=True), want) and want.any()
    assert len(compiled) == 1


def test_calls_of_one_plan_share_a_kernel(folder, compiled):
    for sk in (300, 301, 555):
        q, k = np.zeros((1, 64, 2, 64), np.float16), np.zeros((1, sk, 2, 64), np.float16)
        flash_mlir.attention(q, k, k, causal=True, num_splits=1)
    assert len(compiled) == 1
