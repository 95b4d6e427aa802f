"""``rtbuild doctor``: a check of this machine, with remedies."""

import sys
from pathlib import Path
from typing import Annotated

from builder import __version__, resources
from builder.cli import options as opt
from builder.console import print_json, show
from builder.dispatch.fleet import load_fleet
from builder.dispatch.run import try_fleet
from builder.engine.doctor import diagnose
from builder.engine.engine import Engine
from builder.errors import MissingToolError

_MARKS = {"passed": ("ok", "32"), "failed": ("bad", "31;1"), "not_run": ("skip", "33")}


def doctor(
    fleet: Annotated[
        Path | None, opt.of("--fleet FILE: Ask the scheduler about each class of the fleet instead.")
    ] = None,
    context: opt.Context = None,
    color: opt.Color = "auto",
    json_: opt.Json = False,
) -> int:
    """Exit 0 if everything that building needs is here, 5 if something is missing; or as ``_try_fleet``."""
    if fleet is not None:
        return _try_fleet(fleet, json=json_)
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
        return 5 if missing else 0
    terminal = opt.terminal("auto", "never" if color == "auto" and not sys.stdout.isatty() else color)
    arrow = "→ " if terminal.unicode else ""
    width = max(len(check.name) for check in checks)
    for check in checks:
        symbol, code = _MARKS[check.outcome]
        show(
            f"{terminal.style(terminal.symbol(symbol), code)} {check.name:<{width}}  {check.found}",
            hang=width + 4,
        )
        if check.remedy and check.outcome != "passed":
            show(f"  {'':<{width}}  {arrow}{check.remedy}", hang=2)
    show(f"{len(missing)} to mend before building" if missing else "ready to build")
    return 5 if missing else 0


def _try_fleet(path: Path, *, json: bool) -> int:
    """Exit 0 if the scheduler would take a task of every class, else 5; nothing is submitted."""
    answers = try_fleet(load_fleet(path))
    if json:
        print_json({"schema": 1, "classes": answers})
    else:
        show(*(f"{name}: {problem or 'would be taken'}" for name, problem in answers.items()))
    return 5 if any(answers.values()) else 0
