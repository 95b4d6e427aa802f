"""Whether an image is known to work on the user's machine: its GPU and its driver.

It is, if it was verified on a card of the same class, claimed by the publisher, with a driver that is not
newer. NVIDIA's drivers run programs built for older ones (https://docs.nvidia.com/deploy/cuda-compatibility/),
and drivers of one branch differ in fixes only. With an older driver than it ran on, it should work if each
rule about the machine is sure of it, which is less than a yes. Otherwise they only find reasons against it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from builder.core.documents import shown
from builder.core.errors import EvidenceError
from builder.core.model import Cell
from builder.core.versions import at_least, major
from builder.plan.facts.reading import BaseTruth, Truth
from builder.plan.facts.rules import Finding, Outcome, check
from builder.release.audit.findings import AuditFinding, DriverAnswer, fails, mind, not_run, passes, should
from builder.release.audit.stated import pinned_of
from builder.verify.evidence import JudgedReport, drivers_of

_RULES = frozenset({"driver", "require-cuda", "gpu", "known-bad"})
"""Rules about a machine; the verification has answered all other questions about the cell."""


@dataclass(frozen=True)
class Ruled:
    """What the compatibility rules say of this machine."""

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
    """What the compatibility rules say of this machine."""
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
