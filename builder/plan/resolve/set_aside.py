"""What a project's other lists say: files beside the one that is read bind what both name, and fill in a
framework that it lacks, and what its own list of pip has beside a short one.
"""

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from packaging.requirements import Requirement

from builder.core.errors import CellError, UsageError
from builder.core.versions import apart
from builder.plan.facts.tables import load
from builder.plan.resolve.project_texts import quoted, read_text
from builder.plan.resolve.solve import Demand
from builder.plan.resolve.wishes import NamedRequirement, Wishes

_FOR_OTHERS = re.compile(
    r"(?i)dev|test|doc|lint|build|ci\b|jupyter|notebook|example|demo|opt|extra|cpu|mac|arm|rocm|win"
)
"""Names of lists for other people or other machines."""
_SHORT = 10
"""Requirements of a list that leaves the rest to another one of the project's."""


def take_aside(paths: Iterable[Path], read: Callable[[Path], Wishes], found: Wishes) -> list[str]:
    """Take over what lists beside a project's own have: bounds on what both name stand in ``aside``; a
    framework that no list has is taken with all of its list. Returns the names of those that are taken whole.
    """
    whole = list[str]()
    for path in paths:
        if _FOR_OTHERS.search(path.stem):
            continue
        other = None
        with contextlib.suppress(CellError, UsageError):  # it stands among those left aside
            other = read(path)
        if other is None:
            continue
        names = {wish.name for wish in found.wishes}
        framed = any(load().is_framework(name) for name in names)
        brings = any(load().is_framework(wish.name) for wish in other.wishes)
        if brings and not framed and len(names) <= _SHORT:
            found.take_over(other)
            whole.append(path.name)
            continue
        found.aside += (wish for wish in other.wishes if wish.name in names and wish.parsed.specifier)
        found.aside += (wish for wish in other.wishes if load().is_framework(wish.name) and not framed)
    return whole


def with_aside(demand: Demand, aside: Iterable[NamedRequirement]) -> tuple[Demand, list[str]] | None:
    """The demand within the bounds of lists beside, as far as these are not apart from its own, and what is
    to be said of it; None if they add none.
    """
    said = list[str]()
    bounds = [*aside]

    def bounded(wish: NamedRequirement) -> NamedRequirement:
        parsed = Requirement(str(wish.parsed))
        places = [wish.place]
        for other in bounds:
            same = other.name == wish.name or (
                load().is_framework(wish.name)
                and load().table_name(other.name) == load().table_name(wish.name)
            )
            if not same or not other.parsed.specifier or not _holds_on_linux(other):
                continue
            if not apart(parsed.specifier, other.parsed.specifier):
                parsed.specifier &= other.parsed.specifier
                places.append(other.place)
            else:
                said.append(f"{other} ({other.place}): left aside, {wish.place} has {wish}")
        if str(parsed) == str(wish.parsed):
            return wish
        said.append(f"{parsed.name}{parsed.specifier}: {', '.join(places[1:])}")
        return replace(wish, parsed=parsed, place=", ".join(dict.fromkeys(places)))

    changed = replace(
        demand,
        frameworks=tuple(map(bounded, demand.frameworks)),
        companions=tuple(map(bounded, demand.companions)),
    )
    return (changed, said) if changed != demand else None


def note_contradictions(others: Iterable[NamedRequirement], found: Wishes) -> None:
    """Note each release that a README's line, a script or a README's words name, and that no release of what
    the project's own list has is: the list counts, and who follows both has neither.
    """
    for other in others:
        mine = next(
            (
                wish
                for wish in found.wishes
                if wish.name == other.name
                or (
                    load().is_framework(wish.name)
                    and load().table_name(wish.name) == load().table_name(other.name)
                )
            ),
            None,
        )
        if (
            mine is None
            or mine.place == other.place
            or not apart(mine.parsed.specifier, other.parsed.specifier)
        ):
            continue
        line = _line_at(other.place)
        said = f"`{line}` installs" if line is not None and "install" in line else "says"
        found.notes.append(
            f"{other.place} {said} {other}, and {mine.place} asks for {mine}: no release is both; "
            "the latter counts, in an environment without the former"
        )


def _line_at(place: str) -> str | None:
    """The line of a text at ``README.md:12``; None where there is none."""
    file, _, number = place.rpartition(":")
    if not file or not number.isdigit():
        return None
    with contextlib.suppress(UsageError, IndexError):  # no text
        return quoted(read_text(Path(file)).splitlines()[int(number) - 1].strip())
    return None


def _holds_on_linux(wish: NamedRequirement) -> bool:
    return any(wish.holds(f"3.{minor}") for minor in range(7, 15))


def lists_in(folder: Path, names: Iterable[str]) -> Iterator[Path]:
    """Of names in a folder the lists of requirements, those of pip first."""
    listed = [folder / name for name in names]
    yield from (path for path in listed if path.suffix in {".txt", ".in"})
    yield from (path for path in listed if path.suffix in {".yml", ".yaml"})
