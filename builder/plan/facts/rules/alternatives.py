"""The way out of a refused cell: the closest cell that the same rules let pass."""

import functools
import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace

from packaging.requirements import Requirement

from builder.core.model import Base, Cell, Cuda
from builder.core.versions import (
    canonical,
    key,
    major,
    minor,
    newest_first,
    pinned,
    release,
    requirement,
    short,
)
from builder.plan.facts.rules import candidates, packages
from builder.plan.facts.rules.candidates import Choice
from builder.plan.facts.rules.cell_packages import with_releases
from builder.plan.facts.rules.compiled_packages import release_for, torch_of
from builder.plan.facts.rules.finding import Nearest, Outcome
from builder.plan.facts.rules.image_contents import Stack
from builder.plan.facts.rules.same_files import one_of_each
from builder.plan.facts.tables import PackageRow, TagRow, load

Judge = Callable[[Cell], Outcome]

LIMIT = 48
"""Cells tried before giving up: a refusal has to stay a matter of milliseconds."""


def nearest_cell(stack: Stack, judge: Judge) -> Nearest | None:
    """The first candidate, in order of closeness, that works; else the first with no more than a warning."""
    fallback = None
    bounds, bounded = _bounded(stack)
    near = itertools.islice(_candidates(bounded), LIMIT)
    others = itertools.chain(near, itertools.islice(_other_ways(bounded), LIMIT))
    for further, cell in itertools.chain([((), bounded.cell)], others):
        changes = (*bounds, *further)
        if not changes:
            continue
        outcome = judge(cell)
        if outcome is Outcome.POSSIBLE:
            return Nearest(changes=changes, cell=cell)
        if outcome is Outcome.WARNS and fallback is None:
            fallback = Nearest(changes=changes, cell=cell)
    return fallback


def _bounded(stack: Stack) -> tuple[tuple[tuple[str, str], ...], Stack]:
    """The cell with its packages by their names, and with bounds on NumPy and cuDNN that its frameworks and
    its oldest card need.
    """
    cell, changes = stack.cell, list[tuple[str, str]]()
    if (right := packages.by_their_names(cell)) != cell:
        changes += [("pip", text) for text in right.pip if text not in cell.pip]
        changes += [("cuda.packages", text) for text in right.cuda.packages if text not in cell.cuda.packages]
        cell = right
    for framework in stack.frameworks:
        in_pip = framework.requirement not in cell.frameworks
        if (
            in_pip
            and framework.version is None
            and (version := candidates.newest_beside(stack, framework)) is not None
        ):
            before, name = cell.pip, _name(framework.requirement)
            cell = with_releases(cell, {name: version})
            changes += [("pip", text) for text in cell.pip if text not in before]
    second = itertools.chain(packages.numpy(stack), packages.package_numpy(stack))
    if any(finding.outcome is Outcome.IMPOSSIBLE for finding in second):
        kept = tuple(t for t in cell.pip if (r := requirement(t)) is None or canonical(r.name) != "numpy")
        cell = replace(cell, pip=(*kept, "numpy<2"))
        changes.append(("pip", "numpy<2"))
    built = [framework.cudnn.text for framework in stack.frameworks if framework.cudnn is not None]
    pins = [pin for framework in stack.frameworks for pin, _ in framework.pins]
    bound = candidates.cudnn_bound(pins, built, cell.gpus)
    if bound is not None:
        cell = replace(cell, pip=(*cell.pip, bound))
        changes.append(("pip", bound))
    return tuple(changes), replace(stack, cell=cell)


Candidate = tuple[tuple[tuple[str, str], ...], "Cell"]


def _candidates(stack: Stack) -> Iterator[Candidate]:
    """One change first, then two; changes that keep most of the cell come before the others.

    No cell is made with a Python that a framework has no wheel for, or the base no package.
    """
    cell = stack.cell
    yield from _beside(stack)
    platform = candidates.platform_of(cell.gpus)
    if platform not in {None, cell.platform}:
        yield (("platform", platform),), replace(cell, platform=platform)
    pythons = list(_pythons(stack))
    keeps_python = cell.python in pythons
    if keeps_python:
        yield from _flavours(stack)
        yield from _packages(stack)
        for name in itertools.islice(_tags(stack, cell.python), 12):
            yield (("base", name),), replace(cell, base=Base(kind="registry", name=name))
    others = [python for python in pythons if python != cell.python]
    for number, python in enumerate(others):
        standalone = number == 0 and cell.python_from != "base"  # the nearest one: each is a look more
        if standalone or stack.system is None or python in stack.system.python:
            yield (("python", python),), replace(cell, python=python, python_patch=None)
    if keeps_python:
        yield from _extras(stack)
        if cell.cuda.provider == "none":
            yield (("cuda", "wheels"),), replace(cell, cuda=Cuda(provider="wheels"))
    for python in others[:3]:
        for name in itertools.islice(_tags(stack, python), 6):
            changed = replace(cell, base=Base(kind="registry", name=name), python=python, python_patch=None)
            yield (("base", name), ("python", python)), changed


