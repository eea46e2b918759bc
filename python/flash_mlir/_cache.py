"""Compiled programs by their key: in memory, and on disk in $FLASH_CACHE_DIR or $XDG_CACHE_HOME/flash_mlir.

A file is a program's blob, which carries a checksum and the build that made it. It is written beside and renamed into place,
so that a reader sees all of it or nothing; whatever else lies there is refused and compiled anew. Processes need no lock: the
last one that writes a key writes the same program.
"""
import concurrent.futures
import hashlib
import threading
import warnings

from ._library import Program, cache_folder, call, losses, ptxas, store

_programs, _lock = {}, threading.Lock()


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
    path = cache_folder() / (hashlib.sha256(name.encode()).hexdigest() + ".flash")
    try:
        if path.is_file():  # reading something else may wait for ever
            return Program.load(path.read_bytes())
    except (OSError, ValueError):
        pass
    made = Program.compile(problem)
    for line in losses(made.text("report")):
        warnings.warn(f"{line}; the kernel is right but slow, a smaller tile may help", stacklevel=2)
    blob = made.part("blob")
    try:
        store(path, lambda f: f.write(blob))
    except OSError:  # a full or read-only disk costs the next process a compilation, nothing else
        pass
    return made
