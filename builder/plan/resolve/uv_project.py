"""A ``pyproject.toml`` by which uv makes one lock for the Linux machines of a demand and for a Mac: CUDA's
builds and what is for CUDA alone by markers, and what was left out for a card as an extra.

https://docs.astral.sh/uv/guides/integration/pytorch/, https://docs.astral.sh/uv/concepts/projects/config/
"""

import json
import re
from collections.abc import Iterator, Sequence

from packaging.requirements import Requirement

from builder.core.versions import canonical, names_of, pinned
from builder.plan.facts.tables import load
from builder.plan.resolve.loosening import Substitution
from builder.plan.resolve.other_systems import of_cuda_alone
from builder.plan.resolve.solve import Proposal
from builder.plan.resolve.wishes import TYPED, NamedRequirement
from builder.sources.index import MACHINES, Index

_LINUX = "sys_platform == 'linux'"
_ELSEWHERE = "sys_platform != 'linux'"


def to_uv_project(
    taken: Proposal, changes: Sequence[Substitution], name: str, index: Index | None = None
) -> str:
    """The text of the file, for the cell of a proposal. ``index`` tells which packages have no wheel for
    macOS; without one that is known of those that are for CUDA by their names.
    """
    cell = taken.cell
    lines = [*_requirements(taken, index)]
    extras = [one.asked for one in changes if one.instead is None and one.asked.name in _with_code()]
    machine = f"{_LINUX} and platform_machine == '{MACHINES[cell.platform]}'"
    text = [
        "[project]",
        f'name = "{canonical(f"{name}-project")}"',
        'version = "0"',
        f'requires-python = "=={cell.python}.*"',
        *_array("dependencies", lines),
    ]
    if extras:
        text += ["", "[project.optional-dependencies]"]
        text += (f"{one.name} = [{_text(f'{_plain(one.parsed)} ; {_LINUX}')}]" for one in extras)
    darwin = "sys_platform == 'darwin' and platform_machine == 'arm64'"
    text += ["", "[tool.uv]", *_array("environments", [machine, darwin])]
    unbuilt = sorted({one.name for one in extras} & {row.name for row in load().builds if row.against})
    if unbuilt:
        text.append(f"no-build-isolation-package = {json.dumps(unbuilt)}")
    for one in extras:
        text += _metadata(one.parsed)
    return "\n".join([*text, *_sources(cell.frameworks, cell.pip, cell.index), ""])


def _with_code() -> set[str]:
    """Packages with CUDA code of their own, compiled or to be."""
    return {*load().packages} | {row.name for row in load().builds if row.against}


def _requirements(taken: Proposal, index: Index | None) -> Iterator[str]:
    """The requirements of a cell, each for the machines that have a build of it. A build's own mark (+cu128)
    goes: its index is named for Linux, and the release is the same elsewhere.
    """
    for text in (*taken.cell.frameworks, *taken.cell.cuda.packages, *taken.cell.pip):
        parsed = Requirement(text)
        name, wish = canonical(parsed.name), NamedRequirement(parsed=parsed, place=TYPED)
        row = load().elsewhere_systems.get((load().table_name(name), "macos"))
        if row is not None and (parsed.extras or row.cpu != name):
            yield f"{_plain(parsed)} ; {_LINUX}"
            version = f"=={pinned(parsed)}" if row.cpu == name and pinned(parsed) else ""
            yield f"{row.cpu}{version.partition('+')[0]} ; {_ELSEWHERE}"
        elif of_cuda_alone(wish, "macos", taken.cell.python, index) is not None:
            yield f"{_plain(parsed)} ; {_LINUX}"
        else:
            yield _plain(parsed)


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
    """PyTorch's index of a build for the packages that have one there, on Linux alone."""
    for url in indexes:
        if (found := re.search(r"/whl/(\w+)/?$", url)) is None:
            continue
        name = f"pytorch-{found[1]}"
        yield from ("", "[[tool.uv.index]]", f'name = "{name}"', f"url = {_text(url)}", "explicit = true")
        known = load().package_names
        there = {one for one in names_of(beside) if one in known and known[one].variants}
        there |= names_of(frameworks) & {"torch"}
        yield from ("", "[tool.uv.sources]")
        yield from (f'{one} = {{ index = "{name}", marker = "{_LINUX}" }}' for one in sorted(there))
        return  # a table of sources stands once


def _array(name: str, items: Sequence[str]) -> Iterator[str]:
    yield from (f"{name} = [", *(f"    {_text(item)}," for item in items), "]")


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)
