"""Runs ``docker buildx build``: its plain output is the log and the progress, and errors are read from it.

A stage that was built comes out of the engine's store as ``docker save`` writes it.

The user's own network configuration reaches a build: certificate authorities as a secret, which no layer and
no history keeps, and proxies as the predefined build arguments, which stay out of the history as well.
"""

from __future__ import annotations

import json
import os
import re
import selectors
import shlex
import signal
import subprocess
import tarfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from builder.core.errors import CancelledError, CellError, CommandError
from builder.image.engine.facts import EngineFacts
from builder.image.layers import plain

_POLL_SECONDS = 0.1
_ESCALATION = ((signal.SIGINT, 10.0), (signal.SIGTERM, 5.0), (signal.SIGKILL, 3600.0))
"""How a build is ended, and how many seconds each signal gets: on SIGINT buildx has BuildKit cancel."""

_HINTS = (
    ("no space left on device", "the engine's disk is full: docker system df, then docker buildx prune"),
    ("error reading from server: EOF", "the engine stopped in the middle of the build: read its log"),
    ("error during connect", "the engine stopped: rtbuild doctor"),
    ("Cannot connect to the Docker daemon", "the engine stopped: rtbuild doctor"),
    ("failed to get oci-layout", "the layer cache changed during the build: run the same command again"),
)
"""Remedies of failures that are not the Dockerfile's, by a part of their text."""

_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")
_CHUNK = 1 << 20


@dataclass(frozen=True, kw_only=True)
class BuildRequest:
    """All arguments of one build."""

    context: Path
    tag: str
    epoch: int
    """``SOURCE_DATE_EPOCH``, in seconds since 1970."""
    platform: str
    build_contexts: Mapping[str, str] = field(default_factory=dict)
    """In the place of stages of the Dockerfile: ``{"wheels": "oci-layout://DIR:TAG"}``."""
    secrets: Mapping[str, Path] = field(default_factory=dict)
    proxies: Mapping[str, str] = field(default_factory=dict)
    """Arguments that need no ``ARG`` and stay out of the image's history
    (https://docs.docker.com/reference/dockerfile/#predefined-args)."""
    no_cache: bool = False
    cache_from: Sequence[str] = ()
    cache_to: Sequence[str] = ()
    """The source and the target of BuildKit's own cache, in buildx's words: ``type=registry,ref=…``."""
    target: str | None = None
    """The stage to build, if not the last one."""


def command_line(request: BuildRequest, *, docker: Sequence[str], facts: EngineFacts) -> list[str]:
    """The command as a user can paste it to see the same.

    BuildKit inside an engine with the containerd store writes the image there (``type=image``), any other
    builder streams it through buildx into the engine (``type=docker``).

    Proxies are named without their value, which buildx then takes from the environment: neither ``ps`` nor
    a log shows the password that a proxy's address may hold.
    """
    command = [*docker, "buildx", "build", "--builder", facts.builder, "--progress=plain"]
    command += ["--platform", request.platform, "--provenance=false", "--sbom=false"]
    if request.target is not None:
        command += ["--target", request.target]
    if request.no_cache:
        command.append("--no-cache")
    command += ["--build-arg", f"SOURCE_DATE_EPOCH={request.epoch}"]
    options = {
        "--build-arg": sorted(request.proxies),
        "--build-context": [f"{name}={place}" for name, place in sorted(request.build_contexts.items())],
        "--secret": [f"id={name},src={path}" for name, path in sorted(request.secrets.items())],
        "--cache-from": request.cache_from,
        "--cache-to": request.cache_to,
    }
    command += [word for option, values in options.items() for value in values for word in (option, value)]
    if facts.store == "containerd":
        kind = "image" if facts.builder_driver == "docker" else "docker"
        output = f"type={kind},name={request.tag},oci-mediatypes=true,compression=uncompressed"
        command += ["--output", output]
    else:
        command += ["--tag", request.tag, "--load"]
    return [*command, str(request.context)]


def run_build(
    command: Sequence[str],
    request: BuildRequest,
    *,
    log: Path,
    on_line: Callable[[str], None],
    cancel: threading.Event,
) -> None:
    """Run ``command``, which :func:`command_line` made; ``log`` gets all that it prints.

    Raises CommandError or CancelledError, and CellError if the log cannot be written.
    """
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        file = log.open("w", encoding="utf-8", buffering=1)
    except OSError as error:
        raise CellError(f"the build's log cannot be written: {error}") from error
    lines: list[str] = []
    with file:
        file.write(f"+ {shlex.join(command)}\n")
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={**os.environ, **request.proxies, "DOCKER_CLI_HINTS": "false", "NO_COLOR": "1"},
            start_new_session=True,  # Ctrl-C reaches rtbuild alone, which then ends its builds in order
        )
        try:
            for line in _lines(process, cancel):
                file.write(line + "\n")
                lines.append(line)
                on_line(line)
            returncode = process.wait()
        except BaseException:
            _stop(process)
            raise
        finally:
            if process.stderr:
                process.stderr.close()
    if cancel.is_set() and returncode != 0:
        raise CancelledError(f"the build of {request.tag} was cancelled", hint=f"its log so far: {log}")
    if returncode != 0:
        raise _failure(command, request.tag, returncode, lines=lines, log=log)


