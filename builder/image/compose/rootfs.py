"""An operating system to stand on, put together offline from the lock's own Debian packages.

mmdebstrap does the work (https://gitlab.mister-muffin.de/josch/mmdebstrap): the packages become a local
archive, apt and dpkg install them from there, and what two runs do not share is removed. With the same
packages, the same date and the same mmdebstrap the tar is the same, byte for byte.
"""

import email
import hashlib
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from builder.core.digests import digest_of, file_sha256
from builder.core.errors import CellError, CommandError, MissingToolError
from builder.core.files import locked, locked_folder, sweep, write_whole
from builder.core.model import Cell, Deb, RootfsBase
from builder.image.layers import codec

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
        read = subprocess.run(["dpkg-deb", "--field", str(file)], capture_output=True, text=True, check=False)
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
    done = subprocess.run(["mmdebstrap", "--version"], capture_output=True, text=True, check=True)
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
