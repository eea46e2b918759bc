"""The C API by itself: misuse, silence, load time."""
import ctypes
import gzip
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

from flash_mlir import _library as lib


def compile_problem(problem):
    handle = ctypes.c_void_p()
    lib.call("flash_compile", problem, ctypes.byref(handle))
    return lib.Program(handle)


@pytest.mark.parametrize(
    "problem, words",
    [
        (b"", "JSON"),
        (b"[1]", "object"),
        (b'{"target": "cpu", "element": "bf16", "head_size": 64, "tile": 3}', "tile"),
        (b'{"target": "cpu", "element": "bf16", "head_size": "64"}', "head_size"),
        (b'{"target": "cpu", "element": "bf16", "head_size": 64, "window": [1]}', "window"),
        (b'{"target": "cpu", "element": "bf17", "head_size": 64}', "bf17"),
        (b'{"target": "cpu", "element": "bf16", "head_size": 64, "passes": {"odd": true}}', "odd"),
        (b'{"target": "cpu", "element": "bf16", "head_size": 64, "len_q": -7}', "-7"),
        (b'{"target": "cpu", "element": "bf16", "head_size": 64, "len_q": 4294967296}', "4294967296"),
        (b'{"plan": ' + b"[" * 100000, "brackets"),
    ],
)
def test_problems_that_are_none(problem, words):
    with pytest.raises(ValueError, match=words):
        lib.call("flash_key", problem)
    with pytest.raises(ValueError, match=words):
        compile_problem(problem)


def test_passes_are_switched_off_by_the_names_that_the_sentence_lists():
    def ptx(**passes):
        return compile_problem(json.dumps(dict(target="sm_90a", element="bf16", head_size=64, causal=True, passes=passes)).encode()).text("ptx")

    with pytest.raises(ValueError, match="expected passes to name") as refused:
        ptx(odd=False)
    names = re.search("to name (.*), got", str(refused.value))[1].split(", ")
    whole = ptx()
    assert len(names) > 5 and ptx(**dict.fromkeys(names, True)) == whole
    assert ptx(**dict.fromkeys(names, False)) != whole != ptx(skip_blocks=False)


