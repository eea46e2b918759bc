"""What the arguments must be. Every function raises ValueError or TypeError whose sentence names the operand and both values.

Shapes, types and lengths are judged here, where the arrays are; masks, head sizes and targets by the library, which every
other way in shares.
"""
import math
import numbers

from ._arrays import Array, take, values

FLOATS = ("f16", "bf16", "f32", "f8e4m3")
LIMIT = 2**31  # sizes are 32-bit in a kernel; offsets are not


def number(name, value):
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"expected {name} to be a number, got {type(value).__name__}")
    return float(value)


def whole(name, value):
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"expected {name} to be an integer, got {type(value).__name__}")
    if not -LIMIT <= value < LIMIT:
        raise ValueError(f"expected {name} to fit 32 bits, got {value}")
    return int(value)


def flag(name, value):
    if not isinstance(value, (bool, numbers.Integral)) and type(value).__name__ not in ("bool", "bool_"):
        raise TypeError(f"expected {name} to be True or False, got {type(value).__name__}")
    return bool(value)


def options(causal, window, attention_chunk, sink_tokens, scale, softcap, num_splits, pack_gqa):
    """The scalar arguments as the library's problem has them, and softcap and scale (None: the default)."""
    try:
        left, right = window
    except (TypeError, ValueError):
        raise TypeError(f"expected window to be a pair (left, right), got {window!r}") from None
    cap = number("softcap", softcap)
    if not 0 <= cap < math.inf:
        raise ValueError(f"expected softcap to be 0 (off) or positive and finite, got {cap}")
    if scale is not None:
        scale = number("scale", scale)
        if not 0 < scale < math.inf:
            raise ValueError(f"expected scale to be positive and finite, got {scale}")
    splits = whole("num_splits", num_splits)
    if splits < 0:
        raise ValueError(f"expected num_splits to be 0 (the planner's choice) or more, got {splits}")
    problem = dict(
        causal=flag("causal", causal),
        window=[whole("window's left side", left), whole("window's right side", right)],
        chunk=whole("attention_chunk", attention_chunk),
        sink_tokens=whole("sink_tokens", sink_tokens),
        softcap=cap > 0,
        num_splits=splits,
    )
    if pack_gqa is not None:
        problem["pack_gqa"] = flag("pack_gqa", pack_gqa)
    return problem, scale, cap


def same(what, a, b):
    """a and b are (name, value) of one quantity."""
    if a[1] != b[1]:
        raise ValueError(f"expected {a[0]}'s {what} ({a[1]}) to equal {b[0]}'s ({b[1]})")


def operand(name, x, rank, elements=FLOATS, place=None):
    """x as an Array of `rank` dimensions with contiguous rows."""
    a = Array(name, take(name, x))
    if len(a.shape) != rank:
        raise ValueError(f"expected {name} of rank {rank}, got rank {len(a.shape)} {list(a.shape)}")
    if a.element not in elements:
        kinds = ", ".join("int32" if e == "i32" else e for e in elements)
        raise TypeError(f"expected {name}'s element type to be {kinds}, got {a.type}")
    if any(n >= LIMIT for n in a.shape):
        raise ValueError(f"expected {name}'s sizes below {LIMIT}, got {list(a.shape)}")
    if rank and a.shape[-1] > 1 and a.strides[-1] != 1 and 0 not in a.shape:
        raise ValueError(f"expected {name}'s last dimension to be contiguous, got stride {a.strides[-1]}")
    if place is not None and a.place != place[1]:
        raise ValueError(f"expected {name} on {place[0]}'s device ({place[1]}), got {a.place}")
    return a


def tensors(q, k, v, packed_q=False, packed_k=False, paged=False):
    """q, k, v as Arrays that fit each other."""
    q = operand("q", q, 3 if packed_q else 4)
    place = ("q", q.place)
    rank = 3 if packed_k and not paged else 4
    k, v = operand("k", k, rank, place=place), operand("v", v, rank, place=place)
    return fit(q, k, v, paged)


