"""Packages beside a framework whose wheels are for one CUDA: their names tell it (spconv-cu117), or they lie
on a page of their maker's (DGL, PyTorch Geometric, MMCV). They follow the framework's.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from builder.core.model import Cell
from builder.core.versions import apart, canonical, key, pinned, short
from builder.plan.facts.tables import WheelPageRow, load
from builder.plan.lock import pip_install
from builder.plan.resolve.wishes import NamedRequirement

_NAMED = re.compile(r"(?P<what>.+)-cu(?:da)?(?P<digits>\d{2,3})x?")


def of_framework(wish: NamedRequirement, cell: Cell) -> tuple[NamedRequirement, str]:
    """The requirement by the distribution for the CUDA of a cell's frameworks, and why; itself, and nothing,
    if its name tells no CUDA, or no other is on record.
    """
    mine = _NAMED.fullmatch(wish.name)
    row = next((row for row in load().same_files if wish.name in row.names), None) if mine else None
    cuda = _built_for(cell) if row is not None else None
    if mine is None or row is None or cuda is None or len(key(cuda)) < 2:
        return wish, ""
    there = {name: _digits(found["digits"]) for name in row.names if (found := _NAMED.fullmatch(name))}
    same = {name: number for name, number in there.items() if number[0] == key(cuda)[0]}
    fitting = {name: number for name, number in same.items() if number <= key(cuda)[:2]} or same
    best = max(fitting, key=lambda name: fitting[name], default=wish.name)
    if best == wish.name or same.get(wish.name) == fitting.get(best):
        return wish, ""
    was = ".".join(map(str, _digits(mine["digits"])))
    why = (
        f"{wish.name} ({wish.place}) is for CUDA {was}, and {', '.join(cell.frameworks)} for {short(cuda, 2)}"
    )
    return wish.named(best), f"{best}: {why}"


def _built_for(cell: Cell) -> str | None:
    """The CUDA that the first framework's build is for, whatever the base has; None if nobody read it."""
    for parsed in map(Requirement, cell.frameworks):
        version, _, build = (pinned(parsed) or "").partition("+")
        for row in load().table(canonical(parsed.name)).of(version):
            if row.cuda is not None and (row.variant == build if build else row.default):
                return row.cuda
    return None


def _digits(text: str) -> tuple[int, ...]:
    """(11, 7) of ``117``; (12, 0) of ``12``, which is for all of 12."""
    return int(text[:2]), int(text[2:] or 0)


def followed(wishes: Iterable[NamedRequirement], cell: Cell) -> tuple[list[NamedRequirement], list[str]]:
    """Requirements by their distributions for a cell's CUDA, and why each that is another."""
    pairs = [of_framework(wish, cell) for wish in wishes]
    return [wish for wish, _ in pairs], [why for _, why in pairs if why]


# -- pages of wheels


@dataclass(frozen=True, kw_only=True)
class PageWheel:
    """A requirement whose wheels with CUDA lie on a page alone."""

    asked: NamedRequirement
    row: WheelPageRow

    def line(self, cell: Cell) -> str:
        """What pip is typed for it beside a cell, or why its page is not known to have a wheel for that."""
        address, has = page_of(self.row.name, cell), "is a name without code"
        if self.row.index == "cpu":
            has = "computes on the CPU alone"
        if address is None:
            return (
                f"{self.asked} is left out above: the package index's {self.row.name} {has}, and of its "
                f"maker's pages with CUDA, known for PyTorch {', '.join(self.row.builds)}, none is for "
                f"{', '.join(cell.frameworks)} [{self.row.source}]"
            )
        exact = pinned(self.asked.parsed) or ""
        spec = "" if "+" in exact else str(self.asked.parsed.specifier)
        wanted = (f"{self.row.name}{spec}", *self.row.beside)
        why = f"the package index's {self.row.name} {has} (the page itself was not read)"
        return f"then, {why}: {pip_install(wanted, (), (address,))} [{self.row.source}]"


def page_of(name: str, cell: Cell) -> str | None:
    """The page with a package's wheels for a cell's PyTorch and its CUDA; None if none is known."""
    row = load().wheel_pages.get(canonical(name))
    torch = next((one for one in map(Requirement, cell.frameworks) if canonical(one.name) == "torch"), None)
    cuda = _built_for(cell)
    if row is None or torch is None or cuda is None:
        return None
    version = (pinned(torch) or "").partition("+")[0]
    build = f"cu{short(cuda, 2).replace('.', '')}"
    if row.builds and f"{short(version, 2)}+{build}" not in row.builds:
        return None
    of_line = f"{short(version, 2)}.0"  # the pages of later patches are the same, by their makers
    return row.page.format(cuda=build, torch=short(version, 2), release=of_line, exact=version)


def pages_of(texts: Iterable[str], cell: Cell) -> Iterator[str]:
    """The pages of what is left to be installed after the others, each once."""
    names = (
        canonical(Requirement(text).name) for text in texts if re.match(r"[\w.-]+(?:$|[<>=!~\[ ])", text)
    )
    yield from dict.fromkeys(address for name in names if (address := page_of(name, cell)) is not None)


def without_pages(
    frameworks: Iterable[NamedRequirement], companions: Iterable[NamedRequirement]
) -> tuple[tuple[NamedRequirement, ...], tuple[NamedRequirement, ...], list[PageWheel]]:
    """Requirements without those whose wheel on an index computes on the CPU alone beside PyTorch, or has no
    code, which is bound to the releases that their pages have wheels for; and what was taken out.
    """
    wishes, beside = [*frameworks], [*companions]
    torch = next((wish for wish in wishes if wish.name == "torch"), None)
    rows = load().wheel_pages
    taken = [
        PageWheel(asked=wish, row=rows[wish.name])
        for wish in beside
        if torch is not None and wish.name in rows and rows[wish.name].index in {"cpu", "placeholder"}
    ]
    for one in taken:
        minors = [build.partition("+")[0] for build in one.row.builds]
        oldest, newest = min(minors, key=key), max(minors, key=key)
        bound = SpecifierSet(f">={oldest},<{key(newest)[0]}.{key(newest)[1] + 1}")
        for number, wish in enumerate(wishes):
            open_ = pinned(wish.parsed) is None and not apart(wish.parsed.specifier, bound)
            if wish.name == "torch" and open_:
                parsed = Requirement(str(wish.parsed))
                parsed.specifier &= bound
                wishes[number] = replace(wish, parsed=parsed, place=f"{wish.place}, wheels of {one.asked}")
    gone = [one.asked for one in taken]
    return tuple(wishes), tuple(wish for wish in beside if wish not in gone), taken
