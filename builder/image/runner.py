"""The runner of a recipe's steps that needs no engine: namespaces on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from builder.sandbox import require, run_script

if TYPE_CHECKING:
    import threading
    from collections.abc import Mapping
    from pathlib import Path


class Namespaces:
    """A :class:`~builder.layers.types.Runner`."""

    def check(self) -> None:
        require()

    def run(
        self, script: str, root: Path, *, what: str, env: Mapping[str, str], cancel: threading.Event
    ) -> None:
        run_script(script, root, what=what, env=env, cancel=cancel)
