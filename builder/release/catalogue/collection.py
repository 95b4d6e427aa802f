"""Gathers the catalogue's contents: tables, matrices with locks, reports, publications, causes."""

import configparser
import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from builder.core import resources
from builder.core.documents import MalformedError, parse_moment, parse_object, read_file, shown
from builder.core.errors import CellError
from builder.core.items import item
from builder.core.model import Cell, Matrix, RegistryBase
from builder.plan.facts.rules import check
from builder.plan.facts.tables import class_of
from builder.plan.lock import LockEntry, lock_path, pinned_cell, read_lock
from builder.release.audit import Today
from builder.release.catalogue.releases import branches_of, cards_of, judgement, releases_of
from builder.release.catalogue.values import (
    Catalogue,
    CataloguedImage,
    Cause,
    Part,
    Run,
    largest_first,
    newest_first,
)
from builder.release.colab import listed
from builder.sources.oci import is_digest, is_tag, parse_reference
from builder.verify.evidence import no_proof
from builder.verify.runner import Damaged, ReportStore, SealedReport, parse


def collect(
    matrices: Sequence[Matrix],
    *,
    results: Path,
    runtimes: Path,
    registered: Sequence[CataloguedImage] = (),
    notes: Iterable[str] = (),
    today: Today | None = None,
) -> Catalogue:
    """Everything that lies in these places. What cannot be read is named in the catalogue's notes.

    Args:
        registered: Images out of registries (:func:`builder.release.catalogue.registry.images_of`).
        results: Folder of reports and of ``publication-*.json``; it may be missing.
        runtimes: Folder of ``colab-*.runtime.json``.
        today: Asked about locked cells; without it, what is newer is not known.
    """
    notes = [*notes]
    runs = _runs(ReportStore(results / "reports").entries(), notes)
    published = _published(results, notes)
    images = []
    for matrix in matrices:
        locked: dict[str, LockEntry] = {}
        with noted(notes, str(lock_path(matrix.path))):
            locked = read_lock(lock_path(matrix.path))
        for cell in (cell for cell in matrix.cells if cell.excluded is None):
            target, digest, earlier = published.get((matrix.name, cell.id), (None, None, ()))
            entry = locked.get(cell.id)
            pinned = pinned_cell(cell, locked) if today is not None else None
            with noted(notes, f"{cell.id} of {matrix.name}"):
                images.append(
                    CataloguedImage(
                        cell=cell,
                        possible=judgement(check(cell, suggest=False)),
                        parts=() if entry is None else _parts(entry),
                        packages={} if entry is None else {w.name: w.version for w in entry.wheels},
                        runs=newest_first(runs.get((matrix.name, cell.id), ())),
                        published=target,
                        digest=digest,
                        earlier=earlier,
                        outdated=today.of_lock(pinned) if today is not None and pinned is not None else None,
                    )
                )
    known = []
    for path in sorted(runtimes.glob("colab-*.runtime.json")):
        with noted(notes, str(path)):
            known.append(listed(str(path), folder=runtimes))
    releases, cards = tuple(releases_of()), cards_of()
    return Catalogue(
        releases=releases,
        cards=cards,
        branches=tuple(branches_of(releases, cards)),
        images=_together(images, registered, notes),
        causes=causes_of(),
        runtimes=tuple(known),
        notes=tuple(notes),
    )


@contextlib.contextmanager
def noted(notes: list[str], name: str) -> Iterator[None]:
    """The work on one item of the catalogue. If it fails, the item is not shown, and a note says why."""
    try:
        with item(name):
            yield
    except CellError as error:
        notes.append(f"{name} is not shown: {error.message}")


def _runs(entries: Iterable[SealedReport | Damaged], notes: list[str]) -> Mapping[tuple[str, str], list[Run]]:
    """Reports by matrix and cell. One without a GPU is about no card, and a test double's about nothing."""
    found: dict[tuple[str, str], list[Run]] = {}
    for entry in entries:
        if isinstance(entry, Damaged):
            notes.append(f"{entry.where} is not shown: {entry.why}")
            continue
        with noted(notes, entry.where):
            if (run := _run(entry)) is not None:
                found.setdefault((entry.matrix, entry.cell), []).append(run)
    return found


def _run(entry: SealedReport) -> Run | None:
    """None for a report about no card. Raises CellError for one that says ``works`` and proves nothing."""
    if entry.test_double or not entry.key.gpus or entry.key.driver is None:
        return None
    doubt = next(no_proof(parse(json.dumps(entry.document))), None) if entry.verdict == "works" else None
    if doubt is not None:
        raise CellError(doubt)
    name, capability = entry.key.gpus[0]
    cause = entry.document.get("cause")
    return Run(
        gpu=name,
        card=class_of(name, capability),
        driver=entry.key.driver,
        when=entry.verified,
        verdict=entry.verdict,
        cause=None if cause is None else str(cause),
        digest=entry.key.digest,
        evidence=entry.where,
    )


