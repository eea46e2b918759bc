"""Compiled programs by their key: in memory, and on disk in $FLASH_CACHE_DIR or $XDG_CACHE_HOME/flash_mlir.

A file is a program's blob, which carries a checksum and the build that made it. It is written beside and renamed into place,
so that a reader sees all of it or nothing; whatever else lies there is refused and compiled anew. Processes need no lock: the
last one that writes a key writes the same program.
"""
import concurrent.futures
import hashlib
import os
import pathlib
import tempfile
import threading

from ._library import Program, call, ptxas

_programs, _lock = {}, threading.Lock()


def folder():
    named = os.environ.get("FLASH_CACHE_DIR")
    if named:
        return pathlib.Path(named)
    base = os.environ.get("XDG_CACHE_HOME")
    return (pathlib.Path(base) if base else pathlib.Path.home() / ".cache") / "flash_mlir"


def key(problem):
    """Everything that shapes the code of `problem` (JSON text), as text."""
    ptxas()
    return call("flash_key", problem.encode()).decode()


def program(problem):
    """The program of `problem` (JSON text): from memory, from disk, or compiled."""
    name = key(problem)
    with _lock:
        found = _programs.get(name)
        mine = found is None
        if mine:
            found = _programs[name] = concurrent.futures.Future()
    if mine:
        try:
            found.set_result(_load_or_compile(name, problem))
        except BaseException as e:
            with _lock:
                del _programs[name]
            found.set_exception(e)
    return found.result()


def _load_or_compile(name, problem):
    path = folder() / (hashlib.sha256(name.encode()).hexdigest() + ".flash")
    try:
        return Program.load(path.read_bytes())
    except (OSError, ValueError):
        pass
    made = Program.compile(problem)
    _store(path, made.part("blob"))
    return made


def _store(path, blob):
    """Best effort: a full or read-only disk costs the next process a compilation, nothing else."""
    part = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, part = tempfile.mkstemp(dir=path.parent, suffix=".part")
        with os.fdopen(handle, "wb") as f:
            f.write(blob)
        os.replace(part, path)
    except OSError:
        if part is not None and os.path.exists(part):
            os.unlink(part)
