"""The functions of flash_mlir.

A call is checked and planned once for each combination of shapes, strides, types and options; what that found is kept under
their tuple, and the next such call only fills in pointers.
"""
import ctypes
import functools
import json
import math
import os

from . import _cache, _check, _records
from ._arrays import Array, capability, empty, empty_table, gpu_name, learns, pointer, signature, stacked, stream, values, with_rows
from ._library import MAX_RANK, Program, Scalars, Tensor, library
from ._library import call as _call

_calls = {}  # tuple of everything a plan can depend on -> Call
_MOST_CALLS = 4096


def version():
    return library().flash_version().decode()


@functools.cache
def workers():
    """Threads of a CPU run: FLASH_WORKERS, or as many cores as this process may use."""
    named = os.environ.get("FLASH_WORKERS") or len(os.sched_getaffinity(0))
    try:
        return int(named)
    except ValueError:
        raise ValueError(f"expected FLASH_WORKERS to be a number of threads, got {named!r}") from None


class Call:
    """One way of calling a program: everything but the pointers."""

    def __init__(self, program, arrays, q, scalars):
        self.program, self.scalars = program, scalars
        self.device = q.index if q.device == "cuda" else None
        self.arrays = arrays
        # What a thread may find at any time belongs together. A GPU's workspace is asked for with the first call.
        self.form = self._form(arrays, None if self.device is not None else 0)

    @staticmethod
    def _form(arrays, workspace):
        """The tensors without their pointers, their type, and the f32 numbers of the workspace among them."""
        tensors = (Tensor * len(arrays))()
        for t, (name, shape, strides) in zip(tensors, arrays):
            t.name, t.rank = name, len(shape)
            t.size[: len(shape)], t.stride[: len(shape)] = shape, strides
        return tensors, Tensor * len(arrays), workspace

    def run(self, q, *arrays):
        form, kind, workspace = self.form
        arrays = (q, *arrays, empty(q, (workspace,), float32=True)) if workspace else (q, *arrays)
        tensors = kind.from_buffer_copy(form)
        for t, x in zip(tensors, arrays):
            t.data = pointer(x)
        if self.device is None:
            _call("flash_run", self.program.handle, tensors, len(arrays), self.scalars, workers())
        elif workspace is None:
            self._ask_for_workspace(tensors)
            self.run(*arrays)
        else:
            _call("flash_launch", self.program.handle, tensors, len(arrays), self.scalars, self.device, stream(q))

    def prepare(self, q, *arrays):
        """The filled schedule for a call of these arrays (as run has them); None where the plan has none."""
        if not self.program.has_schedule:
            return None
        rows = empty_table(q, (SCHEDULE_ROWS, self.made_for["sequences"] + 1))
        own = [] if self.arrays[-1][0] == b"schedule" else [(b"schedule", rows.shape, _row_major(rows.shape))]
        tensors, _, _ = self._form(self.arrays + own, 0)
        for t, x in zip(tensors, (q, *arrays[: len(tensors) - 2], rows)):
            t.data = pointer(x)
        where = (0, None) if self.device is None else (self.device, stream(q))
        _call("flash_prepare", self.program.handle, tensors, len(tensors), self.scalars, *where)
        return rows

    def _ask_for_workspace(self, tensors):
        size = ctypes.c_size_t()
        _call("flash_workspace", self.program.handle, tensors, len(tensors), self.scalars, self.device, ctypes.byref(size))
        workspace = size.value // 4
        own = [(b"workspace", (workspace,), (1,))] if workspace else []
        self.form = self._form(self.arrays + own, workspace)


SCHEDULE_ROWS = 4  # of flash/Schedule/WorkOrder.h
PREPARE = object()  # in place of a Schedule: the call is to prepare one


