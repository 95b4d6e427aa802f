"""The layers above the wheels, made by the recipe's own steps, and the image's config: without an engine.

The steps run in the base's own system (:mod:`builder.layers.sandbox`), over as much of the wheels as they
look at (:mod:`builder.layers.scratch`), and what they leave is written as BuildKit writes it
(:mod:`builder.layers.difftar`): the diff ids are those of the engine's image, and so is the config.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from builder.digests import digest_of
from builder.errors import CellError
from builder.layers.codec import codec
from builder.layers.compose import image_config
from builder.layers.difftar import write_folder
from builder.layers.locking import disk_errors
from builder.layers.sandbox import environment, run_script, way_in
from builder.layers.scratch import Scratch
from builder.layers.store import Record
from builder.layers.types import MEDIA_TYPES, BaseLayers, Layer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from builder.layers.dockerfile import Ending, Setting, Step
    from builder.layers.store import LayerStore, Lease
    from builder.model import Recipe, RecipeFile

_FORMAT = 1
"""To be raised when the same steps over the same layers leave another tar stream."""
_WHEELS = "/opt/runtime"

_CONFIG_ORDER = (
    *("User", "ExposedPorts", "Env", "Entrypoint", "Cmd", "Volumes", "WorkingDir", "Labels", "StopSignal"),
    *("ArgsEscaped", "Healthcheck", "OnBuild", "StopTimeout", "Shell"),
)
"""The order of the fields of Go's structure:
https://github.com/moby/docker-image-spec/blob/main/specs-go/v1/image.go"""


@dataclass(frozen=True, kw_only=True)
class Finisher:
    """What the steps of one recipe need."""

    recipe: Recipe
    ending: Ending
    base: BaseLayers
    wheels: Sequence[Layer]
    store: LayerStore
    lease: Lease
    cancel: threading.Event
    bench: Workbench
    blob: Callable[[Layer], Path]
    """Where a layer of the base or of the wheels is; called only where a step has to run."""
    fetched: Callable[[str, Lease], Record | None] = field(default=lambda _key, _lease: None)
    """A layer of that key from elsewhere, such as a registry; None where there is none."""
    progress: Callable[[str], None] = field(default=lambda _text: None)


def added_layers(work: Finisher) -> tuple[tuple[Layer, ...], int]:
    """The recipe's own layers, lowest first, and how many of them were made now.

    Raises :class:`~builder.errors.MissingToolError` where this machine cannot run the steps.
    """
    keys = layer_keys(work.recipe, work.ending, work.base.layers, work.wheels)
    found = {name: work.store.find(key, work.lease) for name, key in keys.items()}
    for name, key in keys.items():
        found[name] = found[name] or work.fetched(key, work.lease)
    missing = [name for name, record in found.items() if record is None]
    if missing:
        way_in()  # before gigabytes are unpacked
    with_wheels = [name for name in missing if any(map(_sees_wheels, work.ending.steps_of(name)))]
    only_base = [name for name in missing if name not in with_wheels]
    with disk_errors(work.store.root):
        for names, root in ((only_base, work.bench.base), (with_wheels, _whole)):
            if names:
                with root(work) as scratch:
                    _run(work, names, scratch)
                    for name in names:
                        found[name] = _keep(work, keys[name], name, scratch.root / "out" / name)
    return tuple(record.layer for record in found.values() if record is not None), len(missing)


class Workbench:
    """Bases that were unpacked in a run, for steps that see no wheels: of any cell, one after another.

    They lie in the store, where a later prune finds what a killed process left.
    """

    def __init__(self, store: LayerStore) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="bases-", dir=store.folder("tmp")))
        self._bases: dict[str, Scratch] = {}
        self._guard = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._folder)

    @contextmanager
    def base(self, work: Finisher) -> Iterator[Scratch]:
        """The base of ``work``, with nothing below ``/out``; nobody else has it until the block ends."""
        name = digest_of([layer.diff_id for layer in work.base.layers])
        with self._guard:
            if name not in self._bases:
                scratch = Scratch(self._folder / f"{len(list(self._folder.iterdir()))}", work.cancel)
                _unpack_base(work, scratch)
                self._bases[name] = scratch
            scratch = self._bases[name]
            try:
                yield scratch
            finally:
                shutil.rmtree(scratch.root / "out", ignore_errors=True)


