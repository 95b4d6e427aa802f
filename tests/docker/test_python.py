"""A Python that the base has not: real CPythons from a double of their mirror, everything after it real.

What the double is not: tests/doubles/python_mirror.py says it.
"""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING, Any

import cuda_base
import pytest
from doubles.python_mirror import installed, machine_pythons
from rtbuild_command import rtbuild
from trees import tree

from builder.core import resources

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from registry import LoopbackRegistry

pytestmark = [pytest.mark.docker, pytest.mark.long]

MATRIX = """\
version: 1
name: anypython
defaults: {framework: six==1.17.0, cuda: none, base: "rootfs:debian/bookworm"}
axes:
  python: ["3.12", {version: "3.13", from: standalone}]
"""
CELL = "six1.17.0-py3.12-bookworm-cpu"
CUDA_TAG = "11.8.0-base-bookworm"
ON_CUDA = """\
version: 1
name: anypython-cuda
include:
  - framework: six==1.17.0
    python: {version: "3.12", from: standalone}
    base: HOST/nvidia/cuda:TAG
    cuda: base
    apt: [libgomp1]
"""
LOOK = """
import ctypes.util, importlib, json, locale, mimetypes, os, ssl, subprocess, sys, sysconfig, tkinter
names = "bz2 ctypes curses dbm decimal hashlib lzma multiprocessing readline sqlite3 ssl uuid zlib".split()
variables = sysconfig.get_config_vars()
paths = ("prefix", "LIBDIR", "INCLUDEPY", "LDSHARED", "CFLAGS", "LDFLAGS", "CPPFLAGS")
print(json.dumps({
    "prefixes": [sys.prefix, sys.base_prefix, sys.executable],
    "version": sys.version.split()[0],
    "modules": [importlib.import_module(name).__name__ for name in names],
    "tcl": tkinter.Tcl().eval("info patchlevel")[:3],
    "foreign": [name for name in paths if "/install" in str(variables[name])],
    "header": os.path.isfile(os.path.join(sysconfig.get_paths()["include"], "Python.h")),
    "libraries": [ctypes.util.find_library(name) for name in ("c", "m", "stdc++", "cudart")],
    "encodings": [sys.getfilesystemencoding(), locale.getpreferredencoding()],
    "certificates": os.path.isdir(ssl.get_default_verify_paths().openssl_capath),
    "compiled": all(os.path.isfile(module.__cached__) for module in (json, mimetypes, tkinter)),
}))
"""
VENV = """
python -m venv /tmp/v && /tmp/v/bin/pip --version && pip check
PATH=/usr/bin:/bin sh -c 'command -v python3' && exit 1
find / -xdev -name EXTERNALLY-MANAGED -o -xdev -name 'pip-*.dist-info' | sort
dpkg-query --show --showformat '${Package}\\n' | grep -c python
"""


def docker(*command: str, stdin: str = "") -> str:
    done = subprocess.run(["docker", *command], input=stdin, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, dict[str, str]]]:
    """A folder with the matrix built, and the environment that leads to the mirror."""
    if not {"3.12", "3.13"} <= installed().keys():
        pytest.skip("this machine has no CPython 3.12 and 3.13 of its own")
    folder = tmp_path_factory.mktemp("anypython")
    (folder / "m.yaml").write_text(MATRIX)
    with machine_pythons("3.12", "3.13", cache=resources.cache() / "tests") as variables:
        env = {**os.environ, **variables}
        rtbuild(folder, "build", "m.yaml", env=env)
        yield folder, env
    images = docker("image", "ls", "--quiet", "rtbuild/anypython").split()
    docker("image", "rm", "--force", *images)


@pytest.mark.parametrize("minor", ["3.12", "3.13"])
@pytest.mark.parametrize("user", [(), ("--user", "1234:1234", "--read-only", "--env", "HOME=/nonexistent")])
def test_it_is_as_a_user_expects_of_a_python(
    project: tuple[Path, dict[str, str]], minor: str, user: tuple[str, ...]
) -> None:
    name = f"rtbuild/anypython:six1.17.0-py{minor}-bookworm-cpu"
    assert looked(name, minor, *user)["libraries"] == ["libc.so.6", "libm.so.6", "libstdc++.so.6", None]


