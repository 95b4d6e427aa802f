"""``rtbuild audit``: the answer of a registry about an image, as a page and as JSON, and its exit code; and
``outdated``: what has appeared or gone since cells were locked and images published.
"""

import shlex
import sys
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from builder import __version__
from builder.cli import options as opt
from builder.cli.console import Terminal, print_json, say, show
from builder.core.documents import MalformedError, parse_moment
from builder.core.errors import (
    CellError,
    MissingToolError,
    NotKnownError,
    RegistryError,
    StaleLockError,
    UsageError,
)
from builder.core.model import Cell, Matrix
from builder.image.engine import Engine
from builder.pipeline import Locks
from builder.plan.lock import Outdated, newer_releases
from builder.release.audit import FAILED, Audit, AuditOutcome, Held, Question, Today, resolve
from builder.release.audit import audit as ask
from builder.sources.oci import CELL_LABEL, MATRIX_LABEL, Registry, parse_reference
from builder.verify.evidence import JudgedReport, Verifier, claim_text, timestamp

_MARKS = {
    AuditOutcome.PASSES: ("✓", "32"),
    AuditOutcome.MIND: ("!", "33"),
    AuditOutcome.SHOULD: ("?", "33"),
    AuditOutcome.FAILS: ("✗", "31;1"),
    AuditOutcome.NOT_RUN: ("⊘", "2"),
}


def audit(
    image: str = opt.of("IMAGE: REPOSITORY:TAG, or REPOSITORY@sha256:….", ...),
    gpu: str | None = opt.of("--gpu: Answer for a machine with this GPU: T4, A100."),
    driver: str | None = opt.of("--driver: Answer for a machine with this driver: 535, 535.104.05."),
    suite: list[str] | None = opt.of(
        "--suite NAME: Ask whether this suite ran, too: attention, compile. May be repeated."
    ),
    max_age: str | None = opt.of("--max-age AGE: Count no verification older than this: 30d, 12h."),
    at_least: str | None = opt.of(
        "--at-least TIME: Refuse an image verified before this time, which an earlier audit printed: "
        "2026-11-21T06:30:00Z."
    ),
    key: str | None = opt.of(
        "--key FILE|URI $RTBUILD_AUDIT_KEY: Count only evidence that this public key signed."
    ),
    certificate_identity: str | None = opt.of(
        "--certificate-identity WHO: Count only what this identity signed: a workflow."
    ),
    certificate_oidc_issuer: str | None = opt.of(
        "--certificate-oidc-issuer URL: Who vouches for the identity."
    ),
    require_signature: bool = opt.of(
        "--require-signature: Refuse to answer on evidence whose signer is not checked.", False
    ),
    mirror: list[str] | None = opt.MIRROR,
    json_: bool = opt.JSON,
) -> int:
    """Say from the registry alone whether an image is known to work: exit 0 yes, 1 no, 7 it should."""
    try:
        moment = None if at_least is None else parse_moment(at_least)
    except MalformedError as problem:
        raise UsageError(f"--at-least: {problem}", hint="as in 2026-11-21T06:30:00Z") from problem
    opt.refuse_machine([gpu] if gpu is not None else [], driver)
    question = Question(
        suites=opt.suites(suite),
        verifier=_verifier(key, certificate_identity, certificate_oidc_issuer, required=require_signature),
        gpu=opt.card(gpu, alike=False) if gpu is not None else None,
        driver=opt.driver(driver),
        max_age=opt.age(max_age),
        at_least=moment,
    )
    try:
        found = ask(Registry.from_user(opt.mirrors(mirror)), image, question)
    except RegistryError as problem:
        if _is_here(image):
            here = (
                "this machine's engine has an image of that name, and no evidence about it, which lies in a "
                f"registry: `rtbuild run {image} --verify` probes it here"
            )
            problem.hint = "; ".join(filter(None, (problem.hint, here)))
        raise
    if json_:
        print_json(document(found))
    else:
        show(*page(found, Terminal.of(stream=sys.stdout)))
    return 0 if found.works else NotKnownError.exit_code if found.should else 1


def _is_here(image: str) -> bool:
    """Whether this machine has an engine, and that an image of the name."""
    try:
        with Engine.connect() as engine:
            return engine.inspect(image) is not None
    except (MissingToolError, CellError):
        return False


