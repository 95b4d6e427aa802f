"""Exports, installed by the tools that they are for: uv, and pip where this Python has it."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import pytest
import yaml
from doubles.package_index import PackageIndexDouble, sha256
from lock_values import lock_cell
from packaging.pylock import Pylock
from rtbuild_command import called
from uv import find_uv_bin

from builder.cli.commands.venv import export
from builder.core.errors import PackageIndexError
from builder.core.model import Base, Cuda, Pinned, RootfsBase, Wheel
from builder.plan.lock.export import FORMATS, Form, lost_by, official_images, pip_line, written
from builder.plan.matrix import load
from builder.sources.index import Index
from builder.sources.index.uv import IndexSettings

if TYPE_CHECKING:
    from doubles.http_server import Server

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


@pytest.fixture
def pinned(fake_index: PackageIndexDouble, server: Server, tmp_path: Path) -> Pinned:
    """Two packages of the default index, one of which forbids the other, and one of another index."""
    own = PackageIndexDouble(server, tmp_path / "own", prefix="/own")
    paths = [
        fake_index.add("six", "1.16.0"),
        fake_index.add("framework", "2.0", requires=("six<1.16", "plug_in")),
        own.add("plug-in", "3.1+cu126"),
    ]
    fake_index.add("six", "1.15.0")
    fake_index.add("plug-in", "9.9")
    wheels = []
    for path in paths:
        name, version = path.name.split("-")[:2]
        wheels.append(
            Wheel(
                name=name.replace("_", "-"),
                version=version,
                file=path.name,
                sha256=sha256(path.read_bytes()),
                size=path.stat().st_size,
                uploaded=1_668_710_974,
            )
        )
    cell = lock_cell(
        "framework2.0",
        frameworks=("framework==2.0",),
        python=PYTHON,
        cuda=Cuda(provider="none"),
        pip=("six==1.16.0",),
        apt=("git",),
        env=(("TF_X", "a\nb"),),
        index=(own.url,),
    )
    return Pinned(
        cell=cell, base=RootfsBase(suite="bookworm", debs=(), epoch=1), wheels=tuple(wheels), epoch=1
    )


@pytest.fixture
def index(fake_index: PackageIndexDouble, monkeypatch: pytest.MonkeyPatch) -> Index:
    monkeypatch.setenv("UV_DEFAULT_INDEX", fake_index.url)
    monkeypatch.setenv("PIP_INDEX_URL", fake_index.url)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    return Index(IndexSettings(default=fake_index.url))


def _text(pinned: Pinned, index: Index, form: Form) -> str:
    return written(pinned, form, index.with_extra(pinned.cell.index).place)


def _uv(*words: str, folder: Path) -> None:
    done = subprocess.run([find_uv_bin(), *words], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def _installed(folder: Path) -> dict[str, str]:
    found = subprocess.run(
        [find_uv_bin(), "pip", "list", "--format", "json", "--python", ".venv"],
        cwd=folder,
        capture_output=True,
        check=True,
    )
    return {row["name"]: row["version"] for row in json.loads(found.stdout)}


LOCKED = {"six": "1.16.0", "framework": "2.0", "plug-in": "3.1+cu126"}


def test_pylock_is_installed_by_uv(pinned: Pinned, index: Index, tmp_path: Path) -> None:
    text = _text(pinned, index, "pylock")
    read = Pylock.from_dict(tomllib.loads(text))
    assert {package.name: str(package.version) for package in read.packages} == LOCKED
    (tmp_path / "pylock.toml").write_text(text)
    _uv("venv", "-q", "--python", sys.executable, folder=tmp_path)
    _uv("pip", "sync", "-q", "--python", ".venv", "pylock.toml", folder=tmp_path)
    assert _installed(tmp_path) == LOCKED


def test_requirements_are_installed_by_hash(pinned: Pinned, index: Index, tmp_path: Path) -> None:
    path = tmp_path / "requirements.txt"
    path.write_text(_text(pinned, index, "requirements"))
    _uv("venv", "-q", "--python", sys.executable, folder=tmp_path)
    install = ("pip", "install", "-q", "--python", ".venv", "--no-deps", "--require-hashes")
    _uv(*install, "--index-strategy", "unsafe-best-match", "-r", path.name, folder=tmp_path)
    assert _installed(tmp_path) == LOCKED
    if importlib.util.find_spec("pip"):
        words = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--require-hashes"]
        subprocess.run([*words, "--target", tmp_path / "by-pip", "-r", path], check=True)
        assert (tmp_path / "by-pip" / "plug_in-3.1+cu126.dist-info").is_dir()


def test_uv_keeps_the_releases_that_were_locked(pinned: Pinned, index: Index, tmp_path: Path) -> None:
    """framework declares six<1.16, and the plug-in of the default index is newer: neither is taken."""
    (tmp_path / "pyproject.toml").write_text(_text(pinned, index, "uv"))
    _uv("sync", "-q", "--python", sys.executable, folder=tmp_path)
    assert _installed(tmp_path) == LOCKED


@pytest.mark.parametrize("form", ["pylock", "uv"])
def test_without_a_network_the_cache_s_files_are_installed(
    form: Form, pinned: Pinned, server: Server, tmp_path: Path
) -> None:
    kept = {sha256(path.read_bytes()): path for path in tmp_path.rglob("*.whl")}
    text = written(pinned, form, kept)
    assert server.url not in text
    folder = tmp_path / "there"
    folder.mkdir()
    offline = ("--offline", "--no-cache", "-q")
    _uv("venv", "-q", "--python", sys.executable, folder=folder)
    if form == "uv":
        (folder / "pyproject.toml").write_text(text)
        _uv("sync", *offline, "--python", sys.executable, folder=folder)
    else:
        Pylock.from_dict(tomllib.loads(text))
        (folder / "pylock.toml").write_text(text)
        _uv("pip", "sync", *offline, "--python", ".venv", "pylock.toml", folder=folder)
    assert _installed(folder) == LOCKED


def test_a_file_that_the_cache_lacks_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    matrix = Path(__file__).resolve().parents[4] / "benchmarks" / "matrices" / "tf.yaml"
    cache = tmp_path / "cache"
    monkeypatch.setenv("RTBUILD_CACHE", str(cache))
    first = load(matrix).cells[0].id
    with pytest.raises(PackageIndexError, match="files are not in the cache") as caught:
        called(export, first, [matrix], offline=True)
    paths = [Path(line.split(": ", 1)[1]) for line in caught.value.message.splitlines()[1:]]
    for path in paths:
        assert path.is_relative_to(cache)
        path.parent.mkdir(parents=True)
        path.touch()
    assert called(export, first, [matrix], offline=True) == 0
    packages = tomllib.loads(capsys.readouterr().out)["packages"]
    assert {Path(one["wheels"][0]["path"]) for one in packages} == set(paths)
    paths[0].unlink()
    with pytest.raises(PackageIndexError, match=r"1 of \d+ files are not in the cache"):
        called(export, first, [matrix], offline=True)
    for form in ("requirements", "constraints", "conda"):
        assert called(export, first, [matrix], form, offline=True) == 0


def test_constraints_and_conda_name_the_same_versions(pinned: Pinned, index: Index) -> None:
    lines = _text(pinned, index, "constraints").splitlines()
    assert dict(line.split("==") for line in lines if not line.startswith("#")) == LOCKED
    python, pip, packages = yaml.safe_load(_text(pinned, index, "conda"))["dependencies"]
    assert (python, pip) == (f"python={PYTHON}", "pip")
    first, *pins = packages["pip"]
    assert first == f"--extra-index-url {pinned.cell.index[0]}"
    assert dict(line.split("==") for line in pins) == LOCKED


def test_every_form_is_written() -> None:
    assert tuple(FORMATS) == get_args(Form)


@pytest.mark.parametrize("form", sorted({*FORMATS} - {"apptainer"}))
def test_each_form_of_packages_says_what_it_does_not_carry(pinned: Pinned, index: Index, form: Form) -> None:
    text = _text(pinned, index, form)
    assert lost_by(pinned) == [
        "the base rootfs:debian/bullseye",
        "Debian's packages git",
        "the variable TF_X='a\\nb'",
    ]
    assert all(f"#   {lost}\n" in text for lost in lost_by(pinned))


def test_the_compilers_are_among_the_packages_that_stay_behind(pinned: Pinned) -> None:
    with_compilers = replace(pinned, cell=replace(pinned.cell, compilers=True))
    assert any("g++, gcc" in text for text in lost_by(with_compilers))


def test_the_loaders_list_of_nvidias_wheels_is_said(pinned: Pinned) -> None:
    """The image's ld.so.conf has their folders, and TensorFlow up to 2.13 finds cuDNN by that alone."""
    cuda = Cuda(provider="wheels", packages=("nvidia-cudnn-cu11==8.6.0.163",))
    said = lost_by(replace(pinned, cell=replace(pinned.cell, cuda=cuda)))
    assert any("nvidia/*/lib, in LD_LIBRARY_PATH" in text for text in said)
    assert not any("libnvrtc.so" in text for text in said)