def _lines(process: subprocess.Popen[bytes], cancel: threading.Event) -> Iterator[str]:
    """Lines of stderr until it ends; a set ``cancel`` ends the process, whose last words are read too."""
    pipe = process.stderr
    if pipe is None:
        raise TypeError("the process was started without a pipe")
    rest = b""
    steps, deadline = iter(_ESCALATION), 0.0
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        while True:
            if cancel.is_set() and time.monotonic() >= deadline:
                number, grace = next(steps)
                _signal_group(process, number)
                deadline = time.monotonic() + grace
            if selector.select(_POLL_SECONDS):
                chunk = os.read(pipe.fileno(), 1 << 16)
                if not chunk:
                    break
                *whole, rest = (rest + chunk).split(b"\n")
                yield from map(printable_line, whole)
            elif process.poll() is not None:
                break  # a child of its own may hold the pipe open
    if rest:
        yield printable_line(rest)


def printable_line(line: bytes) -> str:
    """A line as a terminal would leave it: without colours, and after its last carriage return."""
    return _ANSI.sub("", line.decode("utf-8", "replace")).rstrip("\r").rpartition("\r")[2]


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End a build and all its children, however long it takes."""
    for number, grace in _ESCALATION:
        _signal_group(process, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(grace)
            return


def _signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)  # it leads its own session, so its group has its number


def hint_for(text: str) -> str | None:
    """The remedy of a failure of the engine's machine that this output shows."""
    return next((hint for part, hint in _HINTS if part in text), None)


def _failure(
    command: Sequence[str], tag: str, returncode: int, *, lines: Sequence[str], log: Path
) -> CommandError:
    step, tail = _of_failed_step(lines)
    errors = [line for line in tail if line.startswith("ERROR: ")]
    reason = errors[-1].removeprefix("ERROR: ") if errors else f"docker buildx ended with status {returncode}"
    reason = reason.removeprefix("failed to solve: ")
    status = re.search(r"did not complete successfully: exit code: (\d+)$", reason)
    if step and status:  # BuildKit repeats the whole script, which may be a page long
        reason = f"{step if len(step) <= 100 else step[:99] + '…'} ended with status {status[1]}"
    return CommandError(
        f"{tag} did not build: {reason}",
        command=command,
        returncode=returncode,
        tail=tail,
        log=log,
        hint=hint_for("\n".join(tail)) or f"the whole log: {log}",
    )


def _of_failed_step(lines: Sequence[str]) -> tuple[str, list[str]]:
    """The step that failed by itself, and its last 40 lines with what buildx said at the end."""
    numbered = [re.match(r"#(\d+) (?:\d+\.\d+ )?(.*)", line) for line in lines]
    failed = next((m[1] for m in numbered if m and re.match(r"ERROR: (?!.*context canceled$)", m[2])), "")
    of_step = [m[2] for m in numbered if m and m[1] == failed]
    last = max((number for number, match in enumerate(numbered) if match), default=-1)
    tail = [*of_step[1:-1], *lines[last + 1 :]] if failed else list(lines[last + 1 :])
    return (of_step[0] if of_step else ""), tail[-40:]


class SavedImage(ExitStack[None]):
    """An image as ``docker save`` writes it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._tar = self.enter_context(tarfile.open(path))  # noqa: SIM115 - closed by the stack
        try:
            document = json.load(self._open("manifest.json"))[0]
            self.config: Mapping[str, Any] = json.load(self._open(document["Config"]))
            self.layers: tuple[str, ...] = tuple(document["Layers"])
        except (KeyError, IndexError, ValueError, tarfile.TarError) as problem:
            self.close()
            raise CellError(f"{path} is no image as docker save writes it: {problem}") from problem

    @property
    def diff_ids(self) -> tuple[str, ...]:
        return tuple(self.config.get("rootfs", {}).get("diff_ids", ()))

    def size(self, number: int) -> int:
        """Compressed bytes of a layer, as they stand in the archive."""
        return self._tar.getmember(self.layers[number]).size

    @contextmanager
    def layer(self, number: int) -> Iterator[tarfile.TarFile]:
        """The layer as a tar stream to be read once, front to back."""
        with self.stream(number) as stream, tarfile.open(fileobj=stream, mode="r|", bufsize=_CHUNK) as tar:
            yield tar

    @contextmanager
    def stream(self, number: int) -> Iterator[IO[bytes]]:
        """The bytes of the layer's tar stream, whatever they are compressed with."""
        with self._open(self.layers[number]) as raw:
            yield plain(raw, "tar")  # type: ignore[arg-type]

    def _open(self, name: str) -> IO[bytes]:
        found = self._tar.extractfile(name)
        if found is None:
            raise KeyError(name)
        return found
