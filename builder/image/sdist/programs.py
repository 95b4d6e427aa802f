"""Programs that a build finds before the system's own: compilers in a wrapper, and those of required wheels.

A build that compiles also has more time and room, and several jobs. The number of jobs must not show in the
result; it is built twice and compared like any other.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from builder.image.sandbox import Limits
from builder.image.wheels import Archive, EntryPointError, entry_points, scripts

LIMITS = Limits(seconds=3600, processes=1024, memory=4 << 30)
"""An hour for one build: dlib's, of C++ with link-time optimisation, was not done after 24 minutes on two
busy cores."""
_COMPILERS = re.compile(r"(?:[a-z0-9_]+-linux-gnu-)?(?:cc|c\+\+|gcc|g\+\+|gfortran|clang|clang\+\+)(?:-\d+)?")
WRAPPER = b"""#!/bin/sh
# What is made for the processor of one machine is not made for others.
for word; do
    case $word in
    -march=native | -mtune=native | -mcpu=native)
        echo "${0##*/}: $word is not taken: the result would depend on this machine's processor" >&2
        exit 1
        ;;
    esac
done
exec "/usr/bin/${0##*/}" "$@"
"""
"""In front of every compiler. A build that only tries whether the option is there goes on without it."""
FOLDER = ".bin"
"""Below the folder of the wheels; no module has such a name."""
_POINTS = re.compile(r"[^/]+\.dist-info/entry_points\.txt")
_SCRIPT = re.compile(r"[^/]+\.data/scripts/(?P<name>[^/]+)")


def environment() -> dict[str, str]:
    """How many jobs the common build tools may run: one a processor, if each can have 2 GiB of memory."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    jobs = str(max(1, min(len(os.sched_getaffinity(0)), memory // (2 << 30))))
    # setuptools, PyTorch's extensions; CMake 3.12 and later; NumPy's distutils.
    return dict.fromkeys(("MAX_JOBS", "CMAKE_BUILD_PARALLEL_LEVEL", "NPY_NUM_BUILD_JOBS"), jobs)


def wrap(root: Path, folder: Path) -> None:
    """Put :data:`WRAPPER` into ``folder``, under the name of each compiler that the system has."""
    folder.mkdir(exist_ok=True)
    for path in (root / "usr/bin").iterdir():
        if _COMPILERS.fullmatch(path.name):
            (folder / path.name).write_bytes(WRAPPER)
            (folder / path.name).chmod(0o755)


def lay(archive: Archive, folder: Path, *, program: str, python: str) -> None:
    """Put the programs of a wheel into ``folder``, for the ``program`` of the build's Python."""
    folder.mkdir(exist_ok=True)
    for name, content in _programs(archive, program, python):
        (folder / name).write_bytes(content)
        (folder / name).chmod(0o755)


def _programs(archive: Archive, interpreter: str, python: str) -> Iterator[tuple[str, bytes]]:
    for member in archive.members:
        if _POINTS.fullmatch(member):
            try:
                points = entry_points(archive.read(member).decode())
                yield from scripts(points, interpreter=interpreter, python=python, style="endswith")
            except (EntryPointError, UnicodeDecodeError):
                continue  # a build that needs it fails by itself, and says of what
        elif script := _SCRIPT.fullmatch(member):
            content = archive.read(member, most=256 << 20)  # cmake's is large
            # https://packaging.python.org/en/latest/specifications/binary-distribution-format/
            if content.startswith(b"#!python"):
                content = f"#!{interpreter}\n".encode() + content.partition(b"\n")[2]
            yield script["name"], content
