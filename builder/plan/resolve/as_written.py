"""The releases with which a project's own sources work as they are written: bounds by what its C++ and CUDA
code takes of PyTorch, by the C++ standard that its build asks for, and by tests that misread versions.

Who edits the sources needs none of these bounds, so that they give way where a machine takes no such release;
the notes say what to edit.
"""

import contextlib
import itertools
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from builder.core.errors import UsageError
from builder.core.versions import apart, canonical, contains, key, pinned
from builder.plan.facts.tables import load
from builder.plan.resolve.project_texts import read_text
from builder.plan.resolve.solve import Demand, Proposal, closest
from builder.plan.resolve.wishes import NamedRequirement, Wishes

_CPP = (".cpp", ".cu", ".h", ".cuh", ".cc")
"""Suffixes of sources that nvcc and the C++ compiler read."""


def note_as_written(sources: Iterable[Path], found: Wishes) -> None:
    """Remember the bounds of a project's sources, with a note each; those of one kind count once.

    What a source tests for (a version, ``__has_include``, a definition of its own) bounds nothing.
    """
    seen = dict[tuple[str, str], list[str]]()
    whole = dict[tuple[str, str], str]()
    for path in sources:
        with contextlib.suppress(UsageError):  # no text, or too long: another file tells
            text = read_text(path)
            take = _in_cpp if path.suffix in _CPP else _in_python
            for at, bound, why, edit in take(text):
                seen.setdefault((bound, why), []).append(f"{path}:{text.count(chr(10), 0, at) + 1}")
                whole.setdefault((bound, why), edit)
    for (bound, why), places in seen.items():
        files = dict.fromkeys(place.rpartition(":")[0] for place in places)
        more = f" and {len(files) - 1} more files" if len(files) > 1 else ""
        told = f"{places[0]}{more}: {why}: {whole[bound, why].replace('FILES', ' '.join([*files][:6]))}"
        found.notes.append(told)
        parsed = Requirement(bound)
        found.unedited.append(NamedRequirement(parsed=parsed, place=places[0], use=told))


_Bound = tuple[int, str, str, str]
"""Where it stands in the text, the bound, why, and what to edit for a later release."""
_INCLUDE = re.compile(
    r"(?m)^[ \t]*#[ \t]*(?:include[ \t]*[<\"](?P<header>[^>\"\n]+)[>\"]|(?P<word>\w+)(?P<rest>.*))"
)
_TESTS = re.compile(r"(?i)version|has_include|\bhip|rocm|ascend|musa")
"""Conditions of the preprocessor by which a source serves several releases, or another maker's cards."""
_OLD_DISPATCH = re.compile(r"\bAT_DISPATCH_\w+\(\s*[\w.>\[\]-]+?(?:\.|->)type\(\)")
_STANDARD = re.compile(r"['\"]-{1,2}std=(?:c|gnu)\+\+(\w\w)['\"]")
_STANDARDS = {"0x": 11, "1y": 14, "1z": 17, "2a": 20, "2b": 23}
"""Names of a standard before it had its year: https://gcc.gnu.org/onlinedocs/gcc/C-Dialect-Options.html"""


def _in_cpp(text: str) -> Iterator[_Bound]:
    """What C++ and CUDA code takes of PyTorch that a release took away."""
    headers, removed = load().torch_headers, {row.name: row for row in load().removed_names}
    open_ = list[bool]()
    for line in _INCLUDE.finditer(text):
        word, header = line["word"], line["header"]
        if word in {"if", "ifdef", "ifndef"}:
            open_.append(_TESTS.search(line["rest"]) is not None)
        elif word == "endif" and open_:
            open_.pop()
        elif header and not any(open_):
            # PyTorch's tool for extensions put its folders TH and THC on the compiler's path, too
            names = (header,) if "/" in header else (header, f"THC/{header}", f"TH/{header}")
            name = next((one for one in names if one in headers.gone or one in removed), None)
            if name is None:
                continue
            until, now = headers.gone.get(name) or (removed[name].until, "")
            now = removed[name].instead if name in removed else now
            edit = f"put {now} there" if now else "take what stands for it there"
            why = f"{name}, which PyTorch has no longer from {until} on"
            yield line.start(), f"torch<{until}", why, f"{edit} before it is compiled"
    for name, row in removed.items():
        if "/" in name:
            continue  # an include
        found = re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text)
        if found is not None and not re.search(
            rf"(?m)^\s*#\s*(?:define|ifdef|ifndef)\s+{re.escape(name)}", text
        ):
            why = f"{name}, which PyTorch has no longer from {row.until} on"
            yield found.start(), f"torch<{row.until}", why, f"put {row.instead} there before it is compiled"
    if headers.by_type_until is not None and (old := _OLD_DISPATCH.search(text)) is not None:
        why = f"AT_DISPATCH_… by .type(), which PyTorch takes no longer from {headers.by_type_until} on"
        yield (
            old.start(),
            f"torch<{headers.by_type_until}",
            why,
            "put .scalar_type() there before it is compiled",
        )


