"""A folder of Debian packages as an archive that apt can read: the packages, and ``Packages`` beside them.

The format: https://wiki.debian.org/DebianRepository/Format#Flat_Repository_Format
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from typing import TYPE_CHECKING

from builder.errors import CellError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from builder.model import Deb


def write_archive(debs: Sequence[Deb], files: Sequence[Path], folder: Path) -> None:
    """Copy ``files``, those of ``debs`` in their order, into ``folder`` with an index of them.

    Every file is compared with the lock, since apt is then told to trust the archive. Raises CellError.
    """
    folder.mkdir()
    folder.chmod(0o755)
    paragraphs = []
    for deb, source in zip(debs, files, strict=True):
        file = folder / f"{deb.sha256}.deb"
        shutil.copyfile(source, file)
        file.chmod(0o644)
        with file.open("rb") as opened:
            found = hashlib.file_digest(opened, "sha256").hexdigest()
        if found != deb.sha256:
            raise CellError(
                f"{source.name} has SHA-256 {found}, the lock says {deb.sha256}",
                hint="remove it from the cache to download it again",
            )
        paragraphs.append(_paragraph(deb, file))
    index = folder / "Packages"
    index.write_text("\n".join(paragraphs), "utf-8")
    index.chmod(0o644)


def _paragraph(deb: Deb, file: Path) -> str:
    """The package's own control fields and where the file is."""
    done = subprocess.run(["dpkg-deb", "--field", str(file)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CellError(f"{deb.package} {deb.version} is no Debian package: {done.stderr.strip()}")
    control = done.stdout.rstrip("\n")
    return f"{control}\nFilename: ./{file.name}\nSize: {file.stat().st_size}\nSHA256: {deb.sha256}\n"
