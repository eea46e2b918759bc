"""The launcher against a driver that only remembers (fake_libcuda.c): no GPU, no toolkit."""
import ctypes
import json
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import types

import pytest

import flash_mlir
from flash_mlir import _library as lib

COMPILER = shutil.which("cc") or shutil.which("clang-22") or shutil.which("gcc")
pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C compiler for the fake driver")

OVERLAPS = 6  # the launch attribute "programmatic stream serialization"
BYTES = {"tensor_map": 128, "pointer": 8, "size": 4, "stride": 8, "scalar": 4, "index": 4, "counter": 4}
FORMAT = {"tensor_map": "<Q", "pointer": "<Q", "size": "<i", "stride": "<q", "scalar": "<f", "index": "<i", "counter": "<i"}
Q, K, V, O, LSE, W = (0x7F0000000000 + 0x100000 * i for i in range(6))


class Map(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("rank", ctypes.c_uint32), ("address", ctypes.c_void_p), ("sizes", ctypes.c_uint64 * 5), ("strides", ctypes.c_uint64 * 5),
                ("box", ctypes.c_uint32 * 5), ("steps", ctypes.c_uint32 * 5), ("interleave", ctypes.c_int), ("swizzle", ctypes.c_int), ("promotion", ctypes.c_int), ("fill", ctypes.c_int)]


