"""``rtbuild doctor``: what this machine has and lacks."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from builder import __version__, resources
from builder.console import Terminal, print_json
from builder.engine import Engine, diagnose
from builder.errors import MissingToolError

if TYPE_CHECKING:
    from builder.console.terminal import ColorChoice

_MARKS = {"passed": ("ok", "32"), "failed": ("bad", "31;1"), "not_run": ("skip", "33")}


def run(*, context: str | None, color: ColorChoice, json: bool) -> int:
    """Exit 0 where everything that building needs is here, 5 where something is missing."""
    engine: Engine | MissingToolError
    try:
        engine = Engine.connect(context=context)
    except MissingToolError as error:
        engine = error
    checks = diagnose(engine, cache=resources.cache())
    missing = [check for check in checks if check.required and check.outcome == "failed"]
    if json:
        rows: list[dict[str, Any]] = [dict(vars(check)) for check in checks]
        print_json({"schema": 1, "rtbuild": __version__, "ready": not missing, "checks": rows})
        return 5 if missing else 0
    terminal = Terminal.of(color=color)
    width = max(len(check.name) for check in checks)
    for check in checks:
        symbol, code = _MARKS[check.outcome]
        mark = terminal.style(terminal.symbol(symbol), code)
        sys.stdout.write(f"{mark} {check.name:<{width}}  {check.found}\n")
        if check.remedy and check.outcome != "passed":
            sys.stdout.write(
                f"  {'':<{width}}  → {check.remedy}\n" if terminal.unicode else f"  {check.remedy}\n"
            )
    sys.stdout.write("ready to build\n" if not missing else f"{len(missing)} to mend before building\n")
    return 5 if missing else 0
