"""Gathers the catalogue's contents: tables, matrices with locks, reports, publications, causes; and images
straight from a registry: the targets of its tags, and the evidence beside each.

Nothing is believed of a tag's name. An image says by its labels which cell it is, its evidence is found by
its digest and judged as ``rtbuild audit`` does, and whatever cannot be read is named and left out.
"""

import configparser
import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from builder.core import resources
from builder.core.documents import MalformedError, parse_moment, parse_object, read_file, shown
from builder.core.errors import CellError, EvidenceError
from builder.core.items import item
from builder.core.model import Base, Cell, Cuda, Matrix, Profile, RegistryBase
from builder.plan.facts.rules import check
from builder.plan.facts.tables import class_of
from builder.plan.lock import LockEntry, lock_path, pinned_cell, read_lock
from builder.release.audit import BASE_NAME, Question, Today, check_stated, evidence_of, judge_all
from builder.release.catalogue.values import (
    Catalogue,
    CataloguedImage,
    Cause,
    Judgement,
    Part,
    Run,
    branches_of,
    cards_of,
    judgement,
    largest_first,
    newest_first,
    releases_of,
)
from builder.release.colab import listed
from builder.sources.oci import (
    CELL_LABEL,
    MATRIX_LABEL,
    PREFIX,
    NoImageError,
    Registry,
    Staged,
    is_digest,
    is_tag,
    parse_reference,
    read_image,
)
from builder.verify.evidence import (
    JudgedReport,
    Policy,
    Verifier,
    clock_behind,
    judge,
    no_proof,
    pinned_of,
    shared,
)
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
        registered: Images out of registries (:func:`images_of`).
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
    """The last publication of each cell: its name, digest, and the digests that it had before."""
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


# -- out of a registry

MOST = 5000
"""Tags of one repository that are followed."""
_AT_ONCE = 8
_T = TypeVar("_T")


def images_of(
    registry: Registry,
    repository: str,
    *,
    now: datetime,
    verifier: Verifier | None = None,
    say: Callable[[str], None],
    today: Today | None = None,
) -> tuple[list[CataloguedImage], list[str]]:
    """The images of the repository's tags, by matrix and cell, and notes on those left out.

    With ``verifier`` only statements that it accepts say that something ran. ``today`` is asked what is newer
    than each image. Raises RegistryError if the
    repository cannot be listed.
    """
    names, notes = tags_by_digest(registry, repository, say)
    found: list[CataloguedImage] = []
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        read = {
            mine[0]: pool.submit(_read, registry, f"{repository}@{digest}", mine, verifier, now, today=today)
            for digest, mine in names.items()
        }
        for number, (_, (image, doubts)) in enumerate(_answers(read, repository, notes), 1):
            found.append(image)
            notes += [f"{repository}@{str(image.digest)[:19]}…: {shown(doubt)}" for doubt in doubts]
            if number % 50 == 0:
                say(f"{repository}: {number} of {len(names)} images")
    return found, notes


def tags_by_digest(
    registry: Registry, repository: str, say: Callable[[str], None]
) -> tuple[dict[str, list[str]], list[str]]:
    """The tags of each image of a repository, by digest, and notes on the tags left out.

    Raises RegistryError if the repository cannot be listed.
    """
    # under sha256-… clients keep the referrers of an image
    tags = sorted(tag for tag in registry.tags(repository) if not tag.startswith("sha256-"))
    notes = [f"{repository} has {len(tags)} tags, of which {MOST} are shown"] if len(tags) > MOST else []
    say(f"{repository}: {len(tags)} tags")
    names: dict[str, list[str]] = {}
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        asked = {tag: pool.submit(registry.digest_of, f"{repository}:{tag}") for tag in tags[:MOST]}
        for tag, digest in _answers(asked, repository, notes):
            if digest is None:
                notes.append(f"{repository}:{tag} is not shown: it is gone")
            else:
                names.setdefault(digest, []).append(tag)
    return names, notes


def _answers(jobs: Mapping[str, Future[_T]], repository: str, notes: list[str]) -> Iterator[tuple[str, _T]]:
    """The answers of the jobs by tag; a note for each that failed."""
    for tag, job in jobs.items():
        done: list[_T] = []
        with noted(notes, f"{repository}:{tag}"):
            done.append(job.result())
        yield from ((tag, answer) for answer in done)