def _beside(stack: Stack) -> Iterator[Candidate]:
    """Without a distribution whose files another writes; then with other releases of the packages beside
    PyTorch, each and all; then with a PyTorch that they want.
    """
    cell, torch = stack.cell, torch_of(stack)
    surplus = {name for _, meeting, keep in one_of_each(stack) for name in meeting if name != keep}
    kept = tuple(text for text in cell.pip if _name(text) not in surplus)
    if kept != cell.pip:
        yield (("pip", ", ".join(kept) or "none"),), replace(cell, pip=kept)
    if torch is None or torch.version is None:
        return
    named = [one for one in stack.beside if any(who == "the cell" for who, _ in one.wanted)]
    others = {
        one.name: row.version
        for one in named
        if (row := release_for(stack, one, torch)) is not None and row.version != one.version
    }
    for versions in [{name: version} for name, version in others.items()] + [others] * (len(others) > 1):
        changes = tuple(("pip", f"{name}=={version}") for name, version in versions.items())
        yield changes, with_releases(cell, versions)
    if torch.requirement == f"torch=={torch.version}" and "+" not in torch.version:
        rows = [row for one in named for row in ([one.row] if not one.chosen else one.table.rows[:3]) if row]
        for version in dict.fromkeys(version for row in rows for version in _torch_for(row)):
            text = f"torch=={version}"
            texts = tuple(text if one == torch.requirement else one for one in cell.frameworks)
            yield (("framework", text),), replace(cell, frameworks=texts)


def _torch_for(row: PackageRow) -> Iterator[str]:
    """The PyTorch that a package wants: the release that it pins, else the newest with its symbols."""
    exact = next(filter(None, map(pinned, row.asks("torch"))), None)
    if exact is not None:
        yield exact
        return
    releases = [one.version for one in load().frameworks["torch"].rows if one.default and one.yanked is None]
    fitting = [text for text in releases if short(text, 2) in row.torch]
    if fitting:
        yield max(fitting, key=release)


def _name(text: str) -> str:
    parsed = requirement(text)
    return canonical(parsed.name) if parsed is not None else text


def _flavours(stack: Stack) -> Iterator[Candidate]:
    """The base flavour of the tag, if CUDA comes in wheels."""
    tag, cell = stack.tag, stack.cell
    bringing = any(framework.carries_cuda for framework in stack.frameworks)
    if tag is None or tag.flavour == "base" or not (bringing or cell.cuda.provider == "wheels"):
        return
    name = f"nvidia/cuda:{tag.cuda}-base-{tag.system}"
    wheels = replace(cell, base=Base(kind="registry", name=name), cuda=replace(cell.cuda, provider="wheels"))
    also = () if cell.cuda.provider == "wheels" else (("cuda", "wheels"),)
    yield (("base", name), *also), wheels


def _packages(stack: Stack) -> Iterator[Candidate]:
    """Another version of the cuDNN wheel, the closest one first."""
    cell = stack.cell
    wanted = [framework.cudnn.text for framework in stack.frameworks if framework.cudnn is not None]
    for n, text in enumerate(cell.cuda.packages):
        name, _, version = text.partition("==")
        row = load().wheels.get(name)
        if row is None or "cudnn" not in name or not version or not wanted:
            continue
        for other in sorted(candidates.same_major(row.versions, max(wanted, key=key)), key=key)[:4]:
            packages = (*cell.cuda.packages[:n], f"{name}=={other}", *cell.cuda.packages[n + 1 :])
            changed = replace(cell, cuda=Cuda(provider="wheels", packages=packages))
            yield (("cuda.packages", f"{name}=={other}"),), changed


