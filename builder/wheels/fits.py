"""Whether a wheel fits a cell, by its file name and its ``Requires-Python``, and beside which others it fits.

The lock chose wheels that fit; this is for a lock that was edited, or made for another cell. Of two wheels
that own one path, pip lets the one that it installs last win, silently: by name, Z before A. That is its
order for requirements that know nothing of one another, as with ``--no-deps``:
``get_installation_order`` in https://github.com/pypa/pip/blob/main/src/pip/_internal/resolution/resolvelib/resolver.py.
"""

from collections.abc import Mapping, Sequence

from packaging.specifiers import SpecifierSet
from packaging.tags import compatible_tags, cpython_tags
from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from builder.errors import CellError
from builder.model import Cell, Wheel

_ARCHITECTURES = {"amd64": "x86_64", "arm64": "aarch64"}
_PATCHES = 60
"""More patch releases than a Python has had."""


def check_tags(wheel: Wheel, cell: Cell) -> None:
    """Raise :class:`~builder.errors.CellError` if the file's tags rule out the cell."""
    try:
        tags = parse_wheel_filename(wheel.file)[3]
    except InvalidWheelFilename as problem:
        raise CellError(f"{wheel.file} is no name of a wheel: {problem}") from problem
    version = tuple(int(part) for part in cell.python.split("."))
    # The C library's age is the lock's business, which knows the base: any of this architecture will do here.
    supported = {
        (tag.interpreter, tag.abi)
        for tag in (*cpython_tags(version, platforms=["any"]), *compatible_tags(version, platforms=["any"]))
    }
    if not any((tag.interpreter, tag.abi) in supported and _runs_on(tag.platform, cell) for tag in tags):
        raise CellError(
            f"{wheel.file} does not run on Python {cell.python} on {cell.platform}",
            hint=f"lock the cell {cell.id} again",
        )


def check_python(name: str, requires: str | None, cell: Cell) -> None:
    """Raise :class:`~builder.errors.CellError` if ``Requires-Python`` allows no patch release of it."""
    if not requires:
        return
    try:
        allowed = SpecifierSet(requires)
        fits = any(allowed.contains(f"{cell.python}.{patch}") for patch in range(_PATCHES))
    except ValueError:
        return  # pip ignores what it cannot read
    if not fits:
        raise CellError(
            f"{name} asks for Python {requires}, the cell has {cell.python}",
            hint=f"lock the cell {cell.id} again",
        )


def _runs_on(tag: str, cell: Cell) -> bool:
    operating_system, _, architecture = cell.platform.partition("/")
    machine = _ARCHITECTURES.get(architecture, architecture)
    return tag == "any" or (tag.startswith((operating_system, "manylinux")) and tag.endswith(f"_{machine}"))


Listing = Mapping[str, Mapping[str, str]]
"""Distribution → path below the root → mode and sha256 of the file, as one text."""


def refuse_collisions(listings: Sequence[Listing], *, as_listed: bool) -> None:
    """Raise :class:`~builder.errors.CellError` if two distributions differ about a path.

    The same content twice is fine: packages that share a namespace each bring its ``__init__.py``. With
    ``as_listed``, of a list that is installed as it stands, so is a difference, as long as the layers, lowest
    first, leave what pip would.
    """
    owners: dict[str, tuple[str, str]] = {}
    clashes: dict[tuple[str, str], list[str]] = {}
    for listing in listings:
        for name, files in listing.items():
            for path, content in files.items():
                owner, owned = owners.setdefault(path, (name, content))
                if owned != content:
                    clashes.setdefault((owner, name), []).append(path)
    if as_listed:
        clashes = {
            pair: left
            for pair, paths in clashes.items()
            if (left := [path for path in paths if not _as_pip_leaves_it(path, listings)])
        }
    folders = {path.rpartition("/")[0]: (name, path) for path, (name, _) in owners.items()}
    for folder, (name, _) in list(folders.items()):
        _add_parents(folders, folder, name)
    for path in folders.keys() & owners.keys():
        clashes.setdefault((owners[path][0], folders[path][0]), []).append(path)
    if clashes:
        raise CellError(
            "\n".join(_describe(pair, sorted(paths)) for pair, paths in sorted(clashes.items())),
            hint="the packages cannot live in one environment; drop one of them, or pin versions that agree",
        )


def _as_pip_leaves_it(path: str, listings: Sequence[Listing]) -> bool:
    """Whether the topmost layer has the file of the distribution that pip installs last."""
    layers = [{name: files[path] for name, files in listing.items() if path in files} for listing in listings]
    top = next(layer for layer in reversed(layers) if layer)
    every = {name: content for layer in layers for name, content in layer.items()}
    return top[min(top)] == every[min(every)]


def _add_parents(folders: dict[str, tuple[str, str]], folder: str, name: str) -> None:
    above = folder.rpartition("/")[0]
    while above and above not in folders:
        folders[above] = (name, folder)
        above = above.rpartition("/")[0]


def _describe(pair: tuple[str, str], paths: list[str]) -> str:
    more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    return f"{pair[0]} and {pair[1]} both own /{paths[0]}{more}, with different content"
