"""What stands in front of compilers, and what a build's programs are."""

from __future__ import annotations

import os
import subprocess
import zipfile
from typing import TYPE_CHECKING

import pytest
from doubles.python_mirror import installed

from builder.image.layers.wheel import Archive
from builder.image.sdist.bench import SITE, WRAPPER, jobs, lay_programs, wrap_compilers

if TYPE_CHECKING:
    from pathlib import Path


def test_each_compiler_of_the_system_is_wrapped(tmp_path: Path) -> None:
    there = {"cc", "gcc", "gcc-12", "x86_64-linux-gnu-g++-12", "c++", "gfortran", "clang"}
    folder = tmp_path / "usr/bin"
    folder.mkdir(parents=True)
    for name in (*there, "gcc-ar", "ccache", "python3.11", "x86_64-linux-gnu-ld"):
        (folder / name).touch()
    wrap_compilers(tmp_path, tmp_path / "wrapped")
    assert {path.name for path in (tmp_path / "wrapped").iterdir()} == there


@pytest.mark.parametrize("option", ["-march=native", "-mtune=native", "-mcpu=native"])
def test_code_for_this_very_processor_is_refused(tmp_path: Path, option: str) -> None:
    path = tmp_path / "echo"  # stands for a compiler: the wrapper goes on to /usr/bin of its own name
    path.write_bytes(WRAPPER)
    path.chmod(0o755)
    plain = subprocess.run([path, "-O2", "a b.c"], capture_output=True, text=True, check=True)
    assert plain.stdout == "-O2 a b.c\n"
    refused = subprocess.run([path, "-O2", option], capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert refused.stderr.startswith(f"echo: {option} is not taken")


def test_jobs_are_no_more_than_processors() -> None:
    numbers = set(jobs().values())
    assert len(numbers) == 1
    assert 1 <= int(numbers.pop()) <= len(os.sched_getaffinity(0))


def test_programs_of_wheels_are_there(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "tool.whl", "w") as wheel:
        wheel.writestr("tool-1.dist-info/entry_points.txt", "[console_scripts]\nmeson = tool.main:run\n")
        wheel.writestr("tool-1.data/scripts/ninja", b"\x7fELF")
        wheel.writestr("tool-1.data/scripts/old", b"#!python\nprint(1)\n")
    with Archive(tmp_path / "tool.whl") as archive:
        lay_programs(archive, tmp_path / "bin", program="/usr/bin/python3.11", python="3.11")
    made = {path.name: path.read_bytes() for path in (tmp_path / "bin").iterdir()}
    assert made["meson"].startswith(b"#!/usr/bin/python3.11\nimport sys\nfrom tool.main import run\n")
    assert made["ninja"] == b"\x7fELF"
    assert made["old"] == b"#!/usr/bin/python3.11\nprint(1)\n"
    assert all(os.access(tmp_path / "bin" / name, os.X_OK) for name in made)


def test_entry_points_that_cannot_be_read_are_passed_over(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "tool.whl", "w") as wheel:
        wheel.writestr("tool-1.dist-info/entry_points.txt", "no section = 1\n")
    with Archive(tmp_path / "tool.whl") as archive:
        lay_programs(archive, tmp_path / "bin", program="/usr/bin/python3.11", python="3.11")
    assert not list((tmp_path / "bin").iterdir())


@pytest.mark.parametrize("minor", ["3.12", "3.13"])
def test_a_python_that_a_build_starts_has_what_setuptools_puts_in_the_place_of_distutils(
    tmp_path: Path, minor: str
) -> None:
    if minor not in installed():
        pytest.skip(f"this machine has no CPython {minor}")
    (tmp_path / "sitecustomize.py").write_bytes(SITE)
    (tmp_path / "distutils-precedence.pth").write_text("import sys; sys.modules['distutils'] = sys\n")
    python = installed()[minor] / "bin/python3"
    env = {"PYTHONPATH": str(tmp_path)}
    subprocess.run([python, "-s", "-c", "import distutils"], env=env, check=True)
