"""What a node leaves for others: a report that the registry did not take, and a note of why there is none."""

import contextlib
import hashlib
import json
import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from builder.core.digests import canonical_json
from builder.core.documents import parse_object, readable, shown
from builder.core.errors import CellError, RegistryError
from builder.core.files import write_whole
from builder.core.resources import cache
from builder.sources.oci import Artifact, Registry, Staged, attach, parse_reference, referrers
from builder.verify.runner import EXIT_CODES, SealedReport, read_entry

NOTE_TYPE = "application/vnd.rtbuild.note.v1+json"
_NOTE = "io.rtbuild.note"
_LARGEST = 32 << 20
"""Bytes of a kept report that are read."""


@dataclass(frozen=True)
class NodeFinding:
    """What came of a container."""

    verdict: str
    seen: str | None
    """The class of its GPU."""
    reports: Sequence[SealedReport]


@dataclass(frozen=True)
class KeptReport:
    """Where a report waits on this node for the registry: a file for each image and card."""

    path: Path
    where: str

    @classmethod
    def of(cls, staged: Staged, card: str) -> Self:
        """In the user's cache folder: of every node, where homes are shared."""
        name = hashlib.sha256(f"{staged.reference}\n{card}".encode()).hexdigest()[:20]
        return cls(cache() / "reports-to-hand-in" / f"{name}.json", staged.reference)

    def write(self, found: NodeFinding) -> None:
        """Keep reports. A disk that takes none is told of: it matters only if the registry is away, too."""
        rows = [{"text": one.text, "signature": one.signature} for one in found.reports]
        document = {"reports": rows, "verdict": found.verdict, "seen": found.seen}
        try:
            write_whole(self.path, json.dumps(document).encode(), mode=0o600)
        except OSError as error:
            tell(f"the report cannot be kept on this node: {error}")

    def read(self) -> NodeFinding | None:
        """What is kept; None if nothing is, or what is there cannot be read."""
        try:
            with self.path.open("rb") as file:
                document = parse_object(file.read(_LARGEST))
            rows = [
                replace(read_entry(str(row["text"]), self.where), signature=str(row["signature"]))
                for row in document["reports"]
            ]
            verdict, seen = str(document["verdict"]), document["seen"]
        except FileNotFoundError:
            return None
        except (OSError, ValueError, LookupError, TypeError, CellError) as error:
            tell(f"{self.path} is passed over, since it holds no report: {error}")
            return None
        return (
            NodeFinding(verdict, None if seen is None else str(seen), rows) if verdict in EXIT_CODES else None
        )

    def forget(self) -> None:
        """Remove the file, if it is there."""
        with contextlib.suppress(OSError):
            self.path.unlink()


def leave_note(registry: Registry, staged: Staged, card: str, why: str) -> None:
    """Put beside the image why a task had no verdict here, for those who cannot look into a node's log."""
    words = shown(" ".join(why.split()), most=400)
    node = os.environ.get("SLURMD_NODENAME") or platform.node()
    text = {"class": card, "node": node, "why": words, "when": f"{datetime.now(UTC):%Y-%m-%d %H:%M}"}
    notes = tuple(sorted((f"{_NOTE}.{name}", value) for name, value in text.items()))
    artifact = Artifact(artifact_type=NOTE_TYPE, content=canonical_json(text), annotations=notes)
    try:
        attach(registry, parse_reference(staged.reference), staged.manifest.descriptor, artifact)
    except RegistryError as error:
        tell(f"no note is left: {error.message}")


def notes_beside(registry: Registry, staged: Staged) -> dict[str, str]:
    """The newest note on each class of GPU: ``n7, 2026-01-01 12:00: there is no docker on this node``.

    Anybody who may push can write one: it is shown, and decides nothing. Raises RegistryError.
    """
    found: dict[str, tuple[str, str]] = {}
    for one in referrers(registry, parse_reference(staged.reference)).descriptors:
        if one.artifact_type != NOTE_TYPE:
            continue
        notes = {key.removeprefix(f"{_NOTE}."): shown(value, most=400) for key, value in one.annotations}
        card, when = notes.get("class", ""), notes.get("when", "")
        said = f"{notes.get('node')}, {when} UTC: {notes.get('why')}"
        found[card] = max(found.get(card, ("", "")), (when, said))
    return {card: said for card, (_, said) in found.items()}


def tell(text: str) -> None:
    """A line for the job's log, at once."""
    sys.stderr.write(f"{readable(text)}\n")
    sys.stderr.flush()
