"""A project whose images are staged in a registry's double, and `rtbuild dispatch` over it."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from doubles.project import MATRIX, Project
from doubles.registry import registry_client

from builder.sources.oci.staging import read_image

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from doubles.registry import RegistryDouble

    from builder.sources.oci.staging import Staged

RTBUILD = str(Path(sys.executable).parent / "rtbuild")


class _Service(Protocol):
    def up(self) -> None: ...

    def down(self) -> None: ...


S = TypeVar("S", bound=_Service)


@contextmanager
def running(made: Callable[[Path], S]) -> Iterator[S]:
    """A cluster or control plane in a folder of its own, until the block ends."""
    with tempfile.TemporaryDirectory(prefix="rtbuild-cluster-", ignore_cleanup_errors=True) as folder:
        service = made(Path(folder))
        try:
            service.up()
            yield service
        finally:
            service.down()


class DispatchScene:
    """``cells`` cells on each of the ``classes``, their images staged, and a fleet file to be written."""

    def __init__(self, folder: Path, server: RegistryDouble, classes: Sequence[str], cells: int) -> None:
        self.folder, self.server = folder, server
        self.staging = f"{server.host}/staging"
        self.registry = registry_client()
        text = MATRIX.replace("[T4]", f"[{', '.join(classes)}]") + "include:\n"
        text += "".join(f"  - {{variant: v{number}}}\n" for number in range(cells))
        self.project = Project(folder / "project", text=text)
        for number, cell in enumerate(self.project.matrix.cells):
            extra = f"{folder} {number}".encode()
            self.project.stage(self.registry, self.staging, cell, extra=extra)
        self.fleet = folder / "fleet.yaml"

    def images(self) -> list[Staged]:
        """What is staged."""
        tags = self.server.tags.items()
        digests = [digest for tag, digest in tags if tag.startswith("staged-")]
        return [read_image(self.registry, self.staging, digest) for digest in digests]

    def env(self) -> dict[str, str]:
        """The dispatcher's environment; the scheduler's commands are on its PATH."""
        return dict(os.environ)

    def command(self, *words: str) -> list[str]:
        return [RTBUILD, "dispatch", str(self.project.path), "--fleet", str(self.fleet), "--json", *words]

    def start(self, *words: str) -> subprocess.Popen[str]:
        """A dispatcher that waits, in the background."""
        return subprocess.Popen(
            self.command("--wait", "--every", "1", *words),
            env=self.env(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


@dataclass
class Dispatcher:
    """A dispatcher that waits, and when it said what."""

    scene: DispatchScene
    lines: list[tuple[float, str]] = field(default_factory=list)

    words: tuple[str, ...] = ()
    """Further options."""

    def __post_init__(self) -> None:
        self.began = time.monotonic()
        self.process = self.scene.start(*self.words)
        self.out = ""
        self.threads = [threading.Thread(target=one, daemon=True) for one in (self._hear, self._read)]
        for thread in self.threads:
            thread.start()

    def _hear(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as stream:
            for line in stream:
                self.lines.append((time.monotonic(), line.rstrip()))

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as stream:
            self.out = stream.read()

    def rows(self) -> list[dict[str, Any]]:
        """What it says at its end; none if it was killed."""
        for thread in self.threads:
            thread.join()
        self.process.wait()
        return json.loads(self.out)["tasks"] if self.out.strip() else []

    def silence(self, began: float, ended: float) -> float:
        """The longest time without a word between two moments."""
        said = [began, *(when for when, _ in self.lines if began < when < ended), ended]
        return max(later - when for when, later in itertools.pairwise(said))
