"""Is this published image known to work? The answer comes from its registry alone, without an engine.

A tag is resolved once, to a digest, and everything else is about that digest. The answer is yes only if a
verification of this very content holds; missing, unreadable, contradicted or unsigned evidence never makes a
yes.

:class:`Today` holds locks and published images against today's releases; each archive, index and page is
asked once.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from builder.core import resources
from builder.core.errors import CellError, EvidenceError, ImageMissingError, RegistryError
from builder.core.items import item
from builder.core.model import Pinned
from builder.core.versions import canonical
from builder.plan.facts.reading import BaseTruth
from builder.plan.lock import LockChange, Outdated, in_order, outdated
from builder.release.audit import checks
from builder.release.audit.checks import (
    FAILED,
    AuditFinding,
    AuditOutcome,
    DriverAnswer,
    Held,
    Question,
    Weighed,
    fails,
    judge_all,
    mind,
    passes,
)
from builder.sources.debian import Debian
from builder.sources.index import Files, Index, pages
from builder.sources.oci import INDEXES, Registry, Staged, choose_manifest, parse_reference, read_image
from builder.verify.evidence import (
    CYCLONEDX,
    PROVENANCE,
    TEST_RESULT,
    Cosign,
    Gathered,
    JudgedReport,
    Refused,
    Verifier,
    check_signatures,
    clock_behind,
    drivers_of,
    gather,
    pinned_of,
)

PLATFORM = "linux/amd64"


@dataclass(frozen=True, kw_only=True)
class Audit:
    """The answer and its evidence."""

    reference: str
    """As it was asked for."""
    image: Staged
    when: datetime
    question: Question
    works: bool
    evidence: tuple[Held, ...]
    refused: tuple[Refused, ...]
    """Referrers of the image that could not be read as evidence about it."""
    kept: str
    """``referrers`` or ``tag``: who lists the evidence."""
    signatures: bool
    """Whether there are signatures of any signer."""
    verified: tuple[JudgedReport, ...]
    """The verifications that hold."""
    failed: tuple[JudgedReport, ...]
    """Judgements against the image that no newer one has taken back."""
    findings: tuple[AuditFinding, ...]
    on_driver: DriverAnswer | None = None
    """How much is known of the driver asked about; None if none was."""

    @property
    def should(self) -> bool:
        """Nothing is against it, and the rules alone say that it works on this machine."""
        return not self.against and any(found.outcome is AuditOutcome.SHOULD for found in self.findings)

    @property
    def drivers(self) -> dict[str, list[str]]:
        """{class that it is published for: the drivers with which it ran there, the oldest first}"""
        return {name: drivers_of(v for v in self.verified if name in v.claims) for name in self.claims}

    @property
    def claims(self) -> tuple[str, ...]:
        return tuple(sorted({name for found in self.verified for name in found.claims}))

    @property
    def against(self) -> tuple[AuditFinding, ...]:
        return tuple(found for found in self.findings if found.outcome is AuditOutcome.FAILS)


def audit(registry: Registry, reference: str, question: Question, *, now: datetime | None = None) -> Audit:
    """Judge an image by its registry.

    Raises:
        RegistryError: there is no such image, or its registry does not answer.
        MissingToolError: signatures are to be checked, and cosign is not here.
    """
    when = now or datetime.now(UTC)
    image = resolve(registry, reference)
    gathered, reasons = evidence_of(registry, image, question.verifier)
    findings: list[AuditFinding] = []
    sure = False
    if question.verifier is not None:
        findings.append(_signature(gathered, question.verifier, reasons))
    judged = judge_all(gathered, image, question, when)
    held, verified = judged.held, judged.verified
    findings += judged.findings(question)
    findings += verification(held, verified)
    findings += _unread(gathered, judged)
    if behind := clock_behind(registry, image.repository):
        findings.append(fails("clock", behind, hint="set the clock: timedatectl set-ntp true"))
    if verified:
        findings += _since(registry, image, verified, question, when)
    if verified and question.suites:
        findings.append(checks.ran(verified, question.gpu, question.suites))
    if verified and (question.gpu or question.driver):
        rows = zip(gathered.pieces, held, strict=True)
        made = (piece for piece, row in rows if row.kind == "provenance" and row.holds)
        provenance = next((piece.statement.predicate for piece in made), None)
        base = _base_truth(registry, image)
        ruled = checks.ruled(provenance, base, gpu=question.gpu, driver=question.driver)
        findings.append(checks.seen(verified, question.gpu, question.driver, sure=ruled.sure))
        findings += ruled.findings
        sure = ruled.sure
    on_driver = None
    if question.driver is not None:
        on_driver = checks.on_driver(verified, question.gpu, question.driver, sure=sure)
        if any(found.outcome is AuditOutcome.FAILS for found in findings):
            on_driver = DriverAnswer.NO
    return Audit(
        reference=reference,
        image=image,
        when=when,
        question=question,
        works=bool(verified)
        and not any(found.outcome in (AuditOutcome.FAILS, AuditOutcome.SHOULD) for found in findings),
        evidence=held,
        refused=gathered.refused,
        kept=gathered.kept,
        signatures=gathered.signatures,
        verified=tuple(sorted(verified, key=lambda v: v.when, reverse=True)),
        failed=judged.against,
        findings=tuple(findings),
        on_driver=on_driver,
    )


def evidence_of(
    registry: Registry, image: Staged, verifier: Verifier | None
) -> tuple[Gathered, tuple[str, ...]]:
    """The documents beside an image, checked by the verifier if there is one; and reasons of signatures."""
    gathered = gather(registry, parse_reference(image.repository).at(image.digest))
    if verifier is None:
        return gathered, ()
    # cosign knows nothing of rtbuild's mirrors.
    address = f"{registry.address(image.repository)}@{image.digest}"
    kinds = (TEST_RESULT, CYCLONEDX, PROVENANCE)
    return check_signatures(gathered, Cosign.find(), address, verifier, kinds)


def lock_of(gathered: Gathered, held: Sequence[Held]) -> Pinned:
    """The lock that the provenance beside an image states.

    Raises EvidenceError: there is none that holds, or rtbuild did not write it.
    """
    rows = [
        (row, piece) for row, piece in zip(held, gathered.pieces, strict=True) if row.kind == "provenance"
    ]
    for row, piece in rows:
        pinned = pinned_of(piece.statement.predicate) if row.holds else None
        if pinned is not None:
            return pinned
    why = next((f": {row.reason}" for row, _ in rows if not row.holds), "")
    raise EvidenceError(f"no provenance beside it says what it was built from{why}")


def resolve(registry: Registry, reference: str) -> Staged:
    """The image by digest; of an index the one for linux/amd64. Raises RegistryError."""
    name = parse_reference(reference)
    digest = name.digest or registry.digest_of(name)
    if digest is None:
        raise ImageMissingError(f"{name} does not exist", hint="check the name and the tag")
    manifest = registry.manifest(name.at(digest))
    if manifest.media_type in INDEXES:
        digest = choose_manifest(manifest.document, PLATFORM, reference)
    return read_image(registry, f"{name.host}/{name.repository}", digest)


def _signature(gathered: Gathered, verifier: Verifier, reasons: tuple[str, ...]) -> AuditFinding:
    signed = [piece for piece in gathered.pieces if piece.signed]
    tests = [piece for piece in signed if piece.statement.predicate_type == TEST_RESULT]
    if not tests:
        why = next((text.partition(": ")[2] for text in reasons if text.startswith(TEST_RESULT)), "")
        return fails(
            "signature",
            f"no verification is signed by {verifier}" + (f" ({why})" if why else ""),
            hint="without --key or --certificate-identity, unsigned evidence is shown and judged as such",
        )
    return (mind if reasons else passes)(
        "signature",
        f"{len(signed)} statements are signed by {verifier}" + "".join(f"; {text}" for text in reasons),
    )


def verification(held: Sequence[Held], verified: Sequence[JudgedReport]) -> Iterator[AuditFinding]:
    """Whether a report counts, and of those that do not, why."""
    if verified:
        cards = sorted({found.gpu for found in verified})
        yield passes("verification", f"a convolution ran on {', '.join(cards)} in this very image")
        return
    tests = [row for row in held if row.kind == "verification"]
    reasons = dict.fromkeys(row.reason for row in tests)
    yield fails(
        "verification",
        f"no verification counts: {'; '.join(reasons)}"
        if tests
        else "there is no verification of this image in its registry",
        hint="verify it on a GPU and publish it anew: rtbuild verify --from, rtbuild publish",
    )


def _unread(gathered: Gathered, judged: Weighed) -> Iterator[AuditFinding]:
    """Findings for documents that a registry lists and does not give, or that rtbuild cannot judge: one may
    be against the image.
    """
    if count := judged.unread or gathered.unread:
        yield (fails if judged.unread else mind)(
            "unread",
            f"{count} of the documents beside it could not be read, and may be against it",
            hint="ask again when its registry answers; entries that it never gives have to be deleted there",
        )


def _since(
    registry: Registry, image: Staged, verified: Sequence[JudgedReport], question: Question, now: datetime
) -> Iterator[AuditFinding]:
    classes = {question.gpu} if question.gpu else {found.gpu_class for found in verified}
    yield checks.age(verified, now)
    if question.at_least is not None:
        yield checks.rollback(verified, question.at_least)
    yield checks.base(registry, image)
    yield checks.cudnn(verified[0])
    yield from checks.known_bad(verified, [name for name in classes if name])


def _base_truth(registry: Registry, image: Staged) -> BaseTruth | None:
    """The base's CUDA and cuDNN, from the environment that the image inherits from it."""
    name = image.label(checks.BASE_NAME)
    if not name:
        return None
    try:
        env = registry.inspect(image.reference, "/".join(image.platform.split("/")[:2])).env
    except RegistryError:
        return None
    return BaseTruth(reference=name, digest=image.label(checks.BASE_DIGEST) or "", env=env)


