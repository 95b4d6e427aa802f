"""Whether an image is known to work on the user's machine: its GPU and its driver.

It is, if it was verified on a card of the same class, claimed by the publisher, with a driver that is not
newer. NVIDIA's drivers run programs built for older ones (https://docs.nvidia.com/deploy/cuda-compatibility/),
and drivers of one branch differ in fixes only. The compatibility rules can only find reasons against it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from builder.core.documents import shown
from builder.core.errors import EvidenceError
from builder.core.model import Cell
from builder.core.versions import at_least, key, major
from builder.plan.facts.reading import BaseTruth, Truth
from builder.plan.facts.rules import Finding, Outcome, check
from builder.release.audit.findings import AuditFinding, fails, mind, not_run, passes
from builder.release.audit.stated import pinned_of
from builder.verify.evidence import JudgedReport

_RULES = frozenset({"driver", "require-cuda", "gpu", "known-bad"})
"""Rules about a machine; the verification has answered all other questions about the cell."""


def seen(verifications: Sequence[JudgedReport], gpu: str | None, driver: str | None) -> AuditFinding:
    """The finding about this machine. ``driver`` is a branch or a whole version."""
    mine = "this machine" if gpu is None else gpu
    of_class = [v for v in verifications if gpu is None or gpu in v.claims]
    if not of_class:
        elsewhere = sorted({name for v in verifications for name in v.claims})
        ran = {v.gpu_class for v in verifications}
        taken = f"; it ran on {gpu}, but is not published for it" if gpu in ran else ""
        return fails(
            "machine",
            f"not verified on {mine}, only on {', '.join(elsewhere) or 'no known class'}{taken}",
            hint="run cudnn-verify in it on your machine: docker run --rm --gpus all IMAGE cudnn-verify",
        )
    if driver is not None:
        drivers = ((v, v.driver or "") for v in of_class)
        fitting = [v for v, other in drivers if major(driver) == major(other) or at_least(driver, other)]
        if not fitting:
            older = ", ".join(sorted({v.driver or "" for v in of_class}, key=key))
            return fails(
                "machine",
                f"driver {driver} is older than every driver that it was verified with ({older})",
                hint="install a newer driver, or run cudnn-verify in it on your machine",
            )
        of_class = fitting
    best = max(of_class, key=lambda v: v.when)
    if driver is None:
        oldest = min((v.driver or "" for v in of_class), key=key)
        older = f"; the oldest driver that it ran on is {oldest}" if oldest != best.driver else ""
        return passes("machine", f"verified on {best.gpu} with driver {best.driver}{older}")
    same = [v for v in of_class if major(driver) == major(v.driver or "")]
    if same:
        newest = max(same, key=lambda v: v.when)
        return passes(
            "machine", f"it ran on {newest.gpu} with driver {newest.driver}, of the branch of {driver}"
        )
    drivers_seen = ", ".join(sorted({v.driver or "" for v in of_class}, key=key))
    text = f"it ran on {best.gpu} with driver {drivers_seen} only; a newer one runs what an older one does"
    return passes("machine", f"{text}, so {driver} should")


def ran(verifications: Sequence[JudgedReport], gpu: str | None, suites: Sequence[str]) -> AuditFinding:
    """The finding about suites; each has to have run on a card of the class, in one report or in several."""
    of_class = [v for v in verifications if gpu is None or gpu in v.claims]
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
) -> Iterator[AuditFinding]:
    """The findings of the compatibility rules about this machine."""
    pinned = pinned_of(provenance) if provenance is not None else None
    if pinned is None:
        yield not_run("rules", "no provenance says what is in the image, so the rules cannot be asked")
        return
    asked = replace(pinned.cell, gpus=(gpu,) if gpu is not None else ())
    truth = Truth.of_lock(pinned.wheels, base)
    try:
        findings = check_stated(asked, truth, driver=driver)
    except EvidenceError as error:
        yield not_run("rules", error.message)
        return
    told = [f for f in findings if f.rule in _RULES and f.outcome not in (Outcome.POSSIBLE, Outcome.UNKNOWN)]
    for found in told:
        yield (fails if found.outcome is Outcome.IMPOSSIBLE else mind)(f"rules:{found.rule}", found.message)
    if not told:
        yield passes("rules", "no rule speaks against this machine")


def check_stated(cell: Cell, truth: Truth | None = None, *, driver: str | None = None) -> tuple[Finding, ...]:
    """The rules' findings on a cell as a provenance states it: anyone who can push can write anything there.

    Raises EvidenceError for values that no rule understands.
    """
    try:
        return check(cell, truth, driver=driver, suggest=False)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        said = f"the provenance holds values that no rule understands: {shown(str(error))}"
        raise EvidenceError(said) from error
