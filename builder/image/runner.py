"""Who runs a recipe's steps: namespaces on this machine, or an engine."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from builder.sandbox import require, run_script


class Runner(Protocol):
    """Runs steps of recipes: in namespaces on this machine, or in an engine."""

    def check(self) -> None:
        """Raise :class:`~builder.errors.MissingToolError` if no step can be run."""
        ...

    def run(
        self, script: str, root: Path, *, what: str, env: Mapping[str, str], cancel: threading.Event
    ) -> None:
        """Run ``script`` as root, with ``root`` as the root folder and without network.

        Raises :class:`~builder.errors.CommandError` if the script fails, and
        :class:`~builder.errors.CancelledError` soon after ``cancel`` is set.
        """
        ...


class Namespaces:
    """A :class:`Runner` that needs no engine."""

    def check(self) -> None:
        require()

    def run(
        self, script: str, root: Path, *, what: str, env: Mapping[str, str], cancel: threading.Event
    ) -> None:
        run_script(script, root, what=what, env=env, cancel=cancel)
