"""Statements are read so that no two readers can understand them differently."""

from __future__ import annotations

import json
from typing import Any

import pytest

from builder.core.errors import EvidenceError
from builder.verify.evidence.statement import TYPE, Statement, parse_statement

DIGEST = "sha256:" + "ab" * 32


def document(**changes: Any) -> dict[str, Any]:
    return {
        "_type": TYPE,
        "subject": [{"name": "x", "digest": {"sha256": "ab" * 32}}],
        "predicateType": "https://example.invalid/p",
        "predicate": {"a": 1},
    } | changes


def test_what_is_written_is_read() -> None:
    made = Statement(
        subjects=(DIGEST,),
        name="repo",
        predicate_type="https://example.invalid/p",
        predicate={"a": [1.5, None]},
    )
    found = parse_statement(made.content)
    assert (found.subjects, found.predicate_type, found.predicate) == (
        made.subjects,
        made.predicate_type,
        made.predicate,
    )
    assert json.loads(made.content)["subject"] == [{"name": "repo", "digest": {"sha256": "ab" * 32}}]


def test_the_older_envelope_of_cosign_is_read() -> None:
    old = document(_type="https://in-toto.io/Statement/v0.1")
    assert parse_statement(json.dumps(old).encode()).subjects == (DIGEST,)


@pytest.mark.parametrize(
    "changes",
    [
        {"_type": "https://in-toto.io/Statement/v9"},
        {"subject": []} | {"predicate": None},
        {"subject": {}},
        {"subject": [{"digest": {"sha512": "ab"}}]},
        {"subject": [{"digest": {"sha256": "AB" * 32}}]},
        {"subject": [{"digest": {"sha256": "ab"}}]},
        {"subject": ["sha256:ab"]},
        {"predicateType": 5},
        {"predicate": []},
    ],
)
def test_what_is_no_statement(changes: dict[str, Any]) -> None:
    with pytest.raises(EvidenceError):
        parse_statement(json.dumps(document(**changes)).encode())


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b"null",
        b"<html>",
        b"[" * 100_000,
        b'{"a": 1, "a": 2}',
        b'{"a": {"b": 1, "b": 1}}',
        b'{"a": NaN}',
        b'{"a": -Infinity}',
        b'{"a": ' + b"9" * 5000 + b"}",
    ],
)
def test_what_two_readers_could_read_differently(content: bytes) -> None:
    with pytest.raises(EvidenceError):
        parse_statement(content)