def _in_python(text: str) -> Iterator[_Bound]:
    """The C++ standard of a build by PyTorch's tool, and tests of versions that misread releases."""
    if "cpp_extension" in text:
        asked = [
            (_STANDARDS.get(one[1]) or int(one[1]), one)
            for one in _STANDARD.finditer(text)
            if one[1] in _STANDARDS or one[1].isdecimal()
            if "#" not in text[text.rfind("\n", 0, one.start()) + 1 : one.start()]
        ]
        least, one = min(asked, key=lambda pair: pair[0], default=(99, None))
        steps = sorted(load().torch_headers.standards.items(), key=lambda pair: key(pair[0]))
        refused = next(((until, needs) for until, needs in steps if needs > least), None)
        if refused is not None and one is not None:
            until, needs = refused
            why = f"{one[0]}, and PyTorch's headers ask for C++{needs} from {until} on"
            yield one.start(), f"torch<{until}", why, f"`sed -i 's/{_plain(one[0])}/-std=c++{needs}/' FILES`"
    yield from _misread(text)


def _plain(quoted: str) -> str:
    return quoted.strip("'\"").replace("--std", "-std").replace("+", "[+]")


# -- tests of versions: '0.10.1'[:3] is '0.1'

_TEST = re.compile(
    r"(?P<as>float\()?\s*(?<![\w.])(?P<module>torch\w*|tensorflow|tf|np|numpy)\.__version__"
    r"(?:\[:(?P<letters>\d)\])?\s*(?P<end>\))?\s*(?P<sign><=|>=|<|>)\s*(?P<quote>['\"]?)(?P<than>\d+\.\d+(?:\.\d+)*)(?P=quote)"
)
"""Tests of a version as a number, or letter by letter."""
_MODULES = {"np": "numpy", "tf": "tensorflow"}
_SIGNS: Mapping[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


def _misread(text: str) -> Iterator[_Bound]:
    """The bounds by tests of versions that are wrong for some releases on record of a package."""
    for test in _TEST.finditer(text):
        name = _MODULES.get(test["module"], test["module"])
        as_number = test["as"] is not None and test["end"] is not None and test["letters"] == "3"
        by_letters = test["as"] is None and test["end"] is None and bool(test["quote"])
        if not (as_number and not test["quote"]) and not by_letters:
            continue
        holds, than = _SIGNS[test["sign"]], test["than"]

        def is_wrong(version: str) -> bool:
            seen = version[: int(test["letters"])] if test["letters"] else version  # noqa: B023
            said = holds(float(seen), float(than)) if as_number else holds(seen, than)  # noqa: B023
            digits = max(2, than.count(".") + 1) if not test["letters"] else 2  # noqa: B023
            return said is not holds(key(version)[:digits], key(than)[:digits])  # noqa: B023

        every = _releases(name)
        wrong = {version for version in every if is_wrong(version)}
        lines = {key(one)[:2] for one in wrong} - {key(one)[:2] for one in {*every} - wrong}
        if not lines:
            continue
        first = min(lines)
        told = test[0].strip()
        why = f"`{told}` is misread of {name} {first[0]}.{first[1]}, whose minor has two digits"
        edit = f"compare `packaging.version.Version({test['module']}.__version__)` with `Version('{than}')`"
        yield test.start(), f"{name}{_without(lines, {key(one)[:2] for one in every})}", why, f"{edit} there"


def _releases(name: str) -> list[str]:
    """The releases on record of a framework or of a package beside it."""
    rows: Sequence[object] = load().table(name).rows if load().is_framework(name) else ()
    table = load().packages.get(name)
    rows = rows or (table.rows if table is not None else ())
    return [*dict.fromkeys(str(row.version) for row in rows)]  # type: ignore[attr-defined]


def _without(lines: set[tuple[int, ...]], every: set[tuple[int, ...]]) -> str:
    """The specifier that leaves out some minor lines: ``<0.10``, if none after them stays."""
    first = min(lines)
    if all(one in lines for one in every if one >= first):
        return f"<{first[0]}.{first[1]}"
    return ",".join(f"!={line[0]}.{line[1]}.*" for line in sorted(lines))


# -- demands by these bounds


def unedited(
    demand: Demand, asked: Wishes, available: Mapping[str, Sequence[str]]
) -> tuple[Demand, list[str]] | None:
    """The demand within what its sources take as they are written, and what is to be said of it; None if
    nothing bounds it, or if the machine takes no release within.
    """
    bounds = {wish.name: wish for wish in (*demand.frameworks, *demand.companions)}
    taken = dict[str, SpecifierSet]()
    for one in asked.unedited:
        for bound in (one.parsed, *_of_pytorch(one.parsed)):
            wish = bounds.get(canonical(bound.name))
            if wish is None or apart(wish.parsed.specifier, bound.specifier):
                continue
            taken[wish.name] = taken.get(wish.name, SpecifierSet()) & bound.specifier
    if not taken:
        return None

    def bounded(wish: NamedRequirement) -> NamedRequirement:
        if wish.name not in taken:
            return wish
        parsed = Requirement(str(wish.parsed))
        parsed.specifier &= taken[wish.name] if pinned(parsed) is None else SpecifierSet()
        return replace(wish, parsed=parsed, proven=wish.proven & taken[wish.name])

    frameworks = tuple(map(bounded, demand.frameworks))
    found = replace(demand, frameworks=frameworks, companions=tuple(map(bounded, demand.companions)))
    freed = tuple(one.bound(str(one.proven)) if one.name in taken else one for one in frameworks)
    if closest(replace(found, frameworks=freed, companions=()), {}, available=available) is None:
        return None
    said = ", ".join(f"{name}{specifier}" for name, specifier in taken.items())
    places = ", ".join(dict.fromkeys(one.place for one in asked.unedited))
    return found, [f"{said}: with these the sources work as they are ({places}); a later one takes the edits"]


def _of_pytorch(bound: Requirement) -> Iterator[Requirement]:
    """What a bound of torchvision's or torchaudio's is of PyTorch's, by their own pins on it."""
    if bound.name == "torch" or not bound.name.startswith("torch"):
        return
    table = load().packages.get(bound.name)
    inside, outside = set[tuple[int, ...]](), set[tuple[int, ...]]()
    for row in table.rows if table is not None else ():
        pins = (pinned(one) for one in map(Requirement, row.requires) if canonical(one.name) == "torch")
        lines = {key(version)[:2] for version in pins if version is not None}
        (inside if contains(bound.specifier, row.version) else outside).update(lines)
    if inside and (lines := outside - inside):
        yield Requirement(f"torch{_without(lines, inside | outside)}")


def ways_as_written(
    ways: Sequence[tuple[Demand, list[str]]], asked: Wishes, available: Mapping[str, Sequence[str]]
) -> list[tuple[Demand, list[str]]]:
    """The ways, after the first of them that goes within the bounds of the sources."""
    bounded = (
        (within[0], [*said, *within[1]])
        for demand, said in ways
        if (within := unedited(demand, asked, available)) is not None
    )
    return [*itertools.islice(bounded, 1), *ways]


def near_as_written(demand: Demand, asked: Wishes, available: Mapping[str, Sequence[str]]) -> Demand:
    """The demand within the bounds of its sources, if the machine takes it; else as it is."""
    within = unedited(demand, asked, available)
    return within[0] if within is not None else demand


def of_unedited(asked: Wishes, best: Proposal) -> Iterator[str]:
    """What of a project's sources is to be edited for a proposal, and what bounds its PyTorch."""
    release_ = {
        canonical(one.name): (pinned(one) or "").partition("+")[0]
        for one in map(Requirement, (*best.cell.frameworks, *best.cell.pip))
    }
    for one in asked.unedited:
        if version := release_.get(one.name):
            within = contains(one.parsed.specifier, version)
            yield f"{one.parsed}, or edit for a later one: {one.use}" if within else one.use
