"""in-toto statements: predicates about digests.

https://github.com/in-toto/attestation/blob/main/spec/v1/statement.md. A document that two
parsers could read in two ways (a key twice, NaN) is refused.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from builder.core.digests import canonical_json
from builder.core.documents import MalformedError, parse_json
from builder.core.errors import EvidenceError

MEDIA_TYPE = "application/vnd.in-toto+json"
PREDICATE_ANNOTATION = "in-toto.io/predicate-type"
"""BuildKit's name: https://github.com/moby/buildkit/blob/master/docs/attestations/attestation-storage.md"""

TYPE = "https://in-toto.io/Statement/v1"
_TYPES = frozenset({TYPE, "https://in-toto.io/Statement/v0.1"})
"""cosign 2 still writes v0.1 around the predicate; the fields used here are the same in both."""

TEST_RESULT = "https://in-toto.io/attestation/test-result/v0.1"
CYCLONEDX = "https://cyclonedx.org/bom"
PROVENANCE = "https://slsa.dev/provenance/v1"


@dataclass(frozen=True, kw_only=True)
class Statement:
    """A predicate about images. ``subjects`` are digests, ``sha256:…``."""

    subjects: tuple[str, ...]
    predicate_type: str
    predicate: Mapping[str, Any]
    name: str = field(default="", compare=False)
    """The subject's name, for readers only."""

    @property
    def content(self) -> bytes:
        name = {"name": self.name} if self.name else {}
        subjects = [{**name, "digest": {"sha256": text.removeprefix("sha256:")}} for text in self.subjects]
        whole = {"_type": TYPE, "subject": subjects, "predicateType": self.predicate_type}
        return canonical_json({**whole, "predicate": self.predicate})


def parse_statement(content: bytes) -> Statement:
    """Raises EvidenceError for anything but a statement about sha256 digests that has one reading."""
    try:
        document = parse_json(content, strict=True)
    except MalformedError as error:
        raise EvidenceError(str(error)) from error
    if not isinstance(document, dict) or str(document.get("_type")) not in _TYPES:
        raise EvidenceError("it is no in-toto statement")
    match document:
        case {"subject": list(subjects), "predicateType": str(kind), "predicate": dict(predicate)}:
            return Statement(subjects=tuple(map(_digest, subjects)), predicate_type=kind, predicate=predicate)
        case _:
            raise EvidenceError("it is an in-toto statement without subject, type or predicate")


def _digest(subject: object) -> str:
    match subject:
        case {"digest": {"sha256": str(text)}} if re.fullmatch("[0-9a-f]{64}", text):
            return f"sha256:{text}"
    raise EvidenceError("it is an in-toto statement about something without a sha256 digest")
