"""Bounds of the packages beside frameworks, given up one by one where the resolver names them, and brought
back as near as it goes.
"""

import functools
import re
import shlex
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from packaging.requirements import Requirement

from builder.core.errors import NotKnownError, PackageIndexError
from builder.core.model import Wheel
from builder.core.versions import (
    all_within,
    canonical,
    key,
    lower_bound,
    name_pattern,
    pinned,
    release,
    without_marker,
)
from builder.plan.facts.reading import Truth
from builder.plan.facts.rules import Finding, Outcome, asked_once, check, kept_from_bad
from builder.plan.facts.tables import load
from builder.plan.lock import sdist_version
from builder.plan.resolve.cuda_variants import followed
from builder.plan.resolve.dates import Period
from builder.plan.resolve.resolver import OF_NUMPY, SECONDS, Answer, on_numpy_1, reason, solved
from builder.plan.resolve.solve import (
    Demand,
    Proposal,
    imports_into,
)
from builder.plan.resolve.wishes import NamedRequirement
from builder.sources.index import Index, lacking, wheel_name

_ON_EACH_PYTHON = 20
"""Questions to the resolver, and two more for each package: a count, since no answer may depend on a
machine's load."""
COMPILED = (
    "the index has only its sources, and how they compile is not on record; `from-source` takes it with "
    "the Debian packages of its build"
)
_BY_HAND = "by hand after the others"
PYTHONS_OWN = "it is a module of Python itself, and no package"
_BROUGHT_BACK = 60
"""Questions about what gave way, on each Python."""
_Changed = Mapping[str, NamedRequirement | None]
"""What stands in the place of requirements, by their names; None for nothing."""


@dataclass(frozen=True, kw_only=True)
class Substitution:
    """A requirement, and what would do in its place."""

    asked: NamedRequirement
    instead: str | None
    """None: without it."""
    reason: str = ""

    @property
    def by_hand(self) -> str | None:
        """What is left out since it is compiled after the others, as pip installs it; None for the rest."""
        left = self.instead is None and _BY_HAND in self.reason
        return str(self.asked.bound(str(self.asked.parsed.specifier))) if left else None

    @property
    def keeps_files(self) -> bool:
        """Whether it keeps to all that the project's requirements say: what is left out is compiled after the
        others, or another release stands for one that a Dockerfile or a README names.
        """
        if self.instead is None:
            return self.by_hand is not None
        version = pinned(Requirement(self.instead))
        same = canonical(Requirement(self.instead).name) == self.asked.name
        if version is None:  # any release: nothing firm may bound it
            return same and bool(self.asked.told) and self.asked.told == self.asked.parsed.specifier
        return bool(same and self.asked.told) and self.asked.firmly_takes(version)

    def __str__(self) -> str:
        place, why = f"{self.asked} ({self.asked.place})", f": {self.reason}" if self.reason else ""
        if self.instead is None:
            return f"without {place}{why}"
        return (
            f"{self.instead} in place of {place}{why}"
            + "; another major version, so code may need changes" * is_of_another_major(self)
        )


@dataclass(frozen=True, kw_only=True)
class NearestDemand:
    """A cell with a set of wheels, and how what it meets differs from what was asked for."""

    changes: tuple[Substitution, ...]
    proposal: Proposal


@dataclass(kw_only=True)
class Kept:
    """A set of wheels, and what had to give way for it."""

    changed: dict[str, NamedRequirement | None]
    proposal: Proposal
    wheels: Sequence[Wheel]
    reasons: dict[str, str] = field(default_factory=dict)

    def version(self, name: str) -> str | None:
        return next((wheel.version for wheel in self.wheels if canonical(wheel.name) == name), None)


def without_contradictions(demand: Demand) -> tuple[Demand, list[Substitution]]:
    """The demand without the bounds of packages that no release of a framework that is asked for goes with,
    on whichever machine, and what stands for them: ``keras<=2.3.1`` beside ``tensorflow>=2.3``.
    """
    changes = list[Substitution]()
    for row in load().bad:
        wanted = {canonical(one.name): one.specifier for one in map(Requirement, row.when)}
        if row.outcome != "impossible" or row.open or row.ends or len(wanted) != 2:
            continue
        there = {load().table_name(one.name): one for one in demand.frameworks}
        for wish in demand.companions:
            (other,) = [name for name in wanted if name != wish.name][:1]
            framework = there.get(other)
            if (
                wish.name in wanted
                and framework is not None
                and wish.parsed.specifier
                and all_within(wish.parsed.specifier, wanted[wish.name])
                and all_within(framework.parsed.specifier, wanted[other])
            ):
                free = wish.bound("")
                reason = f"{framework} ({framework.place}) goes with none of these: {row.message}"
                changes.append(Substitution(asked=wish, instead=str(free), reason=reason))
                rest = tuple(free if one is wish else one for one in demand.companions)
                demand = replace(demand, companions=rest)
    return demand, changes


