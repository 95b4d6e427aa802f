"""Versions that do not go together: NumPy's binary interface, wheels' requirements, and what others found."""

import functools
import itertools
import re
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from builder.core.link_set import WheelLinks
from builder.core.model import Cell
from builder.core.versions import (
    all_within,
    apart,
    at_least,
    canonical,
    contains,
    holds,
    key,
    major,
    pinned,
    requirement,
    short,
)
from builder.plan.facts.rules.bounds import NO_PACKAGES, bounds_of_row
from builder.plan.facts.rules.cell_packages import PYTORCH, CellFramework, CellPackage
from builder.plan.facts.rules.finding import CELL, Finding, Outcome, Value, impossible, unknown, warns
from builder.plan.facts.rules.image_contents import Stack, component_versions
from builder.plan.facts.rules.same_files import distributions
from builder.plan.facts.tables import BadRow, GpuRow, Source, card_of, load

Wish = tuple[str, "Requirement", Source]

_NUMPY_2 = (3, 9)
"""The oldest Python that NumPy 2 has wheels for (https://numpy.org/doc/stable/release/2.0.0-notes.html)."""


_NUMPY_2_RELEASES = ("2.0.0", "2.0.2", "2.1.3", "2.2.6", "2.3.5", "2.4.0")


def numpy(stack: Stack) -> Iterator[Finding]:
    """``numpy``: code compiled for NumPy 1 does not run with NumPy 2."""
    asked = wishes(stack).get("numpy", [])
    found = _numpy_there(stack, asked)
    second = found is not None and major(found.text) > 1
    for framework in stack.frameworks:
        row = framework.row
        if row is None or (row.numpy_abi is not None and major(row.numpy_abi) > 1):
            continue
        if row.numpy_abi is None:
            if found is not None and second:
                yield from _not_read(framework, row.requires, found)
            continue
        what = f"NumPy that {framework.title} was compiled for"
        built = Value(what, row.numpy_abi, row.source_of("numpy_abi"))
        if found is None and not stack.truth.locked and key(stack.cell.python)[:2] >= _NUMPY_2:
            yield from _left_open(stack, framework, asked, built)
        elif found is not None and second:
            yield _refused(framework, f"NumPy {found.text} is in the image", built, found)


def package_numpy(stack: Stack) -> Iterator[Finding]:
    """``package-numpy``: the compiled code of a package gets no NumPy that it does not run with."""
    yield from _numpy_of_lock(stack)
    if not stack.beside:
        return
    every = wishes(stack).get("numpy", [])
    for one in stack.beside:
        if one.version is None or (one.row is not None and one.row.archive == "source"):
            continue
        # of a release that a resolver takes, what it wants is among no one's wishes
        own = [(one.label, parsed, one.row.source) for parsed in _numpy_of(stack, one)] if one.row else []
        asked = [*every, *(wish for wish in own if one.chosen)]
        found = _numpy_there(stack, asked)
        if found is None and not _comes_as_2(stack, asked):
            continue
        if found is not None and major(found.text) < 2:
            continue
        abi = one.table.numpy_abi(one.version)
        if abi == "1":
            source = one.row.source_of("numpy_abi") if one.row is not None else one.table.rows[-1].source
            built = Value(f"NumPy that {one.name} was compiled for", "1", source)
            why = "nothing keeps the resolver from NumPy 2: add numpy<2 to pip"
            if found is not None:
                why = f"NumPy {found.text} is in the image: add numpy<2 to pip{_for_numpy_2(one)}"
            text = f"{one.label} was compiled for NumPy 1 and does not run with NumPy 2; {why}"
            yield replace(impossible(text, *filter(None, (built, found))), bounds=("numpy<2",))
        elif (
            abi is None
            and own
            and one.row is not None
            and (unread := one.row.unread.get("numpy_abi")) is not None
            and not (found is not None and any(_promised(asks.specifier, found.text) for _, asks, _ in own))
        ):
            text = f"whether {one.label} runs with NumPy 2 is not known: {unread}; numpy<2 is safe"
            yield unknown(text, Value(one.name, one.version, one.source))


_NUMPY_API = {11: "1.13", 12: "1.14", 13: "1.16", 14: "1.20", 15: "1.22", 16: "1.23", 17: "1.25", 18: "2.0"}
"""The first release of NumPy with each API version of its C interface (``numpy/numpyconfig.h`` of 2.0.2)."""


