"""One probe at a time on a machine's GPUs: doubles of containers, and a lock between real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from builder.engine import container
from builder.engine.container import turn, turn_file
from builder.engine.engine import Engine
from builder.engine.facts import EngineFacts, GpuFacts
from builder.errors import CancelledError, CellError
from builder.temporary import one_folder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HOLDER = """
import sys, time
from pathlib import Path
from builder.engine.container import turn
with turn(Path(sys.argv[1])):
    print("has it", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "gpus.lock"


@pytest.fixture
def holder(file: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that has the GPUs."""
    command = [sys.executable, "-c", HOLDER, str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "has it\n"
        yield process
        process.kill()


class Machine:
    """A double of an engine with a GPU: how many containers ran at once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
        monkeypatch.setattr(container, "run", self.run)
        self.most = self.now = 0
        self.guard = threading.Lock()
        self.together = threading.Barrier(3, timeout=10)

    def run(self, _client: object, request: container.ContainerRequest, _cancel: object) -> str:
        with self.guard:
            self.now += 1
            self.most = max(self.most, self.now)
        if request.gpu is None:
            self.together.wait()  # which only comes to an end where three run at once
        else:
            time.sleep(0.05)
        with self.guard:
            self.now -= 1
        return "ran"

    def engine(self, **gpu: Any) -> Engine:
        engine = Engine(SimpleNamespace(client=None))  # type: ignore[arg-type]
        facts = EngineFacts(
            version="26", store="containerd", driver="overlayfs", root="/", disk_free=None,
            platform="linux/amd64", host="unix:///docker.sock",
            gpu=GpuFacts(request="gpus", traces=("/dev/nvidia0",), **gpu),
        )  # fmt: skip
        engine.facts = lambda: facts  # type: ignore[method-assign]
        return engine


def probe(engine: Engine, *, gpus: bool, waited: list[str]) -> Any:
    return engine.run_probe("x", ["probe"], gpus=gpus, timeout=1, waits=lambda: waited.append("waits"))


def test_probes_of_a_gpu_take_turns(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    machine, waited = Machine(monkeypatch, tmp_path), []
    # Two engines of one machine share its GPUs.
    engines = [machine.engine(), machine.engine(), machine.engine()]
    with ThreadPoolExecutor(3) as pool:
        done = list(pool.map(lambda engine: probe(engine, gpus=True, waited=waited), engines))
    assert done == ["ran"] * 3
    assert machine.most == 1
    assert waited, "those that had to wait say so"


def test_probes_without_a_gpu_run_side_by_side(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    machine, waited = Machine(monkeypatch, tmp_path), []
    engine = machine.engine()
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda _number: probe(engine, gpus=False, waited=waited), range(3)))
    assert machine.most == 3
    assert not waited
    assert not list(tmp_path.iterdir())


def test_another_process_is_waited_for_until_it_ends_or_dies(
    file: Path, holder: subprocess.Popen[str]
) -> None:
    waited: list[float] = []

    def waits() -> None:
        waited.append(time.monotonic())
        os.kill(holder.pid, signal.SIGKILL)

    with turn(file, waits=waits):
        assert len(waited) == 1, "said once, and not again and again"
    assert file.exists(), "removed it would keep nobody out"


def test_waiting_can_be_cancelled(file: Path, holder: subprocess.Popen[str]) -> None:
    cancel = threading.Event()
    with pytest.raises(CancelledError), turn(file, cancel=cancel, waits=cancel.set):
        pytest.fail("it has the GPUs, and so has another process")


def test_the_file_is_readable_by_all_and_no_link(tmp_path: Path, file: Path) -> None:
    before = os.umask(0o077)
    try:
        with turn(file):
            assert file.stat().st_mode & 0o777 == 0o644
    finally:
        os.umask(before)
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "folder", "pipe"):
        with pytest.raises(CellError, match="cannot be opened"), turn(tmp_path / name):
            pytest.fail("another user's file is none")
    assert not (tmp_path / "elsewhere").exists()


def test_processes_meet_outside_of_their_own_folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = turn_file("x", remote=False)
    with one_folder():
        assert tempfile.gettempdir() != str(tmp_path)
        assert turn_file("x", remote=False) == before == tmp_path / "rtbuild-gpus-here.lock"


def test_who_shares_gpus() -> None:
    here = turn_file("unix:///var/run/docker.sock", remote=False)
    assert here == turn_file("unix:///run/user/1000/docker.sock", remote=False)
    far = turn_file("ssh://gpu-box", remote=True)
    assert len({here, far, turn_file("ssh://other", remote=True)}) == 3
