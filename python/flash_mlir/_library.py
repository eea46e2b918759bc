"""libflashc.so through ctypes: structures, errors and programs. Nothing here looks at an array."""
import ctypes
import functools
import gzip
import importlib.util
import json
import os
import pathlib
import shutil
import tempfile
import warnings

MAX_RANK = 5


class Bytes(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("size", ctypes.c_size_t)]


class Tensor(ctypes.Structure):
    """FlashTensor: sizes and strides in elements."""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("data", ctypes.c_void_p),
        ("rank", ctypes.c_int64),
        ("size", ctypes.c_int64 * MAX_RANK),
        ("stride", ctypes.c_int64 * MAX_RANK),
    ]


class Scalars(ctypes.Structure):
    _fields_ = [("scale", ctypes.c_float), ("softcap", ctypes.c_float), ("max_seqlen_q", ctypes.c_int64), ("max_seqlen_k", ctypes.c_int64)]


# FlashStatus of Flash.h, by number.
ERRORS = {1: ValueError, 2: NotImplementedError, 3: RuntimeError}


def cache_folder():
    """Where kernels and the unpacked library are kept between processes."""
    named = os.environ.get("FLASH_CACHE_DIR")
    if named:
        return pathlib.Path(named)
    base = os.environ.get("XDG_CACHE_HOME")
    return (pathlib.Path(base) if base else pathlib.Path.home() / ".cache") / "flash_mlir"


def store(path, write):
    """Lets `write(file)` fill a file beside `path` and renames it, so that readers see all of it or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, part = tempfile.mkstemp(dir=path.parent, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as f:
            write(f)
        os.replace(part, path)
    except BaseException:
        os.unlink(part)
        raise


def _unpacked(packed):
    """The library of a bundle, unpacked once. gzip ends with the content's checksum and length, which name the copy."""
    with open(packed, "rb") as f:
        f.seek(-8, os.SEEK_END)
        name = f"libflashc-{f.read().hex()}.so"
    for folder in (cache_folder(), None):
        path = (folder or pathlib.Path(tempfile.mkdtemp(prefix="flash_mlir-"))) / name
        if not path.exists():
            try:
                with gzip.open(packed) as content:
                    store(path, lambda f: shutil.copyfileobj(content, f))
            except OSError:
                continue  # no room there, or no permission
        return str(path)
    raise ImportError(f"expected room to unpack {packed}; set FLASH_CACHE_DIR to a folder that can be written")


def _find():
    here = pathlib.Path(__file__).resolve().parent
    named = os.environ.get("FLASH_LIBRARY")
    places = [named] if named else [here / "libflashc.so", here / "libflashc.so.gz", here.parents[1] / "build" / "lib" / "libflashc.so"]
    for place in map(str, places):
        if os.path.exists(place):
            return _unpacked(place) if place.endswith(".gz") else place
    raise ImportError(f"expected libflashc.so at {' or '.join(map(str, places))}; build it or set FLASH_LIBRARY")


@functools.cache
def library():
    """The loaded library; ImportError says where it was looked for."""
    lib = ctypes.CDLL(_find())
    text, size, pointer = ctypes.c_char_p, ctypes.c_size_t, ctypes.c_void_p
    into, tensors, scalars = ctypes.POINTER(Bytes), ctypes.POINTER(Tensor), ctypes.POINTER(Scalars)
    program = ctypes.POINTER(pointer)
    for name, arguments in {
        "flash_key": [text, into],
        "flash_explain": [text, ctypes.c_int, into],
        "flash_ptxas": [text, into],
        "flash_compile": [text, program, into],
        "flash_assemble": [pointer, into],
        "flash_program_text": [pointer, text, into],
        "flash_program_load": [pointer, size, program, into],
        "flash_run": [pointer, tensors, size, scalars, ctypes.c_int, into],
        "flash_workspace": [pointer, tensors, size, scalars, ctypes.c_int, ctypes.POINTER(size), into],
        "flash_launch": [pointer, tensors, size, scalars, ctypes.c_int, pointer, into],
        "flash_counters": [pointer, ctypes.c_int, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_size_t), into],
        "flash_prepare": [pointer, tensors, size, scalars, ctypes.c_int, pointer, into],
    }.items():
        function = getattr(lib, name)
        function.argtypes, function.restype = arguments, ctypes.c_int
    lib.flash_version.argtypes, lib.flash_version.restype = [], text
    lib.flash_free.argtypes, lib.flash_free.restype = [pointer], None
    lib.flash_program_free.argtypes, lib.flash_program_free.restype = [pointer], None
    return lib