def _numpy_of_lock(stack: Stack) -> Iterator[Finding]:
    """Wheels of a lock that are on no record, by their own libraries."""
    found = stack.truth.wheel("numpy")
    if found is None:
        return
    judged = {"numpy", *(one.name for one in stack.frameworks if one.row is not None)}
    judged |= {one.name for one in stack.beside if one.version and one.table.numpy_abi(one.version)}
    outcome = Outcome.WARNS if stack.cell.dependencies == "listed" else Outcome.IMPOSSIBLE
    for wheel in stack.truth.links:
        least = _NUMPY_API.get(wheel.numpy_api or 0)
        if wheel.name in judged or _is_of_jax(wheel):
            continue
        if set(wheel.numpy.values()) == {"1"} and major(found.version) >= 2:
            built, way = "1", "numpy<2"
            said = "was compiled for NumPy 1 and does not run with NumPy 2"
            unread = sorted(path for path in wheel.unread if stack.truth.comes_to((path,)))
            if unread and not stack.truth.comes_to(wheel.numpy):
                text = f"whether {wheel.label} runs with NumPy {found.version} is not known: its import loads"
                ours = Value(f"not read of {wheel.name}", unread[0], Source("wheel", wheel.label))
                yield unknown(f"{text} {unread[0]}, which was not read; {way} is safe", ours)
                continue
        elif least is not None and not at_least(found.version, least):
            built, way = least, f"numpy>={least}"
            said = f"was compiled for NumPy {least} and does not load with an older one"
        else:
            continue
        yield Finding(
            outcome,
            f"{wheel.label} {said}; NumPy {found.version} is in the image: add {way} to pip, or take another"
            f" release of {wheel.name}",
            (
                Value(f"NumPy that {wheel.name} was compiled for", built, Source("wheel", wheel.label)),
                Value("numpy", found.version, found.source),
            ),
            bounds=(way,),
        )


def _is_of_jax(wheel: WheelLinks) -> bool:
    """Whether it is a jaxlib on record, whose NumPy stands in JAX's own rows."""
    rows = load().frameworks["jax"].of(wheel.version, "jax") if wheel.name == "jaxlib" else ()
    return any(row.numpy_abi is not None and major(row.numpy_abi) >= 2 for row in rows)


def _for_numpy_2(one: CellPackage) -> str:
    """The oldest release of a package from which on all on record run with NumPy 2."""
    fitting = list(itertools.takewhile(lambda row: row.numpy_abi == "2", one.table.rows))
    return f", or {one.name}>={fitting[-1].version}" if fitting else ""


def _numpy_of(stack: Stack, one: CellPackage) -> Iterator[Requirement]:
    """A package's requirements of NumPy on this Python."""
    for parsed in one.row.asks("numpy") if one.row is not None else ():
        if holds(parsed, stack.markers):
            yield parsed


def _numpy_there(stack: Stack, asked: list[Wish]) -> Value | None:
    """The NumPy of the lock, else the one that somebody pins."""
    if (wheel := stack.truth.wheel("numpy")) is not None:
        return Value("numpy", wheel.version, wheel.source)
    named = ((who, pinned(parsed), source) for who, parsed, source in asked)
    return next((Value(f"numpy for {who}", text, source) for who, text, source in named if text), None)


def _comes_as_2(stack: Stack, asked: list[Wish]) -> bool:
    """Whether a resolver takes a NumPy 2, which it does where it may."""
    listed = stack.truth.locked or stack.cell.dependencies == "listed"
    return (
        bool(asked)
        and not listed
        and key(stack.cell.python)[:2] >= _NUMPY_2
        and any(all(contains(r.specifier, v) for _, r, _ in asked) for v in _NUMPY_2_RELEASES)
    )


def _left_open(stack: Stack, framework: CellFramework, asked: list[Wish], built: Value) -> Iterator[Finding]:
    """Nobody says which NumPy: the resolver takes the newest, if anything brings one."""
    if asked and any(all(contains(r.specifier, v) for _, r, _ in asked) for v in _NUMPY_2_RELEASES):
        yield _refused(framework, "nothing keeps the resolver from NumPy 2: add numpy<2 to pip", built)
    named = [canonical(r.name) for text in stack.cell.pip if (r := requirement(text)) is not None]
    beside = ", ".join(name for name in named if name not in {"setuptools", "wheel", "pip"})
    if not asked and beside:
        brings = f"{beside} may bring NumPy 2: numpy<2 in pip keeps it out"
        yield warns(f"{framework.label} was compiled for NumPy 1, and {brings}", built)


def _refused(framework: CellFramework, why: str, *values: Value) -> Finding:
    text = f"{framework.label} was compiled for NumPy 1 and does not run with NumPy 2; {why}"
    return replace(impossible(text, *values), bounds=("numpy<2",))


