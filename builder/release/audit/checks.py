"""The question and its findings; the statements beside an image, judged one by one and weighed; and the
checks of an image that is verified: changes since then, and the user's machine.

If a verifier is named, only statements that it accepts count, in either direction: an unsigned one neither
makes a yes nor takes one away. An unsigned statement that would take one away is mentioned, because a
publisher may have forgotten to sign it.

It is known to work on a machine if it was verified on a card of the same class, claimed by the publisher,
with a driver that is not newer. NVIDIA's drivers run programs built for older ones
(https://docs.nvidia.com/deploy/cuda-compatibility/), and drivers of one branch differ in fixes only. With an
older driver than it ran on, it should work if each rule about the machine is sure of it, which is less than a
yes. Otherwise the rules only find reasons against it.
"""

import enum
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Literal

from builder.core.documents import shown
from builder.core.errors import CellError, EvidenceError, ImageMissingError, RegistryError, UsageError
from builder.core.items import item
from builder.core.model import Cell
from builder.core.versions import agree, at_least, key, major, short
from builder.plan.facts.reading import BaseTruth, Truth
from builder.plan.facts.rules import Finding, Outcome, bad_pairs, check
from builder.plan.facts.tables import load
from builder.sources.oci import INDEXES, Registry, Staged, choose_manifest, parse_reference
from builder.verify.evidence import (
    KINDS,
    Gathered,
    JudgedReport,
    Piece,
    Policy,
    Verifier,
    broken,
    denied,
    drivers_of,
    judge,
    pinned_of,
    python_packages,
    standing,
    timestamp,
    without_exempt,
)


@dataclass(frozen=True, kw_only=True)
class Question:
    """The user's conditions, besides that the image works at all."""

    verifier: Verifier | None = None
    """The accepted signer. None: signatures are not checked."""
    gpu: str | None = None
    """A class of ``facts/gpus.toml``."""
    driver: str | None = None
    """``535`` or ``535.104.05``."""
    suites: tuple[str, ...] = ()
    """Suites of the probe that have to have run, besides the convolution."""
    max_age: timedelta | None = None
    """Verifications older than this do not count."""
    at_least: datetime | None = None
    """Time of the newest verification that the user has seen; an older one means a tag moved back."""


class AuditOutcome(enum.StrEnum):
    """Only ``fails`` makes a no; a check that could not run counts neither as a yes nor as a no.

    ``should``: the rules say that it works there, and nobody has seen it; less than a yes, and no no.
    """

    PASSES = "passes"
    MIND = "mind"
    SHOULD = "should"
    FAILS = "fails"
    NOT_RUN = "not_run"


class DriverAnswer(enum.StrEnum):
    """How much is known of an image with a driver."""

    RAN = "ran"
    """It ran with a driver of that branch."""
    NEWER = "newer"
    """It ran with older ones only; a newer driver runs what an older one does."""
    SHOULD = "should"
    """It ran with newer ones only, and the rules say that it should."""
    NO = "no"


@dataclass(frozen=True)
class AuditFinding:
    """``what`` is a stable id, listed in ``docs/evidence.md``: ``base``, ``cudnn-patch``, ``machine`` …"""

    what: str
    message: str
    outcome: AuditOutcome
    hint: str | None = None


passes = partial(AuditFinding, outcome=AuditOutcome.PASSES)
mind = partial(AuditFinding, outcome=AuditOutcome.MIND)
should = partial(AuditFinding, outcome=AuditOutcome.SHOULD)
fails = partial(AuditFinding, outcome=AuditOutcome.FAILS)
not_run = partial(AuditFinding, outcome=AuditOutcome.NOT_RUN)


FAILED = "failed-verification"
"""The kind of a test result against the image."""


