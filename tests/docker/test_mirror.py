"""A base from a registry that is reached through a mirror only: locked, built, and verified.

This base has NVIDIA's variables and no cuDNN: it builds, and the probe says that what it claims is not there.
"""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING, Any

import cuda_base
import pytest
import registry as loopback
from rtbuild_command import rtbuild
from trees import tree

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.docker, pytest.mark.long]

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


def test_the_base_comes_from_the_mirror(project: tuple[Path, str]) -> None:
    cell = build(project, "--no-cache")
    lock = json.loads((project[0] / "mirror.lock.json").read_text())
    (image,) = lock["images"].values()
    assert image["env"]["NV_CUDNN_VERSION"] == "8.6.0.163"
    assert project[1] not in json.dumps(lock), "the mirror is this machine's affair"
    assert cell["outcome"] == "failed"
    assert cell["verification"]["verdict"] == "broken"
    assert cell["verification"]["cause"] == "cudnn-missing"
    assert "8.6.0" in cell["verification"]["summary"]
    environment = subprocess.run(
        ["docker", "inspect", cell["image"]["reference"], "--format", "{{json .Config.Env}}"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "CUDA_VERSION=11.8.0" in environment


def test_packages_of_the_base_stand_above_the_wheels_as_in_a_plain_build(
    project: tuple[Path, str], tmp_path: Path
) -> None:
    """The rendered recipe, built by BuildKit alone: the same files, modes, owners and links."""
    folder, host = project
    made = build(project, "--locked")
    mirror = ("--registry-mirror", f"{REGISTRY}={host}")
    rtbuild(folder, "render", "mirror.yaml", "--locked", *mirror, "-o", str(tmp_path), "--progress", "none")
    (recipe,) = tmp_path.iterdir()
    name = "rtbuild/mirror:plain"
    text = (recipe / "Dockerfile").read_text()
    (recipe / "Dockerfile").write_text(text.replace(f"FROM {REGISTRY}/", f"FROM {host}/"))
    secrets = [f"--secret=id=ca,src={os.environ['SSL_CERT_FILE']}"] if os.environ.get("SSL_CERT_FILE") else []
    subprocess.run(["docker", "build", "-q", "-t", name, *secrets, str(recipe)], check=True, timeout=300)
    plain, ours = (tree(image) for image in (name, made["image"]["reference"]))
    for root in ("opt", "usr/local", "etc/ld.so.cache", "etc/passwd", "usr/bin"):
        assert {path: entry for path, entry in plain.items() if path.startswith(root)} == {
            path: entry for path, entry in ours.items() if path.startswith(root)
        }
    assert plain.keys() == ours.keys()
