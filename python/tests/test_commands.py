"""Command lines that cannot be right end at once, in a sentence: nothing is run, nothing passes for want of work."""
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
WRONG = [
    ("benchmarks/compile_time.py", "--only zzz", "no row's name holds 'zzz'"),
    ("benchmarks/compile_time.py", "--repeat 0", "at least 1, got 0"),
    ("benchmarks/compile_time.py", "--target sm_70", "'sm_70'"),
    ("benchmarks/grid.py", "--suite nonsense", "got nonsense"),
    ("benchmarks/grid.py", "--target cpu", "'cpu'"),
    ("benchmarks/serving.py", "--suite nonsense", "got nonsense"),
    ("test/Integration/accept_gpu.py", "/nowhere", "expected handed.jsonl in /nowhere"),
    ("test/Integration/accept_gpu.py", "{here}", "expected handed.jsonl in"),
    ("test/Integration/accept_gpu.py", "{cases} --out {file}", "expected --out to be a folder"),
    ("test/Integration/accept_gpu.py", "{cases} --stages all", "got all"),
]


@pytest.mark.parametrize("script, arguments, words", WRONG)
def test_wrong_arguments(script, arguments, words, tmp_path):
    cases, file = tmp_path / "cases", tmp_path / "file"
    cases.mkdir()
    for name in ("handed.jsonl", "run.py", "reference.py"):
        (cases / name).touch()
    file.touch()
    line = [a.format(here=tmp_path, cases=cases, file=file) for a in arguments.split()]
    done = subprocess.run([sys.executable, ROOT / script, *line], capture_output=True, text=True, cwd=tmp_path, timeout=60)
    assert done.returncode == 2 and words in done.stderr.splitlines()[-1] and "Traceback" not in done.stderr
