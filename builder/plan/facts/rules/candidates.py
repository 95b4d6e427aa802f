"""Every way on record to put given frameworks into one image: releases, CUDA variants, Pythons, bases.

Nothing is judged here; :mod:`builder.plan.resolve` and :mod:`.alternatives` ask the rules.
"""

import functools
import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from builder.core.model import OLDEST_PYTHON, Base, Cell, Cuda
from builder.core.versions import (
    at_least,
    canonical,
    contains,
    key,
    major,
    pinned,
    release,
    requirement,
    short,
)
from builder.plan.facts.rules.cell_packages import CellFramework
from builder.plan.facts.rules.image_contents import NOT_IN_RUNTIME, Stack
from builder.plan.facts.tables import FrameworkRow, FrameworkTable, TagRow, card_of, cards_of, load

REBUILT = "localhost:5000"
"""The registry in which an image that NVIDIA deleted is proposed: the user's own, into which it is built from
NVIDIA's recipe, as in matrices/tf1.yaml.
"""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """One way to install one framework."""

    text: str
    row: FrameworkRow
    brings: bool
    """True if its wheels bring CUDA and cuDNN."""
    index: tuple[str, ...] = ()
    local: bool = False
    """True if it is asked for by the extra that leaves CUDA to the system, ``cuda12-local`` of JAX."""

    @property
    def without_cuda(self) -> bool:
        """Whether none of its wheels was built with CUDA, on whichever platform."""
        return set(self.row.platforms) <= set(self.row.cpu_only)

    @functools.cached_property
    def pins(self) -> tuple[str, ...]:
        """The requirements on NVIDIA's wheels that come with it, by its extras too."""
        parsed = requirement(self.text)
        extras = ("", *sorted(parsed.extras)) if parsed is not None and self.brings else ()
        return tuple(line for extra in extras for line in self.row.extras.get(canonical(extra), ()))

    def cells(self, gpus: tuple[str, ...], platform: str = "linux/amd64") -> Iterator[Cell]:
        """The ways to put it alone on each of its Pythons, the newest Python first."""
        alone = Combination((self,))
        for python in alone.pythons:
            yield from alone.cells(python, gpus, platform)


def choices(asked: Requirement, available: Mapping[str, Sequence[str]] | None = None) -> Iterator[Choice]:
    """The ways to install a framework on record, the newest first; ``available`` as :func:`search` has it."""
    distribution = canonical(asked.name)
    table = load().table(distribution)
    # newest first, and of one release the variant that the default index has
    exact = pinned(asked)
    for row in _newest_first(table) if exact is None else table.of(exact):
        if distribution != row.distribution and not (table.named_by_cuda and distribution == table.name):
            continue
        offered = (available or {}).get(row.distribution if table.named_by_cuda else distribution, ())
        if "+" in str(asked.specifier) and not any("+" in version for version in offered):
            offered = ()  # asked for by its variant: what the default index has is no answer
        version = _version(row, asked.specifier, offered)
        if version is not None:
            yield from _ways(table, row, asked, version, listed=f"{version}+{row.variant}" in offered)


def newest_beside(stack: Stack, framework: CellFramework) -> str | None:
    """The newest release on record of a framework that ``pip`` asks for without one, with a wheel for the
    cell's Python and platform and for the CUDA major of the other frameworks; None if there is none.
    """
    parsed, cell = requirement(framework.requirement), stack.cell
    if parsed is None or framework.table is None:
        return None
    majors = {major(other.cuda.text) for other in stack.frameworks if other.cuda is not None}
    for way in choices(parsed):
        row = way.row
        fits = cell.python in row.python and cell.platform in row.platforms and row.yanked is None
        if fits and not way.index and (row.cuda is None or {major(row.cuda)} >= majors):
            return row.version
    return None


@functools.lru_cache(maxsize=64)
def _newest_first(table: FrameworkTable) -> list[FrameworkRow]:
    def age(row: FrameworkRow) -> tuple[Version, bool, tuple[int, ...]]:
        return release(row.version), row.default, key(row.cuda or "0")

    return sorted(table.rows, key=age, reverse=True)


