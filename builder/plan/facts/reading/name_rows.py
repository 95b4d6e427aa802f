"""What a row of ``names.json`` keeps of a package's releases: nothing twice, and what has room."""

import datetime
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from packaging.version import Version

from builder.core.packed_text import pack_text, unpack_text
from builder.plan.facts.reading.release_days import dated

_MOST_TEXT = 910_000
"""Bytes of the table, whose rows are packed: a third of what the probe's one file has."""


def name_siblings(package: str, row: Mapping[str, Any], homes: Mapping[str, Sequence[str]]) -> None:
    """Adds the module of another package with the same two last names to a module that is gone."""
    for modules in row["gone"].values():
        for module, names in modules.items():
            tail = module.split(".")[-2:]
            if names or module.count(".") < 2:
                continue
            others = [
                one
                for name, every in homes.items()
                if name != package and _OF_ONE.get(name, name) == _OF_ONE.get(package, package)
                for one in every
                if one.split(".")[-2:] == tail
            ]
            modules[module] = ">" + others[0] if len(others) == 1 else ""


_OF_ONE = {"torchao": "torch", "langchain-core": "langchain", "torchvision": "torch", "torchaudio": "torch"}
"""Packages that a part of another one moves to."""


def told_once(row: Mapping[str, Any]) -> dict[str, Any]:
    """Without what a row says twice: a new name of a module within others, if an outer module has it from the
    same release on, too. The classes with the same bases stand together.
    """
    bases, alike = dict[str, set[str]](), dict[str, set[str]]()
    for base, below in row.get("classes", {}).items():
        for name in below.split(" "):
            bases.setdefault(name, set()).update(base.split(" "))
    for name, above in bases.items():
        alike.setdefault(" ".join(sorted(above)), set()).add(name)
    inner = dict[str, Any]()
    if "classes" in row:
        inner["classes"] = {above: " ".join(sorted(names)) for above, names in sorted(alike.items())}
        inner["members brought"] = _without_private(row["members brought"])
    return {**row, "new": _once(row["new"], 2), **inner}


def _without_methods(row: Mapping[str, Any]) -> dict[str, Any]:
    """The new keywords of functions and constructors, and those that many classes take alike."""
    if "classes" not in row:
        return {}
    kept = {
        place: {owner: names for owner, names in rows.items() if "." not in owner or owner[0] == "*"}
        for place, rows in row["keywords brought"].items()
    }
    return {"keywords brought": {place: rows for place, rows in kept.items() if rows}}


_OF_MANY = 6


def _alike_once(row: Mapping[str, Any]) -> dict[str, Any]:
    """The new keywords that many constructors take from one release on stand under ``*``."""
    if "classes" not in row:
        return {}
    kept = dict[str, dict[str, str]]()
    for place, rows in row["keywords brought"].items():
        count = dict[str, int]()
        for owner, names in rows.items():
            for name in names.split(" ") if owner[:1].isupper() and "." not in owner else ():
                count[name] = count.get(name, 0) + 1
        many = {name for name, number in count.items() if number >= _OF_MANY}
        told = {
            owner: " ".join(name for name in names.split(" ") if name not in many or not owner[:1].isupper())
            for owner, names in rows.items()
        }
        kept[place] = {owner: names for owner, names in told.items() if names}
        if many:
            kept[place]["*"] = " ".join(sorted(many))
    return {"keywords brought": kept}


def _once(places: Mapping[str, Mapping[str, str]], inner: int) -> dict[str, dict[str, str]]:
    """Without the names of modules with so many points that an outer module has in the same place, too."""
    found = dict[str, dict[str, str]]()
    for place, modules in places.items():
        depth = dict[str, int]()
        for module, names in modules.items():
            for name in names.split(" "):
                bare = name.partition(">")[0]
                depth[bare] = min(depth.get(bare, 99), module.count("."))
        told = {
            module: " ".join(
                name
                for name in names.split(" ")
                if not name.partition(">")[0]
                or module.count(".") < inner
                or depth[name.partition(">")[0]] == module.count(".")
            )
            for module, names in modules.items()
        }
        found[place] = {module: names for module, names in told.items() if names or not modules[module]}
    return found


def _without_private(places: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, str]]:
    """Whoever asks a class for a private name has had it from an older release."""
    public = {
        place: {
            owner: " ".join(one for one in names.split(" ") if one[0] != "_") for owner, names in rows.items()
        }
        for place, rows in places.items()
    }
    return {place: {owner: names for owner, names in rows.items() if names} for place, rows in public.items()}


