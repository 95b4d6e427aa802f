"""A system for programs in the sandbox that consists of this machine's own ``/usr``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from builder.core.errors import MissingToolError
from builder.image.sandbox import require

if TYPE_CHECKING:
    from pathlib import Path


def system(folder: Path) -> Path:
    """An empty system that this machine's ``/usr`` can be mounted in. Skips where nothing can be shut in."""
    try:
        require()
    except MissingToolError as problem:
        pytest.skip(str(problem))
    folder.mkdir()
    for name in ("usr", "dev", "build", "tmp", "sdist", "requires"):
        (folder / name).mkdir()
    for name in ("bin", "lib", "lib64"):
        (folder / name).symlink_to(f"usr/{name}")
    return folder
