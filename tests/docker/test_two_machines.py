"""Built by one engine, verified by another, with one registry between: two machines as far as they know."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import relay
from engines import SecondEngine, second_engine
from rtbuild_command import rtbuild

from builder.sources.oci.registry import Registry
from builder.sources.oci.staging import read_image
from builder.verify.evidence.attach import shared
from builder.verify.runner.reports import SealedReport

if TYPE_CHECKING:
    from collections.abc import Iterator

    from registry import LoopbackRegistry

pytestmark = [pytest.mark.docker, pytest.mark.long]

MATRIX = """\
version: 1
name: two
defaults:
  python: 3.11
  base: rootfs:debian/bookworm
  cuda: none
axes:
  framework: [six==1.17.0]
"""
CELL = "six1.17.0-py3.11-bookworm-cpu"
sys.path.append(str(Path(__file__).resolve().parents[1] / "faults"))


def told(folder: Path, *args: str, env: dict[str, str] | None = None, check: int = 0) -> dict[str, Any]:
    """Run the command with ``--json``; its document. ``stderr`` is in it, too."""
    done = rtbuild(folder, *args, "--json", env=env, check=check)
    assert done.stdout, done.stderr
    return {**json.loads(done.stdout), "stderr": done.stderr}


def only(document: dict[str, Any]) -> dict[str, Any]:
    (cell,) = document["cells"]
    return cell


@pytest.fixture(scope="module")
def staging(server: LoopbackRegistry) -> str:
    return f"{server.host}/staging/two"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("project")
    (folder / "two.yaml").write_text(MATRIX)
    yield folder
    for name in subprocess.run(
        ["docker", "images", "--format", "{{.Repository}}:{{.Tag}}", "rtbuild/two"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split():
        subprocess.run(["docker", "rmi", "-f", name], capture_output=True, check=False)


@pytest.fixture(scope="module")
def built(project: Path, staging: str) -> dict[str, Any]:
    """The image of the first machine, in the staging repository."""
    return only(told(project, "build", "two.yaml", "-s", CELL, "--push", staging, "--no-verify"))["image"]


@pytest.fixture(scope="module")
def other(staging: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecondEngine]:
    """Another machine's engine, with a test double of a GPU to hand out: driver and cuDNN that convolve."""
    from fault_doubles import Doubles

    doubles = Doubles(tmp_path_factory.mktemp("doubles"))
    folders = (doubles.driver(), doubles.cudnn("9.1.0"))
    files = [file for folder in folders for file in sorted(folder.iterdir())]
    mounts = [
        {
            "hostPath": str(file),
            "containerPath": f"/usr/lib/x86_64-linux-gnu/{file.name}",
            "options": ["ro", "bind"],
        }
        for file in files
    ]
    device = {"name": "all", "containerEdits": {"mounts": mounts}}
    devices = {"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": [device]}
    with second_engine(ports=[_port(staging)], devices=devices) as engine:
        yield engine


def _port(reference: str) -> int:
    return int(reference.partition("/")[0].rpartition(":")[2])


def reports(built: dict[str, Any]) -> list[SealedReport]:
    """What lies beside the image in the registry, each whole."""
    repository, _, digest = built["pushed"].partition("@")
    door = Registry()
    found = shared(door, read_image(door, repository, digest))
    assert all(isinstance(entry, SealedReport) for entry in found), found
    return [entry for entry in found if isinstance(entry, SealedReport)]


def test_what_one_machine_built_another_verifies_by_digest_and_reports(
    project: Path, staging: str, built: dict[str, Any], other: SecondEngine, tmp_path: Path
) -> None:
    command = ["verify", "two.yaml", "-s", CELL, "--from", staging, "--results", str(tmp_path / "there")]
    there = only(told(project, *command, "--gpus", "none", env=other.env, check=5))
    assert there["image"]["pushed"] == built["pushed"]
    assert there["image"]["content"] == built["content"]
    assert there["verification"]["verdict"] == "unverified"
    (report,) = reports(built)
    assert report.key.digest == built["pushed"].partition("@")[2]
    assert (report.cell, report.matrix, report.verdict) == (CELL, "two", "unverified")
    assert (tmp_path / "there" / "reports" / report.key.file_name()).read_text() == report.text
    # once more changes nothing: neither a second report, nor a second pull
    again = only(told(project, *command, "--gpus", "none", "--rm", env=other.env, check=5))
    assert again["image"]["reused"]
    assert again["verification"]["reused"]
    assert len(reports(built)) == 1
    assert other.docker("images", "-q"), "what was there before is not removed"
    # and nobody publishes on the strength of it
    publish = ["publish", "two.yaml", "-s", CELL, "--from", staging, "--to", f"{staging}-public"]
    refused = told(project, *publish, "--results", str(tmp_path / "elsewhere"), check=6)
    assert "unverified" in json.dumps(refused["cells"])
    assert Registry().digest_of(f"{staging}-public:{CELL}") is None


