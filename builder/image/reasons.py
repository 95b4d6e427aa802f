"""Why a file may differ between two builds of the same image, by its path and by what in it differs."""

from __future__ import annotations

import re
from typing import Final

_BY_PATH: Final = (
    # https://github.com/python/cpython/issues/129724
    (r"\.pyc$", "compiled Python: compile with unchecked hashes in place of times, one file after another"),
    (r"(^|/)etc/ld\.so\.cache$", "the loader's cache, written in the order in which folders are read"),
    (r"(^|/)var/cache/ldconfig/", "ldconfig's own cache: inode numbers and times; remove it in the same RUN"),
    (r"(^|/)var/(log/|lib/dpkg/.*-old$|lib/apt/|cache/apt/|cache/debconf/)",
     "a log or cache of apt or dpkg: remove it in the same RUN"),
    (r"(^|/)(var/cache/fontconfig/|.*/fontlist-.*\.json$)", "a cache of fonts: it holds times"),
    (r"(^|/)etc/(passwd|shadow|group|gshadow)-?$", "a user was added: shadow holds the day"),
    (r"(^|/)(etc/machine-id|var/lib/dbus/machine-id)$", "the machine's id: empty it"),
    (r"(^|/)etc/ssh/ssh_host_", "a host key, made at random: remove it"),
    (r"\.dist-info/(direct_url\.json|RECORD)$", "where a package came from, or what was written for it"),
    (r"(^|/)(tmp|var/tmp|run)/", "a temporary file that was left behind"),
    (r"\.(tar|tgz|gz|zip|whl|jar|deb)$", "an archive: the times and the order of what is in it"),
    (r"\.(a|o|so)(\.|$)", "compiled code: paths, times and the order of files enter it"),
)  # fmt: skip

_TIME = re.compile(
    rb"\d{4}-\d\d-\d\d|\d\d:\d\d:\d\d|(Mon|Tue|Wed|Thu|Fri|Sat|Sun)[ ,]|(?<!\d)1[5-9]\d{8}(?!\d)"
    rb"|(?<!\d)2[0-2]\d{8}(?!\d)"
)
"""A date, a time of day, or seconds since 1970 between the years 2017 and 2040."""
_HEX = re.compile(rb"[0-9a-f]{12,}")


def reason_of(path: str, what: tuple[str, ...], first: bytes, second: bytes) -> str:
    """The likely reason in a few words. ``first`` and ``second`` are the beginnings of both files."""
    if what == ("missing",):
        return _by_path(path) or "made by one build only: a step depends on something outside of the recipe"
    if "content" in what:
        return _by_path(path) or _by_content(first, second)
    if what == ("time",):
        return "only its time: set times from SOURCE_DATE_EPOCH (touch -h -d) in the step that writes it"
    if "mode" in what:
        return "its mode: the umask of whoever built, or a file copied from the machine"
    if "owner" in what:
        return "its owner: a file copied from the machine, or a user with a number given at random"
    return "a step depends on something outside of the recipe"


def _by_path(path: str) -> str | None:
    return next((reason for pattern, reason in _BY_PATH if re.search(pattern, path)), None)


def _by_content(first: bytes, second: bytes) -> str:
    mine, theirs = first.splitlines(), second.splitlines()
    if mine != theirs and sorted(mine) == sorted(theirs):
        return "the same lines in another order: sort what the step lists (LC_ALL=C, PYTHONHASHSEED=0)"
    if _differs_in(_TIME, first, second):
        return "it holds the time of the build: take SOURCE_DATE_EPOCH instead"
    if _differs_in(_HEX, first, second):
        return "it holds a random or host-dependent identifier"
    return "a step depends on something outside of the recipe"


def _differs_in(pattern: re.Pattern[bytes], first: bytes, second: bytes) -> bool:
    """Whether both have something of this form, and are the same without it."""
    if not (pattern.search(first) and pattern.search(second)):
        return False
    changed = [(a, b) for a, b in zip(first.splitlines(), second.splitlines(), strict=False) if a != b]
    return bool(changed) and all(pattern.search(a) and pattern.search(b) for a, b in changed)
