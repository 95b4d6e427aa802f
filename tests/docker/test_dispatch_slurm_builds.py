"""`rtbuild dispatch --build` on a real Slurm: real builds without an engine, each layer made on one node."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from doubles.registry import RegistryDouble, serve
from rtbuild_command import rtbuild
from slurm_cluster import Cluster

from builder.core import resources
from builder.core.errors import MissingToolError
from builder.image.sandbox import require

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.docker, pytest.mark.long]

RTBUILD = str(Path(sys.executable).parent / "rtbuild")
ROOT = Path(__file__).resolve().parents[2]
MATRIX = """\
version: 1
name: builds
defaults:
  python: "3.9"
  base: rootfs:debian/bullseye
  cuda: {from: wheels, packages: [nvidia-cuda-nvrtc-cu11==11.8.89]}
axes:
  framework: [numpy==1.23.5, six==1.17.0, idna==3.10]
"""
SHARED = "nvidia_cuda_nvrtc_cu11"


@pytest.fixture
def folder() -> Iterator[Path]:
    if shutil.which("cosign") is None:
        pytest.skip("layers for others are signed by cosign, which is not installed")
    try:
        require()
    except MissingToolError as problem:
        pytest.skip(str(problem))
    with tempfile.TemporaryDirectory(prefix="rtbuild-builds-", ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture
def cluster(folder: Path) -> Iterator[Cluster]:
    running = Cluster(folder / "slurm")
    try:
        running.up()
        yield running
    finally:
        running.down()


def dispatch(folder: Path, cluster: Cluster, *words: str) -> tuple[int, list[dict[str, Any]], str]:
    env = os.environ | {"PATH": f"{cluster.bin}:{os.environ['PATH']}"}
    command = ["dispatch", "builds.yaml", "--build", "--wait", "--every", "2", "--json", *words]
    done = rtbuild(folder, *command, check=None, env=env, timeout=400)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)["tasks"], done.stderr


def prepare(folder: Path, server: RegistryDouble) -> None:
    """Matrix, lock, keys, a fleet, and what a node calls rtbuild: the real one, with a cache of its own."""
    (folder / "builds.yaml").write_text(MATRIX)
    rtbuild(folder, "lock", "builds.yaml", "--progress", "none")
    keys = ["cosign", "generate-key-pair", "--output-key-prefix", str(folder / "cosign")]
    subprocess.run(keys, capture_output=True, check=True, env=os.environ | {"COSIGN_PASSWORD": ""})
    rootfs = resources.cache() / "rootfs"
    rootfs.mkdir(parents=True, exist_ok=True)
    node = folder / "node"
    # A process that enters a namespace of mounts stands in its root. The system's packages are here already;
    # wheels and layers are not.
    inner = f'cd "$HERE"; [ -e $0 ] || {{ mkdir -p $0; cp -al {rootfs} $0/rootfs; }}; exec {RTBUILD} "$@"'
    variables = (
        f"HOME=/root 'PATH={os.environ['PATH']}' PYTHONPATH={ROOT} COSIGN_PASSWORD= RTBUILD_CACHE=$cache"
    )
    node.write_text(
        f"#!/bin/bash\ncache={folder}/cache/$SLURMD_NODENAME\n"
        f'exec nsenter --target {os.getpid()} --mount -- env {variables} "HERE=$PWD"'
        f" bash -c '{inner}' $cache \"$@\"\n"
    )
    node.chmod(0o755)
    (folder / "fleet.yaml").write_text(
        f"version: 1\nscheduler: slurm\nstaging: {server.host}/staging\nminutes: 10\npause: 1\n"
        f"command: {node}\nlog: {folder}/log-%A_%a\nclasses: {{T4: {{}}}}\n"
        f"build: {{cpus: 2, layers_key: {folder}/cosign.pub, key: {folder}/cosign.key}}\n"
    )


def test_each_wheel_is_converted_by_one_node(folder: Path, cluster: Cluster) -> None:
    with serve() as server:
        prepare(folder, server)
        code, rows, talk = dispatch(folder, cluster)
        logs = {path: path.read_text() for path in folder.glob("log-*")}
        assert (code, {row["verdict"] for row in rows}) == (0, {"built"}), talk + "\n".join(logs.values())
        assert re.search(r"build: submitted as job \d+, tasks: 1\n", talk)
        assert re.search(r"build wave 2: submitted as job \d+, tasks: 2\n", talk)
        nodes = {text.partition(" on ")[2].partition(",")[0] for text in logs.values()}
        assert len(nodes) >= 2, "cells of one wave were built on several nodes"
        lock = json.loads((folder / "builds.lock.json").read_text())
        (sha256,) = {row["sha256"] for name, row in lock["wheels"].items() if name.startswith(SHARED)}
        made = {
            path.relative_to(folder / "cache").parts[0]
            for path in (folder / "cache").glob("*/wheels/**/*")
            if path.is_file() and sha256[2:] in str(path)
        }
        assert len(made) == 1, f"the wheel that all cells have was fetched on {made}"
        images = [tag for tag in server.tags if tag.startswith("staged-")]
        assert len(images) == 3
        sys.stderr.write(f"3 cells on {sorted(nodes)}; the shared wheel on {made}\n")
        code, rows, talk = dispatch(folder, cluster)
        assert (code, len(rows)) == (0, 3)
        assert "3 are built, 0 to run" in talk
        assert len(list(folder.glob("log-*"))) == 3
