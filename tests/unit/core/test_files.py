"""Files that are whole or not there, whoever else writes them and whoever was killed over one."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from builder.core.files import write_whole

if TYPE_CHECKING:
    from pathlib import Path

KILLED = """
import os, signal, sys
from pathlib import Path
import builder.core.files
Path.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
builder.core.files.write_whole(Path(sys.argv[1]), b"half of what was to come")
"""


def test_what_a_killed_writer_left_is_taken_over_by_the_next(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "report.json"
    done = subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert [entry.name for entry in path.parent.iterdir()] == [".report.json.new"]
    write_whole(path, b"new")
    assert {entry.name: entry.read_bytes() for entry in path.parent.iterdir()} == {"report.json": b"new"}


def test_writers_of_one_file_wait_for_one_another(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    contents = [bytes([65 + number]) * 100_000 for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda content: write_whole(path, content), contents * 10))
    assert path.read_bytes() in contents
    assert [entry.name for entry in tmp_path.iterdir()] == ["report.json"]


def test_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("kept")
    (tmp_path / ".report.json.new").symlink_to("secret")
    with pytest.raises(OSError, match=os.strerror(errno.ELOOP)):
        write_whole(tmp_path / "report.json", b"x")
    assert (tmp_path / "secret").read_text() == "kept"


def test_a_failure_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="director"):
        write_whole(tmp_path / "folder", b"x")  # a folder is there already
    assert [entry.name for entry in tmp_path.iterdir()] == ["folder"]