@dataclass(frozen=True, kw_only=True)
class Held:
    """A piece of evidence, and whether it holds for this image. ``reason`` says why not."""

    kind: str
    digest: str
    signed: bool
    holds: bool
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Weighed:
    """The evidence, weighed."""

    held: tuple[Held, ...]
    verified: tuple[JudgedReport, ...]
    """The verifications that hold and that nothing newer about the same GPU and driver contradicts, with
    the claims that are left."""
    against: tuple[JudgedReport, ...]
    """Judgements against the image that no newer one takes back."""
    denied: tuple[JudgedReport, ...]
    """Judgements among them that took a claim away."""
    unheard: tuple[JudgedReport, ...]
    """Judgements that would be among them if the accepted signer had signed them."""
    unread: int
    """Documents that would count, and could not be read or judged: each may be against the image."""

    def findings(self, question: Question) -> Iterator[AuditFinding]:
        """The findings of an audit about them."""
        for found in broken(self.against):
            yield fails(
                found.verdict,
                f"it was found {found.text}",
                hint="use another digest; its publisher can mend it, or verify it again where it was found",
            )
        left = any(found.claims for found in self.verified)
        for found in self.denied:
            mine = question.gpu == found.gpu_class or not left
            yield (fails if mine else mind)(
                found.verdict,
                f"it is no longer known to work on {found.gpu_class}: found {found.text}",
                hint="use another digest on this GPU",
            )
        for found in self.unheard:
            yield mind(
                found.verdict,
                f"a statement says {found.text}; it is not signed by {question.verifier}, and does not count",
                hint="ask the publisher; without the check of signatures it counts",
            )


def judge_all(gathered: Gathered, image: Staged, question: Question, now: datetime) -> Weighed:
    """Every statement by itself, then all of them together."""
    policy = Policy(now=now, max_age=question.max_age)
    judged = [_one(piece, image, question, policy) for piece in gathered.pieces]
    rows = [(row, word) for row, word, _ in judged]
    unjudged = sum(unjudged for *_, unjudged in judged)
    verified = [word for row, word in rows if row.holds and word is not None and word.side == "for"]
    failures = [word for _, word in rows if word is not None and word.side == "against"]
    heard = [word for row, word in rows if row.holds and word is not None and word.side == "against"]
    against = [word for word in standing([*verified, *heard]) if word.side == "against"]
    claiming = without_exempt(verified)  # an exemption holds even if its statement is contradicted
    taken = denied(against, {name for found in claiming for name in found.claims})
    lost = {word.gpu_class for word in taken}
    left = [found for found in claiming if found.key not in {word.key for word in against}]
    unheard = [word for word in standing([*verified, *failures]) if word.side == "against"]
    return Weighed(
        held=tuple(_placed(row, word, against) for row, word in rows),
        verified=tuple(
            replace(found, claims=tuple(name for name in found.claims if name not in lost)) for found in left
        ),
        against=tuple(sorted(against, key=lambda word: word.when, reverse=True)),
        denied=tuple(taken),
        unheard=tuple(word for word in unheard if word not in heard),
        # of documents that count by their signature alone, cosign has the list
        unread=unjudged + (gathered.unread if question.verifier is None else 0),
    )


def _placed(row: Held, word: JudgedReport | None, against: list[JudgedReport]) -> Held:
    """The row, not holding if another statement has the last word about its GPU and driver."""
    if word is None or not row.holds or word in against:
        return row
    over = next((other for other in against if other.key == word.key), None)
    if word.side == "against":
        return replace(row, holds=False, reason=f"{word.text}; a newer report has taken it back")
    return row if over is None else replace(row, holds=False, reason=f"it was found {over.text}")


def _one(
    piece: Piece, image: Staged, question: Question, policy: Policy
) -> tuple[Held, JudgedReport | None, bool]:
    """The row of a piece, its judgement, and whether it counts and could not be judged."""
    predicate = piece.statement.predicate
    kind = KINDS.get(piece.statement.predicate_type, "other")
    failed = kind == "verification" and predicate.get("result") == "FAILED"
    heard = question.verifier is None or piece.signed
    word, reason, unjudged = None, "", False
    try:
        with item(piece.digest):
            if failed or (heard and kind == "verification"):
                word = judge(predicate, image, policy)
                reason = word.text if failed else ""
            elif heard:
                reason = _other(kind, piece, image)
        holds = failed or not reason
        if not heard:
            holds, reason = False, f"not signed by {question.verifier}"
    except CellError as error:
        holds, reason = False, error.message
        unjudged = heard and not isinstance(error, EvidenceError)
    shown = FAILED if failed else str(kind)
    row = Held(kind=shown, digest=piece.digest, signed=piece.signed, holds=holds, reason=reason)
    return row, word, unjudged


