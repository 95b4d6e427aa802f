"""Runs one program in a container that may read the image, use the GPU, and do nothing else.

One at a time has a machine's GPUs, among all rtbuild processes there: programs that run side by side take one
another's memory. TensorFlow takes nearly all of it as it starts
(https://www.tensorflow.org/guide/gpu#limiting_gpu_memory_growth), and the others would find the GPU ``busy``.
"""

import errno
import hashlib
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker
import requests
from docker.types import DeviceRequest, LogConfig, Mount
from docker.utils.socket import STDERR, STDOUT, frames_iter

from builder.core.errors import CancelledError, CellError
from builder.image.engine.facts import GpuRequest

LABEL = "io.rtbuild.probe"
"""On every container made here, to find any that outlived a crash: ``docker ps -a --filter label=…``."""

MAX_OUTPUT = 16 << 20
"""Bytes kept of each stream. A report has some hundred kilobytes; more is a program that runs wild."""

_NOBODY = "65534:65534"
"""A user without a name in any image: what needs root, or a home, shows."""

_TMP = "/tmp"  # noqa: S108
"""The one place in the container that can be written to, in memory."""

_TMPFS = "rw,exec,nosuid,nodev,size=2g,mode=1777,uid=65534,gid=65534"
"""Frameworks compile kernels into /tmp and load them from there, so it may hold programs. It has an owner
because runc gives it the mode of the image's own folder, which need not be open to all."""

_POLL_SECONDS = 0.2
_SECONDS_TO_DRAIN = 5
_frames: Callable[..., Iterator[tuple[int, bytes]]] = frames_iter
_TRANSPORT_ERRORS = (docker.errors.DockerException, requests.RequestException)


@dataclass(frozen=True, kw_only=True)
class ProbeRun:
    """One run of a program in a container."""

    returncode: int = -1
    """The program's exit status, 128 + N if signal N ended it; -1 if it never ran or was stopped."""
    stdout: str = ""
    stderr: str = ""
    started: bool = True
    daemon_error: str | None = None
    """Why the engine could not start the container, in its own words; None if it started."""
    timed_out: bool = False
    truncated: bool = False
    """True if the program printed more than is kept; it was stopped there."""


@dataclass(frozen=True, kw_only=True)
class ContainerRequest:
    """A program to run, and the seconds that it may take."""

    reference: str
    argv: Sequence[str]
    gpu: GpuRequest | None
    timeout: float
    mounts: Mapping[Path, str]
    """Files or folders of this machine, each with its place in the container; read-only."""


def run(client: docker.DockerClient, request: ContainerRequest, cancel: threading.Event) -> ProbeRun:
    """Run to the end, the timeout, the output limit or ``cancel``; the container never outlives the call.

    A container that the engine cannot start is a :class:`ProbeRun` too, with the engine's own words: most
    faults of a GPU host show there. Raises CancelledError, and CellError if the engine itself is gone.
    """
    try:
        identifier = _create(client, request)
    except docker.errors.ImageNotFound as error:
        raise CellError(f"the engine has no image {request.reference}", hint="rtbuild build") from error
    except docker.errors.APIError as error:
        return _not_started(error)
    except _TRANSPORT_ERRORS as error:
        raise CellError(f"the engine did not make a container of {request.reference}: {error}") from error
    try:
        return _follow(client, identifier, request, cancel)
    except _TRANSPORT_ERRORS as error:
        raise CellError(f"the engine stopped answering while {request.reference} ran: {error}") from error
    finally:
        with suppress(*_TRANSPORT_ERRORS):  # gone already, or the engine is: the error above says so
            client.api.remove_container(identifier, force=True, v=True)


def _create(client: docker.DockerClient, request: ContainerRequest) -> str:
    # ``--gpus all``, or ``--device nvidia.com/gpu=all``, in the API's words
    gpus = {
        "gpus": [DeviceRequest(count=-1, capabilities=[["gpu"]])],
        "cdi": [DeviceRequest(driver="cdi", device_ids=["nvidia.com/gpu=all"])],
        None: [],
    }
    # NVIDIA's hook mounts the driver as root before the container's own limits begin, so none of these
    # keeps the GPU out; its device nodes are open to all users.
    host_config = client.api.create_host_config(
        read_only=True,
        tmpfs={_TMP: _TMPFS},
        cap_drop=["ALL"],
        security_opt=["no-new-privileges"],
        network_mode="none",
        device_requests=gpus[request.gpu],
        log_config=LogConfig(type=LogConfig.types.NONE),
        mounts=[
            Mount(target=target, source=str(source), type="bind", read_only=True)
            for source, target in sorted(request.mounts.items())
        ],
    )
    container = client.api.create_container(
        request.reference,
        entrypoint=list(request.argv[:1]),  # not the image's own, which may print a banner or start a shell
        command=list(request.argv[1:]),
        user=_NOBODY,
        environment={"HOME": _TMP},
        working_dir=_TMP,
        host_config=host_config,
        labels={LABEL: "1"},
    )
    return str(container["Id"])


