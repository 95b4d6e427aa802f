from .file import LockEntry, LockStatus, lock_path, merge, pinned_cell, read_lock, state, status
from .resolve import pin, requirements
from .sources import (
    BuildRoot,
    SdistBuilder,
    choose,
    compiler_system,
    host_platform,
    sdist_version,
    suite_of,
    system_of,
)

__all__ = [
    "BuildRoot",
    "LockEntry",
    "LockStatus",
    "SdistBuilder",
    "choose",
    "compiler_system",
    "host_platform",
    "lock_path",
    "merge",
    "pin",
    "pinned_cell",
    "read_lock",
    "requirements",
    "sdist_version",
    "state",
    "status",
    "suite_of",
    "system_of",
]
