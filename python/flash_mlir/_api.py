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
from ._arrays import Array, capability, empty, gpu_name, pointer, signature, stream
from ._library import MAX_RANK, Program, Scalars, Tensor, library
from ._library import call as _call

_calls = {}  # tuple of everything a plan can depend on -> Call
_MOST_CALLS = 4096


def version():
    return library().flash_version().decode()


@functools.cache
def workers():
    """Threads of a CPU run: FLASH_WORKERS, or as many cores as this process may use."""
    return int(os.environ.get("FLASH_WORKERS") or len(os.sched_getaffinity(0)))


class Call:
    """One way of calling a program: everything but the pointers."""

    def __init__(self, program, arrays, q, o_shape, scalars):
        self.program, self.scalars = program, scalars
        self.o_shape, self.lse_shape = o_shape, (q.shape[0], q.shape[2], q.shape[1])
        self.device = q.index if q.device == "cuda" else None
        tensors = (Tensor * len(arrays))()
        for t, (name, shape, strides) in zip(tensors, arrays):
            t.name, t.rank = name, len(shape)
            t.size[: len(shape)], t.stride[: len(shape)] = shape, strides
        self.tensors, self.type, self.count = tensors, Tensor * len(arrays), len(arrays)

    def run(self, q, *arrays):
        tensors = self.type.from_buffer_copy(self.tensors)
        for t, x in zip(tensors, (q, *arrays)):
            t.data = pointer(x)
        if self.device is None:
            _call("flash_run", self.program.handle, tensors, self.count, self.scalars, workers())
        else:
            _call("flash_launch", self.program.handle, tensors, self.count, self.scalars, self.device, stream(q))


def _row_major(shape):
    return [math.prod(shape[i + 1 :]) for i in range(len(shape))]


def _target(target, q, x):
    """The target's name for an array q, as asked for or from its device."""
    if target is None:
        if q.device == "cpu":
            return "cpu"
        major, minor = capability(x)
        return f"sm_{major}{minor}" + ("a" if major >= 9 else "")
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


def _problem(options, target, q, k, v, sink, batch):
    """The library's problem, as JSON text. q, k, v: Arrays; lengths of packed sequences and pages stay unknown."""
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
    )
    if len(q.shape) == 4:
        problem["len_q"] = q.shape[1]
    if len(k.shape) == 4:
        problem["len_k"] = k.shape[1]
    if target == "cpu":
        problem["sms"] = workers()
    else:
        problem["records"] = _records.files()
        if isinstance(q, Array) and q.device == "cuda":
            problem["gpu"] = gpu_name(q.index)
        if any(_repeats(a) for a in (q, k, v)):
            problem["transfer"] = "gather"
    return json.dumps(problem)


def _checked(q, k, v, causal, window, attention_chunk, sink_tokens, scale, softcap, sink, cu_seqlens_q, cu_seqlens_k, max_seqlen_q,
             max_seqlen_k, seqused_q, seqused_k, page_table, q_descale, k_descale, v_descale, num_splits, pack_gqa, out, validate,
             target, cache_rows=None):
    """Checks everything; returns the Arrays, the problem, scale and softcap, and what of it this build cannot do yet.

    cache_rows: the batch size of k and v where it may differ from q's."""
    options, scale, cap = _check.options(causal, window, attention_chunk, sink_tokens, scale, softcap, num_splits, pack_gqa)
    packed_q, packed_k, paged = cu_seqlens_q is not None, cu_seqlens_k is not None, page_table is not None
    aq, ak, av = _check.tensors(q, k, v, packed_q, packed_k, paged or cache_rows)
    target = _target(target, aq, q)
    checks_lengths = validate if validate is not None else aq.device == "cpu"
    batch = _check.lengths(aq, ak, cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k, page_table, checks_lengths)
    for name, most in (("max_seqlen_q", max_seqlen_q), ("max_seqlen_k", max_seqlen_k)):
        if most is not None and _check.whole(name, most) < 0:
            raise ValueError(f"expected {name} to be 0 or more, got {most}")
    if sink is not None:
        _check.row("sink", sink, aq.shape[-2], "one a query head", ("q", aq.place), ("f32",))
    for name, descale in (("q_descale", q_descale), ("k_descale", k_descale), ("v_descale", v_descale)):
        if descale is not None:
            if aq.element != "f8e4m3":
                raise ValueError(f"expected {name} only with f8 operands, got {aq.type}")
            a = _check.operand(name, descale, 2, ("f32",), ("q", aq.place))
            if a.shape != (batch, ak.shape[-2]):
                raise ValueError(f"expected {name}'s shape {list(a.shape)} to be {[batch, ak.shape[-2]]}")
    if out is not None:
        _check.output("out", out, aq, aq.shape[:-1] + av.shape[-1:])
    problem = _problem(options, target, aq, ak, av, sink is not None, batch)
    _cache.key(problem)  # the library's own refusals: mask, head sizes, target
    _meets(target, aq)
    missing = [
        what
        for what, given in (
            ("packed sequences (cu_seqlens_q, cu_seqlens_k)", packed_q or packed_k),
            ("lengths in use (seqused_q, seqused_k)", seqused_q is not None or seqused_k is not None),
            ("paged keys and values (page_table)", paged),
        )
        if given
    ]
    return (aq, ak, av), problem, scale, cap, missing


