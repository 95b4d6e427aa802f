"""The options of the commands over cells, for each command a type with what it uses; and the outer world and
rtbuild's stores, as they and the user's configuration say.
"""

from __future__ import annotations

import json
import shlex
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from builder.core import resources
from builder.core.documents import MalformedError, parse_object, read_file
from builder.core.errors import StaleLockError, UsageError
from builder.core.files import write_whole
from builder.core.model import IMAGES, Cell, Matrix, Pinned
from builder.image.layers import LayerStore
from builder.image.recipe import kept_bundle
from builder.pipeline.events import Note
from builder.plan.lock import lock_path, merge, pinned_cell, read_lock, state

if TYPE_CHECKING:
    from builder.image.compose import Pythons
    from builder.image.engine import Engine
    from builder.image.sdist import Workshop
    from builder.pipeline.events import CellRun, Emit
    from builder.pipeline.layer_cache import LayerRepository
    from builder.sources.debian import Debian
    from builder.sources.index import Index
    from builder.sources.oci import Registry
    from builder.verify.evidence import People, Signer
    from builder.verify.runner import ReportStore

Gpus = Literal["auto"] | bool
"""Whether the probe gets the GPUs; ``auto``: if the engine can hand out any."""


@dataclass(frozen=True, kw_only=True)
class LockOptions:
    upgrade: bool | frozenset[str] = False
    """Lock anew: all, or only what has these names, and what that forces to move."""
    mirrors: Mapping[str, str] = field(default_factory=dict)
    """Registries that are read from another host, by the first one's name."""


@dataclass(frozen=True, kw_only=True)
class RenderOptions:
    folder: Path
    """Each recipe goes to a folder in it."""
    locked: bool = False
    """Refuse a lock that is missing or stale, instead of bringing it up to date."""
    text_only: bool = False
    """Leave out the large files: for reading, not for building."""
    mirrors: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """The engine that builds, and the buildx builder of the steps that it runs."""

    context: str | None = None
    builder: str | None = None
    """A buildx builder other than the engine's own; what it built is loaded into the engine."""
    cache_from: tuple[str, ...] = ()
    """The sources of buildx's own cache, in its own words: ``type=registry,ref=…``."""
    cache_to: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class LayerSource:
    """A repository that is searched for ready-made layers."""

    repository: str
    key: str
    """The public key whose signature on a layer there counts: a file, or a key service's URI."""

    @classmethod
    def named(cls, repository: str | None, key: str | None) -> LayerSource | None:
        """The source that two options name; None without a repository. UsageError for one without a key."""
        if not repository:
            return None
        if not key:
            raise UsageError(
                "--layers-from takes layers that somebody else made, "
                "and nobody can see what they were made of",
                hint="name whose signature counts: --layers-key cosign.pub; they sign by `build --key KEY`",
            )
        return cls(repository=repository, key=key)


@dataclass(frozen=True, kw_only=True)
class BuildOptions:
    """The defaults are those of ``rtbuild build`` without options."""

    jobs: int | None = None
    """Cells at a time; None: by the machine's cores."""
    locked: bool = False
    """Refuse a lock that is missing or stale, instead of bringing it up to date."""
    refuse: bool = True
    """Stop cells that the compatibility rules call impossible before anything is built."""
    no_cache: bool = False
    """Build anew even if an image with the same inputs is there."""
    gpus: Gpus | None = "auto"
    """None: nothing is verified."""
    engine: EngineOptions | None = field(default_factory=EngineOptions)
    """Puts images into a Docker Engine's store, and verifies them there; None: no engine has a part in it."""
    push: str | None = None
    """The repository to which every image that was built is pushed, under an unlisted tag."""
    output: Path | None = None
    """The folder to which images are written as an OCI layout, without an engine."""
    layers: LayerSource | None = None
    """None: every layer is made here, also for ``push``."""
    key: str | None = None
    """The key that signs what is pushed: images, and layers for others."""
    results: Path = Path("results")
    mirrors: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class VerifyOptions:
    """The defaults are those of ``rtbuild verify`` without options."""

    gpus: Gpus = "auto"
    again: bool = False
    """Run the probe even if there is a report about the same content, probe, GPUs and driver."""
    source: str | None = None
    """The staging repository that images are pulled from; None for those in the engine's store."""
    built_by: tuple[str, ...] = ()
    """Public keys: who may have built an image that ``source`` has and this machine did not make."""
    key: str | None = None
    """The key that signs the reports."""
    share_reports: bool = True
    """Attach reports to the staged image that they are about."""
    remove: bool = False
    """Remove from the engine's store what was pulled for its verification."""
    results: Path = Path("results")
    context: str | None = None


