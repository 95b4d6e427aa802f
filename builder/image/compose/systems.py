"""What wheels stand on: a rootfs put together offline from the lock's own Debian packages, and the tar of a
standalone Python.

mmdebstrap does the work (https://gitlab.mister-muffin.de/josch/mmdebstrap): the packages become a local
archive, apt and dpkg install them from there, and what two runs do not share is removed. With the same
packages, the same date and the same mmdebstrap the tar is the same, byte for byte.

An archive of python-build-standalone is looked at without running any of it. Its form:
https://github.com/astral-sh/python-build-standalone/blob/main/docs/distributions.md; what it still says of
the machine that built it: ``docs/quirks.md`` there. uv mends the same as it installs one.
"""

import email
import hashlib
import io
import json
import os
import posixpath
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from builder.core.digests import digest_of, file_sha256
from builder.core.documents import shown
from builder.core.elf import INTERP_SEGMENT, elf_machine, elf_segments, reader_of
from builder.core.errors import CellError, CommandError, MissingToolError
from builder.core.files import locked, locked_folder, read_cached, sweep, write_whole
from builder.core.model import Cell, Deb, RootfsBase, StandalonePython
from builder.core.versions import at_least, key
from builder.image.layers import MTIME, TarEntry, TarReader, codec, decompressed, parents
from builder.plan.facts.reading import needs_of
from builder.plan.facts.tables import load
from builder.sources.index import PythonArchives, choose_python, machine_platform

SCRIPT = Path(__file__).with_name("rootfs-finish.sh")
"""Runs at the end, with the new system's folder as its argument; says itself what it removes, and why."""

_MERGE_USR = """for name in bin sbin lib lib64; do
    mkdir -p "$1/usr/$name"
    ln -s "usr/$name" "$1/$name"
done"""
"""Before the first package: ``usr-is-merged`` (bookworm) installs only if these are links already. Later
suites bring the same links in base-files. https://wiki.debian.org/UsrMerge"""
_FORMAT = 3
"""To be raised when this module makes another tar of the same packages."""
_LAYER_FORMAT = 2
"""To be raised when a rootfs is held against other rules as it becomes a layer."""


def cached_rootfs(base: RootfsBase, *, cache: Path, fetch: Callable[[Sequence[Deb]], Sequence[Path]]) -> Path:
    """The tar of ``base`` below ``cache/rootfs/``, made at the first call; later ones check its SHA-256.

    ``fetch`` gives the packages' verified files, and is called only when the tar has to be made. Processes
    and threads that want the same system wait for the first of them.

    Raises as :func:`make`.
    """
    key = content_key(base, mmdebstrap=_version())
    folder = cache / "rootfs"
    folder.mkdir(parents=True, exist_ok=True)
    tar, recorded = folder / f"{key}.tar", folder / f"{key}.sha256"
    with locked(folder / f"{key}.lock"):
        if tar.is_file() and recorded.is_file() and recorded.read_text("ascii") == file_sha256(tar):
            return tar
        recorded.unlink(missing_ok=True)
        sweep(folder, f".{key[:12]}.")
        with locked_folder(folder, f".{key[:12]}.") as beside:
            made = make(base, fetch(base.debs), beside / tar.name)
            digest = file_sha256(made)
            made.rename(tar)
        write_whole(recorded, digest.encode())
    return tar


def content_key(base: RootfsBase, **tools: str) -> str:
    """64 hex digits that stand for the system: its packages, what is done to them, with which ``tools``."""
    document = {
        "format": _FORMAT,
        "suite": base.suite,
        "epoch": base.epoch,
        "debs": [deb.sha256 for deb in base.debs],
        "finish": hashlib.sha256(SCRIPT.read_bytes()).hexdigest(),
        **tools,
    }
    return digest_of(document).removeprefix("sha256:")


def rootfs_key(base: RootfsBase, cell: Cell) -> str:
    """The key of a rootfs's layer: its packages, and the rules by which they become a system."""
    return f"rootfs{_LAYER_FORMAT}-{content_key(base)}-{codec(cell.options.compression)}"