def _together(
    images: Sequence[CataloguedImage], registered: Sequence[CataloguedImage], notes: list[str]
) -> tuple[CataloguedImage, ...]:
    """Cells and registries' images as one list. A cell's image is the one with its tag; others are beside."""
    by_cell = {(image.cell.matrix, image.cell.id): image for image in images}
    beside: list[CataloguedImage] = []
    by_digest: dict[str | None, CataloguedImage] = {}
    for image in sorted(registered, key=lambda one: not _has_its_tag(one)):
        known = by_digest.get(image.digest)
        runs = newest_first([*(known.runs if known else ()), *image.runs])
        by_digest[image.digest] = replace(known or image, runs=runs)
    for image in by_digest.values():
        key = image.cell.matrix, image.cell.id
        there = by_cell.get(key)
        if there is None:
            by_cell[key] = image
        elif there.digest in (None, image.digest) and there.cell.span is not None:
            by_cell[key] = replace(
                image, cell=there.cell, possible=there.possible, runs=newest_first([*image.runs, *there.runs])
            )
        else:
            beside.append(replace(image, beside=True))
            if _has_its_tag(image):
                notes.append(
                    f"{there.published} and {image.published} are two images of one cell: each has a page"
                )
    return (*by_cell.values(), *beside)


def _has_its_tag(image: CataloguedImage) -> bool:
    return (image.published or "").endswith(f":{image.cell.id}")


def _published(results: Path, notes: list[str]) -> Mapping[tuple[str, str], tuple[str, str, tuple[str, ...]]]:
    """Where each cell was published last: its name, digest, and the digests that it had before."""
    found: dict[tuple[str, str], dict[str, tuple[str, str]]] = {}
    for path in sorted(results.glob("publication-*.json"), reverse=True)[:1000]:  # the newest
        with noted(notes, str(path)):
            for key, (started, target, digest) in _publications(path):
                digests = found.setdefault(key, {})
                digests[digest] = max(digests.get(digest, ("", "")), (started, target))
    last = {}
    for key, digests in found.items():
        (newest, (started, target)), *others = sorted(digests.items(), key=lambda row: row[1], reverse=True)
        if any(when == started for _, (when, _) in others):
            notes.append(f"{target} was published twice at {started}, with different digests")
        last[key] = target, newest, tuple(digest for digest, _ in others)
    return last


def _publications(path: Path) -> list[tuple[tuple[str, str], tuple[str, str, str]]]:
    try:
        document = parse_object(read_file(path), strict=True)
    except (OSError, MalformedError) as error:
        raise CellError(f"it cannot be read ({error})") from error
    if document.get("schema") != 1 or document.get("kind") != "publication":
        raise CellError("it is no publication of a schema that this rtbuild knows")
    rows = []
    try:
        for cell in document["cells"] if not document["dry_run"] else ():
            if cell["outcome"] in {"published", "unchanged"}:
                key = str(cell["matrix"]), str(cell["id"])
                target = f"{cell['target']}:{cell['id']}"
                if not is_digest(cell["digest"]):
                    raise CellError(f"{shown(str(cell['digest']))} is no digest")
                if not is_tag(key[0]):
                    raise CellError(f"{shown(key[0])} is no name of a matrix")
                parse_reference(target)
                rows.append(
                    (key, (parse_moment(document["started"]).isoformat(), target, str(cell["digest"])))
                )
    except (LookupError, TypeError, MalformedError) as error:
        raise CellError(f"it lacks what a publication has ({shown(repr(error))})") from error
    return rows


def _parts(entry: LockEntry) -> tuple[Part, ...]:
    if isinstance(entry.base, RegistryBase):
        base = Part(name="base", version="", size=entry.base.size)
    else:
        base = Part(name="base", version=entry.base.suite, size=sum(deb.size for deb in entry.base.debs))
    wheels = (Part(name=wheel.name, version=wheel.version, size=wheel.size) for wheel in entry.wheels)
    return largest_first((base, *wheels))


def causes_of() -> tuple[Cause, ...]:
    """The probe's closed list of causes, each with the example texts of its signatures."""
    texts: dict[str, list[str]] = {}
    for signature in _sections("read/signatures.ini"):
        for cause in signature.get("causes", "").split():
            texts.setdefault(cause.rstrip(","), []).append(signature["example"])
    names = ("title", "side", "explanation", "remedy", "source")
    return tuple(
        Cause(
            id=row.name,
            **{name: " ".join(row[name].split()) for name in names},
            texts=tuple(dict.fromkeys(texts.get(row.name, ()))),
        )
        for row in _sections("common/causes.ini")
    )


def _sections(name: str) -> Iterator[configparser.SectionProxy]:
    """The sections of one of the probe's tables."""
    parser = configparser.RawConfigParser(delimiters=("=",), comment_prefixes=("#",))
    parser.read_string((resources.probe() / name).read_text("utf-8"))
    return (parser[section] for section in parser.sections())


def cell_frameworks(cell: Cell) -> tuple[tuple[str, str], ...]:
    """``(("torch", "2.6.0"),)`` of a cell's pinned requirements, extras and variants left out."""
    pairs = (text.partition("==") for text in cell.frameworks)
    return tuple((name.partition("[")[0], version.partition("+")[0]) for name, _, version in pairs)
