"""Earlier readings of wheels and bases in the user's cache, and new ones of wheels without one."""

from __future__ import annotations

import contextlib
import hashlib
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from builder.core import resources
from builder.core.digests import digest_of
from builder.core.files import read_cached, write_cached
from builder.core.model import Cell, Pinned, RegistryBase, RootfsBase, Wheel
from builder.core.versions import canonical, names_of
from builder.plan.facts.reading.observed import (
    LINKS,
    BaseTruth,
    Truth,
    WheelTruth,
    bare_debs,
    framework_texts,
    load_reading,
    may_have_libraries,
    reading_path,
    truth_of,
    truth_of_base,
    with_deep,
)
from builder.sources.oci import parse_reference

if TYPE_CHECKING:
    from builder.core.link_set import WheelLinks
    from builder.plan.facts.reading.wheel_modules import ImportsProof
    from builder.sources.index import Index

BASE_DAYS = 7
"""How long a registry's answer is believed without asking again: a tag can be rebuilt, or deleted."""
MISSING_DAYS = 1
"""The same for the answer that there is no such tag: it may be pushed, or a mirror filled."""
FAILURE_DAYS = 7
"""How long an answer counts: an index gets new wheels."""
_SCHEMA = 1


class ReadingCache:
    """Earlier readings of wheels and bases in the user's cache.

    Only :meth:`read_links`, :meth:`read_imports`, :meth:`read_proofs` and :meth:`read_set` ask the network.
    """

    def __init__(
        self,
        *,
        mirrors: Mapping[str, str] | None = None,
        cache: Path | None = None,
        note: Callable[[str], None] = lambda _text: None,
    ) -> None:
        """``mirrors`` as :class:`Registry` has them: an answer holds for the place that gave it. ``note`` is
        told each wheel that is read, in the thread that reads it.
        """
        self._note = note
        folder = cache or resources.cache()
        self._folder = folder
        self.wheel_folder = folder / "wheelfacts"
        self._base_folder = folder / "basemeta"
        self._failures = folder / "lockfail"
        self._mirrors = dict(mirrors or {})
        self._wheels: dict[str, WheelTruth | None] = {}
        self._links: dict[str, WheelLinks | None] = {}
        self._bases: dict[tuple[str, str], BaseTruth | None] = {}
        self._shelved: dict[str, Any] = {}
        """The modules of the wheels of :meth:`read_set`."""

    def truth(self, cell: Cell, pinned: Pinned | None, *, links: bool = False) -> Truth:
        """For one cell: its lock, its framework wheels as read before, and its base as read lately.

        With ``links`` what is known of all of the lock's libraries and modules, for the two proofs of it.
        """
        reference = base_reference(cell, pinned)
        base = self.base(reference, cell.platform) if reference else None
        truth = together(pinned, filter(None, map(self.wheel, framework_wheels(cell, pinned))), base)
        if pinned is None:
            return replace(truth, failed=self.last_failure(cell))
        if not links:
            return truth
        return self.with_proofs(truth, pinned.wheels, self.imports_of(cell, pinned))

    def with_proofs(self, truth: Truth, wheels: Sequence[Wheel], imports: ImportsProof) -> Truth:
        """The truth with what is known of the libraries and modules of its wheels, and what is not."""
        links = [self._links_of(wheel) for wheel in wheels]
        others, pairs = set(imports.unread), zip(wheels, links, strict=True)
        unread = [wheel.file for wheel, found in pairs if found is None or wheel in others]
        more = f" and {len(unread) - 1} more were" if len(unread) > 1 else " was"
        return replace(
            truth,
            links=tuple(filter(None, links)),
            imports=imports.lacks,
            loaded=imports.loaded,
            unproven=f"{unread[0]}{more} not read" if unread else None,
        )

    def read_links(self, wheels: Iterable[Wheel], index: Index) -> int:
        """Bring what is known of these wheels' libraries into the cache; the bytes that it took."""
        from builder.plan.facts.reading.wheel_links_read import read_links

        return read_links(wheels, index, cache=self.wheel_folder, note=self._note)

    def imports_of(self, cell: Cell, pinned: Pinned) -> ImportsProof:
        """The names that imports of the cell's packages lack, by the kept readings of the lock's modules."""
        from builder.plan.facts.reading.wheel_modules import imports_of

        return imports_of(cell, pinned.wheels, pinned.base, cache=self.wheel_folder)

    def read_proofs(
        self, cell: Cell, wheels: Sequence[Wheel], base: RegistryBase | RootfsBase | None, index: Index
    ) -> tuple[int, ImportsProof]:
        """:meth:`read_links` and :meth:`read_imports` at once: one waits for servers and unpacks, the other
        parses.
        """
        with ThreadPoolExecutor(1) as beside:
            links = beside.submit(self.read_links, wheels, index)
            imports = self.read_imports(cell, wheels, base, index)
        return links.result() + self._read_loaded(wheels, index, imports), imports

    def _read_loaded(self, wheels: Sequence[Wheel], index: Index, imports: ImportsProof) -> int:
        """Read the compiled modules that these imports come to; the bytes that it took."""
        from builder.plan.facts.reading.wheel_links_read import read_loaded

        found = read_loaded(wheels, index, imports.loaded, cache=self.wheel_folder, note=self._note)
        for wheel in found:
            self._links.pop(wheel.sha256, None)
        return sum(found.values())

    def read_imports(
        self,
        cell: Cell,
        wheels: Sequence[Wheel],
        base: RegistryBase | RootfsBase | None,
        index: Index,
        shelved: dict[str, Any] | None = None,
    ) -> ImportsProof:
        """As :meth:`imports_of`; modules without a kept reading are read, from downloaded wheels or else the
        index, and stay in ``shelved``.
        """
        from builder.plan.facts.reading.wheel_modules import imports_of
        from builder.plan.facts.reading.wheel_modules_read import opener, releases

        read = opener(index, self._folder, self._note)
        return imports_of(
            cell,
            wheels,
            base,
            cache=self.wheel_folder,
            opened=read,
            releases=releases(index),
            shelved=shelved,
        )

    def read_set(self, cell: Cell, wheels: Sequence[Wheel], index: Index) -> Truth:
        """The truth of wheels that were resolved for a cell without a lock, read for the two proofs. Its
        system has the libraries of a bare Debian or Ubuntu, and those of the cell's ``apt``. Wheels that
        several sets share stay in memory, so it is of one thread alone.
        """
        with ThreadPoolExecutor(1) as beside:
            links = beside.submit(self.read_links, wheels, index)
            imports = self.read_imports(cell, wheels, None, index, self._shelved)
        links.result()
        self._read_loaded(wheels, index, imports)
        truth = replace(Truth.of_lock(wheels, None), debs=bare_debs(cell))
        return self.with_proofs(truth, wheels, imports)

    def known_links(self, cell: Cell, wheels: Sequence[Wheel]) -> Truth:
        """As :meth:`read_set`, of the wheels' libraries alone that were read before; no index is asked."""
        links = tuple(filter(None, map(self._links_of, wheels)))
        return replace(Truth.of_lock(wheels, None), debs=bare_debs(cell), links=links)

    def _links_of(self, wheel: Wheel) -> WheelLinks | None:
        if wheel.sha256 not in self._links:
            self._links[wheel.sha256] = links_of(wheel, self.wheel_folder)
        return self._links[wheel.sha256]

    def wheel(self, wheel: Wheel) -> WheelTruth | None:
        """The truth by a small reading of this very wheel, and a deep one if there was one."""
        if wheel.sha256 not in self._wheels:
            small = load_reading(reading_path(wheel.sha256, "small", self.wheel_folder))
            truth = truth_of(wheel.file, small, sha256=wheel.sha256) if small is not None else None
            deep = load_reading(reading_path(wheel.sha256, "deep", self.wheel_folder)) if truth else None
            self._wheels[wheel.sha256] = with_deep(truth, deep.values) if truth and deep else truth
        return self._wheels[wheel.sha256]

    def base(self, reference: str, platform: str) -> BaseTruth | None:
        key = (reference, platform)
        if key not in self._bases:
            self._bases[key] = read_cached(self._path(reference, platform), _lately)
        return self._bases[key]

    def keep_base(self, reference: str, platform: str, base: BaseTruth) -> None:
        """Remember a registry's answer."""
        document = {"schema": _SCHEMA, "read": int(time.time()), **vars(base), "env": dict(base.env)}
        write_cached(self._path(reference, platform), document, indent=1)

    def mirror(self, reference: str) -> str | None:
        """The mirror that is asked for an image in its registry's place."""
        return self._mirrors.get(parse_reference(reference).host)

    def keep_failure(self, cell: Cell, said: str | None) -> None:
        """Keep why there is no set of wheels that works for a cell, or that there is one: None. A cache that
        cannot be written is no error.
        """
        if said is not None:
            document = {"when": int(time.time()), "cell": cell.id, "said": said[:4000]}
            write_cached(self._failure_path(cell), document)
            return
        with contextlib.suppress(OSError):
            self._failure_path(cell).unlink(missing_ok=True)

    def last_failure(self, cell: Cell) -> str | None:
        """The reason given for these very requirements in the last :data:`FAILURE_DAYS` days, on one line."""
        if not self._failures.is_dir():
            return None

        def fresh(document: dict[str, Any]) -> str | None:
            lately = 0 <= time.time() - document["when"] <= FAILURE_DAYS * 86400
            return " ".join(str(document["said"]).split())[:600] if lately else None

        return read_cached(self._failure_path(cell), fresh)

    def _failure_path(self, cell: Cell) -> Path:
        return self._failures / f"{digest_of(cell.inputs()).rpartition(':')[2]}.json"

    def _path(self, reference: str, platform: str) -> Path:
        mirror = self.mirror(reference) or ""
        name = hashlib.sha256(f"{reference}\n{platform}\n{mirror}".encode()).hexdigest()
        return self._base_folder / f"{name}.json"


