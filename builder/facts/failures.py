"""Why cells could not be locked, kept until a lock of the same requirements succeeds."""

import contextlib
import time
from pathlib import Path
from typing import Any

from builder import resources
from builder.digests import digest_of
from builder.files import read_cached, write_cached
from builder.model import Cell

DAYS = 7
"""How long an answer counts: an index gets new wheels."""


def _path(cell: Cell) -> Path:
    return resources.cache() / "lockfail" / f"{digest_of(cell.inputs()).rpartition(':')[2]}.json"


def remember(cell: Cell, said: str) -> None:
    """Keep why there is no set of wheels for a cell. A cache that cannot be written is no error."""
    write_cached(_path(cell), {"when": int(time.time()), "cell": cell.id, "said": said[:4000]})


def forget(cell: Cell) -> None:
    """A lock succeeded."""
    with contextlib.suppress(OSError):
        _path(cell).unlink(missing_ok=True)


def recall(cell: Cell) -> str | None:
    """The reason given for these very requirements in the last :data:`DAYS` days, on one line."""
    if not (resources.cache() / "lockfail").is_dir():
        return None
    return read_cached(_path(cell), _fresh)


def _fresh(document: dict[str, Any]) -> str | None:
    fresh = 0 <= time.time() - document["when"] <= DAYS * 86400
    return " ".join(str(document["said"]).split())[:600] if fresh else None