def _refuse_missing(missing):
    if missing:
        raise NotImplementedError(f"this version has no kernel for {', '.join(missing)}; pass dense q, k and v of one length")


def attention(q, k, v, *, causal=False, window=(-1, -1), attention_chunk=0, sink_tokens=0, scale=None, softcap=0.0, sink=None,
              cu_seqlens_q=None, cu_seqlens_k=None, max_seqlen_q=None, max_seqlen_k=None, seqused_q=None, seqused_k=None,
              page_table=None, q_descale=None, k_descale=None, v_descale=None, num_splits=0, pack_gqa=None,
              out=None, return_lse=False, validate=None, target=None):
    """softmax(scale * q k^T, mask) v, row by row.

    q [B, Sq, Hq, D], k [B, Sk, Hkv, D], v [B, Sk, Hkv, Dv]: f16, bf16 or (CPU) f32; the last dimension contiguous, other
    strides free (on a GPU multiples of 16 bytes). Query head h reads KV head h / (Hq / Hkv). NumPy arrays (bf16 through
    ml_dtypes) and PyTorch tensors. On a GPU the kernel is queued on the caller's current stream; nothing waits or copies.

    causal, window (left, right; -1 = unbounded), attention_chunk, sink_tokens: which keys a query sees, the last query
    standing at the last key. scale: default 1/sqrt(D). softcap: 0 or the c of c*tanh(s/c). sink: f32 [Hq], a logit that joins
    each row's denominator. num_splits, pack_gqa: 0 and None leave them to the planner. target: "cpu" or "sm_90a"; None picks
    by the arrays' device.

    Returns o [B, Sq, Hq, Dv] of q's element type (`out`, if given), and with return_lse also lse, f32 [B, Hq, Sq]: the
    natural logarithm of each row's denominator. A row that sees no key gives 0 and -inf.

    Raises ValueError or TypeError for arguments that do not fit, NotImplementedError for what this version lacks.
    """
    simple = (cu_seqlens_q is cu_seqlens_k is max_seqlen_q is max_seqlen_k is seqused_q is seqused_k is page_table
              is q_descale is k_descale is v_descale is None)
    key = call = None
    if simple:
        try:
            key = (signature(q), signature(k), signature(v), signature(sink), signature(out), causal, tuple(window), attention_chunk,
                   sink_tokens, scale, softcap, num_splits, pack_gqa, target)
            call = _calls.get(key)
        except TypeError:  # an argument of a kind that cannot be right: the checks name it
            key = None
    if call is None:
        arrays, problem, value, cap, missing = _checked(
            q, k, v, causal, window, attention_chunk, sink_tokens, scale, softcap, sink, cu_seqlens_q, cu_seqlens_k, max_seqlen_q,
            max_seqlen_k, seqused_q, seqused_k, page_table, q_descale, k_descale, v_descale, num_splits, pack_gqa, out, validate, target)
        _refuse_missing(missing)
        call = _make_call(arrays, problem, value, cap, sink, out)
        if key is not None:
            if len(_calls) >= _MOST_CALLS:
                _calls.clear()
            _calls[key] = call
    o = empty(q, call.o_shape) if out is None else out
    lse = empty(q, call.lse_shape, float32=True)
    call.run(q, k, v, o, lse, *(() if sink is None else (sink,)))
    return (o, lse) if return_lse else o


def _make_call(arrays, problem, scale, cap, sink, out):
    q, k, v = arrays
    o_shape = q.shape[:-1] + v.shape[-1:]
    lse_shape = (q.shape[0], q.shape[2], q.shape[1])
    operands = [(a.name.encode(), a.shape, a.strides) for a in arrays]
    o = (o_shape, _row_major(o_shape)) if out is None else (o_shape, Array("out", out).strides)
    operands += [(b"o", *o), (b"lse", lse_shape, _row_major(lse_shape))]
    if sink is not None:
        operands.append((b"sink", (q.shape[2],), Array("sink", sink).strides))
    assert max(len(shape) for _, shape, _ in operands) <= MAX_RANK
    scalars = Scalars(scale if scale is not None else q.shape[-1] ** -0.5, cap)
    return Call(_cache.program(problem), operands, q, o_shape, scalars)


