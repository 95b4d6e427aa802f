"""``rtbuild outdated``: what has appeared or gone since cells were locked."""

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from builder.cli import options as opt
from builder.cli.console import print_json, say, show
from builder.core.errors import MissingToolError, StaleLockError, UsageError
from builder.core.model import Cell, Matrix
from builder.pipeline import Locks
from builder.plan.lock import Outdated, newer_releases
from builder.release.audit import Today, resolve
from builder.release.catalogue import tags_by_digest
from builder.sources.oci import Registry, parse_reference
from builder.verify.evidence import Verifier


def outdated(
    things: list[str] | None = opt.of(
        "MATRIX|REPOSITORY[:TAG]: Matrix files, and published images: of a repository all. "
        "Without any, matrices/*.yaml.",
        show_default=False,
    ),
    select: list[str] | None = opt.SELECT,
    skip: list[str] | None = opt.SKIP,
    fail_on: Literal["security", "any"] | None = opt.of(
        "--fail-on security|any: Exit 1 if a security update, or anything, is listed; 5 if that stays open."
    ),
    key: str | None = opt.of("--key FILE|URI: Of published images, count only what this public key signed."),
    mirror: list[str] | None = opt.MIRROR,
    json_: bool = opt.JSON,
) -> int:
    """Ask Debian's archive, the package index, the registry and the rules of `check`; change nothing.

    `rtbuild lock --upgrade` takes all that is newer, `--upgrade-only NAME` one package. Of a published
    image the provenance beside it says what is in it.
    """
    matrices = [Path(text) for text in things or () if _is_matrix(text)]
    published = [text for text in things or () if not _is_matrix(text)]
    if key and not published:
        raise UsageError("--key is for published images, and none is named", hint="name a REPOSITORY[:TAG]")
    loaded, cells = ([], []) if published and not matrices else opt.choose(matrices, select, skip)
    registry, verifier = Registry.from_user(opt.mirrors(mirror)), Verifier(key=key) if key else None
    today = Today(registry, note=say)
    found: dict[str, Outdated] = {}
    hints: list[str | None] = []
    for matrix in loaded:
        found |= _of_matrix([cell for cell in cells if cell.matrix == matrix.name], matrix, today, hints)
    for text in published:
        say(f"{text}: asking what is newer")
        found |= _of_images(text, registry, today, verifier)
    if json_:
        print_json({"schema": 1, "cells": [_document(name, one) for name, one in found.items()]})
    else:
        show(*_page(found))
    for hint in filter(None, hints):
        say(f"hint: {hint}")
    changes = [change for one in found.values() for change in one.changes]
    listed = [change for change in changes if fail_on in {"any", change.kind}]
    if fail_on is None or listed:
        return 1 if listed else 0
    left_open = any(one.unknown or one.unasked for one in found.values())
    return MissingToolError.exit_code if left_open else 0


def _is_matrix(text: str) -> bool:
    return text.endswith((".yaml", ".yml")) or Path(text).exists()


def _of_matrix(
    cells: Sequence[Cell], matrix: Matrix, today: Today, hints: list[str | None]
) -> Iterator[tuple[str, Outdated]]:
    """Each cell by its id; ``hints`` gets the commands that lock those without a lock, and that take what is
    a matter of security.
    """
    if not cells:
        return
    locks, security = Locks([matrix]), dict[str, None]()
    for cell in cells:
        try:
            (pinned,) = locks.fresh([cell])
        except StaleLockError as problem:
            unknown, releases = (problem.message,), tuple(newer_releases(cell))
            yield cell.id, Outdated(changes=(), unknown=unknown, releases=releases)
        else:
            say(f"{cell.id}: asking what is newer")
            told = today.of_lock(pinned)
            security |= dict.fromkeys(one.name for one in told.changes if one.kind == "security")
            yield cell.id, told
    if security:
        names = " ".join(f"--upgrade-only {shlex.quote(name)}" for name in security)
        path = shlex.quote(str(matrix.path))
        hints.append(f"the security updates alone, with what they force: `rtbuild lock {path} {names}`")
    try:
        locks.fresh(cells)
    except StaleLockError as problem:
        hints.append(problem.hint)


def _of_images(
    text: str, registry: Registry, today: Today, verifier: Verifier | None
) -> Iterator[tuple[str, Outdated]]:
    """Each image by its name; one that several tags lead to has the longest, which is never moved.

    Raises:
        UsageError: ``text`` is no reference.
        RegistryError: the repository cannot be listed, or the image is not there.
    """
    name = parse_reference(text)
    repository = f"{name.host}/{name.repository}"
    if name.digest or text.rpartition("/")[2].count(":"):
        digest = name.digest or resolve(registry, text).digest
        yield text, today.of_image(repository, digest, verifier)
        return
    tags, notes = tags_by_digest(registry, repository, say)
    if notes or not tags:
        yield repository, Outdated(changes=(), unknown=tuple(notes) or ("it has no image",))
    names = {
        digest: f"{repository}:{max(mine, key=lambda tag: (len(tag), tag))}" for digest, mine in tags.items()
    }
    yield from zip(names.values(), today.of_images(repository, names, verifier), strict=True)


def _document(cell: str, found: Outdated) -> dict[str, Any]:
    return {
        "cell": cell,
        "changes": [vars(change) for change in found.changes],
        "held": [vars(change) for change in found.held],
        "releases": list(found.releases),
        "unknown": list(found.unknown),
        "unasked": list(found.unasked),
        "lists": {one.suite: datetime.fromtimestamp(one.date, UTC).isoformat() for one in found.lists},
    }


def _page(found: Mapping[str, Outdated]) -> Iterator[str]:
    times = Counter(text for one in found.values() for text in one.unknown)
    shared = {text: count for text, count in times.items() if count > 1}
    for text, count in shared.items():  # no network, and a line of it for each cell would be the whole page
        yield f"unknown for {count} of {len(found)}: {text}"
    for cell, one in found.items():
        yield f"{cell}: {one.summary}" + (f" (Debian's lists of {one.dated})" if one.dated else "")
        for change in one.changes:
            versions = f"{change.locked} → {change.newer}" if change.newer else change.locked
            yield f"  {change.kind:<9} {change.name} {versions}{f': {change.why}' if change.why else ''}"
        for held in one.held:
            yield f"  held      {held.name} {held.locked} → {held.newer}: {held.why}"
        yield from (f"  release   {text}" for text in one.releases)
        yield from (f"  unknown   {text}" for text in one.unknown if text not in shared)
        yield from (f"  unasked   {text}" for text in one.unasked)
