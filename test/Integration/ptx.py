"""Runs a block of an sm_80 kernel from its PTX, without a GPU: what the kernels here use of the language, on NumPy.

Made to find what a GPU shows now and then: between barriers the warps run one after the other in random order; cp.async fills its
bytes with ones when it is issued and brings the data at the wait for its group; to read such bytes, to copy to where
a copy is under way, or to go outside the arrays, is an error.
A warp runs the lowest program counter of its threads first, which lets branches of structured code join again.
"""
import random
import re

import numpy as np

U32, U64, F32 = np.uint32, np.uint64, np.float32
LANES = np.arange(32)
ROW, COLUMN = LANES // 4, LANES % 4 * 2  # of a cell of a matrix product
COMPARISONS = dict(gt=np.greater, lt=np.less, ge=np.greater_equal, le=np.less_equal, eq=np.equal, ne=np.not_equal, na=lambda x, y: np.isnan(x) | np.isnan(y))
ON_FLOATS = dict(add=np.add, sub=np.subtract, mul=np.multiply, div=np.divide, max=np.fmax, min=np.fmin)
ON_INTEGERS = dict(add=np.add, sub=np.subtract, mul=np.multiply, max=np.maximum, min=np.minimum, xor=np.bitwise_xor)
ON_INTEGERS |= {"and": np.bitwise_and, "or": np.bitwise_or}
OPERAND = re.compile(r"\s*(\{[^}]*\}|\[[^\]]*\]|[^,]+)")


def signed(x):
    return x.view(np.int64 if x.dtype == U64 else np.int32)


def bf16(x):
    bits = x.view(U32).astype(U64)
    return np.where(np.isnan(x), U64(0x7FFF), bits + U64(0x7FFF) + (bits >> U64(16) & U64(1)) >> U64(16)).astype(U32)


def words(braces):
    return [x.strip() for x in braces.strip("{}").split(",")]


class Kernel:
    """The instructions of the kernel `name` of a PTX text, and the names of its parameters."""

    def __init__(self, text, name):
        head, _, body = text.split(f".entry {name}(")[1].split(".entry")[0].partition("{")
        self.parameters = re.findall(r"\.param [^\n]*?(\w+_param_\d+)", head)
        self.code, self.labels, open_line = [], {}, ""
        for line in body.split("\n"):
            line = (open_line + " " + line.split("//")[0]).strip()
            open_line = ""
            if line.startswith("$") and line.endswith(":"):
                self.labels[line[:-1]] = len(self.code)
            elif line.endswith(";") and not line.startswith("."):
                self.code.append(line[:-1])
            elif line not in ("", "{", "}") and not line.startswith("."):
                open_line = line


class Memory:
    """Arrays at addresses of their own."""

    def __init__(self):
        self.arrays, self.next = [], 1 << 32

    def add(self, array):
        self.arrays.append((self.next, array.view(np.uint8).reshape(-1)))
        self.next += array.nbytes + 4096 & ~255
        return self.arrays[-1][0]

    def at(self, address, size):
        for base, data in self.arrays:
            if base <= address <= base + len(data) - size:
                return data[address - base : address - base + size]
        raise IndexError(f"{size} bytes at {address:#x} are outside all arrays")