def make(base: RootfsBase, debs: Sequence[Path], out: Path) -> Path:
    """Write ``out``, the tar of a system with exactly ``debs``, the files of ``base.debs`` in their order.

    As root mmdebstrap uses chroot; without, a user namespace, for which ``/etc/subuid`` must have a line.

    Raises:
        MissingToolError: this machine has no mmdebstrap.
        CellError: a package is not what the lock says, or the packages do not make a system.
    """
    version = _version()
    # Of the user's environment only paths: maintainer scripts see it.
    environment = {name: os.environ[name] for name in ("HOME", "TMPDIR", "USER") if name in os.environ}
    # Without /sbin a user's PATH lacks ldconfig and start-stop-daemon, which dpkg demands.
    environment["PATH"] = os.environ.get("PATH", os.defpath) + ":/usr/local/sbin:/usr/sbin:/sbin"
    environment |= {"LC_ALL": "C.UTF-8", "SOURCE_DATE_EPOCH": str(base.epoch)}
    with tempfile.TemporaryDirectory(prefix="rtbuild-rootfs-") as work:
        folder = Path(work)
        folder.chmod(0o755)  # in a user namespace apt reads it as another user
        archive, finish, log = folder / "archive", folder / "finish", folder / "log"
        _write_archive(base.debs, debs, archive)
        shutil.copyfile(SCRIPT, finish)
        finish.chmod(0o755)
        command = _command(base, archive=archive, finish=finish)
        none = subprocess.DEVNULL
        with log.open("wb") as said, out.open("wb") as tar:
            done = subprocess.run(
                command, stdin=none, stdout=tar, stderr=said, env=environment, umask=0o022, check=False
            )
        if done.returncode != 0:
            out.unlink()
            no_root = "without root it needs newuidmap and lines of this user in /etc/subuid and /etc/subgid"
            raise CommandError(
                f"mmdebstrap {version} could not put {base.suite} together from {len(debs)} packages",
                command=command,
                returncode=done.returncode,
                tail=log.read_text("utf-8", "replace").splitlines()[-25:],
                hint=no_root if os.geteuid() != 0 else None,
            )
    _check_packages(base, out)
    _add_dev(base, out)
    return out


def _write_archive(debs: Sequence[Deb], files: Sequence[Path], folder: Path) -> None:
    """Copy ``files``, those of ``debs`` in their order, into ``folder``, an archive that apt can read.

    https://wiki.debian.org/DebianRepository/Format#Flat_Repository_Format
    Every file is compared with the lock, since apt is then told to trust the archive. Raises CellError.
    """
    folder.mkdir()
    folder.chmod(0o755)
    paragraphs = []
    for deb, source in zip(debs, files, strict=True):
        file = folder / f"{deb.sha256}.deb"
        shutil.copyfile(source, file)
        file.chmod(0o644)
        found = file_sha256(file)
        if found != deb.sha256:
            raise CellError(
                f"{source.name} has SHA-256 {found}, the lock says {deb.sha256}",
                hint="remove it from the cache to download it again",
            )
        read = subprocess.run(
            ["dpkg-deb", "--field", str(file)], capture_output=True, errors="replace", check=False
        )
        if read.returncode != 0:
            raise CellError(f"{deb.package} {deb.version} is no Debian package: {read.stderr.strip()}")
        place = f"Filename: ./{file.name}\nSize: {file.stat().st_size}\nSHA256: {deb.sha256}\n"
        paragraphs.append(read.stdout.rstrip("\n") + "\n" + place)
    index = folder / "Packages"
    index.write_text("\n".join(paragraphs), "utf-8")
    index.chmod(0o644)


def lacks_for_rootfs() -> str | None:
    """The tool for a rootfs base that this machine lacks, in words; None if it has all."""
    for tool in ("mmdebstrap", "dpkg-deb"):
        if shutil.which(tool) is None:
            return f"a rootfs base is made with {tool}, which this machine lacks"
    return None


def _version() -> str:
    """``1.3.5``. Raises MissingToolError."""
    if (lacks := lacks_for_rootfs()) is not None:
        raise MissingToolError(
            lacks,
            hint="sudo apt-get install mmdebstrap (Debian, Ubuntu), or use a base image from a registry",
        )
    done = subprocess.run(["mmdebstrap", "--version"], capture_output=True, errors="replace", check=False)
    if done.returncode != 0:
        raise MissingToolError(f"mmdebstrap does not start on this machine: {done.stderr.strip()[-400:]}")
    return done.stdout.strip().removeprefix("mmdebstrap ")


