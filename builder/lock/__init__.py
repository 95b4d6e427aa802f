"""What a matrix resolves to, fixed by content: base digests, wheels and Debian packages by sha256.

Three modules talk to the outside and do not know one another: :mod:`.index` (Python packages),
:mod:`.registry` (container images), :mod:`.debian` (Debian packages). :mod:`.resolve` receives them and turns
a cell into a :class:`~builder.model.Pinned`; :mod:`.file` keeps those in the lock file beside the matrix.

A name's module is loaded when the name is first asked for (PEP 562): who only reads a lock file, as
``rtbuild check`` does, does not wait for what talks to networks.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from builder.lock.debian import Debian
    from builder.lock.file import (
        Entry,
        Lockfile,
        Status,
        lock_path,
        merge,
        pinned_cell,
        read_lock,
        status,
        write_lock,
    )
    from builder.lock.index import Index
    from builder.lock.memory import Memory
    from builder.lock.oci import parse_mirrors
    from builder.lock.registry import Registry
    from builder.lock.resolve import check, pin
    from builder.lock.truth import Reading, read

__all__ = [
    "Debian",
    "Entry",
    "Index",
    "Lockfile",
    "Memory",
    "Reading",
    "Registry",
    "Status",
    "check",
    "lock_path",
    "merge",
    "parse_mirrors",
    "pin",
    "pinned_cell",
    "read",
    "read_lock",
    "status",
    "write_lock",
]

_HOMES = {
    "debian": ("Debian",),
    "file": (
        "Entry", "Lockfile", "Status",
        "lock_path", "merge", "pinned_cell", "read_lock", "status", "write_lock",
    ),
    "index": ("Index",),
    "memory": ("Memory",),
    "oci": ("parse_mirrors",),
    "registry": ("Registry",),
    "resolve": ("check", "pin"),
    "truth": ("Reading", "read"),
}  # fmt: skip


def __getattr__(name: str) -> object:
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
