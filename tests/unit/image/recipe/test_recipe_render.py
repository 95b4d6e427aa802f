"""Rendering is a function of the lock, and its digest moves with everything that decides the image."""

from __future__ import annotations

import dataclasses
import json
import re

import pytest
import recipe_cells

from builder.core.errors import CellError
from builder.core.model import Options, StandalonePython
from builder.image.recipe.rendering import render


def of(pinned, *, probe=recipe_cells.PROBE, version="0.1.0"):
    return render(pinned, probe=probe, version=version)


@pytest.mark.parametrize("name", recipe_cells.LOCKS)
def test_twice_the_same(name):
    first, second = of(recipe_cells.LOCKS[name]), of(recipe_cells.LOCKS[name])
    assert first == second


def test_large_files():
    assert of(recipe_cells.ROOTFS_WHEELS).blobs == {
        "rootfs.tar": recipe_cells.BULLSEYE,
        recipe_cells.PIP.file: recipe_cells.PIP,
    }
    assert of(recipe_cells.CPU).blobs == {recipe_cells.PIP.file: recipe_cells.PIP}


def test_inputs_stand_in_the_image():
    recipe = of(recipe_cells.CPU)
    found = re.search(r'LABEL io\.rtbuild\.inputs="(.*)"', recipe.files["Dockerfile"].content.decode())
    assert found is not None
    assert found[1] == recipe.inputs
    assert re.fullmatch("sha256:[0-9a-f]{64}", recipe.inputs)


def change(pinned, **fields):
    return dataclasses.replace(pinned, cell=dataclasses.replace(pinned.cell, **fields))


@pytest.mark.parametrize(
    "other",
    [
        of(recipe_cells.CPU, probe=b"another probe"),
        of(recipe_cells.CPU, version="0.2.0"),
        of(change(recipe_cells.CPU, env=(("A", "1"),))),
        of(change(recipe_cells.CPU, apt=("libgomp1",))),
        of(change(recipe_cells.CPU, id="another")),
        of(change(recipe_cells.CPU, options=Options(compression="gzip"))),
        of(change(recipe_cells.CPU, options=Options(strict_cudnn=True))),
        of(dataclasses.replace(recipe_cells.CPU, epoch=1)),
        of(dataclasses.replace(recipe_cells.CPU, base=recipe_cells.registry("ubuntu:22.04"))),
        of(dataclasses.replace(recipe_cells.CPU, wheels=(recipe_cells.PIP,))),
    ],
    ids=["probe", "version", "env", "apt", "id", "compression", "strict", "epoch", "base", "wheels"],
)
def test_inputs_move_with(other):
    assert other.inputs != of(recipe_cells.CPU).inputs


def test_inputs_do_not_move_with_what_decides_nothing():
    assert of(change(recipe_cells.CPU, gpus=("T4",))).inputs == of(recipe_cells.CPU).inputs


def test_the_order_of_layers_is_not_the_order_of_requirements():
    turned = dataclasses.replace(recipe_cells.ROOTFS_WHEELS, wheels=recipe_cells.ROOTFS_WHEELS.wheels[::-1])
    first, second = of(recipe_cells.ROOTFS_WHEELS), of(turned)
    assert first.files["requirements.txt"] == second.files["requirements.txt"]


def test_without_pip_nothing_could_be_installed():
    with pytest.raises(CellError, match="holds no pip") as caught:
        of(dataclasses.replace(recipe_cells.CPU, wheels=()))
    assert "rtbuild lock" in str(caught.value)


def env(pinned):
    lines = of(pinned).files["Dockerfile"].content.decode().splitlines()
    return [line.removeprefix("ENV ").partition("=")[0] for line in lines if line.startswith("ENV ")]


def test_the_driver_is_asked_for_once():
    asked = ["NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES"]
    assert env(recipe_cells.ROOTFS_WHEELS)[2:] == asked
    assert env(recipe_cells.NVIDIA_TORCH) == ["PATH", "CUDNN_VERIFY_EXPECT"]  # its base says it
    assert env(recipe_cells.CPU) == ["PATH", "CUDNN_VERIFY_EXPECT"]
    assert (
        env(change(recipe_cells.ROOTFS_WHEELS, env=(("NVIDIA_VISIBLE_DEVICES", "0"),))).count(asked[0]) == 1
    )


def test_the_path_of_the_base_is_kept():
    text = of(recipe_cells.NVIDIA_CUDNN).files["Dockerfile"].content.decode()
    assert f'ENV PATH="/opt/runtime/bin:{recipe_cells.NVIDIA_PATH}"' in text


@pytest.mark.parametrize(
    ("python", "wanted"), [("3.8", True), ("3.11", True), ("3.12", False), ("3.14", False), ("3.6", True)]
)
def test_distutils_until_python_3_12(python, wanted):
    text = of(change(recipe_cells.NVIDIA_TORCH, python=python)).files["Dockerfile"].content.decode()
    assert ("python3-distutils" in text) is wanted


@pytest.mark.parametrize(
    ("standalone", "added"), [(False, ["g++", "gcc", "libpython3.10-dev"]), (True, ["g++", "gcc"])]
)
def test_compilers_come_from_the_bases_own_archive(standalone, added):
    """A standalone Python has its headers with it; a package that the matrix names is asked for once."""
    python = recipe_python() if standalone else None
    pinned = dataclasses.replace(change(recipe_cells.NVIDIA_TORCH, python="3.10"), python=python)
    for apt in ((), ("git", "g++=4:11.2.0")):
        asked = dataclasses.replace(pinned, cell=dataclasses.replace(pinned.cell, apt=apt, compilers=True))
        text = of(asked).files["Dockerfile"].content.decode()
        found = re.findall(r'^set -- "\$@" (\S+)$', text, re.MULTILINE)
        wanted = [*apt, *(name for name in added if not (apt and name == "g++"))]
        assert [name.strip("'\"") for name in found] == wanted


def test_the_probe_is_told_of_compilers_alone_where_there_are_some():
    pinned = change(recipe_cells.ROOTFS_WHEELS, compilers=True)
    assert json.loads(of(pinned).files["expect.json"].content)["compilers"] is True
    assert b"compilers" not in of(recipe_cells.ROOTFS_WHEELS).files["expect.json"].content


def test_the_probe_is_told_what_code_imports_alone_where_the_cell_says_so():
    pinned = change(recipe_cells.ROOTFS_WHEELS, imports=("moviepy.editor", "openai:OpenAI"))
    asked = json.loads(of(pinned).files["expect.json"].content)
    assert asked["imports"] == ["moviepy.editor", "openai:OpenAI"]
    assert b"imports" not in of(recipe_cells.ROOTFS_WHEELS).files["expect.json"].content


def recipe_python():
    return StandalonePython(version="3.10.9", build="20261110", file="python.tar.gz", sha256="0" * 64, size=1)
