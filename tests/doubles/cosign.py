"""cosign without the program: anybody can make its signatures.

``monkeypatch.setattr(Cosign, "find", lambda: double)`` puts one in the place of the program.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from builder.verify.evidence.statement import Signed

if TYPE_CHECKING:
    from builder.verify.evidence.statement import Signer, Statement, Verifier


class CosignDouble:
    """Signs texts by the key's name and their hash, and keeps the statements that it signed.

    ``loses`` is the number of statements that somebody else's push removes after they were signed.
    """

    def __init__(self, *signed: Statement, loses: int = 0) -> None:
        self.signed: list[Statement] = list(signed)
        """Statements with a good signature of ours."""
        self.identity = ""
        """Ours; a verifier with a key is one of ours, too."""
        self.foreign: list[Statement] = []
        """Statements with a good signature of another identity."""
        self.loses = loses
        self.calls = 0
        """How many statements it was asked to sign."""

    def sign(self, image: str, statement: Statement, signer: Signer) -> None:
        self.calls += 1
        if self.calls > self.loses:
            self.signed.append(statement)

    def verify(self, image: str, kind: str, verifier: Verifier) -> Signed:
        known = self.signed if verifier.key or verifier.identity == self.identity else self.foreign
        found = tuple(one for one in known if one.predicate_type == kind)
        return Signed(statements=found, reason="" if found else "no signatures found", present=bool(found))

    def sign_text(self, text: bytes, signer: Signer) -> str:
        return f"{signer.key} {hashlib.sha256(text).hexdigest()}"

    def verify_text(self, text: bytes, signature: str, verifier: Verifier) -> str:
        return "" if signature == self.sign_text(text, verifier) else "another key signed it"

    def public_key(self, key: str) -> bytes:
        return key.encode()
