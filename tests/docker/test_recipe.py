"""Recipes that plain ``docker build`` builds, looked at from inside the image and from outside."""

from __future__ import annotations

import dataclasses
import gzip
import json
import os
import subprocess
import tarfile
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import cuda_base
import pytest
import registry as loopback

from builder.core import resources
from builder.core.model import Base, Cell, Cuda, RootfsBase
from builder.image.compose.systems import Pythons, cached_rootfs
from builder.image.recipe.rendering import render
from builder.image.recipe.values import write
from builder.image.sdist import Workshop
from builder.plan.lock.pinning import pin
from builder.sources.debian import Debian
from builder.sources.index.client import Index
from builder.sources.oci.registry import Registry

if TYPE_CHECKING:
    from builder.image.recipe.values import Recipe

pytestmark = [pytest.mark.docker, pytest.mark.long]

NASTY = "a \"b\" $HOME ${PATH} `id` $(id) \\ \\\\ 'x' #c <<EOF ü \\"
PROBE = b"#!/usr/bin/env python3\nimport sys\nprint(sys.prefix)\n"
CELL = Cell(
    id="numpy1.23.5-cu118-py3.9-bullseye",
    matrix="small",
    frameworks=("numpy==1.23.5",),
    python="3.9",
    base=Base(kind="rootfs", name="debian/bullseye"),
    cuda=Cuda(provider="wheels", packages=("nvidia-cuda-runtime-cu11==11.8.89",)),
    env=(("NASTY", NASTY),),
)

LOOK = Path(__file__).with_name("look.py").read_text("utf-8")


@dataclass(frozen=True, kw_only=True)
class Context:
    recipe: Recipe
    folder: Path


def context(cell: Cell, folder: Path) -> Context:
    """Lock, render and write ``cell``, with this machine's index and mirror."""
    index, debian = Index.from_user(), Debian()
    with cuda_base.available():
        pinned = pin(
            cell,
            index=index,
            registry=Registry.from_user(),
            debian=debian,
            workshop=Workshop(debian=debian, cache=resources.cache()),
            pythons=Pythons(resources.cache()),
        )
        recipe = render(pinned, probe=PROBE, version="0.1.0")
        blobs = {
            name: cached_rootfs(blob, cache=resources.cache(), fetch=debian.fetch)
            if isinstance(blob, RootfsBase)
            else index.fetch(blob, cache=resources.cache())
            for name, blob in recipe.blobs.items()
        }
    write(recipe, folder, blobs=blobs)
    return Context(recipe=recipe, folder=folder)


def network() -> list[str]:
    """What a user behind a private certificate authority gives to `docker build`."""
    authority = os.environ.get("SSL_CERT_FILE")
    return ["--secret", f"id=ca,src={authority}"] if authority else []


