"""Faults of mounts and of the loader's own files, each in a mount namespace of its own: root only."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest
from fault_scene import link_tree

if TYPE_CHECKING:
    from fault_scene import Outcome, Scene


@pytest.fixture
def run_in_namespace(scene: Scene):
    """Run the probe after some shell commands that only it is to see."""
    if subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode:
        pytest.skip("this user may not make a mount namespace")

    def run(commands: str) -> Outcome:
        python = str(scene.venv / "bin" / "python")
        script = f'set -e; {commands}; exec "$@"'
        scene.command = ["unshare", "-m", "bash", "-c", script, "probe", python, str(scene.probe)]
        return scene.run()

    return run


def test_a_library_in_ld_so_preload(scene, run_in_namespace):
    scene.cudnn()
    old = scene.build.cudnn("9.1.0") / "libcudnn_graph.so.9"
    etc = scene.folder("etc")
    outcome = run_in_namespace(
        f"cp -a /etc/. {etc}; echo {old} > {etc}/ld.so.preload; mount --bind {etc} /etc"
    )
    assert (outcome.report["verdict"], outcome.report["cause"]) == ("host", "preload-interference")
    assert "no-preload-file" in [row["test"] for row in outcome.report["proof"]]
    assert outcome.unlisted() == []


def test_libraries_on_a_file_system_without_execution(scene, run_in_namespace):
    folder = scene.folder("data")
    link_tree(scene.build.cudnn("9.10.2"), folder)
    scene.search(folder)
    outcome = run_in_namespace(f"mount --bind {folder} {folder}; mount -o remount,bind,noexec {folder}")
    assert (outcome.report["verdict"], outcome.report["cause"]) == ("host", "noexec-mount")
    assert outcome.unlisted() == []


def _nowhere_to_write(scene: Scene) -> str:
    empty = scene.folder("empty")
    scene.env["TMPDIR"] = str(empty)
    mounts = [f"mount -t tmpfs -o ro tmpfs {folder}" for folder in (empty, "/var/tmp")]
    return "; ".join(
        [
            *mounts,
            "mount --bind / /mnt; cd /proc",
            "mount -o bind,ro /tmp /tmp; mount -o remount,bind,ro /tmp",
        ]
    )


def test_no_place_for_temporary_files(scene, run_in_namespace):
    package = scene.framework("torch") / "__init__.py"
    content = package.read_text()
    package.unlink()
    package.write_text(content + "import tempfile\ntempfile.mkdtemp()\n")
    outcome = run_in_namespace(_nowhere_to_write(scene))
    assert (outcome.report["verdict"], outcome.report["cause"]) == ("host", "no-temporary-space")
    assert outcome.unlisted() == []


def test_no_place_for_temporary_files_that_nobody_needs(scene, run_in_namespace):
    scene.cudnn()
    outcome = run_in_namespace(_nowhere_to_write(scene))
    assert (outcome.report["verdict"], outcome.report["cause"]) == ("unverified", None)