class _Output:
    """Collects both streams in a thread of its own, up to :data:`MAX_OUTPUT` bytes each."""

    def __init__(self, attached: Any) -> None:
        self._kept = {STDOUT: bytearray(), STDERR: bytearray()}
        self.truncated = False
        self.ended = threading.Event()
        self._attached = attached
        self._thread = threading.Thread(target=self._collect, name="rtbuild-probe-output", daemon=True)
        self._thread.start()

    def _collect(self) -> None:
        try:
            # A container that is removed cuts the connection, which ends the output like any other end.
            with suppress(OSError, ValueError, *_TRANSPORT_ERRORS):
                for stream, chunk in _frames(self._attached, tty=False):
                    kept = self._kept[stream]
                    kept += chunk[: MAX_OUTPUT - len(kept)]
                    if len(kept) >= MAX_OUTPUT:
                        # Read on to the end all the same: an engine that cannot get rid of a container's
                        # output does not notice that the container was killed, and never answers the kill.
                        self.truncated = True
                        self.ended.set()
        finally:
            self.ended.set()

    def text(self, stream: int) -> str:
        return bytes(self._kept[stream]).decode("utf-8", "replace")

    def close(self) -> None:
        self._thread.join(_SECONDS_TO_DRAIN)
        # The SDK hangs the response on its socket to keep both alive; closing it closes the connection too.
        getattr(self._attached, "_response", self._attached).close()


def _follow(
    client: docker.DockerClient, identifier: str, request: ContainerRequest, cancel: threading.Event
) -> ProbeRun:
    streams = {"stdout": 1, "stderr": 1, "stream": 1}
    output = _Output(client.api.attach_socket(identifier, params=streams))
    try:
        client.api.start(identifier)
    except docker.errors.APIError as error:
        client.api.remove_container(identifier, force=True, v=True)
        output.close()
        return _not_started(error)
    deadline = time.monotonic() + request.timeout
    while not output.ended.wait(_POLL_SECONDS) and not cancel.is_set() and time.monotonic() < deadline:
        pass
    returncode, timed_out = -1, False
    # A program can close its streams and live on, so the end of output is not the end of the run.
    while not (cancel.is_set() or output.truncated):
        state = client.api.inspect_container(identifier)["State"]
        if not state["Running"]:
            returncode = int(state["ExitCode"])
            break
        if time.monotonic() >= deadline:
            timed_out = True
            break
        time.sleep(_POLL_SECONDS)
    if returncode < 0:
        with suppress(docker.errors.APIError):  # it may have ended by itself in this very moment
            client.api.kill(identifier)
    output.close()
    if cancel.is_set():
        raise CancelledError(f"the probe of {request.reference} was cancelled")
    return ProbeRun(
        returncode=returncode,
        stdout=output.text(STDOUT),
        stderr=output.text(STDERR),
        timed_out=timed_out,
        truncated=output.truncated,
    )


def _not_started(error: docker.errors.APIError) -> ProbeRun:
    return ProbeRun(started=False, daemon_error=str(error.explanation or error))


def turn_name(host: str, *, remote: bool) -> str:
    """The name under which the processes of all users of this machine meet; its engines share its GPUs."""
    return f"rtbuild-gpus-{hashlib.sha256(host.encode()).hexdigest()[:12] if remote else 'here'}"


@contextmanager
def turn(
    name: str, *, cancel: threading.Event | None = None, waits: Callable[[], None] | None = None
) -> Iterator[None]:
    """Hold the GPUs until the block ends. ``waits`` is called once, if another process has them.

    An abstract socket has the name: of no file, so of no user, and the kernel lets go of it with the process,
    however that ends (https://man7.org/linux/man-pages/man7/unix.7.html). Raises CancelledError.
    """
    with socket.socket(socket.AF_UNIX) as held:
        while True:
            try:
                held.bind(f"\0{name}")
                break
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
            if waits is not None:
                waits()
                waits = None
            if cancel is not None and cancel.is_set():
                raise CancelledError("cancelled while another probe had the GPU")
            time.sleep(_POLL_SECONDS)
        yield
