"""The layers above the wheels, made by the recipe's own steps.

The steps run in the base's own system (:mod:`builder.image.sandbox`), laid out in memory, over as much of
the wheels as they look at (:mod:`builder.image.layers.convert`), and what they leave is written as BuildKit
writes it (:func:`builder.image.layers.tar.write_folder`): the diff ids are those of a plain ``docker build``.

Bytecode is compiled once for a distribution, and laid before the recipe's step as if it had just made it. The
step compiles the files of each distribution in processes of their own, as its comment in the template says,
and leaves alone what is there. So what a distribution's files become depends on these files, the script and
the interpreter, which is what they are looked up by here. What several distributions name, or none, is
compiled together, and looked up in the same way.

The folder that stands for an image for a moment has its base as far as a script needs it, and excerpts. It is
laid out in memory if there is room (:func:`builder.core.files.workplace`). Files of the base that no
script reads are left out: zones, documentation, the package manager's lists, two files of three in a small
Debian.
"""

from __future__ import annotations

import errno
import hashlib
import itertools
import os
import re
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path

from builder.core.digests import digest_of
from builder.core.documents import shown
from builder.core.errors import CancelledError, CellError
from builder.core.files import MemoryFullError, disk_errors, workplace
from builder.core.items import WorkSpan
from builder.image.compose.cell_layers import Plan, SystemLayers
from builder.image.compose.step_runners import StepRunner
from builder.image.layers import (
    FORMAT,
    MTIME,
    SITE,
    Layer,
    Lease,
    Pack,
    Packed,
    TarEntry,
    TarReader,
    codec,
    excerpt_of,
    find_pack,
    is_library,
    is_source,
    keep_pack,
    open_layer,
    write_folder,
)
from builder.image.recipe import Recipe, RecipeStep
from builder.image.sandbox import environment

_UNREAD = re.compile(r"(usr/share|usr/include|var/lib/dpkg|var/cache)/")
_MACHINE = (errno.ENOSPC, errno.EDQUOT, errno.ENOMEM, errno.EIO, errno.EROFS, errno.EMFILE)
"""Errors that are this machine's, and not the layer's."""
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class RootfsTree:
    """Modes and links are kept, owners are not, nor times; packed files are as old as those of wheels."""

    def __init__(self, root: Path, cancel: threading.Event) -> None:
        root.mkdir(mode=0o755)
        root.chmod(0o755)
        self.root = root.resolve()
        self._cancel = cancel
        self._new: set[str] = set()
        """Paths that the layer being unpacked has brought so far."""
        self._folders: dict[str, Path] = {"": self.root}

    def unpack(self, blob: Path, media_type: str) -> None:
        """Unpack one layer of the base.

        Raises :class:`~builder.core.errors.CellError` for a layer that is damaged or leads out of the folder.
        """
        self._new.clear()
        with open_layer(blob, media_type) as archive:
            for entry in archive:
                if self._cancel.is_set():
                    raise CancelledError("unpacking was not finished")
                try:
                    self._entry(archive, entry)
                except (OSError, RuntimeError) as problem:  # pathlib's own error for a circle of links
                    if isinstance(problem, OSError) and problem.errno in _MACHINE:
                        raise
                    raise archive.error(f"it holds {shown(entry.name, most=100)!r}: {problem}") from problem

    def write(self, files: Iterable[Packed], below: str = "") -> None:
        """Write packed files, as much of each as there is, ``below`` a folder."""
        for file in files:
            ranges = [(offset, data) for (offset, _), data in zip(file.ranges, file.pieces, strict=True)]
            target = self._place(below + file.path)
            self._write(target, ranges, file.size, file.mode)
            os.utime(target, (MTIME, MTIME))

    def _entry(self, archive: TarReader, entry: TarEntry) -> None:
        if entry.name in ("", ".") or _UNREAD.match(entry.name):
            return
        folder, _, base = entry.name.rpartition("/")
        if base == ".wh..wh..opq":
            self._empty(folder)
            return
        self._new.add(entry.name)
        # https://github.com/opencontainers/image-spec/blob/main/layer.md#whiteouts
        if base.startswith(".wh."):
            self._remove(self._place(entry.name[: -len(base)] + base.removeprefix(".wh.")))
            return
        target = self._place(entry.name)
        if entry.kind == "folder":
            self._make_folder(target, entry.mode)
        elif entry.kind == "file":
            self._write(target, _placed(archive.content()), entry.size, entry.mode)
        elif entry.kind in ("symlink", "hardlink"):
            self._remove(target)
            if entry.kind == "symlink":
                target.symlink_to(entry.link)
            else:
                self._link(entry.link.removeprefix("./").strip("/"), target)
        # Devices, pipes and sockets are nothing that a step reads.

    def _write(self, target: Path, ranges: Iterable[tuple[int, bytes]], size: int, mode: int) -> None:
        try:
            file = os.open(target, _NEW, 0o600)
        except FileExistsError:
            self._remove(target)
            file = os.open(target, _NEW, 0o600)
        try:
            whole = 0
            for start, data in ranges:
                written = 0
                while written < len(data):
                    written += os.pwrite(file, memoryview(data)[written:], start + written)
                whole += written
            if whole != size:
                os.ftruncate(file, size)
            os.fchmod(file, (mode & 0o777) | 0o600)
        finally:
            os.close(file)

    def _make_folder(self, target: Path, mode: int) -> None:
        try:
            target.mkdir()
        except FileExistsError:
            if not target.is_dir():  # a lower layer's file, or a link to nothing
                target.unlink()
                target.mkdir()
        if not target.is_symlink():
            target.chmod((mode & 0o777) | 0o700)

    def _link(self, name: str, target: Path) -> None:
        if _UNREAD.match(name):
            return
        source = self._place(name)
        try:
            os.link(source, target, follow_symlinks=False)
        except FileNotFoundError:
            raise CellError(f"a layer holds a link to {name!r}, which is not there") from None
        except OSError:  # no hard links here: for what reads it a copy is the same
            shutil.copy2(source, target, follow_symlinks=False)

    def _empty(self, folder: str) -> None:
        """Remove what lower layers have in a folder, and nothing of this one's."""
        start = f"{folder}/"
        kept = {name[len(start) :].partition("/")[0] for name in self._new if name.startswith(start)}
        for path in sorted(self.folder(folder).iterdir()):
            if path.name not in kept:
                self._remove(path)

    def _remove(self, target: Path) -> None:
        is_link = target.is_symlink()
        if is_link or target.is_dir():
            self._folders = {"": self.root}
        if target.is_dir() and not is_link:
            shutil.rmtree(target)
        else:
            target.unlink(missing_ok=True)

    def _place(self, name: str) -> Path:
        """The path of ``name``; never outside of the folder, whatever links say."""
        folder, _, base = name.rpartition("/")
        if base in ("", ".", ".."):
            raise CellError(f"a layer holds {name!r}, which is no plain path")
        return self.folder(folder) / base

    def folder(self, name: str) -> Path:
        """The path of a folder, which is made if it does not exist."""
        path = self._folders.get(name)
        if path is not None:
            return path
        path = self._place(name)
        try:
            path.mkdir()
            path.chmod(0o755)  # whatever the umask: of bytecode that is laid out it is the layer's
        except FileExistsError:
            if path.is_symlink():
                path = path.resolve()
                if not path.is_relative_to(self.root):
                    raise CellError(
                        f"a layer puts {name!r} behind a link that leads out of the image"
                    ) from None
                path.mkdir(mode=0o755, parents=True, exist_ok=True)
        self._folders[name] = path
        return path