_AT_ONCE = 8


class Today:
    """The archives, the indexes and the registries as this run finds them."""

    def __init__(self, registry: Registry, *, note: Callable[[str], None]) -> None:
        self._registry = registry
        self._index = Index.from_user(brief=True)
        self._debian = Debian(note=note)
        self._guard = threading.Lock()
        self._pages: dict[tuple[str, ...], dict[str, Files]] = {}

    def of_lock(self, pinned: Pinned) -> Outdated:
        """The changes of a locked cell, with the indexes that it names."""
        return _or_unknown(pinned.cell.id, lambda: self._ask(pinned, pinned.cell.index))

    def of_image(self, repository: str, digest: str, verifier: Verifier | None) -> Outdated:
        """The changes of a published image, by the provenance beside it and today's rules for its reports.

        Raises MissingToolError: signatures are to be checked, and cosign is not here.
        """
        return _or_unknown(f"{repository}@{digest}", lambda: self._read(repository, digest, verifier))

    def of_images(
        self, repository: str, digests: Iterable[str], verifier: Verifier | None
    ) -> Iterator[Outdated]:
        """The changes of each image as by :meth:`of_image`, in the order of ``digests``; some are asked about
        at a time.
        """
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            yield from pool.map(lambda digest: self.of_image(repository, digest, verifier), digests)

    def of_evidence(self, image: Staged, gathered: Gathered, weighed: Weighed) -> Outdated:
        """The changes of a published image whose evidence was read already."""
        return _or_unknown(
            f"{image.repository}@{image.digest}", lambda: self._judged(image, gathered, weighed)
        )

    def _read(self, repository: str, digest: str, verifier: Verifier | None) -> Outdated:
        image = read_image(self._registry, repository, digest)
        gathered, _ = evidence_of(self._registry, image, verifier)
        weighed = judge_all(gathered, image, Question(verifier=verifier), datetime.now(UTC))
        return self._judged(image, gathered, weighed)

    def _judged(self, image: Staged, gathered: Gathered, weighed: Weighed) -> Outdated:
        # no index that the image alone names is asked
        found = self._ask(lock_of(gathered, weighed.held), (), beside=image.repository)
        return replace(found, changes=in_order([*found.changes, *_reports(weighed)]))

    def _ask(self, pinned: Pinned, index: tuple[str, ...], beside: str | None = None) -> Outdated:
        names = {canonical(wheel.name) for wheel in pinned.wheels}
        with self._guard:  # many at a time are asked for in there
            known = self._pages.setdefault(index, {})
            known |= pages(names - known.keys(), self._index.with_extra(index))
            mine = {name: known[name] for name in names}
        return outdated(pinned, pages=mine, debian=self._debian, registry=self._registry, beside=beside)


def _or_unknown(name: str, ask: Callable[[], Outdated]) -> Outdated:
    """Nothing known of one item if it cannot be asked about; the others are."""
    try:
        with item(name):
            return ask()
    except CellError as problem:
        return Outdated(changes=(), unknown=(problem.message,))


def _reports(weighed: Weighed) -> Iterator[LockChange]:
    """Reports that count no longer, or came from another release of the probe than today's."""
    if any(row.kind in {"verification", FAILED} for row in weighed.held):
        question = Question()
        for found in (*weighed.findings(question), *verification(weighed.held, weighed.verified)):
            if found.outcome is AuditOutcome.FAILS:
                yield LockChange(kind="audit", name=found.what, locked="verified", why=found.message)
    today = resources.probe_version()
    for version in sorted({word.report.probe.version for word in weighed.verified} - {today}):
        why = "reports are of another release of the probe: verify it again"
        yield LockChange(kind="probe", name="cudnn-verify", locked=version, newer=today, why=why)
