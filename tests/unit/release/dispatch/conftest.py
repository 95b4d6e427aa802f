from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from doubles.project import MATRIX, Project
from doubles.registry import RegistryDouble, registry_client, serve
from typer.testing import CliRunner

from builder.cli.app import app
from builder.release.dispatch.node import report_on, verify_digest
from builder.release.dispatch.tasks import Follower
from builder.sources.oci.registry import Registry
from builder.sources.oci.staging import read_image
from builder.verify.evidence.attach import share

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterator
    from pathlib import Path

    from builder.release.dispatch.node import NodeResult
    from builder.release.dispatch.tasks import TaskState
    from builder.sources.oci.staging import Staged
    from builder.verify.evidence.statement import Signer

TWO_CARDS = MATRIX.replace("[T4]", "[T4, A100]") + "include:\n  - {}\n  - {variant: other}\n"


@pytest.fixture
def server() -> Iterator[RegistryDouble]:
    with serve() as running:
        yield running


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Registry:
    found = registry_client()
    monkeypatch.setattr(Registry, "to_write", lambda **_: found)
    return found


@dataclass
class Desk:
    """Where somebody dispatches: a project whose images are staged, a fleet file, programs on the PATH."""

    project: Project
    server: RegistryDouble
    registry: Registry
    folder: Path
    monkeypatch: pytest.MonkeyPatch

    def __post_init__(self) -> None:
        self.fleet = self.project.folder / "fleet.yaml"
        self.bin = self.folder / "bin"
        self.bin.mkdir()
        self.monkeypatch.setenv("RTBUILD_CACHE", str(self.folder / "cache"))
        self.monkeypatch.setenv("PATH", f"{self.bin}:{os.environ['PATH']}")
        self.write_fleet("slurm")

    def write_fleet(self, scheduler: str, more: str = "", limits: str = "{}") -> None:
        text = f"version: 1\nscheduler: {scheduler}\nstaging: {self.server.host}/staging\n"
        self.fleet.write_text(f"{text}classes: {{T4: {limits}, A100: {limits}}}\n{more}")

    def program(self, name: str, script: str) -> None:
        """A double of a command, first on the PATH."""
        path = self.bin / name
        path.write_text(f"#!/bin/bash\n{script}\n")
        path.chmod(0o755)

    def slurm(self) -> Path:
        """A double of a controller that keeps what is submitted as pending for ever. Jobs are files."""
        jobs = self.folder / "jobs"
        jobs.mkdir()
        count = f"n=$(($(ls {jobs} | grep -vc after) + 1))"
        self.program(
            "sbatch",
            f'case "$*" in *--test-only*) exit 0 ;; esac; {count}; echo "$*" >{jobs}/$n.after;'
            f' cat >{jobs}/$n; echo "$n;cluster"',
        )
        self.program(
            "squeue",
            f"shopt -s extglob nullglob\nfor job in {jobs}/!(*.after); do count=0\n"
            "while IFS= read -r line; do case $line in '#SBATCH --job-name='*) name=${line#*=} ;;"
            ' "  \'"*) count=$((count + 1)) ;; esac; done <$job\n'
            "for ((i = 0; i < count; i++)); do"
            ' echo "${job##*/}|$i|$name|PENDING|Resources"; done; done',
        )
        self.program(
            "scontrol", f'case "$1" in write) cat {jobs}/$3 ;; show) echo "MaxArraySize = 1001" ;; esac'
        )
        return jobs

    def call(self, *words: str) -> tuple[int, str]:
        arguments = ["dispatch", str(self.project.path), "--fleet", str(self.fleet), *words]
        result = CliRunner().invoke(app, arguments, standalone_mode=False)
        self.said = result.stderr
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result.return_value, result.stdout

    def tasks(self, *words: str) -> tuple[int, list[dict[str, Any]]]:
        """The exit code, and the rows of ``--json``."""
        code, text = self.call(*words, "--json")
        return code, json.loads(text)["tasks"]

    def images(self) -> list[Staged]:
        return [
            read_image(self.registry, f"{self.server.host}/staging", digest)
            for name, digest in self.server.tags.items()
            if name.startswith("staged-")
        ]

    def docker(self, document: dict[str, Any], code: int) -> None:
        """A double of Docker whose container prints this report."""
        (self.folder / "document").write_text(json.dumps(document))
        self.program(
            "docker",
            f"echo $* >>{self.folder}/docker; [ $1 = run ] || exit 0\n"
            f"cat {self.folder}/document; exit {code}",
        )

    def report(
        self, image: Staged, document: dict[str, Any], signer: Signer | None = None, **more: Any
    ) -> bool:
        """Put a report beside an image; whether it is new there."""
        found = report_on(image, json.dumps(document).encode(), signer, **more)
        return bool(share(self.registry, image, found.reports))

    def on_node(
        self, card: str = "T4", seconds: int = 20, signer: Signer | None = None, **more: Any
    ) -> NodeResult:
        image = self.images()[0]
        return verify_digest(
            self.registry,
            image.repository,
            image.digest,
            card=card,
            tool="docker",
            seconds=seconds,
            signer=signer,
            **more,
        )


@pytest.fixture
def _looks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fifth of a second, the least that ``--every`` takes, between two looks at a double is a long time."""
    wait = Follower.wait

    def soon(
        follower: Follower, cancel: threading.Event, *, seconds: float, **more: Any
    ) -> tuple[TaskState, ...]:
        return wait(follower, cancel, seconds=seconds / 10, **more)

    monkeypatch.setattr(Follower, "wait", soon)


@pytest.fixture
def desk(
    server: RegistryDouble,
    registry: Registry,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    _looks_at_once: None,
) -> Desk:
    """Two cells that claim two classes, both in staging."""
    project = Project(tmp_path / "project", text=TWO_CARDS)
    for number, cell in enumerate(project.matrix.cells):
        project.stage(registry, f"{server.host}/staging", cell, extra=b"%d" % number)
    return Desk(project, server, registry, tmp_path, monkeypatch)
