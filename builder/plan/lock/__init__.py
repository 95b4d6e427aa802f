"""Locks: a matrix resolved and fixed by content: base digests, wheels and Debian packages by sha256."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .changes import (
        LockChange as LockChange,
        Outdated as Outdated,
        in_order as in_order,
        newer_releases as newer_releases,
        outdated as outdated,
    )
    from .export import (
        LOADER_FOLDERS as LOADER_FOLDERS,
        Form as Form,
        Place as Place,
        lost_by as lost_by,
        after as after,
        pip_install as pip_install,
        makers_images as makers_images,
        official_images as official_images,
        pip_line as pip_line,
        written as written,
    )
    from .file import (
        Group as Group,
        LockEntry as LockEntry,
        LockStatus as LockStatus,
        groups_of as groups_of,
        lock_path as lock_path,
        merge as merge,
        pinned_cell as pinned_cell,
        read_lock as read_lock,
        stands_alone as stands_alone,
        state as state,
        status as status,
    )
    from .pinning import (
        BuildRoot as BuildRoot,
        SdistBuilder as SdistBuilder,
        build_root as build_root,
        choose_sdist as choose_sdist,
        compiler_system as compiler_system,
        sdist_version as sdist_version,
        suite_of as suite_of,
    )
    from .smoke_tests import (
        Device as Device,
        python_lines as python_lines,
        smoke_statements as smoke_statements,
    )
    from .pinning import movable as movable, pin as pin, requirements as requirements
else:
    from builder.core import faces

    __getattr__, __dir__, __all__ = faces.attach(__name__, __file__)