def _placed(pieces: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """Each piece with its offset."""
    at = 0
    for piece in pieces:
        yield at, piece
        at += len(piece)


_FORMAT = 1
"""To be raised when the same steps over the same layers leave another tar stream."""
_OUT = "out/bytecode/"
_PYTHON = re.compile(
    r"(usr/|usr/local/)?lib/python[\d.]*|etc/python[\d.]*|(usr/|usr/local/)?bin/python[\d.]+|opt/python"
)
_LIBRARIES = re.compile(r"(libc|libm|libpython[\d.]+)(-[\d.]+)?\.so[.\d]*")
"""``libm``: the compiler works out powers of constants."""


@dataclass(frozen=True, kw_only=True)
class ComposeInput:
    """The parts of one image, and the helpers that put it together."""

    recipe: Recipe
    plan: Plan
    """With every layer known."""
    system: SystemLayers = field(default_factory=SystemLayers)
    """The layers that an engine made of the base's packages."""
    cancel: threading.Event
    base_cache: BaseCache
    runner: StepRunner
    progress: Callable[[str], None] = field(default=lambda _text: None)
    span: WorkSpan = nullcontext

    @cached_property
    def below(self) -> tuple[Layer, ...]:
        """The layers of the system that the steps run in, lowest first."""
        return (*self.plan.base.layers, *self.plan.interpreter, *self.system.layers)


def added_layers(work: ComposeInput) -> tuple[Layer, ...]:
    """The recipe's own layers, lowest first. Raises MissingToolError if this machine cannot run the steps."""
    keys = layer_keys(work.recipe, work.below, work.plan.wheels)
    found = {name: work.plan.lease.look([key]) for name, key in keys.items()}
    missing = {name: keys[name] for name, layer in found.items() if layer is None}
    if missing:
        work.runner.check()  # before anything is laid out
        with disk_errors(work.plan.lease.root):
            try:
                made = _made(work, missing, memory=True)
            except MemoryFullError:
                made = _made(work, missing, memory=False)
        found |= made
    return tuple(one for one in found.values() if one is not None)


def _made(work: ComposeInput, keys: Mapping[str, str], *, memory: bool) -> dict[str, Layer]:
    """The folders with these keys, each as a layer in the store."""
    needed = {step for name in keys for step in work.recipe.steps_of[name]}
    see_wheels = any(step.reads for step in needed)
    with work.base_cache.system(work, alone=see_wheels, memory=memory) as rootfs:
        packs = _unpack_wheels(work, rootfs) if see_wheels else []
        for step in work.recipe.steps:
            if step in needed:
                _run(work, step, rootfs, packs)
        return {name: _keep(work, key, name, rootfs.root / "out" / name) for name, key in keys.items()}


class BaseCache(AbstractContextManager["BaseCache"]):
    """Bases that were laid out in a run, for steps that see no wheels: of any cell, one after another."""

    def __init__(self) -> None:
        self._open = ExitStack()
        self._bases: dict[str, RootfsTree] = {}
        self._guard = threading.Lock()

    def __exit__(self, *_: object) -> None:
        self._open.close()  # an error of the run is none of a base's place

    @contextmanager
    def system(self, work: ComposeInput, *, alone: bool, memory: bool) -> Iterator[RootfsTree]:
        """The base of ``work``, with nothing below ``/out``, for this block alone.

        ``alone`` where it will be changed: then it is of no use to anybody later.
        """
        if alone:
            with _unpacked_base(work, memory=memory) as rootfs:
                yield rootfs
            return
        name = digest_of([layer.diff_id for layer in work.below])
        with self._guard:
            if name not in self._bases:
                self._bases[name] = self._open.enter_context(_unpacked_base(work, memory=memory))
            try:
                yield self._bases[name]
            finally:
                shutil.rmtree(self._bases[name].root / "out", ignore_errors=True)


@contextmanager
def _unpacked_base(work: ComposeInput, *, memory: bool) -> Iterator[RootfsTree]:
    # Of some layers only the compressed size is known. Sources, bytecode and skeletons of TensorFlow with all
    # of CUDA take 0.2 GB.
    need = (512 << 20) + sum(layer.unpacked or 4 * layer.size for layer in work.below)
    with workplace(work.plan.lease.folder("tmp"), need, memory=memory) as folder:
        rootfs = RootfsTree(folder / "root", work.cancel)
        for layer in work.below:
            work.progress(f"looking into {layer.title}")
            with work.span(f"unpack {layer.title}"):
                rootfs.unpack(work.plan.lease.path(layer), layer.media_type)
        yield rootfs


def layer_keys(recipe: Recipe, base: Sequence[Layer], wheels: Sequence[Layer]) -> dict[str, str]:
    """The key of each folder below ``/out``: its steps, the files that they see, the layers below."""
    keys = {}
    for name, steps in recipe.steps_of.items():
        seen = {path: file for step in steps for path, file in recipe.files_of(step).items()}
        below = (*base, *wheels) if any(step.reads for step in steps) else base
        document = {
            "format": _FORMAT,
            "folder": name,  # steps that look at one another make several
            "scripts": [step.script for step in steps],
            "files": {
                path: [hashlib.sha256(file.content).hexdigest(), file.mode] for path, file in seen.items()
            },
            "layers": [layer.diff_id for layer in below],
        }
        made_of = digest_of(document).removeprefix("sha256:")
        keys[name] = f"step-{made_of}-{codec(recipe.cell.options.compression)}"
    return keys


def _run(work: ComposeInput, step: RecipeStep, rootfs: RootfsTree, packs: Sequence[Pack]) -> None:
    work.progress(f"making {', '.join(step.makes)}")
    files = work.recipe.files_of(step).items()
    rootfs.write(Packed.whole(path.lstrip("/"), file.mode, file.content) for path, file in files)
    env = work.plan.base.environment
    run = partial(
        work.runner.run,
        step.script,
        rootfs.root,
        what=f"the step `{step.name}`",
        env=environment(env),
        cancel=work.cancel,
    )
    with work.span(f"step {step.name}"):
        if step.reads == "sources":
            lease, progress = work.plan.lease, work.progress
            compile_sources(step, packs, rootfs, lease, env=env, run=run, progress=progress)
        else:
            run()


def _unpack_wheels(work: ComposeInput, rootfs: RootfsTree) -> list[Pack]:
    """Lay out the folders and libraries of the wheels; the packs that have their sources."""
    packs = []
    for layer in work.plan.wheels:
        work.progress(f"looking at {layer.title}")
        with work.span(f"excerpt of {layer.title}"):
            pack = excerpt_of(layer, work.plan.lease, work.cancel)
            for folder in pack.notes["folders"]:
                rootfs.folder(folder)
            rootfs.write(pack.contents(lambda file: is_library(file.path)))
        packs.append(pack)
    return packs


def _keep(work: ComposeInput, key: str, name: str, folder: Path) -> Layer:
    if not folder.is_dir():
        raise CellError(f"the recipe's steps left no /out/{name}", hint="this is a fault of the template")
    compression = work.recipe.cell.options.compression

    def make(target: Path) -> Layer:
        with target.open("wb") as blob:
            return write_folder(folder, blob, name, compression)

    with work.span(f"layer of {name}"):
        layer = work.plan.lease.obtain(key, make)
    shutil.rmtree(folder)
    return layer


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
