"""Measured plans (flash_mlir.tune makes them): which files the planner reads, and how one is written.

The user's come first: $FLASH_RECORDS (a file or a folder), or $XDG_CONFIG_HOME/flash_mlir/records; then the package's. The first
record that matches a problem counts. FLASH_RECORDS=none hides them all.
"""
import json
import os
import pathlib
import warnings

from ._library import call, store

_PACKAGE = pathlib.Path(__file__).with_name("records")


def place():
    """The user's folder of records, or the file that FLASH_RECORDS names."""
    named = os.environ.get("FLASH_RECORDS")
    if named and named != "none":
        return pathlib.Path(named)
    base = os.environ.get("XDG_CONFIG_HOME")
    return (pathlib.Path(base) if base else pathlib.Path.home() / ".config") / "flash_mlir" / "records"


def files():
    """Every file of records, the user's first."""
    if os.environ.get("FLASH_RECORDS") == "none":
        return []
    user = place()
    if os.environ.get("FLASH_RECORDS") and not user.exists():
        warnings.warn(f"FLASH_RECORDS names {user}, where there is nothing: only the package's records count", stacklevel=2)
    return [str(path) for where in (user, _PACKAGE) for path in ([where] if where.is_file() else sorted(where.glob("*.json")))]


def file_name(gpu):
    """The name of a GPU's file: "NVIDIA H200" is in nvidia-h200.json."""
    return "-".join("".join(c if c.isalnum() else " " for c in gpu.lower()).split()) + ".json"


_KEY = ("target", "element", "backward", "head_size", "head_size_v", "softcap", "mask", "left", "right", "queries", "keys")


def key(record):
    """What tells a record from others of its GPU."""
    return tuple(record.get(field) or 0 for field in _KEY)


def write(path, gpu, records):
    """Puts records into the file at `path`, in place of those of the same problems; ValueError if it is another GPU's, or broken."""
    path, old = pathlib.Path(path), []
    if path.exists():
        call("flash_key", json.dumps(dict(target="cpu", element="f32", head_size=64, records=[str(path)])).encode())  # reads it
        content = json.loads(path.read_text())
        if content["gpu"] != gpu:
            raise ValueError(f"expected records of {gpu} in {path}, it has those of {content['gpu']}")
        old = content["records"]
    merged = {key(r): r for r in [*old, *records]}
    lines = ",\n".join("  " + json.dumps(merged[k]) for k in sorted(merged, key=lambda k: [str(x).rjust(8) for x in k]))
    text = f'{{"gpu": {json.dumps(gpu)}, "records": [\n{lines}\n]}}\n'
    store(path, lambda f: f.write(text.encode()))
