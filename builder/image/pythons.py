"""Standalone Pythons for images: which archive a cell gets, and the tar that is its layer."""

import io
import json
from collections.abc import Callable
from pathlib import Path

from builder.digests import file_sha256
from builder.errors import CellError
from builder.facts.tables import standalone_sums
from builder.facts.versions import at_least
from builder.files import read_cached, write_whole
from builder.image.pythontar import FORMAT, read_python
from builder.index.pythons import PythonArchives, choose, machine_platform
from builder.model import StandalonePython
from builder.temporary import locked


class Pythons:
    """The archives, and what was made of them, in the cache."""

    def __init__(self, cache: Path) -> None:
        self._archives = PythonArchives(cache=cache)

    def pin(
        self, version: str, platform: str, *, glibc: str | None, note: Callable[[str], None] | None = None
    ) -> StandalonePython:
        """The archive of ``3.12`` or ``3.12.4`` by content, looked into if it can be fetched.

        Raises:
            CellError: uv knows no such Python, or it does not run on ``glibc``.
            PackageIndexError: the archive was not to be had, or is another one.
        """
        one = choose(version, platform)

        def check(path: Path) -> None:
            found = read_python(path, file=one.file, version=one.version, platform=platform)
            _refuse_older(found.glibc, glibc, one.file)

        known = standalone_sums().get(one.file)
        return self._archives.pin(one, known=known, check=check, note=note or (lambda _text: None))

    def tar(
        self,
        python: StandalonePython,
        *,
        glibc: str | None = None,
        progress: Callable[[int], None] | None = None,
        stop: Callable[[], bool] | None = None,
    ) -> Path:
        """The tar of a locked Python below ``/opt/python``: made at the first call, checked at later ones.

        Raises:
            CellError: it is not what its name says, or does not run on ``glibc``.
            PackageIndexError: the archive was not to be had.
        """
        folder = self._archives.place(python).parent
        folder.mkdir(parents=True, exist_ok=True)
        tar, noted = folder / f"laid-{FORMAT}.tar", folder / f"laid-{FORMAT}.json"
        with locked(folder / ".lock"):
            known = _noted(noted)
            if known is None or not tar.is_file() or known.get("sha256") != file_sha256(tar):
                archive = self._archives.fetch(python, progress=progress, stop=stop)
                tree = read_python(
                    archive, file=python.file, version=python.version, platform=machine_platform(python.file)
                )
                content = io.BytesIO()
                tree.write(content)
                write_whole(tar, content.getvalue())
                known = {"glibc": tree.glibc, "sha256": file_sha256(tar)}
                write_whole(noted, json.dumps(known).encode())
        _refuse_older(known["glibc"], glibc, python.file)
        return tar


def _noted(path: Path) -> dict[str, str] | None:
    return read_cached(path, lambda found: {name: str(found[name]) for name in ("glibc", "sha256")})


def _refuse_older(needed: str, there: str | None, file: str) -> None:
    if there is not None and not at_least(there, needed):
        raise CellError(
            f"{file} needs glibc {needed}, by the symbols that its files ask for, and the base has {there}",
            hint="take a newer base, or python-build-standalone's own archive, which runs on glibc 2.17",
        )
