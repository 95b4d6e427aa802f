"""The releases of packages that a system takes by the platform tags of their wheels: those that glibc 2.17
loads, and those that Windows or macOS have.

https://packaging.python.org/en/latest/specifications/platform-compatibility-tags/
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from packaging.specifiers import SpecifierSet
from packaging.tags import Tag
from packaging.version import Version

from builder.core.versions import key, release
from builder.plan.facts.tables import load
from builder.plan.lock import makers_images
from builder.plan.resolve.solve import Demand, closest, every_python
from builder.plan.resolve.wishes import NamedRequirement
from builder.sources.index import Index, IndexFile, Target, glibc_of, pages, takes, wheel_name


def since_glibc(name: str, demand: Demand) -> Iterator[str]:
    """The first release of a framework whose wheels the system's glibc does not load, and the newest that it
    loads; nothing if it loads each on record.
    """
    rows = [row for row in load().table(name).rows if row.default]
    version = max((row.version for row in rows if demand.takes_glibc(row)), key=release, default=None)
    newer = [row for row in rows if version is None or release(row.version) > release(version)]
    newer = [row for row in newer if row.glibc is not None and not demand.takes_glibc(row)]
    if demand.glibc is None or not newer:
        return
    first = min(newer, key=lambda row: release(row.version))
    last = f"{name}=={version} is the newest" if version is not None else "none on record is"
    yield (
        f"from {load().table(name).title} {first.version} on the wheels ask for glibc {first.glibc}, and the "
        f"system has {demand.glibc} (`ldd --version` prints it): {last} for it"
    )


def container_of(demand: Demand) -> str:
    """The way by a container, with the image of the framework's maker for what is asked for, the cards and
    the driver, where one is known.
    """
    found = closest(replace(demand, glibc=None, companions=()), {})
    images = [image for _, image in makers_images(found.cell)] if found is not None else []
    name, image = demand.frameworks[0].name, next(iter(images), "IMAGE")
    with_it = f", which has {found.cell.frameworks[0]}," if found is not None and images else ""
    return (
        f"a container has a glibc of its own: `apptainer build {name}.sif docker://{image}`{with_it} needs "
        f"no root, and `apptainer exec --nv {name}.sif python3 ...` gives it the card; of a locked cell "
        "`rtbuild export --format apptainer` writes the definition and the job; the system's own glibc is "
        "never replaced by hand: every program there runs on it"
    )


def bound_by_glibc(demand: Demand, index: Index | None, notes: list[str]) -> Demand:
    """The demand whose packages beside are bound to the newest release with a wheel for the system's glibc,
    where a newer one has wheels for a newer glibc alone, with a note on each bound. The same, where no
    glibc is asked for or the index was not asked.
    """
    if demand.glibc is None or index is None or not demand.companions:
        return demand
    listed = pages((wish.name for wish in demand.companions), index)
    pythons = [one for one in every_python() if demand.takes_python(one)]
    mine, newest = (
        {python: _tags(demand, glibc, python) for python in pythons} for glibc in (demand.glibc, _NEWEST)
    )
    companions = list[NamedRequirement]()
    for wish in demand.companions:
        files = listed[wish.name]
        here, there = (
            _releases(wish, files, tags) if not isinstance(files, str) else {} for tags in (mine, newest)
        )
        if not here or max(here) == max(there):
            companions.append(wish)
            continue
        loads = SpecifierSet(f"<={max(here)}")
        bound = replace(wish.bound(str(wish.parsed.specifier & loads)), loads=loads)
        bound.parsed.marker = wish.parsed.marker
        companions.append(bound)
        needs = min(filter(None, (glibc_of(tag.platform) for tag in there[max(there)])), key=key)
        notes.append(
            f"{wish.name}<={max(here)}: {wish.name} {max(there)} has wheels for glibc {needs} and later, and "
            f"the system has {demand.glibc}"
        )
    return replace(demand, companions=tuple(companions))


_NEWEST = "2.41"
"""The question is what a newer system than the one that is asked about would get."""


def _tags(demand: Demand, glibc: str, python: str) -> frozenset[Tag]:
    return frozenset(Target(python=python, platform=demand.built_for, glibc=glibc).tags())


def _releases(
    wish: NamedRequirement, files: Sequence[IndexFile], tags: Mapping[str, frozenset[Tag]]
) -> dict[Version, set[Tag]]:
    """The releases that a requirement admits and that have a wheel for one of the Pythons, with the tags of
    those wheels.
    """
    found = dict[Version, set[Tag]]()
    for file in files:
        wheel = wheel_name(file.name)
        if wheel is None or file.yanked is not None or not wish.parsed.specifier.contains(wheel.version):
            continue
        for python, fitting in tags.items():
            if takes(file.requires_python, python) and (mine := fitting & wheel.tags):
                found.setdefault(wheel.version, set()).update(mine)
    return found