def _command(base: RootfsBase, *, archive: Path, finish: Path) -> list[str]:
    """The target is standard output: the file then belongs to us, whatever the mode."""
    architectures = sorted({deb.architecture for deb in base.debs} - {"all"})
    packages = sorted(deb.package for deb in base.debs)
    merged = [f"--setup-hook={_MERGE_USR}"] if "usr-is-merged" in packages else []
    return [
        "mmdebstrap",
        "--mode=root" if os.geteuid() == 0 else "--mode=unshare",
        # `custom` installs what is named and nothing else; the other variants add packages of their own.
        "--variant=custom",
        "--include=" + ",".join(packages),
        "--architectures=" + ",".join(architectures),
        "--format=tar",
        "--dpkgopt=force-unsafe-io",  # no fsync for each file: the system is thrown away once it is a tar
        "--skip=output/dev",  # no device nodes, which a rootless engine cannot make; see _add_dev
        *merged,
        f"--customize-hook={finish}",
        base.suite,
        "-",
        # Trusted because _write_archive has just compared every package with the lock's SHA-256.
        f"deb [trusted=yes] copy://{archive} ./",
    ]


def _check_packages(base: RootfsBase, tar: Path) -> None:
    """dpkg's own list, against the lock: apt may have left something out."""
    wanted = {(deb.package, deb.version) for deb in base.debs}
    with tarfile.open(tar) as archive:
        member = archive.extractfile("./var/lib/dpkg/status")
        text = member.read().decode() if member is not None else ""
    paragraphs = map(email.message_from_string, text.split("\n\n"))
    found = {
        (one["Package"], one["Version"]) for one in paragraphs if one["Status"] == "install ok installed"
    }
    if found != wanted:
        differing = ", ".join(sorted(f"{name} {version}" for name, version in found ^ wanted))
        tar.unlink()
        raise CellError(
            f"{base.suite} does not hold what its lock says: {differing}",
            hint="lock the matrix again: `rtbuild lock --upgrade`",
        )


def _add_dev(base: RootfsBase, tar: Path) -> None:
    """An empty ``/dev``, on which an engine mounts its own."""
    folder = tarfile.TarInfo("./dev")
    folder.type, folder.mode, folder.mtime = tarfile.DIRTYPE, 0o755, base.epoch
    with tarfile.open(tar, "a", format=tarfile.USTAR_FORMAT) as archive:
        archive.addfile(folder)


PYTHON_FORMAT = 2
"""To be raised when the same archive is laid out otherwise."""
FOLDER = "opt/python"
"""The interpreter's folder in images, without its version, as in the archive."""
_TOP = "python"
_MOST_FILES, _MOST_BYTES = 50_000, 1 << 30
"""The largest archive of 2026 has 6,000 files and 0.3 GiB."""
_LOADERS = {
    62: ("linux/amd64", "/lib64/ld-linux-x86-64.so.2"),
    183: ("linux/arm64", "/lib/ld-linux-aarch64.so.1"),
}
"""By ELF's number of the machine: https://refspecs.linuxfoundation.org/elf/gabi4+/ch4.eheader.html"""
# pip and setuptools are the environment's own; bytecode is the recipe's; nobody links with CPython here.
_LEFT_OUT = re.compile(
    r"lib/python3\.\d+/(site-packages/.+|test/.+|(.+/)?__pycache__(/.*)?|(.+/)?(idle_)?tests?/.+)|.+\.(pyc|a|o)|"
    r"bin/(pip|easy_install|wheel)[\d.-]*|lib/python3\.\d+/EXTERNALLY-MANAGED"
)
_MENDED = re.compile(
    r"lib/python3\.\d+/(_sysconfigdata_[^/]+\.py|config-[^/]+/(Makefile|python-config\.py))|lib/pkgconfig/[^/]+\.pc|bin/[^/]+"
)
_BUILT_AT = re.compile(rb"(?:(?<=-[LI])|(?<![\w./-]))/install(?=[/'\"\s:]|$)")
_BUILT_WITH = (
    (re.compile(rb"\s*-[IL]/(?:tools|build)/[^\s'\"]*"), b""),
    (re.compile(rb"(?:/[\w./-]+/)?\bclang\+\+(?=[\s'\"])"), b"c++"),
    (re.compile(rb"(?:/[\w./-]+/)?\bclang(?=[\s'\"])"), b"cc"),
    (re.compile(rb"(?:/[\w./-]+/)?\bllvm-(ar|ranlib|nm|readelf|strip)(?=[\s'\"])"), rb"\1"),
)


@dataclass(frozen=True, slots=True)
class _Kept:
    content: bytes
    executable: bool
    link: str = ""
    """The target of a symbolic link."""


