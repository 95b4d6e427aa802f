"""The outer world and rtbuild's stores, as a run's settings and the user's configuration say."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar

from builder import resources
from builder.errors import StaleLockError, UsageError
from builder.evidence.made import MadeImages
from builder.layers.store import LayerStore
from builder.lock.file import lock_path, merge, pinned_cell, read_lock, status
from builder.model import Cell, Matrix, Pinned
from builder.pipeline.events import Note
from builder.pipeline.settings import Settings
from builder.recipe.bundle import kept_bundle

if TYPE_CHECKING:
    from builder.debian.archive import Debian
    from builder.engine.engine import Engine
    from builder.evidence.cosign import People
    from builder.image.pythons import Pythons
    from builder.index.client import Index
    from builder.oci.registry import Registry
    from builder.pipeline.schedule import Emit, Walk
    from builder.pipeline.sharing import SharedLayers
    from builder.sdist.workshop import Workshop
    from builder.verify.entry import ReportStore

T = TypeVar("T")


class _Door(cached_property[T]):
    """Opened by the first thread that asks; functools' own has no lock since Python 3.12."""

    if not TYPE_CHECKING:  # the types are those of functools
        guard = threading.RLock()

        def __get__(self, instance: Any, owner: Any = None) -> Any:
            with self.guard:
                return super().__get__(instance, owner)


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
            files = ", ".join(sorted({str(lock_path(self._matrices[cell.matrix].path)) for cell in wrong}))
            states = ((cell.id, status(cell, self._entries[cell.matrix])) for cell in wrong)
            lines = "".join(f"\n  {cell}: {state.value}" for cell, state in states)
            raise StaleLockError(
                f"the lock does not belong to the matrix as it stands ({files}):{lines}",
                hint="run `rtbuild lock` with the same matrix, and commit what it writes",
            )
        return [pinned for pinned in found if pinned is not None]

    def keep(self, pinned: Pinned) -> None:
        """Put a cell into its file at once: a run that is interrupted keeps every cell that was locked."""
        matrix = self._matrices[pinned.cell.matrix]
        with self._guard:
            self._entries[matrix.name] = merge(lock_path(matrix.path), matrix, {pinned.cell.id: pinned})


@dataclass(eq=False)
class Site:
    """Clients and stores for the stages. Each opens when it is needed: most runs need few of them."""

    settings: Settings
    emit: Emit
    locks: Locks = field(default_factory=lambda: Locks(()))
    engine: Engine | None = None

    @property
    def connected(self) -> Engine:
        """The engine of a run that has one. TypeError."""
        if self.engine is None:
            raise TypeError("this run has no engine")
        return self.engine

    @_Door
    def registry(self) -> Registry:
        from builder.oci.registry import Registry

        return Registry.from_user(self.settings.mirrors)

    @_Door
    def writing(self) -> Registry:
        """The door to repositories that are pushed to, and never to a mirror."""
        from builder.oci.registry import Registry

        return Registry.to_write()

    @_Door
    def debian(self) -> Debian:
        from builder.debian.archive import Debian

        return Debian(cache=self.settings.cache, note=self._note)

    @_Door
    def index(self) -> Index:
        from builder.index.client import Index

        return Index.from_user(note=self._note)

    @_Door
    def layers(self) -> LayerStore:
        return LayerStore(self.settings.cache / "layers", limit=self.settings.layer_limit)

    @property
    def made(self) -> MadeImages:
        """The images that were made with this cache."""
        return MadeImages(self.settings.cache / "made")

    @_Door
    def own(self) -> People | None:
        """Whoever holds the key that signs here."""
        from builder.evidence.cosign import People, Signer

        return People.holding(Signer(key=self.settings.key)) if self.settings.key else None

    @_Door
    def builders(self) -> People | None:
        """The people whose signature a staged image needs that was not made here; None if it needs none."""
        from builder.evidence.cosign import People

        settings = self.settings
        return People.named(settings.built_by, "--built-by") if settings.source else self.own

    @_Door
    def reports(self) -> ReportStore:
        from builder.verify.entry import ReportStore

        folder, own = self.settings.results / "reports", self.own
        if own is None:
            return ReportStore(folder)
        from builder.evidence.cosign import Cosign, Signer

        return ReportStore(
            folder,
            sign=partial(Cosign.find().sign_text, signer=Signer(key=self.settings.key)),
            signed=lambda report: bool(own.who(report.text.encode(), report.signature)),
        )

    @_Door
    def probe(self) -> bytes:
        """``cudnn-verify``, the one file."""
        return kept_bundle(resources.cache())

    @_Door
    def shared(self) -> SharedLayers | None:
        """Where layers are looked for that this machine has not made."""
        if self.settings.layers_from is None:
            return None
        from builder.evidence.cosign import Verifier

        return self._layers_in(self.settings.layers_from, trusted=Verifier(key=self.settings.layers_key))

    @_Door
    def leaving(self) -> SharedLayers | None:
        """Where layers are left for others: beside the images that are pushed."""
        if self.settings.push is None:
            return None
        from builder.evidence.cosign import Signer

        key = self.settings.key
        return self._layers_in(self.settings.push, signer=Signer(key=key) if key else None)

    def _layers_in(self, repository: str, **who: Any) -> SharedLayers:
        from builder.oci.staging import repository_of
        from builder.pipeline.sharing import SharedLayers

        return SharedLayers(
            registry=self.writing,
            repository=repository_of(repository),
            store=self.layers,
            warn=lambda text: self.emit(Note(text=text, warning=True)),
            **who,
        )

    @property
    def pythons(self) -> Pythons:
        """Standalone ones."""
        from builder.image.pythons import Pythons

        return Pythons(self.settings.cache)

    def workshop(self, walk: Walk) -> Workshop:
        """Where a cell's wheels are built from sources."""
        from builder.sdist.workshop import Workshop

        return Workshop(
            debian=self.debian, cache=self.settings.cache, cancel=walk.cancel, progress=walk.progress
        )

    def _note(self, text: str) -> None:
        self.emit(Note(text=text))


def open_site(
    matrices: Sequence[Matrix], settings: Settings, emit: Emit, *, engine: Engine | None = None
) -> Site:
    """The site of a run. Raises UsageError and MissingToolError for signatures that cannot be checked."""
    if settings.layers_from and not settings.layers_key:
        raise UsageError(
            "--layers-from takes layers that somebody else made, and nobody can see what they were made of",
            hint="name whose signature counts: --layers-key cosign.pub; they sign by `build --key KEY`",
        )
    if settings.layers_key:
        from builder.evidence.cosign import Cosign

        Cosign.find()
    site = Site(settings, emit, Locks(matrices), engine)
    if settings.key or settings.built_by:  # a key that cannot be read is said now
        _ = site.own, site.builders
    return site
