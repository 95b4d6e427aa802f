"""What foreign code can do, shut in: nothing outside, and no more than it is allowed."""

from __future__ import annotations

import contextlib
import os
import secrets
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from sandbox_system import system

from builder.core.errors import CancelledError, CommandError
from builder.image.sandbox import Limits, View
from builder.image.sandbox import run as foreign

if TYPE_CHECKING:
    from collections.abc import Callable


def run(tmp_path: Path, script: str, *, cancel: threading.Event | None = None, **limits: int) -> bytes:
    bounds = Limits(**limits)
    return foreign(
        ["/bin/sh", "-c", script],
        View(
            root=system(tmp_path / "root"),
            folders={"/usr": Path("/usr")},
            memory={"/build": bounds.memory, "/tmp": bounds.memory // 4},
            at="/build",
        ),
        what="the build",
        env={"PATH": "/usr/bin:/bin"},
        limits=bounds,
        cancel=cancel or threading.Event(),
        advise=lambda text: f"{len(text.splitlines())} lines",
    )


def test_the_result_is_standard_output(tmp_path: Path) -> None:
    assert run(tmp_path, "echo said >&2; echo made > /build/a; cat /build/a") == b"made\n"
    assert not (tmp_path / "root/build/a").exists()


def test_the_machine_is_out_of_reach(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    script = f"""ls {tmp_path}/secret /etc /proc/1 2>/dev/null
    cat /sys/class/net/*/address 2>/dev/null
    echo x 2>/dev/null > /usr/escaped || echo x 2>/dev/null > /escaped || echo read-only
    mkdir /build/r; chroot /build/r /bin/sh 2>/dev/null; cd ../../../..; ls"""
    said = run(tmp_path, script).decode().split()
    assert said == ["read-only", "bin", "build", "dev", "lib", "lib64", "requires", "sdist", "tmp", "usr"]


def test_there_is_no_network(tmp_path: Path) -> None:
    script = (
        "import socket\ntry: socket.create_connection(('127.0.0.1', 9), 1)\nexcept OSError as e: print(e)"
    )
    assert b"refused" in run(tmp_path, f'python3 -c "{script}"')


def test_a_failure_shows_its_last_lines(tmp_path: Path) -> None:
    with pytest.raises(CommandError) as raised:
        run(tmp_path, "echo first >&2; echo 'error: gcc is not there' >&2; exit 3")
    assert raised.value.returncode == 3
    assert raised.value.tail == ("first", "error: gcc is not there")
    assert raised.value.hint == "2 lines"


def test_an_endless_build_is_stopped(tmp_path: Path) -> None:
    began = time.monotonic()
    with pytest.raises(CommandError, match="was not done after 1 s"):
        run(tmp_path, "exec 2>&- 1>&-; sleep 600", seconds=1)
    assert time.monotonic() - began < 60


def test_endless_output_is_stopped(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="printed more than 1 MiB") as raised:
        run(tmp_path, "yes aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa >&2", output=1 << 20)
    assert len(raised.value.tail) == 40


def test_an_endless_result_is_stopped(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="made more than 1 MiB"):
        run(tmp_path, "yes", result=1 << 20)


def test_too_many_processes_are_stopped(tmp_path: Path) -> None:
    with pytest.raises(CommandError) as raised:
        run(tmp_path, "for i in $(seq 40); do sleep 60 & done; wait", processes=20)
    assert "Cannot fork" in " ".join(raised.value.tail)


def test_a_full_disk_is_its_own(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="failed"):
        run(tmp_path, "dd if=/dev/zero of=/build/a bs=1M count=8", memory=1 << 20)


def test_a_cancelled_build_ends(tmp_path: Path) -> None:
    cancel = threading.Event()
    timer = threading.Timer(0.3, cancel.set)
    timer.start()
    with pytest.raises(CancelledError):
        run(tmp_path, "sleep 60", cancel=cancel)
    timer.join()


STUCK = """#!/bin/sh
# A double of bubblewrap whose child waits for ever for its parent, and does not hear of the parent's end.
sleep {seconds} &
exec sleep 300
"""
RUNNER = """
from threading import Event
from pathlib import Path
from builder.image.sandbox.bwrap import Limits, View, _run
_run(["/bin/true"], View(root=Path("/")), {}, Limits(), Event())
"""


def test_nothing_outlives_a_run_that_is_killed() -> None:
    """bubblewrap's own child did, in the moment before its parent has mapped users for it."""
    seconds = f"300.{secrets.randbelow(10**12)}"

    def stuck() -> list[bytes]:
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                found += [text for text in [path.read_bytes()] if text == f"sleep\0{seconds}\0".encode()]
        return found

    # Not below /tmp, which the program does not see; readable by its own user.
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        Path(name).chmod(0o755)
        program = Path(name) / "bwrap"
        program.write_text(STUCK.format(seconds=seconds))
        program.chmod(0o755)
        environment = os.environ | {"PATH": f"{name}:{os.environ['PATH']}"}
        runner = subprocess.Popen([sys.executable, "-c", RUNNER], env=environment)
        until(lambda: len(stuck()) == 1)
        runner.kill()
        runner.wait()
        until(lambda: not stuck())


def until(done: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not done():
        assert time.monotonic() < end
        time.sleep(0.02)
