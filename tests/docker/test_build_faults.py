"""What happens to a machine in the middle of a build: the engine's disk fills up, the engine is restarted."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
from typing import TYPE_CHECKING, Any

import engines
import pytest
from rtbuild_command import RTBUILD

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from engines import SecondEngine

pytestmark = [pytest.mark.docker, pytest.mark.long]

MATRIX = """\
version: 1
name: faults
defaults: {python: 3.11, base: rootfs:debian/bookworm, cuda: none}
include: [{framework: six==1.17.0}]
"""
ROOM = 1_500_000_000
"""Bytes of the engine's disk: more than rtbuild's estimate asks for, so that it begins."""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("faults")
    (folder / "faults.yaml").write_text(MATRIX)
    subprocess.run(command("lock"), cwd=folder, check=True, capture_output=True, timeout=120)
    return folder


def command(*arguments: str) -> list[str]:
    return [*RTBUILD, arguments[0], "faults.yaml", *arguments[1:]]


def build(
    project: Path, engine: SecondEngine, in_the_middle: Callable[[], None] | None = None
) -> tuple[int, dict[str, Any]]:
    """Build without cache and probe; what ``in_the_middle`` does befalls the engine's work."""
    options = ["--locked", "--no-verify", "--no-cache", "--json", "--progress", "json"]
    with subprocess.Popen(
        command("build", *options),
        cwd=project,
        env=engine.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        out: list[str] = []
        reader = threading.Thread(target=lambda: out.append(process.stdout.read()))  # type: ignore[union-attr]
        reader.start()
        for line in process.stderr:
            event = json.loads(line) if line.startswith("{") else {}
            begun = event.get("event") == "StageStarted" and event.get("stage") == "build"
            if begun and in_the_middle is not None:
                in_the_middle()
        reader.join()
    return process.returncode, json.loads(out[0])


@pytest.fixture(scope="module")
def small_disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A disk of its own, which can be filled up without anybody else noticing."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to mount a disk")
    folder = tmp_path_factory.mktemp("disk")
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={ROOM}", "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=False)


@pytest.mark.nightly
def test_the_engines_disk_fills_up_and_is_emptied_again(project: Path, small_disk: Path) -> None:
    filler = small_disk / "filler"

    def fill() -> None:
        with filler.open("wb") as file, contextlib.suppress(OSError):
            while True:
                file.write(b"\0" * (1 << 20))

    with engines.second_engine(options=[f"--data-root={small_disk}/data"]) as engine:
        code, document = build(project, engine, fill)
        assert code == 1
        (cell,) = document["cells"]
        assert cell["outcome"] == "failed"
        error = cell["error"]
        assert "no space left on device" in " ".join([error["message"], *error.get("tail", [])])
        assert "disk is full" in error["hint"]
        assert engine.docker("images", "--quiet") == "", "no image under the name of one"
        filler.unlink()
        code, document = build(project, engine)
        assert code == 0
        remember(document)


def test_the_engine_is_killed_and_started_again(project: Path) -> None:
    with engines.second_engine() as engine:
        code, document = build(project, engine, lambda: kill(engine))
        assert code in (1, 5)
        (cell,) = document["cells"]
        assert cell["outcome"] == "failed"
        assert "engine" in cell["error"]["message"] + (cell["error"]["hint"] or "")
        assert "engine stopped" in (cell["error"]["hint"] or "") + cell["error"]["message"]
        with again(engine):
            code, document = build(project, engine)
            assert code == 0
            remember(document)


def kill(engine: SecondEngine) -> None:
    """As the kernel does it when memory runs out: dockerd and the containerd that it runs."""
    containerd = engine.folder / "exec" / "containerd" / "containerd.pid"
    pids = [engine.pid, int((engine.folder / "pid").read_text()), int(containerd.read_text())]
    for pid in dict.fromkeys(pids):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@contextlib.contextmanager
def again(engine: SecondEngine) -> Iterator[None]:
    """The same engine with all that it kept."""
    (engine.folder / "pid").unlink(missing_ok=True)
    (engine.folder / "docker.sock").unlink(missing_ok=True)
    options = engines.dockerd(engine.folder, "containerd", None, ())
    with engine.log.open("ab") as log:
        process = subprocess.Popen([*engines.ALONE, *options], stdout=log, stderr=log)
    try:
        engines.wait(engine, process)
        yield
    finally:
        engines.stop(process)


_digests: set[str] = set()


def remember(document: dict[str, Any]) -> None:
    """Whatever happened before: of one lock comes one digest."""
    _digests.update(cell["image"]["digest"] for cell in document["cells"])
    assert len(_digests) == 1
