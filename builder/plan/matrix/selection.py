"""Selection of cells: globs over ids, and a reason for each cell that is left out.

Globs are those of a shell: ``*``, ``?``, ``[…]`` and nested ``{a,b}``; upper and lower case differ.
"""

import fnmatch
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import PurePath

from builder.core.errors import NothingSelectedError, UsageError
from builder.core.model import Cell
from builder.plan.matrix.nodes import closest

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


NOT_SELECTED = "not selected"
"""Why a cell is left out that no selector names."""


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Cells in the order of their files: the ones chosen, and the others with the reason."""

    chosen: tuple[Cell, ...]
    left_out: tuple[tuple[Cell, str], ...]
    unmatched_skips: tuple[str, ...]
    """``--skip`` globs that no cell matches: worth a warning, as their cells may have been renamed."""


def select(cells: Sequence[Cell], *, select: Sequence[str] = (), skip: Sequence[str] = ()) -> Selection:
    """The cells that match any glob of ``select`` (all, if there is none) and no glob of ``skip``.

    Raises :class:`~builder.core.errors.NothingSelectedError` if a glob of ``select`` matches no cell that a
    matrix leaves in, or if no cell remains; :class:`~builder.core.errors.UsageError` for unpaired braces.
    """
    for option, globs in (("--select", select), ("--skip", skip)):
        try:
            for glob in globs:
                braces(glob)
        except BadGlob as error:
            raise UsageError(f"{option}: {error}", hint="quote it for the shell: '*-py3.{9,11}-*'") from error
    for glob in select:
        _demand(glob, cells)
    reasons = [(cell, _reason(cell, select, skip)) for cell in cells]
    chosen = tuple(cell for cell, reason in reasons if reason is None)
    left_out = tuple((cell, reason) for cell, reason in reasons if reason is not None)
    if not chosen:
        counts = Counter(reason for _, reason in left_out)
        why = "; ".join(f"{count} {reason}" for reason, count in counts.items())
        raise NothingSelectedError("no cell is left", hint=why or "the matrix has no cells")
    unmatched = tuple(glob for glob in skip if not any(matches(cell.id, glob) for cell in cells))
    return Selection(chosen=chosen, left_out=left_out, unmatched_skips=unmatched)


def _demand(glob: str, cells: Sequence[Cell]) -> None:
    matched = [cell for cell in cells if matches(cell.id, glob)]
    if not matched:
        near = closest(glob, [cell.id for cell in cells])
        hint = f"the nearest: {', '.join(near)}" if near else "`rtbuild list` shows all cells"
        if own := [cell.id for cell in cells if cell.matrix == PurePath(glob).stem]:
            hint = f"that is a matrix, with {', '.join(own[:3])}{', …' * (len(own) > 3)}"
        raise NothingSelectedError(f"no cell matches --select '{glob}'", hint=hint)
    if all(cell.excluded is not None for cell in matched):
        raise NothingSelectedError(
            f"--select '{glob}' matches only cells that their matrix excludes",
            hint="; ".join(f"{cell.id}: {cell.excluded}" for cell in matched[:3]),
        )


def _reason(cell: Cell, select: Sequence[str], skip: Sequence[str]) -> str | None:
    """Why a cell is left out; None for one that is not."""
    if cell.excluded is not None:
        return f"excluded: {cell.excluded}"
    if select and not any(matches(cell.id, glob) for glob in select):
        return NOT_SELECTED
    return next((f"skipped by --skip '{glob}'" for glob in skip if matches(cell.id, glob)), None)