def looked(image: str, minor: str, *options: str) -> dict[str, Any]:
    """What a standalone Python of that version says of itself, the common part judged."""
    said = docker("run", "--rm", "-i", "--network=none", *options, image, "python", "-", stdin=LOOK)
    found: dict[str, Any] = json.loads(said)
    assert found["version"] == installed()[minor].name
    assert found["prefixes"] == ["/opt/runtime", "/opt/python", "/opt/runtime/bin/python"]
    assert found["modules"][0] == "bz2"
    assert (found["tcl"], found["foreign"]) == ("8.6", [])
    assert found["encodings"][0] == "utf-8"
    assert found["encodings"][1].lower() == "utf-8"
    assert (found["header"], found["certificates"], found["compiled"]) == (True, True, True)
    return found


def test_it_is_the_only_one(project: tuple[Path, dict[str, str]]) -> None:
    name = f"rtbuild/anypython:{CELL}"
    lines = docker("run", "--rm", "-i", "--network=none", name, "bash", "-c", VENV + "true").splitlines()
    assert lines[0].startswith("pip ")
    assert lines[1] == "No broken requirements found."
    inside = [line for line in lines if line.endswith(".dist-info") and not line.startswith("/tmp/")]
    assert [line.rpartition("/")[0] for line in inside] == ["/opt/runtime/lib/python/site-packages"]
    assert lines[-1] == "0"


def test_cells_share_what_they_have_in_common(project: tuple[Path, dict[str, str]]) -> None:
    folder, env = project
    lock = json.loads((folder / "m.lock.json").read_text())
    assert len({cell["base"]["rootfs"] for cell in lock["cells"].values()}) == 1
    assert all("http" not in json.dumps(python) for python in lock["pythons"].values())
    again = rtbuild(folder, "build", "m.yaml", "--locked", "--no-verify", env=env)
    assert "there already" in again.stderr


def test_plain_docker_build_makes_the_same_tree(project: tuple[Path, dict[str, str]]) -> None:
    folder, env = project
    rtbuild(folder, "render", "m.yaml", "--select", CELL, "-o", "recipes", env=env)
    name = "rtbuild-test/anypython:plain"
    authority = os.environ.get("SSL_CERT_FILE")
    secret = ["--secret", f"id=ca,src={authority}"] if authority else []
    docker("build", "--tag", name, *secret, str(folder / "recipes" / CELL))
    try:
        plain, composed = tree(name), tree(f"rtbuild/anypython:{CELL}")
    finally:
        docker("image", "rm", "--force", name)
    passing = ("etc/hosts", "etc/hostname", "etc/resolv.conf", "etc/mtab", "dev/", "proc/", "sys/")
    differing = [
        path
        for path in sorted({*plain, *composed})
        if plain.get(path) != composed.get(path) and not path.startswith(passing)
    ]
    assert differing == []


def test_one_that_needs_a_newer_glibc_is_refused(project: tuple[Path, dict[str, str]]) -> None:
    folder, env = project
    (folder / "old.yaml").write_text(MATRIX.replace("bookworm", "bullseye").replace("anypython", "old"))
    done = rtbuild(folder, "lock", "old.yaml", "--select", "*3.12*", env=env, check=1)
    assert "needs glibc 2.36, by the symbols that its files ask for, and the base has 2.31" in done.stderr


def test_on_nvidia_s_base(
    project: tuple[Path, dict[str, str]], server: LoopbackRegistry, tmp_path: Path
) -> None:
    """A registry's base with CUDA, without cuDNN and without Python, to which apt adds a library."""
    plain = {name: value for name, value in cuda_base.ENVIRONMENT.items() if "CUDNN" not in name}
    cuda_base.nvidia_cuda(tmp_path, server.host, tag=CUDA_TAG, suite="bookworm", environment=plain)
    (tmp_path / "m.yaml").write_text(ON_CUDA.replace("HOST", server.host).replace("TAG", CUDA_TAG))
    (cell,) = json.loads(rtbuild(tmp_path, "build", "m.yaml", "--json", env=project[1]).stdout)["cells"]
    name = cell["image"]["reference"]
    try:
        assert cell["verification"]["verdict"] == "unverified"
        assert [package["name"] for package in cell["packages"]] == ["libgomp1"]
        libraries = looked(name, "3.12")["libraries"]
        assert libraries == ["libc.so.6", "libm.so.6", "libstdc++.so.6", "libcudart.so.11.0"]
        lines = docker("run", "--rm", "--network=none", name, "bash", "-c", VENV + "true").splitlines()
        assert lines[0].startswith("pip ")
        assert lines[1] == "No broken requirements found."
        assert lines[-1] == "0"
    finally:
        docker("image", "rm", "--force", name)
