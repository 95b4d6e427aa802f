"""A base from a registry that is reached through a mirror only: locked, built both ways, and verified.

This base has NVIDIA's variables and no cuDNN: it builds, and the probe says that what it claims is not there.
"""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

import cuda_base
import pytest
import registry as loopback
from rtbuild_command import rtbuild

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.docker

REGISTRY = "registry.invalid"
MATRIX = f"""\
version: 1
name: mirror
include:
  - framework: six==1.17.0
    python: "3.9"
    base: {REGISTRY}/nvidia/cuda:{cuda_base.TAG}
    cuda: base
    apt: [libgomp1]
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    folder = tmp_path_factory.mktemp("mirror")
    (folder / "base").mkdir()
    (folder / "mirror.yaml").write_text(MATRIX)
    with loopback.serve(folder / "registry") as served:
        cuda_base.nvidia_cuda(folder / "base", served.host)
        yield folder, served.host
    names = subprocess.run(
        ["docker", "images", "-q", "rtbuild/mirror"], capture_output=True, text=True, check=True
    ).stdout.split()
    subprocess.run(["docker", "rmi", "-f", *dict.fromkeys(names)], capture_output=True, check=False)


def test_what_apt_brought_in_is_recorded_and_a_drift_is_named(project: tuple[Path, str]) -> None:
    cell = build(project)
    versions = {package["name"]: package["version"] for package in cell["packages"]}
    assert {"libgomp1", "python3.9"} <= versions.keys(), "what the cell asks for, and Python"
    assert "libc6" not in versions, "that was in the base"
    path = project[0] / "results" / "apt" / "mirror" / f"{cell['id']}.json"
    kept = json.loads(path.read_text())
    assert kept["packages"] == cell["packages"]
    for package in kept["packages"]:
        if package["name"] == "libgomp1":
            package["version"] = "1:2-3"
    path.write_text(json.dumps(kept))
    again = build(project)
    assert again["error"] is None
    assert again["packages"] == cell["packages"]
    assert f"libgomp1 1:2-3 is now {versions['libgomp1']}" in " ".join(again["notes"])
    assert not any("drifted" in note for note in build(project)["notes"])


def build(project: tuple[Path, str], *options: str) -> dict[str, Any]:
    folder, host = project
    command = ("build", "mirror.yaml", "--json", "--progress", "none")
    mirror = ("--registry-mirror", f"{REGISTRY}={host}")
    done = rtbuild(folder, *command, *mirror, *options, check=1, timeout=400)
    (cell,) = json.loads(done.stdout)["cells"]
    assert isinstance(cell, dict)
    return cell


def test_both_ways_take_the_base_from_the_mirror(project: tuple[Path, str]) -> None:
    fast = build(project, "--no-cache")
    assert fast["seconds"]["layers"] > 0, "the fast way was not taken"
    lock = json.loads((project[0] / "mirror.lock.json").read_text())
    (image,) = lock["images"].values()
    assert image["env"]["NV_CUDNN_VERSION"] == "8.6.0.163"
    assert project[1] not in json.dumps(lock), "the mirror is this machine's affair"
    plain = build(project, "--locked", "--no-cache", "--plain")
    assert "layers" not in plain["seconds"]
    for cell in (fast, plain):
        assert cell["outcome"] == "failed"
        assert cell["verification"]["verdict"] == "broken"
        assert cell["verification"]["cause"] == "cudnn-missing"
        assert "8.6.0" in cell["verification"]["summary"]
    environment = subprocess.run(
        ["docker", "inspect", plain["image"]["reference"], "--format", "{{json .Config.Env}}"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "CUDA_VERSION=11.8.0" in environment
