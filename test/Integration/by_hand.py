"""Plans by hand for everything that a test runs, as the option --plan names them."""
import sys


def add_option(parser):
    parser.add_argument("--plan", help='fields fixed by hand, as "#flash.plan<multicast = true>"; problems that refuse them are left out')


def force(plan):
    """Every call of flash_mlir in this process, and in processes that it forks, has `plan`."""
    from flash_mlir import _check

    options = _check.options

    def planned(*args):
        found, *rest = options(*args)
        return dict(found, plan=plan), *rest

    if plan:
        _check.options = planned


def fitting(plan, cases, sentences):
    """The cases whose kernel the plan does not refuse; sentences: what compiling each said, or None."""
    if not plan:
        return cases
    fit = [case for case, sentence in zip(cases, sentences) if not (sentence or "").startswith(("ValueError", "NotImplementedError"))]
    print(f"the plan fits {len(fit)} of {len(cases)} problems", file=sys.stderr)
    return fit