class Schedule:
    """What prepare found: how the work of sequences is ordered and split. Holds for calls of the problem it was made for, as long
    as the lengths of the sequences stay."""

    def __init__(self, made_for, table):
        self.made_for, self.table = made_for, table

    def check(self, made_for):
        if made_for == self.made_for:
            return
        if made_for["kernel"] != self.made_for["kernel"]:
            raise ValueError("expected scheduler_metadata of this call's types, head sizes, mask, splits and tables, it was prepared for others; "
                             "call prepare with this call's arguments")
        for what, mine in made_for.items():
            if mine != (theirs := self.made_for[what]):
                raise ValueError(f"expected scheduler_metadata of this call's {what} ({mine}), it was prepared for {theirs}")

    def check_lengths(self, present):
        """Compares with what prepare finds now."""
        first, *others = values(self.table)
        now, *rest = values(present)
        if first != now or [row[:-1] for row in others] != [row[:-1] for row in rest]:
            raise ValueError("expected scheduler_metadata of the present lengths, these have changed since; call prepare again")


def _row_major(shape):
    return [math.prod(shape[i + 1 :]) for i in range(len(shape))]


def _target(target, q, x):
    """The target's name for an array q, as asked for or from its device."""
    if target is None:
        if q.device == "cpu":
            return "cpu"
        major, minor = capability(x)
        if major > 9:  # compiled by the driver; from 12 on a multiprocessor has the shared memory of 8.9
            return "sm_80" if major < 12 else "sm_89"
        return f"sm_{major}{minor}" + ("a" if major == 9 else "")
    if not isinstance(target, str):
        raise TypeError(f"expected target to be a string, got {type(target).__name__}")
    return target


def _meets(target, q):
    if (target == "cpu") != (q.device == "cpu"):
        way_out = "pass NumPy arrays" if target == "cpu" else "pass PyTorch CUDA tensors"
        raise ValueError(f"expected arrays that target {target} can reach, got {q.place}; {way_out}")


def _repeats(a):
    """Whether a is expanded: one element stands at several indices, which tma does not take."""
    return 0 not in a.shape and any(n > 1 and s == 0 for n, s in zip(a.shape, a.strides))


def _problem(options, target, q, k, v, sink, batch, given={}, max_q=None, max_k=None):
    """The library's problem, as JSON text, and the lengths that bound all sequences. q, k, v: Arrays; given: the operands
    besides, by name."""
    paged = "page_table" in given
    new = given["k_new"].shape[1] if "k_new" in given else 0
    len_q = q.shape[1] if len(q.shape) == 4 else q.shape[0] if max_q is None else max_q
    if len(k.shape) == 4 and not paged:
        len_k = k.shape[1]
    elif max_k is not None:
        len_k = max_k + new
    else:
        len_k = given["page_table"].shape[1] * k.shape[1] if paged else k.shape[0]
    len_k = min(len_k, _check.LIMIT - 1)
    problem = dict(
        options,
        target=target,
        element=q.element,
        head_size=q.shape[-1],
        head_size_v=v.shape[-1],
        sink=sink,
        batch=batch,
        heads=q.shape[-2],
        kv_heads=k.shape[-2],
        len_q=len_q,
        len_k=len_k,
    )
    fields = (("cu_seqlens_q", "packed_q"), ("cu_seqlens_k", "packed_k"), ("seqused_q", "used_q"), ("seqused_k", "used_k"),
              ("kv_batch_idx", "kv_batch_idx"), ("leftpad_k", "leftpad_k"), ("k_new", "append"))
    problem.update({field: True for name, field in fields if name in given})
    if "cu_seqlens_q" in given:
        problem["total_q"] = q.shape[0]
    if paged:
        problem["page_size"] = k.shape[1]
    if "rotary_cos" in given:
        problem["rotary"] = given["rotary_cos"].shape[1]
    if target == "cpu":
        problem["sms"] = workers()
    else:
        problem["records"] = _records.files()
        if isinstance(q, Array) and q.device == "cuda":
            problem["gpu"] = gpu_name(q.index)
        if any(_repeats(a) for a in (q, k, v)):
            problem["transfer"] = "gather"
    return json.dumps(problem), len_q, len_k


