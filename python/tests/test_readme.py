"""What the READMEs show runs, and the table of a plan's fields has them all."""
import pathlib
import re

import pytest

import flash_mlir

ROOT = pathlib.Path(__file__).resolve().parents[2]


def run_blocks(name):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / name).read_text(), re.S)
    assert blocks
    exec("".join(blocks), {})


def test_example_runs(capsys):
    run_blocks("README.md")
    assert "attention on cpu" in capsys.readouterr().out


def test_serving_example_runs():
    run_blocks("python/README.md")


def test_plan_fields_have_a_row_each():
    """The compiler lists its fields when it refuses one; Flash.td explains them."""
    with pytest.raises(ValueError) as refusal:
        flash_mlir.explain(*[(1, 1, 1, 64)] * 3, plan="#flash.plan<nothing = 1>")
    fields = str(refusal.value).rpartition("its fields are ")[2].split(", ")
    table = (ROOT / "include/flash/Flash.td").read_text().split("| field | decides |")[1].split("\n\n")[0]
    rows = [re.findall(r"`(\w+)(?: = [^`]*)?`", line.split("|")[1]) for line in table.splitlines() if "`" in line]
    assert sorted(sum(rows, [])) == sorted(fields)
