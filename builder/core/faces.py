"""The face of a room: the names that its ``__init__`` shows, each imported from its module on first use.

The imports stand under ``if TYPE_CHECKING:`` of that file, where type checkers and import-linter find them,
and are read from there: a list of the same names for lazy-loader would be a second truth.
"""

import ast
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lazy_loader


def attach(room: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Make ``__getattr__``, ``__dir__`` and ``__all__`` of a room from its ``__name__`` and ``__file__``."""
    shown: dict[str, list[str]] = defaultdict(list)
    for node in ast.walk(ast.parse(Path(file).read_bytes())):
        if isinstance(node, ast.ImportFrom) and node.level == 1 and node.module:
            shown[node.module] += [alias.name for alias in node.names]
    attached: tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]
    attached = lazy_loader.attach(room, submod_attrs=shown)
    return attached