def _checked(q, k, v, given, options, descales, max_seqlen_q, max_seqlen_k, out, target, cached=False):
    """Checks all but the contents of tables; returns the Arrays and the problem with its bounds of lengths.

    given: operands besides q, k and v, by name; cached: k and v are caches."""
    packed_q, packed_k, paged = (name in given for name in ("cu_seqlens_q", "cu_seqlens_k", "page_table"))
    chosen = "pages" if paged else "batch" if cached and ("kv_batch_idx" in given or packed_q) else None
    aq, ak, av = _check.tensors(q, k, v, packed_q, packed_k and not paged, chosen)
    target = _target(target, aq, q)
    batch = _check.tables(aq, ak, given, cached)
    _check.fresh(aq, ak, av, batch, given)
    bounds = [_check.bound(name, most) for name, most in (("max_seqlen_q", max_seqlen_q), ("max_seqlen_k", max_seqlen_k))]
    if "sink" in given:
        _check.row("sink", given["sink"], aq.shape[-2], "one a query head", ("q", aq.place), ("f32",))
    for name, descale in descales.items():
        if descale is not None:
            if aq.element != "f8e4m3":
                raise ValueError(f"expected {name} only with f8 operands, got {aq.type}")
            a = _check.operand(name, descale, 2, ("f32",), ("q", aq.place))
            if a.shape != (batch, ak.shape[-2]):
                raise ValueError(f"expected {name}'s shape {list(a.shape)} to be {[batch, ak.shape[-2]]}")
    if out is not None:
        _check.output("out", out, aq, aq.shape[:-1] + av.shape[-1:])
    problem = _problem(options, target, aq, ak, av, "sink" in given, batch, given, *bounds)
    _cache.key(problem[0])  # the library's own refusals: mask, head sizes, target
    _meets(target, aq)
    return (aq, ak, av), problem


def _kept(key, make):
    """The Call kept under key(), or what make() gives, to keep. key raises TypeError for an argument of a kind that cannot be
    right: then make's checks name it."""
    try:
        key = key()
        call = _calls.get(key)
    except TypeError:
        key = call = None
    if call is None:
        call = make()
        if key is not None:
            if len(_calls) >= _MOST_CALLS:
                _calls.clear()
            _calls[key] = call
    return call


def _check_tables(call, q, k, given, causal, window, max_seqlen_q, max_seqlen_k, validate):
    """Whether the tables' contents are to be checked, once they are."""
    validates = call.tables and (validate if validate is not None else call.device is None)
    if validates:
        by_query = bool(causal) or tuple(window) != (-1, -1)
        _check.contents(q, k, given, max_seqlen_q, max_seqlen_k, by_query)
    return validates


def _attend(q, k, v, given, causal, window, attention_chunk, sink_tokens, scale, softcap, max_seqlen_q, max_seqlen_k, q_descale, k_descale,
            v_descale, num_splits, pack_gqa, out, return_lse, validate, target, metadata, cached=False, interleaved=False):
    """attention and attention_with_kvcache: checked and planned once for each combination, then run."""
    given = {name: x for name, x in given.items() if x is not None}
    prepares = metadata is PREPARE
    if not prepares and metadata is not None:
        if not isinstance(metadata, Schedule):
            raise TypeError(f"expected scheduler_metadata to be what prepare returns, got {type(metadata).__name__}")
        if metadata.table is not None:
            given["schedule"] = metadata.table
    descales = dict(q_descale=q_descale, k_descale=k_descale, v_descale=v_descale)

    def key():
        return (signature(q), signature(k), signature(v), signature(out), causal, tuple(window), attention_chunk, sink_tokens, scale,
                softcap, num_splits, pack_gqa, target, max_seqlen_q, max_seqlen_k, cached, interleaved,
                tuple((name, signature(x)) for name, x in given.items()))

    def make():
        options, value, cap = _check.options(causal, window, attention_chunk, sink_tokens, scale, softcap, num_splits, pack_gqa)
        if interleaved:
            options["rotary_interleaved"] = "rotary_cos" in given
        arrays, problem = _checked(q, k, v, given, options, descales, max_seqlen_q, max_seqlen_k, out, target, cached)
        return _make_call(arrays, problem, value, cap, given, out)

    call = _kept(key, make) if all(x is None for x in descales.values()) else make()
    if metadata is not None and not prepares:
        metadata.check(call.made_for)
    validates = _check_tables(call, q, k, given, causal, window, max_seqlen_q, max_seqlen_k, validate)
    if prepares:
        o, lse = empty(q, call.o_shape), empty(q, call.lse_shape, float32=True)
        return Schedule(call.made_for, call.prepare(q, k, v, o, lse, *given.values()))
    if "k_new" in given:
        _check.caches(k, v, given)
    o = empty(q, call.o_shape) if out is None else out
    _check.writable("out", o)
    if out is not None:
        _check.apart("out", out, (("q", q), ("k", k), ("v", v)))
    lse = empty(q, call.lse_shape, float32=True)
    if validates and "schedule" in given:
        metadata.check_lengths(call.prepare(q, k, v, o, lse, *given.values()))
    call.run(q, k, v, o, lse, *given.values())
    return (o, lse) if return_lse else o