def take(into):
    """The bytes that the library handed over."""
    data = ctypes.string_at(into.data, into.size) if into.data else b""
    library().flash_free(into.data)
    return data


def call(name, *arguments):
    """Calls flash_NAME and returns its bytes; its errors become Python's."""
    into = Bytes()
    status = getattr(library(), name)(*arguments, ctypes.byref(into))
    if status == 0 and not into.data:
        return b""
    data = take(into)
    if status:
        raise ERRORS.get(status, RuntimeError)(data.decode())
    return data


@functools.cache
def ptxas():
    """Version of the assembler in use, "" where there is none (the driver compiles then)."""
    version, named = call("flash_ptxas", None).decode(), os.environ.get("FLASH_PTXAS")
    if not version and named and named != "none":
        warnings.warn(f"FLASH_PTXAS names {named}, which is no ptxas: the driver compiles", stacklevel=2)
    if not version and not named:
        for package in ("nvidia.cuda_nvcc", "nvidia.cu13"):  # NVIDIA's wheels
            try:
                spec = importlib.util.find_spec(package)
            except ImportError:
                continue
            for folder in spec.submodule_search_locations or [] if spec else []:
                path = os.path.join(folder, "bin", "ptxas")
                if os.access(path, os.X_OK):
                    return call("flash_ptxas", path.encode()).decode()
    return version


def losses(report):
    """The lines in which ptxas says that a kernel is slower than its source."""
    return [line.strip() for line in report.splitlines() if "Potential Performance Loss" in line]


class Program:
    """A compiled problem: kernels for one target, launchable with any sizes that its plan covers."""

    def __init__(self, handle):
        self.handle = handle
        self._free = library().flash_program_free

    def __del__(self):
        self._free(self.handle)

    @classmethod
    def compile(cls, problem):
        """Compiles `problem` (JSON text), to a cubin too where ptxas is found. Errors: as flash_compile."""
        ptxas()
        handle = ctypes.c_void_p()
        call("flash_compile", problem.encode(), ctypes.byref(handle))
        program = cls(handle)
        call("flash_assemble", handle)
        return program

    @classmethod
    def load(cls, blob):
        """The program that `blob` was made of; ValueError where the blob is not one."""
        handle = ctypes.c_void_p()
        call("flash_program_load", blob, len(blob), ctypes.byref(handle))
        return cls(handle)

    @functools.cached_property
    def has_schedule(self):
        """Whether a kernel of its own schedules sequences: what flash_prepare runs."""
        return any(kernel.get("op") == "prepare" for kernel in json.loads(self.text("metadata"))["kernels"])

    def counters(self, device):
        """Address and number of the 32-bit integers on a CUDA device that blocks take tiles from: all 0 between launches. Of those
        launched there."""
        data, size = ctypes.c_void_p(), ctypes.c_size_t()
        call("flash_counters", self.handle, device, ctypes.byref(data), ctypes.byref(size))
        return data.value, size.value // 4

    def part(self, what):
        """Bytes of a part: "mlir", "plan", "ptx", "cubin", "report" (what the assembler said), "metadata" or "blob"; empty where there is none."""
        return call("flash_program_text", self.handle, what.encode())

    def text(self, what):
        return self.part(what).decode()
