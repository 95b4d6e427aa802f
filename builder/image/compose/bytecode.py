"""Bytecode is compiled once for a distribution, and laid before the recipe's step as if it had just made it.

The step compiles the files of each distribution in processes of their own, as its comment in the template
says, and leaves alone what is there. So what a distribution's files become depends on these files, the
script and the interpreter, which is what they are looked up by here. What several distributions name, or
none, is compiled together, and looked up in the same way.
"""

import hashlib
import itertools
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from builder.core.digests import digest_of
from builder.image.compose.rootfs_tree import RootfsTree
from builder.image.layers import FORMAT, Lease, Pack, Packed, find_pack, keep_pack
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
    step: RecipeStep,
    packs: Sequence[Pack],
    rootfs: RootfsTree,
    lease: Lease,
    *,
    env: Mapping[str, str],
    run: Callable[[], None],
    progress: Callable[[str], None],
) -> list[BytecodePart]:
    """Have ``run``, the bytecode ``step``, compile the parts that the store lacks, and store these.

    ``env`` are the base's variables. Returns the parts that were compiled now.
    """
    missing = []
    for part in parts_of(packs, made_by=compiler(step, rootfs.root, env)):
        pack = find_pack(part.key, lease)
        if pack is None:
            missing.append(part)
        else:
            rootfs.write(pack.contents(), _OUT)
    if wanted := {file.path for part in missing for file in part.files}:

        def read(file: Packed) -> bool:
            """With them every RECORD: by these the step knows whose a file is."""
            return file.path in wanted or (is_source(file.path) and not file.path.endswith(".py"))

        for pack in packs:
            rootfs.write(pack.contents(read))
        progress(f"compiling {len(wanted)} files")
    run()
    out = rootfs.root / _OUT
    made = _compiled(out) if missing else {}
    for part in missing:

        def make(part: BytecodePart = part) -> tuple[list[Packed], dict[str, str]]:
            paths = [(made[file.path], out / made[file.path]) for file in part.files if file.path in made]
            files = [
                Packed.whole(name, path.stat().st_mode & 0o777, path.read_bytes()) for name, path in paths
            ]
            return files, {}

        keep_pack(part.key, part.title, make, lease)
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
    """A digest of all that decides what a source becomes: the script, Python, and what it is told.

    Of Python that is every file of it below ``root``, and the libraries that it counts with.
    """
    python = hashlib.sha256()
    for path in _python_files(root):
        name = str(path.relative_to(root))
        content = bytes(path.readlink()) if path.is_symlink() else path.read_bytes()
        python.update(
            f"{len(name)} {name} {path.is_symlink()} {len(content)} ".encode("utf-8", "surrogateescape")
        )
        python.update(content)
    return digest_of({"script": step.script, "env": dict(sorted(env.items())), "python": python.hexdigest()})


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


def _compiled(out: Path) -> dict[str, str]:
    """By its source the path of each file of bytecode. A source that is for another Python has none."""
    found = {}
    for folder, _, names in os.walk(out):
        cache = os.path.relpath(folder, out)
        for name in names:  # module.cpython-39.pyc
            source = f"{cache.removesuffix('/__pycache__')}/{name.rsplit('.', 2)[0]}.py"
            found[source] = f"{cache}/{name}"
    return found
