"""What a task leaves on its node and beside its image: a report that the registry did not take, a note of why
there is none, and the images that were pulled, of which as many stay as a budget has room for.
"""

import contextlib
import hashlib
import json
import os
import platform
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Self

from builder.core.digests import canonical_json
from builder.core.documents import parse_object, readable, shown
from builder.core.errors import CellError, RegistryError
from builder.core.files import write_whole
from builder.core.resources import cache
from builder.core.temporary import locked
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


_ANSWER = 64 << 10
"""Bytes of an answer: a size, or the layers of an image that went."""


@dataclass(frozen=True, kw_only=True)
class PulledImages:
    """Those that Docker or Podman pulled here for tasks of this user; of others' images it knows nothing."""

    tool: str
    gigabytes: int
    """Of 10⁹ bytes, that stay; an image counts whole, also where it shares layers with another one."""

    @property
    def path(self) -> Path:
        """Of this node alone, where homes are shared."""
        node = os.environ.get("SLURMD_NODENAME") or platform.node()
        return cache() / "pulled-images" / f"{node}-{self.tool}.json"

    @contextmanager
    def using(self, image: str) -> Iterator[None]:
        """Run an image in the block; afterwards those that ran the longest ago go, until the budget holds."""
        pulled = self._bytes(image) is None
        try:
            yield
        finally:
            try:
                self._with_record(lambda found: self._trim(found, image if pulled else None, image))
            except (OSError, ValueError) as error:
                tell(f"images that were pulled stay on this node: {error}")

    def _with_record(self, change: Callable[[dict[str, float]], dict[str, float]]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with locked(self.path.with_suffix(".lock")):
            text = self.path.read_bytes() if self.path.exists() else b"{}"
            before = {image: float(when) for image, when in parse_object(text).items()}
            if (after := change(before)) != before:
                write_whole(self.path, json.dumps(after).encode(), mode=0o600)

    def _trim(self, found: dict[str, float], pulled: str | None, used: str) -> dict[str, float]:
        """When each image ran that was pulled and is here still."""
        if pulled is not None or used in found:
            found = {name: when for name, when in found.items() if name != used} | {used: time.time()}
        sizes = {name: size for name in found if (size := self._bytes(name)) is not None}
        for name in sorted(sizes, key=found.__getitem__):
            if sum(sizes.values()) <= self.gigabytes * 10**9:
                break
            # without --force: one that another container runs stays
            if self._ask("image", "rm", name) is not None:
                del sizes[name]
                tell(f"{name} is removed from this node, which keeps {self.gigabytes} GB of what it pulled")
        return {name: found[name] for name in sizes}

    def _bytes(self, image: str) -> int | None:
        """None if it is not here."""
        said = self._ask("image", "inspect", "--format", "{{.Size}}", image)
        return int(said) if said is not None and said.strip().isdecimal() else None

    def _ask(self, *words: str) -> str | None:
        """The tool's answer; None if it refuses, takes five minutes, or prints more than 64 KiB."""
        pipe, none = subprocess.PIPE, subprocess.DEVNULL
        with subprocess.Popen(
            [self.tool, *words], stdout=pipe, stderr=none, start_new_session=True
        ) as process:
            end = partial(os.killpg, process.pid, signal.SIGKILL)
            limit = threading.Timer(300, end)
            limit.start()
            try:
                assert process.stdout is not None  # noqa: S101 - it is a pipe
                text = process.stdout.read(_ANSWER + 1)
                if len(text) > _ANSWER:
                    end()
                refused = process.wait() != 0
            finally:
                limit.cancel()
        return None if refused else text.decode("utf-8", "replace")
