"""An audit as text for people, as lines for a pipe, as JSON; without control characters of the registry."""

import unicodedata
from collections.abc import Iterator
from typing import Any

from builder import __version__
from builder.audit.finding import AuditOutcome
from builder.audit.judged import FAILED, Held
from builder.audit.run import Audit
from builder.console import Terminal
from builder.evidence.judgement import JudgedReport
from builder.evidence.verification import timestamp

SCHEMA = 1
_MARKS = {
    AuditOutcome.PASSES: ("ok", "32"),
    AuditOutcome.MIND: ("warn", "33"),
    AuditOutcome.FAILS: ("bad", "31;1"),
    AuditOutcome.NOT_RUN: ("skip", "2"),
}
UNSIGNED = "unsigned: whoever can push to this repository could have written it"
UNCHECKED = (
    "signatures are there and none was checked (--key, or --certificate-identity and its issuer): "
    "worth no more than unsigned evidence, which whoever can push to this repository could have written"
)


def clean(text: str) -> str:
    """``text`` without control characters: a registry must not control the terminal."""
    return "".join(c if unicodedata.category(c)[0] != "C" else "\N{REPLACEMENT CHARACTER}" for c in text)


def answer(audit: Audit) -> str:
    """The answer in one sentence."""
    question = audit.question
    machine = (question.gpu, f"driver {question.driver}" if question.driver else None)
    place = " with ".join(part for part in machine if part)
    if audit.works:
        where = place or ", ".join(audit.claims) or ", ".join(sorted({v.gpu for v in audit.verified}))
        return f"known to work on {where}"
    where = f" on {place}" if place and audit.verified else ""
    return f"not known to work{where}: {'; '.join(found.message for found in audit.against)}"


def trust(audit: Audit) -> str:
    """The trustworthiness of the evidence, by its signatures."""
    if audit.question.verifier is not None:
        return f"signatures checked: {audit.question.verifier}"
    return UNCHECKED if audit.signatures else UNSIGNED


