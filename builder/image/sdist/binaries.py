"""Finds the Debian packages whose libraries the compiled files of a wheel load."""

import posixpath
from collections.abc import Iterable
from pathlib import Path

from builder.core.documents import shown
from builder.core.elf import ELF_MACHINES, elf_machine, reader_of
from builder.core.elf_needs import needs_of
from builder.core.errors import CellError
from builder.image.compose import FOLDER
from builder.image.sdist.wheel import Content

_HINT = "pin another version of it, or name an index that has a wheel (`index:`)"


def loaded(content: Content, root: Path, *, machine: str, what: str) -> tuple[str, ...]:
    """The Debian packages whose libraries the files of a wheel load, by name.

    ``root`` is the system that they were linked in. Raises CellError for code of another machine, and for a
    library that neither the wheel, nor the standalone Python, nor a package has.
    """
    own = {posixpath.basename(name) for name in content}
    owners = _owners(root)
    found: set[str] = set()
    absent: list[str] = []
    for name, (data, _) in sorted(content.items()):
        if data[:4] != b"\x7fELF":
            continue
        if elf_machine(reader_of(data)) != ELF_MACHINES[machine]:
            raise CellError(f"{what}: {name} is code of another machine than {machine}", hint=_HINT)
        needs = needs_of(data)
        if needs is None:
            continue
        for library in needs.libraries:
            if library in own:
                continue
            place = _find(library, needs.paths, root, machine) or ""
            if place.startswith(f"/{FOLDER}/"):
                continue  # of the standalone Python, which the image has, too
            package = owners.get(place)
            if package is None:
                absent.append(f"{shown(library, most=80)}, which {shown(name, most=80)} loads")
            else:
                found.add(package)
    if absent:
        said = f"neither the wheel nor a Debian package has {'; '.join(absent[:8])}"
        raise CellError(f"{what}: {said}", hint=_HINT)
    return tuple(sorted(found))


def _find(library: str, paths: Iterable[str], root: Path, machine: str) -> str | None:
    """The library that the loader finds: its path from the root, with no link in it."""
    usual = (f"/usr/lib/{machine}-linux-gnu", "/usr/lib", "/usr/local/lib")
    folders = (*(path for path in paths if path.startswith("/")), *usual)
    return next((place for folder in folders if (place := _real(f"{folder}/{library}", root))), None)


def _real(path: str, root: Path) -> str | None:
    """Follow the links of the system, from its own root; None if nothing is there."""
    for _ in range(16):
        path = _merged(posixpath.normpath(path))
        here = root / path.lstrip("/")
        try:
            if not here.is_symlink():
                return path if here.is_file() else None
            path = posixpath.join(posixpath.dirname(path), str(here.readlink()))
        except OSError:  # a name that is longer than a system takes
            return None
    return None


def _merged(path: str) -> str:
    """``/lib`` is a link to ``/usr/lib``, and packages still name files by either."""
    return f"/usr{path}" if path.startswith(("/lib/", "/lib64/")) else path


def _owners(root: Path) -> dict[str, str]:
    """The package of each file, by dpkg's own lists: https://manpages.debian.org/dpkg-query"""
    found: dict[str, str] = {}
    for path in sorted((root / "var/lib/dpkg/info").glob("*.list")):
        for file in path.read_text("utf-8").splitlines():
            found.setdefault(_merged(file), path.stem.partition(":")[0])
    return found
