"""Reads sm_80 to sm_90 machine code of a cubin: which local-memory accesses (spills) lie inside a loop, and what its products wait for.

Only a few opcodes are decoded, so that no disassembler is needed: stores and loads of local memory,
products of warpgroups and what moves their descriptors, and branches, whose targets give the control
flow graph and its natural loops.
"""

import bisect
import struct

_OPCODE = 0xFFF
_STORE_LOCAL, _LOAD_LOCAL = 0x387, 0x983
_BRANCH, _EXIT = 0x947, 0x94D
_PRODUCTS, _TO_UNIFORM = (0x9F0, 0xDF0), 0x2CA  # HGMMA of shared memory or registers, R2UR
_PRODUCT_OF_WARP = 0x23C  # HMMA
_INSTRUCTION = 16  # bytes
_ALWAYS = 7  # predicate PT, not negated


def _sections(data):
    """(name, offset, size) of each section of a 64-bit ELF file."""
    table, count, names = struct.unpack_from("<Q", data, 0x28)[0], *struct.unpack_from("<HH", data, 0x3C)
    rows = [struct.unpack_from("<IIQQQQ", data, table + i * 64) for i in range(count)]
    strings = rows[names][4]
    for row in rows:
        start = strings + row[0]
        yield data[start : data.index(b"\0", start)].decode(), row[4], row[5]


def _branch_target(index, low, high, architecture):
    """The instruction a branch at `index` goes to: a signed distance in units of 4 bytes, of 56 bits from sm_90 on and of 48 before."""
    bits, distance = 48, (high & 0x3FFFF) << 30 | low >> 34
    if architecture >= 90:
        bits, distance = 56, distance << 8 | low >> 16 & 0xFF
    if distance >> bits - 1:
        distance -= 1 << bits
    return index + 1 + distance * 4 // _INSTRUCTION


def _natural_loops(successors):
    """The sets of blocks of natural loops: a back edge and what reaches it from its dominating head."""
    count = len(successors)
    predecessors = [[] for _ in range(count)]
    for block, targets in enumerate(successors):
        for target in targets:
            predecessors[target].append(block)
    everything = (1 << count) - 1
    dominators = [1] + [everything] * (count - 1)
    changed = True
    while changed:
        changed = False
        for block in range(1, count):
            meet = everything
            for p in predecessors[block]:
                meet &= dominators[p]
            new = meet | 1 << block
            if new != dominators[block]:
                dominators[block], changed = new, True
    loops = []
    for block, targets in enumerate(successors):
        for head in targets:
            if not dominators[block] >> head & 1:
                continue
            loop, work = {head, block}, [block]
            while work:
                inside = work.pop()
                for p in predecessors[inside] if inside != head else []:
                    if p not in loop:
                        loop.add(p)
                        work.append(p)
            loops.append(loop)
    return loops


def _kernels(path):
    """(opcodes, first instruction of each block, blocks of each loop) of a cubin's kernels."""
    data = open(path, "rb").read()
    architecture = struct.unpack_from("<I", data, 0x30)[0] >> 8 & 0xFF
    for name, offset, size in _sections(data):
        if not name.startswith(".text."):
            continue
        code = [struct.unpack_from("<QQ", data, offset + i) for i in range(0, size, _INSTRUCTION)]
        opcodes = [low & _OPCODE for low, _ in code]
        always = [low >> 12 & 0xF == _ALWAYS for low, _ in code]
        targets = {i: _branch_target(i, *code[i], architecture) for i, op in enumerate(opcodes) if op == _BRANCH}
        starts = {0} | set(targets.values())
        starts |= {i + 1 for i, op in enumerate(opcodes) if op in (_BRANCH, _EXIT)}
        starts = sorted(s for s in starts if s < len(code))
        number = {s: i for i, s in enumerate(starts)}
        successors = []
        for i, start in enumerate(starts):
            end = starts[i + 1] if i + 1 < len(starts) else len(code)
            last = end - 1
            to = [number[targets[last]]] if last in targets else []
            falls = opcodes[last] not in (_BRANCH, _EXIT) or not always[last]
            if falls and i + 1 < len(starts):
                to.append(i + 1)
            successors.append(to)
        yield opcodes, starts, {frozenset(x) for x in _natural_loops(successors)}


def spills(path):
    """(number of local-memory accesses, loop depth of the deepest of them, stores and loads of the innermost loop of products that
    has most, where they are as deep as the products) of a cubin's kernels.

    Depth 0 is outside every loop. Polling a barrier is a loop of its own and encloses nothing.
    """
    total, deepest, among = 0, 0, (0, 0)
    for opcodes, starts, loops in _kernels(path):
        def blocks(*wanted):
            return [bisect.bisect(starts, i) - 1 for i, op in enumerate(opcodes) if op in wanted]

        def depths(blocks):
            return [sum(block in loop for loop in loops) for block in blocks]

        found, products = blocks(_STORE_LOCAL, _LOAD_LOCAL), blocks(*_PRODUCTS, _PRODUCT_OF_WARP)
        if found:
            total, deepest = total + len(found), max(deepest, *depths(found))
            multiply = [loop for loop in loops if not loop.isdisjoint(products)]
            multiply = [loop for loop in multiply if not any(other < loop for other in multiply)]
            stores, loads = blocks(_STORE_LOCAL), blocks(_LOAD_LOCAL)
            if max(depths(found)) >= max([1, *depths(products)]):
                among = max([among] + [tuple(sum(block in loop for block in some) for some in (stores, loads)) for loop in multiply])
    return total, deepest, *among


def moved_descriptors(path):
    """(products, descriptors moved to uniform registers for them) of the innermost loop with the most products.

    A descriptor or two for each product measured 0.3 to 5 %: ptxas moves them where it takes lanes of a loop to run apart.
    """
    found = (0, 0)
    for opcodes, starts, loops in _kernels(path):
        ends = starts[1:] + [len(opcodes)]
        count = lambda loop, *wanted: sum(op in wanted for b in loop for op in opcodes[starts[b] : ends[b]])
        multiply = [loop for loop in loops if count(loop, *_PRODUCTS)]
        innermost = [loop for loop in multiply if not any(other < loop for other in multiply)]
        found = max([found] + [(count(loop, *_PRODUCTS), count(loop, _TO_UNIFORM)) for loop in innermost])
    return found