class Warp:
    def __init__(self, block, number):
        self.block, self.number = block, number
        self.registers, self.counters = {}, np.zeros(32, np.int64)
        self.groups, self.open = [], []

    def run(self):
        """To the next barrier: what it is, and for a reduction its predicate and where the result goes. Lanes that come to what all do
        together wait for the others there."""
        kernel, waiting = self.block.kernel, np.zeros(32, bool)
        while (counter := int(np.where(waiting, len(kernel.code), self.counters).min())) < len(kernel.code) or waiting.any():
            if counter == len(kernel.code):
                counter, waiting = int(self.counters[waiting][0]), np.zeros(32, bool)
                assert (self.counters == counter).all(), "a barrier in divergent code"
            self.active = (self.counters == counter) & ~waiting
            guard, line = None, kernel.code[counter]
            if line[0] == "@":
                guard, line = line.split(None, 1)
            name, _, rest = line.replace("\t", " ").partition(" ")
            parts, operands = name.split("."), [x for x in map(str.strip, OPERAND.findall(rest)) if x]
            if ("sync" in parts or parts[0] in ("bar", "barrier")) and not self.active.all():
                waiting |= self.active
                continue
            self.counters[self.active] += 1
            if guard:
                holds = self.registers[guard.lstrip("@!")]
                self.active = self.active & (~holds if guard[1] == "!" else holds)
            if parts[0] == "bra":
                self.counters[self.active] = kernel.labels[operands[0]]
            elif parts[0] == "ret":
                self.counters[self.active] = len(kernel.code)
            elif parts[0] in ("bar", "barrier") and parts[1] != "warp":
                return (name, counter, self.value(operands[-1], "pred") if "red" in parts else None, operands[0])
            else:
                getattr(self, "do_" + parts[0])(parts, operands)
        return ("ret", 0, None, None)

    def value(self, operand, type):
        special = dict(tid=LANES + 32 * self.number, ctaid=self.block.number, nctaid=self.block.blocks)
        if operand[1:].split(".")[0] in special:
            return np.broadcast_to(U32(special[operand[1:].split(".")[0]]), 32)
        if operand in self.registers:
            return self.registers[operand]
        if operand == "flash_shared":
            return np.zeros(32, U64)
        number = int(operand[2:], 16) if operand.startswith("0f") else int(operand, 0)
        if type == "pred":
            return np.full(32, number != 0)
        return np.full(32, number & 0xFFFFFFFFFFFFFFFF, U64) if type.endswith("64") else np.full(32, number & 0xFFFFFFFF, U32)

    def put(self, register, value):
        before = self.registers.get(register)
        if not self.active.all() and before is not None and before.dtype == value.dtype:
            value = np.where(self.active, value, before)
        self.registers[register] = value

    def address(self, operand, type="b64"):
        base, _, offset = operand.strip("[]").partition("+")
        return self.value(base, type).astype(np.int64) + int(offset or 0)

    # ---- memory ----------------------------------------------------------------------------------------------------------------

    def at(self, parts, address, size):
        if "shared" not in parts:
            return self.block.memory.at(address, size)
        assert 0 <= address <= len(self.block.shared) - size, "outside shared memory"
        return self.block.shared[address : address + size]

    def do_ld(self, parts, a):
        if parts[1] == "param":
            value = self.block.arguments[a[1].strip("[]")]
            self.put(a[0], np.full(32, value, U64 if "64" in parts[-1] else U32))
            return
        address, size = self.address(a[1]), int(parts[-1][1:]) // 8
        for i, register in enumerate(words(a[0])):
            result = np.zeros(32, U32)
            for lane in np.nonzero(self.active)[0]:
                result[lane] = self.at(parts, int(address[lane]) + size * i, size).view(U32 if size == 4 else np.uint16)[0]
            assert "shared" not in parts or (result[self.active] != 0xFFFFFFFF).all(), "a read of what has not been copied yet"
            self.put(register, result)

    def do_st(self, parts, a):
        address = self.address(a[0])
        for i, register in enumerate(words(a[1])):
            value = self.value(register, parts[-1])
            for lane in np.nonzero(self.active)[0]:
                self.at(parts, int(address[lane]) + i * value.itemsize, value.itemsize)[:] = value[lane : lane + 1].view(np.uint8)

    def do_red(self, parts, a):
        address, value = self.address(a[0]), self.value(a[1], parts[-1]).view(F32 if parts[-1] == "f32" else U32)
        for lane in np.nonzero(self.active)[0]:
            place = self.block.memory.at(int(address[lane]), 4).view(value.dtype)
            place[0] += value[lane]

    def do_cp(self, parts, a):
        if parts[2] == "commit_group":
            self.groups.append(self.open)
            self.open = []
        elif parts[2] == "wait_group":
            while len(self.groups) > int(a[0]):
                for to, data in self.groups.pop(0):
                    self.block.shared[to : to + len(data)] = data
                    self.block.flying.discard(to)
        else:
            to, source, size = self.address(a[0], "b32"), self.address(a[1]), self.value(a[3], "b32")
            piece = int(a[2])
            for lane in np.nonzero(self.active)[0]:
                data = self.block.memory.at(int(source[lane]), piece).copy() if size[lane] else np.zeros(piece, np.uint8)
                assert to[lane] % piece == 0 and 0 <= to[lane] <= len(self.block.shared) - piece, "a copy outside shared memory"
                assert to[lane] not in self.block.flying, "two copies under way to one place"
                self.block.shared[to[lane] : to[lane] + piece] = 0xFF
                self.block.flying.add(int(to[lane]))
                self.open.append((int(to[lane]), data))

    def do_ldmatrix(self, parts, a):
        address = self.address(a[1], "b32")
        assert self.active.all() and address.max() <= len(self.block.shared) - 16
        matrices = self.block.shared[address[:, None] + np.arange(16)].view(np.uint16).reshape(4, 8, 8)
        assert not (matrices == 0xFFFF).all(axis=2).any(), "a read of what has not been copied yet, or no more"
        for eight in (address // 16 % 8).reshape(4, 8):
            assert len(set(eight)) == 8, "rows of a matrix in one bank"
        for register, matrix in zip(words(a[0]), matrices.transpose(0, 2, 1) if "trans" in parts else matrices):
            self.put(register, matrix[ROW, COLUMN] | matrix[ROW, COLUMN + 1].astype(U32) << U32(16))

    # ---- between lanes ---------------------------------------------------------------------------------------------------------

    def do_mma(self, parts, operands):
        assert self.active.all()
        d, a, b, c = map(words, operands)

        def halves(register):
            x = self.value(register, "b32")
            if "bf16" in parts:
                return (x << U32(16)).view(F32), (x & U32(0xFFFF0000)).view(F32)
            return x.view(np.float16).reshape(32, 2).T.astype(F32)

        left, right, sum = np.zeros((16, 16), F32), np.zeros((16, 8), F32), np.zeros((16, 8), F32)
        for i, register in enumerate(a):
            for j, half in enumerate(halves(register)):
                left[ROW + i % 2 * 8, COLUMN + i // 2 * 8 + j] = half
        for i, register in enumerate(b):
            for j, half in enumerate(halves(register)):
                right[COLUMN + i * 8 + j, ROW] = half
        for i, register in enumerate(c):
            sum[ROW + i // 2 * 8, COLUMN + i % 2] = self.value(register, "f32").view(F32)
        sum += left @ right
        for i, register in enumerate(d):
            self.put(register, sum[ROW + i // 2 * 8, COLUMN + i % 2].view(U32))

    def do_shfl(self, parts, a):
        other = self.value(a[2], "b32").astype(np.int64)
        self.put(a[0], self.value(a[1], "b32")[LANES ^ other if "bfly" in parts else other])

    def do_vote(self, parts, a):
        self.put(a[0], np.full(32, bool((self.value(a[1], "pred") & self.active).any())))

    def do_bar(self, parts, a):  # of a warp
        assert self.active.all()

    # ---- arithmetic ------------------------------------------------------------------------------------------------------------

    def do_mov(self, parts, a):
        self.put(a[0], self.value(a[1], parts[-1]))

    def do_selp(self, parts, a):
        self.put(a[0], np.where(self.registers[a[3]], self.value(a[1], parts[-1]), self.value(a[2], parts[-1])))

    def do_setp(self, parts, a):
        x, y = (self.value(operand, parts[-1]) for operand in a[1:3])
        unordered = False
        if parts[-1] == "f32":
            x, y = x.view(F32), y.view(F32)
            unordered = np.isnan(x) | np.isnan(y) if parts[1][-1] == "u" and len(parts[1]) == 3 else False
        elif parts[-1][0] == "s":
            x, y = signed(x), signed(y)
        self.put(a[0], COMPARISONS[parts[1][:2]](x, y) | unordered)

    def do_cvt(self, parts, a):
        if "x2" in parts[-2]:
            high, low = (self.value(x, "f32").view(F32) for x in a[1:3])
            if parts[-2] == "f16x2":
                high, low = (x.astype(np.float16).view(np.uint16).astype(U32) for x in (high, low))
            else:
                high, low = map(bf16, (high, low))
            self.put(a[0], high << U32(16) | low)
            return
        x = self.value(a[1], parts[-1])
        if parts[-1] in ("bf16", "f16"):
            self.put(a[0], x << U32(16) if parts[-1] == "bf16" else x.astype(np.uint16).view(np.float16).astype(F32).view(U32))
            return
        wide = U64 if "64" in parts[-2] else U32
        self.put(a[0], signed(x).astype(signed(np.zeros(1, wide)).dtype).view(wide) if parts[-1][0] == "s" else x.astype(wide))

    def arithmetic(self, parts, a):
        name, type = parts[0], parts[-1]
        values = [self.value(x, type) for x in a[1:]]
        if type == "f32":
            x = [value.view(F32) for value in values]
            if name == "fma":
                result = x[0].astype(np.float64) * x[1] + x[2]
            elif name in ON_FLOATS:
                result = (ON_INTEGERS if "NaN" in parts else ON_FLOATS)[name](*x)  # NumPy's maximum keeps NaN, its fmax does not
            else:
                result = dict(ex2=np.exp2, lg2=np.log2, rcp=np.reciprocal, neg=np.negative, abs=np.abs)[name](x[0])
            return np.asarray(result, F32).view(U32)
        x, y = values[0], values[1] if len(values) > 1 else None
        if name == "mul" and parts[1:] == ["wide", "u16"]:
            return (x & U32(0xFFFF)) * (y & U32(0xFFFF))
        if name in ("mul", "mad") and parts[1] == "wide":
            product = signed(x).astype(np.int64) * signed(y) if type[0] == "s" else (x.astype(U64) * y).view(np.int64)
            return product.view(U64) + (self.value(a[3], "b64") if name == "mad" else U64(0))
        if name == "mul" and parts[1] == "hi":
            return (x.astype(U64) * y >> U64(16 if "16" in type else 32)).astype(U32)
        if name in ("shl", "shr"):
            bits, by = 8 * x.itemsize, self.value(a[2], "b32").astype(x.dtype)
            if name == "shr" and type[0] == "s":
                return (signed(x) >> signed(np.minimum(by, x.dtype.type(bits - 1)))).view(x.dtype)
            return np.where(by < bits, x << by if name == "shl" else x >> by, x.dtype.type(0))
        if name == "bfe":
            return x >> U32(int(a[2])) & U32((1 << int(a[3])) - 1)
        if name in ("div", "rem"):
            return (x // np.maximum(y, 1) if name == "div" else x % np.maximum(y, 1)).astype(x.dtype)
        if name == "mad":
            return x * y + values[2]
        if name in ("neg", "not"):
            return (-signed(x)).view(x.dtype) if name == "neg" else ~x
        if type[0] == "s" and name in ("min", "max"):
            return ON_INTEGERS[name](signed(x), signed(y)).view(x.dtype)
        return ON_INTEGERS[name](x, y)


for _name in "add sub mul mad fma max min neg abs div rem and or xor not shl shr bfe ex2 lg2 rcp".split():
    setattr(Warp, "do_" + _name, lambda self, parts, a: self.put(a[0], self.arithmetic(parts, a)))


class Block:
    """Block `number` of `blocks`. arguments: integers, floats as their bits."""

    def __init__(self, kernel, arguments, memory, threads, shared_bytes, number, blocks):
        self.kernel, self.arguments, self.memory = kernel, dict(zip(kernel.parameters, arguments)), memory
        self.shared, self.number, self.blocks = np.full(shared_bytes, 0xFF, np.uint8), number, blocks
        self.flying = set()  # where copies under way go to: nothing orders them but a wait (PTX ISA, "cp.async")
        self.warps, self.random = [Warp(self, w) for w in range(threads // 32)], random.Random(number)

    def run(self):
        while True:
            order = self.random.sample(self.warps, len(self.warps))
            with np.errstate(all="ignore"):
                stops = {warp: warp.run() for warp in order}
            assert len({stop[:2] for stop in stops.values()}) == 1, "warps meet at different barriers"
            name, _, predicate, register = stops[order[0]]
            if name == "ret":
                return
            if predicate is not None:
                some = any(stop[2].any() for stop in stops.values())
                for warp in order:
                    warp.registers[register] = np.full(32, some)
