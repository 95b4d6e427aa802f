"""A project whose images are staged, beside a real Slurm: what its nodes do, and the dispatcher on it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from dispatch_scene import RTBUILD, DispatchScene

if TYPE_CHECKING:
    from collections.abc import Iterator

    from doubles.registry import RegistryDouble
    from slurm_cluster import Cluster

TESTS = Path(__file__).resolve().parents[1]


class Scene(DispatchScene):
    """A project whose images are staged, a fleet, and what each node is to do."""

    def __init__(self, folder: Path, cluster: Cluster, server: RegistryDouble, cells: int) -> None:
        super().__init__(folder, server, ("T4", "A100", "L4", "H100"), cells)
        self.cluster = cluster
        self.first = ""
        """Of the PATH: programs before those of Slurm, each with a colon."""
        docker = folder / "bin" / "docker"
        docker.parent.mkdir()
        docker.write_text(
            f'#!/bin/bash\n[ "$1" = run ] || exit 0\n'
            f"PYTHONPATH={TESTS.parent}:{TESTS}:{TESTS}/docker SCENE={folder}"
            f' exec {sys.executable} {TESTS}/doubles/docker_on_a_node.py "$@"\n'
        )
        docker.chmod(0o755)
        self.node = folder / "node"
        self.write_node(f"{docker.parent}:$PATH")
        self.fleet.write_text(
            f"version: 1\nscheduler: slurm\nstaging: {self.staging}\n"
            "attempts: 3\npause: 1\nminutes: 5\n"
            f"command: {self.node}\nlog: {folder}/log-%A_%a\n"
            "classes: {T4: {at_once: 2}, A100: {}, L4: {}, H100: {}}\n"
        )
        self.ask({})

    def write_node(self, path: str, by: str = "nsenter") -> None:
        """What the fleet file calls rtbuild: the real one, out of Slurm's root, with this PATH."""
        self.node.write_text(
            f"#!/bin/bash\nexec {by} --target {os.getpid()} --mount --"
            f' env HOME=/root COSIGN_PASSWORD= "PATH={path}" PYTHONPATH={TESTS.parent} {RTBUILD} "$@"\n'
        )
        self.node.chmod(0o755)

    def ask(self, codes: dict[str, list[Any]]) -> None:
        (self.folder / "asked.json").write_text(json.dumps(codes))

    def env(self) -> dict[str, str]:
        path = f"{self.first}{self.cluster.bin}:{os.environ['PATH']}"
        return os.environ | {"PATH": path, "PYTHONPATH": str(TESTS.parent)}

    def dispatch(self, *words: str) -> tuple[int, list[dict[str, Any]]]:
        with self.start(*words) as waiting:
            until = time.monotonic() + 570
            while True:
                try:
                    text, talk = waiting.communicate(timeout=5)
                    break
                except subprocess.TimeoutExpired:
                    self.cluster.resume()
                    if time.monotonic() > until:
                        waiting.kill()
                        pytest.fail(waiting.communicate()[1] + self.cluster.logs())
        assert text, talk + self.cluster.logs()
        for log in sorted(self.folder.glob("log-*"))[:3]:
            sys.stderr.write(f"{log.name}: {log.read_text()[-600:]}")
        return waiting.returncode, json.loads(text)["tasks"]

    def until(self, name: str, count: int = 1) -> Path:
        """The last run of a task, once it has run so often."""
        end = time.monotonic() + 300
        while self.runs().get(name, 0) < count:
            assert time.monotonic() < end, self.cluster.logs()
            time.sleep(0.2)
        return max((self.folder / "runs" / name).iterdir())

    def runs(self) -> dict[str, int]:
        folder = self.folder / "runs"
        return {path.name: len(list(path.iterdir())) for path in folder.iterdir()} if folder.exists() else {}


@contextmanager
def made(cluster: Cluster, server: RegistryDouble, cells: int) -> Iterator[Scene]:
    """A scene whose jobs end with it: the next one has tasks of the same names."""
    with tempfile.TemporaryDirectory(prefix="rtbuild-scene-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        try:
            yield Scene(Path(folder), cluster, server, cells)
        finally:
            cluster.clear()