def _other(kind: str, piece: Piece, image: Staged) -> str:
    """Why an SBOM or a provenance is not about this image; empty if it is."""
    predicate = piece.statement.predicate
    try:
        if kind == "sbom":
            said = predicate["metadata"]["component"]["version"]
            return "" if said == image.digest else f"it is the SBOM of {said}"
        if kind == "provenance":
            inside = predicate["buildDefinition"]["internalParameters"]
            mine = (inside["content"], inside["inputs"]) == (image.content, image.inputs)
            return "" if mine else "it is the provenance of other content or inputs"
    except (LookupError, TypeError):
        return f"it is no {kind} that rtbuild wrote"
    return "rtbuild does not know this kind of statement"


OLD = timedelta(days=90)
"""The age from which a verification gets a remark; the user may set a stricter limit."""

BASE_NAME = "org.opencontainers.image.base.name"
BASE_DIGEST = "org.opencontainers.image.base.digest"
"""https://github.com/opencontainers/image-spec/blob/main/annotations.md"""
_CUDNN = re.compile(r"nvidia-cudnn(?:-cu\d+)?")
_CUBLAS = re.compile(r"nvidia-cublas(?:-cu\d+)?")
_VERSION = re.compile(r"\d{1,9}(\.\d{1,9}){0,7}(?![\d.])")
"""Bounded, because a report may come from anyone."""


def base(registry: Registry, image: Staged) -> AuditFinding:
    """Whether the tag of the base still leads to the digest that the image was built on."""
    name, digest = image.label(BASE_NAME), image.label(BASE_DIGEST)
    if not name or not digest:
        return not_run("base", "the base is no registry image: its Debian packages are in the SBOM")
    try:
        if not registry.may_ask(name, beside=image.repository):
            hint = f"with a mirror of it, it is asked: --registry-mirror {parse_reference(name).host}=HOST"
            return not_run(
                "base", f"{name} is in another registry, which only the image names: not asked", hint=hint
            )
        manifest = registry.manifest(name)
        now = manifest.digest
        if manifest.media_type in INDEXES:  # that of the platform, as in a lock
            platform = "/".join(image.platform.split("/")[:2])
            now = choose_manifest(manifest.document, platform, name, baseline=True)
    except ImageMissingError:
        return mind("base", f"{name} was removed from its registry: the image cannot be built again on it")
    except (RegistryError, UsageError) as error:
        return not_run("base", f"{name} could not be asked for: {error.message}")
    if now != digest:
        return mind(
            "base",
            f"{name} was pushed again since: now {now[:19]}…, and the image stands on {digest[:19]}…",
            hint="the image is what it was; to have the base's fixes: rtbuild lock --upgrade, and all anew",
        )
    return passes("base", f"{name} is what it was")


def cudnn(verified: JudgedReport) -> AuditFinding:
    """Whether the tables know a newer patch of the cuDNN that was loaded."""
    loaded = _loaded(verified, "cudnn")
    if not loaded:
        return not_run("cudnn-patch", "the report names no cuDNN that was loaded")
    packages = python_packages(verified.document) or {}
    names = sorted(name for name in packages if _CUDNN.fullmatch(name) and name in load().wheels)
    toolkits = {short(version, 2) for version in _loaded(verified, "cuda")}
    bases = [row.cudnn for row in load().tags if row.cudnn and short(row.cuda, 2) in toolkits]
    offered = [v for name in names for v in load().wheels[name].versions] or bases
    newer = [
        v
        for version in loaded
        for v in offered
        if agree(short(v, 2), short(version, 2)) and not at_least(short(version, 3), short(v, 3))
    ]
    if not newer:
        return passes("cudnn-patch", f"no newer patch of cuDNN {', '.join(loaded)} is known")
    return mind(
        "cudnn-patch",
        f"cuDNN {max(newer, key=key)} is out; the image loads {', '.join(loaded)}",
        hint="lock, build and verify anew: rtbuild lock --upgrade",
    )


def _loaded(verified: JudgedReport, what: Literal["cuda", "cudnn"]) -> list[str]:
    """``8.9.4``: as each framework says, else as the mapped library itself."""
    return sorted({text for text in verified.report.loaded(what) if _VERSION.match(text)})