def attention_with_kvcache(q, k_cache, v_cache, *, k_new=None, v_new=None, seqused_k=None, rotary_cos=None, rotary_sin=None,
                           rotary_interleaved=False, kv_batch_idx=None, leftpad_k=None, causal=False, window=(-1, -1),
                           attention_chunk=0, sink_tokens=0, scale=None, softcap=0.0, sink=None, cu_seqlens_q=None,
                           cu_seqlens_k=None, max_seqlen_q=None, max_seqlen_k=None, seqused_q=None, page_table=None,
                           q_descale=None, k_descale=None, v_descale=None, num_splits=0, pack_gqa=None, out=None,
                           return_lse=False, validate=None, target=None):
    """Attention over a cache of keys and values, [rows, Sk, Hkv, D] and [rows, Sk, Hkv, Dv], which k_new and v_new
    ([B, Snew, Hkv, D or Dv]) are first written into behind seqused_k (i32 [B]), turned by rotary_cos and rotary_sin
    ([positions, R/2]). kv_batch_idx (i32 [B]) picks cache rows, leftpad_k (i32 [B]) skips leading ones.

    The other arguments, results and errors are attention's. This version has no kernel for anything that attention cannot
    do alone, and raises NotImplementedError for it after all arguments were checked.
    """
    same = dict(causal=causal, window=window, attention_chunk=attention_chunk, sink_tokens=sink_tokens, scale=scale, softcap=softcap,
                sink=sink, cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k, max_seqlen_q=max_seqlen_q, max_seqlen_k=max_seqlen_k,
                seqused_q=seqused_q, seqused_k=seqused_k, page_table=page_table, q_descale=q_descale, k_descale=k_descale,
                v_descale=v_descale, num_splits=num_splits, pack_gqa=pack_gqa, out=out, validate=validate, target=target)
    if all(x is None for x in (k_new, v_new, rotary_cos, rotary_sin, kv_batch_idx, leftpad_k)):
        return attention(q, k_cache, v_cache, return_lse=return_lse, **same)
    (aq, ak, av), _, _, _, missing = _checked(q, k_cache, v_cache, **same, cache_rows=kv_batch_idx is not None)
    place, batch = ("q", aq.place), aq.shape[0] if cu_seqlens_q is None else len(cu_seqlens_q) - 1
    if (k_new is None) != (v_new is None):
        raise ValueError(f"expected {'k_new' if k_new is None else 'v_new'} besides {'v_new' if k_new is None else 'k_new'}")
    if k_new is not None:
        if seqused_k is None:
            raise ValueError("expected seqused_k besides k_new: it says where the cache ends")
        nk, nv = (_check.operand(n, x, 4, (aq.element,), place) for n, x in (("k_new", k_new), ("v_new", v_new)))
        for new, cache in ((nk, ak), (nv, av)):
            _check.same("batch", (new.name, new.shape[0]), ("q", batch))
            _check.same("heads", (new.name, new.shape[2]), (cache.name, cache.shape[-2]))
            _check.same("head size", (new.name, new.shape[3]), (cache.name, cache.shape[-1]))
        _check.same("length", ("v_new", nv.shape[1]), ("k_new", nk.shape[1]))
    if (rotary_cos is None) != (rotary_sin is None):
        raise ValueError("expected rotary_cos and rotary_sin together")
    if rotary_cos is not None:
        if k_new is None:
            raise ValueError("expected k_new besides rotary_cos: the embedding turns q and k_new")
        cos, sin = (_check.operand(n, x, 2, (aq.element,), place) for n, x in (("rotary_cos", rotary_cos), ("rotary_sin", rotary_sin)))
        _check.same("shape", ("rotary_sin", sin.shape), ("rotary_cos", cos.shape))
        if 2 * cos.shape[1] > aq.shape[-1]:
            raise ValueError(f"expected rotary_cos to turn at most q's head size ({aq.shape[-1]}), got {2 * cos.shape[1]}")
    _check.flag("rotary_interleaved", rotary_interleaved)
    for name, x in (("kv_batch_idx", kv_batch_idx), ("leftpad_k", leftpad_k)):
        if x is not None:
            _check.row(name, x, batch, "one a sequence", place)
    given = (("appended keys and values (k_new, v_new)", k_new), ("chosen cache rows (kv_batch_idx)", kv_batch_idx), ("padding before the keys (leftpad_k)", leftpad_k))
    _refuse_missing(missing + [what for what, x in given if x is not None])


