"""The Jupyter server: which one is here, how it is started, when it answers, how it ends."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from typing import IO, Mapping

from .settings import LOOPBACK, StartError

_SERVERS = ("notebook", "jupyterlab", "jupyter_server")
"""Modules that start one, the most complete first."""


def find() -> str:
    """The module of the server that is installed. Raises StartError where there is none."""
    for name in _SERVERS:
        if importlib.util.find_spec(name) is not None:
            return name
    raise StartError(
        f"this image has no Jupyter: none of {', '.join(_SERVERS)} is installed",
        "build its cell with `profile: colab`, or install notebook",
        5,
    )


class Server(object):
    """A started Jupyter."""

    def __init__(self, port: int, bind: str, token: str, folder: str, environment: Mapping[str, str]) -> None:
        self.port = port
        # Jupyter reads the token out of a file, which goes as soon as it has: a variable would be inherited
        # by every notebook, and shown by any that prints its environment.
        handle, self._token_file = tempfile.mkstemp(prefix="token-")
        with os.fdopen(handle, "w") as stream:
            stream.write(token)
        own = dict(environment, JUPYTER_TOKEN_FILE=self._token_file)
        own.pop("JUPYTER_TOKEN", None)
        own.update(RTBUILD_PORT=str(port), RTBUILD_BIND=bind, RTBUILD_WORK=folder)
        own.setdefault("PYDEVD_DISABLE_FILE_VALIDATION", "1")  # else every kernel warns about frozen modules
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-m", find()],
            cwd=folder,
            env=own,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,  # its log is on stderr; here notebook 6 only advertises its successor
            stderr=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C comes to the start program, which stops it in order
        )
        self._stopping = False
        self._log = threading.Thread(target=self._relay, args=(self.process.stderr,), daemon=True)
        self._log.start()

    def _relay(self, log: IO[bytes]) -> None:
        """Print Jupyter's log until it is asked to stop: an open tab's requests then end in tracebacks."""
        with log:
            for line in log:
                if not self._stopping:
                    sys.stderr.write(line.decode("utf-8", "replace"))
                    sys.stderr.flush()

    def poll(self) -> int | None:
        """The exit status, once Jupyter has ended and its last words are printed."""
        status = self.process.poll()
        if status is not None:
            self._log.join(1.0)  # a kernel that outlives the server keeps the pipe open
        return status

    def wait_until_it_answers(self, stop: threading.Event, seconds: float = 120.0) -> None:
        """Or until ``stop``. Raises StartError where it ends first, or does not answer in that time."""
        until = time.monotonic() + seconds
        try:
            while not stop.is_set() and not answers(self.port):
                status, hint = self.poll(), "its own words are above"
                if status is not None:
                    raise StartError(f"Jupyter ended with status {status} before it answered", hint, 1)
                if time.monotonic() > until:
                    raise StartError(f"Jupyter did not answer within {seconds:.0f} s", hint, 1)
                time.sleep(0.05)
        finally:
            os.unlink(self._token_file)

    def stop(self) -> None:
        """End it and its kernels: asked first, then not."""
        self._stopping = True
        if self.process.poll() is not None:
            return
        self.process.terminate()
        try:
            # under the ten seconds after which Docker kills:
            # https://docs.docker.com/reference/cli/docker/container/stop/
            self.process.wait(7)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def answers(port: int, seconds: float = 5.0) -> bool:
    """Whether Jupyter says its version on ``/api``, which asks for no token."""
    # No proxy: an environment's HTTP_PROXY is not meant for loopback.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://{LOOPBACK}:{port}/api", timeout=seconds) as response:
            return bool(response.status == 200)
    except (OSError, ValueError):
        return False
