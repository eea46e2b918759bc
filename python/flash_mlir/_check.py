"""What the arguments must be. Every function raises ValueError or TypeError whose sentence names the operand and both values.

Shapes, types and lengths are judged here, where the arrays are; masks, head sizes and targets by the library, which every
other way in shares.
"""
import math
import numbers

from ._arrays import Array, is_torch, pointer, share_memory, take, values

FLOATS = ("f16", "bf16", "f32", "f8e4m3")
MOST = 3.4e38  # of f32, as which scale and softcap reach a kernel
LEAST_SCALE = 2.0**-64  # below it, hidden scores (-2^100) times scale would weigh something
MOST_CAP = 2.0**10  # c tanh(s / c) is computed in f32 to about c 2^-24
LIMIT = 2**31  # sizes are 32-bit in a kernel; offsets are not


def number(name, value):
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"expected {name} to be a number, got {type(value).__name__}")
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"expected {name} to fit a float, got one of {len(str(value))} digits") from None


def whole(name, value):
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"expected {name} to be an integer, got {type(value).__name__}")
    if not -LIMIT <= value < LIMIT:
        raise ValueError(f"expected {name} to fit 32 bits, got {value}")
    return int(value)


def bound(name, most):
    """A bound of lengths; None for None."""
    if most is not None and whole(name, most) < 0:
        raise ValueError(f"expected {name} to be 0 or more, got {most}")
    return most if most is None else int(most)


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
    if cap != 0 and not LEAST_SCALE <= cap <= MOST_CAP:
        raise ValueError(f"expected softcap to be 0 (off) or between 2^-64 and {MOST_CAP:.0f}, past which it rounds scores more than it caps them, got {cap}")
    if scale is not None:
        scale = number("scale", scale)
        if not 0 < scale < math.inf:
            raise ValueError(f"expected scale to be positive and finite, got {scale}")
        if not LEAST_SCALE <= scale <= MOST:
            raise ValueError(f"expected scale between 2^-64 and {MOST}, got {scale}")
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


def operand(name, x, rank, elements=FLOATS, place=None, why=""):
    """x as an Array of `rank` dimensions with contiguous rows. why: what else to say of another rank."""
    a = Array(name, take(name, x))
    if len(a.shape) != rank:
        raise ValueError(f"expected {name} of rank {rank}, got rank {len(a.shape)} {list(a.shape)}{why}")
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


def tensors(q, k, v, packed_q=False, packed_k=False, chosen=None):
    """q, k, v as Arrays that fit each other. chosen: what counts dimension 0 of k and v where that is not the batch."""
    def said(table, packed):
        return f": with {table} sequences lie one after the other" if packed else "" if chosen else f"; sequences one after the other come with {table}"

    q = operand("q", q, 3 if packed_q else 4, why=said("cu_seqlens_q", packed_q))
    rest = dict(place=("q", q.place), why=said("cu_seqlens_k", packed_k))
    rank = 3 if packed_k else 4
    k, v = operand("k", k, rank, **rest), operand("v", v, rank, **rest)
    return fit(q, k, v, chosen)


def fit(q, k, v, chosen=None):
    """Three Arrays (or shapes) whose sizes must agree."""
    rank = len(k.shape)
    for a in (k, v):
        if a.element != q.element:
            raise TypeError(f"expected {a.name}'s element type ({a.element}) to equal q's ({q.element})")
    same("head size", ("k", k.shape[-1]), ("q", q.shape[-1]))
    same("heads", ("v", v.shape[-2]), ("k", k.shape[-2]))
    for at, what in enumerate((chosen or "batch", "length") if rank == 4 else ("length",)):
        same(what, ("v", v.shape[at]), ("k", k.shape[at]))
    if len(q.shape) == rank == 4 and not chosen:
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


def writable(name, x):
    if getattr(getattr(x, "flags", None), "writeable", True) is False:
        raise ValueError(f"expected {name} to be writable, it is read-only")


def caches(k, v, given):
    """k and v, which k_new and v_new of `given` are written into."""
    writable("k", k)
    writable("v", v)
    differ = "rotary_cos" in given or pointer(given["k_new"]) != pointer(given["v_new"])
    if differ and pointer(k) == pointer(v) and 0 not in k.shape and given["k_new"].shape[1]:
        raise ValueError("expected k and v to have memory of their own where k_new and v_new are written into them, they begin at one address")


def alike(**arrays):
    """All of NumPy, or all of PyTorch."""
    if len({is_torch(x) for x in arrays.values()}) > 1:
        raise TypeError(f"expected {', '.join(arrays)} all to be NumPy arrays or all PyTorch tensors, got both")