def document(audit: Audit) -> dict[str, Any]:
    """For ``--json``; the schema is ``docs/audit.schema.json``."""
    image = audit.image
    return {
        "schema": SCHEMA,
        "kind": "audit",
        "rtbuild": __version__,
        "reference": audit.reference,
        "repository": image.repository,
        "digest": image.digest,
        "platform": image.platform,
        "size": image.size,
        "cell": image.label("io.rtbuild.cell"),
        "matrix": image.label("io.rtbuild.matrix"),
        "when": timestamp(audit.when),
        "works": audit.works,
        "answer": answer(audit),
        "asked": {"gpu": audit.question.gpu, "driver": audit.question.driver},
        "claims": list(audit.claims),
        "verified": [_verified(found) for found in audit.verified],
        "failed": [_failed(found) for found in audit.failed],
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
        "gpu": found.gpu,
        "class": found.gpu_class,
        "compute_capability": found.gpus[0][1],
        "driver": found.driver,
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


def _failed(found: JudgedReport) -> dict[str, Any]:
    return {
        "when": timestamp(found.when),
        "verdict": found.verdict,
        "cause": found.report.cause,
        "summary": found.report.summary,
        "gpu": found.gpus[0][0] if found.gpus else None,
        "class": found.gpu_class,
        "compute_capability": found.gpus[0][1] if found.gpus else None,
        "driver": found.driver,
    }


def _versions(part: dict[str, Any] | None) -> dict[str, str | None]:
    return {name: str(value) if (value := (part or {}).get(name)) else None for name in ("cuda", "cudnn")}


def lines(audit: Audit) -> Iterator[str]:
    """``key: value`` lines, for ``grep`` and logs."""
    shown = document(audit)
    for key in ("reference", "digest", "cell"):
        yield f"{key}: {clean(str(shown[key]))}"
    yield f"works: {'yes' if audit.works else 'no'}"
    yield f"answer: {clean(answer(audit))}"
    for row in shown["verified"]:
        text = f"{row['gpu']}, driver {row['driver']}, {row['when']}"
        yield clean(f"verified: {text}, claims {', '.join(row['claims']) or 'none'}")
        for name, compiled, loaded in _frameworks(row):
            yield clean(f"framework: {name}, compiled {compiled}, loaded {loaded}")
    for found in audit.failed:
        yield clean(f"failed: {found.text}")
    for held in audit.evidence:
        yield clean(f"evidence: {_held(held, audit)}")
    for refused in audit.refused:
        yield clean(f"refused: {refused.digest or '-'}: {refused.reason}")
    for finding in audit.findings:
        yield clean(f"{finding.what}: {finding.outcome.value}: {finding.message}")
    yield clean(f"trust: {trust(audit)}")


def page(audit: Audit, terminal: Terminal) -> Iterator[str]:
    """For a person at a terminal."""
    shown = document(audit)
    outcome = AuditOutcome.PASSES if audit.works else AuditOutcome.FAILS
    symbol, colour = _MARKS[outcome]
    yield terminal.style(clean(audit.reference), "1")
    yield clean(f"  {audit.image.digest}  {audit.image.platform}")
    yield terminal.style(f"{terminal.symbol(symbol)} {clean(answer(audit))}", colour)
    if shown["verified"]:
        yield ""
        yield terminal.style("Verified", "1")
    for row in shown["verified"]:
        claims = ", ".join(row["claims"]) or "none"
        yield clean(f"  {row['gpu']}  driver {row['driver']}  {row['when']}  claims {claims}")
        for name, compiled, loaded in _frameworks(row):
            yield clean(f"    {name}: compiled {compiled}; loaded {loaded}")
    if audit.failed:
        yield ""
        yield terminal.style("Found against it", "1")
    for found in audit.failed:
        yield _marked(AuditOutcome.FAILS, found.text, terminal)
    yield ""
    yield terminal.style("Evidence", "1")
    for held in audit.evidence:
        good = AuditOutcome.FAILS if held.kind == FAILED else AuditOutcome.PASSES
        yield _marked(good if held.holds else AuditOutcome.MIND, _held(held, audit), terminal)
    for refused in audit.refused:
        yield _marked(AuditOutcome.MIND, f"{refused.digest[:19] or 'list'}: {refused.reason}", terminal)
    if not audit.evidence and not audit.refused:
        yield "  none"
    yield _marked(AuditOutcome.MIND if not _checked(audit) else AuditOutcome.PASSES, trust(audit), terminal)
    yield ""
    yield terminal.style("Findings", "1")
    for finding in audit.findings:
        yield _marked(finding.outcome, f"{finding.what}: {finding.message}", terminal)
        if finding.hint and finding.outcome in (AuditOutcome.FAILS, AuditOutcome.MIND):
            yield f"    {'→' if terminal.unicode else '>'} {clean(finding.hint)}"


def _checked(audit: Audit) -> bool:
    return audit.question.verifier is not None


def _held(held: Held, audit: Audit) -> str:
    signed = "signed" if held.signed else "unsigned" if _checked(audit) or not audit.signatures else ""
    parts = [held.kind, held.digest[:19] or "(signature only)", signed]
    return "  ".join(part for part in parts if part) + (f": {held.reason}" if held.reason else "")


def _frameworks(row: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    for framework in row["frameworks"]:
        compiled, loaded = (
            f"CUDA {versions['cuda'] or '?'} cuDNN {versions['cudnn'] or '?'}"
            for versions in (framework["compiled"], framework["loaded"])
        )
        yield f"{framework['name']} {framework['version']}", compiled, loaded


def _marked(outcome: AuditOutcome, text: str, terminal: Terminal) -> str:
    symbol, colour = _MARKS[outcome]
    return f"  {terminal.style(terminal.symbol(symbol), colour)} {clean(text)}"