def compiles(proposal: Proposal) -> bool:
    """Whether a proposal's image may have packages compiled for it."""
    return proposal.cell.base.kind == "rootfs"


def release_line(text: str) -> tuple[int, int] | None:
    """Major and minor version of a requirement's first bound; of an upper one alone, ``<2``, those below."""
    found = re.search(r"(?:==|~=|<=|>=)\s*(\d{1,9})(?:\.(\d{1,9}))?", text)
    if found is not None:
        return int(found[1]), int(found[2] or 0)
    below = re.search(r"<\s*(\d{1,9})(?:\.(\d{1,9}))?", text)
    if below is None:
        return None
    return (int(below[1]), int(below[2]) - 1) if int(below[2] or 0) else (int(below[1]) - 1, 0)


def is_of_another_major(change: Substitution) -> bool:
    """Whether a package gets a release of another major version."""
    old, new = release_line(str(change.asked)), release_line(change.instead or "")
    return old is not None and new is not None and old[0] != new[0]


def loosened(
    proposal: Proposal, *, demand: Demand, index: Index | None, until: float, moved: bool
) -> NearestDemand | None:
    """The proposal with what is asked for beside, less the bounds or packages that rules or resolver name.

    ``moved``: the framework is another release than asked for, so compiled packages that nobody read beside
    it move, too.
    """
    cell = proposal.cell
    there, why = followed((w for w in demand.companions if w.holds(cell.python, cell.platform)), cell)
    mine = {wish.name: wish for wish in there}
    proposal = replace(proposal, added=tuple(dict.fromkeys((*proposal.added, *why))))
    changed, boldly = _renamed(mine), set[str]()
    reasons = {name: load().mistaken_names[name].reason for name in changed}

    suggested: set[tuple[str, str]] = set()
    first: dict[str, str] = {}
    """What was said of a package as it is asked for: of its other releases it is said in other words."""

    def ask(other: _Changed, period: Period | None = None) -> Answer:
        if time.monotonic() > until:
            raise NotKnownError(f"what would do is unknown: stopped after {SECONDS:.0f} s")
        tried = _with(proposal, demand, {**mine, **other})
        return _answer(
            tried, index, demand.driver, boldly=boldly, moved=moved, period=period, glibc=demand.glibc
        )

    for _ in range(_ON_EACH_PYTHON + 2 * len(mine)):
        answer = ask(changed)
        if not isinstance(answer, str):
            kept = Kept(changed=changed, proposal=answer[0], wheels=answer[1], reasons=reasons)
            if index is not None and answer[0].unasked is None:
                kept = _brought_back(kept, mine, ask, index)
                kept = _with_pins(kept, functools.partial(ask, period=demand.period))
            kept.reasons = {**_said_first(changed, first, mine), **kept.reasons}
            return NearestDemand(changes=tuple(_changes(kept, mine)), proposal=kept.proposal)
        named = [name for name in _named(answer, mine) if changed.get(name, mine[name]) is not None]
        if not named:
            return None
        if twice := written_twice(answer, named):
            changed |= dict.fromkeys(twice)
            reasons |= twice
            continue
        if (named_one := _with_nothing_against(answer, named)) and named_one not in suggested:
            suggested.add(named_one)
            changed[named_one[0]] = mine[named_one[0]].bound(f"=={named_one[1]}")
            reasons[named_one[0]] = reason(answer, mine[named_one[0]])
            continue
        for name in named:
            first.setdefault(name, answer)
        chosen = {name for name, _ in suggested}
        bound = [
            name
            for name in first
            if name not in chosen and (w := changed.get(name, mine[name])) and w.parsed.specifier != w.loads
        ]
        bounded = [name for name in named if name in bound] or bound
        if bounded:  # a package is left out only where no version of any will do
            changed |= {
                name: mine[name].bound(str(mine[name].loads))
                for name in bounded[: 3 if len(bounded) > 3 else 1]
            }
            continue
        if named[0] in {*lacking(answer)} - boldly and compiles(proposal):
            boldly.add(named[0])
            continue
        changed[named[0]] = None
        reasons[named[0]] = _why_not(named[0], first[named[0]], mine)
    return None


def _said_first(
    changed: Collection[str], first: Mapping[str, str], mine: Mapping[str, NamedRequirement]
) -> dict[str, str]:
    """The reason against each changed requirement as it was asked for."""
    return {name: reason(first[name], mine[name]) for name in changed if name in first}


