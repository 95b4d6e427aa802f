"""``rtbuild doctor --fleet``: whether a scheduler would take a task of each class."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from builder.console import print_json
from builder.dispatch.fleet import load_fleet
from builder.dispatch.run import try_fleet as ask

if TYPE_CHECKING:
    from pathlib import Path


def try_fleet(path: Path, *, json: bool) -> int:
    """Exit 0 if the scheduler would take a task of every class, else 5; nothing is submitted."""
    answers = ask(load_fleet(path))
    if json:
        print_json({"schema": 1, "classes": answers})
    else:
        for name, problem in answers.items():
            sys.stdout.write(f"{name}: {problem or 'would be taken'}\n")
    return 5 if any(answers.values()) else 0