class PythonTree:
    """The files of an archive that images get, and the oldest ``glibc`` that all of them run on.

    None of it is run. Raises CellError if it is no archive ``file`` of CPython ``version`` for ``platform``,
    leads out of its folder, or holds something else.
    """

    def __init__(self, archive: Path, *, file: str, version: str, platform: str) -> None:
        self._file = file
        self._kept: dict[str, _Kept] = {}
        """By path below :data:`FOLDER`."""
        self._read(archive)
        self._check(version, platform)
        asked = (needs.glibc for one in self._kept.values() if (needs := needs_of(one.content)) is not None)
        self.glibc = max((found for found in asked if found is not None), key=key, default="2.17")

    def write(self, out: BinaryIO) -> None:
        """Write it as a tar: sorted, owned by 0:0, of one time; a function of the archive's content alone."""
        files = {f"{FOLDER}/{name}": one for name, one in self._kept.items()}
        with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
            for path in sorted({*files, *(folder for name in files for folder in parents(name))}):
                info, content = tarfile.TarInfo(path), b""
                info.mtime, info.mode = MTIME, 0o755
                one = files.get(path)
                if one is None:
                    info.type = tarfile.DIRTYPE
                elif one.link:
                    info.type, info.linkname, info.mode = tarfile.SYMTYPE, one.link, 0o777
                else:
                    content = _mended(path.removeprefix(f"{FOLDER}/"), one.content)
                    info.size, info.mode = len(content), 0o755 if one.executable else 0o644
                tar.addfile(info, io.BytesIO(content))

    def _read(self, archive: Path) -> None:
        seen: set[str] = set()
        size = 0
        with archive.open("rb") as file:
            start = file.read(40)
            if not start.startswith(b"\x1f\x8b"):
                text = shown(start.decode("latin-1").strip(), most=40)
                raise self._wrong(f"it is no gzip archive, and begins with {text!r}")
            file.seek(0)
            reader = TarReader(decompressed(file, "gzip"), self._file)
            for entry in reader:
                name = self._name(entry)
                size += entry.size
                if len(seen) > _MOST_FILES or size > _MOST_BYTES:
                    raise self._wrong(
                        f"it unpacks to more than {_MOST_FILES:,} files or {_MOST_BYTES >> 20} MiB"
                    )
                if entry.kind == "folder":
                    continue
                if name in seen:
                    raise self._wrong(f"it holds {shown(name)!r} twice")
                seen.add(name)
                one = self._content(entry, name, reader)
                if not _LEFT_OUT.fullmatch(name):
                    self._kept[name] = one
        lost = sorted(name for name in seen if not self._kept.keys().isdisjoint(parents(name)))
        if lost:
            raise self._wrong(f"it holds {shown(lost[0])!r} below something that is no folder")

    def _content(self, entry: TarEntry, name: str, reader: TarReader) -> _Kept:
        if entry.kind == "file":
            return _Kept(reader.read(), bool(entry.mode & 0o111))
        if entry.kind == "symlink":
            target = posixpath.normpath(posixpath.join(posixpath.dirname(name), entry.link))
            if entry.link.startswith("/") or target.split("/")[0] == ".." or not entry.link.isprintable():
                raise self._wrong(f"{shown(name)!r} links out of it, to {shown(entry.link)!r}")
            return _Kept(b"", executable=False, link=entry.link)
        if entry.kind == "hardlink":
            top, _, path = entry.link.removeprefix("./").partition("/")
            if top != _TOP or path not in self._kept:
                raise self._wrong(
                    f"{shown(name)!r} is a link to {shown(entry.link)!r}, which is not before it"
                )
            return self._kept[path]
        raise self._wrong(f"{shown(name)!r} is a device or a pipe")

    def _name(self, entry: TarEntry) -> str:
        top, *parts = entry.name.split("/")
        odd = not entry.name.isprintable() or "\\" in entry.name or {"", ".", ".."} & {*parts}
        if odd or top != _TOP or not (parts or entry.kind == "folder"):
            raise self._wrong(f"it holds {shown(entry.name)!r}, which is not below {_TOP}/")
        return "/".join(parts)

    def _check(self, wanted: str, platform: str) -> None:
        """Raise CellError for another Python than the one that it is said to be."""
        minor = ".".join(wanted.split(".")[:2])
        said = self._kept.get(f"include/python{minor}/patchlevel.h")
        version = re.search(rb'#\s*define\s+PY_VERSION\s+"([\w.+]+)"', said.content) if said else None
        program = self._kept.get(f"bin/python{minor}")
        if program is None or version is None:
            there = sorted(name for name in self._kept if re.fullmatch(r"bin/(python|pypy)[\d.]*t?", name))
            has = f"it has {', '.join(there)}" if there else "it has no program of Python at all"
            raise self._wrong(f"it holds no CPython {minor}: {has}")
        if version[1].decode() != wanted:
            raise self._wrong(f"it holds Python {version[1].decode()}, and not {wanted}")
        config = self._kept.get(f"include/python{minor}/pyconfig.h")
        for macro, kind in ((b"Py_GIL_DISABLED", "a free-threaded build"), (b"Py_DEBUG", "a debug build")):
            if config is not None and re.search(rb"(?m)^#\s*define\s+" + macro + rb"\s+1\b", config.content):
                raise self._wrong(f"it holds {kind}, for which frameworks have no wheels")
        machine, loader = self._program(program.content)
        known, right = _LOADERS.get(machine, (f"the ELF machine {machine}", ""))
        if known != platform:
            raise self._wrong(f"its Python is for {known}, not {platform}")
        if loader != right:
            libc = "musl" if "musl" in loader else "another C library than glibc"
            raise self._wrong(f"its Python is for {libc} (it asks for {shown(loader) or 'no loader'})")

    def _program(self, content: bytes) -> tuple[int, str]:
        """ELF's number of the machine, and the loader that a program asks for."""
        read, error = reader_of(content), "its Python is no program for Linux on a machine of 64 bits"
        machine = elf_machine(read)
        if machine is None:
            raise self._wrong(error)
        try:
            asked = [one for one in elf_segments(read) if one.kind == INTERP_SEGMENT]
            loader = read(asked[0].offset, asked[0].length).rstrip(b"\0").decode("ascii") if asked else ""
        except ValueError:
            raise self._wrong(error) from None
        return machine, loader

    def _wrong(self, problem: str) -> CellError:
        return CellError(
            f"{self._file} is not what its name says: {problem}",
            hint="nothing of it was run or kept; ask the mirror for python-build-standalone's own archive",
        )


