"""The product and a part of its tests under the Python that a Debian release has.

Each system is put together by mmdebstrap with nothing but Debian's packages. What rtbuild and its tests
import is installed for that Python from outside. ``make own-systems``, as root.
"""

import shutil
import subprocess
from pathlib import Path

import pytest
from uv import find_uv_bin

ROOT = Path(__file__).parent.parent.parent
PARTS = (
    "core",
    "plan/matrix",
    "plan/lock",
    "plan/resolve",
    "image/layers",
    "verify/cudnn_verify",
    "sources/net",
)
"""Folders of unit tests: values, files, tar archives, subprocesses, the probe."""


def ran(*command: str, timeout: float = 900, check: int | None = 0) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    said = done.stdout + done.stderr
    assert check is None or done.returncode == check, f"{command[-1]}: {done.returncode}\n{said[-6000:]}"
    return said


@pytest.fixture(scope="module", params=[("bookworm", "3.11"), ("trixie", "3.13")], ids=lambda one: one[0])
def system(request, tmp_path_factory):
    """A function that runs a shell command in the system, in the root of this checkout's committed files."""
    suite, python = request.param
    folder = tmp_path_factory.mktemp(suite)
    root = folder / "root"
    sites = ran("apt-get", "indextargets", "--format", "$(SITE)", "Created-By: Packages", "Origin: Debian")
    packages = "--include=python3,git,gcc,libc6-dev,bubblewrap,openssl,make"
    ran(
        "mmdebstrap",
        "--quiet",
        "--mode=root",
        "--variant=minbase",
        packages,
        suite,
        str(root),
        min(sites.split()),
    )
    (root / "src").mkdir()
    archive = folder / "src.tar"
    ran("git", "-C", str(ROOT), "archive", "--output", str(archive), "HEAD")
    ran("tar", "-xf", str(archive), "-C", str(root / "src"))
    install = [find_uv_bin(), "pip", "install", "--quiet", "--target", str(root / "packages")]
    install += ["--only-binary", ":all:", "--link-mode", "copy", "--python-version", python]
    ran(*install, "-r", str(ROOT / "pyproject.toml"), "--group", f"{ROOT}/pyproject.toml:dev")

    def inside(command: str, *, check: int | None = 0) -> str:
        mounts = f"mount --rbind /dev {root}/dev && mount -t proc proc {root}/proc"
        within = f"cd /src && export PYTHONPATH=/src:/packages HOME=/root LC_ALL=C.UTF-8 && {command}"
        environment = ("env", "-i", "PATH=/packages/bin:/usr/sbin:/usr/bin:/sbin:/bin")
        script = f'{mounts} && exec chroot {root} {" ".join(environment)} sh -c "$1"'
        return ran("unshare", "--mount", "sh", "-c", script, "sh", within, check=check, timeout=3000)

    yield python, inside
    shutil.rmtree(folder)


def test_the_python_is_the_system_s_own(system) -> None:
    python, inside = system
    assert f"Python {python}." in inside("python3 --version")
    assert inside("python3 -c 'import builder, sys; print(sys.executable, builder.__file__)'").split() == [
        "/usr/bin/python3",
        "/src/builder/__init__.py",
    ]


def test_check_accepts_and_refuses_and_diagnose_knows(system) -> None:
    _, inside = system
    rtbuild = "python3 -c 'import sys; from builder.cli import main; sys.exit(main())'"
    assert "possible" in inside(f"{rtbuild} check matrices/torch.yaml")
    refused = inside(f"{rtbuild} resolve torch==2.6.0 --gpu 'RTX 5090' --offline", check=1)
    assert "5090" in refused
    text = "Could not load library libcudnn_cnn_infer.so.8: cannot open shared object file"
    assert "cudnn" in inside(f"{rtbuild} diagnose '{text}'", check=None)


def test_a_part_of_the_unit_tests_passes(system) -> None:
    _, inside = system
    parts = " ".join(f"tests/unit/{part}" for part in PARTS)
    marks = "not docker and not wheels and not long and not slow"
    said = inside(f"python3 -m pytest -q -p no:cacheprovider -m '{marks}' {parts}")
    assert " passed" in said
    print(said.splitlines()[-1])