def _version(row: FrameworkRow, asked: SpecifierSet, available: Sequence[str]) -> str | None:
    """The version of a row, without its ``+cu118``, if the requirement admits it and the index has it.

    If no version on the user's indexes is of the row's CUDA variant, the default index's stand for it: a
    release has all of its variants, and before it is proposed the variant's own index is asked.
    """
    own = [v.partition("+")[0] for v in available if v.partition("+")[2] == row.variant]
    plain = [v for v in available if "+" not in v]
    listed = [*own, *plain] if row.default else own or plain
    for version in listed if available else (row.version,):
        local = f"{version}+{row.variant}".rstrip("+")
        if contains(row.versions, version) and (contains(asked, version) or contains(asked, local)):
            return version
    return None


def _ways(
    table: FrameworkTable, row: FrameworkRow, parsed: Requirement, version: str, *, listed: bool
) -> Iterator[Choice]:
    """``listed``: the user's own indexes have the variant, so the cell has to name none."""
    name = canonical(parsed.name)
    local = next((c.version.split("+")[1] for c in parsed.specifier if "+" in c.version), None)
    if table.name == "torch":
        if local is not None and local != row.variant:
            return
        if row.default and local is None:
            yield Choice(text=f"{name}=={version}", row=row, brings=row.carries_cuda)
        else:
            index = () if listed else (f"https://download.pytorch.org/whl/{row.variant}",)
            yield Choice(text=f"{name}=={version}+{row.variant}", row=row, brings=True, index=index)
    elif table.name == "jax":
        extras, local = set(map(canonical, parsed.extras)), f"{row.variant}-local"
        if row.default and local in extras:
            yield Choice(text=f"{name}[{local}]=={version}", row=row, brings=False, local=True)
        elif row.default and (not extras or {*row.aliases} & extras or any(map(row.is_named_by, extras))):
            yield Choice(text=f"{name}[{row.extra}]=={version}", row=row, brings=True)
    elif load().stands_alone(name):
        yield Choice(text=f"{name}=={version}", row=row, brings=True)
    elif table.named_by_cuda:
        yield Choice(text=f"{row.distribution}=={version}", row=row, brings=False)
    else:
        bringing = ",".join(sorted({*row.extras, *map(canonical, parsed.extras)} - {""}))
        if row.brings == "extra":
            yield Choice(text=f"{name}[{bringing}]=={version}", row=row, brings=True)
        if not parsed.extras:
            yield Choice(text=f"{name}=={version}", row=row, brings=False)


class Combination(tuple[Choice, ...]):
    """One choice for each framework of an image."""

    __slots__ = ()

    @classmethod
    def of(cls, ways: Sequence[Sequence[Choice]]) -> Iterator["Combination"]:
        """One choice for each framework, best first: by the sum of their ranks in their own lists.

        Frameworks that share no Python, or pin the same package to two versions, are left out.
        """
        if not ways or not all(ways):
            return
        start = (0,) * len(ways)
        queue, seen = [(0, start)], {start}
        while queue:
            total, at = heapq.heappop(queue)
            combination = cls(way[n] for way, n in zip(ways, at, strict=True))
            if _together(combination):
                yield combination
            for place, n in enumerate(at):
                further = (*at[:place], n + 1, *at[place + 1 :])
                if n + 1 < len(ways[place]) and further not in seen:
                    seen.add(further)
                    heapq.heappush(queue, (total + 1, further))

    @property
    def pythons(self) -> list[str]:
        """Pythons that every framework has wheels for and that a cell may have, newest first."""
        common = set.intersection(*(set(choice.row.python) for choice in self))
        return sorted((p for p in common if key(p) >= (3, OLDEST_PYTHON)), key=key, reverse=True)

    @property
    def clash(self) -> tuple[str, dict[str, str]] | None:
        """The first package that two of the frameworks pin to two versions, and the versions by framework."""
        exact: dict[str, dict[str, str]] = {}
        for choice in self:
            for name, version in _exact_pins(choice):
                exact.setdefault(name, {})[choice.text] = version
        apart = (name for name, pinned_to in exact.items() if len(set(pinned_to.values())) > 1)
        return next(((name, exact[name]) for name in apart), None)

    @property
    def own_wheels(self) -> Cuda | None:
        """NVIDIA's wheels for the frameworks that pin none; None if there are no such wheels."""
        return _own_wheels(self)

    def cells(
        self, python: str, gpus: tuple[str, ...], platform: str = "linux/amd64", *, standalone: bool = True
    ) -> Iterator[Cell]:
        """The ways to put it on one Python: systems and CUDA providers.

        If no base of a kind has the Python, the newest base of that kind stands in with a standalone Python,
        if ``standalone`` allows it. What was built without CUDA gets none, unless cards are asked for.
        """
        if not gpus and all(choice.without_cuda for choice in self):
            sketch = _sketch(self, gpus, platform)
            for base, cuda in _bases("0", Cuda(provider="none"), python, None, standalone=standalone):
                yield replace(sketch, python=python, base=base, cuda=cuda)
            return
        compiled = next((choice.row.cuda for choice in self if choice.row.cuda), None)
        # TensorFlow 1 takes the base's CUDA beside a PyTorch whose own is inside its wheel
        of_base = [c.row.cuda for c in self if c.row.cuda and not c.brings] if self.own_wheels is None else []
        compiled = of_base[0] if of_base else compiled
        if compiled is not None:
            inside = any(choice.brings for choice in self) and not of_base
            lacking = any(NOT_IN_RUNTIME.intersection(choice.row.needs) for choice in self)
            flavour = None if inside else "devel" if lacking else "runtime"
            sketch = _sketch(self, gpus, platform)
            for base, cuda in _bases(compiled, self.own_wheels, python, flavour, standalone=standalone):
                yield replace(sketch, python=python, base=base, cuda=cuda)


