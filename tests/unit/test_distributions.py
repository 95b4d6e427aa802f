"""What people install: rtbuild's wheel in an empty folder, and the probe as a distribution of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROBE = ROOT / "packages" / "cudnn-verify"
PYTHONS = sorted(Path("~/.pyenv/versions").expanduser().glob("3.*/bin/python3")) or [Path(sys.executable)]


def _version(python: Path) -> tuple[int, ...]:
    """Of ``~/.pyenv/versions/3.11.7/bin/python3``; this environment's own without pyenv."""
    name = python.parts[-3]
    return tuple(map(int, name.split("."))) if name[0].isdigit() else sys.version_info[:3]


def built(project: Path, folder: Path, target: str) -> Path:
    """The wheel or source distribution of a project, by its own build backend and without a network."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", str(folder)]
    subprocess.run(command, cwd=project, check=True, capture_output=True)
    (found,) = folder.glob("*.whl" if target == "wheel" else "*.tar.gz")
    return found


def run(*command: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "RTBUILD"))}
    return subprocess.run(command, cwd=cwd, env=kept | env, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def rtbuild(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an unpacked wheel; its requirements come from this environment."""
    wheel = built(ROOT, tmp_path_factory.mktemp("dist"), "wheel")
    folder = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


@pytest.fixture(scope="module")
def probe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(PROBE, tmp_path_factory.mktemp("probe"), "wheel")


def call(rtbuild: Path, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    code = f"import sys; sys.path.insert(0, {str(rtbuild)!r}); from builder.cli import main; main()"
    return run(sys.executable, "-c", code, *words, cwd=cwd)


@pytest.mark.slow
def test_the_wheel_works_in_an_empty_folder(rtbuild: Path, tmp_path: Path) -> None:
    matrix = (ROOT / "matrices" / "tf28.yaml").read_text()
    (tmp_path / "tf28.yaml").write_text(matrix)
    listed = call(rtbuild, "list", "tf28.yaml", "--json", cwd=tmp_path)
    assert listed.returncode == 0, listed.stderr
    assert json.loads(listed.stdout)["chosen"]
    checked = call(rtbuild, "check", "tf28.yaml", cwd=tmp_path)
    assert checked.returncode == 0, checked.stderr
    printed = call(rtbuild, "probe", cwd=tmp_path)
    assert printed.stdout.startswith("#!/usr/bin/env python3\n# cudnn-verify")


def test_the_wheel_has_the_schemas_and_the_projects_matrices(rtbuild: Path) -> None:
    schemas = {path.name for path in (rtbuild / "builder" / "_schemas").iterdir()}
    assert schemas == {path.name for path in (ROOT / "docs").glob("*.schema.json")}
    matrices = {path.name for path in (rtbuild / "builder" / "_matrices").glob("*.yaml")}
    assert matrices == {path.name for path in (ROOT / "matrices").glob("*.yaml")}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(path.name for path in (ROOT / "docs").glob("*.schema.json")))
def test_every_schema_has_a_name_of_its_own(name: str, rtbuild: Path, tmp_path: Path) -> None:
    kind = name.removesuffix(".schema.json")
    document = json.loads((ROOT / "docs" / name).read_text())
    assert document["$id"] == f"urn:rtbuild:schema:{kind}:1"
    shown = call(rtbuild, "schema", kind, cwd=tmp_path)
    assert json.loads(shown.stdout) == document


def test_the_probes_distribution_is_one_file(probe: Path) -> None:
    with zipfile.ZipFile(probe) as archive:
        names = [name for name in archive.namelist() if ".dist-info/" not in name]
        text = archive.read("cudnn_verify.py")
    assert names == ["cudnn_verify.py"]
    assert (
        text
        == subprocess.run(
            [sys.executable, "-m", "builder.image.recipe.probe_file"],
            cwd=ROOT,
            check=True,
            capture_output=True,
        ).stdout
    )
    assert probe.name.endswith("-py3-none-any.whl")


def test_its_source_distribution_builds_the_same_wheel(probe: Path, tmp_path: Path) -> None:
    archive = built(PROBE, tmp_path / "sdist", "sdist")
    subprocess.run(["tar", "-xzf", str(archive)], cwd=tmp_path, check=True)
    again = built(tmp_path / archive.name.removesuffix(".tar.gz"), tmp_path / "again", "wheel")
    assert again.read_bytes() == probe.read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("python", PYTHONS, ids=lambda path: path.parts[-3])
def test_it_runs_as_a_command_and_as_a_module(python: Path, probe: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(probe) as archive:
        archive.extractall(tmp_path)
        entry = archive.read(next(n for n in archive.namelist() if n.endswith("entry_points.txt"))).decode()
    assert "cudnn-verify = cudnn_verify:probe" in entry
    module = run(str(python), "-m", "cudnn_verify", "--version", cwd=tmp_path, PYTHONPATH=str(tmp_path))
    assert module.returncode == 0, module.stderr
    command = "import sys; from cudnn_verify import probe; sys.argv[1:] = ['--version']; sys.exit(probe())"
    script = run(str(python), "-c", command, cwd=tmp_path, PYTHONPATH=str(tmp_path))
    assert script.stdout == module.stdout
    assert "cudnn-verify 0." in module.stdout


@pytest.mark.wheels
@pytest.mark.parametrize(
    "python",
    [
        pytest.param(one, marks=pytest.mark.nightly if _version(one)[:2] == (3, 12) else ())
        for one in PYTHONS
        if _version(one) >= (3, 11)
    ],
    ids=lambda path: path.parts[-3],
)
def test_it_installs_into_a_clean_environment_and_works_there(python: Path, tmp_path: Path) -> None:
    wheel = built(ROOT, tmp_path / "dist", "wheel")
    uv = str(Path(sys.executable).parent / "uv")
    subprocess.run([uv, "venv", "-q", "--python", str(python), str(tmp_path / "env")], check=True)
    inside = str(tmp_path / "env/bin/python")
    subprocess.run([uv, "pip", "install", "-q", "--python", inside, str(wheel)], check=True)
    empty = tmp_path / "empty"
    empty.mkdir()
    rtbuild = str(tmp_path / "env/bin/rtbuild")
    for command in (
        ["init", "torch", "--gpu", "T4", "--offline"],
        ["check"],
        ["schema", "lock"],
        ["probe", "--output", "cudnn_verify.py"],
        ["catalogue", "--output", "site"],
    ):
        done = run(rtbuild, *command, cwd=empty, RTBUILD_CACHE=str(tmp_path / "cache"))
        assert done.returncode == 0, f"{command}: {done.stderr}"
    assert (empty / "site/index.html").is_file()


@pytest.mark.wheels
@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13", "3.14"])
def test_every_requirement_has_a_wheel_for(version: str, tmp_path: Path) -> None:
    wheel = built(ROOT, tmp_path, "wheel")
    command = [str(Path(sys.executable).parent / "uv"), "pip", "compile", "-q", "--only-binary", ":all:", "-"]
    command += ["--python-version", version, "--python-platform", "x86_64-unknown-linux-gnu"]
    asked = f"rtbuild @ {wheel.as_uri()}"
    done = subprocess.run(command, input=asked, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "typer==" in done.stdout
