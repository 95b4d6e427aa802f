"""How cosign is called, with a script in its place: what stands on its command line, and what is believed."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path

import pytest

from builder.core.errors import CommandError, MissingToolError
from builder.verify.evidence import statement as module
from builder.verify.evidence.statement import TEST_RESULT, Cosign, Signer, Statement, Verifier, ci_identity

IMAGE = "registry.example/team/tf@sha256:" + "1" * 64
STATEMENT = Statement(subjects=("sha256:" + "1" * 64,), predicate_type=TEST_RESULT, predicate={"a": [1, "ü"]})


def double(folder: Path, script: str) -> Cosign:
    """A test double of cosign: writes down how it was called, then does what ``script`` says."""
    program = folder / "cosign"
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {folder}/argv\nenv > {folder}/env\n{script}\n')
    program.chmod(0o755)
    return Cosign(program=str(program))


def argv(folder: Path) -> list[str]:
    return (folder / "argv").read_text().splitlines()


def envelope(statement: Statement = STATEMENT) -> str:
    payload = base64.b64encode(statement.content).decode()
    return json.dumps({"payloadType": "application/vnd.in-toto+json", "payload": payload, "signatures": []})


def test_signing_by_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COSIGN_PASSWORD", "hunter2")
    keep = f'while [ $# -gt 0 ]; do [ "$1" = --predicate ] && cp "$2" {tmp_path}/predicate; shift; done'
    double(tmp_path, keep).sign(IMAGE, STATEMENT, Signer(key="cosign.key"))
    given = argv(tmp_path)
    assert given[:4] == ["attest", "--yes", "--type", TEST_RESULT]
    assert given[-3:] == ["--key", "cosign.key", IMAGE]
    assert "--tlog-upload=false" in given
    assert json.loads((tmp_path / "predicate").read_text("utf-8")) == {"a": [1, "ü"]}
    assert not Path(given[given.index("--predicate") + 1]).exists()
    assert "hunter2" not in " ".join(given)
    assert "COSIGN_PASSWORD=hunter2" in (tmp_path / "env").read_text()


def test_signing_by_identity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIGSTORE_ID_TOKEN", "ey.secret.token")
    double(tmp_path, "").sign(IMAGE, STATEMENT, Signer())
    given = argv(tmp_path)
    assert "--key" not in given
    assert "--tlog-upload=true" in given, "without the log nobody could check an identity later"
    assert "--fulcio-auth-flow=token" in given, "nobody is there to type a code into a browser"
    assert "ey.secret.token" not in " ".join(given)


@pytest.mark.parametrize(
    ("signer", "said", "hint"),
    [
        (Signer(key="k"), "Error: signing: decrypt: encrypted: decryption failed", "COSIGN_PASSWORD"),
        (Signer(key="k"), "Error: GET https://r/v2/: UNAUTHORIZED: authentication required", "docker login"),
        (Signer(), "Error: getting ID token: no ambient OIDC provider", "id-token: write"),
        (Signer(key="k"), "Error: anything", "run the command"),
    ],
)
def test_a_refusal_says_what_to_do(signer: Signer, said: str, hint: str, tmp_path: Path) -> None:
    cosign = double(tmp_path, f"echo '{said}' >&2; echo 'https://me:geheim@registry.example' >&2; exit 1")
    with pytest.raises(CommandError) as caught:
        cosign.sign(IMAGE, STATEMENT, signer)
    assert hint in (caught.value.hint or "")
    assert said in caught.value.tail
    assert "geheim" not in str(vars(caught.value))


def test_checking_by_key(tmp_path: Path) -> None:
    found = double(tmp_path, f"printf '%s\\n' '{envelope()}'").verify(
        IMAGE, TEST_RESULT, Verifier(key="cosign.pub")
    )
    assert [(s.subjects, s.predicate) for s in found.statements] == [
        (STATEMENT.subjects, STATEMENT.predicate)
    ]
    given = argv(tmp_path)
    assert given[0] == "verify-attestation"
    assert {"--key", "cosign.pub", "--insecure-ignore-tlog=true"} <= set(given)


def test_checking_an_identity_needs_the_log(tmp_path: Path) -> None:
    who = Verifier(
        identity="https://github.com/o/r/.github/workflows/images.yml@refs/heads/main", issuer="https://i"
    )
    double(tmp_path, "exit 1").verify(IMAGE, TEST_RESULT, who)
    given = argv(tmp_path)
    assert given[given.index("--certificate-identity") + 1] == who.identity
    assert given[given.index("--certificate-oidc-issuer") + 1] == "https://i"
    assert not any("insecure" in text for text in given)


GITHUB = {
    "GITHUB_ACTIONS": "true",
    "GITHUB_SERVER_URL": "https://github.com",
    "GITHUB_WORKFLOW_REF": "o/r/.github/workflows/images.yml@refs/heads/main",
}


def test_the_identity_of_a_workflow() -> None:
    assert ci_identity(GITHUB) == (
        "https://github.com/o/r/.github/workflows/images.yml@refs/heads/main",
        "https://token.actions.githubusercontent.com",
    )
    assert ci_identity({}) is None
    assert ci_identity({"GITHUB_WORKFLOW_REF": GITHUB["GITHUB_WORKFLOW_REF"]}) is None
    assert ci_identity(GITHUB | {"GITHUB_SERVER_URL": "https://github.example.com"}) is None


@pytest.mark.parametrize(
    ("script", "present", "reason"),
    [
        ("echo 'Error: no matching attestations: invalid signature' >&2; exit 1", False, "no matching"),
        ("echo 'Error: accepted signatures do not match threshold' >&2; exit 12", True, "threshold"),
        ("exit 3", True, "exit status 3"),
        ("echo nonsense", True, "is no JSON"),
        ("echo '[]'", True, "no envelope"),
        ('echo \'{"payloadType": "x"}\'', True, "no envelope"),
        (
            'echo \'{"payloadType": "application/vnd.in-toto+json", "payload": "%%%"}\'',
            True,
            "not base64",
        ),
    ],
)
def test_what_is_not_believed(script: str, present: bool, reason: str, tmp_path: Path) -> None:
    found = double(tmp_path, script).verify(IMAGE, TEST_RESULT, Verifier(key="k"))
    assert found.statements == ()
    assert reason in found.reason
    assert found.present is present


IN_TOTO = "application/vnd.in-toto+json"


def in_base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


TEXT = in_base64(STATEMENT.content)


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        ("text/plain", TEXT),
        (IN_TOTO.upper(), TEXT),
        ([IN_TOTO], TEXT),
        (IN_TOTO, f"{TEXT[:40]}\n{TEXT[40:]}"),
        (IN_TOTO, f"{TEXT}-_"),
        (IN_TOTO, 5),
        (IN_TOTO, in_base64(b"[" * 100_000)),
        (IN_TOTO, in_base64(STATEMENT.content.decode().encode("utf-16"))),
        (IN_TOTO, in_base64(STATEMENT.content.replace(b"sha256", b"sha512"))),
        (IN_TOTO, in_base64(STATEMENT.content.replace(b"Statement/v1", b"Statement/v9"))),
    ],
)
def test_envelopes_that_are_none(kind: object, payload: object, tmp_path: Path) -> None:
    (tmp_path / "out").write_text(json.dumps({"payloadType": kind, "payload": payload}))
    found = double(tmp_path, f"cat {tmp_path}/out").verify(IMAGE, TEST_RESULT, Verifier(key="k"))
    assert found.statements == ()
    assert found.present
    assert found.reason


def test_statements_of_another_type_are_not_what_was_asked(tmp_path: Path) -> None:
    other = Statement(subjects=STATEMENT.subjects, predicate_type="https://x", predicate={})
    cosign = double(tmp_path, f"printf '%s\\n' '{envelope(other)}'")
    assert cosign.verify(IMAGE, TEST_RESULT, Verifier(key="k")).statements == ()


def test_one_that_does_not_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TIMEOUT", 0.2)
    found = double(tmp_path, "exec sleep 5").verify(IMAGE, TEST_RESULT, Verifier(key="k"))
    assert "no end within" in found.reason


def test_one_that_prints_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LARGEST_OUTPUT", 1000)
    found = double(tmp_path, "head -c 2000 /dev/zero").verify(IMAGE, TEST_RESULT, Verifier(key="k"))
    assert "without end" in found.reason


def test_it_is_not_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingToolError, match="cosign is not installed"):
        Cosign.find()
    assert os.environ["PATH"] == str(tmp_path)