def known_bad(verifications: Sequence[JudgedReport], classes: Iterable[str]) -> Iterator[AuditFinding]:
    """Whether a combination that was measured in the image has been listed as bad since."""
    gpus = [load().gpus[name.lower()] for name in sorted(set(classes)) if name.lower() in load().gpus]
    measured = [_measured(verified) for verified in verifications]
    if not any(measured):
        yield not_run("known-bad", "no report names a version to look up")
        return
    told: dict[str, Finding] = {}
    for found in (found for values in measured for found in bad_pairs(values, gpus)):
        told.setdefault(found.message, found)
    for message, found in told.items():
        hint = f"see {found.values[-1].source.reference}" if found.values else None
        yield (fails if found.outcome is Outcome.IMPOSSIBLE else mind)("known-bad", message, hint=hint)
    if not told:
        yield passes("known-bad", "nothing in it is listed as a bad combination")


def _measured(verified: JudgedReport) -> dict[str, str]:
    """The report's versions, by the names of ``known-bad.toml``."""
    texts: dict[str, str] = {}
    for name, version in (python_packages(verified.document) or {}).items():
        texts["cublas" if _CUBLAS.fullmatch(name) else name] = version
    texts |= {row.name: row.version for row in verified.report.frameworks if row.version}
    texts["python"] = verified.report.python_version() or ""
    loaded = {"cudnn": _loaded(verified, "cudnn"), "cuda": _loaded(verified, "cuda")}
    texts |= {what: versions[0] for what, versions in loaded.items() if versions}
    return {name: text for name, text in texts.items() if _VERSION.match(text)}


def rollback(verifications: Sequence[JudgedReport], seen: datetime) -> AuditFinding:
    """Whether the newest verification is older than one that the user has seen under this name.

    Signatures do not expire: anyone who may move a tag can put an earlier, verified digest back.
    """
    newest = max(verified.when for verified in verifications)
    if newest >= seen:
        return passes("rollback", f"verified {timestamp(newest)}, not before {timestamp(seen)}")
    return fails(
        "rollback",
        f"verified {timestamp(newest)}, and {timestamp(seen)} has been seen: an older image is back",
        hint="somebody moved the tag back; name the image by its digest",
    )


def age(verifications: Sequence[JudgedReport], now: datetime) -> AuditFinding:
    """How long ago the newest verification was."""
    newest = max(verified.when for verified in verifications)
    days = (now - newest).days
    text = "today" if days < 1 else "1 day ago" if days == 1 else f"{days} days ago"
    if now - newest > OLD:
        return mind(
            "age",
            f"last verified {text}: drivers and cards have moved on",
            hint="verify it anew: rtbuild verify --from; --max-age makes this a no",
        )
    return passes("age", f"last verified {text}")


_RULES = frozenset({"driver", "require-cuda", "gpu", "known-bad"})
"""Rules about a machine; the verification has answered all other questions about the cell."""


@dataclass(frozen=True)
class Ruled:
    """The findings of the compatibility rules for this machine."""

    findings: tuple[AuditFinding, ...]
    sure: bool = False
    """Each rule that speaks of the machine says that it runs the image, and the one about the driver does."""


def on_driver(
    verifications: Sequence[JudgedReport], gpu: str | None, driver: str, *, sure: bool
) -> DriverAnswer:
    """How much is known of a driver, ``535`` or ``535.104.05``, on cards of a class."""
    drivers = drivers_of(_of_class(verifications, gpu))
    if any(major(driver) == major(other) for other in drivers):
        return DriverAnswer.RAN
    if any(at_least(driver, other) for other in drivers):
        return DriverAnswer.NEWER
    return DriverAnswer.SHOULD if drivers and sure else DriverAnswer.NO


def _of_class(verifications: Sequence[JudgedReport], gpu: str | None) -> list[JudgedReport]:
    return [v for v in verifications if gpu is None or gpu in v.claims]


