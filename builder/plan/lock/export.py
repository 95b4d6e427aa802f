"""A locked cell in the forms of other tools: its packages by version, and by hash if the form has one.

- ``pylock``: ``pylock.toml``, https://packaging.python.org/en/latest/specifications/pylock-toml/
- ``requirements``: pip's hash-checking mode, https://pip.pypa.io/en/stable/topics/secure-installs/
- ``constraints``: versions alone, for ``pip install -c``
- ``uv``: a ``pyproject.toml`` whose overrides `uv lock` and `uv run` keep to,
  https://docs.astral.sh/uv/reference/settings/#override-dependencies
- ``conda``: an ``environment.yml`` that takes Python from conda and the packages from pip
- ``apptainer``: a definition file, whose image has Debian's packages and the variables, too

The other forms carry packages. The base image, Debian's packages, the environment's variables and the steps
of the recipe stay behind: :func:`lost_by` names them, and each text begins with them as comments.
"""

import json
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from packaging.requirements import Requirement

from builder.core.model import Cell, Pinned, Sdist, Wheel
from builder.core.versions import canonical, names_of, pinned, short
from builder.plan.facts.tables import Row, TableFile, load
from builder.plan.lock.apptainer import definition, stands_for
from builder.sources.index import MACHINES

Form = Literal["pylock", "requirements", "constraints", "uv", "conda", "apptainer"]
Place = Callable[[Wheel | Sdist], tuple[str, str]] | Mapping[str, Path]
"""The address of the index that has a file, and that of the file, without logins (:meth:`Index.place`); or
files of this machine, each package's own, by sha256."""


def pip_install(wanted: Iterable[str], index: Iterable[str], pages: Iterable[str] = ()) -> str:
    """The line to type for requirements, extra indexes and pages of wheels; pip's own configuration says from
    where else.
    """
    extra = [word for url in index for word in ("--extra-index-url", url)]
    extra += [word for url in pages for word in ("-f", url)]
    return shlex.join(["pip", "install", *wanted, *extra])


def pip_line(cell: Cell, *, system: bool = False, pages: Iterable[str] = ()) -> str | None:
    """pip's command line for a cell, which compiles what has sources alone; None, without ``system``, if the
    system has to have CUDA. ``pages``: what it finds wheels on beside. Two lines, joined by ``&&``, where
    packages are built :func:`after` their framework.
    """
    if (cell.cuda.provider == "base" and not system) or cell.dependencies == "listed":
        return None
    late = after(cell)
    first = (*cell.frameworks, *cell.cuda.packages, *(text for text in cell.pip if text not in late))
    if not late:
        return pip_install(first, cell.index, pages)
    tools = [name for name in ("setuptools", "wheel") if name not in names_of(first)]
    return f"{pip_install((*first, *tools), cell.index, pages)} && " + pip_install(
        ("--no-build-isolation", *late), cell.index, pages
    )


def after(cell: Cell) -> tuple[str, ...]:
    """The requirements of a cell on packages whose builds import a framework of the cell's: pip's own
    environment for a build has none.
    """
    there = names_of(cell.frameworks)
    late = {row.name for row in load().builds if row.against in there}
    return tuple(text for text in cell.pip if not names_of([text]).isdisjoint(late))


@dataclass(frozen=True, kw_only=True)
class OfficialImageRow(Row):
    """How the tags of an image are formed that the maker of a distribution publishes."""

    name: str
    image: str
    """With ``{version}``, ``{cuda}`` and ``{cudnn}`` of the build."""
    tags: str
    """The page that lists them."""
    cuda: str = ""
    """What the maker says of the CUDA in images whose tag does not tell it; empty where nobody read that."""


def official_images(cell: Cell) -> Iterator[str]:
    """A line on each of :func:`makers_images`."""
    for row, image in makers_images(cell):
        there = f"{row.tags} lists those that there are"
        if "{cuda}" not in row.image:
            there += f"; its CUDA is not in the tag: {row.cuda or 'which it is was not read'}"
        way = f"`docker pull {image}`, as its tags are formed"
        yield f"{row.name} in its maker's image: {way}; {there} [{row.source}]"