def _lately(document: dict[str, Any]) -> BaseTruth | None:
    """A registry's answer that still counts."""
    age, schema = time.time() - document.pop("read"), document.pop("schema")
    days = BASE_DAYS if document["exists"] else MISSING_DAYS
    if schema != _SCHEMA or not 0 <= age <= days * 86400:
        return None
    return BaseTruth(**document | {"env": tuple(sorted(document["env"].items()))})


def framework_wheels(cell: Cell, pinned: Pinned | None) -> tuple[Wheel, ...]:
    """The frameworks' wheels of a lock, and JAX's plug-in, which holds its pins."""
    if pinned is None:
        return ()
    names = names_of(framework_texts(cell))
    return tuple(
        wheel
        for wheel in pinned.wheels
        if canonical(wheel.name) in names or re.fullmatch(r"jax[-_]cuda\d+[-_]plugin", wheel.name)
    )


def base_reference(cell: Cell, pinned: Pinned | None) -> str | None:
    """The reference for a registry: the locked digest, else the tag; None for a base that is no image."""
    if pinned is not None and isinstance(pinned.base, RegistryBase):
        return f"{pinned.base.reference.partition('@')[0]}@{pinned.base.digest}"
    return cell.base.name if pinned is None and cell.base.kind == "registry" else None