@pytest.mark.parametrize(("version", "lost"), [("8.6.0.163", True), ("9.1.0.70", False)])
def test_the_link_that_cudnn_8_opens_is_said(pinned: Pinned, version: str, lost: bool) -> None:
    cudnn = replace(pinned.wheels[0], name="nvidia-cudnn-cu11", version=version)
    cell = replace(pinned.cell, cuda=Cuda(provider="wheels", packages=(f"nvidia-cudnn-cu11=={version}",)))
    said = lost_by(replace(pinned, cell=cell, wheels=(*pinned.wheels, cudnn)))
    assert any("libnvrtc.so" in text for text in said) is lost


def test_uv_takes_a_project_of_a_matrix_that_is_named_as_its_framework(
    pinned: Pinned, index: Index, tmp_path: Path
) -> None:
    """uv refuses a project that depends on its own name, and most matrices are named as a framework is."""
    named = replace(pinned, cell=replace(pinned.cell, matrix="framework"))
    (tmp_path / "pyproject.toml").write_text(_text(named, index, "uv"))
    _uv("lock", "-q", "--python", sys.executable, folder=tmp_path)


def test_cuda_of_the_base_is_said(pinned: Pinned) -> None:
    based = replace(
        pinned.cell, cuda=Cuda(provider="base"), base=Base(kind="registry", name="nvidia/cuda:12.6.3-cudnn")
    )
    assert "CUDA and cuDNN: the system has to have them" in lost_by(replace(pinned, cell=based))[0]


