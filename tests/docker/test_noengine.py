"""Of one lock comes one image, with an engine and without: content, config, layers and digest."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import cuda_base
import pytest
import registry as loopback
from doubles import unreliable
from rtbuild_command import rtbuild
from trees import tree

from builder.core.errors import MissingToolError
from builder.image.sandbox import require
from builder.sources.oci.registry import Registry
from builder.sources.oci.staging import read_image
from builder.verify.evidence.attach import built_by, shared
from builder.verify.evidence.statement import People
from builder.verify.runner.reports import ReportStore, SealedReport

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.docker, pytest.mark.long]

MATRIX = """\
version: 1
name: noengine
defaults:
  python: "3.9"
  base: rootfs:debian/bullseye
  env: {GREETING: "it's $HOME, `id` <&> \\"so on\\" \\\\"}
  cuda:
    from: wheels
    packages:
      - nvidia-cuda-runtime-cu11==11.8.89
      - nvidia-cuda-nvrtc-cu11==11.8.89
axes:
  framework: [numpy==1.23.5, six==1.17.0]
"""
NUMPY, SIX = "numpy*", "six*"
NOBODY = 65534


@dataclass(frozen=True)
class Project:
    folder: Path
    host: str

    def repository(self, name: str) -> str:
        return f"{self.host}/{name}"

    @property
    def layers(self) -> tuple[str, ...]:
        """Options that take layers from where the engine's image was pushed with them."""
        return ("--layers-from", self.repository("staging"), "--layers-key", str(self.folder / "cosign.pub"))

    def build(
        self, *options: str, cache: Path | None = None, before: tuple[str, ...] = (), check: int | None = 0
    ) -> subprocess.CompletedProcess[str]:
        command = ("build", "noengine.yaml", "--json", "--progress", "none", "--gpus", "none")
        env = os.environ | {"COSIGN_PASSWORD": ""} | ({"RTBUILD_CACHE": str(cache)} if cache else {})
        return rtbuild(self.folder, *command, *options, check=check, env=env, before=before)

    def cell(self, *options: str, cache: Path | None = None, before: tuple[str, ...] = ()) -> dict[str, Any]:
        (cell,) = json.loads(self.build(*options, cache=cache, before=before).stdout)["cells"]
        assert isinstance(cell, dict)
        return cell

    def image(self, reference: str) -> tuple[dict[str, Any], bytes, list[str]]:
        """The manifest, the config's bytes and the digests of the layers."""
        registry = Registry.to_write()
        manifest = registry.manifest(reference).document
        config = registry.blob(reference, manifest["config"]["digest"])
        return manifest, config, [layer["digest"] for layer in manifest["layers"]]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    if shutil.which("cosign") is None:
        pytest.skip("layers for others are signed by cosign, which is not installed")
    try:
        require()
    except MissingToolError as problem:
        pytest.skip(str(problem))
    folder = tmp_path_factory.mktemp("noengine")
    (folder / "noengine.yaml").write_text(MATRIX)
    with cuda_base.available(), loopback.serve(folder / "registry") as served:
        yield Project(folder, served.host)
    subprocess.run(["docker", "rmi", "-f", *engine_images()], capture_output=True, check=False)


def engine_images() -> list[str]:
    names = [
        "docker",
        "images",
        "--format",
        "{{.Repository}}:{{.Tag}}",
        "--filter",
        "reference=rtbuild/noengine",
    ]
    return subprocess.run(names, capture_output=True, text=True, check=True).stdout.split()


@pytest.fixture(scope="module")
def built(project: Project) -> dict[str, Any]:
    """The image that an engine received, and that was pushed, with its layers."""
    command = ["cosign", "generate-key-pair", "--output-key-prefix", str(project.folder / "cosign")]
    subprocess.run(command, capture_output=True, check=True, env=os.environ | {"COSIGN_PASSWORD": ""})
    key = str(project.folder / "cosign.key")
    return project.cell("-s", NUMPY, "--push", project.repository("staging"), "--key", key)


