"""Packages beside the frameworks: NumPy's binary interface, and requirements in wheels' metadata."""

from collections.abc import Iterator

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from builder.facts import tables
from builder.facts.finding import CELL, Finding, Outcome, Source, Value, impossible, unknown, warns
from builder.facts.framework import CellFramework
from builder.facts.stack import Stack
from builder.facts.versions import canonical, contains, key, major, pinned, requirement
from builder.index.target import MACHINES, environment

Wish = tuple[str, "Requirement", Source]

_NUMPY_2 = (3, 9)
"""The oldest Python that NumPy 2 has wheels for (https://numpy.org/doc/stable/release/2.0.0-notes.html)."""


_NUMPY_2_RELEASES = ("2.0.0", "2.0.2", "2.1.3", "2.2.6", "2.3.5", "2.4.0")


def numpy(stack: Stack) -> Iterator[Finding]:
    """``numpy``: code compiled for NumPy 1 does not run with NumPy 2."""
    asked = wishes(stack).get("numpy", [])
    named = ((who, pinned(parsed), source) for who, parsed, source in asked)
    exact = next((Value(f"numpy for {who}", text, source) for who, text, source in named if text), None)
    found = _locked(stack, "numpy") or exact
    for framework in stack.frameworks:
        row = framework.row
        if row is None or row.numpy_abi is None:
            if found is not None and row is not None and major(found.text) > 1:
                yield from _not_read(framework, found)
            continue
        if major(row.numpy_abi) > 1:
            continue
        what = f"NumPy that {framework.title} was compiled for"
        built = Value(what, row.numpy_abi, row.source_of("numpy_abi"))
        if found is not None:
            if major(found.text) > 1:
                yield _refused(framework, f"NumPy {found.text} is in the image", (built, found))
        elif not stack.truth.locked and key(stack.cell.python)[:2] >= _NUMPY_2:
            yield from _left_open(stack, framework, asked, built)


def _left_open(stack: Stack, framework: CellFramework, asked: list[Wish], built: Value) -> Iterator[Finding]:
    """Nobody says which NumPy: the resolver takes the newest, if anything brings one."""
    if asked and not _bounded(asked):
        yield _refused(framework, "nothing keeps the resolver from NumPy 2: add numpy<2 to pip", (built,))
    named = [canonical(r.name) for text in stack.cell.pip if (r := requirement(text)) is not None]
    beside = [name for name in named if name not in {"setuptools", "wheel", "pip"}]
    if not asked and beside:
        yield warns(
            "numpy",
            f"{framework.label} was compiled for NumPy 1, and {', '.join(beside)} may bring NumPy 2: "
            "numpy<2 in pip keeps it out",
            built,
        )


def _refused(framework: CellFramework, why: str, values: tuple[Value, ...]) -> Finding:
    return impossible(
        "numpy", f"{framework.label} was compiled for NumPy 1 and does not run with NumPy 2; {why}", *values
    )


def _not_read(framework: CellFramework, found: Value) -> Iterator[Finding]:
    row = framework.row
    named = [r for text in (row.requires if row else ()) if (r := requirement(text)) is not None]
    admitting_1 = [
        any(contains(r.specifier, version) for version in ("1.17.0", "1.23.5", "1.26.4"))
        for r in named
        if canonical(r.name) == "numpy"
    ]
    if admitting_1 and all(admitting_1):
        yield unknown(
            "numpy",
            f"whether {framework.label} runs with NumPy {found.text} is not known: which NumPy it was "
            "compiled for was read nowhere; numpy<2 is safe, an import in the image would settle it",
            found,
        )


def _bounded(asked: list[Wish]) -> bool:
    """Whether the requirements together keep NumPy below 2."""
    return not any(all(contains(r.specifier, v) for _, r, _ in asked) for v in _NUMPY_2_RELEASES)


def _locked(stack: Stack, name: str) -> Value | None:
    wheel = stack.truth.wheel(name)
    if wheel is None:
        return None
    return Value(name, wheel.version, Source("wheel", wheel.reference))


def wishes(stack: Stack) -> dict[str, list[Wish]]:
    """Every requirement in force, by package: the cell's own, NVIDIA's pins, and the wheels' metadata."""
    cell = stack.cell
    values = environment(f"{cell.python}.0", machine=MACHINES.get(cell.platform, ""))
    asked: dict[str, list[Wish]] = {}

    def add(who: str, parsed: Requirement | None, source: Source) -> None:
        if parsed is not None and (parsed.marker is None or parsed.marker.evaluate(values)):
            asked.setdefault(canonical(parsed.name), []).append((who, parsed, source))

    for text in (*cell.frameworks, *cell.cuda.packages, *cell.pip):
        add("the cell", requirement(text), CELL)
        for name, wanted, source in _companion(requirement(text)):
            add(name, wanted, source)
    for framework in stack.frameworks:
        for parsed, source in framework.wants:
            add(framework.label, parsed, source)
        if framework.row is not None:
            source = framework.row.source_of("requires")
            for text in framework.row.requires:
                add(framework.label, requirement(text), source)
    return asked


def _companion(parsed: Requirement | None) -> Iterator[Wish]:
    """Requirements of a pinned release of torchvision and its like on the frameworks."""
    version = pinned(parsed) if parsed is not None else None
    if parsed is None or version is None:
        return
    name = canonical(parsed.name)
    for text in tables.companion_asks(name, version):
        wanted = requirement(text)
        if wanted is not None:
            yield f"{name} {version}", wanted, tables.companions()[name].source


def pins(stack: Stack) -> Iterator[Finding]:
    """``pins``: two requirements on the same package that no version satisfies."""
    for name, found in wishes(stack).items():
        clash = _clash(found)
        if clash is not None:
            one, other = clash
            # Nobody resolves a list: the pinned versions in it are installed.
            listed = stack.cell.dependencies == "listed"
            yield Finding(
                "pins",
                Outcome.WARNS if listed else Outcome.IMPOSSIBLE,
                f"{one[0]} wants {name}{one[1].specifier} and {other[0]} wants "
                f"{name}{other[1].specifier}: no version is both",
                tuple(
                    Value(f"{name} for {who}", str(asked.specifier), source) for who, asked, source in clash
                ),
            )


def _clash(found: list[Wish]) -> tuple[Wish, Wish] | None:
    for n, one in enumerate(found):
        for other in found[n + 1 :]:
            if (
                str(one[1].specifier)
                and str(other[1].specifier)
                and _apart(one[1].specifier, other[1].specifier)
            ):
                return one, other
    return None


def _apart(one: SpecifierSet, other: SpecifierSet) -> bool:
    """Whether no version is in both: tried at every bound, and next to it."""
    if not one or not other:
        return False
    versions = [clause.version.removesuffix(".*") for clause in (*one, *other)]
    near = ["0", *versions, *(f"{version.partition('+')[0]}.0.1" for version in versions)]
    return not any(contains(one, version) and contains(other, version) for version in near)
