"""Faults of a session that runs on: a program that changed something under itself, then asks the probe."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from fault_list import fault

if TYPE_CHECKING:
    from fault_scene import Scene


def _session(scene: Scene, program: str) -> None:
    """Run a program that starts the probe as a notebook does: as its child, told whose child it is."""
    path = scene.root / "session.py"
    ask = f"""
        import os, subprocess, sys
        command = [sys.executable, {str(scene.probe)!r}, "--pid", str(os.getpid()), *sys.argv[1:]]
        sys.exit(subprocess.call(command))
    """
    path.write_text(textwrap.dedent(program) + textwrap.dedent(ask))
    scene.command = [str(scene.venv / "bin" / "python"), str(path)]


@fault("LD_LIBRARY_PATH set inside the running process", verdict="busy", cause="env-set-too-late")
def variable_set_too_late(scene: Scene) -> None:
    folder = scene.cudnn(into=scene.folder("opt/cudnn/lib"))
    _session(scene, f"import os\nos.environ['LD_LIBRARY_PATH'] = {str(folder)!r}\n")


@fault("a library replaced under a process that has it mapped", verdict="busy", cause="stale-process")
def library_replaced_while_mapped(scene: Scene) -> None:
    path = scene.cudnn() / "libcudnn.so.9"
    program = f"""
        import ctypes, os, shutil
        path = {str(path)!r}
        held = ctypes.CDLL(path)
        shutil.copy(path, path + ".new")
        os.replace(path + ".new", path)
    """
    _session(scene, program)