class Fake(ctypes.Structure):
    _fields_ = [("major", ctypes.c_int), ("minor", ctypes.c_int), ("multiprocessors", ctypes.c_int), ("context", ctypes.c_void_p), ("context_device", ctypes.c_int),
                ("context_id", ctypes.c_ulonglong), ("parameters", ctypes.c_int), ("parameter_bytes", ctypes.c_int * 64), ("skip", ctypes.c_int), ("fail_load", ctypes.c_int), ("capture", ctypes.c_ulonglong), ("clusters", ctypes.c_int),
                ("loads", ctypes.c_int), ("is_cubin", ctypes.c_int), ("launches", ctypes.c_int), ("pushes", ctypes.c_int), ("pops", ctypes.c_int), ("maps", ctypes.c_int),
                ("shared_limit", ctypes.c_int), ("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3), ("shared", ctypes.c_uint), ("stream", ctypes.c_void_p),
                ("values", (ctypes.c_ubyte * 128) * 64), ("map", Map * 64), ("launch", ((ctypes.c_int * 3) * 4))]


@pytest.fixture(scope="session")
def driver(tmp_path_factory):
    """Loaded under libcuda's name, so that the library's own dlopen finds it."""
    path = tmp_path_factory.mktemp("cuda") / "libcuda.so.1"
    source = pathlib.Path(__file__).with_name("fake_libcuda.c")
    subprocess.run([COMPILER, "-shared", "-fPIC", "-w", "-Wl,-soname,libcuda.so.1", "-o", path, source], check=True)
    return Fake.in_dll(ctypes.CDLL(path, ctypes.RTLD_GLOBAL), "fake")


@pytest.fixture
def fake(driver):
    driver.context, driver.context_device, driver.context_id = 1, 0, 7
    driver.capture, driver.clusters = 0, 66
    driver.parameters = driver.fail_load = driver.loads = driver.launches = driver.pushes = driver.pops = driver.maps = 0
    return driver


def problem(**options):
    return json.dumps(dict(target="sm_90a", element="bf16", head_size=128) | options).encode()


def compiled(**options):
    handle = ctypes.c_void_p()
    lib.call("flash_compile", problem(**options), ctypes.byref(handle))
    return lib.Program(handle)


@pytest.fixture(scope="session")
def shared_program():
    return compiled()


@pytest.fixture(scope="session")
def causal_program():
    return compiled(causal=True)


@pytest.fixture(scope="session")
def narrow_program():
    handle = ctypes.c_void_p()
    lib.call("flash_compile", b'{"target": "sm_90a", "element": "bf16", "head_size": 40, "plan": "#flash.plan<staged_columns = 64>"}', ctypes.byref(handle))
    return lib.Program(handle)


@pytest.fixture
def program(shared_program):
    return lib.Program.load(shared_program.part("blob"))  # nothing is loaded into a context yet


def row_major(shape):
    strides = [1]
    for n in reversed(shape[1:]):
        strides.insert(0, strides[0] * n)
    return strides


def tensor(name, data, shape, strides=None):
    t = lib.Tensor(name=name, data=data, rank=len(shape))
    t.size[: len(shape)], t.stride[: len(shape)] = shape, strides or row_major(shape)
    return t


def call(b=2, sq=300, sk=500, hq=4, hkv=2, d=128):
    return [tensor(b"q", Q, (b, sq, hq, d)), tensor(b"k", K, (b, sk, hkv, d)), tensor(b"v", V, (b, sk, hkv, d)), tensor(b"o", O, (b, sq, hq, d)), tensor(b"lse", LSE, (b, hq, sq))]


def launch(program, tensors, device=0, stream=0x1234):
    lib.call("flash_launch", program.handle, (lib.Tensor * len(tensors))(*tensors), len(tensors), lib.Scalars(0.25, 3.0, 300, 500), device, stream)


def launched(fake, program, tensors, **options):
    """Launches; yields the last kernel's description and each parameter as it arrived."""
    *others, kernel = json.loads(program.text("metadata"))["kernels"]
    fake.parameters, fake.skip = len(kernel["params"]), len(others)
    for i, p in enumerate(kernel["params"]):
        fake.parameter_bytes[i] = BYTES[p["kind"]]
    launch(program, tensors, **options)
    values = [struct.unpack_from(FORMAT[p["kind"]], bytes(fake.values[i]))[0] for i, p in enumerate(kernel["params"])]
    return kernel, list(zip(kernel["params"], values))


def test_every_parameter_arrives(fake, program):
    tensors = call()
    by_name = {t.name.decode(): t for t in tensors}
    kernel, parameters = launched(fake, program, tensors)
    assert fake.launches == 1 and fake.stream == 0x1234
    assert list(fake.block) == [kernel["threads"], 1, 1] and fake.shared == fake.shared_limit == kernel["shared_bytes"]
    assert fake.grid[0] == 24  # 2 x 4 heads x ceil(300 / 128) tiles, fewer than multiprocessors
    for p, value in parameters:
        t = by_name.get(p["arg"])
        if p["kind"] == "pointer":
            assert value == t.data
        elif p["kind"] == "size":
            assert value == t.size[p["dim"]]
        elif p["kind"] == "stride":
            assert value == t.stride[p["dim"]]
        elif p["kind"] == "scalar":
            assert value == {"scale": 0.25, "softcap": 3.0}[p["arg"]]
        elif p["kind"] == "tensor_map":
            m = fake.map[value]
            b, s, h, d = t.size[:4]
            assert (m.type, m.rank, m.address) == (9, 4, t.data)
            assert list(m.sizes[:4]) == [d, s, h, b]
            assert list(m.strides[:3]) == [2 * t.stride[1], 2 * t.stride[2], 2 * t.stride[0]]
            assert list(m.box[:4]) == [64, p["rows"], 1, 1]
            assert list(m.steps[:4]) == [1, 1, 1, 1]
            assert (m.interleave, m.swizzle, m.promotion, m.fill) == (0, 3, 0, 0)
    assert {p["arg"] for p, _ in parameters if p["kind"] == "tensor_map"} >= {"k", "v", "o"}
    assert {p["rows"] for p, _ in parameters if p["kind"] == "tensor_map" and p["arg"] == "o"} == {16}  # a warp's


@pytest.mark.parametrize("strides", [None, (4 * 304 * 40, 40, 304 * 40, 1), (300 * 4 * 48, 4 * 48, 48, 1), (48, 2 * 4 * 48, 2 * 48, 1)], ids=["whole", "heads first", "padded", "batch inside"])
def test_a_staged_output_has_any_strides_and_ends_with_its_columns(fake, narrow_program, strides):
    """Of 40 columns in a panel of 64."""
    tensors = call(d=40)
    tensors[3] = tensor(b"o", O, (2, 300, 4, 40), strides)
    _, parameters = launched(fake, narrow_program, tensors)
    (m,) = [fake.map[value] for p, value in parameters if p["kind"] == "tensor_map" and p["arg"] == "o"]
    b, s, h, _ = strides or row_major((2, 300, 4, 40))
    assert (list(m.sizes[:4]), list(m.box[:4]), list(m.strides[:3])) == ([40, 300, 4, 2], [64, 16, 1, 1], [2 * s, 2 * h, 2 * b])
    tensors[3].stride[0] = 0  # rows would be stored over each other
    with pytest.raises(ValueError, match="o repeats itself"):
        launch(narrow_program, tensors)
    one = call(b=1, d=40)
    one[3].stride[0] = 0  # never stepped along
    launch(narrow_program, one)


def test_a_persistent_grid_is_no_larger_than_the_device(fake, program):
    fake.multiprocessors, before = 5, fake.multiprocessors
    launch(program, call(b=3), device=4)  # a device that was not asked about yet
    fake.multiprocessors = before
    assert fake.grid[0] == 5


def test_blocks_that_share_keys_are_launched_in_pairs(fake):
    program = compiled(plan="#flash.plan<multicast = true>")
    (kernel,) = json.loads(program.text("metadata"))["kernels"]
    assert kernel["cluster"] == 2
    for p in kernel["params"]:
        if p["kind"] == "tensor_map" and p["arg"] == "k":
            assert p["rows"] in (64, 16)  # half of a block's 128 keys, or what a redone row fetches
    launch(program, call())
    assert fake.grid[0] == 32  # 2 x 4 heads x 3 tiles and one past the end
    launch(program, call(b=20))
    assert fake.grid[0] == 132
    fake.context_id, fake.clusters = 8, 60  # multiprocessors without a neighbour stay idle
    launch(program, call(b=20))
    assert fake.grid[0] == 120
    fake.context_id, fake.clusters = 9, 0
    with pytest.raises(ValueError, match="leave multicast out"):
        launch(program, call())


def test_launches_that_may_run_at_once_have_different_counters(fake, causal_program):
    def counter(stream=0x1234, capture=0):
        fake.capture, fake.maps = capture, 0
        _, parameters = launched(fake, causal_program, call(), stream=stream)
        (number,) = [value for p, value in parameters if p["kind"] == "counter"]
        return number

    none = 1024  # no counter: a static stride
    assert len({counter(), counter(0x5678), counter(capture=1), counter(capture=2), counter(0x5678, 2), none}) == 6
    assert counter() == counter() != none
    assert counter(2) == none  # per-thread streams share one handle
    numbers = [counter(0x10000 + i) for i in range(1100)]
    assert len(set(numbers)) < len(numbers) and numbers[-1] == none  # all are given away
    assert counter() != none  # but nobody loses its own


def workspace_of(program, tensors):
    size = ctypes.c_size_t()
    lib.call("flash_workspace", program.handle, (lib.Tensor * len(tensors))(*tensors), len(tensors), lib.Scalars(0.25, 3.0), 0, ctypes.byref(size))
    return size.value


def test_counters_are_where_their_module_is(fake, program, causal_program):
    fresh = lib.Program.load(causal_program.part("blob"))
    assert "flash_counters" in fresh.text("ptx") and fresh.counters(0) == (None, 0)  # not loaded yet
    launch(fresh, call())
    address, count = fresh.counters(0)
    assert address and count == 1025
    launch(program, call())
    assert program.counters(0) == (None, 0)  # a static stride takes none
    with pytest.raises(ValueError, match="for the cpu"):
        compiled(target="cpu").counters(0)


def test_split_keys_are_joined_by_a_second_kernel_that_follows(fake):
    program, tensors = compiled(num_splits=3), call()
    parts, logs = 3 * 2 * 300 * 4 * 128, 3 * 2 * 4 * 300
    assert workspace_of(program, tensors) == 4 * (parts + logs)
    space = tensor(b"workspace", W, (parts + logs,))
    kernel, parameters = launched(fake, program, tensors + [space])
    attention, combine = json.loads(program.text("metadata"))["kernels"]
    assert [list(x) for x in fake.launch[:2]] == [[3 * 24, attention["threads"], -1], [2 * 4 * 300, 32, OVERLAPS]]
    values = {(p["kind"], p["arg"], p.get("dim")): value for p, value in parameters}
    assert kernel["name"] == combine["name"] and combine["follows"] and not attention["follows"]
    assert re.findall(r"griddepcontrol\.\w+", program.text("ptx")) == ["griddepcontrol.launch_dependents", "griddepcontrol.wait"]  # let in before parts are stored
    assert values["pointer", "o_partial", None] == W and values["pointer", "lse_partial", None] == W + 4 * parts
    assert values["size", "o_partial", 0] == 3 and values["stride", "o_partial", 0] == parts // 3 and values["stride", "lse_partial", 0] == logs // 3
    for wrong in ([], [tensor(b"workspace", W, (parts + logs - 1,))], [tensor(b"workspace", W + 4, (parts + logs,))]):
        with pytest.raises(ValueError, match=f"expected a workspace of {parts + logs} f32"):
            launch(program, tensors + wrong)


def test_one_program_serves_every_number_of_splits_of_the_planner(fake):
    decode = dict(batch=1, heads=8, kv_heads=8, len_q=1)
    program = compiled(len_k=8192, **decode)
    assert lib.call("flash_key", problem(len_k=8192, **decode)) == lib.call("flash_key", problem(len_k=30000, **decode)) != lib.call("flash_key", problem(len_k=64, **decode))
    numbers = set()
    for sk in (8192, 700, 64):
        tensors = call(b=1, sq=1, sk=sk, hq=8, hkv=8)
        splits, rest = divmod(workspace_of(program, tensors), 4 * 8 * 129)
        assert rest == 0
        _, parameters = launched(fake, program, tensors + [tensor(b"workspace", W, (splits * 8 * 129,))])
        assert {value for p, value in parameters if (p["kind"], p["arg"], p.get("dim")) == ("size", "o_partial", 0)} == {splits}
        numbers.add(splits)
    assert len(numbers) == 3 and 1 in numbers


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("d", [8, 40, 64, 72, 128, 136, 256])
def test_gradients_need_one_dq_in_f32_and_two_numbers_a_row(fake, target, d):
    """Of whole tiles of queries, with any number of query heads to a KV head; turns besides where they are taken."""
    b, sq, hq = 2, 1024, 8
    kept = b * sq * hq * (d + 2)
    for hkv in (1, 8):
        tensors = call(b, sq, 700, hq, hkv, d)
        tensors += [tensor(b"d" + t.name, O, t.size[: t.rank]) for t in tensors[:3]] + [tensor(b"do", O, (b, sq, hq, d))]
        for deterministic in (False, True):
            program = compiled(target=target, head_size=d, backward=True, deterministic=deterministic)
            tile = 32  # or more queries, with at most two consumers' turns or four parts'
            turns = workspace_of(program, tensors) // 4 - kept
            assert deterministic * 4 <= turns <= deterministic * 4 * b * hq * sq // tile


def test_a_program_that_does_not_split_needs_no_workspace(fake, program):
    assert workspace_of(program, call()) == 0


def test_packed_heads_are_rows_of_a_box(fake):
    program = compiled(batch=2, heads=8, kv_heads=2, len_q=5, len_k=500, num_splits=1)
    kernel, parameters = launched(fake, program, call(sq=5, hq=8))
    assert fake.grid[0] == 2 * 2 and kernel["threads"] == 256
    ((p, value),) = [(p, value) for p, value in parameters if p["kind"] == "tensor_map" and p["arg"] == "q"]
    m = fake.map[value]
    assert (p["rows"], p["group"], m.rank, m.address) == (64, 4, 5, Q)
    assert list(m.sizes) == [128, 4, 5, 2, 2] and list(m.box) == [64, 4, 16, 1, 1]
    assert list(m.strides[:4]) == [2 * 128, 2 * 8 * 128, 2 * 4 * 128, 2 * 5 * 8 * 128]


def test_packed_rows_have_maps_without_a_batch_and_values_smaller_boxes(fake):
    program = compiled(batch=2, heads=4, kv_heads=2, len_q=300, len_k=500, packed_q=True, packed_k=True, total_q=400, num_splits=1, pack_gqa=False)
    table = lambda name, data: tensor(name, data, (3,))
    tensors = [tensor(b"q", Q, (400, 4, 128)), tensor(b"k", K, (700, 2, 128)), tensor(b"v", V, (700, 2, 128)), tensor(b"o", O, (400, 4, 128)),
               tensor(b"lse", LSE, (4, 400)), table(b"cu_seqlens_q", W), table(b"cu_seqlens_k", W + 64)]
    _, parameters = launched(fake, program, tensors)
    maps = {(p["arg"], p["rows"]): fake.map[value] for p, value in parameters if p["kind"] == "tensor_map"}
    assert {("q", 64), ("k", 128), ("v", 128), ("v", 8), ("v", 1), ("o", 16), ("o", 1)} <= set(maps)
    for (name, rows), m in maps.items():
        heads, total = (4, 400) if name in "qo" else (2, 700)
        assert (m.rank, list(m.sizes[:4]), list(m.box[:4])) == (4, [128, total, heads, 1], [64, rows, 1, 1])
        assert list(m.strides[:2]) == [2 * heads * 128, 2 * 128]
    values = {(p["kind"], p["arg"]): value for p, value in parameters if p["kind"] in ("pointer", "index")}
    assert values["pointer", "cu_seqlens_q"] == W and values["pointer", "cu_seqlens_k"] == W + 64


def test_no_keys(fake, program):
    _, parameters = launched(fake, program, call(sk=0))
    assert fake.launches == 1
    for p, value in parameters:
        if p["kind"] == "tensor_map" and p["arg"] in "kv":
            assert fake.map[value].address == Q and list(fake.map[value].sizes[1:4]) == [1, 1, 1]
        if p["kind"] == "size" and p["arg"] in "kv" and p["dim"] == 1:
            assert value == 0


def test_no_queries_no_launch(fake, program):
    launch(program, call(sq=0))
    launch(program, call(b=0))
    assert fake.launches == fake.loads == 0


@pytest.mark.parametrize("append", [False, True])
def test_packed_sequences_without_a_row_launch_no_more_than_an_append(fake, append):
    """Their bound, 300, says nothing of it; an empty tensor's address is null."""
    batch = 3
    cache = dict(append=True, kv_batch_idx=True, used_k=True) if append else dict(packed_k=True)
    program = compiled(batch=batch, heads=4, kv_heads=1, len_q=300, len_k=500, packed_q=True, total_q=0, **cache)
    rows = (batch, 500) if append else (700,)
    tensors = [tensor(b"q", None, (0, 4, 128)), tensor(b"k", K, (*rows, 1, 128)), tensor(b"v", V, (*rows, 1, 128)), tensor(b"o", None, (0, 4, 128)),
               tensor(b"lse", None, (4, 0)), tensor(b"cu_seqlens_q", W, (batch + 1,))]
    if append:
        tensors += [tensor(name, W + 64, (batch,)) for name in (b"seqused_k", b"kv_batch_idx")]
        tensors += [tensor(name, W + 256, (batch, 2, 1, 128)) for name in (b"k_new", b"v_new")]
    else:
        tensors.append(tensor(b"cu_seqlens_k", W + 64, (batch + 1,)))
    launch(program, tensors)
    assert (fake.launches, fake.maps) == (int(append), 0)


@pytest.mark.parametrize("queries, keys, launches", [(300, 0, 2), (0, 0, 2), (0, 700, 3), (300, 700, 3)])
@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_gradients_of_packed_sequences_load_from_no_empty_keys(fake, target, queries, keys, launches):
    """Sums are cleared and dq is stored; what walks keys has none to load, and an empty tensor's address is null."""
    batch, h, d = 3, 4, 128
    at = lambda address, rows: address if rows else None
    program = compiled(batch=batch, heads=h, kv_heads=h, len_q=300, len_k=500, packed_q=True, packed_k=True, total_q=queries, backward=True, target=target)
    of_q, of_k = (queries, h, d), (keys, h, d)
    tensors = [tensor(name, at(O, queries), of_q) for name in (b"q", b"o", b"do", b"dq")] + [tensor(name, at(K, keys), of_k) for name in (b"k", b"v", b"dk", b"dv")]
    tensors += [tensor(b"lse", at(LSE, queries), (h, queries)), tensor(b"cu_seqlens_q", W, (batch + 1,)), tensor(b"cu_seqlens_k", W + 64, (batch + 1,))]
    tensors.append(tensor(b"workspace", W + 256, (workspace_of(program, tensors) // 4,)))
    launch(program, tensors)
    assert fake.launches == launches
    assert launches == 3 or not fake.maps


def test_a_page_is_looked_up_somewhere_where_there_is_none(fake):
    """Kernels look up the first page also of sequences without a key; an empty table's address is null."""
    program = compiled(batch=2, heads=4, kv_heads=1, len_q=3, len_k=0, page_size=16, used_k=True, num_splits=1, target="sm_80")
    tensors = [tensor(b"q", Q, (2, 3, 4, 128)), tensor(b"k", K, (9, 16, 1, 128)), tensor(b"v", V, (9, 16, 1, 128)), tensor(b"o", O, (2, 3, 4, 128)),
               tensor(b"lse", LSE, (2, 4, 3)), tensor(b"seqused_k", W, (2,)), tensor(b"page_table", None, (2, 0), (1, 1))]
    _, parameters = launched(fake, program, tensors)
    values = {(p["kind"], p["arg"], p.get("dim")): value for p, value in parameters}
    assert values["pointer", "page_table", None] == W and values["stride", "page_table", 0] == 0


def test_a_module_is_loaded_once_a_context(fake, program):
    for _ in range(3):
        launch(program, call())
    assert (fake.loads, fake.launches, fake.is_cubin) == (1, 3, 0)
    fake.context_id = 8
    launch(program, call())
    launch(program, call())
    assert fake.loads == 2


def test_a_cubin_is_preferred(fake, program):
    if not lib.ptxas():
        pytest.skip("no ptxas")
    lib.call("flash_assemble", program.handle)
    launch(program, call())
    assert fake.is_cubin


def test_without_a_current_context_it_takes_the_primary_one(fake, program):
    fake.context = 0
    launch(program, call())
    assert (fake.pushes, fake.pops, fake.launches) == (1, 1, 1)


def test_another_devices_context_is_left_alone(fake, program):
    launch(program, call(), device=1)
    assert (fake.pushes, fake.pops, fake.launches) == (1, 1, 1)


def moved(name, data=None, stride=None, **sizes):
    tensors = call(**sizes)
    for t in tensors:
        if t.name == name:
            t.data = data or t.data
            if stride:
                t.stride[stride[0]] = stride[1]
    return tensors


@pytest.mark.parametrize(
    "tensors, words",
    [
        (moved(b"q", data=Q + 8), "q's address"),
        (moved(b"o", data=O + 2), "o's address"),
        (moved(b"k", stride=(1, 257)), "k's stride 1 \\(514 bytes\\)"),
        (moved(b"v", stride=(0, 1 << 40)), "v's stride 0"),
        (moved(b"v", stride=(3, 2)), "v's last dimension"),
        (moved(b"lse", data=LSE + 2), "lse's address"),
        (moved(b"v", stride=(2, 0)), "v repeats itself"),
        (moved(b"o", stride=(2, 0)), "o repeats itself.*over each other"),
        (call()[:3], "no o"),
        (call() + [tensor(b"x", Q, (1,))], "'x'"),
        (call(d=64), "q's size 3 \\(64\\)"),
        (call(hq=3), "q's heads \\(3\\)"),
        (call()[:1] + call(b=1)[1:], "k's size 0 \\(1\\)"),
        (call()[:4] + [tensor(b"lse", LSE, (2, 4, 299))], "lse's size 2 \\(299\\)"),
        (call(b=1 << 20, sq=1, sk=1, hq=1 << 11), "at most 2147483515 tiles in one launch, the problem has more; split the batch"),
    ],
)
def test_refused(fake, program, tensors, words):
    with pytest.raises(ValueError, match=words):
        launch(program, tensors)
    assert fake.launches == 0


def test_a_stride_that_is_never_used_does_not_matter(fake, program):
    launch(program, moved(b"q", stride=(0, 3), b=1))
    assert fake.launches == 1


def test_another_machine_is_refused(fake, program):
    fake.major, fake.minor = 8, 0
    try:
        with pytest.raises(ValueError, match="9.0, device 3 has 8.0"):
            launch(program, call(), device=3)
    finally:
        fake.major, fake.minor = 9, 0


def test_what_the_driver_says_is_passed_on(fake, program):
    fake.fail_load = 1
    with pytest.raises(RuntimeError, match="line 7: nonsense"):
        launch(program, call())


def test_a_device_that_is_not_there(fake, program):
    with pytest.raises(RuntimeError, match="the fake driver refused"):
        launch(program, call(), device=2)


def test_a_cpu_program_is_refused(fake):
    handle = ctypes.c_void_p()
    lib.call("flash_compile", b'{"target": "cpu", "element": "f32", "head_size": 64}', ctypes.byref(handle))
    with pytest.raises(ValueError, match="flash_run"):
        launch(lib.Program(handle), call(d=64))


# The Python side, with tensors that only look like PyTorch's.


class Device:
    def __init__(self, type, index):
        self.type, self.index = type, index


class Type(str):
    def __str__(self):
        return "torch." + str.__str__(self)


CUDA, BF16, F32 = Device("cuda", 0), Type("bfloat16"), Type("float32")


class LooksLikeTensor:
    layout = "strided"

    def __init__(self, shape, dtype=BF16, device=CUDA, strides=None, data=Q):
        self.shape, self.dtype, self.device, self.strides, self.data = tuple(shape), dtype, device, tuple(strides or row_major(shape)), data

    def stride(self):
        return self.strides

    def data_ptr(self):
        return self.data

    def element_size(self):
        return 4 if self.dtype == F32 else 2


@pytest.fixture
def torch(monkeypatch, fake):
    module = types.SimpleNamespace(
        Tensor=LooksLikeTensor,
        strided="strided",
        float32=F32,
        empty=lambda shape, dtype, device: LooksLikeTensor(shape, dtype, device, data=O),
        cuda=types.SimpleNamespace(current_stream=lambda device: types.SimpleNamespace(cuda_stream=0x77), get_device_capability=lambda device: (9, 0),
                                   get_device_name=lambda device: "NVIDIA H200"),
    )
    monkeypatch.setitem(sys.modules, "torch", module)
    monkeypatch.setattr(flash_mlir._api, "_calls", {})
    return module


def qkv(b=1, sq=200, sk=300, h=2):
    return [LooksLikeTensor((b, s, h, 128), data=data) for s, data in ((sq, Q), (sk, K), (sk, V))]


def test_cuda_tensors_are_launched_on_the_current_stream(torch, fake):
    o, lse = flash_mlir.attention(*qkv(), causal=True, return_lse=True)
    assert (fake.launches, fake.stream) == (1, 0x77)
    assert o.shape == (1, 200, 2, 128) and o.dtype is BF16 and lse.shape == (1, 2, 200) and lse.dtype is F32


def test_out_is_given_back(torch, fake):
    out = LooksLikeTensor((1, 200, 2, 128), data=O)
    assert flash_mlir.attention(*qkv(), out=out) is out
    with pytest.raises(ValueError, match="out on q's device \\(cuda:0\\), got cuda:1"):
        flash_mlir.attention(*qkv(), out=LooksLikeTensor((1, 200, 2, 128), device=Device("cuda", 1)))


def test_a_call_with_split_keys_brings_its_workspace(torch, fake):
    sizes = []
    empty, torch.empty = torch.empty, lambda shape, dtype, device: sizes.append((tuple(shape), dtype)) or empty(shape, dtype, device)
    for _ in range(2):
        flash_mlir.attention(*qkv(), num_splits=2)
    assert fake.launches == 4
    assert sizes == [((1, 200, 2, 128), BF16), ((1, 2, 200), F32), ((2 * 200 * 2 * 129,), F32)] * 2


def test_expanded_tensors_are_gathered(torch, fake):
    q, k, v = qkv()
    one_head = lambda x: LooksLikeTensor(x.shape, strides=(x.strides[0], 128, 0, 1), data=x.data)
    flash_mlir.attention(q, one_head(k), one_head(v))
    assert fake.launches == 1 and K not in {fake.map[i].address for i in range(fake.maps)}


def test_a_known_call_is_not_planned_again(torch, fake, monkeypatch):
    flash_mlir.attention(*qkv())
    monkeypatch.setattr(flash_mlir._api, "_checked", None)
    flash_mlir.attention(*qkv())
    with pytest.raises(TypeError):  # other strides are another call
        q, k, v = qkv()
        flash_mlir.attention(q, LooksLikeTensor(k.shape, strides=(99968, 384, 128, 1)), v)


def test_tensors_and_targets_that_do_not_meet(torch, fake):
    with pytest.raises(ValueError, match="cpu.*cuda:0"):
        flash_mlir.attention(*qkv(), target="cpu")
    torch.cuda.get_device_capability = lambda device: (7, 5)
    with pytest.raises(ValueError, match="sm_75"):
        flash_mlir.attention(*qkv())
    assert fake.launches == 0


@pytest.mark.parametrize("capability, target", [((8, 0), "sm_80"), ((8, 6), "sm_86"), ((8, 9), "sm_89"), ((9, 0), "sm_90a"), ((10, 0), "sm_80"), ((12, 0), "sm_89")])
def test_a_device_has_its_target(torch, fake, capability, target):
    torch.cuda.get_device_capability = lambda device: capability
    q, k, v = qkv()
    assert flash_mlir.explain(q, k, v, json=True)["target"] == target


def test_older_code_runs_on_a_newer_device(torch, fake):
    flash_mlir.attention(*qkv(), num_splits=1, target="sm_80")
    assert fake.launches == 1 and fake.maps == 0
