"""Every remedy that is a command is run as it was printed, and the probe finds nothing wrong afterwards."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import faults_driver  # noqa: F401
import faults_files  # noqa: F401
import faults_framework  # noqa: F401
import faults_gpu  # noqa: F401
import faults_hosts  # noqa: F401
import faults_kernels  # noqa: F401
import faults_packages  # noqa: F401
import faults_pairs  # noqa: F401
import faults_real  # noqa: F401
import faults_real_frameworks  # noqa: F401
import faults_session  # noqa: F401
import faults_surroundings  # noqa: F401
import faults_together  # noqa: F401
import faults_toolkit  # noqa: F401
import pytest
import remedies
from fault_list import FAULTS, Fault
from uv import find_uv_bin

if TYPE_CHECKING:
    from fault_scene import Outcome, Scene

pytestmark = pytest.mark.slow

FREE = {
    "check-disabled": "unset",
    "cudnn-where-nobody-looks": "export",
    "device-hidden": "unset",
    "dlopen-wrapper": "unset",
    "libstdcxx-without-versions": "export",
    "old-libstdcxx-on-the-path": "unset",
    "one-of-three-variables": "unset",
    "shadowed-by-an-incomplete-folder": "unset",
    "stubs-on-the-path": "unset",
    "unknown-flag": "unset",
    "unversioned-name-missing": "ln -s",
}
"""Faults whose command needs no package, and how it begins."""
WITH_WHEELS = (
    "ctranslate2-without-cublas",
    "cupy-alone",
    "ptxas-older-than-the-card",
    "stub-of-nvidia",
    "real-cublas-missing",
    "real-cublas-mixed",
    "real-cu11-over-cu12",
    "real-dlopen-wrapper",
    "real-engine-deleted",
    "real-flavour",
    "real-gap-filled",
    "real-nvrtc-only-with-its-number",
    "real-nvrtc-without-builtins",
    "real-shadow",
    "real-sublibrary-deleted",
    "real-sublibrary-far",
    "real-sublibrary-near",
    "real-sublibrary-near-8",
    "real-train-library-deleted",
    "real-truncated",
    "real-uninstalled-half",
    "tensorflow-over-an-older-cudnn",
)
"""Faults whose command is tried with the real packages."""
LEFT = {"unversioned-name-missing": "framework-import"}
"""What is still found afterwards: the double of Paddle refuses to be imported."""
ROWS = {row.name: row for row in FAULTS}


def prepared(row: Fault, scene: Scene) -> Outcome:
    scene.env["PATH"] = f"{Path(find_uv_bin()).parent}:/usr/bin:/bin"
    row.prepare(scene)
    return scene.run()


def follow(commands: list[dict[str, Any]], scene: Scene) -> Outcome:
    """Run the commands as they stand in one shell, and the probe at its end."""
    inherited = {
        k: v for k, v in os.environ.items() if k not in ("LD_LIBRARY_PATH", "LD_PRELOAD", "VIRTUAL_ENV")
    }
    packages = [c["text"] for c in commands if c["where"] == "pip"]
    for text in packages:
        subprocess.run(["bash", "-c", text], env={**inherited, "PATH": scene.env["PATH"]}, check=True)
    rest = [c["text"] for c in commands if c["where"] != "pip"]
    probe = shlex.join([str(scene.venv / "bin" / "python"), str(scene.probe)])
    scene.command = ["bash", "-c", "; ".join([*rest, f'exec {probe} "$@"']), "probe"]
    return scene.run()


def check(row: Fault, scene: Scene) -> None:
    before = prepared(row, scene)
    assert before.report["cause"] == row.cause
    commands = before.report["commands"]
    assert commands
    after = follow(commands, scene)
    assert after.report["cause"] == LEFT.get(row.name), (commands, after.report["summary"])


UNTRIED = {
    ("cudnn-arch-dropped", "pip"): "only a card of that age shows that the older cuDNN serves it",
    ("cudnn-known-bad", "pip"): "cuDNN 9.10.0 is wrong on a card alone",
    (
        "cudnn-major-mismatch",
        "pip",
    ): "PyTorch of that age takes 5 GB; the same command is tried for a cuDNN too old",
    ("cudnn-not-equal", "pip"): "--strict asks for it; the same command is tried for a cuDNN too old",
    ("driver-too-old", "pip"): "PyTorch's own index is not the default one",
    ("framework-arch-missing", "pip"): "PyTorch's own index is not the default one",
    ("framework-cpu-build", "pip"): "PyTorch's own index is not the default one",
    ("package-pin-mismatch", "pip"): "the frameworks that pin take gigabytes each",
    ("ptxas-missing", "pip"): "XLA looks for ptxas only once a card is there",
}
"""Cause and kind of command of faults that end in a command which no test here runs, and why."""


def test_a_fault_that_ends_in_a_command_is_tried_or_named() -> None:
    """Derived from what the faults' own tests saw: a new fault with an untried kind of command fails here."""
    kinds = {
        name: {(row["cause"], command[1 : command.index("]")]) for command in row["commands"]}
        for name, row in remedies.read().items()
    }
    tried = {kind for name in FREE for kind in kinds[name]}
    tried |= {(ROWS[name].cause, kind) for name in WITH_WHEELS for kind in ("pip", "shell")}
    printed = {kind for every in kinds.values() for kind in every}
    assert printed - tried == set(UNTRIED), "try it, or say why it cannot be tried"
    assert set(kinds) <= set(ROWS)


