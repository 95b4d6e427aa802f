"""Packages of a runtime of which the index has only sources: those that can be built are."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

from packaging.requirements import Requirement

from builder.errors import CellError, CommandError
from builder.lock.sources import choose, suites_of, systems_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from builder.colab.match import Match, Matching
    from builder.lock import Debian, Index
    from builder.lock.sources import Workshop
    from builder.lock.target import Target
    from builder.model import RootfsBase

_THREADS = 2
"""Builds take a processor each."""
_TRIED = frozenset({"source-only", "python", "platform"})
"""Reasons for which there may be sources all the same."""


def build_missing(
    matching: Matching,
    *,
    index: Index,
    target: Target,
    debian: Debian,
    workshop: Workshop,
    progress: Callable[[str, int, int], None] | None = None,
) -> Matching:
    """The same, with a match in the place of each package that came out as a wheel; others say why not.

    Raises:
        PackageIndexError: the index or the Debian archive did not answer.
        MissingToolError: nothing can be built on this machine.
    """
    tried = [match for match in matching.missing if match.reason in _TRIED]
    if not tried:
        return matching
    try:
        suites_of(target.python)
    except CellError as problem:
        return _with(matching, [_not_built(match, problem) for match in tried])
    systems = systems_of(target.python, debian)
    pins = [match.requirement for match in matching.found if match.requirement is not None]

    def build(match: Match) -> Match:
        return _build(match, index=index, target=target, systems=systems, workshop=workshop, pins=pins)

    done: list[Match] = []
    with ThreadPoolExecutor(_THREADS) as pool:
        for match in pool.map(build, tried):
            done.append(match)
            if progress is not None:
                progress(match.package.name, len(done), len(tried))
    return _with(matching, done)


def _with(matching: Matching, done: Sequence[Match]) -> Matching:
    by_key = {match.package.key: match for match in done}
    return replace(matching, matches=tuple(by_key.get(m.package.key, m) for m in matching.matches))


def _build(
    match: Match,
    *,
    index: Index,
    target: Target,
    systems: tuple[RootfsBase, RootfsBase | None],
    workshop: Workshop,
    pins: Sequence[str],
) -> Match:
    package = match.package
    text = f"{package.name}=={package.version}"
    try:
        sdist = choose(Requirement(text), index.offers(package.name), target)
        if sdist is None:
            return match
        system, also = systems
        built = workshop.lock(sdist, index=index, target=target, system=system, also=also, pins=pins)
    except CellError as problem:
        return _not_built(match, problem)
    return replace(
        match,
        requirement=text,
        reason=None,
        detail=f"the index has only sources: built from {sdist.file}",
        built=built.path,
    )


def _not_built(match: Match, problem: CellError) -> Match:
    return replace(match, detail=f"{match.detail}; not built from them: {_why(problem)}")


def _why(problem: CellError) -> str:
    """The line that says most: a build's own last words, where it was a build that failed."""
    said = problem.tail[-1].strip() if isinstance(problem, CommandError) and problem.tail else problem.message
    cause = problem.hint.partition(":")[0] if isinstance(problem, CommandError) and problem.hint else ""
    known = cause if cause.startswith(("its build", "it is compiled")) else ""
    return known or said.splitlines()[0][:160]