def makers_images(cell: Cell) -> Iterator[tuple[OfficialImageRow, str]]:
    """Each image, by its reference, that the maker of a package of the cell's publishes for its release, by
    the form of its tags; a framework's own, if no package beside it has one.
    """
    rows = {row.name: row for row in TableFile(load().folder / "official-images.toml").rows(OfficialImageRow)}
    for texts in (cell.pip, cell.frameworks):
        found = [
            (rows[name], one) for one in map(Requirement, texts) if (name := canonical(one.name)) in rows
        ]
        for row, parsed in found:
            values = _of_build(row.name, pinned(parsed) or "")
            if {*re.findall(r"{(\w+)}", row.image)} <= values.keys():
                yield row, row.image.format(**values)
        if found:
            return


def _of_build(name: str, pin: str) -> dict[str, str]:
    """Version of a release, and CUDA and cuDNN of its build, as far as they are known."""
    version, _, variant = pin.partition("+")
    rows = load().table(name).of(version) if load().is_framework(name) else []
    build = next((one for one in rows if one.variant == variant or (one.default and not variant)), None)
    known = {"cuda": (build.cuda, 2), "cudnn": (build.cudnn, 1)} if build is not None else {}
    found = {what: short(text, parts) for what, (text, parts) in known.items() if text}
    return found | ({"version": version} if version else {})


LOADER_FOLDERS = (
    "a framework that does not find NVIDIA's libraries by itself needs their folders, "
    "site-packages/nvidia/*/lib, in LD_LIBRARY_PATH"
)


def lost_by(pinned: Pinned, form: Form = "pylock") -> list[str]:
    """The parts of the image that an export does not carry, a sentence each."""
    cell = pinned.cell
    found = [f"the base {cell.base}"]
    if form == "apptainer":
        return [
            f"the digest of the base {cell.base}: {stands_for(pinned)} is taken as it is",
            *_unbuilt(pinned),
        ]
    if cell.cuda.provider == "base":
        found[0] += ", and with it CUDA and cuDNN: the system has to have them"
    if cell.cuda.provider == "wheels":
        found.append(f"the loader's list of the folders of NVIDIA's wheels: {LOADER_FOLDERS}")
        if pinned.has_cudnn8:
            found.append("the link libnvrtc.so to NVIDIA's libnvrtc.so.*, by which cuDNN 8 opens it")
    if pinned.apt:
        found.append(f"Debian's packages {', '.join(pinned.apt)}")
    found += [f"the variable {name}={value!r}" for name, value in cell.env]
    return [*found, *_unbuilt(pinned)]


def _unbuilt(pinned: Pinned) -> Iterator[str]:
    """That what the lock builds shut in is built by who installs the export."""
    if built := [wheel.name for wheel in pinned.wheels if wheel.source is not None]:
        yield f"the builds of {', '.join(built)} shut in: who installs the export builds from the source"


def written(pinned: Pinned, form: Form, place: Place) -> str:
    """The text of the file. pylock and uv name addresses: ``place`` has each package's file.

    Raises what ``place`` raises.
    """
    cell = pinned.cell
    head = [
        f"# {cell.id} of the matrix {cell.matrix}, exported by rtbuild from its lock. Not carried:",
        *(f"#   {text}" for text in lost_by(pinned, form)),
    ]
    return "\n".join([*head, *FORMATS[form](pinned, place), ""])


def _file(wheel: Wheel) -> Wheel | Sdist:
    """The file that an index has: the wheel, or the source of one that is built."""
    return wheel if wheel.source is None else wheel.source.sdist


def _by_name(pinned: Pinned) -> list[Wheel]:
    return sorted(pinned.wheels, key=lambda wheel: canonical(wheel.name))


def _pins(pinned: Pinned) -> list[str]:
    return [f"{canonical(wheel.name)}=={wheel.version}" for wheel in _by_name(pinned)]


def _marker(pinned: Pinned) -> str:
    return f"sys_platform == 'linux' and platform_machine == '{MACHINES[pinned.cell.platform]}'"


def _text(value: str) -> str:
    """A TOML basic string; JSON's escapes are among TOML's."""
    return json.dumps(value, ensure_ascii=False)


