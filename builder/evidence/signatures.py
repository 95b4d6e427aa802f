"""Signatures on texts, and the named people who made them.

cosign's bundle is an annotation or a file beside the text. Each text names its kind, so that a signature on
one kind is not valid for another.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from builder.errors import UsageError
from builder.evidence.cosign import Cosign, Signer, Verifier

SIGNATURE = "io.rtbuild.signature"
"""The annotation that holds a bundle."""
_LARGEST = 64 << 10
"""Greatest length of a bundle, in characters."""


@dataclass(frozen=True, kw_only=True)
class People:
    """The keys whose signature counts. Threads may share an instance."""

    keys: tuple[Verifier, ...]
    _known: dict[tuple[bytes, str], str] = field(default_factory=dict, compare=False, repr=False)
    _guard: threading.Lock = field(default_factory=threading.Lock, compare=False, repr=False)

    @classmethod
    def named(cls, keys: Sequence[str], option: str) -> People | None:
        """The owners of public keys, given as files or key services' URIs; None without any.

        Raises UsageError for an empty name or a file that is not there, and MissingToolError without cosign.
        """
        for key in keys:
            if "://" not in key and not Path(key).is_file():
                raise UsageError(f"{option} {key!r}: there is no such file", hint="name a cosign.pub")
        if not keys:
            return None
        Cosign.find()
        return cls(keys=tuple(Verifier(key=key) for key in keys))

    @classmethod
    def holding(cls, signer: Signer) -> People:
        """The owner of a private key. Raises CommandError if it cannot be read, and MissingToolError."""
        key = str(signer.key)
        return cls(keys=(Verifier(key=key, public=Cosign.find().public_key(key)),))

    def who(self, text: bytes, signature: str) -> str:
        """The one who signed ``text``; empty if none did."""
        if not signature or len(signature) > _LARGEST:
            return ""
        with self._guard:
            known = self._known.get((text, signature))
        if known is None:
            cosign = Cosign.find()
            known = next((str(key) for key in self.keys if not cosign.verify_text(text, signature, key)), "")
            with self._guard:
                self._known[text, signature] = known
        return known


def signature_in(document: dict[str, Any]) -> str:
    """The bundle among a manifest's annotations; empty if there is none."""
    notes = document.get("annotations")
    found = notes.get(SIGNATURE) if isinstance(notes, dict) else None
    return found if isinstance(found, str) else ""