_MOST_OF_ONE = (120_000, 90_000, 75_000, 60_000, 50_000, 42_000, 36_000, 30_000, 24_000, 18_000, 12_000)
"""Characters of the largest rows as they are packed, of which the first with which all rows have room is
taken."""
_MONTHS = 30
"""Before the newest day of the table of days: whoever has an older release lacks more than one name."""
_BROUGHT = ("new", "members brought", "keywords brought")


def old_releases(table: Mapping[str, Mapping[str, str]]) -> dict[str, Version]:
    """The newest release of each package of ``release_days.json`` that was :data:`_MONTHS` old on its last
    day.
    """
    rows = {name: dated(row) for name, row in table.items()}
    last = max((day for row in rows.values() for _, day in row), default=datetime.date.min)
    end = last - datetime.timedelta(days=min(30 * _MONTHS, last.toordinal() - 1))
    found = {name: [version for version, day in row if day <= end] for name, row in rows.items()}
    return {name: max(versions) for name, versions in found.items() if versions}


def _brought_since(row: dict[str, Any], old: Version) -> dict[str, Any]:
    """Without what that release and those before it brought, but for names of outer modules."""

    def kept(kind: str, place: str, owner: str) -> bool:
        return Version(place) > old or (kind == "new" and owner.count(".") < 2)

    brought = {
        kind: {
            place: rows
            for place, names in row[kind].items()
            if (rows := {owner: text for owner, text in names.items() if kept(kind, place, owner)})
        }
        for kind in _BROUGHT
        if kind in row
    }
    return {**row, **brought}


_CUTS: tuple[Callable[[dict[str, Any]], dict[str, Any]], ...] = (
    lambda row: {name: value for name, value in row.items() if name != "bound"},
    lambda row: _cut(row, "new", 4),
    lambda row: _cut(row, "new", 2, private=True),
    lambda row: {**row, "gone": _once(row["gone"], 1), "new": _once(row["new"], 1)},
    lambda row: _cut(row, "new", 3),
    lambda row: {**row, **_without_methods(row)},
    lambda row: {**row, **_alike_once(row)},
    lambda row: _cut(row, "new", 2),
    lambda row: {**row, "members brought": {}} if "classes" in row else row,
    lambda row: {**row, "keywords brought": {}} if "classes" in row else row,
    lambda row: _cut(row, "gone", 3),
    lambda row: _cut(row, "new", 1),
    lambda row: _cut(row, "gone", 2),
)
"""What a row that is too large goes without, what is asked for least first."""


def _cut(row: dict[str, Any], kind: str, depth: int, *, private: bool = False) -> dict[str, Any]:
    """Without the names, or the private ones, of modules with so many points in their names."""
    found = dict[str, dict[str, str]]()
    for place, modules in row[kind].items():
        kept = dict[str, str]()
        for module, names in modules.items():
            public = " ".join(name for name in names.split(" ") if private and name[:1] != "_")
            if module.count(".") < depth or public or (not names and private):
                kept[module] = names if module.count(".") < depth else public
        if kept:
            found[place] = kept
    return {**row, kind: found}


def packed_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row as the table has it."""
    return {"roots": row["roots"], "row": pack_text(json.dumps(row, separators=(",", ":")))}


def within(rows: Mapping[str, Mapping[str, Any]], old: Mapping[str, Version]) -> str:
    """The table as text, a line for each package, of rows as :func:`packed_row` makes them; the largest ones
    without what is asked for least, the others as they are. ``old``: as :func:`old_releases` has it.
    """
    text = "{}\n"
    for most in _MOST_OF_ONE:
        lines = [
            f"{json.dumps(name)}: {json.dumps(_cut_to(row, most, old.get(name)))}"
            for name, row in rows.items()
        ]
        text = "{\n" + ",\n".join(lines) + "\n}\n"
        if len(text) <= _MOST_TEXT:
            break
    return text


def _cut_to(packed: Mapping[str, Any], most: int, old: Version | None) -> Mapping[str, Any]:
    row = json.loads(unpack_text(packed["row"])) if len(packed["row"]) > most else {}
    first = () if old is None else (lambda row: _brought_since(row, old),)
    for cut in (*_CUTS[:1], *first, *_CUTS[1:]):
        if len(packed["row"]) <= most:
            break
        row = {**cut(row), **({"cut": 1} if cut != _CUTS[0] else {})}
        packed = packed_row(row)
    return packed
