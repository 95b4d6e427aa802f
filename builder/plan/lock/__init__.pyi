from .changes import LockChange, Outdated, in_order, outdated
from .export import LOADER_FOLDERS, Form, Place, lost_by, pip_install, written
from .file import LockEntry, LockStatus, lock_path, merge, pinned_cell, read_lock, state, status
from .from_source import (
    BuildRoot,
    SdistBuilder,
    build_root,
    choose_sdist,
    compiler_system,
    host_platform,
    sdist_version,
    suite_of,
)
from .pinning import movable, pin, requirements
from .wheel_layers import Group, groups_of, stands_alone

__all__ = [
    "LOADER_FOLDERS",
    "BuildRoot",
    "Form",
    "Group",
    "LockChange",
    "LockEntry",
    "LockStatus",
    "Outdated",
    "Place",
    "SdistBuilder",
    "build_root",
    "choose_sdist",
    "compiler_system",
    "groups_of",
    "host_platform",
    "in_order",
    "lock_path",
    "lost_by",
    "merge",
    "movable",
    "outdated",
    "pin",
    "pinned_cell",
    "pip_install",
    "read_lock",
    "requirements",
    "sdist_version",
    "stands_alone",
    "state",
    "status",
    "suite_of",
    "written",
]
