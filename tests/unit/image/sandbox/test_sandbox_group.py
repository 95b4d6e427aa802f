"""Memory and processes in sum: by a real control group where one is given, or by looking."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest
from sandbox_system import system

from builder.core.errors import CommandError
from builder.image.sandbox import Limits, View
from builder.image.sandbox import run as foreign
from builder.image.sandbox.watch import control_group

TOGETHER = """
import os, time
for _ in range(8):
    if os.fork() == 0:
        held = b"x" * (40 << 20)
        time.sleep(20)
        os._exit(0)
time.sleep(20)
"""


@pytest.mark.parametrize("by", ["control group", "looking"])
def test_memory_is_bounded_in_sum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str) -> None:
    if by == "looking":
        monkeypatch.setattr(sys.modules["builder.image.sandbox.bwrap"], "control_group", lambda *_: None)
    else:
        group = control_group(1 << 30, 100)
        if group is None:
            pytest.skip("this user is given no control group")
        group.remove()
        monkeypatch.setattr("builder.image.sandbox.watch._memory", lambda *_: 0)
    with pytest.raises(CommandError, match="took more than 128 MiB of memory, and was stopped"):
        foreign(
            ["/usr/bin/python3", "-c", TOGETHER],
            View(root=system(tmp_path / "root"), folders={"/usr": Path("/usr")}),
            what="it",
            env={},
            limits=Limits(total=128 << 20, seconds=15),
            cancel=threading.Event(),
        )


def test_a_group_that_bounds_nothing_is_none(tmp_path: Path) -> None:
    """Version 2 as systemd lays it out; the files are a double's, the rule which folder counts is ours."""
    root, own = tmp_path / "cgroup", tmp_path / "own"
    mine = root / "user.slice" / "app.slice" / "shell.scope"
    mine.mkdir(parents=True)
    (root / "cgroup.controllers").write_text("cpu memory pids\n")
    for given, place in (("", None), ("pids\n", None), ("memory pids\n", mine.parent)):
        (mine.parent / "cgroup.subtree_control").write_text(given)
        own.write_text("0::/user.slice/app.slice/shell.scope\n")
        group = control_group(5 << 20, 7, root=root, own=own)
        if place is None:
            assert group is None
            continue
        assert group is not None
        (folder,) = set(group.folders.values())
        assert (group.version, folder.parent) == (2, place)
        assert ((folder / "memory.max").read_text(), (folder / "pids.max").read_text()) == ("5242880", "7")
        group.add(42)
        assert (folder / "cgroup.procs").read_text() == "42"
        for text, full in (("low 0\noom_kill 0\n", False), ("oom 3\noom_kill 2\n", True)):
            (folder / "memory.events").write_text(text)
            assert group.full() is full
    own.write_text("nonsense\n")
    assert control_group(1, 1, root=root, own=own) is None
    assert control_group(1, 1, root=root, own=tmp_path / "nothing") is None