def _verifier(
    key: str | None, identity: str | None, issuer: str | None, *, required: bool
) -> Verifier | None:
    if key and (identity or issuer):
        text = "--key and --certificate-identity exclude each other"
        raise UsageError(text, hint="give the one that signed")
    if bool(identity) != bool(issuer):
        raise UsageError(
            "--certificate-identity and --certificate-oidc-issuer belong together",
            hint="as in --certificate-oidc-issuer https://token.actions.githubusercontent.com",
        )
    if key or identity:
        return Verifier(key=key or None, identity=identity, issuer=issuer)
    if required:
        raise UsageError(
            "--require-signature, and nobody is named whose signature would count",
            hint="--key cosign.pub; or --certificate-identity and --certificate-oidc-issuer",
        )
    return None


def clean(text: str) -> str:
    """``text`` without control characters: a registry must not control the terminal."""
    return "".join(c if unicodedata.category(c)[0] != "C" else "\N{REPLACEMENT CHARACTER}" for c in text)


def answer(audit: Audit) -> str:
    """The answer in one sentence."""
    question = audit.question
    on = [question.gpu and f"on {question.gpu}", question.driver and f"with driver {question.driver}"]
    place = " ".join(filter(None, on))
    if audit.works:
        claimed = claim_text(audit.drivers) or ", ".join(sorted({v.gpu for v in audit.verified}))
        return f"known to work {place or f'on {claimed}'}"
    where = f" {place}" if place and audit.verified else ""
    why = audit.against or [found for found in audit.findings if found.outcome is AuditOutcome.SHOULD]
    return f"not known to work{where}: {'; '.join(found.message for found in why)}"


def trust(audit: Audit) -> str:
    """The trustworthiness of the evidence, by its signatures."""
    if audit.question.verifier:
        return f"signatures checked: {audit.question.verifier}"
    if not audit.signatures:
        return "unsigned: whoever can push to this repository could have written it"
    return (
        "signatures are there and none was checked (--key, or --certificate-identity and its issuer): "
        "worth no more than unsigned evidence, which whoever can push to this repository could have written"
    )


def document(audit: Audit) -> dict[str, Any]:
    """For ``--json``; the schema is ``docs/audit.schema.json``."""
    image = audit.image
    return {
        "schema": 1,
        "kind": "audit",
        "rtbuild": __version__,
        "reference": audit.reference,
        "repository": image.repository,
        "digest": image.digest,
        "platform": image.platform,
        "size": image.size,
        "cell": image.label(CELL_LABEL),
        "matrix": image.label(MATRIX_LABEL),
        "when": timestamp(audit.when),
        "works": audit.works,
        "answer": answer(audit),
        "on_driver": audit.on_driver,
        "asked": {"gpu": audit.question.gpu, "driver": audit.question.driver},
        "claims": list(audit.claims),
        "drivers": audit.drivers,
        "verified": [_verified(found) for found in audit.verified],
        "failed": [
            {
                "when": timestamp(found.when),
                "verdict": found.verdict,
                "cause": found.report.cause,
                "summary": found.report.summary,
                **_machine(found),
            }
            for found in audit.failed
        ],
        "evidence": [vars(row) for row in audit.evidence],
        "refused": [vars(row) for row in audit.refused],
        "listed_by": audit.kept,
        "signatures": {
            "present": audit.signatures,
            "checked": audit.question.verifier is not None,
            "by": str(audit.question.verifier) if audit.question.verifier else None,
        },
        "findings": [
            {"what": f.what, "outcome": f.outcome.value, "message": f.message, "hint": f.hint}
            for f in audit.findings
        ],
    }


def _verified(found: JudgedReport) -> dict[str, Any]:
    return {
        "when": timestamp(found.when),
        **_machine(found),
        "claims": list(found.claims),
        "exempt": list(found.exempt),
        "probe": found.report.probe.version,
        "frameworks": [
            {
                "name": row.name,
                "version": row.version,
                "compiled": _versions(row.compiled),
                "loaded": _versions(row.loaded),
            }
            for row in found.report.frameworks
        ],
    }


def _machine(found: JudgedReport) -> dict[str, str | None]:
    name, capability, group = found.gpus[0] if found.gpus else (None, None, None)
    return {"gpu": name, "class": group, "compute_capability": capability, "driver": found.driver}


def _versions(part: dict[str, Any] | None) -> dict[str, str | None]:
    return {name: str(value) if (value := (part or {}).get(name)) else None for name in ("cuda", "cudnn")}