def test_a_double_of_a_gpu_is_never_evidence(
    project: Path, staging: str, built: dict[str, Any], other: SecondEngine, tmp_path: Path
) -> None:
    before = {report.text for report in reports(built)}
    command = ["verify", "two.yaml", "-s", CELL, "--from", staging, "--results", str(tmp_path)]
    found = only(told(project, *command, "--gpus", "all", env=other.env, check=5))
    document = found["verification"]["report"]
    assert [gpu["name"] for gpu in document["gpus"]] == ["rtbuild test double"], "the double was handed out"
    assert found["verification"]["test_double"]
    assert found["verification"]["verdict"] == "unverified"
    assert any("test double" in note for note in found["notes"])
    assert {report.text for report in reports(built)} == before
    assert not list(tmp_path.glob("reports/*"))


@pytest.fixture(scope="module")
def far(
    staging: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[SecondEngine, dict[str, str]]]:
    """A third machine's engine, behind TCP and TLS, which keeps images in a graph driver; and the
    environment of somebody who has a docker context for it, called ``far``, and nothing else of Docker's."""
    folder = tmp_path_factory.mktemp("far")
    certificates(folder)
    options = ["--host=tcp://127.0.0.1:2376", "--tlsverify", f"--tlscacert={folder}/ca.pem"]
    options += [f"--tlscert={folder}/cert.pem", f"--tlskey={folder}/key.pem"]
    with (
        second_engine(store="graphdriver", ports=[_port(staging)], options=options) as engine,
        engine.reached_by_tcp(2376) as port,
    ):
        env = {name: text for name, text in os.environ.items() if not name.startswith("DOCKER_")}
        env |= {"DOCKER_CONFIG": str(folder / "docker"), "BUILDX_CONFIG": str(folder / "buildx")}
        place = f"host=tcp://127.0.0.1:{port},ca={folder}/ca.pem"
        place += f",cert={folder}/cert.pem,key={folder}/key.pem"
        docker(env, "context", "create", "far", "--docker", place)
        yield engine, env | {"FAR": f"tcp://127.0.0.1:{port}", "FAR_CERTIFICATES": str(folder)}


def docker(env: dict[str, str], *arguments: str) -> None:
    subprocess.run(["docker", *arguments], env=env, check=True, capture_output=True, timeout=120)


def test_any_docker_context_over_tls(
    project: Path,
    staging: str,
    built: dict[str, Any],
    far: tuple[SecondEngine, dict[str, str]],
    tmp_path: Path,
) -> None:
    engine, env = far
    command = ["verify", "two.yaml", "-s", CELL, "--from", staging, "--rm", "--no-report"]
    command += ["--results", str(tmp_path), "--context", "far"]
    found = only(told(project, *command, env=env, check=5))
    assert found["image"]["pushed"] == built["pushed"]
    assert found["image"]["digest"] != built["digest"], "a graph driver calls an image by its config"
    assert found["image"]["content"] == built["content"]
    assert found["verification"]["verdict"] == "unverified"
    assert engine.docker("images", "-q") == "", "--rm removes what was pulled"


def test_docker_host_over_tls(project: Path, far: tuple[SecondEngine, dict[str, str]]) -> None:
    _, env = far
    plain = {name: text for name, text in env.items() if name != "DOCKER_CONFIG"}
    plain |= {
        "DOCKER_HOST": env["FAR"],
        "DOCKER_TLS_VERIFY": "1",
        "DOCKER_CERT_PATH": env["FAR_CERTIFICATES"],
    }
    assert env["FAR"] in json.dumps(told(project, "doctor", env=plain))