def together(
    pinned: Pinned | None, wheels: Iterable[WheelTruth], base: BaseTruth | None, unread: Iterable[str] = ()
) -> Truth:
    """The truth for the rules: lock, wheels and base, and reasons for values that could not be read.

    Of a lock every wheel is there by name and version, with the values that were read of the same sha256.
    """
    why = tuple(dict.fromkeys(unread))
    if pinned is None:
        return Truth(wheels=tuple(wheels), base=base, unread=why)
    if base is None and isinstance(pinned.base, RegistryBase):
        base = truth_of_base(pinned.base)
    debs = None
    if isinstance(pinned.base, RootfsBase) and pinned.base.debs:
        debs = frozenset(deb.package for deb in pinned.base.debs)
    return replace(Truth.of_lock(pinned.wheels, base, wheels), unread=why, debs=debs)


def links_of(wheel: Wheel, cache: Path | None = None) -> WheelLinks | None:
    """The kept reading of a wheel's libraries; an empty one for pure Python; None if it was not read.

    One that was built from sources is taken for such: it is linked with what Debian's packages bring.
    """
    from builder.core.link_set import WheelLinks  # a build asks for none

    name = canonical(wheel.name)
    if not may_have_libraries(wheel) or wheel.source is not None:
        return WheelLinks(name=name, version=wheel.version, files={})
    reading = load_reading(reading_path(wheel.sha256, LINKS, cache))
    try:
        return (
            None if reading is None or reading.unread else _wheel_links(name, wheel.version, reading.values)
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        return None  # a cache that somebody else wrote


def _by_file(found: Any) -> dict[str, Any]:
    """What was found by file; a reading of before 0.3 has it without the files."""
    return found if isinstance(found, dict) else {str(number): one for number, one in enumerate(found)}


def _wheel_links(name: str, version: str, values: Mapping[str, Any]) -> WheelLinks:
    from builder.core.link_set import CudaSymbols, LinkFile, WheelLinks
    from builder.plan.facts.reading.torch_symbols import unpack_numbers

    files: dict[str, LinkFile] = {}
    unread = set(values["partly"])
    for path, raw in values["libraries"].items():
        if raw is None:
            unread.add(path)
            files[path] = LinkFile(soname=PurePosixPath(path).name)
            continue
        files[path] = LinkFile(
            soname=raw["soname"],
            needed=tuple(raw["needed"]),
            rpath=raw["rpath"],
            runpath=raw["runpath"],
            asked=tuple((file, one, weak) for file, one, weak in raw["asked"]),
            offered=None if raw["offered"] is None else tuple(raw["offered"]),
        )
    return WheelLinks(
        name=name,
        version=version,
        files=files,
        digests=dict(values["digests"]),
        asks=frozenset(values["asks"]),
        unread=frozenset(unread),
        numpy={path: str(abi) for path, abi in _by_file(values["numpy"]).items()},
        numpy_api=None if None in (numbers := values["numpy_api"]) else min(map(int, numbers), default=None),
        cuda={
            path: CudaSymbols(
                asked={file: frozenset(map(str, names)) for file, names in raw["asked"].items()},
                offered=frozenset(map(str, raw["offered"])),
            )
            for path, raw in values.get("cuda", {}).items()
        },
        torch={path: frozenset(map(str, found)) for path, found in values["torch"].items()},
        torch_asked={
            path: frozenset(map(str, found)) for path, found in values.get("torch_asked", {}).items()
        },
        torch_defined=unpack_numbers(packed) if (packed := values.get("torch_defined")) else None,
    )
