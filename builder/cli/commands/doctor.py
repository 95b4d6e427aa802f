"""``rtbuild doctor``: a check of this machine, with remedies."""

import sys
from pathlib import Path

from builder import __version__
from builder.cli import options as opt
from builder.cli.console import Terminal, print_json, show
from builder.core import resources
from builder.core.errors import MissingToolError
from builder.image.engine import Engine, diagnose
from builder.release.dispatch import load_fleet, try_fleet

_MARKS = {"passed": ("✓", "32"), "failed": ("✗", "31;1"), "not_run": ("⊘", "33")}


def doctor(
    fleet: Path | None = opt.of("--fleet FILE: Ask the scheduler about each class of the fleet instead."),
    context: str | None = opt.CONTEXT,
    json_: bool = opt.JSON,
) -> int:
    """Exit 0 if everything that building needs is here, or the scheduler would take each task; else 5."""
    if fleet is not None:
        answers = try_fleet(load_fleet(fleet))  # nothing is submitted
        if json_:
            print_json({"schema": 1, "classes": answers})
        else:
            show(*(f"{name}: {problem or 'would be taken'}" for name, problem in answers.items()))
        return 5 if any(answers.values()) else 0
    engine: Engine | MissingToolError
    try:
        engine = Engine.connect(context=context)
    except MissingToolError as error:
        engine = error
    checks = diagnose(engine, cache=resources.cache())
    missing = [check for check in checks if check.required and check.outcome == "failed"]
    if json_:
        rows = [dict(vars(check)) for check in checks]
        print_json({"schema": 1, "rtbuild": __version__, "ready": not missing, "checks": rows})
    else:
        terminal = Terminal.of(stream=sys.stdout)
        width = max(len(check.name) for check in checks)
        for check in checks:
            mark = terminal.style(*_MARKS[check.outcome])
            show(f"{mark} {check.name:<{width}}  {check.found}", hang=width + 4)
            if check.remedy and check.outcome != "passed":
                show(f"  {'':<{width}}  → {check.remedy}", hang=2)
        spared = ", ".join(check.name for check in checks if check.outcome == "failed" and not check.required)
        ready = f"ready to build, but not for all: see {spared}" if spared else "ready to build"
        show(f"{len(missing)} to mend before building" if missing else ready)
    return 5 if missing else 0