def test_a_file_that_no_index_has_any_more(pinned: Pinned, index: Index) -> None:
    with pytest.raises(PackageIndexError, match="is in none of the indexes"):
        index.place(pinned.wheels[2])  # asked without the cell's own index


def test_no_login_gets_into_an_export(fake_index: PackageIndexDouble, pinned: Pinned) -> None:
    secret = fake_index.url.replace("://", "://user:s3cret@")
    found = Index(IndexSettings(default=secret)).place(pinned.wheels[0])
    assert "s3cret" not in "".join(found)
    assert found[0] == fake_index.url


def test_what_is_built_against_the_framework_is_installed_after_it_without_pips_own_environment() -> None:
    bounds = ("torch-scatter>=2", "numpy<2", "setuptools<70")
    cell = lock_cell("a", frameworks=("torch==1.9.1",), cuda=Cuda(provider="wheels"), pip=bounds)
    line = pip_line(cell)
    first, _, second = str(line).partition(" && ")
    assert first == "pip install torch==1.9.1 'numpy<2' 'setuptools<70' wheel"
    assert second == "pip install --no-build-isolation 'torch-scatter>=2'"
    assert pip_line(replace(cell, pip=("numpy<2",))) == "pip install torch==1.9.1 'numpy<2'"


def flat_index(folder: Path, *names: str) -> str:
    """A folder with wheels of these names, of no content but their metadata, as an index of uv's."""
    folder.mkdir(parents=True)
    for name in names:
        distribution, version = name.split("-")[:2]
        info = f"{distribution}-{version}.dist-info"
        with zipfile.ZipFile(folder / f"{name}.whl", "w") as wheel:
            wheel.writestr(
                f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n"
            )
            wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: false\n")
            wheel.writestr(f"{info}/RECORD", "")
    return folder.as_uri()


def project_of_docs(number: int, folder: Path) -> None:
    """A ``pyproject.toml`` of docs/export.md, with folders in the place of PyTorch's indexes."""
    text = (Path(__file__).parents[4] / "docs" / "export.md").read_text()
    project = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)[number]
    linux, mac = "manylinux_2_28_x86_64", "macosx_11_0_arm64"
    for variant, names in {
        "cu126": [f"torch-2.7.1+cu126-cp311-cp311-{linux}", "torch-2.7.1+cu126-cp311-cp311-win_amd64"],
        "cpu": [
            f"torch-2.7.1+cpu-cp311-cp311-{linux}",
            "torch-2.7.1+cpu-cp311-cp311-win_amd64",
            f"torch-2.7.1-cp311-none-{mac}",
        ],
    }.items():
        url = f'url = "https://download.pytorch.org/whl/{variant}"'
        assert url in project
        here = f'url = "{flat_index(folder / variant, *names)}"\nformat = "flat"'
        project = project.replace(url, here)
    (folder / "pyproject.toml").write_text(project)