def _read(
    registry: Registry,
    reference: str,
    tags: list[str],
    verifier: Verifier | None,
    now: datetime,
    *,
    today: Today | None,
) -> tuple[CataloguedImage, list[str]]:
    """One image, and doubts about its evidence. Raises RegistryError if rtbuild did not make it."""
    repository, _, digest = reference.partition("@")
    image = read_image(registry, repository, digest)
    cell_id, matrix = image.label(CELL_LABEL), image.label(MATRIX_LABEL)
    if not cell_id or not matrix:
        raise NoImageError(f"it has no label {CELL_LABEL} or {MATRIX_LABEL}: rtbuild did not make it")
    gathered, _ = evidence_of(registry, image, verifier)
    weighed = judge_all(gathered, image, Question(verifier=verifier), now)
    doubts = [f"{row.kind} does not count: {row.reason}" for row in weighed.held if not row.holds]
    doubts += [row.reason for row in gathered.refused]
    if weighed.unread:
        doubts.append(
            f"{weighed.unread} of the documents beside it may be against it: it is not shown to work"
        )
    words = [*(() if weighed.unread else weighed.verified), *weighed.against]
    if verifier is None:
        words += _reports(registry, image, now, doubts)
    if behind := clock_behind(registry, repository):
        doubts.append(f"{behind}, and it is not shown to work")
        words = [word for word in words if word.side == "against"]
    runs = [
        Run(
            gpu=word.gpu,
            card=word.gpu_class,
            driver=word.driver or "unknown",
            when=word.when,
            verdict=word.verdict,
            cause=word.report.cause,
            digest=word.key.digest,
            evidence=f"{repository}@{word.key.digest}",
        )
        for word in words
        if word.gpus
    ]
    held = {
        row.kind: piece.statement.predicate
        for piece, row in zip(gathered.pieces, weighed.held, strict=True)
        if row.holds
    }
    cell, possible = _cell(cell_id, matrix, image, held.get("provenance"))
    public = [tag for tag in tags if not tag.startswith(PREFIX)]
    # Else the longest: the immutable tag ends in the digest, and short ones such as "latest" move.
    name = cell_id if cell_id in public else max(public, key=lambda tag: (len(tag), tag), default=None)
    catalogued = CataloguedImage(
        cell=cell,
        possible=possible,
        parts=_layers(registry, image),
        packages=_packages(held.get("sbom"), doubts),
        runs=newest_first(runs),
        published=f"{repository}:{name}" if name else reference,
        digest=digest,
        outdated=None if today is None else today.of_evidence(image, gathered, weighed),
    )
    return catalogued, doubts


def _reports(registry: Registry, image: Staged, now: datetime, doubts: list[str]) -> Iterator[JudgedReport]:
    """Reports that verifying machines put beside a staged image."""
    for report in shared(registry, image):
        if isinstance(report, Damaged):
            doubts.append(report.why)
            continue
        word = judge(report, image, Policy(now=now))
        if word.side != "neither":
            yield word
        elif word.reason is not None and word.gpus:
            doubts.append(word.reason.text)


def _cell(
    cell_id: str, matrix: str, image: Staged, provenance: Mapping[str, Any] | None
) -> tuple[Cell, Judgement]:
    """The cell that the provenance names, and the judgement of the rules."""
    stated = None if provenance is None else pinned_of(provenance)
    if stated is None:
        why = "no provenance lies beside it" if provenance is None else "its provenance names no cell"
        base = Base(kind="registry", name=image.label(BASE_NAME) or "unknown")
        unread = Cell(
            id=cell_id, matrix=matrix, frameworks=(), python="unknown", base=base, cuda=Cuda(provider="none")
        )
        return unread, Judgement(answer="unknown", reason=why)
    profile: Profile = "colab" if image.label("io.rtbuild.profile") == "colab" else "plain"
    cell = replace(stated.cell, id=cell_id, matrix=matrix, profile=profile)
    try:
        return cell, judgement(check_stated(cell))
    except EvidenceError as error:
        return cell, Judgement(answer="unknown", reason=error.message)


def _layers(registry: Registry, image: Staged) -> tuple[Part, ...]:
    """The layers as the manifest has them, named by the history of the image's config; the largest first."""
    history = parse_object(registry.blob(image.repository, image.config_digest)).get("history")
    steps = [row for row in history if isinstance(row, dict)] if isinstance(history, list) else []
    titles = [str(row.get("created_by", "")) for row in steps if not row.get("empty_layer")]
    sizes = [size for _, size in image.blobs[1:]]
    if len(titles) != len(sizes):
        titles = [f"layer {number}" for number in range(1, len(sizes) + 1)]
    return largest_first(
        Part(name=shown(title.removeprefix("rtbuild: "), most=80) or "layer", version="", size=size)
        for title, size in zip(titles, sizes, strict=True)
    )


def _packages(sbom: Mapping[str, Any] | None, doubts: list[str]) -> dict[str, str]:
    """Python packages by the SBOM."""
    try:
        rows = sbom["components"] if sbom is not None else ()
        return {
            str(row["name"]): str(row["version"])
            for row in rows
            if str(row.get("purl")).startswith("pkg:pypi/")
        }
    except (LookupError, TypeError, AttributeError) as error:
        doubts.append(f"its SBOM is none that rtbuild wrote ({error!r})")
        return {}
