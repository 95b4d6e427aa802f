"""Builds a cell twice, the second time from nothing that was kept, and compares the two images.

They are compared file by file, as ``docker save`` writes them: a tar with ``manifest.json``, a config, and
layers that are tar streams, compressed or not (https://github.com/moby/docker-image-spec). Only layers that
differ are read, and each difference gets its likely cause.
"""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

from builder.core.errors import CellError
from builder.core.files import locked_folder, sweep
from builder.core.model import Cell, Image, Matrix
from builder.image.compose import BaseCache, step_runner
from builder.image.engine import Engine, SavedImage
from builder.image.recipe import Recipe
from builder.pipeline import stages
from builder.pipeline.build import log_path
from builder.pipeline.events import CellOutcome, CellResult, CellRun, Hooks, Stage, walk_all
from builder.pipeline.image_build import ImageBuild
from builder.pipeline.run_context import (
    BuildOptions,
    EngineOptions,
    RunContext,
    Sources,
    Stores,
    open_context,
    share_layers,
)

_CHUNK = 1 << 20
_SAMPLE = 1 << 16
"""Bytes of a file that are kept, to see what in it differs."""

_BY_PATH = (
    # https://github.com/python/cpython/issues/129724
    (r"\.pyc$", "compiled Python: compile with unchecked hashes in place of times, one file after another"),
    (r"(^|/)etc/ld\.so\.cache$", "the loader's cache, written in the order in which folders are read"),
    (r"(^|/)var/cache/ldconfig/", "ldconfig's own cache: inode numbers and times; remove it in the same RUN"),
    (r"(^|/)var/(log/|lib/dpkg/.*-old$|lib/apt/|cache/apt/|cache/debconf/)",
     "a log or cache of apt or dpkg: remove it in the same RUN"),
    (r"(^|/)(var/cache/fontconfig/|.*/fontlist-.*\.json$)", "a cache of fonts: it holds times"),
    (r"(^|/)etc/(passwd|shadow|group|gshadow)-?$", "a user was added: shadow holds the day"),
    (r"(^|/)(etc/machine-id|var/lib/dbus/machine-id)$", "the machine's id: empty it"),
    (r"(^|/)etc/ssh/ssh_host_", "a host key, made at random: remove it"),
    (r"\.dist-info/(direct_url\.json|RECORD)$", "where a package came from, or what was written for it"),
    (r"(^|/)(tmp|var/tmp|run)/", "a temporary file that was left behind"),
    (r"\.(tar|tgz|gz|zip|whl|jar|deb)$", "an archive: the times and the order of what is in it"),
    (r"\.(a|o|so)(\.|$)", "compiled code: paths, times and the order of files enter it"),
)  # fmt: skip

_BY_CONTENT = (
    # A date, a time of day, or seconds since 1970 between the years 2017 and 2040
    (re.compile(rb"\d{4}-\d\d-\d\d|\d\d:\d\d:\d\d|(Mon|Tue|Wed|Thu|Fri|Sat|Sun)[ ,]|(?<!\d)1[5-9]\d{8}(?!\d)"
                rb"|(?<!\d)2[0-2]\d{8}(?!\d)"),
     "it holds the time of the build: take SOURCE_DATE_EPOCH instead"),
    (re.compile(rb"[0-9a-f]{12,}"), "it holds a random or host-dependent identifier"),
)  # fmt: skip
"""A form that every line has which differs."""
_OUTSIDE = "a step depends on something outside of the recipe"


ComparedEntry = tuple[Mapping[str, str], bytes]
"""All of an entry that is compared, in words (sizes in bytes, times in seconds since 1970, the whole digest),
and the beginning of its content."""
_ABSENT: ComparedEntry = {}, b""
_DOWNLOADS = ("wheels", "debs", "apt")
"""Folders that the second build shares with the first: their files are checked against the lock's hashes."""
_AGAIN = "again-"
_NAMED = 10
"""Differing files named in an error; the record holds all."""


@dataclass(frozen=True, kw_only=True)
class FileDifference:
    """A file in which two layers differ. ``what`` is ``missing``, or names of what is compared."""

    path: str
    what: tuple[str, ...]
    first: str
    second: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class LayerDifference:
    """Two layers at the same height. Without ``files``, only their order or the compression differs."""

    number: int
    """From 1, the lowest."""
    files: tuple[FileDifference, ...]
    order: bool
    """The same entries in another order."""
    stream: bool
    """Whether the uncompressed streams differ; False says that only the compressed bytes do."""


@dataclass(frozen=True, kw_only=True)
class ImageDifference:
    """Everything that two images disagree about."""

    layers: tuple[LayerDifference, ...]
    config: tuple[tuple[str, str, str], ...]
    """Place in the config, and what the first and the second have there."""

    @property
    def files(self) -> tuple[FileDifference, ...]:
        return tuple(file for layer in self.layers for file in layer.files)