def _tags(stack: Stack, python: str) -> Iterator[str]:
    """Tags of the right CUDA major whose Ubuntu has the Python, closest to the framework's CUDA first."""
    cuda = next((framework.cuda.text for framework in stack.frameworks if framework.cuda), None)
    if stack.cell.base.kind != "registry" or cuda is None:
        return
    system, flavour = (stack.tag.system, stack.tag.flavour) if stack.tag else ("", "runtime")
    alone = any(framework.carries_cuda for framework in stack.frameworks)
    own = float(system.removeprefix("ubuntu")) if system.startswith("ubuntu") else None

    def distance(other: str) -> tuple[bool, float]:
        release = float(other.removeprefix("ubuntu"))
        return other != system, -release if own is None else abs(release - own)

    for row in _rows_around(cuda):
        ubuntus = [name for name in row.systems if name.startswith("ubuntu") and (alone or row.infix)]
        for other in sorted((o for o in ubuntus if python in load().systems[o].python), key=distance):
            kind = "base" if alone else f"{row.infix}-{flavour if flavour != 'base' else 'runtime'}"
            yield f"nvidia/cuda:{row.cuda}-{kind}-{other}"


@functools.lru_cache(maxsize=256)
def _rows_around(cuda: str) -> list[TagRow]:
    def distance(row: TagRow) -> tuple[int, object]:
        """Minors away from the wanted CUDA; an older one, which may lack something, counts as far away."""
        away = (minor(row.cuda) or 0) - (minor(cuda) or 0)
        return away if away >= 0 else 100 - away, newest_first(row.cuda)

    rows = (row for row in load().tags if row.state == "listed" and major(row.cuda) == major(cuda))
    return sorted(rows, key=distance)


def _pythons(stack: Stack) -> Iterator[str]:
    """Pythons for which every framework has wheels, the wanted one and those next to it first."""
    rows = [framework.row for framework in stack.frameworks if framework.row is not None]
    wanted = minor(stack.cell.python) or 0
    common = set.intersection(*(set(row.python) for row in rows)) if rows else {stack.cell.python}
    yield from sorted(common, key=lambda python: (abs((minor(python) or 0) - wanted), python))


def _extras(stack: Stack) -> Iterator[Candidate]:
    """The extra by which a framework brings NVIDIA's wheels, on the base flavour of a tag or a rootfs."""
    cell, tag = stack.cell, stack.tag
    with_extra = {
        framework.requirement: f"{framework.name}[{row.extra}]=={framework.version}"
        for framework in stack.frameworks
        if (row := framework.row) is not None
        and (row.brings, row.extra, framework.brings) == ("extra", "and-cuda", "outside")
    }
    texts = tuple(with_extra.get(text, text) for text in cell.frameworks)
    if texts != cell.frameworks:
        base = Base(kind="registry", name=f"nvidia/cuda:{tag.cuda}-base-{tag.system}") if tag else cell.base
        changes = (("framework", ", ".join(texts)), ("base", str(base)), ("cuda", "wheels"))
        yield changes, replace(cell, frameworks=texts, base=base, cuda=Cuda(provider="wheels"))


def _other_ways(stack: Stack) -> Iterator[Candidate]:
    """The releases put together another way: by extras, CUDA variants, packages, Pythons."""
    cell = stack.cell
    own_key = [framework for framework in stack.frameworks if framework.requirement in cell.frameworks]
    releases = [(framework.requirement, framework.version) for framework in own_key if framework.table]
    ways = [_ways(text, version) for text, version in releases if version is not None]
    if len(ways) < len(cell.frameworks):
        return
    platform = candidates.platform_of(cell.gpus) or cell.platform
    every = (
        other
        for combination in candidates.Combination.of(ways)
        for python in sorted(combination.pythons, key=lambda python: python != cell.python)
        for other in combination.cells(python, cell.gpus, platform, standalone=python == cell.python)
    )
    own = {name: getattr(cell, name) for name in ("id", "matrix", "apt", "env", "options")}
    for other in every:
        changed = replace(other, pip=tuple(dict.fromkeys((*cell.pip, *other.pip))), **own)
        yield tuple(_differences(cell, changed)), changed


@functools.lru_cache(maxsize=1024)
def _ways(text: str, version: str) -> list[Choice]:
    """The ways to install this release of a framework, whichever extras the cell asks for."""
    parsed = requirement(text)
    name = parsed.name if parsed is not None else text
    return list(candidates.choices(Requirement(f"{name}=={version.partition('+')[0]}")))


def _differences(cell: Cell, other: Cell) -> Iterator[tuple[str, str]]:
    for name in ("frameworks", "python", "base", "index", "platform", "gpus"):
        if getattr(cell, name) != (value := getattr(other, name)):
            text = ", ".join(value) or "none" if isinstance(value, tuple) else str(value)
            yield name.removesuffix("s") if name == "frameworks" else name, text
    if cell.cuda != other.cuda:
        yield "cuda", ", ".join((other.cuda.provider, *other.cuda.packages))
