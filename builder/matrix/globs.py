"""Globs as a shell knows them: ``*``, ``?``, ``[…]`` and nested ``{a,b}``; upper and lower case differ."""

from __future__ import annotations

import fnmatch
import re
from functools import lru_cache

MOST = 1_000
"""Patterns that the braces of one glob may stand for."""

_INNERMOST = re.compile(r"\{([^{}]*)\}")


class BadGlob(ValueError):  # noqa: N818 - callers turn it into an error of their own
    """A glob that says nothing: its braces do not pair, or stand for too many patterns."""


def matches(text: str, glob: str) -> bool:
    """Whether a text fits a glob, or is that very text. Raises :class:`BadGlob`."""
    return text == glob or _compiled(glob).match(text) is not None


@lru_cache(maxsize=1024)
def _compiled(glob: str) -> re.Pattern[str]:
    return re.compile("|".join(fnmatch.translate(pattern) for pattern in braces(glob)))


@lru_cache(maxsize=1024)
def braces(glob: str) -> tuple[str, ...]:
    """``a{b,c{d,e}}`` → ``ab``, ``acd``, ``ace``. Raises :class:`BadGlob`."""
    done: dict[str, None] = {}
    waiting = [glob]
    while waiting:
        pattern = waiting.pop()
        found = _INNERMOST.search(pattern)
        if found is None:
            if "{" in pattern or "}" in pattern:
                raise BadGlob(f"'{glob}' has a brace without its partner")
            done[pattern] = None
        else:
            head, tail = pattern[: found.start()], pattern[found.end() :]
            waiting += [head + part + tail for part in reversed(found[1].split(","))]
        if len(waiting) + len(done) > MOST:
            raise BadGlob(f"'{glob}' stands for more than {MOST:,} patterns")
    return tuple(done)