def docker(*command: str) -> str:
    done = subprocess.run(["docker", *command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr.partition("\n------\n")[0][-4000:]
    return done.stdout


def inspect(name: str) -> dict:
    return json.loads(docker("image", "inspect", name))[0]


def run(name: str, *command: str) -> str:
    return docker("run", "--rm", "--network=none", "--entrypoint", "", name, *command)


def digest(built: Context, name: str, *options: str, epoch: int | None = None) -> str:
    """Build from nothing, as README.txt says it for equal digests; ``epoch`` for another than the lock's."""
    docker(
        "buildx", "build", "--no-cache", "--provenance=false", "--sbom=false",
        "--build-arg", f"SOURCE_DATE_EPOCH={epoch or built.recipe.pinned.epoch}", *network(), *options,
        "--output", f"type=image,name={name},oci-mediatypes=true,compression=zstd", str(built.folder),
    )  # fmt: skip
    return inspect(name)["Id"]


@pytest.fixture
def names():
    made = []

    def name() -> str:
        made.append(f"rtbuild-test/{uuid.uuid4().hex[:12]}:cell")
        return made[-1]

    yield name
    subprocess.run(["docker", "image", "rm", "--force", *made], capture_output=True, check=False)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return context(CELL, tmp_path_factory.mktemp("recipe") / "cell")


@pytest.fixture(scope="module")
def image(small):
    """The folder's owner has docker and nothing else."""
    name = f"rtbuild-test/{uuid.uuid4().hex[:12]}:cell"
    docker("build", "--tag", name, *network(), str(small.folder))
    yield name
    docker("image", "rm", "--force", name)


def test_the_tree_in_the_image(image, small):
    found = json.loads(run(image, "python3", "-B", "-c", LOOK))
    assert found["links"] == {
        "bin/python": "/usr/bin/python3.9",
        "bin/python3": "python",
        "bin/python3.9": "python",
        "lib/python3.9": "python",
    }
    assert (found["prefix"], found["base"]) == ("/opt/runtime", "/usr")
    assert found["numpy"].startswith("/opt/runtime/lib/")
    assert found["shebang"] == "#!/opt/runtime/bin/python"
    assert found["config"] == "home = /usr/bin\ninclude-system-site-packages = false\n"
    assert found["checked"] == found["strange"] == found["direct"] == []
    assert found["compiled"] > 500
    assert set(found["installer"].values()) == {"pip\n"}
    assert {"numpy", "nvidia-cuda-runtime-cu11", "pip"} <= found["installer"].keys()
    folder = "/opt/runtime/lib/python/site-packages/nvidia/cuda_runtime/lib"
    assert found["loader"] == f"{folder}\n"
    assert f"{folder}/libcudart.so.11.0" in found["cache"]
    assert found["aux"] is found["out"] is False
    assert found["left"] == []
    assert found["home"] == [".bashrc", ".profile"]
    assert found["probe"] == "0o100755"
    assert found["expect"] == json.loads(small.recipe.files["expect.json"].content)


def test_the_probe_runs_by_its_name_with_the_image_s_python(image):
    assert run(image, "cudnn-verify") == "/opt/runtime\n"


def test_variables_and_labels_mean_what_the_matrix_says(image, small):
    config = inspect(image)["Config"]
    env = dict(pair.split("=", 1) for pair in config["Env"])
    assert env["NASTY"] == NASTY
    assert run(image, "printenv", "NASTY") == NASTY + "\n"
    assert env["PATH"].startswith("/opt/runtime/bin:")
    assert (env["NVIDIA_VISIBLE_DEVICES"], env["NVIDIA_DRIVER_CAPABILITIES"]) == ("all", "compute,utility")
    assert config["Labels"]["io.rtbuild.inputs"] == small.recipe.inputs
    assert config["Labels"]["io.rtbuild.cell"] == CELL.id


def test_two_builds_from_nothing_are_one_image(small, image, names):
    first, second = names(), names()
    assert digest(small, first) == digest(small, second)
    assert inspect(first)["RootFS"] == inspect(image)["RootFS"]  # without the build argument, the same layers


def test_no_layer_holds_the_lock_s_date(small, image, names):
    """BuildKit takes a COPY of the same contents from its cache, whatever their times: so these are fixed."""
    other = names()
    digest(small, other, epoch=small.recipe.pinned.epoch - 86_400)
    assert inspect(other)["RootFS"] == inspect(image)["RootFS"]


def test_nothing_of_the_user_s_network_stays(small, names, tmp_path):
    marker = f"marker{uuid.uuid4().hex}"
    authority = Path(os.environ.get("SSL_CERT_FILE") or "/etc/ssl/certs/ca-certificates.crt")
    (tmp_path / "ca.pem").write_text(f"{authority.read_text()}\n# {marker}-ca\n")
    (tmp_path / "pip.conf").write_text(f"[global]\ntimeout = 61\n# {marker}-pip\n")
    (tmp_path / "netrc").write_text(f"machine example.invalid login {marker}-login password {marker}-word\n")
    name = names()
    docker(
        "build", "--no-cache", "--tag", name,
        "--secret", f"id=ca,src={tmp_path}/ca.pem",
        "--secret", f"id=pip_conf,src={tmp_path}/pip.conf",
        "--secret", f"id=netrc,src={tmp_path}/netrc",
        "--build-arg", f"NO_PROXY={marker}-proxy.example.invalid",
        str(small.folder),
    )  # fmt: skip
    assert marker not in docker("history", "--no-trunc", name)
    assert marker not in json.dumps(inspect(name))
    docker("image", "save", "--output", str(tmp_path / "image.tar"), name)
    layers = 0
    with tarfile.open(tmp_path / "image.tar") as archive:
        for member in archive:
            blob = archive.extractfile(member)
            if blob is None:
                continue
            content = blob.read()
            if content[:2] == b"\x1f\x8b":
                content = gzip.decompress(content)
                layers += 1
            assert marker.encode() not in content, member.name
            assert os.uname().nodename.encode() not in content or len(os.uname().nodename) < 8, member.name
    assert layers >= 4


def test_a_wheel_that_is_not_the_locked_one_stops_the_build(small, names, tmp_path):
    wheels = tuple(
        dataclasses.replace(wheel, sha256="0" * 64) if wheel.name == "numpy" else wheel
        for wheel in small.recipe.pinned.wheels
    )
    other = render(dataclasses.replace(small.recipe.pinned, wheels=wheels), probe=PROBE, version="0.1.0")
    write(other, tmp_path / "cell", blobs={name: small.folder / name for name in other.blobs})
    done = subprocess.run(
        ["docker", "build", "--tag", names(), *network(), str(tmp_path / "cell")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert "HASHES" in done.stderr.upper()


@pytest.fixture(scope="module")
def nvidia(tmp_path_factory):
    folder = tmp_path_factory.mktemp("nvidia")
    (folder / "base").mkdir()
    with loopback.serve(folder / "registry") as served:
        yield cuda_base.nvidia_cuda(folder / "base", served.host)


@pytest.mark.nightly
def test_on_nvidia_s_base(nvidia, names, tmp_path):
    """A base without Python, which has CUDA itself: apt-get in the build, the base's variables kept."""
    cell = dataclasses.replace(
        CELL,
        id="numpy1.23.5-cu118-cudnn8.6.0-py3.9",
        base=Base(kind="registry", name=nvidia.reference),
        cuda=Cuda(provider="base"),
        apt=("libgomp1",),
    )
    built = context(cell, tmp_path / "cell")
    assert nvidia.digest == built.recipe.pinned.base.digest
    first, second = names(), names()
    assert digest(built, first) == digest(built, second)

    found = json.loads(run(first, "python3", "-B", "-c", LOOK))
    assert found["prefix"] == "/opt/runtime"
    assert found["loader"] is None
    assert "/usr/local/cuda/targets/x86_64-linux/lib/libcudart.so.11.0" in found["cache"]
    assert "libgomp.so.1" in found["cache"]
    assert found["aux"] is False
    assert found["left"] == []
    assert found["expect"]["cuda"] == {"provider": "base", "version": "11.8"}
    assert found["expect"]["cudnn"] == "8.6.0"
    env = dict(pair.split("=", 1) for pair in inspect(first)["Config"]["Env"])
    assert env["LD_LIBRARY_PATH"] == cuda_base.ENVIRONMENT["LD_LIBRARY_PATH"]
    assert env["PATH"] == "/opt/runtime/bin:" + cuda_base.ENVIRONMENT["PATH"]
    run(first, "python3", "-c", "import distutils")