def seen(
    verifications: Sequence[JudgedReport], gpu: str | None, driver: str | None, *, sure: bool = False
) -> AuditFinding:
    """The finding about this machine. ``driver`` is a branch or a whole version; ``sure``: see ``Ruled``."""
    mine = "this machine" if gpu is None else gpu
    of_class = _of_class(verifications, gpu)
    if not of_class:
        elsewhere = sorted({name for v in verifications for name in v.claims})
        ran = {v.gpu_class for v in verifications}
        taken = f"; it ran on {gpu}, but is not published for it" if gpu in ran else ""
        return fails(
            "machine",
            f"not verified on {mine}, only on {', '.join(elsewhere) or 'no known class'}{taken}",
            hint="run cudnn-verify in it on your machine: docker run --rm --gpus all IMAGE cudnn-verify",
        )
    drivers = drivers_of(of_class)
    best = max(of_class, key=lambda v: v.when)
    if driver is None:
        older = f"; the oldest driver that it ran on is {drivers[0]}" if drivers[0] != best.driver else ""
        return passes("machine", f"verified on {best.gpu} with driver {best.driver}{older}")
    answer, ran_with = on_driver(verifications, gpu, driver, sure=sure), ", ".join(drivers)
    if answer is DriverAnswer.RAN:
        same = [v for v in of_class if major(driver) == major(v.driver or "")]
        newest = max(same, key=lambda v: v.when)
        return passes(
            "machine", f"it ran on {newest.gpu} with driver {newest.driver}, of the branch of {driver}"
        )
    if answer is DriverAnswer.NEWER:
        text = f"it ran on {best.gpu} with driver {ran_with} only; a newer one runs what an older one does"
        return passes("machine", f"{text}, so {driver} should")
    if answer is DriverAnswer.SHOULD:
        return should(
            "machine",
            f"it ran on {best.gpu} with driver {ran_with} only, and the rules say that it should with "
            f"{driver}",
            hint="run cudnn-verify in it on your machine: docker run --rm --gpus all IMAGE cudnn-verify",
        )
    return fails(
        "machine",
        f"driver {driver} is older than every driver that it was verified with ({ran_with}), and the rules "
        "do not say that it should work",
        hint="install a newer driver, or run cudnn-verify in it on your machine",
    )


def ran(verifications: Sequence[JudgedReport], gpu: str | None, suites: Sequence[str]) -> AuditFinding:
    """The finding about suites; each has to have run on a card of the class, in one report or in several."""
    of_class = _of_class(verifications, gpu)
    found = {name for v in of_class for name in v.report.suites_that_ran()}
    where = gpu or "any card"
    if lacking := [name for name in suites if name not in found]:
        return fails(
            "suite",
            f"no verification on {where} ran {', '.join(lacking)}; what ran: "
            f"{', '.join(sorted(found)) or 'nothing'}",
            hint="name the suites in the matrix (verify), verify and publish it anew; or ask another image",
        )
    return passes("suite", f"{', '.join(suites)} ran on {where} in this very image")


def ruled(
    provenance: Mapping[str, Any] | None,
    base: BaseTruth | None,
    *,
    gpu: str | None,
    driver: str | None,
) -> Ruled:
    """Ask the compatibility rules about this machine."""
    pinned = pinned_of(provenance) if provenance is not None else None
    if pinned is None:
        why = "no provenance says what is in the image, so the rules cannot be asked"
        return Ruled((not_run("rules", why),))
    asked = replace(pinned.cell, gpus=(gpu,) if gpu is not None else ())
    truth = Truth.of_lock(pinned.wheels, base)
    try:
        findings = check_stated(asked, truth, driver=driver)
    except EvidenceError as error:
        return Ruled((not_run("rules", error.message),))
    of_machine = [f for f in findings if f.rule in _RULES]
    sure = all(f.outcome is Outcome.POSSIBLE for f in of_machine)
    told = [f for f in of_machine if f.outcome not in (Outcome.POSSIBLE, Outcome.UNKNOWN)]
    said = tuple(
        (fails if found.outcome is Outcome.IMPOSSIBLE else mind)(f"rules:{found.rule}", found.message)
        for found in told
    )
    return Ruled(
        said or (passes("rules", "no rule speaks against this machine"),),
        sure=sure and any(f.rule == "driver" for f in of_machine),
    )


def check_stated(cell: Cell, truth: Truth | None = None, *, driver: str | None = None) -> tuple[Finding, ...]:
    """The rules' findings on a cell as a provenance states it: anyone who can push can write anything there.

    Raises EvidenceError for values that no rule understands.
    """
    try:
        return check(cell, truth, driver=driver, suggest=False)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        said = f"the provenance holds values that no rule understands: {shown(str(error))}"
        raise EvidenceError(said) from error