def attention(q, k, v, *, causal=False, window=(-1, -1), attention_chunk=0, sink_tokens=0, scale=None, softcap=0.0, sink=None,
              cu_seqlens_q=None, cu_seqlens_k=None, max_seqlen_q=None, max_seqlen_k=None, seqused_q=None, seqused_k=None,
              page_table=None, q_descale=None, k_descale=None, v_descale=None, num_splits=0, pack_gqa=None,
              out=None, return_lse=False, scheduler_metadata=None, validate=None, target=None):
    """softmax(scale * q k^T, mask) v, row by row.

    q [B, Sq, Hq, D], k [B, Sk, Hkv, D], v [B, Sk, Hkv, Dv]: f16, bf16 or (CPU) f32; the last dimension contiguous, other strides
    free (on a GPU multiples of 16 bytes). D and Dv are multiples of 8 up to 256, or Dv is 512 where D is 64. Query head h reads KV
    head h / (Hq / Hkv). NumPy arrays (bf16 through ml_dtypes) and PyTorch tensors. On a GPU the kernel is queued on the caller's
    current stream; nothing waits or copies.

    causal, window (left, right; -1 = unbounded), attention_chunk, sink_tokens: which keys a query sees, the last query
    standing at the last key. scale: default 1/sqrt(D). softcap: 0 or the c of c*tanh(s/c). sink: f32 [Hq], a logit that joins
    each row's denominator. num_splits, pack_gqa: 0 and None leave them to the planner; num_splits parts (at most 65535) of o
    and lse are kept in f32 till they are joined. target: "cpu", "sm_90a", "sm_80", "sm_86" or "sm_89" (code for an older device
    runs on a newer one); None picks by the arrays' device.

    Scores (scale * q k^T, capped) have to lie within 2^27 either way, and within 2^16 where the keys are split: f32 cannot tell
    larger ones apart, nor a split's lse, and their rows may come out as NaN or with wrong weights.

    cu_seqlens_q, cu_seqlens_k (i32 [B + 1]): sequences lie one after the other, q [total, Hq, D], k and v [total, Hkv, .], o
    [total, Hq, Dv], lse [Hq, total]. seqused_q, seqused_k (i32 [B]): only that many rows of each sequence count; rows of o and
    lse past them are not defined. page_table (i32 [B, pages]), besides seqused_k: k and v are [pages, page size, Hkv, .], and row
    r of sequence b lies in slot r % page size of page page_table[b, r // page size]. max_seqlen_q, max_seqlen_k: bounds of
    packed or paged lengths; without them the totals bound. scheduler_metadata: what prepare returned for such a call. validate:
    whether what stands in the tables is checked, which waits for a GPU (None: on the CPU only); unchecked, tables that are wrong
    read and write anywhere.

    Returns o [B, Sq, Hq, Dv] of q's element type (`out`, if given), and with return_lse also lse, f32 [B, Hq, Sq]: the
    natural logarithm of each row's denominator. A row that sees no key gives 0 and -inf.

    Where q, k, v or sink are PyTorch tensors that require gradients, o is part of PyTorch's graph: its backward runs
    attention_backward, deterministic under torch.use_deterministic_algorithms(True), and rows past seqused get zeros. It saves q,
    k, v, sink, tables, o and lse. lse itself has no gradient, pages have none, and `out` cannot be given.

    Raises ValueError or TypeError for arguments that do not fit, NotImplementedError for what this version lacks (so f8 and its
    q_descale, k_descale, v_descale), RuntimeError where the driver or ptxas fails.
    """
    if learns(q, k, v, sink):
        return _in_graph(locals())
    given = dict(sink=sink, cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k, seqused_q=seqused_q, seqused_k=seqused_k,
                 page_table=page_table)
    return _attend(q, k, v, given, causal, window, attention_chunk, sink_tokens, scale, softcap, max_seqlen_q, max_seqlen_k, q_descale,
                   k_descale, v_descale, num_splits, pack_gqa, out, return_lse, validate, target, scheduler_metadata)


