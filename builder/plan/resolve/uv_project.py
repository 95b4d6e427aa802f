"""A ``pyproject.toml`` by which uv makes one lock for the Linux machines of a demand, for Windows and for a
Mac: CUDA's builds and what has no wheel on a system by markers, and what was left out for a card as an extra.

https://docs.astral.sh/uv/guides/integration/pytorch/, https://docs.astral.sh/uv/concepts/projects/config/
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence

from packaging.requirements import Requirement

from builder.core.versions import canonical, names_of, pinned
from builder.plan.facts.tables import load
from builder.plan.resolve.loosening import Substitution
from builder.plan.resolve.other_systems import left_out_on
from builder.plan.resolve.solve import Proposal
from builder.sources.index import MACHINES, Index

_LINUX = "sys_platform == 'linux'"
_MARKERS = {
    ("linux",): _LINUX,
    ("linux", "windows"): "sys_platform != 'darwin'",
    ("linux", "macos"): "sys_platform != 'win32'",
    ("windows",): "sys_platform == 'win32'",
    ("macos",): "sys_platform == 'darwin'",
    ("windows", "macos"): "sys_platform != 'linux'",
}
"""The marker of a requirement for some of the systems; one for all has none."""
_OTHERS = ("windows", "macos")


def to_uv_project(
    taken: Proposal, changes: Sequence[Substitution], name: str, index: Index | None = None
) -> str:
    """The text of the file, for the cell of a proposal. ``index`` tells which packages have no wheel for
    Windows or macOS; without one that is known of those that are for CUDA by their names. What is left out
    on a system stands in a comment, with the reason.
    """
    cell = taken.cell
    left = {system: left_out_on(system, cell, index) for system in _OTHERS}
    lines = [*_requirements(taken, left)]
    told = [
        f"# {text} is not installed on {system}: {why}"
        for system in _OTHERS
        for text, why in left[system].items()
    ]
    if index is None:
        told.append("# which packages have wheels for Windows and macOS was not asked")
    extras = [one.asked for one in changes if one.instead is None and one.asked.name in _with_code()]
    machine = f"{_LINUX} and platform_machine == '{MACHINES[cell.platform]}'"
    text = [
        "[project]",
        f'name = "{canonical(f"{name}-project")}"',
        'version = "0"',
        f'requires-python = "=={cell.python}.*"',
        *told,
        *_array("dependencies", lines),
    ]
    if extras:
        text += ["", "[project.optional-dependencies]"]
        text += (f"{one.name} = [{_text(f'{_plain(one.parsed)} ; {_LINUX}')}]" for one in extras)
    darwin = "sys_platform == 'darwin' and platform_machine == 'arm64'"
    windows = "sys_platform == 'win32' and platform_machine == 'AMD64'"
    text += ["", "[tool.uv]", *_array("environments", [machine, windows, darwin])]
    unbuilt = sorted({one.name for one in extras} & {row.name for row in load().builds if row.against})
    if unbuilt:
        text.append(f"no-build-isolation-package = {json.dumps(unbuilt)}")
    for one in extras:
        text += _metadata(one.parsed)
    return "\n".join([*text, *_sources(cell.frameworks, cell.pip, cell.index), ""])


def _with_code() -> set[str]:
    """Packages with CUDA code of their own, compiled or to be."""
    return {*load().packages} | {row.name for row in load().builds if row.against}


def _requirements(taken: Proposal, left: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    """The requirements of a cell, each for the systems that have a build of it. A build's own mark (+cu128)
    goes: its index is named, and the release is the same elsewhere.
    """
    for text in (*taken.cell.frameworks, *taken.cell.cuda.packages, *taken.cell.pip):
        parsed = Requirement(text)
        name, systems = canonical(parsed.name), ["linux"]
        others = dict[str, list[str]]()
        for system in _OTHERS:
            row = load().elsewhere_systems.get((load().table_name(name), system))
            if row is not None and row.cuda == "none" and (parsed.extras or row.cpu != name):
                version = f"=={pinned(parsed)}" if row.cpu == name and pinned(parsed) else ""
                others.setdefault(f"{row.cpu}{version.partition('+')[0]}", []).append(system)
            elif text not in left[system]:
                systems.append(system)
        yield f"{_plain(parsed)}{_for(systems)}"
        yield from (f"{other}{_for(mine)}" for other, mine in others.items())


def _for(systems: Sequence[str]) -> str:
    marker = _MARKERS.get(tuple(systems))
    return f" ; {marker}" if marker is not None else ""


def _plain(parsed: Requirement) -> str:
    return re.sub(r"(==[^,;+ ]+)\+\w+", r"\1", str(parsed))


def _metadata(parsed: Requirement) -> Iterator[str]:
    """What a package asks for, by its row, so that the lock is made without building it."""
    table, version = load().packages.get(canonical(parsed.name)), pinned(parsed)
    row = table.row(version) if table is not None and version is not None else None
    if row is not None and row.requires:
        yield from ("", "[[tool.uv.dependency-metadata]]", f"name = {_text(canonical(parsed.name))}")
        yield f"version = {_text(row.version)}"
        yield f"requires-dist = {json.dumps(list(row.requires))}"


def _sources(frameworks: Sequence[str], beside: Sequence[str], indexes: Sequence[str]) -> Iterator[str]:
    """PyTorch's index of a build for the packages that have one there: on Linux and Windows, if the cell's
    build lies there; else on Windows alone, for which the default index has a build for the CPU.
    """
    builds = [found[1] for url in indexes if (found := re.search(r"/whl/(\w+)/?$", url)) is not None]
    marker = _MARKERS["linux", "windows"]
    if not builds:
        builds, marker = [*_default_builds(frameworks)], _MARKERS[("windows",)]
    for build in builds:
        name = f"pytorch-{build}"
        url = f"https://download.pytorch.org/whl/{build}"
        yield from ("", "[[tool.uv.index]]", f'name = "{name}"', f"url = {_text(url)}", "explicit = true")
        known = load().package_names
        there = {one for one in names_of(beside) if one in known and known[one].variants}
        there |= names_of(frameworks) & {"torch"}
        yield from ("", "[tool.uv.sources]")
        yield from (f'{one} = {{ index = "{name}", marker = "{marker}" }}' for one in sorted(there))
        return  # a table of sources stands once


def _default_builds(frameworks: Sequence[str]) -> Iterator[str]:
    """The build, ``cu128``, that PyTorch's release has on the default index for Linux."""
    for parsed in map(Requirement, frameworks):
        if canonical(parsed.name) == "torch" and (version := pinned(parsed)) is not None:
            rows = load().table("torch").of(version.partition("+")[0])
            yield from (row.variant for row in rows if row.default and row.variant)


def _array(name: str, items: Sequence[str]) -> Iterator[str]:
    yield from (f"{name} = [", *(f"    {_text(item)}," for item in items), "]")


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)