def output(name, x, like, shape):
    a = operand(name, x, len(shape), (like.element if like.element != "f8e4m3" else "bf16",), ("q", like.place))
    if a.shape != tuple(shape):
        raise ValueError(f"expected {name}'s shape {list(a.shape)} to be {list(shape)}")
    if 0 not in a.shape and lies_on_itself(a):
        raise ValueError(f"expected {name}'s elements to lie apart, got strides {list(a.strides)}")
    writable(name, x)
    return a


def lies_on_itself(a):
    """Whether elements of an array may share memory: sorted by stride, a dimension begins within those before it."""
    end = 1
    for n, s in sorted(((n, abs(s)) for n, s in zip(a.shape, a.strides) if n > 1), key=lambda each: each[1]):
        if s < end:
            return True
        end = s * (n - 1) + end
    return False


def apart(name, x, others):
    """`x` is written while the others (name, array) are read."""
    for other, y in others:
        if share_memory(x, y):
            raise ValueError(f"expected {name} to have memory of its own, it shares some with {other}; leave {name} out, or pass another array")


# Operands beside q, k, v and sink, in the order of the library's names.
TABLES = ("cu_seqlens_q", "cu_seqlens_k", "seqused_q", "seqused_k", "page_table", "kv_batch_idx", "leftpad_k")


def tables(q, k, given, cached):
    """Shapes and types of the tables among `given` (name -> array), which may be any of TABLES; returns the batch size.

    cached: k and v are a cache, so that q alone may be packed."""
    place, counts = ("q", q.place), {}
    for name in ("cu_seqlens_q", "cu_seqlens_k"):
        if name in given:
            a = operand(name, given[name], 1, ("i32",), place)
            if a.shape[0] < 1:
                raise ValueError(f"expected {name} to have batch + 1 elements, got 0")
            counts[name] = a.shape[0] - 1
    if len(set(counts.values())) > 1 and "kv_batch_idx" not in given:
        raise ValueError(f"expected cu_seqlens_k's length ({counts['cu_seqlens_k'] + 1}) to equal cu_seqlens_q's ({counts['cu_seqlens_q'] + 1})")
    paged = "page_table" in given
    if "cu_seqlens_k" in given and paged:
        raise ValueError("expected cu_seqlens_k or page_table, got both: the lengths of pages are seqused_k")
    if not paged and ("cu_seqlens_q" in given) != ("cu_seqlens_k" in given) and not (cached and "cu_seqlens_q" in given):
        has, lacks = ("cu_seqlens_q", "cu_seqlens_k") if "cu_seqlens_q" in given else ("cu_seqlens_k", "cu_seqlens_q")
        raise ValueError(f"expected {lacks} besides {has}")
    if paged and "seqused_k" not in given:
        raise ValueError("expected seqused_k besides page_table: it says how many rows of the pages count")
    batch = counts.get("cu_seqlens_q", q.shape[0])
    if "cu_seqlens_k" not in given and not paged and "kv_batch_idx" not in given:
        same("batch", ("k", k.shape[0]), ("q", batch))
    if paged:
        table = operand("page_table", given["page_table"], 2, ("i32",), place)
        if "kv_batch_idx" not in given:
            same("batch", ("page_table", table.shape[0]), ("q", batch))
        if k.shape[1] < 1:
            raise ValueError("expected pages of at least 1 row, got 0")
    for name in ("seqused_q", "seqused_k", "kv_batch_idx", "leftpad_k"):
        if name in given:
            row(name, given[name], batch, "one a sequence", place)
    return batch


def fresh(q, k, v, batch, given):
    """k_new, v_new, rotary_cos and rotary_sin among `given`; k and v are the caches, as Arrays."""
    for a, b in (("k_new", "v_new"), ("v_new", "k_new"), ("rotary_cos", "rotary_sin"), ("rotary_sin", "rotary_cos")):
        if a in given and b not in given:
            raise ValueError(f"expected {b} besides {a}")
    if "rotary_cos" in given and "k_new" not in given:
        raise ValueError("expected k_new besides rotary_cos: the embedding turns q and k_new")
    if "k_new" not in given:
        return
    if "seqused_k" not in given:
        raise ValueError("expected seqused_k besides k_new: it says where the cache ends")
    if "cu_seqlens_k" in given:
        raise ValueError("expected a cache of rows or pages besides k_new, packed keys have no room behind them")
    for cache in (k, v):
        if 0 not in cache.shape and lies_on_itself(cache):
            raise ValueError(f"expected {cache.name}'s elements to lie apart where k_new and v_new are written into them, got strides {list(cache.strides)}")
    place = ("q", q.place)
    new_k, new_v = (operand(n, given[n], 4, (q.element,), place) for n in ("k_new", "v_new"))
    for new, cache in ((new_k, k), (new_v, v)):
        same("batch", (new.name, new.shape[0]), ("q", batch))
        same("heads", (new.name, new.shape[2]), (cache.name, cache.shape[-2]))
        same("head size", (new.name, new.shape[3]), (cache.name, cache.shape[-1]))
    same("length", ("v_new", new_v.shape[1]), ("k_new", new_k.shape[1]))
    if "rotary_cos" in given:
        cos, sin = (operand(n, given[n], 2, (q.element,), place) for n in ("rotary_cos", "rotary_sin"))
        same("shape", ("rotary_sin", sin.shape), ("rotary_cos", cos.shape))
        if 2 * cos.shape[1] > q.shape[-1]:
            raise ValueError(f"expected rotary_cos to turn at most q's head size ({q.shape[-1]}), got {2 * cos.shape[1]}")