def _in_graph(arguments):
    """attention of its arguments, by name, in PyTorch's graph."""
    from . import _autograd

    return _autograd.attention(**arguments)


def planned(q, k, v, out, *, causal=False, window=(-1, -1), plan=None, target=None, **given):
    """The call that attention would make of q, k, v, out and the operands `given` under `plan`: its run(q, k, v, out, lse, *given)
    does nothing but launch."""
    options, _, _ = _check.options(causal, window, 0, 0, None, 0.0, 0, None)
    if plan is not None:
        options["plan"] = plan
    arrays, problem = _checked(q, k, v, given, options, {}, None, None, None, target)
    return _make_call(arrays, problem, None, 0.0, given, out)


def _make_call(arrays, problem, scale, cap, given, out):
    q, k, v = arrays
    problem, max_q, max_k = problem
    o_shape = q.shape[:-1] + v.shape[-1:]
    lse_shape = _lse_shape(q.shape)
    operands = [(a.name.encode(), a.shape, a.strides) for a in arrays]
    o = (o_shape, _row_major(o_shape)) if out is None else (o_shape, Array("out", out).strides)
    operands += [(b"o", *o), (b"lse", lse_shape, _row_major(lse_shape))]
    call = _planned_call((problem, max_q, max_k), operands, q, scale, cap, given)
    call.o_shape, call.lse_shape = o_shape, lse_shape
    sequences = given["cu_seqlens_q"].shape[0] - 1 if "cu_seqlens_q" in given else q.shape[0]
    new = given["k_new"].shape[1] if "k_new" in given else 0
    call.made_for = {"kernel": call.program, "sequences": sequences, "q's shape": q.shape, "k's shape": k.shape, "max_seqlen_q": max_q,
                     "max_seqlen_k": max_k - new, "new rows": new, "device": q.place}
    return call


def _planned_call(problem, operands, q, scale, cap, given):
    """The call of a problem and its bounds of lengths on operands (name, shape, strides) and those given."""
    problem, max_q, max_k = problem
    for name, x in given.items():
        a = Array(name, x)
        operands.append((name.encode(), a.shape, a.strides))
    assert max(len(shape) for _, shape, _ in operands) <= MAX_RANK
    scalars = Scalars(scale if scale is not None else q.shape[-1] ** -0.5, cap, max_q, max_k)
    call = Call(_cache.program(problem), operands, q, scalars)
    call.tables = any(name in given for name in _check.TABLES)
    return call


