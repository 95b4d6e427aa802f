"""``rtbuild outdated``: what has appeared or gone since cells were locked."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

from builder.cli import options as opt
from builder.cli.console import counted, print_json, say, show
from builder.core.errors import CellError, MissingToolError, StaleLockError, UsageError
from builder.core.items import item
from builder.core.model import Cell, Matrix, Pinned
from builder.pipeline import Locks
from builder.plan.lock import Outdated
from builder.plan.lock import outdated as ask
from builder.release.audit import lock_of, resolve
from builder.release.catalogue import tags_by_digest
from builder.sources.debian import Debian
from builder.sources.index import Files, Index, pages
from builder.sources.oci import Registry, parse_reference, read_image
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

    `rtbuild lock --upgrade` takes all that is newer, `--upgrade-package NAME` one package. Of a published
    image the provenance beside it says what is in it.
    """
    matrices = [Path(text) for text in things or () if _is_matrix(text)]
    published = [text for text in things or () if not _is_matrix(text)]
    if key and not published:
        raise UsageError("--key is for published images, and none is named", hint="name a REPOSITORY[:TAG]")
    loaded, cells = ([], []) if published and not matrices else opt.choose(matrices, select, skip)
    clients = _Clients(loaded, mirrors=opt.mirrors(mirror))
    questions: list[tuple[str, Callable[[], Outdated]]] = []
    questions += [(cell.id, partial(clients.of_cell, cell)) for cell in cells]
    verifier = Verifier(key=key) if key else None
    for name, digest in clients.images(published):
        questions.append((name, partial(clients.of_image, name, digest, verifier)))
    found: dict[str, Outdated] = {}
    for name, ask_about in questions:
        try:
            with item(name):
                found[name] = ask_about()
        except (CellError, StaleLockError) as problem:
            found[name] = Outdated(changes=(), unknown=(problem.message,))
    found |= {name: Outdated(changes=(), unknown=notes) for name, notes in clients.unread.items()}
    if json_:
        print_json({"schema": 1, "cells": [_document(name, one) for name, one in found.items()]})
    else:
        show(*_page(found))
    changes = [change for one in found.values() for change in one.changes]
    listed = [change for change in changes if fail_on in {"any", change.kind}]
    if fail_on is None or listed:
        return 1 if listed else 0
    left_open = any(one.unknown or one.unasked for one in found.values())
    return MissingToolError.exit_code if left_open else 0


def _is_matrix(text: str) -> bool:
    return text.endswith((".yaml", ".yml")) or Path(text).exists()


class _Clients:
    """The clients of one run; a lock is read once, and a project's page asked for once."""

    def __init__(self, matrices: Sequence[Matrix], mirrors: Mapping[str, str]) -> None:
        self._matrices = {matrix.name: matrix for matrix in matrices}
        self._locks: dict[str, Locks] = {}
        self._index = Index.from_user(brief=True)
        self._registry = Registry.from_user(mirrors)
        self._debian = Debian(note=say)
        self._pages: dict[tuple[str, ...], dict[str, Files]] = {}
        self.unread: dict[str, tuple[str, ...]] = {}
        """Of repositories, the tags that could not be followed, a sentence each."""

    def images(self, published: Iterable[str]) -> Iterator[tuple[str, str]]:
        """Each image's name and digest; one that several tags lead to has the longest, which is never moved.

        Raises:
            UsageError: a text is no reference.
            RegistryError: a repository cannot be listed, or an image is not there.
        """
        for text in published:
            name = parse_reference(text)
            repository = f"{name.host}/{name.repository}"
            if name.digest or text.rpartition("/")[2].count(":"):
                yield text, name.digest or resolve(self._registry, text).digest
                continue
            tags, notes = tags_by_digest(self._registry, repository, say)
            if notes or not tags:
                self.unread[repository] = tuple(notes) or ("it has no image",)
            for digest, names in tags.items():
                yield f"{repository}:{max(names, key=lambda tag: (len(tag), tag))}", digest

    def of_cell(self, cell: Cell) -> Outdated:
        """Raises CellError and StaleLockError."""
        if cell.matrix not in self._locks:
            self._locks[cell.matrix] = Locks([self._matrices[cell.matrix]])
        return self._ask(self._locks[cell.matrix].fresh([cell])[0], cell.index)

    def of_image(self, name: str, digest: str, verifier: Verifier | None) -> Outdated:
        """Raises CellError if no provenance counts."""
        reference = parse_reference(name)
        repository = f"{reference.host}/{reference.repository}"
        image = read_image(self._registry, repository, digest)
        return self._ask(lock_of(self._registry, image, verifier), (), beside=repository)

    def _ask(self, pinned: Pinned, index: tuple[str, ...], beside: str | None = None) -> Outdated:
        known = self._pages.setdefault(index, {})
        names = {wheel.name for wheel in pinned.wheels}
        known |= pages(names - known.keys(), self._index.with_extra(index))
        return ask(pinned, pages=known, debian=self._debian, registry=self._registry, beside=beside)


def _document(cell: str, found: Outdated) -> dict[str, Any]:
    return {
        "cell": cell,
        "changes": [vars(change) for change in found.changes],
        "unknown": list(found.unknown),
        "unasked": list(found.unasked),
    }


def _page(found: Mapping[str, Outdated]) -> Iterator[str]:
    for cell, one in found.items():
        plain = "nothing newer" + " in what was asked" * bool(one.unasked)
        none = "not known" if one.unknown else plain
        yield f"{cell}: {counted(one.changes, 'change') if one.changes else none}"
        for change in one.changes:
            versions = f"{change.locked} → {change.newer}" if change.newer else change.locked
            yield f"  {change.kind:<9} {change.name} {versions}{f': {change.why}' if change.why else ''}"
        yield from (f"  unknown   {text}" for text in one.unknown)
        yield from (f"  unasked   {text}" for text in one.unasked)
