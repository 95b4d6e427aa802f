"""What a matrix resolves to, fixed by content: base digests, wheels and Debian packages by sha256.

Three modules talk to the outside and do not know one another: :mod:`.index` (Python packages),
:mod:`.registry` (container images), :mod:`.debian` (Debian packages). :mod:`.resolve` receives them and turns
a cell into a :class:`~builder.model.Pinned`; :mod:`.file` keeps those in the lock file beside the matrix.
"""

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
from builder.lock.oci import parse_mirrors
from builder.lock.registry import Registry
from builder.lock.resolve import check, pin
from builder.lock.truth import Memory, Reading, read

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