def _why_not(name: str, answer: str, mine: Mapping[str, NamedRequirement]) -> str:
    if name in sys.stdlib_module_names:
        return PYTHONS_OWN + " (`apt: [python3-tk]` brings it to a Debian release's Python)" * (
            name == "tkinter"
        )
    why = COMPILED if name in lacking(answer) else reason(answer, mine[name])
    if "only sources" not in why and why != COMPILED:
        return why
    wish = mine[name].bound(str(mine[name].parsed.specifier))
    by_hand = f"pip install --no-build-isolation {shlex.quote(str(wish))}"
    return f"{why}; {_BY_HAND}: `{by_hand}`"


def written_twice(answer: str, named: Sequence[str]) -> dict[str, str]:
    """The packages to leave out of several that write the same files, each with the one that stays and why,
    if the rules say which. The one that they would keep goes, if another package brings the other.
    """
    found = re.search(
        r"(?m)(?P<all>[\w.-]+(?: \([^)]*\))?(?: and [\w.-]+(?: \([^)]*\))?)+) write the same files .*?\. "
        r"Keep (?P<one>[\w.-]+): (?P<why>.*?)\)?$",
        answer,
    )
    if found is None:
        return {}
    keep = canonical(found["one"])
    others = [one for one in map(canonical, re.findall(r"(?:^| and )([\w.-]+)", found["all"])) if one != keep]
    if mine := [name for name in others if name in named]:
        return dict.fromkeys(mine, f"{found['one']} stays, and both write the same files: {found['why']}")
    if keep not in named:
        return {}
    last = f"`pip install --force-reinstall --no-deps {keep}` after all others"
    why = (
        f"another package brings {' and '.join(others)}, and both write the same files; code that needs what"
    )
    return {keep: f"{why} {keep} has beyond it: {last}"}


def _with_nothing_against(answer: str, named: Sequence[str]) -> tuple[str, str] | None:
    """The first of these packages of which the rules name a release that goes, and that release."""
    for name in named:
        if found := re.search(rf"(?i)(?<![\w-]){name_pattern(name)} (\S+) has nothing against it", answer):
            return name, found[1]
    return None


def _with_pins(kept: Kept, ask: Callable[[_Changed], Answer]) -> Kept:
    """The substitution with the versions that were found: the matrix has what is told."""
    try:
        answer = ask(_at_versions(kept))
    except NotKnownError:
        return kept
    return kept if isinstance(answer, str) else replace(kept, proposal=answer[0], wheels=answer[1])


def _renamed(mine: Mapping[str, NamedRequirement]) -> dict[str, NamedRequirement | None]:
    """Distributions in place of names that none has, such as opencv."""
    rows = load().mistaken_names
    wrong = [name for name in mine if name in rows and rows[name].outcome == "impossible"]
    plain = {name: rows[name].instead for name in wrong if rows[name].versions is None}
    return {name: replace(mine[name], parsed=Requirement(instead)) for name, instead in plain.items()}


def _with(proposal: Proposal, demand: Demand, beside: Mapping[str, NamedRequirement | None]) -> Proposal:
    """The proposal with these requirements beside its own, and what the source imports of them."""
    kept = [wish for wish in beside.values() if wish is not None]
    texts = dict.fromkeys(without_marker(wish.parsed) for wish in kept)
    pip = asked_once(list(texts), proposal.cell.pip)
    cell = replace(proposal.cell, pip=pip, imports=imports_into(demand, kept))
    return replace(proposal, cell=cell)


def _answer(
    proposal: Proposal,
    index: Index | None,
    driver: str | None,
    *,
    boldly: Set[str],
    moved: bool,
    period: Period | None = None,
    glibc: str | None = None,
) -> Answer:
    """The proposal with its set of wheels, or why there is none, by the rules or the resolver."""
    cell = proposal.cell
    findings = check(cell, Truth.of_offer(cell), driver=driver, suggest=False)
    refused = [finding for finding in findings if finding.outcome is Outcome.IMPOSSIBLE]
    refused += [one for one in findings if moved and _is_unread(one)]
    if any(finding.rule in OF_NUMPY for finding in refused) and (first := on_numpy_1(cell)) is not None:
        # what code for NumPy 1 lacks, and no other release
        why = "numpy<2: " + next(one.message for one in refused if one.rule in OF_NUMPY)
        bound = replace(proposal, cell=first, added=(*proposal.added, why))
        return _answer(bound, index, driver, boldly=boldly, moved=moved, period=period, glibc=glibc)
    if (kept := kept_from_bad(cell, refused)) is not None:
        bound = replace(proposal, cell=kept[0], added=(*proposal.added, kept[1]))
        return _answer(bound, index, driver, boldly=boldly, moved=moved, period=period, glibc=glibc)
    if refused:
        return "\n".join(finding.message for finding in refused)
    if index is None:
        return replace(proposal, findings=findings, unasked="the index was not asked (--offline)"), ()
    tried = replace(proposal, findings=findings)
    answer = solved(tried, index, driver, boldly=boldly, period=period, glibc=glibc)
    if not isinstance(answer, str) and answer[0].unasked is not None:
        return answer[0], ()  # an index that does not answer refuses nothing
    return answer


