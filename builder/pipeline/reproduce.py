"""Builds a cell twice, the second time from nothing that was kept, and compares the two images."""

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from builder.core.errors import CellError
from builder.core.model import Cell, Image, Matrix
from builder.core.temporary import locked_folder, sweep
from builder.image.compose import BaseCache, ImageDifference, compare, step_runner
from builder.image.engine import Engine, SavedImage
from builder.image.recipe import Recipe
from builder.pipeline import stages
from builder.pipeline.build import log_path
from builder.pipeline.events import CellOutcome, CellResult, Stage
from builder.pipeline.image_build import ImageBuild
from builder.pipeline.options import BuildOptions, EngineOptions
from builder.pipeline.run_context import RunContext, Sources, Stores, open_context, share_layers
from builder.pipeline.schedule import CellRun, Hooks, walk_all

_DOWNLOADS = ("wheels", "debs", "apt")
"""Folders that the second build shares with the first: their files are checked against the lock's hashes."""
_AGAIN = "again-"
_NAMED = 10
"""Differing files named in an error; the record holds all."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Two builds of one cell."""

    first: Image
    second: Image
    by_digest: bool
    """Whether the engine's store keeps manifest digests; else contents were compared."""
    difference: ImageDifference | None
    """None if both are the same."""
    kept: Path | None = None
    """Where differing files of both builds were put, in ``first`` and ``second``."""

    @property
    def same(self) -> bool:
        return self.difference is None

    def document(self) -> dict[str, Any]:
        """The document that ``--json`` prints about the cell."""
        found = self.difference
        return {
            "reproducible": self.same,
            "compared": "manifest digests" if self.by_digest else "contents",
            "digests": [self.first.digest, self.second.digest],
            "contents": [self.first.content, self.second.content],
            "kept": str(self.kept) if self.kept else None,
            "config": [list(entry) for entry in found.config] if found else [],
            "layers": [
                {
                    "number": layer.number,
                    "order_differs": layer.order,
                    "only_compression_differs": not layer.stream,
                    "files": [vars(file) | {"what": list(file.what)} for file in layer.files],
                }
                for layer in (found.layers if found else ())
            ],
        }


def check_reproducible(
    matrices: Sequence[Matrix],
    cells: Sequence[Cell],
    options: BuildOptions,
    hooks: Hooks,
    *,
    compared: Callable[[str, Comparison], None],
) -> list[CellResult]:
    """Build every cell twice, one cell at a time, and fail those whose builds differ.

    Neither build takes steps from the engine's cache. The second also has an empty layer store and makes the
    root file system anew, under another umask. ``compared`` is told of each cell's comparison.
    """
    asked = options.engine or EngineOptions()
    engine = Engine.connect(context=asked.context, builder=asked.builder)
    context = open_context(matrices, hooks.emit, engine=engine, mirrors=options.mirrors, key=options.key)
    share_layers(context, source=options.layers, target=None)
    if options.locked:
        context.stores.locks.fresh(cells)

    def one(cell_run: CellRun) -> CellResult:
        stages.check_cell(cell_run, context, refuse=options.refuse)
        recipe = stages.render_cell(
            cell_run, context, stages.lock_cell(cell_run, context, refuse=options.refuse)
        )
        comparison = compare_builds(cell_run, context, options, recipe)
        compared(cell_run.cell.id, comparison)
        refuse_difference(comparison)
        first = comparison.first
        cell_run.note(
            f"twice {first.digest}" if comparison.by_digest else f"twice the same content, {first.content}"
        )
        return cell_run.ended(CellOutcome.DONE, image=first)

    order = (Stage.CHECK, Stage.LOCK, Stage.RENDER, Stage.BUILD)
    return walk_all(cells, order, one, hooks, jobs=1)


def refuse_difference(comparison: Comparison) -> None:
    """Raise CellError with every difference's likely reason, if there is a difference."""
    difference = comparison.difference
    if difference is None:
        return
    what = "digest" if comparison.by_digest else "content"
    first, second = getattr(comparison.first, what), getattr(comparison.second, what)
    lines = [f"two builds of the same lock have different {what}s: {first} and {second}"]
    for layer in difference.layers:
        if not layer.stream:
            lines.append(f"  layer {layer.number}: the same files, compressed in another way")
        elif layer.order:
            lines.append(f"  layer {layer.number}: the same files in another order")
    files = difference.files
    for file in files[:_NAMED]:
        lines.append(f"  {file.path} ({', '.join(file.what)}): {file.reason}")
        lines.append(f"      first: {file.first}; second: {file.second}")
    if len(files) > _NAMED:
        lines.append(f"  and {len(files) - _NAMED} more")
    lines += [f"  config {place}: {one} and {other}" for place, one, other in difference.config[:_NAMED]]
    raise CellError("\n".join(lines), hint=_hint(comparison))


