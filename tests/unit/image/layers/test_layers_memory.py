"""Where systems are laid out: in memory with room, and nothing stays there whatever ends a process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING, Any

import pytest

from builder.core import files as memory
from builder.core.errors import CommandError, MissingToolError
from builder.core.files import MemoryFullError, available, roomy, sweep_memory, workplace

if TYPE_CHECKING:
    from pathlib import Path

    from builder.image.layers.store import LayerStore

CHILD = """
import sys
import tempfile
from pathlib import Path
from builder.core import files as memory
memory.SHARED = Path(sys.argv[1])
memory.roomy = lambda need: True
with memory.workplace(Path(sys.argv[2]), 1, memory=True) as folder:
    (folder / "left").write_bytes(b"1")
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "shm"
    folder.mkdir()
    monkeypatch.setattr(memory, "SHARED", folder)
    return folder


def test_it_is_gone_when_the_block_ends(
    shared: Path, store: LayerStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "roomy", lambda _need: True)
    with workplace(store.folder("tmp"), 1, memory=True) as folder:
        assert folder.parent == shared
        assert folder.stat().st_mode & 0o777 == 0o700, "nobody else looks into it"
    with workplace(store.folder("tmp"), 1, memory=False) as folder:
        assert folder.is_relative_to(store.root)
    with pytest.raises(ValueError, match="the block's own"), workplace(store.folder("tmp"), 1, memory=True):
        raise ValueError("the block's own")
    assert list(shared.iterdir()) == []


def test_what_a_killed_process_left_goes_and_what_another_uses_stays(shared: Path, store: LayerStore) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, shared, store.folder("tmp")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline().startswith(str(shared))
        sweep_memory()
        assert [path.name for path in shared.glob("*/left")] == ["left"], "somebody works in it"
        os.kill(child.pid, signal.SIGKILL)
    (shared / "another program").mkdir()
    store.prune(0)
    assert [path.name for path in shared.iterdir()] == ["another program"]


def test_room_is_what_the_file_system_the_kernel_and_the_group_leave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = {"/proc/meminfo": "MemTotal: 9 kB\nMemAvailable:   4194304 kB\n"}
    monkeypatch.setattr(memory, "_read", lambda path: said.get(str(path), ""))
    assert available() == 4 << 30
    said["/proc/self/cgroup"] = "0::/box\n"
    assert available() == 4 << 30
    said |= {"/sys/fs/cgroup/box/memory.max": "max\n", "/sys/fs/cgroup/box/memory.current": "5\n"}
    assert available() == 4 << 30
    said |= {
        "/sys/fs/cgroup/box/memory.max": f"{3 << 30}\n",
        "/sys/fs/cgroup/box/memory.current": f"{1 << 30}\n",
    }
    assert available() == 2 << 30
    monkeypatch.setattr(memory, "SHARED", tmp_path)
    assert roomy(1 << 20)
    assert not roomy(2 << 30), "some memory is left alone"
    monkeypatch.setattr(memory, "SHARED", tmp_path / "none")
    assert not roomy(1)


@pytest.mark.parametrize("moment", ["mkdtemp", "open"])
def test_another_process_may_sweep_before_the_folder_is_locked(
    shared: Path, store: LayerStore, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    monkeypatch.setattr(memory, "roomy", lambda _need: True)
    module = {"mkdtemp": tempfile, "open": os}[moment]
    original, turns = getattr(module, moment), iter([True])

    def swept_after(*given: Any, **named: Any) -> Any:
        made = original(*given, **named)
        if next(turns, False):
            sweep_memory()
        return made

    def workplace_swept() -> None:
        with workplace(store.folder("tmp"), 1, memory=True) as folder:
            assert folder.is_dir()

    monkeypatch.setattr(module, moment, swept_after)
    workplace_swept()
    assert list(shared.iterdir()) == []


@pytest.mark.parametrize("in_memory", [True, False])
def test_a_full_place_is_the_reason_of_a_failure_without_one(
    shared: Path, store: LayerStore, monkeypatch: pytest.MonkeyPatch, in_memory: bool
) -> None:
    monkeypatch.setattr(memory, "roomy", lambda _need: True)
    failed = CommandError("the step `bytecode` failed", command=["sh"], returncode=1)
    with pytest.raises(CommandError), workplace(store.folder("tmp"), 1, memory=in_memory):
        raise failed
    monkeypatch.setattr(memory, "_NEARLY_FULL", 1 << 60)
    told = pytest.raises(MemoryFullError if in_memory else MissingToolError)
    with told as raised, workplace(store.folder("tmp"), 1, memory=in_memory):
        raise failed
    if not in_memory:
        assert "no room left on the disk" in str(raised.value)
        assert "the step `bytecode` failed" in str(raised.value)
