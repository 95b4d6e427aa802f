"""What the rules can know for certain about cells: read from wheels and registries, or kept from before.

A lock names every wheel of an image by hash. What those of the frameworks say of themselves is read by ranges
and kept by that hash for good. What a registry says of a tag can change, so it is kept with its day and
believed for :data:`BASE_DAYS`. What could not be read stands in :attr:`Truth.unread`: never a yes.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from builder import resources
from builder.compat import BaseTruth, Truth, truth_of_base, truth_of_pinned
from builder.compat.versions import requirement
from builder.errors import ImageMissingError, RtbuildError
from builder.files import write_whole
from builder.lock.oci import parse_reference
from builder.lock.wheelmeta import cached_truth, truth_of_wheel
from builder.model import RegistryBase

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from builder.compat import WheelTruth
    from builder.lock.index import Index
    from builder.lock.registry import Registry
    from builder.lock.simple_api import IndexFile
    from builder.model import Cell, Pinned, Wheel

BASE_DAYS = 7
"""How long a registry's answer is believed without asking again: a tag can be rebuilt, or deleted."""
MISSING_DAYS = 1
"""The same for the answer that there is no such tag: it may be pushed, or a mirror filled."""
_SCHEMA = 1
_THREADS = 4

Pair = tuple["Cell", "Pinned | None"]


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What :func:`read` found for several cells."""

    truths: tuple[Truth, ...]
    """One for each cell, in the order asked."""
    wheels: int
    """Wheels that were looked at, each once."""
    bases: int
    transferred: int
    """Bytes read out of wheels; 0 where all were known."""
    seconds: float


class Memory:
    """What earlier readings left in the user's cache. Asks no network."""

    def __init__(self, *, mirrors: Mapping[str, str] | None = None, cache: Path | None = None) -> None:
        """``mirrors`` as :class:`Registry` has them: an answer holds for the place that gave it."""
        folder = cache or resources.cache()
        self.wheel_folder = folder / "wheelmeta"
        self._base_folder = folder / "basemeta"
        self._mirrors = dict(mirrors or {})
        self._wheels: dict[str, WheelTruth | None] = {}
        self._bases: dict[tuple[str, str], BaseTruth | None] = {}

    def truth(self, cell: Cell, pinned: Pinned | None) -> Truth:
        """For one cell: its lock, its framework wheels as read before, and its base as read lately."""
        found = [
            known for wheel in framework_wheels(cell, pinned) if (known := self.wheel(wheel)) is not None
        ]
        reference = base_reference(cell, pinned)
        base = self.base(reference, cell.platform) if reference else None
        return _together(pinned, found, base)

    def wheel(self, wheel: Wheel) -> WheelTruth | None:
        if wheel.sha256 not in self._wheels:
            self._wheels[wheel.sha256] = cached_truth(wheel.file, wheel.sha256, cache=self.wheel_folder)
        return self._wheels[wheel.sha256]

    def base(self, reference: str, platform: str) -> BaseTruth | None:
        key = (reference, platform)
        if key not in self._bases:
            self._bases[key] = self._read_base(reference, platform)
        return self._bases[key]

    def keep(self, reference: str, platform: str, base: BaseTruth) -> None:
        """Remember a registry's answer."""
        document = {
            "schema": _SCHEMA,
            "read": int(time.time()),
            "reference": base.reference,
            "digest": base.digest,
            "env": dict(base.env),
            "exists": base.exists,
            "system": base.system,
        }
        path = self._path(reference, platform)
        try:
            write_whole(path, json.dumps(document, indent=1, sort_keys=True).encode(), mode=0o600)
        except OSError:
            return  # a cache that cannot be written costs time, nothing else

    def _read_base(self, reference: str, platform: str) -> BaseTruth | None:
        try:
            document = json.loads(self._path(reference, platform).read_text("utf-8"))
            age = time.time() - document["read"]
            days = BASE_DAYS if document["exists"] else MISSING_DAYS
            if document["schema"] != _SCHEMA or not 0 <= age <= days * 86400:
                return None
            return BaseTruth(
                reference=document["reference"],
                digest=document["digest"],
                env=tuple(sorted(document["env"].items())),
                exists=document["exists"],
                system=document["system"],
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None  # absent or damaged: it is read again when it is asked for

    def mirror(self, reference: str) -> str | None:
        """The mirror that is asked for an image in its registry's place."""
        return self._mirrors.get(parse_reference(reference).host)

    def _path(self, reference: str, platform: str) -> Path:
        mirror = self.mirror(reference) or ""
        name = hashlib.sha256(f"{reference}\n{platform}\n{mirror}".encode()).hexdigest()
        return self._base_folder / f"{name}.json"


def read(pairs: Sequence[Pair], *, index: Index, registry: Registry, memory: Memory) -> Reading:
    """Read what the cells stand on, each wheel and base once. Nothing that a server does is an error here.

    Of a cell that is not locked only the base is read: which wheels it would get, nobody has decided yet.
    """
    started = time.monotonic()
    wheels = {w.sha256: (w, cell.index) for cell, pinned in pairs for w in framework_wheels(cell, pinned)}
    pages = sorted({(canonicalize_name(wheel.name), extra) for wheel, extra in wheels.values()})
    bases = sorted(
        {(name, cell.platform) for cell, pinned in pairs if (name := base_reference(cell, pinned))}
    )
    with ThreadPoolExecutor(_THREADS) as pool:
        asked = pool.map(lambda base: _base(base[0], base[1], registry, memory), bases)
        offered = dict(zip(pages, pool.map(lambda page: _page(page[0], page[1], index), pages), strict=True))

        def one(item: tuple[Wheel, tuple[str, ...]]) -> tuple[WheelTruth | None, tuple[str, ...], int]:
            wheel, extra = item
            return _wheel(wheel, offered[canonicalize_name(wheel.name), extra], index, memory)

        about_wheels = dict(zip(wheels, pool.map(one, wheels.values()), strict=True))
        about_bases = dict(zip(bases, asked, strict=True))
    truths = []
    for cell, pinned in pairs:
        mine = [about_wheels[wheel.sha256] for wheel in framework_wheels(cell, pinned)]
        reference = base_reference(cell, pinned)
        base, why = about_bases[reference, cell.platform] if reference else (None, ())
        unread = [*why, *(reason for _, reasons, _ in mine for reason in reasons)]
        truths.append(_together(pinned, [truth for truth, _, _ in mine if truth is not None], base, unread))
    return Reading(
        truths=tuple(truths),
        wheels=len(wheels),
        bases=len(bases),
        transferred=sum(size for _, _, size in about_wheels.values()),
        seconds=time.monotonic() - started,
    )


def framework_wheels(cell: Cell, pinned: Pinned | None) -> tuple[Wheel, ...]:
    """Of a lock's wheels, those of the frameworks, and JAX's plug-in, which holds its pins."""
    if pinned is None:
        return ()
    names = {canonicalize_name(r.name) for text in cell.frameworks if (r := requirement(text)) is not None}
    return tuple(
        wheel
        for wheel in pinned.wheels
        if canonicalize_name(wheel.name) in names or re.fullmatch(r"jax[-_]cuda\d+[-_]plugin", wheel.name)
    )


def base_reference(cell: Cell, pinned: Pinned | None) -> str | None:
    """What to ask a registry for: the locked digest, else the tag; None for a base that is no image."""
    if pinned is not None and isinstance(pinned.base, RegistryBase):
        return f"{pinned.base.reference.partition('@')[0]}@{pinned.base.digest}"
    return cell.base.name if pinned is None and cell.base.kind == "registry" else None


def _together(
    pinned: Pinned | None,
    wheels: Iterable[WheelTruth],
    base: BaseTruth | None,
    unread: Iterable[str] = (),
) -> Truth:
    truth = truth_of_pinned(pinned, tuple(wheels)) if pinned is not None else Truth()
    return replace(truth, base=base or truth.base, unread=tuple(dict.fromkeys(unread)))


def _base(
    reference: str, platform: str, registry: Registry, memory: Memory
) -> tuple[BaseTruth | None, tuple[str, ...]]:
    try:
        base = truth_of_base(registry.inspect(reference, platform))
    except ImageMissingError:
        mirror = memory.mirror(reference)
        asked = f"{reference} (asked at its mirror {mirror})" if mirror else reference
        base = BaseTruth(reference=asked, exists=False)
    except RtbuildError as problem:
        known = memory.base(reference, platform)
        return known, (f"the base {reference} could not be read: {problem.message}",)
    except (ValueError, LookupError, TypeError, AttributeError) as problem:
        # a config or manifest that is JSON of another shape
        return None, (f"the base {reference} could not be read: {type(problem).__name__}: {problem}",)
    memory.keep(reference, platform, base)
    return base, ()


def _page(name: str, extra: tuple[str, ...], index: Index) -> tuple[IndexFile, ...] | str:
    """A project's files, or why they are not known."""
    try:
        return index.with_extra(extra).offers(name)
    except RtbuildError as problem:
        return problem.message


def _wheel(
    wheel: Wheel, page: tuple[IndexFile, ...] | str, index: Index, memory: Memory
) -> tuple[WheelTruth | None, tuple[str, ...], int]:
    """A wheel's truth, what could not be read, and the bytes that it took."""
    known = memory.wheel(wheel)
    if isinstance(page, str):
        # a wheel never changes, so what is known of it needs no index
        return known, () if known else (f"{wheel.file} could not be read: {page}",), 0
    offered = [file for file in page if file.name == wheel.file and file.sha256 in {None, wheel.sha256}]
    if not offered and wheel.source is not None:
        return known, () if known else (f"{wheel.file} is built from sources, and was not looked into",), 0
    if not offered:
        return known, (f"{wheel.file} with the locked hash is no longer on the package index",), 0
    file = offered[0]
    if known is not None:
        return replace(known, yanked=file.yanked), (), 0
    truth, remote = truth_of_wheel(
        file.url,
        index.client,
        sha256=wheel.sha256,
        size=wheel.size,
        metadata_sha256=file.metadata,
        cache=memory.wheel_folder,
    )
    return replace(truth, yanked=file.yanked), remote.unknown, remote.transferred
