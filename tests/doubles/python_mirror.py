"""A double of a mirror of python-build-standalone: this machine's own CPythons in the archives' form.

Where the true archives cannot be reached, a CPython that pyenv built takes their place: packed into their
layout, under their naming, with a build date that no release has (1 January 1970), in a catalogue of uv's
own form. So a lock that is made with it names what nobody offers, and nothing built of it can be published by
mistake. It differs from a true archive: its glibc is this machine's, OpenSSL, Tcl and the other libraries are
this machine's and lie beside it, and it was compiled by gcc without profile.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from doubles.http_server import NOT_FOUND, Answer, Request, Server

if TYPE_CHECKING:
    from collections.abc import Iterator

BUILD = "19700101"
FOLDERS = (Path.home() / ".pyenv/versions", Path("/opt/pyenv/versions"))
_SYSTEMS = re.compile(
    r"(ld-linux|libc|libm|libdl|libpthread|librt|libutil|libresolv|libstdc\+\+|libgcc_s)[.-]"
)
"""Of glibc and the compiler: a true archive takes these from the base, too."""
_LEFT = ("test", "site-packages", "__pycache__", "idlelib/idle_test", "turtledemo")


def installed() -> dict[str, Path]:
    """The CPythons of this machine by minor version."""
    found = {}
    for folder in FOLDERS:
        for path in sorted(folder.glob("3.*")) if folder.is_dir() else ():
            found[".".join(path.name.split(".")[:2])] = path
    return found


def file_name(version: str) -> str:
    return f"cpython-{version}+{BUILD}-x86_64-unknown-linux-gnu-install_only_stripped.tar.gz"


def packed(version: str, cache: Path) -> Path:
    """The archive of an installed CPython, packed once into ``cache``; the same bytes each time."""
    minor = ".".join(version.split(".")[:2])
    target = cache / "python-double-1" / file_name(version)
    if not target.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            tree = Path(folder) / "python"
            _lay(installed()[minor], tree, minor)
            part = Path(folder) / "part"
            _pack(tree, part)
            part.replace(target)
    return target


def _lay(source: Path, tree: Path, minor: str) -> None:
    library = f"lib/python{minor}"
    ignore = shutil.ignore_patterns(
        "__pycache__", "*.a", "*.o", "test", "site-packages", "idle_test", "nis.*", "_test*", "xx*"
    )
    for part in ("bin", "include", "lib"):
        shutil.copytree(source / part, tree / part, symlinks=True, ignore=ignore)
    shutil.rmtree(tree / library / "site-packages", ignore_errors=True)
    (tree / library / "site-packages").mkdir()
    for name in (tree / "bin").iterdir():
        if not re.fullmatch(
            rf"(python|pydoc|idle|2to3)3?({re.escape(minor)})?(-config|-\d[\d.]*)?", name.name
        ):
            name.unlink()
    programs = [
        path for path in tree.rglob("*") if path.is_file() and not path.is_symlink() and _is_elf(path)
    ]
    _bundle(programs, tree / "lib")
    for path in [path for path in tree.rglob("*") if path.is_file() and not path.is_symlink()]:
        if _is_elf(path):
            subprocess.run(["strip", "--strip-unneeded", path], check=True)
            _search_beside(path, source)
        elif str(source).encode() in (content := path.read_bytes()):
            path.write_bytes(content.replace(str(source).encode(), b"/install"))
    for name in ("tcl8.6", "tk8.6"):
        shutil.copytree(f"/usr/share/tcltk/{name}", tree / "lib" / name, symlinks=False)


def _bundle(programs: list[Path], folder: Path) -> None:
    """Put what the programs load beside them, as the true archives have it inside."""
    for program in programs:
        said = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
        for name, place in re.findall(r"(\S+) => (/\S+)", said):
            if not _SYSTEMS.match(name) and not (folder / name).exists():
                shutil.copyfile(Path(place).resolve(), folder / name)


def _is_elf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def _search_beside(path: Path, source: Path) -> None:
    """Have the loader look beside the program: its RUNPATH becomes a RPATH, which its modules inherit."""
    content = path.read_bytes()
    old = f"{source}/lib".encode()
    if old + b"\0" in content:
        new = b"$ORIGIN/../lib"
        content = content.replace(old + b"\0", new + b"\0" * (len(old) - len(new) + 1))
        runpath, rpath = b"\x1d" + b"\0" * 7, b"\x0f" + b"\0" * 7
        dynamic = content.find(runpath)
        while dynamic % 8:
            dynamic = content.find(runpath, dynamic + 1)
        path.write_bytes(content[:dynamic] + rpath + content[dynamic + 8 :])


def _pack(tree: Path, target: Path) -> None:
    def plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = member.mtime = 0
        member.uname = member.gname = "root"
        return member

    with (
        target.open("wb") as file,
        gzip.GzipFile(filename="", fileobj=file, mode="wb", compresslevel=1, mtime=0) as packed_,
        tarfile.open(fileobj=packed_, mode="w|", format=tarfile.GNU_FORMAT) as tar,
    ):
        for path in sorted([tree, *tree.rglob("*")]):
            tar.add(path, arcname=str(path.relative_to(tree.parent)), recursive=False, filter=plain)


def catalogue(versions: list[str]) -> str:
    """uv's own form: https://github.com/astral-sh/uv/blob/main/crates/uv-python/download-metadata.json"""
    rows = {}
    for version in versions:
        major, minor, patch = map(int, version.split("."))
        release = "https://github.com/astral-sh/python-build-standalone/releases/download"
        rows[f"cpython-{version}-linux-x86_64-gnu"] = {
            "name": "cpython",
            "arch": {"family": "x86_64", "variant": None},
            "os": "linux",
            "libc": "gnu",
            "major": major,
            "minor": minor,
            "patch": patch,
            "prerelease": "",
            "url": f"{release}/{BUILD}/{file_name(version).replace('+', '%2B')}",
            "sha256": None,
            "variant": None,
            "build": BUILD,
        }
    return json.dumps(rows)