@contextmanager
def _whole(work: Finisher) -> Iterator[Scratch]:
    """The base with the wheels on it, for one use."""
    with tempfile.TemporaryDirectory(prefix="finish-", dir=work.store.folder("tmp")) as folder:
        scratch = Scratch(Path(folder) / "root", work.cancel)
        _unpack_base(work, scratch)
        _unpack_wheels(work, scratch)
        yield scratch


def _unpack_base(work: Finisher, scratch: Scratch) -> None:
    for layer in work.base.layers:
        work.progress(f"looking into {layer.title}")
        scratch.unpack(work.blob(layer), layer.media_type, whole=True)


def layer_keys(
    recipe: Recipe, ending: Ending, base: Sequence[Layer], wheels: Sequence[Layer]
) -> dict[str, str]:
    """What each folder below ``/out`` is looked up by: its steps, the files they see, the layers below."""
    return {name: _key(recipe, ending, name, base, wheels) for name in ending.copies}


def _key(recipe: Recipe, ending: Ending, name: str, base: Sequence[Layer], wheels: Sequence[Layer]) -> str:
    steps = ending.steps_of(name)
    if not steps:
        raise CellError(f"no step of the recipe makes /out/{name}", hint="this is a fault of the template")
    document = {
        "format": _FORMAT,
        "folder": name,  # steps that look at one another make several
        "scripts": [step.script for step in steps],
        "files": {
            path: [hashlib.sha256(file.content).hexdigest(), file.mode]
            for step in steps
            for path, file in _seen(recipe, step).items()
        },
        "layers": [layer.diff_id for layer in (*base, *(wheels if any(map(_sees_wheels, steps)) else ()))],
        "epoch": recipe.pinned.epoch,
    }
    made_of = digest_of(document).removeprefix("sha256:")
    return f"step-{made_of}-{codec(recipe.cell.options.compression)}"


def _seen(recipe: Recipe, step: Step) -> dict[str, RecipeFile]:
    """The recipe's files that a step sees, by their paths in the image; a folder stands for what is in it."""
    seen = {}
    for source, target in step.files:
        if source in recipe.files:
            seen[target] = recipe.files[source]
        below = (name for name in recipe.files if name.startswith(f"{source}/"))
        seen |= {target + name.removeprefix(source): recipe.files[name] for name in below}
    return seen


def _sees_wheels(step: Step) -> bool:
    return _WHEELS in step.script


def _run(work: Finisher, names: Sequence[str], scratch: Scratch) -> None:
    """Run the steps that make these folders, in the recipe's order."""
    settings = {"SOURCE_DATE_EPOCH": str(work.recipe.pinned.epoch)}
    given = dict(pair.partition("=")[::2] for pair in _config_of(work.base).get("Env") or ())
    needed = {step for name in names for step in work.ending.steps_of(name)}
    for step in work.ending.steps:
        if step not in needed:
            continue
        makes = ", ".join(sorted(step.makes))
        work.progress(f"making {makes}")
        for path, file in _seen(work.recipe, step).items():
            scratch.put(path, file.content, file.mode)
        scratch.put("/dev/null", b"", 0o666)
        run_script(
            step.script,
            scratch.root,
            what=f"the step that makes {makes}",
            env=environment({**given, **settings}),
            cancel=work.cancel,
        )


