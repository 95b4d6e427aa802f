"""One probe at a time on a machine's GPUs: doubles of containers, and a lock between real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from builder.core.errors import CancelledError
from builder.image.engine import container
from builder.image.engine.container import turn, turn_name
from builder.image.engine.engine import Engine
from builder.image.engine.facts import EngineFacts, GpuFacts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HOLDER = """
import sys, time
from builder.image.engine.container import turn
with turn(sys.argv[1]):
    print("has it", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def name() -> str:
    return f"rtbuild-test-{uuid.uuid4().hex}"


@pytest.fixture
def holder(name: str) -> Iterator[subprocess.Popen[str]]:
    """Another process that has the GPUs."""
    command = [sys.executable, "-c", HOLDER, name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "has it\n"
        yield process
        process.kill()


class Machine:
    """A double of an engine with a GPU: how many containers ran at once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        monkeypatch.setattr(container, "turn_name", lambda _host, remote: f"{name}-{remote}")
        monkeypatch.setattr(container, "run", self.run)
        self.most = self.now = 0
        self.guard = threading.Lock()
        self.together = threading.Barrier(3, timeout=60)
        self.waited = threading.Event()

    def run(self, _client: object, request: container.ContainerRequest, _cancel: object) -> str:
        with self.guard:
            self.now += 1
            self.most = max(self.most, self.now)
        if request.gpu is None:
            self.together.wait()  # which only comes to an end where three run at once
        else:
            assert self.waited.wait(60), "no other one waits for this one"
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


def probe(engine: Engine, *, gpus: bool, waits: Callable[[], None]) -> Any:
    return engine.run_probe("x", ["probe"], gpus=gpus, timeout=1, waits=waits)


def test_probes_of_a_gpu_take_turns(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    machine = Machine(monkeypatch, name)
    # Two engines of one machine share its GPUs.
    engines = [machine.engine(), machine.engine(), machine.engine()]
    with ThreadPoolExecutor(3) as pool:
        done = list(pool.map(lambda engine: probe(engine, gpus=True, waits=machine.waited.set), engines))
    assert done == ["ran"] * 3
    assert machine.most == 1


def test_probes_without_a_gpu_run_side_by_side(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    machine = Machine(monkeypatch, name)
    engine = machine.engine()
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda _number: probe(engine, gpus=False, waits=machine.waited.set), range(3)))
    assert machine.most == 3
    assert not machine.waited.is_set()


def test_another_process_is_waited_for_until_it_ends_or_dies(
    name: str, holder: subprocess.Popen[str]
) -> None:
    waited: list[float] = []

    def waits() -> None:
        waited.append(time.monotonic())
        os.kill(holder.pid, signal.SIGKILL)

    with turn(name, waits=waits):
        assert len(waited) == 1, "said once, and not again and again"


@pytest.mark.usefixtures("holder")
def test_waiting_can_be_cancelled(name: str) -> None:
    cancel = threading.Event()
    with pytest.raises(CancelledError), turn(name, cancel=cancel, waits=cancel.set):
        pytest.fail("it has the GPUs, and so has another process")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_waits_too(name: str) -> None:
    with turn(name):
        child = os.fork()
        if child == 0:
            os.setuid(65534)
            cancel = threading.Event()
            cancel.set()
            try:
                with turn(name, cancel=cancel):
                    os._exit(1)
            except CancelledError:
                os._exit(0)
        assert os.waitpid(child, 0)[1] == 0


def test_who_shares_gpus() -> None:
    here = turn_name("unix:///var/run/docker.sock", remote=False)
    assert here == turn_name("unix:///run/user/1000/docker.sock", remote=False)
    far = turn_name("ssh://gpu-box", remote=True)
    assert len({here, far, turn_name("ssh://other", remote=True)}) == 3