class PythonMirrorDouble:
    """Serves archives on loopback; ``asked`` are the paths of its answers."""

    def __init__(self, files: dict[str, bytes | Path]) -> None:
        self.files = files
        """By path: ``19700101/cpython-….tar.gz``, ``19700101/SHA256SUMS``."""
        self.asked: list[str] = []

    @contextlib.contextmanager
    def serve(self) -> Iterator[str]:
        with Server(self._answer) as server:
            yield f"{server.url}/pbs"

    def _answer(self, request: Request) -> Answer:
        name = request.path.removeprefix("/pbs/")
        self.asked.append(name)
        content = self.files.get(name)
        if content is None:
            return NOT_FOUND
        if isinstance(content, Answer):
            return content
        return Answer(200, content.read_bytes() if isinstance(content, Path) else content)


@contextlib.contextmanager
def machine_pythons(*minors: str, cache: Path) -> Iterator[dict[str, str]]:
    """This machine's CPythons of these minor versions on a mirror; the variables that make uv go there."""
    versions = [installed()[minor].name for minor in minors]
    files: dict[str, bytes | Path] = {
        f"{BUILD}/{file_name(version)}": packed(version, cache) for version in versions
    }
    sums = "".join(
        f"{hashlib.sha256(Path(p).read_bytes()).hexdigest()}  {Path(p).name}\n" for p in files.values()
    )  # type: ignore[arg-type]
    files[f"{BUILD}/SHA256SUMS"] = sums.encode()
    with tempfile.TemporaryDirectory() as folder, PythonMirrorDouble(files).serve() as address:
        listed = Path(folder) / "catalogue.json"
        listed.write_text(catalogue(versions))
        yield {"UV_PYTHON_INSTALL_MIRROR": address, "UV_PYTHON_DOWNLOADS_JSON_URL": str(listed)}


def main() -> None:
    """``PYTHONPATH=tests python -m doubles.python_mirror 3.12 -- COMMAND``: the command with the mirror."""
    import sys

    at = sys.argv.index("--")
    cache = Path(os.environ.get("RTBUILD_CACHE", Path.home() / ".cache/rtbuild")) / "tests"
    with machine_pythons(*sys.argv[1:at], cache=cache) as variables:
        sys.exit(subprocess.run(sys.argv[at + 1 :], env=os.environ | variables, check=False).returncode)


if __name__ == "__main__":
    main()
