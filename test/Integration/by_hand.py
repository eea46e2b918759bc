#!/usr/bin/env python3
"""Plans by hand for everything that a test runs, as the option --plan names them.

    python3 test/Integration/by_hand.py --plan "#flash.plan<consumers = 2>" --backward SCRIPT ARGUMENTS...    any script under one
"""
import argparse
import functools
import pathlib
import runpy
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))


def add_option(parser):
    parser.add_argument("--plan", help='fields fixed by hand, as "#flash.plan<multicast = true>", with --backward of gradients alone; problems that refuse them are left out')


def force(plan, backward=False):
    """Every attention, or every attention_backward, of flash_mlir in this process, and in processes that it forks, has `plan`."""
    from flash_mlir import _api

    problem = _api._problem

    @functools.wraps(problem)
    def planned(options, *args, **more):
        return problem(dict(options, plan=plan) if options.get("backward", False) == backward else options, *args, **more)

    if plan and not hasattr(problem, "__wrapped__"):
        _api._problem = planned


def fitting(plan, cases, sentences):
    """The cases whose kernel the plan does not refuse; sentences: what compiling each said, or None."""
    if not plan:
        return cases
    fit = [case for case, sentence in zip(cases, sentences) if not (sentence or "").startswith(("ValueError", "NotImplementedError"))]
    print(f"the plan fits {len(fit)} of {len(cases)} problems", file=sys.stderr)
    return fit


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_option(parser)
    parser.add_argument("--backward", action="store_true", help="gradients have the plan, attention has its own")
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    a = parser.parse_args()
    force(a.plan, a.backward)
    sys.argv = [a.script, *a.arguments]
    sys.path.insert(0, str(pathlib.Path(a.script).resolve().parent))
    runpy.run_path(a.script, run_name="__main__")


if __name__ == "__main__":
    main()