def _not_read(framework: CellFramework, requires: Iterable[str], found: Value) -> Iterator[Finding]:
    named = [r for text in requires if (r := requirement(text)) is not None and canonical(r.name) == "numpy"]
    if any(_promised(r.specifier, found.text) for r in named):
        return
    if named and all(any(contains(r.specifier, v) for v in ("1.17.0", "1.23.5", "1.26.4")) for r in named):
        why = "which NumPy it was compiled for was read nowhere"
        way = "numpy<2 is safe, an import in the image would settle it"
        text = f"whether {framework.label} runs with NumPy {found.text} is not known: {why}; {way}"
        yield unknown(text, found)


def _promised(specifier: SpecifierSet, version: str) -> bool:
    """Whether a range admits a NumPy 2 and ends beyond: its maker had NumPy 2 when it was written."""
    ends = [clause.version for clause in specifier if clause.operator in {"<", "<="}]
    return any(major(end) >= 2 and key(end) > (2, 0) for end in ends) and contains(specifier, version)


def wishes(stack: Stack) -> dict[str, list[Wish]]:
    """Every requirement in force, by package: the cell's own, NVIDIA's pins, and the wheels' metadata."""
    cell = stack.cell
    every: list[tuple[str, Requirement | None, Source]] = []
    for text in (*cell.frameworks, *cell.cuda.packages, *cell.pip):
        parsed = requirement(text)
        every.append(("the cell", parsed, CELL))
    for one in stack.beside:
        # of a release that a resolver takes it is the resolver that knows
        if (
            one.row is not None
            and not one.chosen
            and (not stack.truth.locked or cell.dependencies == "listed")
        ):
            every += [
                (one.label, _of_build(requirement(line), one), one.row.source) for line in one.row.requires
            ]
    for framework in stack.frameworks:
        every += [(framework.label, parsed, source) for parsed, source in framework.wants]
        if framework.title == "JAX" and framework.version:
            # jax/_src/lib/__init__.py ends the import beside a newer one, whatever the metadata says
            newest = Requirement(f"jaxlib<={framework.version}")
            every.append((framework.label, newest, Source("wheel", framework.label)))
        if (row := framework.row) is not None:
            source = row.source_of("requires")
            every += [(framework.label, requirement(text), source) for text in row.requires]
    asked: dict[str, list[Wish]] = {}
    for who, parsed, source in every:
        if parsed is not None and holds(parsed, stack.markers):
            asked.setdefault(canonical(parsed.name), []).append((who, parsed, source))
    return asked


def _of_build(asked: Requirement | None, one: CellPackage) -> Requirement | None:
    """A build's requirement, as far as the record of the default index's build tells.

    A build of PyTorch's own index (``0.11.0+cu111``) goes with the release of PyTorch, and not with the other
    build that the default index's names: torchvision 0.11.0 is there for ``torch==1.10.0+cu102`` alone.
    """
    if asked is None or not one.variant or not load().is_framework(asked.name):
        return asked
    plain = Requirement(str(asked))
    plain.specifier = SpecifierSet(",".join(str(clause).partition("+")[0] for clause in asked.specifier))
    return plain


def pins(stack: Stack) -> Iterator[Finding]:
    """``pins``: requirements on the same package that no version satisfies; all that clash are named."""
    # Nobody resolves a list: the pinned versions in it are installed.
    outcome = Outcome.WARNS if stack.cell.dependencies == "listed" else Outcome.IMPOSSIBLE
    for name, found in wishes(stack).items():
        pairs = [
            pair
            for pair in itertools.combinations(found, 2)
            if apart(pair[0][1].specifier, pair[1][1].specifier)
        ]
        if clash := [one for one in found if any(one in pair for pair in pairs)]:
            said = " and ".join(f"{who} wants {name}{asked.specifier}" for who, asked, _ in clash)
            values = (
                Value(f"{name} for {who}", str(asked.specifier), source) for who, asked, source in clash
            )
            all_ = "both" if len(clash) == 2 else "all of these"
            yield Finding(outcome, f"{said}: no version is {all_}", tuple(values))


def names(stack: Stack) -> Iterator[Finding]:
    """``names``: no package is asked for by a name that is not its distribution's.

    An index of the cell's own may have any name, but PyTorch's have none of these.
    """
    cell = stack.cell
    for text in dict.fromkeys((*cell.frameworks, *cell.cuda.packages, *cell.pip)):
        parsed = requirement(text)
        row = load().mistaken_names.get(canonical(parsed.name)) if parsed is not None else None
        if parsed is None or row is None or not _meant(parsed, row.versions):
            continue
        anything = not all(map(PYTORCH.match, cell.index))
        outcome = Outcome.WARNS if anything else Outcome(row.outcome)
        said = f"{parsed.name}: did you mean {row.instead}? {row.reason[0].upper()}{row.reason[1:]}"
        yield Finding(
            outcome, said, (Value("requirement", text, CELL), Value(row.name, row.instead, row.source))
        )