def _together(combination: Combination) -> bool:
    if len(combination) == 1:
        return True
    return combination.clash is None and bool(combination.pythons)


@functools.lru_cache(maxsize=4096)
def _exact_pins(choice: Choice) -> tuple[tuple[str, str], ...]:
    parsed = (requirement(text) for text in choice.pins)
    return tuple((canonical(r.name), exact) for r in parsed if r is not None and (exact := pinned(r)))


@functools.lru_cache(maxsize=4096)
def _sketch(combination: Combination, gpus: tuple[str, ...], platform: str) -> Cell:
    """All of a cell that neither its Python nor its base decides."""
    rows = [choice.row for choice in combination]
    pip = dict.fromkeys(text for row in rows for text in row.pip)
    if any(row.numpy_abi == "1" for row in rows) and not any("numpy" in text for text in pip):
        pip["numpy<2"] = None
    pins = [requirement(text) for choice in combination for text in choice.pins]
    if bound := cudnn_bound(filter(None, pins), [row.cudnn for row in rows if row.cudnn], gpus):
        pip[bound] = None
    return Cell(
        id="proposal",
        matrix="resolved",
        frameworks=tuple(choice.text for choice in combination),
        python="",
        base=Base(kind="rootfs", name=""),
        cuda=Cuda(provider="wheels"),
        pip=tuple(pip),
        index=tuple(dict.fromkeys(url for choice in combination for url in choice.index)),
        platform=platform,
        gpus=gpus,
    )


def platform_of(gpus: Iterable[str]) -> str | None:
    """The platform of the processor that one of the cards is built together with; None if none is."""
    cards = filter(None, map(card_of, gpus))
    return next((card.platform for card in cards if card.platform is not None), None)


def cudnn_bound(pins: Iterable[Requirement], built: Iterable[str], gpus: Sequence[str]) -> str | None:
    """A bound on cuDNN, if pins leave it open and its newest release serves a card or a framework no more.

    ``built`` are the versions that the frameworks were compiled with.
    """
    cards = cards_of(gpus)
    majors = {major(version) for version in built}

    def serves(version: str) -> bool:
        lines = [row for row in load().cudnn if contains(row.versions, short(version, 3))]
        return majors <= {major(version)} and all(
            at_least(card.capability, row.capability_min) for card in cards for row in lines
        )

    for pin in pins:
        row = load().wheels.get(canonical(pin.name))
        if row is None or "cudnn" not in row.name or pinned(pin) is not None:
            continue
        admitted = sorted((v for v in row.versions if contains(pin.specifier, v)), key=key, reverse=True)
        newest = next(filter(serves, admitted), None)
        if newest is not None and newest != admitted[0]:
            return f"{row.name}<={newest}"
    return None


@functools.lru_cache(maxsize=4096)
def _bases(
    cuda: str, wheels: Cuda | None, python: str, flavour: str | None, *, standalone: bool
) -> tuple[tuple[Base, Cuda], ...]:
    """Bases with the Python, newest system first, then bases without it.

    ``flavour``: of tags whose CUDA is taken; None if a framework brings its own.
    """
    systems = list(load().systems.values())[::-1]
    systems.sort(key=lambda system: python not in system.python)
    newest: dict[tuple[str, str], str] = {}
    found = []
    for system in systems:
        for base, provided in _on(system.name, cuda, wheels, flavour):
            first = newest.setdefault((base.kind, provided.provider), system.name)
            if python in system.python or (standalone and first == system.name):
                found.append((base, provided))
    return tuple(found)