def serving(**tensors):
    """A call of a packed and paged problem: (name, shape, strides) of each tensor, over memory that is never read."""
    shapes = dict(q=(7, 4, 64), k=(5, 16, 2, 64), v=(5, 16, 2, 64), o=(7, 4, 64), lse=(4, 7), cu_seqlens_q=(3,), seqused_k=(2,), page_table=(2, 3)) | tensors
    made = []
    for name, shape in shapes.items():
        if shape is not None:
            t = lib.Tensor(name.encode(), ctypes.addressof(ctypes.create_string_buffer(1)) // 64 * 64, len(shape))
            t.size[: len(shape)] = shape
            t.stride[: len(shape)] = [__import__("math").prod(shape[i + 1 :]) for i in range(len(shape))]
            made.append(t)
    return (lib.Tensor * len(made))(*made), len(made)


@pytest.mark.parametrize(
    "tensors, scalars, words",
    [
        (dict(cu_seqlens_q=None), {}, "no cu_seqlens_q"),
        (dict(seqused_k=(3,)), {}, "seqused_k's size 0 \\(3\\) to be 2"),
        (dict(page_table=(2,)), {}, "page_table of rank 2, got rank 1"),
        (dict(lse=(7, 4)), {}, "lse's size 0 \\(7\\) to be 4"),
        (dict(k=(5, 16, 2, 32)), {}, "k's size 3 \\(32\\) to be 64"),
        (dict(v=(4, 16, 2, 64)), {}, "v's size 0 \\(4\\) to be 5"),
        (dict(cu_seqlens_q=(0,)), {}, "cu_seqlens_q of batch \\+ 1 elements"),
        ({}, dict(max_seqlen_q=-1), "max_seqlen_q .*-1"),
    ],
)
def test_tables_that_do_not_fit_are_refused(tensors, scalars, words):
    program = compile_problem(b'{"target": "cpu", "element": "f32", "head_size": 64, "packed_q": true, "used_k": true, "page_size": 16, "pack_gqa": false, "num_splits": 1}')
    with pytest.raises(ValueError, match=words):
        lib.call("flash_run", program.handle, *serving(**tensors), lib.Scalars(0.1, 0.0, scalars.get("max_seqlen_q", 7), 48), 1)


def test_null_pointers_are_refused():
    into = lib.Bytes()
    for name, arguments in (("flash_key", (None,)), ("flash_compile", (b"{}", None)), ("flash_assemble", (None,)), ("flash_program_text", (None, b"ptx")), ("flash_run", (None, None, 0, None, 1))):
        assert getattr(lib.library(), name)(*arguments, ctypes.byref(into)) == 1
        assert b"null" in lib.take(into)
    lib.library().flash_program_free(None)
    lib.library().flash_free(None)


def test_sizes_do_not_enter_the_key_beyond_the_plan():
    key = lambda **sizes: lib.call("flash_key", __import__("json").dumps(dict(target="sm_90a", element="bf16", head_size=128, causal=True, heads=8, kv_heads=8, **sizes)).encode())
    assert key(batch=4, len_q=4096, len_k=4096) == key(batch=2, len_q=2048, len_k=4097)
    assert key(batch=4, len_q=4096, len_k=4096) != key(batch=4, len_q=4096, len_k=4096, softcap=True)


def test_a_fresh_process_loads_it_quickly_and_hears_nothing():
    script = "import ctypes, sys, time; t = time.process_time(); ctypes.CDLL(sys.argv[1]).flash_version(); sys.exit(int(1000 * (time.process_time() - t)) > 300)"
    run = subprocess.run([sys.executable, "-c", script, lib.library()._name], capture_output=True)
    assert (run.returncode, run.stdout, run.stderr) == (0, b"", b"")


def test_it_exports_flash_names_only_and_needs_little():
    names = subprocess.run(["nm", "-D", "--defined-only", lib.library()._name], capture_output=True, text=True, check=True).stdout.split()[2::3]
    assert names and all(n.split("@")[0].startswith(("flash_", "FLASHC")) for n in names), names
    needed = subprocess.run(["readelf", "-d", lib.library()._name], capture_output=True, text=True, check=True).stdout
    libraries = {line.split("[")[1].split("]")[0] for line in needed.splitlines() if "NEEDED" in line}
    assert libraries <= {"libc.so.6", "libm.so.6", "libgcc_s.so.1", "ld-linux-x86-64.so.2"}, libraries


def test_ptxas_can_be_hidden():
    script = "from flash_mlir import _library; print(repr(_library.call('flash_ptxas', None)))"
    env = dict(os.environ, FLASH_PTXAS="none", PYTHONPATH=os.pathsep.join(sys.path))
    assert subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=True).stdout.strip() == "b''"


def test_a_program_that_is_no_assembler_is_refused():
    with pytest.raises(ValueError, match="ptxas"):
        lib.call("flash_ptxas", b"/bin/true")


def test_a_packed_library_is_unpacked_once(tmp_path):
    """A bundle: the package with libflashc.so.gz beside it."""
    package, cache = tmp_path / "flash_mlir", tmp_path / "cache"
    shutil.copytree(pathlib.Path(lib.__file__).parent, package, ignore=shutil.ignore_patterns("*.so*", "__pycache__"))
    with gzip.open(package / "libflashc.so.gz", "wb", compresslevel=1) as f:
        f.write(pathlib.Path(lib.library()._name).read_bytes())
    env = {n: v for n, v in os.environ.items() if n != "FLASH_LIBRARY"} | {"FLASH_CACHE_DIR": str(cache), "PYTHONDONTWRITEBYTECODE": "1"}
    script = "import flash_mlir; print(flash_mlir.__version__)"
    run = lambda **more: subprocess.run([sys.executable, "-c", script], env=env | more, cwd=tmp_path, capture_output=True, text=True)
    first = run()
    assert first.stderr == "" and first.stdout.strip() == lib.library().flash_version().decode()
    (copy,) = cache.iterdir()
    written = copy.stat().st_mtime_ns
    assert run().stdout == first.stdout
    assert [(p, p.stat().st_mtime_ns) for p in cache.iterdir()] == [(copy, written)]
    assert run(FLASH_CACHE_DIR=str(copy / "below"), TMPDIR=str(tmp_path)).stdout == first.stdout


def test_a_missing_library_is_named():
    run = subprocess.run([sys.executable, "-c", "import flash_mlir"], env=dict(os.environ, FLASH_LIBRARY="/nowhere/lib.so", PYTHONPATH=os.pathsep.join(sys.path)), capture_output=True, text=True)
    assert "ImportError: expected libflashc.so at /nowhere/lib.so" in run.stderr