def by_their_names(cell: Cell) -> Cell:
    """The cell with the distributions that the names in ``pip`` and ``cuda`` are mistaken for."""

    def named(text: str) -> str:
        parsed = requirement(text)
        row = load().mistaken_names.get(canonical(parsed.name)) if parsed is not None else None
        if parsed is None or row is None or row.outcome != "impossible" or not _meant(parsed, row.versions):
            return text
        return row.instead

    cuda = replace(cell.cuda, packages=tuple(dict.fromkeys(map(named, cell.cuda.packages))))
    return replace(cell, pip=tuple(dict.fromkeys(map(named, cell.pip))), cuda=cuda)


def _meant(parsed: Requirement, versions: SpecifierSet | None) -> bool:
    """Whether a release of these is asked for, as far as the requirement tells."""
    version = pinned(parsed)
    if versions is None or version is None:
        return versions is None or not parsed.specifier
    return contains(versions, version)


def known_bad(stack: Stack) -> Iterator[Finding]:
    """``known-bad``: combinations that others found broken, only if every part is known for certain, or comes
    because nothing keeps a resolver from it.
    """
    gpus = [row for name in stack.cell.gpus if (row := card_of(name)) is not None]
    compiled = (name for name, _ in stack.cell.compiled)
    asked = [parsed for parsed in map(requirement, stack.cell.pip) if parsed is not None]
    extras = {f"{canonical(parsed.name)}[{canonical(extra)}]" for parsed in asked for extra in parsed.extras}
    yield from _bad_pairs(
        component_versions(stack),
        gpus,
        functools.partial(_comes, stack),
        {*distributions(stack), *extras, *(name for name, _ in stack.cell.env)},
        {*map(canonical, (*stack.cell.from_source, *compiled))},
        imports=[text.partition(":")[0] for text in stack.cell.imports],
        locked=stack.truth.locked,
        loaded=stack.truth.loaded if stack.truth.locked else None,
        bounds={canonical(parsed.name): parsed.specifier for parsed in asked if parsed.specifier},
    )


def bad_pairs(measured: Mapping[str, str], gpus: Sequence[GpuRow]) -> Iterator[Finding]:
    """The findings on versions that a report says were in an image, by the names of ``known-bad.toml``."""
    source = Source("registry", "the report")
    known = {name: Value(name, text, source) for name, text in measured.items()}

    def there(wanted: Requirement) -> Value | None:
        value = known.get(canonical(wanted.name))
        return value if value is not None and _within(value.text, wanted.specifier) else None

    yield from _bad_pairs(known, gpus, there, measured)


def _comes(stack: Stack, wanted: Requirement) -> Value | None:
    """The release within a requirement that the image gets: of the lock, of a pin, or the newest one, if no
    bound keeps a resolver from it.
    """
    name = canonical(wanted.name)
    if name == "python":
        return _python_that_comes(stack, wanted)
    asked = wishes(stack).get(name, [])
    exact = next(((text, source) for _, parsed, source in asked if (text := pinned(parsed))), None)
    if (wheel := stack.truth.wheel(name)) is not None:
        exact = (wheel.version, wheel.source)
    if exact is not None:
        return Value(name, *exact) if _within(exact[0], wanted.specifier) else None
    if stack.truth.locked or stack.cell.dependencies == "listed":
        return None
    # the bounds of a release that a resolver takes are not among the wishes
    chosen = [r for one in stack.beside if one.chosen and one.row is not None for r in one.row.asks(name)]
    bounds = [*(parsed for _, parsed, _ in asked), *chosen]
    held = (parsed for parsed in bounds if holds(parsed, stack.markers))
    if any(apart(parsed.specifier, wanted.specifier) for parsed in held):
        return None
    return Value(name, f"{wanted.specifier}, as nothing bounds it", CELL)


def _python_that_comes(stack: Stack, wanted: Requirement) -> Value | None:
    """The cell's Python, if it is within a requirement: of a standalone one the patch release, too."""
    cell, release = stack.cell, stack.cell.named_python
    if not cell.has_own_python(stack.system) and release.count(".") == 1:
        from builder.sources.index import known_release  # with an HTTP client: a tenth of a second

        if not (release := known_release(release, cell.platform)):
            return None
    return Value("Python", release, CELL) if _within(release, wanted.specifier) else None