def test_no_fault_with_such_a_command_is_left_out() -> None:
    assert set(FREE) | set(WITH_WHEELS) <= set(ROWS)


@pytest.mark.parametrize("name", FREE)
def test_a_command_without_packages_mends_it(name: str, scene: Scene) -> None:
    check(ROWS[name], scene)


@pytest.mark.wheels
@pytest.mark.parametrize("name", WITH_WHEELS)
def test_a_command_with_packages_mends_it(name: str, scene: Scene) -> None:
    check(ROWS[name], scene)


def fix(scene: Scene, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [str(scene.venv / "bin" / "python"), str(scene.probe), "--fix", *arguments]
    env = {"PATH": "/usr/bin:/bin", "HOME": str(scene.root), "LANG": "C.UTF-8", **scene.env, **environment}
    return subprocess.run(
        command,
        env=env,
        cwd=scene.root,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )


def test_fix_shows_asks_runs_and_looks_again(scene: Scene) -> None:
    row = ROWS["unversioned-name-missing"]
    before = prepared(row, scene)
    link = Path(before.report["commands"][0]["text"].split()[-1])
    asked = fix(scene)
    assert "Nobody is here to be asked" in asked.stdout
    assert asked.returncode == 20
    assert not link.exists()
    done = fix(scene, "--yes")
    assert f"+ ln -s libcudnn.so.9 {link}" in done.stdout
    assert "unversioned-name-missing is mended" in done.stdout
    assert link.is_symlink()
    assert "There is no command for this" in fix(scene, "--yes").stdout


def test_fix_tries_a_variable_and_leaves_the_shell_to_its_owner(scene: Scene) -> None:
    prepared(ROWS["stubs-on-the-path"], scene)
    done = fix(scene, "--yes")
    assert "  $ unset LD_LIBRARY_PATH" in done.stdout
    assert "this cause is gone" in done.stdout
    assert done.returncode == 20


def test_fix_undoes_what_did_not_help(scene: Scene, tmp_path: Path) -> None:
    """A double of uv that installs something else: the cause stays, the package from before comes back."""
    prepared(ROWS["sublibrary-deleted"], scene)
    info = next(scene.site.glob("nvidia_cudnn_cu12-*.dist-info"))
    log = tmp_path / "uv.log"
    tools = scene.folder("tools")
    other = info.parent / "nvidia_cudnn_cu12-9.9.9.dist-info"
    script = (
        f'#!/bin/sh\necho "$@" >> {log}\n[ -d {other} ] || {{ mv {info} {other}; '
        f"sed -i 's/^Version: .*/Version: 9.9.9/' {other}/METADATA; }}\n"
    )
    (tools / "uv").write_text(script)
    (tools / "uv").chmod(0o755)
    done = fix(scene, "--yes", PATH=f"{tools}:/usr/bin:/bin")
    assert "That did not help (cudnn-sublibrary-missing), so it is undone." in done.stdout
    calls = log.read_text().splitlines()
    assert "--no-deps nvidia-cudnn-cu12==9.10.2.0" in calls[-1]
    assert len(calls) == 2
    assert done.returncode == 20
