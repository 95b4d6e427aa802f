"""Packages of a runtime of which the index has only sources: those that can be built are."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

from packaging.requirements import Requirement

from builder.core.errors import CellError, CommandError
from builder.core.model import Base, Sdist, StandalonePython
from builder.image.sdist import COMPILED, LACKS, NETWORK
from builder.plan.facts.tables import load
from builder.plan.lock import (
    BuildRoot,
    SdistBuilder,
    build_root,
    choose_sdist,
    compiler_system,
    host_platform,
    suite_of,
)
from builder.release.colab.match import Match, Matching, Progress
from builder.sources.debian import Debian
from builder.sources.index import Index, LocalWheel, Target

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
    workshop: SdistBuilder,
    interpreter: StandalonePython | None = None,
    suite: str | None = None,
    progress: Progress = lambda _text, _done, _of: None,
) -> Matching:
    """The same, with a match in the place of each package that came out as a wheel; others say why not.

    What is not pure Python is compiled in the Debian release ``suite``, if this machine is of the runtime's
    kind: with the packages that the table of builds has for it, or with a compiler alone. ``interpreter`` is
    the runtime's Python, if no release has it.

    Raises:
        PackageIndexError: the index or the Debian archive did not answer.
        MissingToolError: nothing can be built on this machine.
    """
    tried = [match for match in matching.missing if match.reason in _TRIED]
    if not tried:
        return matching
    done: list[Match] = []
    if interpreter is None and suite_of(target.python) is None:
        reason = CellError(f"there is no Python {target.python} here to build with")
        done = [_not_built(match, reason) for match in tried]
    else:
        builder = _Builder(
            index=index,
            target=target,
            debian=debian,
            workshop=workshop,
            pins=[match.requirement for match in matching.found if match.requirement is not None],
            system=build_root(target.python, interpreter, debian=debian, pythons=None),
            suite=(suite or suite_of(target.python)) if target.platform == host_platform() else None,
        )
        with ThreadPoolExecutor(_THREADS) as pool:
            try:
                for match in pool.map(builder.build, tried):
                    done.append(match)
                    progress(f"building {match.package.name}", len(done), len(tried))
            except BaseException:
                workshop.cancel.set()  # those that run now would take minutes
                raise
    by_key = {match.package.key: match for match in done}
    return replace(matching, matches=tuple(by_key.get(m.package.key, m) for m in matching.matches))


@dataclass(frozen=True, kw_only=True)
class _Builder:
    index: Index
    target: Target
    debian: Debian
    workshop: SdistBuilder
    pins: Sequence[str]
    system: BuildRoot
    suite: str | None
    """The Debian release to compile in; None if nothing can be compiled."""

    def build(self, match: Match) -> Match:
        package = match.package
        wanted = Requirement(f"{package.name}=={package.version}")
        try:
            sdist = choose_sdist(wanted, self.index.offers(package.name), self.target)
            if sdist is None:
                return match
            built, how = self._built(sdist, load().build_needs(package.key, sdist.version))
        except CellError as problem:
            return _not_built(match, problem)
        return replace(
            match,
            requirement=str(wanted),
            reason=None,
            detail=f"the index has only sources: {how}",
            built=built.path,
            compiled=None if built.wheel.source is None else built.wheel.source.compiled,
        )

    def _built(self, sdist: Sdist, needs: Sequence[str] | None) -> tuple[LocalWheel, str]:
        """The wheel, and how it came about. Of two builds that fail, the second one's reason counts."""
        lock = partial(self.workshop.lock, sdist, index=self.index, pins=self.pins)
        try:
            return lock(target=self.target, system=self.system), f"built from {sdist.file}"
        except CellError as problem:
            of_code = (problem.hint or "").startswith(COMPILED)
            if self.suite is None or (needs is None and not of_code):
                raise
        base, needs = Base(kind="rootfs", name=f"debian/{self.suite}"), needs or ()
        target, python = replace(self.target, glibc=load().systems[base.name].glibc), self.system.interpreter
        root = compiler_system(
            base, needs, platform=target.platform, debian=self.debian, python=python is None
        )
        built = lock(target=target, system=BuildRoot(base=root, interpreter=python), needs=needs)
        return built, f"compiled in Debian {self.suite}, for images on it alone"


def _not_built(match: Match, problem: CellError) -> Match:
    return replace(match, detail=f"{match.detail}; not built from them: {_why(problem)}")


def _why(problem: CellError) -> str:
    """The line that says most: a build's own last words, if it failed by itself and was not stopped."""
    said = problem.message
    if isinstance(problem, CommandError) and problem.tail and said.endswith("failed"):
        said = problem.tail[-1].strip()
    cause = problem.hint.partition(":")[0] if isinstance(problem, CommandError) and problem.hint else ""
    known = cause if cause.startswith((LACKS, NETWORK, COMPILED)) else ""
    return known or said.splitlines()[0][:160]
