"""The work that an engine does for a cell: the packages of a registry's base, and the steps of a recipe on
machines that cannot run them themselves.

Both are stages of a Dockerfile, built into the engine's store, read out of it, and removed there.
"""

import os
import re
import shutil
import tarfile
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from builder.core.documents import shown
from builder.core.errors import CellError
from builder.core.model import Cell, RegistryBase
from builder.image.compose import Runner, SavedImage, base_image, write_layout
from builder.image.engine import BuildRequest, Engine, ca_bundle, hint_for, proxies
from builder.image.layers import BaseLayers, Layer, Lease, Record, SystemLayers, codec, tar_layer
from builder.image.recipe import Recipe, env_name, value, write
from builder.pipeline.options import BuildOptions, EngineOptions
from builder.pipeline.schedule import Walk
from builder.pipeline.site import Site

WORKING = "rtbuild-working"
"""The repository of images that are gone when their cell is built."""
_STEPS = """\
FROM scratch AS system
COPY root/ /
{variables}
COPY step.sh /
RUN --network=none ["/bin/sh", "/step.sh"]
FROM scratch
COPY --from=system /out/ /out/
"""


class EngineSteps(Runner):
    """In an engine: the root folder is sent there, ``/out`` comes back."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def check(self) -> None:
        """An engine that answers runs steps, by buildx."""
        _ = self._engine.buildx

    def run(
        self, script: str, root: Path, *, what: str, env: Mapping[str, str], cancel: threading.Event
    ) -> None:
        facts = self._engine.facts()
        with tempfile.TemporaryDirectory(prefix="rtbuild-step-", dir=root.parent) as folder:
            context = Path(folder)
            variables = "\n".join(f"ENV {env_name(name)}={value(text)}" for name, text in sorted(env.items()))
            (context / "Dockerfile").write_text(_STEPS.format(variables=variables))
            (context / "step.sh").write_text(script)
            root.rename(context / "root")
            try:
                built = _built(
                    self._engine,
                    log=root.parent / f"{root.name}.log",
                    cancel=cancel,
                    context=context,
                    platform=facts.platform,
                    epoch=0,
                    no_cache=True,
                )
                with built as saved:
                    shutil.rmtree(context / "root" / "out", ignore_errors=True)
                    with saved.layer(len(saved.layers) - 1) as tar:
                        _extract(tar, context / "root")
            except CellError as error:
                error.message = f"{what} failed in the engine: {error.message}"
                free = self._engine.disk_free()
                if free is not None and free < 4 << 20:  # a program's children may fail without a word
                    error.message += " (no space left on device)"
                    error.hint = hint_for("no space left on device")
                raise
            finally:
                (context / "root").rename(root)


def _extract(tar: tarfile.TarFile, folder: Path) -> None:
    """Lay out the entries of a layer below ``folder``, owned by the caller, with all bits of their modes.

    Nothing is written outside, nor through a link. :mod:`tarfile` has filters for that from 3.11.4 on, which
    refuse or change links and modes that an image may have, so that none of them takes part. Raises
    :class:`~builder.core.errors.CellError` for an entry that leads elsewhere, stands twice or is a device.
    """
    tar.extraction_filter = lambda member, _path: member
    tar.extractall(folder, members=_checked(tar, folder.resolve()))  # noqa: S202 - each one is checked
    for link in filter(tarfile.TarInfo.issym, tar.getmembers()):  # tarfile sets no times of them
        os.utime(folder / link.name, (link.mtime, link.mtime), follow_symlinks=False)


def _checked(tar: tarfile.TarFile, folder: Path) -> Iterator[tarfile.TarInfo]:
    """Each entry when those before it are laid out."""
    for member in tar:
        if not _belongs(member, folder):
            raise CellError(f"its layer has {shown(member.name)}, which cannot be laid out")
        member.uid, member.gid, member.uname, member.gname = os.geteuid(), os.getegid(), "", ""
        yield member


def _belongs(member: tarfile.TarInfo, folder: Path) -> bool:
    """A new file, folder or link below ``folder``, with no link on the way to it."""
    place = folder / member.name
    if member.isdir() and place.is_dir() and not place.is_symlink():
        known = True
    elif member.isreg() or member.isdir() or member.issym():
        known = not os.path.lexists(place)
    else:
        linked = (folder / member.linkname).resolve()
        known = member.islnk() and linked.is_relative_to(folder) and not os.path.lexists(place)
    return known and (
        place == folder or (place.is_relative_to(folder) and place.parent.resolve() == place.parent)
    )


def system_layers(
    walk: Walk,
    site: Site,
    engine: Engine,
    *,
    options: BuildOptions,
    recipe: Recipe,
    base: BaseLayers,
    lease: Lease,
    log: Path,
) -> SystemLayers:
    """Have apt-get install in a registry's base what the recipe asks for; its layers, in the store.

    Raises CommandError with the end of the log if that fails.
    """
    cell, buildx = walk.cell, options.engine or EngineOptions()
    authorities = ca_bundle(os.environ)

    def tell(line: str) -> None:
        """Steps by name, their output without its time."""
        if text := re.sub(r"^#\d+ (\d+\.\d+ )?", "", line).strip():
            walk.progress(text[:120])

    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rtbuild-")))
        context = folder / cell.id
        write(replace(recipe, blobs={}), context, blobs={})
        saved = stack.enter_context(
            _built(
                engine,
                log=log,
                on_line=tell,
                cancel=walk.cancel,
                context=context,
                target="system",
                platform=cell.platform,
                epoch=recipe.pinned.epoch,
                build_contexts=_stages_below(site, engine, recipe, base, folder / "base"),
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
    site: Site, engine: Engine, recipe: Recipe, base: BaseLayers, layout: Path
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
            base_image(base),
            lambda one: site.stores.layers.blob(one.digest),
            link=True,
        )
        place = f"oci-layout://{layout}:base"
    else:
        own = f"{pinned.reference.partition('@')[0]}@{pinned.digest}"
        place = f"docker-image://{site.sources.registry.at_mirror(pinned) or own}"
    return dict.fromkeys(("base", "installer", "wheels"), place)


@contextmanager
def _built(
    engine: Engine,
    *,
    log: Path,
    on_line: Callable[[str], None] = lambda _: None,
    cancel: threading.Event,
    **request: Any,
) -> Iterator[SavedImage]:
    """A stage that was built, as an image that can be read. ``request`` as of BuildRequest."""
    name = f"{WORKING}/{uuid.uuid4().hex[:12]}:stage"
    with tempfile.TemporaryDirectory(prefix="rtbuild-stage-") as folder:
        archive = Path(folder) / "stage.tar"
        engine.build(BuildRequest(tag=name, **request), log=log, on_line=on_line, cancel=cancel)
        try:
            engine.save(name, archive)
        finally:
            engine.remove(name)
        with SavedImage(archive) as saved:
            yield saved


def _kept(saved: SavedImage, number: int, cell: Cell, lease: Lease) -> Layer:
    diff_id, compression = saved.diff_ids[number], cell.options.compression

    def make(target: Path) -> Record:
        tar = target.with_suffix(".tar")
        try:
            with saved.stream(number) as stream, tar.open("wb") as file:
                shutil.copyfileobj(stream, file, 1 << 20)
            title = f"packages of {cell.base}"
            return Record(layer=tar_layer(tar, target, title, compression, lambda _size: None))
        finally:
            tar.unlink(missing_ok=True)

    key = f"system-{diff_id.removeprefix('sha256:')}-{codec(compression)}"
    record = lease.store.obtain(key, lease, make)
    if record.layer.diff_id != diff_id:
        raise CellError(f"the engine gave {record.layer.diff_id} for the layer {diff_id}")
    return record.layer