def _bad_pairs(
    known: Mapping[str, Value],
    gpus: Sequence[GpuRow],
    comes: Callable[[Requirement], Value | None],
    there: Collection[str],
    built: Container[str] = (),
    *,
    imports: Collection[str] = (),
    locked: bool = False,
    loaded: Collection[str] | None = None,
    bounds: Mapping[str, SpecifierSet] = MappingProxyType({}),
) -> Iterator[Finding]:
    """The rows whose conditions these versions all meet, by the names that ``known-bad.toml`` uses.

    ``comes`` gives the release within a requirement that the image gets; ``there`` are the names of all that
    is installed, also with an extra, and of the variables that are set; ``built`` are packages built from
    sources, so that they need no wheel; ``imports`` are modules that code in the image imports, and
    ``loaded`` compiled ones that an import of the lock's packages comes to.
    """
    other = {one.instead: name for name, one in load().without.items() if name in known}
    alike = {name: known[build] for name, build in other.items() if name not in known} | dict(known)
    named = {*alike, *there, *(["gpu"] if gpus else [])}
    for row in load().bad:
        if not _names(row.when) <= named:
            continue  # as nearly every row of nearly every cell
        if row.built and all(name in built for name in row.built):
            continue
        if any(name in there for name in row.without) or (row.by_lock and not locked):
            continue
        # a build without CUDA is the same framework to all but cards and CUDA's libraries
        met = _met(row, known if NO_PACKAGES & _names(row.when) else alike, gpus, there, bounds)
        late = [comes(Requirement(text)) for text in row.open] if met else []
        if met and None not in late:
            of_row = Value(row.id, " and ".join((*row.when, *row.open)), row.source)
            values = (*met, *filter(None, late), of_row)
            ended = any(f"{one}.".startswith(f"{module}.") for one in imports for module in row.ends)
            apart = loaded is not None and row.loads is not None and row.loads not in loaded
            outcome = Outcome.IMPOSSIBLE if ended else Outcome.WARNS if apart else Outcome(row.outcome)
            if ended or not row.ends or outcome is not Outcome.IMPOSSIBLE:
                text = f"{row.id}: {row.message}. Remedy: {row.remedy}"
                yield Finding(outcome, text, values, bounds=(*bounds_of_row(row),), lacked=row.without)


def _met(
    row: BadRow,
    known: Mapping[str, Value],
    gpus: Sequence[GpuRow],
    there: Container[str],
    bounds: Mapping[str, SpecifierSet],
) -> tuple[Value, ...]:
    """The values that meet a row's conditions; none if one of them is not met for certain."""
    values = []
    for name, versions in _conditions(row.when):
        cards = [Value(card.name, card.capability, card.source) for card in gpus] if name == "gpu" else []
        values_of_it = cards or ([known[name]] if name in known else [])
        value = next((value for value in values_of_it if _within(value.text, versions)), None)
        if value is None and not versions and name in there:
            value = Value(name, "any release", CELL)
        if value is None and name not in known and name in bounds and all_within(bounds[name], versions):
            value = Value(name, str(bounds[name]), CELL)
        if value is None:
            return ()
        values.append(value)
    return tuple(values)


@functools.cache
def _conditions(when: tuple[str, ...]) -> tuple[tuple[str, SpecifierSet], ...]:
    """(name with its extras, versions): a search asks about each row thousands of times."""
    return tuple(
        (one.name + "".join(f"[{extra}]" for extra in sorted(one.extras)), one.specifier)
        for one in map(Requirement, when)
    )


@functools.cache
def _names(when: tuple[str, ...]) -> frozenset[str]:
    return frozenset(name for name, _ in _conditions(when))


def _within(version: str, specifier: SpecifierSet) -> bool:
    exact = re.fullmatch(r"\d+(\.\d+)*(\.?(post|rc|a|b|dev)\d+)*", version)
    return contains(specifier, version if exact else short(version, 3))


def suites(stack: Stack) -> Iterator[Finding]:
    """``suites``: a suite that no package has never runs, and ``publish`` demands each that is named."""
    names = stack.package_names
    for suite in stack.cell.verify:
        having = [row for row in load().registry if suite in row.suites]
        there = any(re.fullmatch(row.packages, name) for row in having for name in names)
        if suite != "conv" and not there:
            text = f"no package here has the suite '{suite}', so publish would refuse the image"
            hint = f"{', '.join(row.name for row in having)} have it; take it out of `verify`, or add one"
            yield warns(f"{text}; {hint}", Value("verify", ", ".join(stack.cell.verify), CELL))
