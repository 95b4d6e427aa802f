"""Bytecode is compiled once for a distribution, and laid before the recipe's step as if it had just made it.

The step compiles the files of each distribution in processes of their own, as its comment in the template
says, and leaves alone what is there. So what a distribution's files become depends on these files, the
script and the interpreter, which is what they are looked up by here. What several distributions name, or
none, is compiled together, and looked up in the same way.
"""

import functools
import hashlib
import itertools
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from builder.core.digests import digest_of
from builder.image.compose.rootfs_tree import RootfsTree
from builder.image.layers import FORMAT, MTIME, Content, Lease, Pack, Packed, find_pack, keep_pack
from builder.image.recipe import RecipeStep
from builder.image.wheels import SITE, is_source

_OUT = "out/bytecode/"
_PYTHON = re.compile(
    r"(usr/|usr/local/)?lib/python[\d.]*|etc/python[\d.]*|(usr/|usr/local/)?bin/python[\d.]+|opt/python"
)
_LIBRARIES = re.compile(r"(libc|libm|libpython[\d.]+)(-[\d.]+)?\.so[.\d]*")
"""``libm``: the compiler works out powers of constants."""


@dataclass(frozen=True, kw_only=True)
class BytecodePart:
    """Sources that are compiled together, and nowhere else."""

    title: str
    files: tuple[Packed, ...]
    key: str


def compile_sources(
    packs: Sequence[Pack],
    rootfs: RootfsTree,
    lease: Lease,
    *,
    made_by: str,
    run: Callable[[], None],
    progress: Callable[[str], None],
) -> list[BytecodePart]:
    """Have ``run``, the bytecode step, compile the parts that the store lacks, and store these.

    ``made_by`` is of :func:`compiler`. Returns the parts that were compiled now.
    """
    missing = unpack_known(parts_of(packs, made_by=made_by), rootfs, lease)
    wanted = {file.path for part in missing for file in part.files}
    if wanted:
        unpack_sources(packs, rootfs, lambda file: file.path in wanted or not file.path.endswith(".py"))
        progress(f"compiling {len(wanted)} files")
    run()
    store_compiled(missing, rootfs.root, lease)
    return missing


def parts_of(packs: Sequence[Pack], *, made_by: str) -> list[BytecodePart]:
    """The sources in ``packs`` by their distribution; ``made_by`` stands for script and interpreter.

    The same rule as in the script: by the RECORD that names a file, if it is one alone.
    """
    owners: dict[str, str] = {}
    for pack in packs:
        for info, names in pack.notes["records"].items():
            for path in (f"{SITE}/{name}" for name in names):
                owners[path] = info if owners.get(path, info) == info else ""
    groups: dict[str, dict[str, Packed]] = {}
    for pack in packs:
        for file in pack.files:
            if file.path.endswith(".py") and file.path.startswith(f"{SITE}/"):
                groups.setdefault(owners.get(file.path, ""), {})[file.path] = file
    parts = []
    for info, found in sorted(groups.items()):
        files = tuple(found[path] for path in sorted(found))
        document = {"files": [[file.path, file.mode, file.sha256] for file in files], "by": made_by}
        title = f"bytecode of {info.removesuffix('.dist-info') or 'what is shared'}"
        key = f"bytecode{FORMAT}-{digest_of(document).removeprefix('sha256:')}"
        parts.append(BytecodePart(title=title, files=files, key=key))
    return parts


def compiler(step: RecipeStep, root: Path, env: Mapping[str, str]) -> str:
    """A digest of all that decides what a source becomes: the script, Python, and what it is told."""
    return digest_of({"script": step.script, "env": dict(sorted(env.items())), "python": _interpreter(root)})


def _interpreter(root: Path) -> str:
    """A digest of every file of Python below ``root``, and of the libraries that it counts with."""
    found = hashlib.sha256()
    for path in _python_files(root):
        name = str(path.relative_to(root))
        content = bytes(path.readlink()) if path.is_symlink() else path.read_bytes()
        found.update(
            f"{len(name)} {name} {path.is_symlink()} {len(content)} ".encode("utf-8", "surrogateescape")
        )
        found.update(content)
    return found.hexdigest()


def _python_files(root: Path) -> list[Path]:
    tops: list[Path] = []
    system = ("lib", "lib64", "usr/lib", "usr/lib64", "usr/local/lib")
    for folder in (*system, "etc", "bin", "usr/bin", "usr/local/bin", "opt"):
        place = root / folder
        if place.is_dir() and not place.is_symlink():
            tops += [path for path in place.iterdir() if _PYTHON.fullmatch(f"{folder}/{path.name}")]
            libraries = (*place.iterdir(), *place.glob("*-linux-gnu*/lib*"))
            tops += [path for path in libraries if _LIBRARIES.fullmatch(path.name)]
    found = set[Path]()
    for top in tops:
        inside = [top]
        if top.is_dir() and not top.is_symlink():
            inside = [
                Path(folder, name) for folder, *names in os.walk(top) for name in itertools.chain(*names)
            ]
        found.update(path for path in inside if path.is_symlink() or path.is_file())
    return sorted(found)


def unpack_known(parts: Sequence[BytecodePart], rootfs: RootfsTree, lease: Lease) -> list[BytecodePart]:
    """Lay out the bytecode that is in the store, and return the parts that have to be compiled."""
    missing = []
    for part in parts:
        pack = find_pack(part.key, lease)
        if pack is None:
            missing.append(part)
        else:
            rootfs.write(pack.contents(), _OUT)
    return missing


def unpack_sources(
    packs: Sequence[Pack], rootfs: RootfsTree, wanted: Callable[[Packed], bool] = lambda _file: True
) -> None:
    """Lay out sources that are ``wanted``, with the RECORDs, as old as they are in their layers."""
    for pack in packs:
        rootfs.write(pack.contents(lambda file: is_source(file.path) and wanted(file)), mtime=MTIME)


def store_compiled(parts: Sequence[BytecodePart], root: Path, lease: Lease) -> None:
    @functools.cache
    def made(folder: str) -> dict[str, Path]:
        """The files of a cache by the names of their modules: ``module.cpython-39.pyc``."""
        files = (root / folder).iterdir() if (root / folder).is_dir() else ()
        return {file.name.rsplit(".", 2)[0]: file for file in files}

    def compiled(path: str) -> Content | None:
        """The bytecode of a source; None if it is for another Python, and did not compile."""
        folder, _, name = path.rpartition("/")
        cache = f"{folder}/__pycache__"
        file = made(_OUT + cache).get(name.removesuffix(".py"))
        if file is None:
            return None
        data, mode = file.read_bytes(), file.stat().st_mode & 0o777
        digest = hashlib.sha256(data).hexdigest()
        return Content(Packed(f"{cache}/{file.name}", mode, len(data), digest, ((0, len(data)),)), [data])

    for part in parts:

        def make(part: BytecodePart = part) -> tuple[list[Content], dict[str, str]]:
            return list(filter(None, (compiled(file.path) for file in part.files))), {}

        keep_pack(part.key, part.title, make, lease)
