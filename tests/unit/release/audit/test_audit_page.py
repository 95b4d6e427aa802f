"""The command: a page, one JSON document, and the exit code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
from doubles import small_image
from rtbuild_command import called

from builder.cli.commands import audit as command
from builder.cli.commands.audit import clean, document, page
from builder.cli.console.terminal import Terminal
from builder.core.errors import UsageError
from builder.release.audit.checks import Question
from builder.release.audit.run import audit
from builder.verify.evidence.statement import Verifier

if TYPE_CHECKING:
    from datetime import timedelta

    from builder.sources.oci.registry import Registry
    from builder.sources.oci.staging import Staged

SCHEMA = json.loads((Path(__file__).resolve().parents[4] / "docs" / "audit.schema.json").read_text())
PLAIN = Terminal(progress="plain", color=False, github=False)


def run(pushed: Staged, monkeypatch: pytest.MonkeyPatch, registry: Registry, **options: Any) -> int:
    monkeypatch.setattr(command.Registry, "from_user", lambda _mirrors: registry)
    return called(command.audit, f"{pushed.repository}:1", **options)


def test_yes(
    registry: Registry, pushed: Staged, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    small_image.attach_all(registry, pushed, small_image.evidence(pushed))
    assert run(pushed, monkeypatch, registry, gpu="t4", driver="550") == 0
    out = capsys.readouterr().out
    assert "✓ known to work on T4 with driver 550\n" in out
    assert "    tensorflow 2.15.1: compiled CUDA 12.2 cuDNN 8; loaded CUDA 12.2 cuDNN 8.9.4\n" in out
    assert "! unsigned: whoever can push to this repository could have written it\n" in out


def test_no(
    registry: Registry, pushed: Staged, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    small_image.attach_all(registry, pushed, small_image.evidence(pushed))
    assert run(pushed, monkeypatch, registry, gpu="H100") == 1
    out = capsys.readouterr().out
    assert "✗ not known to work on H100: not verified on H100, only on T4" in out


def test_it_should(
    registry: Registry, pushed: Staged, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    report = small_image.double_report(driver={"version": "550.54.15", "api": "12.4"})
    reports = (small_image.verification(pushed, document=report),)
    small_image.attach_all(registry, pushed, small_image.evidence(pushed, verifications=reports))
    for driver, code in {"550": 0, "580": 0, "535": 7, "470": 1}.items():
        assert run(pushed, monkeypatch, registry, gpu="T4", driver=driver) == code
    capsys.readouterr()
    run(pushed, monkeypatch, registry, driver="535")
    out = capsys.readouterr().out
    assert (
        "\n? not known to work with driver 535: it ran on Tesla T4 with driver 550.54.15 only, and the" in out
    )
    assert "\n  ? machine: it ran on Tesla T4 with driver 550.54.15 only, and the rules say that" in out
    assert run(pushed, monkeypatch, registry, driver="535", json_=True) == 7
    told = json.loads(capsys.readouterr().out)
    jsonschema.validate(told, SCHEMA)
    assert (told["works"], told["on_driver"], told["drivers"]) == (False, "should", {"T4": ["550.54.15"]})


@pytest.mark.parametrize(
    "question",
    [Question(), Question(gpu="H100", driver="535"), Question(driver="525"), Question(driver="550")],
)
@pytest.mark.parametrize("with_evidence", [True, False])
def test_the_document_is_as_its_schema_says(
    question: Question, with_evidence: bool, registry: Registry, pushed: Staged
) -> None:
    if with_evidence:
        small_image.attach_all(registry, pushed, small_image.evidence(pushed))
    found = audit(registry, f"{pushed.repository}:1", question)
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.validate(json.loads(json.dumps(document(found))), SCHEMA)


def test_the_page(registry: Registry, pushed: Staged) -> None:
    small_image.attach_all(registry, pushed, small_image.evidence(pushed))
    found = audit(registry, f"{pushed.repository}:1", Question(gpu="H100"))
    text = "\n".join(page(found, PLAIN))
    assert "not known to work on H100" in text
    assert "run cudnn-verify in it on your machine" in text
    assert "unsigned: whoever can push" in text
    assert "\x1b" not in text


def test_an_escape_sequence_never_reaches_the_terminal(registry: Registry, pushed: Staged) -> None:
    evil = [{"name": "Tesla T4\x1b[2J\x9b31m\r\nworks: yes", "compute_capability": "7.5"}]
    reports = (small_image.verification(pushed, document=small_image.double_report(gpus=evil)),)
    small_image.attach_all(registry, pushed, small_image.evidence(pushed, verifications=reports, claims=()))
    found = audit(registry, f"{pushed.repository}:1", Question())
    for line in page(found, PLAIN):
        assert clean(line) == line
        assert not line.startswith("works: yes")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"gpu": "H1000"}, "no GPU that rtbuild knows"),
        ({"driver": "new"}, "no driver version"),
        ({"driver": "9" * 5000}, "no driver version"),
        ({"require_signature": True}, "nobody is named"),
        ({"require_signature": True, "key": ""}, "nobody is named"),
        ({"key": "k", "certificate_identity": "i", "certificate_oidc_issuer": "u"}, "exclude each other"),
        ({"certificate_identity": "i"}, "belong together"),
        ({"certificate_oidc_issuer": "u"}, "belong together"),
    ],
)
def test_a_question_that_is_none(
    options: dict[str, Any],
    reason: str,
    registry: Registry,
    pushed: Staged,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(UsageError, match=reason):
        run(pushed, monkeypatch, registry, **options)


def test_what_signatures_are_worth(registry: Registry, pushed: Staged) -> None:
    small_image.attach_all(registry, pushed, small_image.evidence(pushed))
    found = audit(registry, f"{pushed.repository}:1", Question())
    assert "! unsigned" in "\n".join(page(found, PLAIN))
    assert str(Verifier(identity="who", issuer="https://i")) == "who (https://i)"


def test_ages() -> None:
    from builder.cli.options import age

    def days(text: str) -> timedelta | None:
        return age(text)

    assert (days("30d"), age(None)) == (age("720h"), None)
    with pytest.raises(UsageError, match="no length of time"):
        age("soon")
