"""A stranger's working folder, other users of the machine: nothing of theirs is run, followed or removed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from builder.core import files, resources
from builder.image.engine.facts import toolkit_version

COMMAND = (sys.executable, "-P", "-c", "from builder.cli import main; main()")
"""As the installed program, which has its own folder on Python's path and not the working one."""
PROGRAMS = ("docker", "bwrap", "git", "uv", "cosign", "dpkg-deb", "nvidia-smi", "sh", "rm", "python3")
MODULES = ("builder", "json", "packaging", "requests", "sitecustomize", "subprocess", "yaml")


@pytest.mark.parametrize(
    "arguments",
    [("check", "torch.yaml"), ("explain", "CUDNN_STATUS_NOT_INITIALIZED"), ("diagnose", "log.txt")],
    ids=" ".join,
)
def test_nothing_in_the_working_folder_is_run(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    folder, ran = tmp_path / "strange", tmp_path / "ran"
    (folder / ".git").mkdir(parents=True)
    (folder / ".git/config").write_text(f'[core]\n fsmonitor = "touch {ran}"\n sshCommand = "touch {ran}"\n')
    for name in PROGRAMS:
        (folder / name).write_text(f"#!/bin/sh\necho {name} >> {ran}\n")
        (folder / name).chmod(0o755)
    for name in MODULES:
        (folder / f"{name}.py").write_text(f"open({str(ran)!r}, 'a').write('{name}')\n")
    (folder / ".env").write_text(f"RTBUILD_CACHE={ran}\n")
    (folder / "torch.yaml").write_bytes((resources.matrices() / "torch.yaml").read_bytes())
    (folder / "log.txt").write_text("CUDNN_STATUS_NOT_INITIALIZED\n")
    env = {**os.environ, "RTBUILD_CACHE": str(tmp_path / "cache")}
    done = subprocess.run([*COMMAND, *arguments], cwd=folder, env=env, capture_output=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    assert not ran.exists(), ran.read_text()


def test_what_others_left_among_temporary_files_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, place = tmp_path / "mine", tmp_path / "place"
    mine.mkdir()
    place.mkdir()
    (mine / "file").touch()
    prefix = files.own_prefix()
    (place / f"{prefix}link").symlink_to(mine)
    (place / f"{prefix}nowhere").symlink_to(tmp_path / "nothing")
    (place / f"{prefix}file").touch()
    os.mkfifo(place / f"{prefix}pipe")
    (place / f"{prefix}dead").mkdir()
    (place / f"{prefix}dead/link").symlink_to(mine)
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    with files.one_folder():
        pass
    left = {path.name.removeprefix(prefix) for path in place.iterdir()}
    assert left == {"link", "nowhere", "file", "pipe"}
    assert (mine / "file").exists()


def test_another_program_may_print_what_is_no_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "nvidia-ctk"
    program.write_text("#!/bin/sh\nprintf 'caf\\351: version 1.17.8\\n'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert toolkit_version() == "1.17.8"


def test_no_program_is_read_by_a_decoder_that_refuses_bytes() -> None:
    strict = re.compile("text=True|universal_newlines=True")
    own = ("verify/cudnn_verify/", "release/colab/runtime/")  # for any Python of an image
    builder = Path(files.__file__).parents[1]
    paths = [str(path.relative_to(builder)) for path in builder.rglob("*.py")]
    calls = [path for path in paths if strict.search((builder / path).read_text("utf-8"))]
    assert [path for path in calls if not path.startswith(own)] == []
    assert calls