def _is_unread(one: Finding) -> bool:
    """Whether it is not known what a compiled package's release was compiled for."""
    return one.rule == "package-known" and one.outcome is Outcome.UNKNOWN


def _named(message: str, mine: Mapping[str, NamedRequirement]) -> list[str]:
    """The packages of the demand that stand in the resolver's words, those without any wheel first."""
    words = [canonical(word.rstrip(".")) for word in re.findall(r"(?<![\w.-])[A-Za-z0-9][\w.-]*", message)]
    return sorted((name for name in dict.fromkeys(words) if name in mine), key=_first(message))


def _first(message: str) -> Callable[[str], tuple[bool, int]]:
    """Sorts a package that cannot be had at all before one that only clashes with others."""

    def rank(name: str) -> tuple[bool, int]:
        pattern = rf"(?i){name_pattern(name)}[^\n]{{0,60}} (?:has|have|was|there is) no[t ]"
        return re.search(pattern, message) is None, message.lower().find(name)

    return rank


def _changes(kept: Kept, mine: Mapping[str, NamedRequirement]) -> Iterator[Substitution]:
    """The change of each requirement, with the version that the set of wheels has, and the reason."""
    for name, other in kept.changed.items():
        version = kept.version(other.name if other is not None else name)
        why = kept.reasons.get(name, "")
        if other is not None and not kept.wheels:
            yield Substitution(asked=mine[name], instead=str(other), reason=why)
        elif other is None or version is None:
            yield Substitution(asked=mine[name], instead=None, reason=why)
        elif other.name != name or not mine[name].parsed.specifier.contains(version, prereleases=True):
            yield Substitution(asked=mine[name], instead=str(other.bound(f"=={version}")), reason=why)


def _brought_back(
    kept: Kept, mine: Mapping[str, NamedRequirement], ask: Callable[[_Changed], Answer], index: Index
) -> Kept:
    """The substitution with fewer and smaller changes; requirements that were left out come first.

    A resolver that is left free takes the newest release: of ``transformers~=4.4.2`` one of five years later.
    ``ask`` gives the set of wheels with such changes, or why there is none.
    """
    left = _BROUGHT_BACK

    def take(name: str, other: NamedRequirement | None) -> str | None:
        """Why it does not go with the others; None if it does, and is taken."""
        nonlocal left
        left -= 1
        changed = {**kept.changed, name: other}
        try:
            answer = ask(changed)
        except NotKnownError:  # the answer that is there stands
            left = 0
            return ""
        if isinstance(answer, str):
            return answer
        kept.changed, (kept.proposal, kept.wheels) = changed, answer
        return None

    for name in sorted(kept.changed, key=lambda one: kept.changed[one] is not None):
        other = kept.changed[name]
        if left <= 0 or (other is not None and other.name != name):
            continue
        why = take(name, mine[name])
        if why is None:
            del kept.changed[name]
            continue
        if not why:
            break
        kept.reasons.setdefault(name, reason(why, mine[name]))
        if other is None and (
            not mine[name].parsed.specifier or take(name, mine[name].bound(str(mine[name].loads)))
        ):
            continue
        asked, *lines = _newer_lines(mine[name], kept.version(name), index) or [""]
        if asked and take(name, mine[name].bound(f"=={asked}.*")) is None:
            continue
        while lines and left > 0:
            middle = len(lines) // 2
            if take(name, mine[name].bound(f"=={lines[middle]}.*")) is None:
                lines = lines[:middle]
            else:
                lines = lines[middle + 1 :]
    return kept


def _at_versions(kept: Kept) -> dict[str, NamedRequirement | None]:
    """The changes with the version that the set of wheels has of each."""
    versions = {name: kept.version(other.name if other else name) for name, other in kept.changed.items()}
    return {
        name: other.bound(f"=={versions[name]}") if other is not None and versions[name] else None
        for name, other in kept.changed.items()
    }


def _newer_lines(wish: NamedRequirement, found: str | None, index: Index) -> list[str]:
    """The minor versions from the one that is asked for to the one that was found: 1.13, 1.14."""
    asked = pinned(wish.parsed) or lower_bound(wish.parsed)
    if found is None or asked is None or release(found) <= release(asked):
        return []
    try:
        files = index.offers(wish.name)
    except PackageIndexError:
        return []
    names = ((wheel_name(file.name), sdist_version(file, wish.name)) for file in files)
    versions = (str(wheel.version) if wheel is not None else sdist for wheel, sdist in names)
    whole = [version for version in versions if version and not release(version).is_prerelease]
    lines = {key(version)[:2] for version in whole if release(asked) <= release(version) <= release(found)}
    return [".".join(map(str, line)) for line in sorted(lines)]
