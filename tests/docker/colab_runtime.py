"""Runtimes of the profile ``colab`` for tests: built by ``rtbuild build``, started by ``rtbuild run``."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import tempfile
import threading
import time
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import rtbuild_command
from colab_page import Page

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
MATRIX = ROOT / "matrices" / "colab-cpu.yaml"
STACKS = ("pinned", "newest")
USER = 54321
"""Nobody in the image's ``/etc/passwd``."""


def cell(stack: str) -> str:
    system = {"pinned": "py3.13-trixie", "newest": "py3.11-bookworm"}[stack]
    return f"numpy2.2.6-{system}-cpu-colab-{stack}"


def image(stack: str) -> str:
    return f"rtbuild/colab-cpu:{cell(stack)}"


def rtbuild(*args: str) -> subprocess.CompletedProcess[str]:
    return rtbuild_command.rtbuild(ROOT, *args, check=None)


def docker(*args: str, check: bool = True) -> str:
    done = subprocess.run(["docker", *args], capture_output=True, text=True, check=False, timeout=120)
    assert not check or done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def free_port() -> int:
    """One that the system gives to nobody who asks for any, so that it is free also when it is used."""
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = random.randrange(10_000, first)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


@cache
def build() -> None:
    """Both stacks, locked; nothing is built where they are there."""
    with tempfile.TemporaryDirectory() as results:
        done = rtbuild("build", str(MATRIX), "--locked", "--progress", "plain", "--results", results)
        assert done.returncode == 0, done.stderr[-4000:]


class Runtime:
    """A started ``rtbuild run --json``."""

    def __init__(self, stack: str, content: Path, port: int) -> None:
        self.stack, self.content, self.port = stack, content, port
        began = time.monotonic()
        options = {"--port": port, "--content": content, "--user": USER, "--env": "HF_TOKEN"}
        given = [str(word) for pair in options.items() for word in pair]
        self.process = subprocess.Popen(
            [*rtbuild_command.RTBUILD, "run", cell(stack), str(MATRIX), "--json", *given],
            cwd=ROOT,
            env=os.environ | {"HF_TOKEN": "hf_of_the_caller", "RTBUILD_CACHE": f"{content.parent}/cache"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.talk = ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.document = self._document()
        self.seconds = time.monotonic() - began
        self.page = Page(self.document["address"])

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.talk += line

    def _document(self) -> dict:
        assert self.process.stdout is not None
        text = ""
        for line in self.process.stdout:
            text += line
            if line == "}\n":
                return json.loads(text)
        self.process.wait()
        self._reader.join(5)
        raise AssertionError(f"exit {self.process.returncode}\n{text}\n{self.talk}")

    def wait_for(self, text: str, seconds: float = 60) -> None:
        until = time.monotonic() + seconds
        while text not in self.talk:
            assert time.monotonic() < until, f"{text!r} was not said within {seconds} s:\n{self.talk}"
            time.sleep(0.1)

    def stop(self, number: int = signal.SIGINT) -> tuple[int, float]:
        """The exit status, and how long it took in seconds."""
        began = time.monotonic()
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            status = self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        finally:
            docker("rm", "--force", str(self.document["container"]), check=False)
        self._reader.join(5)
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()
        return status, time.monotonic() - began


@contextlib.contextmanager
def running(stack: str) -> Iterator[Runtime]:
    """A runtime with a work folder of its own."""
    with tempfile.TemporaryDirectory(prefix="rtbuild-colab-", ignore_cleanup_errors=True) as folder:
        content = Path(folder) / "content"
        content.mkdir()
        if os.getuid() == 0:
            os.chown(content, USER, USER)
        else:
            content.chmod(0o777)
        runtime = Runtime(stack, content, free_port())
        try:
            yield runtime
        finally:
            runtime.stop()
