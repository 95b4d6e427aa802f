"""The handle on a Docker Engine: builds by buildx, everything else by the Docker SDK."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from builder.engine.events import BuildEvent
    from builder.engine.facts import EngineFacts
    from builder.engine.images import HistoryEntry, StoredImage


@dataclass(frozen=True, kw_only=True)
class BuiltImage:
    """What a build left in the engine's store."""

    image: StoredImage
    seconds: float
    steps: int
    cached: int
    """How many of the steps came from the cache."""
    log: Path


@dataclass(frozen=True, kw_only=True)
class ProbeRun:
    """One run of a program in a container."""

    returncode: int
    """The program's exit status; -1 where it never started or was killed for its time or output."""
    stdout: str
    stderr: str
    seconds: float
    started: bool
    daemon_error: str | None
    """Why the engine could not start the container, in its own words; None where it started."""
    timed_out: bool = False
    truncated: bool = False
    """True where the program printed more than is kept; it was stopped there."""


class Engine:
    """A Docker Engine that answers."""

    @classmethod
    def connect(cls, *, context: str | None = None, builder: str | None = None) -> Engine:
        """Find the engine as the docker client would; MissingToolError says which command helps."""
        raise NotImplementedError

    def facts(self) -> EngineFacts:
        raise NotImplementedError

    def build(
        self,
        context: Path,
        *,
        tag: str,
        platform: str,
        epoch: int,
        log: Path,
        on_event: Callable[[BuildEvent], None],
        cancel: threading.Event,
        compression: Literal["zstd", "gzip"] = "zstd",
        build_contexts: Mapping[str, str] | None = None,
        secrets: Mapping[str, Path] | None = None,
        build_args: Mapping[str, str] | None = None,
        no_cache: bool = False,
    ) -> BuiltImage:
        """Build ``context`` with buildx into the engine's store. CommandError, CancelledError."""
        raise NotImplementedError

    def inspect(self, reference: str) -> StoredImage | None:
        raise NotImplementedError

    def find(self, inputs: str) -> StoredImage | None:
        """An image whose label ``io.rtbuild.inputs`` is ``inputs``."""
        raise NotImplementedError

    def tag(self, reference: str, new: str) -> None:
        raise NotImplementedError

    def remove(self, reference: str) -> bool:
        """Remove a name (and the image with its last name); False where there was none."""
        raise NotImplementedError

    def history(self, reference: str) -> tuple[HistoryEntry, ...]:
        raise NotImplementedError

    def read_file(self, reference: str, path: str, *, limit: int = 4 << 20) -> bytes | None:
        """The content of one file in an image, without running anything in it."""
        raise NotImplementedError

    def run_probe(
        self,
        reference: str,
        argv: Sequence[str],
        *,
        gpus: bool,
        timeout: float,
        env: Mapping[str, str] | None = None,
        mounts: Mapping[Path, str] | None = None,
        cancel: threading.Event | None = None,
    ) -> ProbeRun:
        """Run ``argv`` in a container without root, network or anything to write to but ``/tmp``."""
        raise NotImplementedError

    def disk_free(self) -> int | None:
        raise NotImplementedError
