"""Images straight from a registry: the targets of its tags, and the evidence beside each.

Nothing is believed of a tag's name. An image says by its labels which cell it is, its evidence is found by
its digest and judged as ``rtbuild audit`` does, and whatever cannot be read is named and left out.
"""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeVar

from builder.core.documents import parse_object, shown
from builder.core.errors import EvidenceError
from builder.core.model import Base, Cell, Cuda, Profile
from builder.release.audit import BASE_NAME, Question, Today, check_stated, evidence_of, judge_all, pinned_of
from builder.release.catalogue.collection import noted
from builder.release.catalogue.releases import judgement
from builder.release.catalogue.values import (
    CataloguedImage,
    Judgement,
    Part,
    Run,
    largest_first,
    newest_first,
)
from builder.sources.oci import CELL_LABEL, MATRIX_LABEL, PREFIX, NoImageError, Registry, Staged, read_image
from builder.verify.evidence import JudgedReport, Policy, Verifier, clock_behind, judge, shared
from builder.verify.runner import Damaged

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