def _mended(name: str, content: bytes) -> bytes:
    """A text that names the folder and the compiler of Python's build, with the image's own instead."""
    if not _MENDED.fullmatch(name) or content.startswith(b"\x7fELF"):
        return content
    content = _BUILT_AT.sub(b"/" + FOLDER.encode(), content)
    if not name.startswith("bin/"):
        for pattern, text in _BUILT_WITH:
            content = pattern.sub(text, content)
    return content


class Pythons:
    """The archives in the cache, and their tars."""

    def __init__(self, cache: Path) -> None:
        self._archives = PythonArchives(cache=cache)

    def pin(
        self,
        version: str,
        platform: str,
        *,
        glibc: str | None,
        note: Callable[[str], None] | None = None,
        at_once: bool = False,
    ) -> StandalonePython:
        """The archive of ``3.12`` or ``3.12.4`` by content, looked into if it can be fetched; it has to be if
        it is needed ``at_once``, by a build from sources.

        Raises:
            CellError: uv knows no such Python, or it does not run on ``glibc``.
            PackageIndexError: the archive was not to be had, or is another one.
        """
        one = choose_python(version, platform)

        def check(path: Path) -> None:
            tree = PythonTree(path, file=one.file, version=one.version, platform=platform)
            _refuse_older(tree.glibc, glibc, one.file)

        known = load().standalone_sums.get(one.file)
        say = note or (lambda _text: None)
        return self._archives.pin(one, known=known, check=check, note=say, at_once=at_once)

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
        tar, noted = folder / f"laid-{PYTHON_FORMAT}.tar", folder / f"laid-{PYTHON_FORMAT}.json"
        with locked(folder / ".lock"):
            known = read_cached(noted, lambda found: (str(found["glibc"]), str(found["sha256"])))
            if known is None or not tar.is_file() or known[1] != file_sha256(tar):
                archive = self._archives.fetch(python, progress=progress, stop=stop)
                platform = machine_platform(python.file)
                tree = PythonTree(archive, file=python.file, version=python.version, platform=platform)
                content = io.BytesIO()
                tree.write(content)
                write_whole(tar, content.getvalue())
                known = tree.glibc, file_sha256(tar)
                write_whole(noted, json.dumps(dict(zip(("glibc", "sha256"), known, strict=True))).encode())
        _refuse_older(known[0], glibc, python.file)
        return tar


def _refuse_older(needed: str, there: str | None, file: str) -> None:
    if there is not None and not at_least(there, needed):
        raise CellError(
            f"{file} needs glibc {needed}, by the symbols that its files ask for, and the base has {there}",
            hint="take a newer base, or python-build-standalone's own archive, which runs on glibc 2.17",
        )