def _unpack_wheels(work: Finisher, scratch: Scratch) -> None:
    """Two at a time: most of it is decompression, and no two wheels share a file."""

    def unpack(layer: Layer) -> None:
        work.progress(f"looking into {layer.title}")
        scratch.unpack(work.blob(layer), layer.media_type, whole=False)

    with ThreadPoolExecutor(2, thread_name_prefix="unpack") as pool:
        futures = [pool.submit(unpack, layer) for layer in sorted(work.wheels, key=lambda one: -one.size)]
        try:
            for future in futures:
                future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _keep(work: Finisher, key: str, name: str, folder: Path) -> Record:
    if not folder.is_dir():
        raise CellError(f"the recipe's steps left no /out/{name}", hint="this is a fault of the template")
    compression = work.recipe.cell.options.compression

    def make(target: Path) -> Record:
        with target.open("wb") as blob:
            written = write_folder(folder, blob, compression)
        return Record(layer=Layer(title=name, media_type=MEDIA_TYPES[compression], **vars(written)))

    record, _ = work.store.obtain(key, work.lease, make)
    shutil.rmtree(folder)
    return record


def final_config(
    base: BaseLayers, wheels: Sequence[Layer], added: Sequence[Layer], ending: Ending, epoch: int
) -> bytes:
    """The image's config as BuildKit writes it, byte for byte."""
    document = image_config(base, [*wheels, *added])
    created = datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    by_kit = {"created": created, "comment": "buildkit.dockerfile.v0"}
    history = document["history"][: len(document["history"]) - len(added)]
    history += [{**by_kit, "created_by": f"COPY /out/{name}/ / # buildkit"} for name in ending.copies]
    history += [{**by_kit, "created_by": one.said, "empty_layer": True} for one in ending.settings]
    document["history"] = [_ordered(entry, _HISTORY_ORDER) for entry in history]
    document["config"] = _ordered(_configured(_config_of(base), ending.settings), _CONFIG_ORDER)
    document["rootfs"] = _ordered(document["rootfs"], ("type", "diff_ids"))
    return go_json(dict(sorted(document.items())))


_HISTORY_ORDER = ("created", "created_by", "author", "comment", "empty_layer")


def _config_of(base: BaseLayers) -> dict[str, Any]:
    return dict(base.config.get("config") or {})


def _configured(config: dict[str, Any], settings: Sequence[Setting]) -> dict[str, Any]:
    environment_ = dict(pair.partition("=")[::2] for pair in config.get("Env") or ())
    labels = dict(config.get("Labels") or {})
    for one in settings:
        match one.kind:
            case "ENV":
                environment_[one.name] = str(one.value)
            case "LABEL":
                labels[one.name] = str(one.value)
            case "CMD":
                config["Cmd"], config["ArgsEscaped"] = one.value, True
            case "ENTRYPOINT":
                config["Entrypoint"] = one.value
                if not any(other.kind == "CMD" for other in settings):
                    config.pop("Cmd", None)
            case "HEALTHCHECK":
                times = {name: seconds * 10**9 for name, seconds in one.durations}
                config["Healthcheck"] = {"Test": one.value, **times}
            case "WORKDIR":
                config["WorkingDir"] = one.value
            case "USER":
                config["User"] = one.value
            case _:  # EXPOSE
                ports = one.value if "/" in str(one.value) else f"{one.value}/tcp"
                config["ExposedPorts"] = {**(config.get("ExposedPorts") or {}), str(ports): {}}
    config["Env"] = [f"{name}={text}" for name, text in environment_.items()]
    if labels:
        config["Labels"] = dict(sorted(labels.items()))
    return config


def _ordered(document: Mapping[str, Any], order: Sequence[str]) -> dict[str, Any]:
    known = {key: document[key] for key in order if key in document}
    return known | {key: value for key, value in document.items() if key not in known}


def go_json(document: object) -> bytes:
    """As Go's ``encoding/json`` writes it: no blanks, and HTML's own characters escaped."""
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text.encode()
