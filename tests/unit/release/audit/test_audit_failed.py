"""An image that was published and is found broken later: a no, until a newer report takes it back."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
from doubles import small_image
from doubles.cosign import CosignDouble
from test_audit import hang_on

from builder.cli.commands.audit import answer, document, page
from builder.cli.console.terminal import Terminal
from builder.release.audit.checks import AuditOutcome, Question
from builder.release.audit.run import Audit, audit
from builder.verify.evidence.attach import attach_statements, failure_statement, statements
from builder.verify.evidence.judgement import predicate_of
from builder.verify.evidence.statement import Cosign, Verifier

if TYPE_CHECKING:
    from datetime import datetime

    from builder.sources.oci.registry import Registry
    from builder.sources.oci.staging import Staged
    from builder.verify.evidence.statement import Statement
    from builder.verify.runner.reports import SealedReport

SCHEMA = json.loads((Path(__file__).resolve().parents[4] / "docs" / "audit.schema.json").read_text())
PLAIN = Terminal(progress="plain", color=False, github=False)
T4 = {"gpus": [{"name": "Tesla T4", "compute_capability": "7.5"}]}
A100 = {
    "gpus": [{"name": "NVIDIA A100-SXM4-40GB", "compute_capability": "8.0"}],
    "driver": {"version": "550.54.15", "api": "12.4"},
}
OLD_DRIVER = {"driver": {"version": "470.1", "api": "11.4"}}


def told(image: Staged, verified: datetime, **changes: Any) -> SealedReport:
    """A double of a report, by default of a T4 with driver 535 on which it works."""
    return small_image.verification(image, document=small_image.double_report(**changes), verified=verified)


def broken(image: Staged, verified: datetime | None = None, **changes: Any) -> SealedReport:
    said = {"verdict": "broken", "cause": "cudnn-shadowed"} | changes
    return told(image, verified or small_image.moment(days=1), **said)


def published(registry: Registry, image: Staged, *reports: SealedReport, claims: tuple[str, ...]) -> None:
    small_image.attach_all(registry, image, small_image.evidence(image, verifications=reports, claims=claims))


def ask(registry: Registry, image: Staged, **question: Any) -> Audit:
    found = audit(registry, f"{image.repository}:1", Question(**question))
    jsonschema.validate(json.loads(json.dumps(document(found))), SCHEMA)
    return found


def said(found: Audit) -> list[tuple[str, AuditOutcome]]:
    """The findings that are about what was found against the image."""
    return [(f.what, f.outcome) for f in found.findings if f.what in {"broken", "unsupported-gpu"}]


@pytest.mark.parametrize(
    "elsewhere",
    [{}, A100, OLD_DRIVER, {"gpus": [], "driver": None}],
    ids=["there", "on another GPU", "with another driver", "without a GPU"],
)
def test_found_broken_it_is_a_no(registry: Registry, pushed: Staged, elsewhere: dict[str, Any]) -> None:
    small_image.attach_all(registry, pushed, small_image.evidence(pushed))
    assert ask(registry, pushed).works
    attach_statements(registry, pushed, [failure_statement(pushed, broken(pushed, **elsewhere))])
    for question in ({}, {"gpu": "T4", "driver": "535"}):
        found = ask(registry, pushed, **question)
        assert not found.works
        assert said(found) == [("broken", AuditOutcome.FAILS)]
        assert found.against[0].message.startswith("it was found broken, cudnn-shadowed, ")
        (row,) = found.failed
        assert (row.verdict, row.report.cause) == ("broken", "cudnn-shadowed")
        assert ("failed-verification", True) in [(held.kind, held.holds) for held in found.evidence]


def test_who_where_and_why_is_said_everywhere(registry: Registry, pushed: Staged) -> None:
    small_image.attach_all(registry, pushed, small_image.evidence(pushed))
    attach_statements(registry, pushed, [failure_statement(pushed, broken(pushed, **A100))])
    found = ask(registry, pushed)
    words = "broken, cudnn-shadowed, on NVIDIA A100-SXM4-40GB with driver 550.54.15, 20"
    assert f"not known to work: it was found {words}" in answer(found)
    shown = "\n".join(page(found, PLAIN))
    assert f"Found against it\n  ✗ {words}" in shown
    (row,) = document(found)["failed"]
    assert (row["gpu"], row["driver"], row["cause"]) == (
        "NVIDIA A100-SXM4-40GB",
        "550.54.15",
        "cudnn-shadowed",
    )


def test_a_newer_report_of_that_gpu_and_driver_takes_it_back(registry: Registry, pushed: Staged) -> None:
    small_image.attach_all(registry, pushed, small_image.evidence(pushed))
    attach_statements(registry, pushed, [failure_statement(pushed, broken(pushed, **A100))])
    mended_elsewhere = told(pushed, small_image.moment(hours=2))
    published(registry, pushed, mended_elsewhere, claims=("T4",))
    assert not ask(registry, pushed).works, "a T4 does not outvote an A100"
    other_driver = told(pushed, small_image.moment(hours=2), **A100 | OLD_DRIVER)
    published(registry, pushed, other_driver, claims=("A100",))
    assert not ask(registry, pushed).works, "nor does another driver"
    published(registry, pushed, told(pushed, small_image.moment(hours=1), **A100), claims=("A100",))
    found = ask(registry, pushed)
    assert found.works
    assert found.failed == ()
    reasons = [row.reason for row in found.evidence if row.kind == "failed-verification"]
    assert [reason.endswith("; a newer report has taken it back") for reason in reasons] == [True]


def test_an_older_or_equally_old_one_does_not(registry: Registry, pushed: Staged) -> None:
    moment = small_image.moment(days=1)
    published(registry, pushed, told(pushed, moment), claims=("T4",))
    attach_statements(registry, pushed, [failure_statement(pushed, broken(pushed, moment))])
    found = ask(registry, pushed)
    assert not found.works
    assert found.verified == ()
    assert any("it was found broken" in row.reason for row in found.evidence if row.kind == "verification")


def test_one_from_the_future_does_not_stand_for_ever(registry: Registry, pushed: Staged) -> None:
    """No newer report could take it back. Clocks may differ by ten minutes, and it counts within them."""
    found_broken = small_image.moment(days=1)
    published(registry, pushed, told(pushed, small_image.moment(days=2)), claims=("T4",))
    attach_statements(registry, pushed, [failure_statement(pushed, broken(pushed, found_broken))])

    def asked(ahead: timedelta) -> Audit:
        return audit(registry, f"{pushed.repository}:1", Question(), now=found_broken - ahead)

    found = asked(timedelta(minutes=11))
    assert found.works
    (reason,) = [row.reason for row in found.evidence if row.kind == "failed-verification"]
    assert "it is from the future" in reason
    assert any("it is from the future" in line for line in page(found, PLAIN))
    assert not asked(timedelta(minutes=9)).works


def test_a_clock_that_is_behind_knows_nothing_of_what_was_found_since(
    registry: Registry, pushed: Staged, monkeypatch: pytest.MonkeyPatch
) -> None:
    published(registry, pushed, told(pushed, small_image.moment(days=2)), claims=("T4",))
    monkeypatch.setattr(type(registry), "clock_ahead", lambda *_: -86400.0)
    found = ask(registry, pushed)
    assert not found.works
    assert [row.what for row in found.against] == ["clock"]


def test_neither_does_one_that_is_too_old_for_the_reader(registry: Registry, pushed: Staged) -> None:
    """As at the gate: what does not count mends nothing, and what was found does not grow old."""
    attach_statements(
        registry, pushed, [failure_statement(pushed, broken(pushed, small_image.moment(days=50)))]
    )
    published(registry, pushed, told(pushed, small_image.moment(days=40)), claims=("T4",))
    published(registry, pushed, told(pushed, small_image.moment(days=1), **A100), claims=("A100",))
    assert ask(registry, pushed).works
    assert said(ask(registry, pushed, max_age=timedelta(days=30))) == [("broken", AuditOutcome.FAILS)]


def unsupported(image: Staged, **changes: Any) -> SealedReport:
    return broken(image, **{"verdict": "unsupported-gpu", "cause": "no-kernels"} | changes)


def test_a_gpu_that_it_does_not_run_on_takes_that_claim_alone(registry: Registry, pushed: Staged) -> None:
    both = (told(pushed, small_image.moment(days=3)), told(pushed, small_image.moment(days=3), **A100))
    published(registry, pushed, *both, claims=("A100", "T4"))
    attach_statements(registry, pushed, [failure_statement(pushed, unsupported(pushed, **A100))])
    found = ask(registry, pushed)
    assert (found.works, found.claims) == (True, ("T4",))
    assert said(found) == [("unsupported-gpu", AuditOutcome.MIND)]
    assert ask(registry, pushed, gpu="T4").works
    asked = ask(registry, pushed, gpu="A100")
    assert (asked.works, said(asked)) == (False, [("unsupported-gpu", AuditOutcome.FAILS)])


def test_with_another_driver_as_well(registry: Registry, pushed: Staged) -> None:
    small_image.attach_all(registry, pushed, small_image.evidence(pushed))
    attach_statements(registry, pushed, [failure_statement(pushed, unsupported(pushed, **T4 | OLD_DRIVER))])
    found = ask(registry, pushed)
    assert (found.works, found.claims) == (False, ()), "no claim is left"
    assert said(found) == [("unsupported-gpu", AuditOutcome.FAILS)]


def test_a_gpu_that_nobody_claimed_changes_nothing(registry: Registry, pushed: Staged) -> None:
    small_image.attach_all(registry, pushed, small_image.evidence(pushed))
    attach_statements(registry, pushed, [failure_statement(pushed, unsupported(pushed, **A100))])
    found = ask(registry, pushed)
    assert (found.works, said(found)) == (True, [])


def test_an_exemption_holds_where_its_own_verification_is_contradicted(
    registry: Registry, pushed: Staged
) -> None:
    """The A100 was taken back in a statement of the T4, and then the T4 was found not to run it."""
    a100, t4 = (told(pushed, small_image.moment(days=days), **gpu) for days, gpu in ((4, A100), (3, {})))
    published(registry, pushed, a100, t4, claims=("A100", "T4"))
    evidence = small_image.evidence(
        pushed, verifications=(t4,), claims=("T4",), exempt=("A100",), as_of=small_image.moment(days=2)
    )
    small_image.attach_all(registry, pushed, evidence)
    attach_statements(registry, pushed, [failure_statement(pushed, unsupported(pushed))])
    assert ask(registry, pushed).claims == ()


def test_a_double_takes_nothing_down(registry: Registry, pushed: Staged) -> None:
    small_image.attach_all(registry, pushed, small_image.evidence(pushed))
    hang_on(registry, pushed, predicate_of(broken(pushed, test_double=True), pushed, claims=(), exempt=()))
    found = ask(registry, pushed)
    assert (found.works, found.failed) == (True, ())
    assert "test double" in found.evidence[-1].reason


class TestSignatures:
    """With a test double of cosign: what it verified is what counts, in both directions."""

    @pytest.fixture
    def signed(self, monkeypatch: pytest.MonkeyPatch) -> list[Statement]:
        double = CosignDouble()
        monkeypatch.setattr(Cosign, "find", lambda: double)
        return double.signed

    KEY = Verifier(key="k")

    def test_what_nobody_signed_takes_no_signed_image_down_and_is_said(
        self, signed: list[Statement], registry: Registry, pushed: Staged
    ) -> None:
        signed += statements(registry, pushed, small_image.evidence(pushed))
        small_image.attach_all(registry, pushed, small_image.evidence(pushed))
        attach_statements(registry, pushed, [failure_statement(pushed, broken(pushed))])
        found = ask(registry, pushed, verifier=self.KEY)
        assert (found.works, said(found)) == (True, [("broken", AuditOutcome.MIND)])
        assert "not signed by key k" in next(f.message for f in found.findings if f.what == "broken")
        assert not ask(registry, pushed).works, "without a key anybody's word counts"

    def test_what_is_signed_does(self, signed: list[Statement], registry: Registry, pushed: Staged) -> None:
        signed += statements(registry, pushed, small_image.evidence(pushed))
        signed.append(failure_statement(pushed, broken(pushed)))
        found = ask(registry, pushed, verifier=self.KEY)
        assert (found.works, said(found)) == (False, [("broken", AuditOutcome.FAILS)])

    def test_what_nobody_signed_does_not_take_it_back(
        self, signed: list[Statement], registry: Registry, pushed: Staged
    ) -> None:
        signed += statements(registry, pushed, small_image.evidence(pushed))
        signed.append(failure_statement(pushed, broken(pushed)))
        published(registry, pushed, told(pushed, small_image.moment(hours=1)), claims=("T4",))
        assert ask(registry, pushed).evidence
        assert not ask(registry, pushed, verifier=self.KEY).works
        signed += statements(
            registry,
            pushed,
            small_image.evidence(pushed, verifications=(told(pushed, small_image.moment(hours=1)),)),
        )
        assert ask(registry, pushed, verifier=self.KEY).works