def _on(system: str, cuda: str, wheels: Cuda | None, flavour: str | None) -> Iterator[tuple[Base, Cuda]]:
    """The bases with one system, with CUDA from wheels and from the base."""
    if system.startswith("debian/"):
        if wheels is not None:
            yield Base(kind="rootfs", name=system), wheels
        return
    if not system.startswith("ubuntu"):
        return  # no Python of their own, and no Debian packages
    fitting = [row for row in _tags(cuda) if system in row.systems]
    if wheels is not None and all(row.state == "deleted" for row in _tags(cuda)):
        # no image with that CUDA is left, and what brings its own needs none
        yield Base(kind="registry", name=system.replace("ubuntu", "ubuntu:")), wheels
    elif wheels is not None and fitting:
        # the oldest release that is not older than the framework's CUDA, else the newest there is
        near = fitting[0] if at_least(fitting[0].cuda, cuda) else fitting[-1]
        yield Base(kind="registry", name=f"nvidia/cuda:{near.cuda}-base-{system}"), wheels
    for row in () if flavour is None else (row for row in fitting if row.infix):
        where = f"{REBUILT}/" if row.state == "deleted" else ""
        name = f"{where}nvidia/cuda:{row.cuda}-{row.infix}-{flavour}-{system}"
        yield Base(kind="registry", name=name), Cuda(provider="base")


@functools.lru_cache(maxsize=256)
def _tags(cuda: str) -> tuple[TagRow, ...]:
    """Tags of the CUDA major, those with at least that CUDA first."""
    tags = [row for row in load().tags if major(row.cuda) == major(cuda)]
    # of CUDA 10 there is no tag any more, and the recipes of its images are public
    tags = [row for row in tags if row.state == "listed"] or tags
    return tuple(sorted(tags, key=lambda row: (not at_least(row.cuda, cuda), key(row.cuda))))


@functools.lru_cache(maxsize=4096)
def _own_wheels(combination: Combination) -> Cuda | None:
    # what a wheel carries inside, under names of its own, serves no other
    brought = {major(c.row.cuda) for c in combination if c.brings and c.row.cuda and c.pins}
    packages: dict[str, str] = {}
    for choice in combination:
        # a framework that pins nothing finds the libraries that another one's pins bring
        if choice.brings or choice.row.cuda is None or major(choice.row.cuda) in brought:
            continue
        if choice.local:
            return None
        always = choice.row.needs
        sometimes = ("cudnn",) if always and choice.row.cudnn and "cudnn" not in always else ()
        for family in (*always, *sometimes):
            text = _wheel(family, choice.row)
            if text is None:
                return None
            packages[family] = text
    return Cuda(provider="wheels", packages=tuple(sorted(packages.values())))


def _wheel(family: str, row: FrameworkRow) -> str | None:
    """One of NVIDIA's wheels, pinned: all from one toolkit, cuDNN the oldest that the framework accepts."""
    cuda = row.cuda or "0"
    families = load().wheel_families
    names = (families[name].distribution(str(major(cuda))) for name in (family, "cublas"))
    wheel, cublas = map(load().wheels.get, names)
    if wheel is None or cublas is None or cublas.toolkit is None or not at_least(cublas.toolkit, cuda):
        return None
    fitting = list(wheel.versions)
    if family == "cudnn":
        fitting = same_major(fitting, row.cudnn or "0")
    elif wheel.toolkit is None:
        fitting = [v for v in fitting if short(v, 2) == cublas.toolkit]
    return f"{wheel.name}=={min(fitting, key=key)}" if fitting else None


def same_major(versions: Iterable[str], need: str) -> list[str]:
    """Versions of the major, whose minor is not older."""
    return [v for v in versions if major(v) == major(need) and at_least(short(v, 2), short(need, 2))]


def why_cudnn(bound: str, gpus: Sequence[str]) -> str | None:
    """The card that newer releases than a bound of :func:`cudnn_bound` serve no more; None if it is for what
    a framework was compiled with.
    """
    last = bound.partition("<=")[2]
    for row in load().cudnn:
        for card in filter(None, map(card_of, gpus)):
            begins = min((clause.version for clause in row.versions), key=key)
            if not at_least(last, begins) and not at_least(card.capability, row.capability_min):
                return (
                    f"{bound}: cuDNN from {begins} on serves compute capability {row.capability_min} and "
                    f"newer, and {card.name} has {card.capability}"
                )
    return None