def compare_builds(
    cell_run: CellRun, context: RunContext, options: BuildOptions, recipe: Recipe
) -> Comparison:
    """Build ``recipe`` here, and again with everything set aside that was made before."""
    engine = context.connected
    by_digest = engine.facts().store == "containerd"
    if not by_digest:
        cell_run.note(
            f"the engine's image store ({engine.facts().driver}) gives no manifest digest to compare: "
            'contents are compared; switch to the containerd image store: {"features": '
            '{"containerd-snapshotter": true}} in /etc/docker/daemon.json, then restart the engine; '
            "its images have to be built or pulled again",
            warning=True,
        )
    options = replace(options, no_cache=True, push=None)
    log = log_path(options.results, cell_run.cell)
    kept_in = options.results / "reproduce" / cell_run.cell.id
    first = _make(cell_run, context, options, recipe, log)
    with _set_aside(context) as aside:
        second = _make(cell_run, aside, options, recipe, log.with_name(f"{log.stem}.again.log"))
        try:
            same = first.digest == second.digest if by_digest else first.content == second.content
            difference, kept = None, None
            if not same:
                with cell_run.stage(Stage.BUILD):
                    cell_run.progress("comparing both images, file by file", quiet=False)
                    difference, kept = _compare(engine, first, second, aside.stores.cache, kept_in)
                    cell_run.done("compared")
        finally:
            engine.remove(second.reference)
    return Comparison(first=first, second=second, by_digest=by_digest, difference=difference, kept=kept)


def _make(cell_run: CellRun, context: RunContext, options: BuildOptions, recipe: Recipe, log: Path) -> Image:
    with BaseCache() as base_cache:
        runner = step_runner(context.engine)
        maker = ImageBuild(
            context=context,
            options=options,
            base_cache=base_cache,
            runner=runner,
            cell_run=cell_run,
            recipe=recipe,
            log=log,
        )
        return maker.make()


@contextmanager
def _set_aside(context: RunContext) -> Iterator[RunContext]:
    """The same context with nothing made before, and a umask that leaves others nothing."""
    cache = context.stores.cache
    cache.mkdir(parents=True, exist_ok=True)
    sweep(cache, _AGAIN)
    with locked_folder(cache, _AGAIN) as fresh:
        for name in _DOWNLOADS:
            (cache / name).mkdir(exist_ok=True)
            (fresh / name).symlink_to(cache / name)
        sources = Sources(context.sources.mirrors, fresh, context.sources.note)
        stores = Stores(context.stores.locks, fresh, f"{context.stores.repository}-again")
        before = os.umask(0o077)
        try:
            yield replace(context, sources=sources, stores=stores, taken_from=None, left_in=None)
        finally:
            os.umask(before)


def _compare(
    engine: Engine, first: Image, second: Image, scratch: Path, target: Path
) -> tuple[ImageDifference, Path | None]:
    archives = scratch / "first.tar", scratch / "second.tar"
    for image, archive in zip((first, second), archives, strict=True):
        engine.save(image.reference, archive)
    with SavedImage(archives[0]) as one, SavedImage(archives[1]) as other:
        difference = compare(one, other)
        shutil.rmtree(target, ignore_errors=True)
        kept = _keep(one, difference, target / "first") + _keep(other, difference, target / "second")
    return difference, target if kept else None


def _keep(image: SavedImage, difference: ImageDifference, folder: Path) -> int:
    """Put this image's side of the first 20 differing files into ``folder``; how many there were."""
    count = 0
    for layer in difference.layers:
        wanted = {file.path.lstrip("/") for file in layer.files if {"content", "missing"} & {*file.what}}
        if not wanted or layer.number > len(image.layers):
            continue
        with image.layer(layer.number - 1) as tar:
            for member in tar:
                path = member.name.removeprefix("./")
                small = member.isfile() and member.size <= 64 << 20
                if path not in wanted or not small or count == 20 or ".." in path.split("/"):
                    continue
                content = tar.extractfile(member)
                if content is not None:
                    (folder / path).parent.mkdir(parents=True, exist_ok=True)
                    (folder / path).write_bytes(content.read())
                    count += 1
    return count


def _hint(comparison: Comparison) -> str:
    if comparison.kept is None:
        return "the recipe's step that writes these has to write the same every time"
    first, second = comparison.kept / "first", comparison.kept / "second"
    if shutil.which("diffoscope"):
        return f"look closer: diffoscope {first} {second}"
    return (
        f"look closer: diff -r {first} {second} (or install diffoscope, which looks into archives and .pyc)"
    )