def attention_with_kvcache(q, k_cache, v_cache, *, k_new=None, v_new=None, seqused_k=None, rotary_cos=None, rotary_sin=None,
                           rotary_interleaved=False, kv_batch_idx=None, leftpad_k=None, causal=False, window=(-1, -1),
                           attention_chunk=0, sink_tokens=0, scale=None, softcap=0.0, sink=None, cu_seqlens_q=None,
                           cu_seqlens_k=None, max_seqlen_q=None, max_seqlen_k=None, seqused_q=None, page_table=None,
                           q_descale=None, k_descale=None, v_descale=None, num_splits=0, pack_gqa=None, out=None,
                           return_lse=False, scheduler_metadata=None, validate=None, target=None):
    """Attention over a cache of keys and values, [rows, Sk, Hkv, D] and [rows, Sk, Hkv, Dv], which k_new and v_new
    ([B, Snew, Hkv, D or Dv]) are first written into behind seqused_k (i32 [B]), turned by rotary_cos and rotary_sin
    ([positions, R/2]). kv_batch_idx (i32 [B]) picks cache rows, leftpad_k (i32 [B]) skips leading ones.

    What is new, rotary_cos and rotary_sin are of q's element type. The keys are those in use and the new ones; q is turned too,
    query t by position seqused_k + t under causal or a window, else all (so under an attention_chunk alone) by position seqused_k;
    pairs are columns 2i and 2i + 1 (rotary_interleaved) or i and i + R/2. With a page_table the caches are pages, and kv_batch_idx
    picks its rows. q may be packed (cu_seqlens_q) over caches that are not.

    The other arguments, results and errors are attention's; o has no gradients.
    """
    interleaved = _check.flag("rotary_interleaved", rotary_interleaved)
    given = dict(sink=sink, cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k, seqused_q=seqused_q, seqused_k=seqused_k,
                 page_table=page_table, kv_batch_idx=kv_batch_idx, leftpad_k=leftpad_k, k_new=k_new, v_new=v_new,
                 rotary_cos=rotary_cos, rotary_sin=rotary_sin)
    return _attend(q, k_cache, v_cache, given, causal, window, attention_chunk, sink_tokens, scale, softcap, max_seqlen_q, max_seqlen_k,
                   q_descale, k_descale, v_descale, num_splits, pack_gqa, out, return_lse, validate, target, scheduler_metadata, cached=True, interleaved=interleaved)


def prepare(q, k, v, **call):
    """The scheduler_metadata of attention(q, k, v, **call), or of attention_with_kvcache: in which order and into how many parts
    sequences of different lengths are computed.

    A call finds it by itself, with one more kernel; the layers of a model have the same lengths, so they may share one. It is made
    of lengths and shapes alone: what is in q, k and v does not matter. On a GPU it is queued as the call is and may be captured
    with it. Calls of another problem refuse it; calls after the lengths have changed do so where they validate.

    Raises as attention does.
    """
    taken = ("out", "return_lse", "scheduler_metadata")
    if wrong := [name for name in call if name in taken]:
        raise TypeError(f"expected no {wrong[0]}: prepare computes no attention")
    return attention_with_kvcache(q, k, v, scheduler_metadata=PREPARE, **call)


def attention_backward(do, q, k, v, o, lse, *, causal=False, window=(-1, -1), attention_chunk=0, sink_tokens=0, scale=None,
                       softcap=0.0, sink=None, cu_seqlens_q=None, cu_seqlens_k=None, max_seqlen_q=None, max_seqlen_k=None,
                       seqused_q=None, seqused_k=None, validate=None, deterministic=False, target=None):
    """Gradients (dq, dk, dv), and dsink with a sink, of a loss whose gradient of attention's o is do.

    do: o's shape and type, any strides (copied where its rows are not contiguous, as those of an expanded number are). q, k, v,
    sink, masks, scale, softcap and tables: as attention had them; o, lse: what it gave. dq, dk, dv have the shapes and types of q,
    k, v, dsink is f32 [Hq]. Rows without a key, keys that no query sees, and rows of no sequence or past seqused have gradients
    of exact zeros. With deterministic two runs give the same bits. On GPUs head sizes to 256; nowhere pages or a cache. On
    sm_90a run as on sm_80 so far: D and Dv of which the larger is 72 to 96, or at most 64 with softcap.

    Raises ValueError or TypeError for arguments that do not fit, NotImplementedError for what this version lacks.
    """
    do = with_rows(do)
    given = dict(sink=sink, cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k, seqused_q=seqused_q, seqused_k=seqused_k)
    given = {name: x for name, x in given.items() if x is not None}

    def key():
        return ("backward", *map(signature, (q, k, v, do, o, lse)), causal, tuple(window), attention_chunk, sink_tokens, scale, softcap,
                target, max_seqlen_q, max_seqlen_k, deterministic, tuple((name, signature(x)) for name, x in given.items()))

    def make():
        options, value, cap = _check.options(causal, window, attention_chunk, sink_tokens, scale, softcap, 0, None)
        return _make_backward(do, q, k, v, o, lse, given, options, value, cap, deterministic, max_seqlen_q, max_seqlen_k, target)

    call = _kept(key, make)
    _check_tables(call, q, k, given, causal, window, max_seqlen_q, max_seqlen_k, validate)
    tables = len(given) > (sink is not None)  # which leave rows that belong to no sequence
    grads = [empty(x, x.shape, zeros=tables) for x in (q, k, v)] + ([empty(sink, sink.shape)] if sink is not None else [])
    call.run(q, k, v, do, o, lse, *grads, *given.values())
    return tuple(grads)