def test_the_image_is_signed_too_and_verified_only_from_a_builder_who_is_named(
    project: Project, built: dict[str, Any], tmp_path: Path
) -> None:
    staging, key = project.repository("staging"), str(project.folder / "cosign")
    repository, _, digest = built["image"]["pushed"].partition("@")
    registry = Registry.to_write()
    image = read_image(registry, repository, digest)
    people = People.named([f"{key}.pub"], "--built-by")
    assert people is not None
    assert built_by(registry, image, people) == f"key {key}.pub"
    other = ["cosign", "generate-key-pair", "--output-key-prefix", str(tmp_path / "other")]
    env = os.environ | {"COSIGN_PASSWORD": "", "RTBUILD_CACHE": str(tmp_path / "cache")}  # of another machine
    subprocess.run(other, capture_output=True, check=True, env=env)
    command = ("verify", "noengine.yaml", "-s", NUMPY, "--from", staging, "--gpus", "none", "--rm")
    results = ("--results", str(tmp_path / "results"), "--progress", "plain", "--key", f"{key}.key")
    refused = rtbuild(
        project.folder, *command, *results, "--built-by", str(tmp_path / "other.pub"), check=1, env=env
    )
    assert "not proven to be built from its lock" in refused.stderr
    rtbuild(project.folder, *command, *results, "--built-by", f"{key}.pub", check=5, env=env)
    (entry,) = ReportStore(tmp_path / "results" / "reports").entries()
    assert isinstance(entry, SealedReport)
    assert (entry.verdict, entry.key.digest) == ("unverified", digest)
    assert people.who(entry.text.encode(), entry.signature) == f"key {key}.pub"
    assert [one.signature for one in shared(registry, image) if isinstance(one, SealedReport)] == [
        entry.signature
    ]


def test_alone_it_gives_the_same_image(project: Project, built: dict[str, Any]) -> None:
    alone = project.cell("-s", NUMPY, "--engine", "none", "--push", project.repository("alone"))
    assert alone["outcome"] == "unverified"
    assert alone["verification"] is None
    assert alone["image"]["content"] == built["image"]["content"]
    theirs, config, blobs = project.image(built["image"]["pushed"])
    mine, my_config, my_blobs = project.image(alone["image"]["pushed"])
    assert my_config == config
    assert mine["config"] == theirs["config"]
    assert my_blobs == blobs
    assert alone["image"]["digest"] == built["image"]["digest"], "of the engine, which keeps manifests"
    assert alone["image"]["digest"] == alone["image"]["pushed"].partition("@")[2]
    inner = json.loads(config)
    assert any(pair.startswith("GREETING=it's $HOME") for pair in inner["config"]["Env"])
    assert len(inner["rootfs"]["diff_ids"]) == len(blobs)


def test_a_cold_machine_downloads_and_converts_nothing(
    project: Project, built: dict[str, Any], tmp_path: Path
) -> None:
    cold = tmp_path / "cache"
    options = ("-s", NUMPY, "--engine", "none", "--push", project.repository("cold"))
    found = project.cell(*options, *project.layers, cache=cold)
    assert found["image"]["digest"] == built["image"]["digest"]
    kept = [path for path in cold.rglob("*") if path.is_file() and path.parent.name != "probe"]
    assert sum(path.stat().st_size for path in kept) < 1_000_000
    again = project.cell(*options, cache=cold)
    assert again["image"]["reused"]
    assert again["image"]["digest"] == built["image"]["digest"]


def test_an_engine_takes_layers_from_the_registry(
    project: Project, built: dict[str, Any], tmp_path: Path
) -> None:
    subprocess.run(["docker", "rmi", "-f", *engine_images()], capture_output=True, check=True)
    cold = tmp_path / "cache"
    found = project.cell("-s", NUMPY, *project.layers, cache=cold)
    assert not found["image"]["reused"]
    assert found["image"]["content"] == built["image"]["content"]
    assert not (cold / "wheels").exists(), "a wheel was downloaded"
    assert not (cold / "rootfs").exists(), "a rootfs was made"
    blobs = {path.name for path in (cold / "layers" / "blobs" / "sha256").iterdir()}
    assert blobs == {digest.partition(":")[2] for digest in project.image(built["image"]["pushed"])[2]}