def test_a_builder_elsewhere_and_an_engine_with_a_graphdriver(
    project: Path,
    staging: str,
    built: dict[str, Any],
    other: SecondEngine,
    far: tuple[SecondEngine, dict[str, str]],
    tmp_path: Path,
) -> None:
    """The engine takes the whole archive, what is pushed is what any other engine makes of the lock, and a
    third one verifies it."""
    repository, (_, env) = f"{staging}-graphdriver", far
    with relay.running(f"unix:{tmp_path}/bk", "unix:/var/run/docker.sock", preface=relay.GRPC):
        create = ("--name", "elsewhere", "--driver", "remote", f"unix://{tmp_path}/bk")
        docker(env, "buildx", "create", *create)
        command = ["build", "two.yaml", "-s", CELL, "--locked", "--context", "far", "--builder", "elsewhere"]
        command += ["--push", repository, "--no-verify", "--results", str(tmp_path / "build")]
        made = only(told(project, *command, env=env))
    assert made["image"]["content"] == built["content"]
    manifest = made["image"]["pushed"].partition("@")[2]
    assert made["image"]["digest"] != manifest, "such an engine calls an image by its config"
    assert manifest == built["pushed"].partition("@")[2] == built["digest"]
    command = ["verify", "two.yaml", "-s", CELL, "--gpus", "none", "--from", repository]
    there = only(told(project, *command, "--results", str(tmp_path / "there"), env=other.env, check=5))
    assert there["image"]["pushed"] == made["image"]["pushed"]
    assert [report.key.digest for report in reports(made["image"])] == [manifest]


def test_a_builder_elsewhere_makes_the_very_same_image(
    project: Path, built: dict[str, Any], tmp_path: Path
) -> None:
    with relay.running(f"unix:{tmp_path}/bk", "unix:/var/run/docker.sock", preface=relay.GRPC):
        env = os.environ | {"BUILDX_CONFIG": str(tmp_path / "buildx")}
        create = [
            "docker",
            "buildx",
            "create",
            "--name",
            "far",
            "--driver",
            "remote",
            f"unix://{tmp_path}/bk",
        ]
        subprocess.run(create, env=env, check=True, capture_output=True)
        command = ["build", "two.yaml", "-s", CELL, "--locked", "--no-cache", "--no-verify"]
        made = only(told(project, *command, "--builder", "far", env=env))
    assert made["image"]["digest"] == built["digest"]


def test_what_was_not_pushed_is_missed_with_the_way_to_push_it(
    project: Path, staging: str, built: dict[str, Any], other: SecondEngine, tmp_path: Path
) -> None:
    command = ["verify", "two.yaml", "-s", CELL, "--from", f"{staging}-empty", "--results", str(tmp_path)]
    error = only(told(project, *command, env=other.env, check=1))["error"]
    assert error["kind"] == "ImageMissingError"
    assert "rtbuild build --push" in error["hint"]


def test_without_a_lock_nobody_knows_which_image_is_meant(
    project: Path, staging: str, built: dict[str, Any], other: SecondEngine, tmp_path: Path
) -> None:
    (tmp_path / "two.yaml").write_text(MATRIX)
    done = rtbuild(tmp_path, "verify", "--from", staging, "two.yaml", env=other.env, check=4)
    assert "rtbuild lock" in done.stderr


def certificates(folder: Path) -> None:
    """One certificate that is its own authority, for an engine and its client alike."""
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
         "-days", "2", "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1",
         "-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")],
        check=True,
        capture_output=True,
    )  # fmt: skip
    (folder / "ca.pem").write_bytes((folder / "cert.pem").read_bytes())


def test_what_another_build_left_in_the_engine_s_cache_changes_no_digest(project: Path) -> None:
    """BuildKit takes a layer of its cache as it was compressed for whoever built it first."""
    own = MATRIX.replace("six==1.17.0", "six==1.16.0")
    (project / "packed.yaml").write_text(
        own.replace("name: two", "name: packed") + "options: {compression: gzip}\n"
    )
    (project / "plain.yaml").write_text(own.replace("name: two", "name: packed"))
    told(project, "build", "packed.yaml", "--no-verify")
    after = only(told(project, "build", "plain.yaml", "--no-verify"))["image"]
    alone = only(told(project, "build", "plain.yaml", "--no-verify", "--no-cache"))["image"]
    subprocess.run(["docker", "rmi", "-f", after["reference"]], capture_output=True, check=False)
    assert after["digest"] == alone["digest"]