def page(audit: Audit, terminal: Terminal) -> Iterator[str]:
    """For people."""
    should = AuditOutcome.SHOULD if audit.should else AuditOutcome.FAILS
    symbol, colour = _MARKS[AuditOutcome.PASSES if audit.works else should]
    yield terminal.style(clean(audit.reference), "1")
    yield clean(f"  {audit.image.digest}  {audit.image.platform}")
    yield terminal.style(f"{symbol} {clean(answer(audit))}", colour)
    if audit.verified:
        yield from ("", terminal.style("Verified", "1"))
    for row in map(_verified, audit.verified):
        claims = ", ".join(row["claims"]) or "none"
        yield clean(f"  {row['gpu']}  driver {row['driver']}  {row['when']}  claims {claims}")
        for framework in row["frameworks"]:
            compiled, loaded = (
                f"CUDA {versions['cuda'] or '?'} cuDNN {versions['cudnn'] or '?'}"
                for versions in (framework["compiled"], framework["loaded"])
            )
            name = f"{framework['name']} {framework['version']}"
            yield clean(f"    {name}: compiled {compiled}; loaded {loaded}")
    if audit.failed:
        yield from ("", terminal.style("Found against it", "1"))
    for found in audit.failed:
        yield _marked(AuditOutcome.FAILS, found.text, terminal)
    yield from ("", terminal.style("Evidence", "1"))
    for held in audit.evidence:
        good = AuditOutcome.FAILS if held.kind == FAILED else AuditOutcome.PASSES
        yield _marked(good if held.holds else AuditOutcome.MIND, _held(held, audit), terminal)
    for refused in audit.refused:
        yield _marked(AuditOutcome.MIND, f"{refused.digest[:19] or 'list'}: {refused.reason}", terminal)
    if not audit.evidence and not audit.refused:
        yield "  none"
    outcome = AuditOutcome.PASSES if audit.question.verifier else AuditOutcome.MIND
    yield _marked(outcome, trust(audit), terminal)
    yield from ("", terminal.style("Findings", "1"))
    for finding in audit.findings:
        yield _marked(finding.outcome, f"{finding.what}: {finding.message}", terminal)
        if finding.hint and finding.outcome in (AuditOutcome.FAILS, AuditOutcome.MIND, AuditOutcome.SHOULD):
            yield f"    → {clean(finding.hint)}"


def _held(held: Held, audit: Audit) -> str:
    said = audit.question.verifier is not None or not audit.signatures
    signed = "signed" if held.signed else "unsigned" if said else ""
    parts = [held.kind, held.digest[:19] or "(signature only)", signed]
    return "  ".join(part for part in parts if part) + (f": {held.reason}" if held.reason else "")


def _marked(outcome: AuditOutcome, text: str, terminal: Terminal) -> str:
    symbol, colour = _MARKS[outcome]
    return f"  {terminal.style(symbol, colour)} {clean(text)}"


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
    if (select or skip) and published and not matrices:
        raise UsageError("--select and --skip choose among the cells of a matrix, and none is named")
    loaded, cells = ([], []) if published and not matrices else opt.choose(matrices, select, skip)
    registry, verifier = Registry.from_user(opt.mirrors(mirror)), Verifier(key=key) if key else None
    today = Today(registry, note=say)
    found: list[tuple[str, Outdated]] = []  # cells of two matrices may have one id
    hints: list[str | None] = []
    for matrix in loaded:
        found += _of_matrix([cell for cell in cells if cell.matrix == matrix.name], matrix, today, hints)
    for text in published:
        say(f"{text}: asking what is newer")
        found += _of_images(text, registry, today, verifier)
    if json_:
        print_json({"schema": 1, "cells": [_document(name, one) for name, one in found]})
    else:
        show(*_page(found))
    for hint in filter(None, hints):
        say(f"hint: {hint}")
    changes = [change for _, one in found for change in one.changes]
    listed = [change for change in changes if fail_on in {"any", change.kind}]
    if fail_on is None or listed:
        return 1 if listed else 0
    left_open = any(one.unknown or one.unasked for _, one in found)
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
    from builder.release.catalogue import tags_by_digest  # with its templates

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


def _page(found: Sequence[tuple[str, Outdated]]) -> Iterator[str]:
    times = Counter(text for _, one in found for text in one.unknown)
    shared = {text: count for text, count in times.items() if count > 1}
    for text, count in shared.items():  # no network, and a line of it for each cell would be the whole page
        yield f"unknown for {count} of {len(found)}: {text}"
    for cell, one in found:
        yield f"{cell}: {one.summary}" + (f" (Debian's lists of {one.dated})" if one.dated else "")
        for change in one.changes:
            versions = f"{change.locked} → {change.newer}" if change.newer else change.locked
            yield f"  {change.kind:<9} {change.name} {versions}{f': {change.why}' if change.why else ''}"
        for held in one.held:
            yield f"  held      {held.name} {held.locked} → {held.newer}: {held.why}"
        yield from (f"  release   {text}" for text in one.releases)
        yield from (f"  unknown   {text}" for text in one.unknown if text not in shared)
        yield from (f"  unasked   {text}" for text in one.unasked)
