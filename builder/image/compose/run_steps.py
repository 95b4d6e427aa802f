"""The layers above the wheels, made by the recipe's own steps.

The steps run in the base's own system (:mod:`builder.image.sandbox`), laid out in memory, over as much of
the wheels as they look at (:mod:`builder.image.wheels.excerpt`), and what they leave is written as BuildKit
writes it (:func:`builder.image.layers.tar.write_folder`): the diff ids are those of a plain ``docker build``.
"""

from __future__ import annotations

import hashlib
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path

from builder.core.digests import digest_of
from builder.core.errors import CellError
from builder.core.spans import Span
from builder.core.temporary import disk_errors
from builder.image.compose.bytecode import compile_sources
from builder.image.compose.layer_plan import Plan
from builder.image.compose.rootfs_tree import RootfsTree
from builder.image.compose.step_runners import StepRunner
from builder.image.layers import (
    Layer,
    MemoryFullError,
    Pack,
    Packed,
    SystemLayers,
    codec,
    workplace,
    write_folder,
)
from builder.image.recipe import Recipe, RecipeStep
from builder.image.sandbox import environment
from builder.image.wheels import excerpt_of, is_library

_FORMAT = 1
"""To be raised when the same steps over the same layers leave another tar stream."""


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
    span: Span = nullcontext

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
