"""Notes on the cards of a set and on packages that stand together: what is not computed on an old card, which
import comes first, and what must not be beside.
"""

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from packaging.requirements import Requirement

from builder.core.model import Cell
from builder.core.versions import canonical, contains, key, pinned, short
from builder.plan.facts.tables import Row, TableFile, cards_of, load


@dataclass(frozen=True, kw_only=True, eq=False)
class CardNoteRow(Row):
    """What packages do not do on cards below a compute capability; ``set-notes.toml`` says how."""

    below: str
    with_: tuple[str, ...]
    text: str
    ways: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class SetNoteRow(Row):
    """What has to be known of packages that stand together; ``set-notes.toml`` says how."""

    all: tuple[str, ...]
    any: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    text: str


@functools.cache
def _tables() -> tuple[tuple[CardNoteRow, ...], tuple[SetNoteRow, ...]]:
    file = TableFile(load().folder / "set-notes.toml")
    for raw in file.values["cards"]:
        raw["with_"] = raw.pop("with")
    return file.rows(CardNoteRow, "cards"), file.rows(SetNoteRow, "sets")


def of_old_cards(cell: Cell, gpus: Sequence[str]) -> Iterator[str]:
    """What packages of a cell do not do on the older of the cards, and what is written in its place."""
    there = _there(cell)
    for row in _tables()[0]:
        old = [card for card in cards_of(gpus) if key(card.capability) < key(row.below)]
        if old and any(_meets(text, there) for text in row.with_):
            cards = ", ".join(f"{card.name} ({card.capability})" for card in old)
            ways = "".join(f"; {name}: {way}" for name, way in row.ways.items() if name in there)
            yield f"{row.text.format(cards=cards, ways=ways)} [{row.source}]"


def of_packages_together(cell: Cell) -> Iterator[str]:
    """The order of imports, and what shares a GPU and a folder, of a cell's packages."""
    there = _there(cell)
    for row in _tables()[1]:
        if not all(_meets(text, there) for text in row.all):
            continue
        if row.any and not any(_meets(text, there) for text in row.any):
            continue
        if any(_meets(text, there) for text in row.without):
            continue
        version = pinned(there[canonical(Requirement(row.all[0]).name)])
        of_minor = f"=={short(version, 2)}.*" if version is not None else ""
        yield f"{row.text.format(of_minor=of_minor)} [{row.source}]"
    if len(cell.frameworks) > 1:
        yield from _not_beside(there)


def _not_beside(there: Mapping[str, Requirement]) -> Iterator[str]:
    """The names that write the same files as a framework of several."""
    for row in load().same_files:
        mine = [name for name in row.names if name in there]
        if len(mine) != 1 or not load().is_framework(mine[0]):
            continue
        others = [name for name in row.names if name != mine[0]]
        plain = load().table_name(mine[0])
        others = list(dict.fromkeys(([plain] if plain != mine[0] else []) + others))
        shown = ", ".join(others[:3]) + (" and the like" if len(others) > 3 else "")
        yield (
            f"no other of {mine[0]}'s kind beside it ({shown}): they write the same files; what is there "
            f"goes first: `pip uninstall -y {' '.join(others[:3])}` [{row.source}]"
        )


def _there(cell: Cell) -> dict[str, Requirement]:
    """The requirements of a cell by name, and by that of their framework: ``cupy`` of ``cupy-cuda12x``."""
    found = dict[str, Requirement]()
    for one in map(Requirement, (*cell.cuda.packages, *cell.pip, *cell.frameworks)):
        found[canonical(one.name)] = one
        found.setdefault(load().table_name(canonical(one.name)), one)
    return found


def _meets(text: str, there: Mapping[str, Requirement]) -> bool:
    """Whether a package of the set is one that a requirement means; a release left open is."""
    wanted = Requirement(text)
    mine = there.get(canonical(wanted.name))
    if mine is None or not {*_extras(wanted)} <= {*_extras(mine)}:
        return False
    version = (pinned(mine) or "").partition("+")[0]
    return not version or contains(wanted.specifier, version)


def _extras(parsed: Requirement) -> Iterable[str]:
    return map(canonical, parsed.extras)