def compare(first: SavedImage, second: SavedImage) -> ImageDifference:
    """Compare two images. Layers with the same diff id are the same and are not read."""
    layers = []
    pairs = zip_longest(first.diff_ids, second.diff_ids)
    for number, (one, other) in enumerate(pairs):
        if one != other:
            layers.append(_compare_layers(first, second, number, one, other))
        elif first.layers[number] != second.layers[number] and first.size(number) != second.size(number):
            layers.append(LayerDifference(number=number + 1, files=(), order=False, stream=False))
    return ImageDifference(
        layers=tuple(layers), config=tuple(_compare_documents(first.config, second.config))
    )


def _compare_layers(
    first: SavedImage, second: SavedImage, number: int, one: str | None, other: str | None
) -> LayerDifference:
    mine = entries(first, number) if one is not None else {}
    theirs = entries(second, number) if other is not None else {}
    files = []
    for path in sorted(mine.keys() | theirs.keys()):
        (a, a_start), (b, b_start) = mine.get(path, _ABSENT), theirs.get(path, _ABSENT)
        what = tuple(name for name, text in a.items() if text != b.get(name)) if a and b else ("missing",)
        if what:
            reason = reason_of(path, what, a_start, b_start)
            files.append(
                FileDifference(
                    path=f"/{path}", what=what, first=_say(a, what), second=_say(b, what), reason=reason
                )
            )
    order = not files and list(mine) != list(theirs)
    return LayerDifference(number=number + 1, files=tuple(files), order=order, stream=True)


def _say(aspects: Mapping[str, str], what: tuple[str, ...]) -> str:
    """The entry in those respects, for people."""
    if not aspects:
        return "not there"
    texts = ", ".join(aspects.get(name, "there") for name in what)
    return re.sub(r"(sha256 [0-9a-f]{12})[0-9a-f]+", r"\1", texts)


def entries(image: SavedImage, number: int) -> dict[str, ComparedEntry]:
    """All entries of a layer, by path, in the order of the stream."""
    found: dict[str, ComparedEntry] = {}
    with image.layer(number) as tar:
        for member in tar:
            digest, sample = hashlib.sha256(), b""
            if member.isfile():
                content = tar.extractfile(member)
                while content is not None and (piece := content.read(_CHUNK)):
                    digest.update(piece)
                    if len(sample) < _SAMPLE:
                        sample += piece[: _SAMPLE - len(sample)]
            attributes = sorted((key, text) for key, text in member.pax_headers.items() if "xattr" in key)
            aspects = {
                "kind": f"type {member.type.decode('ascii', 'replace')}",
                "content": f"{member.size} bytes, sha256 {digest.hexdigest()}",
                "link": f"-> {member.linkname}",
                "mode": f"mode {member.mode:04o}",
                "owner": f"owner {member.uid}:{member.gid}",
                "time": f"time {member.mtime:.9f}".rstrip("0").rstrip("."),
                "attributes": " ".join(f"{key}={text}" for key, text in attributes) or "no attributes",
            }
            found[member.name.removeprefix("./").rstrip("/")] = aspects, sample
    return found


def _compare_documents(first: Any, second: Any, place: str = "") -> Iterator[tuple[str, str, str]]:
    """The leaves at which two JSON documents differ; layers are compared elsewhere."""
    if place == "rootfs" or first == second:
        return
    if isinstance(first, dict) and isinstance(second, dict):
        for key in sorted(first.keys() | second.keys()):
            inner = f"{place}.{key}" if place else key
            yield from _compare_documents(first.get(key), second.get(key), inner)
    elif isinstance(first, list) and isinstance(second, list):
        for number, (a, b) in enumerate(zip_longest(first, second)):
            yield from _compare_documents(a, b, f"{place}[{number}]")
    else:
        yield place, json.dumps(first), json.dumps(second)


def reason_of(path: str, what: tuple[str, ...], first: bytes, second: bytes) -> str:
    """The likely reason in a few words. ``first`` and ``second`` are the beginnings of both files."""
    if {"missing", "content"} & {*what}:
        by_path = next((reason for pattern, reason in _BY_PATH if re.search(pattern, path)), None)
        if what == ("missing",):
            return by_path or "made by one build only: a step depends on something outside of the recipe"
        return by_path or _by_content(first.splitlines(), second.splitlines())
    if what == ("time",):
        return "only its time: set times from SOURCE_DATE_EPOCH (touch -h -d) in the step that writes it"
    if "mode" in what:
        return "its mode: the umask of whoever built, or a file copied from the machine"
    if "owner" in what:
        return "its owner: a file copied from the machine, or a user with a number given at random"
    return _OUTSIDE


def _by_content(first: list[bytes], second: list[bytes]) -> str:
    if first != second and sorted(first) == sorted(second):
        return "the same lines in another order: sort what the step lists (LC_ALL=C, PYTHONHASHSEED=0)"
    changed = [(a, b) for a, b in zip(first, second, strict=False) if a != b]
    for pattern, reason in _BY_CONTENT:
        if changed and all(pattern.search(a) and pattern.search(b) for a, b in changed):
            return reason
    return _OUTSIDE


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
    """The folder with the differing files of both builds, in ``first`` and ``second``."""

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
    """The same context over empty caches, and a umask that gives others no rights."""
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