def _pylock(pinned: Pinned, place: Place) -> Iterator[str]:
    python = pinned.cell.python
    yield 'lock-version = "1.0"'
    yield f"environments = [{_text(_marker(pinned))}]"
    yield f'requires-python = "=={python}.*"'
    yield 'created-by = "rtbuild"'
    for wheel in _by_name(pinned):
        file = _file(wheel)
        yield from ("", "[[packages]]", f"name = {_text(canonical(wheel.name))}")
        yield f"version = {_text(wheel.version)}"
        if isinstance(place, Mapping):
            where = f"path = {_text(str(place[file.sha256]))}"
        else:
            index, url = place(file)
            yield f"index = {_text(index)}"
            where = f"url = {_text(url)}"
        uploaded = ""
        if isinstance(file, Wheel) and file.uploaded:
            uploaded = f", upload-time = {datetime.fromtimestamp(file.uploaded, UTC):%Y-%m-%dT%H:%M:%SZ}"
        row = (
            f"{{ name = {_text(file.file)}, {where}{uploaded}, size = {file.size}, "
            f'hashes = {{ sha256 = "{file.sha256}" }} }}'
        )
        yield f"wheels = [{row}]" if isinstance(file, Wheel) else f"sdist = {row}"


def _requirements(pinned: Pinned, _place: Place) -> Iterator[str]:
    yield f"# Python {pinned.cell.python}; pip install --no-deps -r FILE"
    yield from (f"--extra-index-url {url}" for url in pinned.cell.index)
    for wheel, pin in zip(_by_name(pinned), _pins(pinned), strict=True):
        yield f"{pin} --hash=sha256:{_file(wheel).sha256}"


def _constraints(pinned: Pinned, _place: Place) -> Iterator[str]:
    yield from _pins(pinned)


def _uv(pinned: Pinned, place: Place) -> Iterator[str]:
    cell = pinned.cell
    pins = _pins(pinned)
    if cell.dependencies == "listed":
        yield "#   that these packages are all: uv adds those that they declare beside"
    yield "[project]"
    # Not the matrix's name alone: uv refuses a project that depends on a package of its own name.
    yield f'name = "{canonical(f"rtbuild-{cell.matrix}")}"'
    yield 'version = "0"'
    yield f'requires-python = "=={cell.python}.*"'
    yield from _array("dependencies", pins)
    yield from ("", "[tool.uv]", "package = false", f"environments = [{_text(_marker(pinned))}]")
    yield "# Other releases than a package declares stay: the lock was tried with these."
    yield from _array("override-dependencies", pins)
    rows = []
    if isinstance(place, Mapping):
        rows = [
            f"{canonical(wheel.name)} = {{ path = {_text(str(place[_file(wheel).sha256]))} }}"
            for wheel in _by_name(pinned)
        ]
    elif cell.index:
        names = {url.rstrip("/"): f"index-{number}" for number, url in enumerate(cell.index, 1)}
        for url, name in names.items():
            yield from ("", "[[tool.uv.index]]", f'name = "{name}"', f"url = {_text(url)}", "explicit = true")
        indexes = {wheel.name: place(_file(wheel))[0] for wheel in _by_name(pinned)}
        rows = [
            f'{canonical(wheel)} = {{ index = "{names[url]}" }}'
            for wheel, url in indexes.items()
            if url in names
        ]
    yield from ("", "[tool.uv.sources]", *rows) if rows else ()


def _array(name: str, items: Iterable[str]) -> Iterator[str]:
    yield from (f"{name} = [", *(f"    {_text(item)}," for item in items), "]")


def _conda(pinned: Pinned, _place: Place) -> Iterator[str]:
    cell = pinned.cell
    yield f"name: {canonical(cell.matrix)}"
    yield from ("channels:", "  - conda-forge", "  - nodefaults", "dependencies:")
    yield from (f"  - python={cell.named_python}", "  - pip", "  - pip:")
    yield from (f"      - {json.dumps(f'--extra-index-url {url}')}" for url in cell.index)
    yield from (f"      - {json.dumps(pin)}" for pin in _pins(pinned))


FORMATS: Mapping[Form, Callable[[Pinned, Place], Iterable[str]]] = {
    "pylock": _pylock,
    "requirements": _requirements,
    "constraints": _constraints,
    "uv": _uv,
    "conda": _conda,
    "apptainer": lambda pinned, place: definition(pinned, _requirements(pinned, place)),
}