def test_the_layout_is_one_that_the_engine_runs(
    project: Project, built: dict[str, Any], tmp_path: Path
) -> None:
    layout = tmp_path / "layout"
    found = project.cell("-s", NUMPY, "--engine", "none", "--output", str(layout))
    index = json.loads((layout / "index.json").read_bytes())
    (entry,) = index["manifests"]
    assert entry["digest"] == found["image"]["digest"]
    assert found["image"]["content"] == built["image"]["content"]
    subprocess.run(["docker", "rmi", "-f", *engine_images()], capture_output=True, check=True)
    with subprocess.Popen(["tar", "-C", layout, "-c", "."], stdout=subprocess.PIPE) as tar:
        subprocess.run(["docker", "load"], stdin=tar.stdout, capture_output=True, check=True)
    (name,) = engine_images()
    assert name == f"rtbuild/noengine:{found['id']}"
    script = "import ctypes, numpy; ctypes.CDLL('libnvrtc.so.11.2')"
    script += "; print(numpy.__version__, numpy.__cached__)"
    done = subprocess.run(
        ["docker", "run", "--rm", "--network=none", name, "python", "-c", script],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("1.23.5 ")
    assert "cpython-39.pyc" in done.stdout


def test_the_tree_is_that_of_a_plain_build(project: Project, built: dict[str, Any], tmp_path: Path) -> None:
    """There the base is below the large wheels, here above them; files, modes, owners and links are equal."""
    rtbuild(project.folder, "render", "noengine.yaml", "-s", NUMPY, "-o", str(tmp_path), "--progress", "none")
    (recipe,) = tmp_path.iterdir()
    history = json.loads(project.image(built["image"]["pushed"])[1])["history"]
    titles = [entry.get("created_by", "") for entry in history]
    assert titles.index("rtbuild: nvidia-cuda-nvrtc-cu11 11.8.89") < titles.index("rtbuild: rootfs bullseye")
    secrets = [f"--secret=id=ca,src={os.environ['SSL_CERT_FILE']}"] if os.environ.get("SSL_CERT_FILE") else []
    name = "rtbuild/noengine:plain"
    subprocess.run(["docker", "build", "-q", "-t", name, *secrets, str(recipe)], check=True, timeout=300)
    ours = project.cell("-s", NUMPY)["image"]["reference"]
    plain, stacked = tree(name), tree(ours)
    assert {path for path in plain if path.startswith("opt/runtime/lib/python/site-packages/numpy/")}
    assert {path: (plain.get(path), stacked.get(path)) for path in plain.keys() | stacked.keys()
            if plain.get(path) != stacked.get(path)} == {}  # fmt: skip


def test_a_registry_that_dies_in_a_push_and_comes_back(project: Project, built: dict[str, Any]) -> None:
    options = ("-s", NUMPY, "--engine", "none", *project.layers, "--push")
    with unreliable.before(project.host) as proxy:
        there = Project(project.folder, proxy.host)
        proxy.fault = lambda _number, method, path: "half" if method in {"PUT", "PATCH"} else None
        failed = there.build(*options, there.repository("dies"), check=5)
        (cell,) = json.loads(failed.stdout)["cells"]
        assert (cell["error"]["kind"], cell["stage"]) == ("RegistrySilentError", "push")
        assert Registry.to_write().tags(project.repository("staging")), "the registry itself is well"
        proxy.fault = lambda _number, _method, _path: None
        done = there.cell(*options, there.repository("dies"))
    assert done["image"]["content"] == built["image"]["content"]
    assert not done["image"]["reused"]


def test_two_at_once_make_one_image(project: Project, built: dict[str, Any], tmp_path: Path) -> None:
    """Two processes, one cold cache, one repository."""
    options = ("-s", SIX, "--engine", "none", *project.layers, "--push")
    found: list[dict[str, Any]] = []

    def build() -> None:
        found.append(project.cell(*options, project.repository("two"), cache=tmp_path / "cache"))

    threads = [threading.Thread(target=build) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 2
    assert found[0]["image"]["digest"] == found[1]["image"]["digest"]


def test_it_needs_no_root(project: Project, built: dict[str, Any], tmp_path: Path) -> None:
    """As a user who is nobody: what the registry lacks is converted, and the steps run in a namespace."""
    options = ("-s", SIX, "--engine", "none", "--push")
    nobody = ("unshare", "--user", f"--map-user={NOBODY}", f"--map-group={NOBODY}")
    found = project.cell(
        *options, project.repository("nobody"), *project.layers,
        cache=tmp_path / "cache", before=nobody,
    )  # fmt: skip
    assert (tmp_path / "cache" / "wheels").is_dir()
    again = project.cell(*options, project.repository("root"))
    assert found["image"]["digest"] == again["image"]["digest"]
