"""The packages of a registry's base: apt-get installs them in the engine, in a stage of the recipe."""

import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from builder.core.errors import CellError
from builder.core.model import Cell, RegistryBase
from builder.image.compose import BaseLayers, Plan, SystemLayers
from builder.image.engine import Engine, SavedImage, built_stage
from builder.image.layers import Layer, Lease, codec, tar_layer
from builder.image.recipe import Recipe, write
from builder.pipeline.options import BuildOptions, EngineOptions
from builder.pipeline.run_context import RunContext
from builder.pipeline.schedule import CellRun
from builder.sources.net import ca_bundle, proxies
from builder.sources.oci import plain_image, write_layout


def system_layers(
    cell_run: CellRun,
    context: RunContext,
    engine: Engine,
    *,
    options: BuildOptions,
    recipe: Recipe,
    planned: Plan,
    log: Path,
) -> SystemLayers:
    """Have apt-get install in a registry's base what the recipe asks for; its layers, in the store.

    Raises CommandError with the end of the log if that fails.
    """
    base, lease = planned.base, planned.lease
    cell, buildx = cell_run.cell, options.engine or EngineOptions()
    authorities = ca_bundle(os.environ)

    def tell(line: str) -> None:
        """Steps by name, their output without its time."""
        if text := re.sub(r"^#\d+ (\d+\.\d+ )?", "", line).strip():
            cell_run.progress(text[:120])

    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rtbuild-")))
        build_context = folder / cell.id
        write(replace(recipe, blobs={}), build_context, blobs={})
        saved = stack.enter_context(
            built_stage(
                engine,
                log=log,
                on_line=tell,
                cancel=cell_run.cancel,
                context=build_context,
                target="system",
                platform=cell.platform,
                epoch=recipe.pinned.epoch,
                build_contexts=_stages_below(context, engine, recipe, base, folder / "base"),
                secrets={"ca": authorities} if authorities is not None else {},
                proxies=proxies(os.environ),
                no_cache=options.no_cache,
                cache_from=[text.replace("{cell}", cell.id) for text in buildx.cache_from],
                cache_to=[text.replace("{cell}", cell.id) for text in buildx.cache_to],
            )
        )
        below = len(base.layers)
        if saved.diff_ids[:below] != tuple(layer.diff_id for layer in base.layers):
            raise CellError(f"the engine built {cell.id} on another base than {cell.base} as it is locked")
        layers = tuple(_kept(saved, number, cell, lease) for number in range(below, len(saved.layers)))
        history = tuple(saved.config.get("history") or ())
        return SystemLayers(layers=layers, history=history[len(base.config.get("history") or ()) :])


def _stages_below(
    context: RunContext, engine: Engine, recipe: Recipe, base: BaseLayers, layout: Path
) -> Mapping[str, str]:
    """The base instead of every stage below ``system``: all of them, or BuildKit 0.13 looks up their
    images and sends their files although they are not built.
    """
    pinned = recipe.pinned.base
    if not isinstance(pinned, RegistryBase):
        raise TypeError("a rootfs has no such stage")
    if engine.facts().takes_layers:
        write_layout(
            layout,
            "base",
            "base:base",
            plain_image(base.layers, base.config),
            lambda one: context.stores.layers.blob(one.digest),
            link=True,
        )
        place = f"oci-layout://{layout}:base"
    else:
        own = f"{pinned.reference.partition('@')[0]}@{pinned.digest}"
        place = f"docker-image://{context.sources.registry.at_mirror(pinned) or own}"
    return dict.fromkeys(("base", "installer", "wheels"), place)


def _kept(saved: SavedImage, number: int, cell: Cell, lease: Lease) -> Layer:
    diff_id, compression = saved.diff_ids[number], cell.options.compression

    def make(target: Path) -> Layer:
        tar = target.with_suffix(".tar")
        try:
            with saved.stream(number) as stream, tar.open("wb") as file:
                shutil.copyfileobj(stream, file, 1 << 20)
            title = f"packages of {cell.base}"
            return tar_layer(tar, target, title, compression, lambda _size: None)
        finally:
            tar.unlink(missing_ok=True)

    key = f"system-{diff_id.removeprefix('sha256:')}-{codec(compression)}"
    layer = lease.obtain(key, make)
    if layer.diff_id != diff_id:
        raise CellError(f"the engine gave {layer.diff_id} for the layer {diff_id}")
    return layer
