"""What a build that compiles has beside a pure one: time, room, several jobs, and no ``native`` code.

How many jobs there are must not show in what comes out; it is built twice and compared like any other.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from builder.sandbox import Limits

if TYPE_CHECKING:
    from pathlib import Path

LIMITS = Limits(seconds=3600, processes=1024, memory=4 << 30)
"""An hour for one build: dlib's, of C++ with link-time optimisation, was not done after 24 minutes on two
busy cores."""
_EACH = 2 << 30
"""Bytes of memory that a C++ compiler may come to need."""
_COMPILERS = re.compile(r"(?:[a-z0-9_]+-linux-gnu-)?(?:cc|c\+\+|gcc|g\+\+|gfortran|clang|clang\+\+)(?:-\d+)?")
WRAPPER = b"""#!/bin/sh
# What is made for the processor of one machine is not made for others.
for word; do
    case $word in
    -march=native | -mtune=native | -mcpu=native)
        echo "${0##*/}: $word is not taken: what comes out would depend on this machine's processor" >&2
        exit 1
        ;;
    esac
done
exec "/usr/bin/${0##*/}" "$@"
"""
"""In front of every compiler. A build that only tries whether the option is there goes on without it."""


def environment() -> dict[str, str]:
    """How many jobs the common build tools may run: one a processor, as far as there is memory for them."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    jobs = str(max(1, min(len(os.sched_getaffinity(0)), memory // _EACH)))
    # setuptools, PyTorch's extensions; CMake 3.12 and later; NumPy's distutils.
    return dict.fromkeys(("MAX_JOBS", "CMAKE_BUILD_PARALLEL_LEVEL", "NPY_NUM_BUILD_JOBS"), jobs)


def wrap(root: Path, folder: Path) -> None:
    """Put :data:`WRAPPER` into ``folder``, under the name of each compiler that the system has."""
    folder.mkdir(exist_ok=True)
    for path in (root / "usr/bin").iterdir():
        if _COMPILERS.fullmatch(path.name):
            (folder / path.name).write_bytes(WRAPPER)
            (folder / path.name).chmod(0o755)