def contents(q, k, given, max_q, max_k, turns_by_query):
    """What stands in the tables: reads them, so on a device it waits. q, k and `given` are the caller's arrays."""
    table = {name: values(x) for name, x in given.items() if name in TABLES}
    ends = lambda name: list(zip(table[name], table[name][1:]))
    for name, rows in (("cu_seqlens_q", q.shape[0]), ("cu_seqlens_k", k.shape[0])):
        if name not in table:
            continue
        if table[name][0] != 0:
            raise ValueError(f"expected {name} to start at 0, got {table[name][0]}")
        for before, after in ends(name):
            if after < before:
                raise ValueError(f"expected {name} never to fall, got {after} after {before}")
        if table[name][-1] > rows:
            raise ValueError(f"expected {name}'s last element ({table[name][-1]}) to be at most {name[-1]}'s rows ({rows})")
    batch = len(table["cu_seqlens_q"]) - 1 if "cu_seqlens_q" in table else q.shape[0]
    sequences = table.get("kv_batch_idx", range(batch))
    size = k.shape[1] if "page_table" in table else None
    if "cu_seqlens_k" in table:
        lengths_k = [b - a for a, b in ends("cu_seqlens_k")]
    elif size:
        lengths_k = [size * len(row) for row in table["page_table"]]
    else:
        lengths_k = [k.shape[1]] * k.shape[0]
    for one in sequences:
        if not 0 <= one < len(lengths_k):
            raise ValueError(f"expected kv_batch_idx between 0 and the last of {len(lengths_k)} sequences, got {one}")
    lengths_q = [b - a for a, b in ends("cu_seqlens_q")] if "cu_seqlens_q" in table else [q.shape[1]] * batch
    rooms = [lengths_k[one] for one in sequences]
    for name, room in (("seqused_q", lengths_q), ("seqused_k", rooms)):
        for used, most in zip(table.get(name, ()), room):
            if not 0 <= used <= most:
                raise ValueError(f"expected {name} between 0 and its sequence's rows ({most}), got {used}")
    used_q, used_k = table.get("seqused_q", lengths_q), table.get("seqused_k", rooms)
    for name, most, used in (("max_seqlen_q", max_q, used_q), ("max_seqlen_k", max_k, used_k)):
        if most is not None and max(used, default=0) > most:
            raise ValueError(f"expected {name} to bound every sequence, got {most} for {max(used)} rows")
    for pad, used in zip(table.get("leftpad_k", ()), used_k):
        if not 0 <= pad <= used:
            raise ValueError(f"expected leftpad_k between 0 and its sequence's keys ({used}), got {pad}")
    new = given["k_new"].shape[1] if "k_new" in given else 0
    for used, room, turned in zip(used_k, rooms, used_q):
        if used + new > room:
            raise ValueError(f"expected room for k_new's {new} rows behind seqused_k ({used}), the cache has {room}")
        if "rotary_cos" in given:
            last, positions = used + max(new, turned if turns_by_query else min(turned, 1)), given["rotary_cos"].shape[0]
            if last > positions:
                raise ValueError(f"expected rotary_cos of at least {last} positions, got {positions}")
    if new and not size and len(set(map(int, sequences))) < len(sequences):
        raise ValueError("expected kv_batch_idx to name each row of the cache at most once where k_new is written into it")
    written = set()
    for one, used in zip(sequences, used_k) if size else ():
        pages = table["page_table"][one][: -(-(used + new) // size)]
        for page in pages:
            if not 0 <= page < k.shape[0]:
                raise ValueError(f"expected page_table to name pages 0 to {k.shape[0] - 1}, got {page}")
        into = set(pages[used // size :]) if new else set()
        if into & written:
            raise ValueError("expected page_table to name a page that k_new is written into for one sequence only")
        written |= into