def planned_backward(do, q, k, v, o, lse, *, causal=False, window=(-1, -1), plan=None, deterministic=False, target=None):
    """The call that attention_backward would make under `plan`: its run(q, k, v, do, o, lse, dq, dk, dv) does nothing but launch."""
    options, scale, cap = _check.options(causal, window, 0, 0, None, 0.0, 0, None)
    if plan is not None:
        options["plan"] = plan
    return _make_backward(do, q, k, v, o, lse, {}, options, scale, cap, deterministic, None, None, target)


def _make_backward(do, q, k, v, o, lse, given, options, scale, cap, deterministic, max_q, max_k, target):
    options.update(backward=True, deterministic=_check.flag("deterministic", deterministic))
    aq, ak, av = _check.tensors(q, k, v, "cu_seqlens_q" in given, "cu_seqlens_k" in given)
    shape = aq.shape[:-1] + av.shape[-1:]
    like = "bf16" if aq.element == "f8e4m3" else aq.element
    rows = [_check.operand(name, x, len(shape), (like,), ("q", aq.place)) for name, x in (("do", do), ("o", o))]
    for a in rows:
        if a.shape != shape:
            raise ValueError(f"expected {a.name}'s shape {list(a.shape)} to be {list(shape)}")
    _check_lse("lse", lse, aq)
    arrays, problem = _checked(q, k, v, given, options, {}, max_q, max_k, None, target)
    operands = [(a.name.encode(), a.shape, a.strides) for a in (*arrays, *rows, Array("lse", lse))]
    operands += [(b"d" + a.name.encode(), a.shape, _row_major(a.shape)) for a in arrays]
    if "sink" in given:
        operands.append((b"dsink", given["sink"].shape, (1,)))
    return _planned_call(problem, operands, arrays[0], scale, cap, given)


def _lse_shape(o_shape):
    """[B, H, S] (or [H, S] packed) of [B, S, H, Dv]."""
    return (*o_shape[:-3], o_shape[-2], o_shape[-3])


def _check_lse(name, lse, o):
    shape = _lse_shape(o.shape)
    if (a := _check.operand(name, lse, len(shape), ("f32",), (o.name, o.place))).shape != shape:
        raise ValueError(f"expected {name}'s shape {list(a.shape)} to be {list(shape)}")


def merge(o1, lse1, o2, lse2, *, target=None):
    """Joins attention over two disjoint sets of keys into attention over both.

    o1, o2 [B, S, H, Dv] of one element type (f16, bf16 or, on the CPU, f32), Dv a multiple of 8 up to 256, or 512; lse1,
    lse2 f32 [B, H, S]; or packed, [total, H, Dv] and [H, total]. Returns (o, lse) of their shapes and types; computes in f32.
    Associative and commutative up to rounding; (0, -inf) is neutral. Raises as attention does.
    """
    rank = getattr(o1, "ndim", 4)
    a = _check.operand("o1", o1, rank if rank in (3, 4) else 4)
    b = _check.operand("o2", o2, len(a.shape), place=("o1", a.place))
    _check.same("shape", ("o2", b.shape), ("o1", a.shape))
    _check.same("element type", ("o2", b.type), ("o1", a.type))
    _check.alike(o1=o1, lse1=lse1, o2=o2, lse2=lse2)
    _check_lse("lse1", lse1, a)
    _check_lse("lse2", lse2, a)
    target = _target(target, a, o1)
    problem = json.dumps(dict(target=target, element=a.element, merge=True, head_size=64, head_size_v=a.shape[-1]))  # 64: goes with any of values
    _cache.key(problem)
    _meets(target, a)
    lse_shape, batch = _lse_shape(a.shape), () if len(a.shape) == 4 else (1,)  # packed rows are joined as one batch
    shapes = ((b"o_partial", (2, *batch, *a.shape)), (b"lse_partial", (2, *batch, *lse_shape)), (b"o", (*batch, *a.shape)), (b"lse", (*batch, *lse_shape)))
    call = Call(_cache.program(problem), [(name, shape, _row_major(shape)) for name, shape in shapes], a, Scalars())
    o, lse = empty(o1, a.shape), empty(o1, lse_shape, float32=True)
    call.run(stacked(o1, o2), stacked(lse1, lse2), o, lse)
    return o, lse