T = TypeVar("T")
LAYER_LIMIT = 50_000_000_000
"""Bytes that ready-made layers may take in the cache; the least recently used go first."""


class _Door(cached_property[T]):
    """Opened by the first thread that asks; functools' own has no lock since Python 3.12."""

    if not TYPE_CHECKING:  # the types are those of functools
        guard = threading.RLock()

        def __get__(self, instance: Any, owner: Any = None) -> Any:
            with self.guard:
                return super().__get__(instance, owner)


@dataclass(frozen=True)
class MadeImages:
    """The images that this machine made, the digest by the inputs: a folder with a file for each.

    A label in an image says the same, but anyone who pushes an image can write one.
    """

    folder: Path

    def remember(self, inputs: str, *, digest: str, content: str) -> None:
        """Note an image that was put together here. Raises OSError."""
        write_whole(self._path(inputs), json.dumps({"digest": digest, "content": content}).encode())

    def digest(self, inputs: str) -> str | None:
        """Digest of the manifest that was made last; None if there is none."""
        return self._read(inputs).get("digest")

    def content(self, inputs: str) -> str | None:
        """Its :func:`builder.core.digests.content_of`, which identifies an engine's image, or None."""
        return self._read(inputs).get("content")

    def _read(self, inputs: str) -> dict[str, str]:
        try:
            return parse_object(read_file(self._path(inputs), most=4096))
        except (OSError, MalformedError):
            return {}

    def _path(self, inputs: str) -> Path:
        return self.folder / f"{inputs.removeprefix('sha256:')}.json"


class Locks:
    """The lock files of a run's matrices, for its threads: read once, and written as they grow."""

    def __init__(self, matrices: Iterable[Matrix]) -> None:
        self._matrices = {matrix.name: matrix for matrix in matrices}
        self._entries = {name: read_lock(lock_path(one.path)) for name, one in self._matrices.items()}
        self._guard = threading.Lock()

    def pinned(self, cell: Cell, *, stale: bool = False) -> Pinned | None:
        """The cell's entry; None if it is missing or, unless that is asked for, ``stale``."""
        return pinned_cell(cell, self._entries[cell.matrix], stale=stale)

    def fresh(self, cells: Sequence[Cell]) -> list[Pinned]:
        """The cells' entries. Raises StaleLockError with every cell that has none, and what would mend it."""
        found = [self.pinned(cell) for cell in cells]
        wrong = [cell for cell, pinned in zip(cells, found, strict=True) if pinned is None]
        if wrong:
            matrices = sorted({str(self._matrices[cell.matrix].path) for cell in wrong})
            files = ", ".join(str(lock_path(Path(path))) for path in matrices)
            lines = [f"{cell.id}: {state(cell, self._entries[cell.matrix])}" for cell in wrong]
            which = "".join(f"\n  {line}" for line in lines) if lines[1:] else f" {lines[0]}"
            none = not any(self._entries[cell.matrix] for cell in wrong)
            said = f"the lock has no entry that fits {len(wrong)} of {len(cells)} cells"
            raise StaleLockError(
                f"{'there is no lock' if none else said} ({files}):{which}",
                hint=_to_lock(matrices, wrong if len(wrong) < len(cells) else ()),
            )
        return [pinned for pinned in found if pinned is not None]

    def keep(self, pinned: Pinned) -> None:
        """Put a cell into its file at once: a run that is interrupted keeps every cell that was locked."""
        matrix = self._matrices[pinned.cell.matrix]
        with self._guard:
            self._entries[matrix.name] = merge(lock_path(matrix.path), matrix, {pinned.cell.id: pinned})


_NAMED = 3
"""Cells that a command names one by one; of more the matrix is locked."""


def _to_lock(matrices: Iterable[str], cells: Collection[Cell]) -> str:
    """The command line that locks these cells; without any, all cells of the matrices."""
    some = [word for cell in cells for word in ("-s", cell.id)] if len(cells) <= _NAMED else []
    return f"`{shlex.join(['rtbuild', 'lock', *matrices, *some])}`, and commit what it writes"


