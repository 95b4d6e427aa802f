"""What gave way is brought back as far as it goes, and the reason why it goes no further.

A resolver that is left free takes the newest release: of ``transformers~=4.4.2`` one of five years later.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from builder.core.errors import PackageIndexError
from builder.core.model import Wheel
from builder.core.versions import canonical, key, lower_bound, name_pattern, pinned, release
from builder.plan.lock import sdist_version
from builder.plan.resolve.requirements import NamedRequirement
from builder.plan.resolve.solve import Proposal
from builder.plan.resolve.unbuilt import lacking
from builder.sources.index import Index, wheel_name

Changed = Mapping[str, NamedRequirement | None]
"""What stands in the place of requirements, by their names; None for nothing."""
Answer = tuple[Proposal, Sequence[Wheel]] | str
_MOST = 60
"""Questions: a count, since no answer may depend on a machine's load."""


@dataclass(kw_only=True)
class Kept:
    """A set of wheels, and what had to give way for it."""

    changed: dict[str, NamedRequirement | None]
    proposal: Proposal
    wheels: Sequence[Wheel]
    reasons: dict[str, str] = field(default_factory=dict)

    def version(self, name: str) -> str | None:
        return next((wheel.version for wheel in self.wheels if canonical(wheel.name) == name), None)


def brought_back(
    kept: Kept, mine: Mapping[str, NamedRequirement], ask: Callable[[Changed], Answer], index: Index
) -> Kept:
    """The same with fewer and smaller changes; those that were left out come first.

    ``ask`` gives the set of wheels with such changes, or why there is none.
    """
    left = _MOST

    def take(name: str, other: NamedRequirement | None) -> str | None:
        """Why it does not go with the others; None if it does, and is taken."""
        nonlocal left
        left -= 1
        changed = {**kept.changed, name: other}
        answer = ask(changed)
        if isinstance(answer, str):
            return answer
        kept.changed, (kept.proposal, kept.wheels) = changed, answer
        return None

    for name in sorted(kept.changed, key=lambda one: kept.changed[one] is not None):
        other = kept.changed[name]
        if left <= 0 or (other is not None and other.name != name):
            continue
        against = take(name, mine[name])
        if against is None:
            del kept.changed[name]
            continue
        kept.reasons.setdefault(name, reason(against, mine[name]))
        if other is None and (not mine[name].parsed.specifier or take(name, mine[name].bound(""))):
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


def exact(kept: Kept) -> dict[str, NamedRequirement | None]:
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


def reason(message: str, wish: NamedRequirement) -> str:
    """The part of the resolver's, or of the rules', words that is about one requirement."""
    return next(_reasons(message, wish), "the resolver finds no set of wheels with it")


def _reasons(message: str, wish: NamedRequirement) -> Iterator[str]:
    name, bounds = name_pattern(wish.name), r"(?:[<>=!~]=?[^\s,]+(?:,[<>=!~]=?[^\s,]+)*)"
    if "No solution found" not in message:
        about = [line for line in message.splitlines() if re.search(rf"(?i)(?<![\w-]){name}(?![\w-])", line)]
        yield from (line.strip() for line in about[:1])
        return
    if re.search(rf"(?i)there (?:is|are) no versions? of {name}", message):
        yield "the index has no such release"
    alone = re.search(rf"(?i)(?<![\w-]){name}(?:{bounds})? (?:has|have) no usable wheels", message)
    tagged = re.search(rf"(?i)(?<![\w-]){name}(?:{bounds})? (?:has|have) no wheels with a matching", message)
    if alone or tagged:
        yield "it has no wheel for that Python and system"
    if found := re.search(rf"(?i)(?<![\w-]){name}{bounds}? depends on (?P<what>Python{bounds})", message):
        yield f"it wants {found['what']}"
    wants = rf"(?P<who>[\w.-]+{bounds}?) depends on (?P<what>{name}{bounds})"
    if found := re.search(rf"(?i){wants}", message):
        yield f"{found['who']} wants {found['what']}"
    other = rf"(?P<other>[\w.-]+){bounds}"
    if found := re.search(rf"(?i)(?<![\w-]){name}{bounds}? depends on (?P<what>{other})", message):
        only = canonical(found["other"]) in lacking(message)
        yield f"it wants {found['what']}" + ", of which the index has only sources" * only
    if found := re.search(rf"(?i)all versions of {name} depend on (?P<what>{other})", message):
        yield f"each of its releases that could be had wants {found['what'].rstrip('.')}"
