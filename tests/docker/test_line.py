"""The whole line with the real command, a real engine and real packages: lock, render, build, verify."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from typing import TYPE_CHECKING, Any

import docker
import pytest
from rtbuild_command import RTBUILD, rtbuild
from trees import tree

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.docker

MATRIX = """\
version: 1
name: line
defaults:
  python: 3.11
  base: rootfs:debian/bookworm
  cuda: none
  env: {GREETING: "it's $HOME, `id` and \\"so on\\""}
axes:
  framework: [six==1.17.0, six==1.16.0]
include:
  - {framework: six==1.17.0, base: "127.0.0.1:9/nobody/home:1"}
"""
GOOD = "six1.17.0-py3.11-bookworm-cpu"
OTHER = "six1.16.0-py3.11-bookworm-cpu"


@pytest.fixture(scope="module")
def client() -> Iterator[docker.DockerClient]:
    engine = docker.from_env()
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, client: docker.DockerClient) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("project")
    (folder / "line.yaml").write_text(MATRIX)
    yield folder
    for image in client.images.list("rtbuild/line"):
        client.images.remove(image.id, force=True)


@pytest.fixture(scope="module")
def first(project: Path) -> dict[str, Any]:
    """The first build: two cells succeed, the one whose base does not exist fails alone."""
    start = time.monotonic()
    done = rtbuild(project, "build", "line.yaml", "--json", "--progress", "plain", check=5)
    document = json.loads(done.stdout)
    document["stderr"], document["wall"] = done.stderr, time.monotonic() - start
    return document


def cells(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {cell["id"]: cell for cell in document["cells"]}


def test_good_cells_are_built_and_said_to_be_unverified(first: dict[str, Any]) -> None:
    found = cells(first)
    assert {found[GOOD]["outcome"], found[OTHER]["outcome"]} == {"unverified"}
    assert found[GOOD]["verification"]["verdict"] == "unverified"
    assert "UNVERIFIED: no GPU on this machine" in first["stderr"]


def test_an_unreachable_base_fails_its_own_cell_in_seconds_and_names_the_mirror(
    first: dict[str, Any],
) -> None:
    bad = next(cell for cell in first["cells"] if "home" in cell["id"] or "127" in cell["id"])
    assert bad["outcome"] == "failed"
    assert bad["stage"] == "lock"
    assert bad["seconds"]["lock"] < 30
    assert "--registry-mirror" in bad["error"]["hint"]


def test_what_the_image_says_of_itself(first: dict[str, Any], client: docker.DockerClient) -> None:
    image = client.images.get(f"rtbuild/line:{GOOD}")
    config = image.attrs["Config"]
    assert 'GREETING=it\'s $HOME, `id` and "so on"' in config["Env"]
    assert config["Labels"]["io.rtbuild.cell"] == GOOD
    history = json.dumps(image.history())
    for secret in ("ca-certificates.crt", "SSL_CERT", "PIP_CERT"):
        assert secret not in history
    assert cells(first)[GOOD]["image"]["size"] > 10_000_000


def test_cudnn_verify_prints_a_page_without_root_and_without_anything_to_write_to(
    first: dict[str, Any], client: docker.DockerClient
) -> None:
    container = client.containers.run(
        f"rtbuild/line:{GOOD}",
        "cudnn-verify",
        user="65534",
        read_only=True,
        network_mode="none",
        detach=True,
    )
    try:
        assert container.wait(timeout=120)["StatusCode"] == 10
        page = container.logs(stdout=True, stderr=False).decode()
    finally:
        container.remove(force=True)
    assert "unverified" in page.lower().splitlines()[0]


def test_the_second_run_has_nothing_to_build(project: Path, first: dict[str, Any]) -> None:
    start = time.monotonic()
    document = json.loads(
        rtbuild(project, "build", "line.yaml", "--locked", "-s", "six*bookworm*", "--json", "-q").stdout
    )
    for cell in document["cells"]:
        assert cell["image"]["reused"]
        assert cell["image"]["digest"] == cells(first)[cell["id"]]["image"]["digest"]
    assert time.monotonic() - start < 60


def test_verify_alone_is_not_content_with_unverified(project: Path, first: dict[str, Any]) -> None:
    done = rtbuild(project, "verify", "line.yaml", "-s", GOOD, "-q", check=5)
    assert "UNVERIFIED" in done.stderr
    done = rtbuild(project, "build", "line.yaml", "--locked", "-s", GOOD, "-q", "--require-verified", check=5)
    assert "UNVERIFIED" in done.stderr


def test_a_changed_matrix_makes_the_lock_stale(project: Path, first: dict[str, Any]) -> None:
    changed = project / "changed.yaml"
    changed.write_text(MATRIX.replace("cuda: none", "cuda: none\n  pip: [attrs==25.3.0]"))
    (project / "changed.lock.json").write_bytes((project / "line.lock.json").read_bytes())
    done = rtbuild(project, "build", "changed.yaml", "--locked", "-s", GOOD, check=4)
    assert "stale" in done.stderr
    assert "rtbuild lock" in done.stderr


def test_a_wheel_with_another_hash_is_refused(project: Path, first: dict[str, Any]) -> None:
    (project / "other.yaml").write_text(MATRIX.replace("name: line", "name: other"))
    lock = json.loads((project / "line.lock.json").read_text())
    lock["matrix"] = "other"
    wheel = next(w for w in lock["wheels"].values() if w["name"] == "six" and w["version"] == "1.17.0")
    wheel["sha256"] = "0" * 64
    (project / "other.lock.json").write_text(json.dumps(lock))
    done = rtbuild(project, "build", "other.yaml", "--locked", "-s", GOOD, "--json", "-q", check=1)
    error = cells(json.loads(done.stdout))[GOOD]["error"]
    assert error["kind"] == "PackageIndexError"
    assert "0" * 64 in error["message"]


def test_the_rendered_recipe_builds_with_plain_docker(
    project: Path, first: dict[str, Any], client: docker.DockerClient
) -> None:
    rtbuild(project, "render", "line.yaml", "--locked", "-s", GOOD, "-o", "recipes", "--progress", "none")
    folder = project / "recipes" / GOOD
    secrets = []
    for variable in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"):
        if os.environ.get(variable):
            secrets = ["--secret", f"id=ca,src={os.environ[variable]}"]
    name = "rtbuild/line:plain"
    subprocess.run(["docker", "build", "-q", "-t", name, *secrets, str(folder)], check=True, timeout=300)
    out = client.containers.run(name, ["python", "-c", "import six; print(six.__version__)"], remove=True)
    assert out.decode().strip() == "1.17.0"
    assert tree(name) == tree(f"rtbuild/line:{GOOD}"), "whether the base is below the wheels or above them"


def test_ctrl_c_stops_what_runs_keeps_what_was_finished_and_the_next_run_goes_on(
    project: Path, first: dict[str, Any], client: docker.DockerClient
) -> None:
    scratch = project / "scratch"  # build contexts are made there, which tells our builds from others'
    scratch.mkdir()
    command = [*RTBUILD, "build", "line.yaml"]
    command += ["--locked", "--no-cache", "-s", "six*bookworm*", "-j", "1", "--progress", "json"]
    finished = []
    with subprocess.Popen(
        command,
        cwd=project,
        env=os.environ | {"TMPDIR": str(scratch)},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            event = json.loads(line) if line.startswith("{") else {}
            if event.get("event") == "CellFinished":
                finished.append(event)
            if len(finished) == 1 and event.get("event") == "StageStarted" and event["stage"] == "build":
                os.kill(process.pid, signal.SIGINT)
    assert process.returncode == 130
    assert [event["outcome"] for event in finished] == ["unverified", "cancelled"]
    left = subprocess.run(
        ["pgrep", "-f", f"buildx build.*{scratch}"], capture_output=True, text=True, check=False
    )
    assert left.stdout == "", "a build was left running"
    assert list(scratch.iterdir()) == [], "a build context was left behind"
    after = json.loads(rtbuild(project, "build", "line.yaml", "--locked", "-s", GOOD, "--json", "-q").stdout)
    assert cells(after)[GOOD]["image"]["reused"]


def test_a_gpu_that_the_engine_cannot_hand_out_is_the_hosts_fault(
    project: Path, first: dict[str, Any]
) -> None:
    done = rtbuild(project, "verify", "line.yaml", "-s", GOOD, "--gpus", "all", "--json", check=5)
    found = cells(json.loads(done.stdout))[GOOD]
    assert found["outcome"] == "host"
    assert found["verification"]["verdict"] == "host"
    assert "toolkit" in found["verification"]["remedy"]


IMPORTS = """\
version: 1
name: imports
defaults: {framework: six==1.17.0, python: 3.11, base: rootfs:debian/bookworm, cuda: none}
include:
  - {variant: good, imports: [six.moves, "six:BytesIO", "six.moves.urllib.parse:urlsplit"]}
  - {variant: bad, imports: ["six:BytesIO", "six.moves:gone"]}
"""


def test_an_image_that_lacks_what_code_imports_is_broken_without_a_card(
    tmp_path: Path, client: docker.DockerClient
) -> None:
    """``six.moves`` puts its names together, so that nothing but the import itself decides."""
    (tmp_path / "imports.yaml").write_text(IMPORTS)
    try:
        done = rtbuild(tmp_path, "build", "imports.yaml", "--json", "--progress", "plain", check=None)
    finally:
        for image in client.images.list("rtbuild/imports"):
            client.images.remove(image.id, force=True)
    bad, good = (
        cells(json.loads(done.stdout))[f"six1.17.0-py3.11-bookworm-cpu-{name}"] for name in ("bad", "good")
    )
    assert (good["outcome"], good["verification"]["verdict"]) == ("unverified", "unverified")
    assert (bad["outcome"], bad["verification"]["verdict"]) == ("failed", "broken")
    assert bad["verification"]["cause"] == "expect-mismatch"
    assert "from six.moves import gone: ImportError: cannot import name 'gone' from" in done.stderr