@dataclass(eq=False)
class Sources:
    """The sources of images' parts. Each client opens when it is needed, and most runs need few."""

    mirrors: Mapping[str, str] = field(default_factory=dict)
    """Registries that are read from another host, by the first one's name."""
    cache: Path = field(default_factory=resources.cache)
    """The folder in which downloads are kept."""
    note: Callable[[str], None] = lambda _text: None

    @_Door
    def registry(self) -> Registry:
        from builder.sources.oci import Registry

        return Registry.from_user(self.mirrors)

    @_Door
    def writing(self) -> Registry:
        """The door to repositories that are pushed to, and never to a mirror."""
        from builder.sources.oci import Registry

        return Registry.to_write()

    @_Door
    def debian(self) -> Debian:
        from builder.sources.debian import Debian

        return Debian(cache=self.cache, note=self.note)

    @_Door
    def index(self) -> Index:
        from builder.sources.index import Index

        return Index.from_user(note=self.note)

    @property
    def pythons(self) -> Pythons:
        """Standalone ones."""
        from builder.image.compose import Pythons

        return Pythons(self.cache)

    def workshop(self, cell_run: CellRun) -> Workshop:
        """The workshop in which a cell's wheels are built from sources."""
        from builder.image.sdist import Workshop

        return Workshop(
            debian=self.debian, cache=self.cache, cancel=cell_run.cancel, progress=cell_run.progress
        )


@dataclass(eq=False)
class Stores:
    """The stores on this machine that rtbuild keeps between runs."""

    locks: Locks = field(default_factory=lambda: Locks(()))
    cache: Path = field(default_factory=resources.cache)
    repository: str = IMAGES
    """The images of cells have this name in the engine, and their matrix's and their own."""

    @_Door
    def layers(self) -> LayerStore:
        return LayerStore(self.cache / "layers", limit=LAYER_LIMIT)

    @property
    def made(self) -> MadeImages:
        """The images that were made with this cache."""
        return MadeImages(self.cache / "made")

    @_Door
    def probe(self) -> bytes:
        """``cudnn-verify``, the one file."""
        return kept_bundle(resources.cache())

    def image_name(self, cell: Cell) -> str:
        return cell.image_name(self.repository)


@dataclass(eq=False)
class RunContext:
    """The outer world, stores and keys of one run."""

    emit: Emit
    sources: Sources = field(default_factory=Sources)
    stores: Stores = field(default_factory=Stores)
    taken_from: LayerRepository | None = None
    """The repository that is searched for layers that this machine has not made."""
    left_in: LayerRepository | None = None
    """The repository in which layers are left for others, beside the images that are pushed."""
    engine: Engine | None = None
    signer: Signer | None = None
    """The key that signs here."""
    own: People | None = None
    """Whoever holds that key."""

    @property
    def connected(self) -> Engine:
        """The engine of a run that has one. TypeError."""
        if self.engine is None:
            raise TypeError("this run has no engine")
        return self.engine


def open_context(
    matrices: Sequence[Matrix],
    emit: Emit,
    *,
    engine: Engine | None = None,
    mirrors: Mapping[str, str] | None = None,
    key: str | None = None,
    cache: Path | None = None,
) -> RunContext:
    """The context of a run. Raises MissingToolError and UsageError if ``key`` cannot sign."""
    cache = cache or resources.cache()
    signer = own = None
    if key:
        from builder.verify.evidence import People, Signer

        signer = Signer(key=key)
        own = People.holding(signer)  # a key that cannot be read is said now
    sources = Sources(mirrors or {}, cache, lambda text: emit(Note(text=text)))
    return RunContext(emit, sources, Stores(Locks(matrices), cache), engine=engine, signer=signer, own=own)


def share_layers(context: RunContext, *, source: LayerSource | None, target: str | None) -> None:
    """Take layers from ``source`` and leave them in ``target`` from here on, as a build is told to.

    Raises UsageError, and MissingToolError if no signature can be checked.
    """
    if source is None and target is None:
        return
    from builder.pipeline.layer_cache import LayerRepository
    from builder.sources.oci import repository_of
    from builder.verify.evidence import Cosign, Verifier

    def layers_in(repository: str, **who: Any) -> LayerRepository:
        return LayerRepository(
            registry=context.sources.writing,
            repository=repository_of(repository),
            store=context.stores.layers,
            warn=lambda text: context.emit(Note(text=text, warning=True)),
            **who,
        )

    if source is not None:
        Cosign.find()
        context.taken_from = layers_in(source.repository, trusted=Verifier(key=source.key))
    if target is not None:
        context.left_in = layers_in(target, signer=context.signer)


def report_store(context: RunContext, results: Path) -> ReportStore:
    """The reports below ``results``; a key here signs them, and only what it signed is reused."""
    from builder.verify.runner import ReportStore

    folder, own, signer = results / "reports", context.own, context.signer
    if own is None or signer is None:
        return ReportStore(folder)
    from builder.verify.evidence import Cosign

    return ReportStore(
        folder,
        sign=partial(Cosign.find().sign_text, signer=signer),
        signed=lambda report: bool(own.who(report.text.encode(), report.signature)),
    )