def uv_in(folder: Path, *words: str) -> str:
    environment = {"UV_OFFLINE": "1", "UV_PYTHON_DOWNLOADS": "never", "UV_CACHE_DIR": str(folder / "cache")}
    done = subprocess.run(
        [find_uv_bin(), *words],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_one_project_is_locked_for_linux_with_cuda_and_for_a_mac(tmp_path: Path) -> None:
    """The project of docs/export.md: CUDA on Linux, the CPU elsewhere, one lock."""
    project_of_docs(0, tmp_path)
    uv_in(tmp_path, "lock")
    exported = uv_in(tmp_path, "export", "--no-hashes", "--no-emit-project")
    lines = dict(reversed(line.split(" ; ")) for line in exported.splitlines() if line.startswith("torch"))
    assert lines["sys_platform == 'linux'"] == "torch==2.7.1+cu126"
    assert lines["sys_platform == 'darwin'"] == "torch==2.7.1"
    assert lines["sys_platform == 'win32'"] == "torch==2.7.1+cpu"


@pytest.mark.parametrize("extra", ["cpu", "cu126"])
def test_an_own_package_has_an_extra_for_each_cuda(extra: str, tmp_path: Path) -> None:
    project_of_docs(1, tmp_path)
    uv_in(tmp_path, "lock")
    exported = uv_in(tmp_path, "export", "--no-hashes", "--no-emit-project", "--extra", extra)
    linux = [line for line in exported.splitlines() if line.startswith("torch==2.7.1+")]
    assert [line.partition(" ")[0] for line in linux] == [f"torch==2.7.1+{extra}"]


@pytest.mark.parametrize(
    ("framework", "pip", "image"),
    [
        ("torch==2.14.1+cu126", (), "pytorch/pytorch:2.14.1-cuda12.6-cudnn9-runtime`"),
        ("torch==2.14.0", ("vllm==0.33.0",), "vllm/vllm-openai:v0.33.0`"),
        ("tensorflow==2.15.1", (), "tensorflow/tensorflow:2.15.1-gpu`"),
        ("torch==99.0", (), None),  # whose CUDA nobody read
        ("torch", ("vllm",), None),
        ("jax[cuda12]==0.6.0", (), None),
    ],
)
def test_the_maker_s_image_is_told_by_the_form_of_its_tags(
    framework: str, pip: tuple[str, ...], image: str | None
) -> None:
    told = list(official_images(lock_cell("one", frameworks=(framework,), pip=pip)))
    assert len(told) == (image is not None)
    assert (image or "") in "".join(told)
    assert all("lists those that there are" in line for line in told)


def test_apptainer_gets_the_systems_packages_the_variables_and_a_job_that_stops(
    pinned: Pinned, index: Index
) -> None:
    """A definition is more than packages; with CUDA the job has --nv, and checks the card first."""
    cuda = replace(pinned.cell, cuda=Cuda(provider="wheels"), frameworks=("torch==2.7.1",))
    text = _text(replace(pinned, cell=cuda), index, "apptainer")
    definition = text.partition("set -euo pipefail")[2]
    check, run = (line for line in definition.splitlines() if "apptainer exec" in line)
    assert check.startswith("#   apptainer exec --nv ")
    assert ".cuda()" in check
    assert run.endswith(" python train.py")
    assert "apptainer build --fakeroot" in text
    assert "From: debian:bullseye-slim\n" in text
    assert " git" in definition.partition("apt-get install")[2].splitlines()[0]
    assert "    export TF_X='a\nb'\n" in definition
    assert "nvidia/*/lib" in definition
    hashed = re.findall(r"(?m)^(\S+)==(\S+) --hash=sha256:\w{64}$", definition)
    assert dict(hashed) == LOCKED
    assert 'bin/python -c "import torch"' in definition.partition("%test")[2]
    assert lost_by(pinned, "apptainer") == [
        "the digest of the base rootfs:debian/bullseye: debian:bullseye-slim is taken as it is"
    ]


def test_apptainer_without_cuda_has_no_nv_and_its_base_is_the_registrys(pinned: Pinned, index: Index) -> None:
    based = replace(pinned.cell, base=Base(kind="registry", name="ubuntu:22.04"))
    text = _text(replace(pinned, cell=based), index, "apptainer")
    assert "--nv" not in text
    assert "#SBATCH --gpus" not in text
    assert "From: ubuntu:22.04\n" in text
