"""Locks and published images against today's releases; each archive, index and page is asked once."""

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime

from builder.core import resources
from builder.core.errors import CellError
from builder.core.items import item
from builder.core.model import Pinned
from builder.plan.lock import LockChange, Outdated, in_order, outdated
from builder.release.audit.findings import FAILED, AuditOutcome, Question, Weighed, judge_all
from builder.release.audit.run import evidence_of, lock_of, verification
from builder.sources.debian import Debian
from builder.sources.index import Files, Index, pages
from builder.sources.oci import Registry, Staged, read_image
from builder.verify.evidence import Gathered, Verifier

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
        names = {wheel.name for wheel in pinned.wheels}
        with self._guard:  # many at a time are asked for in there
            known = self._pages.setdefault(index, {})
            known |= pages(names - known.keys(), self._index.with_extra(index))
        return outdated(pinned, pages=known, debian=self._debian, registry=self._registry, beside=beside)


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