class _Shape:
    """A shape in place of an array."""

    def __init__(self, name, shape, element):
        self.name, self.element, self.device = name, element, "cuda"
        self.shape = tuple(_check.whole(f"{name}'s size", n) for n in shape)
        self.strides = _row_major(self.shape)
        if len(self.shape) != 4:
            raise ValueError(f"expected {name} of rank 4, got rank {len(self.shape)} {list(self.shape)}")


def _problem_of(q, k, v, element, causal, window, attention_chunk, sink_tokens, softcap, sink, num_splits, pack_gqa, plan, passes, target,
                backward=False, deterministic=False):
    options, _, _ = _check.options(causal, window, attention_chunk, sink_tokens, None, softcap, num_splits, pack_gqa)
    if backward:
        if num_splits or pack_gqa is not None:
            raise ValueError("num_splits and pack_gqa are attention's, gradients have neither; leave them out")
        options.update(backward=True, deterministic=_check.flag("deterministic", deterministic))
    elif _check.flag("deterministic", deterministic):
        raise ValueError("deterministic is of gradients, attention always is; add backward=True or leave it out")
    if plan is not None:
        options["plan"] = plan
    if passes is not None:
        options["passes"] = passes
    if isinstance(q, (tuple, list)):
        arrays = _check.fit(*(_Shape(name, x, element) for name, x in zip("qkv", (q, k, v))))
        target = target or "sm_90a"
    else:
        arrays = _check.tensors(q, k, v)
        target = _target(target, arrays[0], q)
    return _problem(options, target, *arrays, sink is not None and sink is not False, arrays[0].shape[0])[0]


def explain(q, k, v, *, element="bf16", causal=False, window=(-1, -1), attention_chunk=0, sink_tokens=0, softcap=0.0, sink=False,
            num_splits=0, pack_gqa=None, plan=None, passes=None, target=None, backward=False, deterministic=False, json=False):
    """The plan of attention on q, k, v (with backward: of attention_backward) and the reason of each decision; of gradients also
    the launches of their kernels and the parts of the workspace, in bytes.

    q, k, v: arrays, or shapes as attention has them (then `element` says of what: "bf16", "f16", "f32"; and target defaults to
    "sm_90a"). sink: whether there is one. plan: fields fixed by hand, as "tile = [128, 128], stages = 2" or
    "#flash.plan<...>" around them. Returns text for people, or with json a dictionary. Raises as attention does.
    """
    problem = _problem_of(q, k, v, element, causal, window, attention_chunk, sink_tokens, softcap, sink, num_splits, pack_gqa, plan, passes, target,
                          backward, deterministic)
    text = _call("flash_explain", problem.encode(), int(json)).decode()
    return _parse(text) if json else text


_parse = json.loads


def compile(q, k, v, *, element="bf16", causal=False, window=(-1, -1), attention_chunk=0, sink_tokens=0, softcap=0.0, sink=False,
            num_splits=0, pack_gqa=None, plan=None, passes=None, target=None, backward=False, deterministic=False, cached=True):
    """The program that attention (with backward: attention_backward) would run: .text("mlir"), .text("ptx"), .text("plan") and
    .text("metadata") are strings, .part("cubin") bytes.

    Arguments as explain's; no GPU is needed, but a cubin takes ptxas. passes: {"skip_blocks": False, ...} switches
    optional passes off. cached=False compiles anew. Raises as attention does.
    """
    problem = _problem_of(q, k, v, element, causal, window, attention_chunk, sink_tokens, softcap, sink, num_splits, pack_gqa, plan, passes, target,
                          backward, deterministic)
    return _cache.program(problem) if cached else Program.compile(problem)