def fit(q, k, v, paged=False):
    """Three Arrays (or shapes) whose sizes must agree."""
    rank = len(k.shape)
    for a in (k, v):
        if a.element != q.element:
            raise TypeError(f"expected {a.name}'s element type ({a.element}) to equal q's ({q.element})")
    same("head size", ("k", k.shape[-1]), ("q", q.shape[-1]))
    same("heads", ("v", v.shape[-2]), ("k", k.shape[-2]))
    for at, what in enumerate(("batch", "length") if rank == 4 else ("length",)):
        same("pages" if paged and not at else what, ("v", v.shape[at]), ("k", k.shape[at]))
    if len(q.shape) == rank == 4 and not paged:
        same("batch", ("k", k.shape[0]), ("q", q.shape[0]))
    heads, kv_heads = q.shape[-2], k.shape[-2]
    if kv_heads == 0:
        raise ValueError("expected k and v of at least one head, got 0")
    if heads % kv_heads:
        raise ValueError(f"expected q's heads ({heads}) to be a multiple of k's and v's ({kv_heads})")
    return q, k, v


def row(name, x, length, what, place, elements=("i32",)):
    """A vector of `length`."""
    a = operand(name, x, 1, elements, place)
    if a.shape[0] != length:
        raise ValueError(f"expected {name} to have {length} elements ({what}), got {a.shape[0]}")
    return a


def output(name, x, like, shape):
    a = operand(name, x, len(shape), (like.element if like.element != "f8e4m3" else "bf16",), ("q", like.place))
    if a.shape != tuple(shape):
        raise ValueError(f"expected {name}'s shape {list(a.shape)} to be {list(shape)}")
    if 0 not in a.shape and any(n > 1 and s == 0 for n, s in zip(a.shape, a.strides)):
        raise ValueError(f"expected {name}'s elements to lie apart, got strides {list(a.strides)}")
    if getattr(getattr(x, "flags", None), "writeable", True) is False:
        raise ValueError(f"expected {name} to be writable, it is read-only")
    return a


def lengths(q, k, cu_q, cu_k, used_q, used_k, page_table, validate):
    """Packed lengths, lengths in use and pages; returns the batch size."""
    place, counts = ("q", q.place), {}
    for name, x, packed in (("cu_seqlens_q", cu_q, q), ("cu_seqlens_k", cu_k, k)):
        if x is None:
            continue
        a = operand(name, x, 1, ("i32",), place)
        if a.shape[0] < 1:
            raise ValueError(f"expected {name} to have batch + 1 elements, got 0")
        counts[name] = a.shape[0] - 1
        if validate:
            ends = values(x)
            if ends[0] != 0:
                raise ValueError(f"expected {name} to start at 0, got {ends[0]}")
            for before, after in zip(ends, ends[1:]):
                if after < before:
                    raise ValueError(f"expected {name} never to fall, got {after} after {before}")
            if ends[-1] > packed.shape[0]:
                raise ValueError(f"expected {name}'s last element ({ends[-1]}) to be at most {packed.name}'s rows ({packed.shape[0]})")
    if len(set(counts.values())) > 1:
        raise ValueError(f"expected cu_seqlens_k's length ({counts['cu_seqlens_k'] + 1}) to equal cu_seqlens_q's ({counts['cu_seqlens_q'] + 1})")
    if cu_k is not None and page_table is not None:
        raise ValueError("expected cu_seqlens_k or page_table, got both: the lengths of pages are seqused_k")
    if page_table is None and (cu_q is None) != (cu_k is None):
        given, missing = ("cu_seqlens_q", "cu_seqlens_k") if cu_k is None else ("cu_seqlens_k", "cu_seqlens_q")
        raise ValueError(f"expected {missing} besides {given}")
    if page_table is not None and used_k is None:
        raise ValueError("expected seqused_k besides page_table: it says how many rows of the pages count")
    batch = next(iter(counts.values()), q.shape[0])
    if page_table is not None:
        table = operand("page_table", page_table, 2, ("i32",), place)
        same("batch", ("page_table", table.shape[0]), ("q", batch))
    for name, x, whole_rows, packed in (("seqused_q", used_q, q, cu_q), ("seqused_k", used_k, k, cu_k)):
        if x is None:
            continue
        row(name, x, batch, "one a sequence", place)
        if not validate:
            continue
        if name == "seqused_k" and page_table is not None:
            room = [table.shape[1] * k.shape[1]] * batch
        elif packed is not None:
            ends = values(packed)
            room = [b - a for a, b in zip(ends, ends[1:])]
        else:
            room = [whole_rows.shape[1]] * batch
        for used, most in zip(values(x), room):
            if not 0 <= used <= most:
                raise ValueError(f"expected {name} between 0 and its sequence's rows ({most}), got {used}")
    return batch