def attention_backward(do, q, k, v, o, lse, *, causal=False, window=(-1, -1), attention_chunk=0, sink_tokens=0, scale=None,
                       softcap=0.0, sink=None, cu_seqlens_q=None, cu_seqlens_k=None, max_seqlen_q=None, max_seqlen_k=None,
                       seqused_q=None, seqused_k=None, validate=None, deterministic=False, target=None):
    """Gradients dq, dk, dv (and dsink) of attention for do = dL/do; o and lse are attention's results.

    Checks its arguments as attention does; this version has no kernel for it and raises NotImplementedError.
    """
    (aq, _, av), *_ = _checked(
        q, k, v, causal, window, attention_chunk, sink_tokens, scale, softcap, sink, cu_seqlens_q, cu_seqlens_k, max_seqlen_q,
        max_seqlen_k, seqused_q, seqused_k, None, None, None, None, 0, None, None, validate, target)
    _check.flag("deterministic", deterministic)
    shape = aq.shape[:-1] + av.shape[-1:]
    for name, x in (("do", do), ("o", o)):
        if (a := _check.operand(name, x, len(shape), (aq.element,), ("q", aq.place))).shape != shape:
            raise ValueError(f"expected {name}'s shape {list(a.shape)} to be {list(shape)}")
    _check_lse("lse", lse, aq)
    raise NotImplementedError("this version has no kernel for the backward of attention")


def _check_lse(name, lse, o):
    """lse [B, H, S] (or [H, S] packed) of an o [B, S, H, Dv]."""
    shape = o.shape[:-3] + (o.shape[-2], o.shape[-3])
    if (a := _check.operand(name, lse, len(shape), ("f32",), (o.name, o.place))).shape != shape:
        raise ValueError(f"expected {name}'s shape {list(a.shape)} to be {list(shape)}")


def merge(o1, lse1, o2, lse2, *, target=None):
    """Joins attention over two disjoint sets of keys: o [B, S, H, Dv], lse f32 [B, H, S] of each.

    Checks its arguments; this version has no kernel for it and raises NotImplementedError.
    """
    a, b = _check.operand("o1", o1, 4), _check.operand("o2", o2, 4)
    _check.same("shape", ("o2", b.shape), ("o1", a.shape))
    _check.same("element type", ("o2", b.type), ("o1", a.type))
    _check_lse("lse1", lse1, a)
    _check_lse("lse2", lse2, b)
    _meets(_target(target, a, o1), a)
    raise NotImplementedError("this version has no kernel for merge; pass num_splits to attention instead")


class _Shape:
    """A shape in place of an array."""

    def __init__(self, name, shape, element):
        self.name, self.element, self.device = name, element, "cuda"
        self.shape = tuple(_check.whole(f"{name}'s size", n) for n in shape)
        self.strides = _row_major(self.shape)
        if len(self.shape) != 4:
            raise ValueError(f"expected {name} of rank 4, got rank {len(self.shape)} {list(self.shape)}")


def _problem_of(q, k, v, element, causal, window, attention_chunk, sink_tokens, softcap, sink, num_splits, pack_gqa, plan, passes, target):
    options, _, _ = _check.options(causal, window, attention_chunk, sink_tokens, None, softcap, num_splits, pack_gqa)
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
    return _problem(options, target, *arrays, sink is not None and sink is not False, arrays[0].shape[0])


def explain(q, k, v, *, element="bf16", causal=False, window=(-1, -1), attention_chunk=0, sink_tokens=0, softcap=0.0, sink=False,
            num_splits=0, pack_gqa=None, plan=None, passes=None, target=None, json=False):
    """The plan of attention on q, k, v and the reason of each decision.

    q, k, v: arrays, or shapes as attention has them (then `element` says of what: "bf16", "f16", "f32"; and target defaults to
    "sm_90a"). sink: whether there is one. plan: fields fixed by hand, as "#flash.plan<tile = [128, 128], stages = 2>". Returns
    text for people, or with json a dictionary. Raises as attention does.
    """
    problem = _problem_of(q, k, v, element, causal, window, attention_chunk, sink_tokens, softcap, sink, num_splits, pack_gqa, plan, passes, target)
    text = _call("flash_explain", problem.encode(), int(json)).decode()
    return _parse(text) if json else text


_parse = json.loads


def compile(q, k, v, *, element="bf16", causal=False, window=(-1, -1), attention_chunk=0, sink_tokens=0, softcap=0.0, sink=False,
            num_splits=0, pack_gqa=None, plan=None, passes=None, target=None, cached=True):
    """The program that attention would run: .text("mlir"), .text("ptx"), .text("plan"), .text("metadata"), .part("cubin").

    Arguments as explain's; no GPU is needed. passes: {"skip_blocks": False, ...} switches optional passes off. cached=False
    compiles anew. Raises as attention does.
    """
    problem = _problem_of(q, k, v, element, causal, window, attention_chunk, sink_tokens, softcap, sink, num_splits, pack_gqa, plan, passes, target)
    return _cache.program(problem) if cached else Program.compile(problem)
