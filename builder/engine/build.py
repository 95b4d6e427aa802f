"""Runs ``docker buildx build`` and turns what it prints into events, a log and an error worth reading."""

from __future__ import annotations

import json
import os
import re
import selectors
import shlex
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from builder.engine.buildlog import BuildLog, one_line, shorten
from builder.engine.rawjson import BuildProgress, MessageDecoder
from builder.errors import CancelledError, CommandError

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from builder.engine.events import BuildEvent

PREDEFINED_PROXY_ARGS = frozenset(
    {
        "HTTP_PROXY",
        "http_proxy",
        "HTTPS_PROXY",
        "https_proxy",
        "FTP_PROXY",
        "ftp_proxy",
        "NO_PROXY",
        "no_proxy",
    }
    | {"ALL_PROXY", "all_proxy"}
)
"""Build arguments that need no ``ARG`` and stay out of the image's history
(https://docs.docker.com/reference/dockerfile/#predefined-args)."""

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
"""What to do about failures that are not the Dockerfile's, by a part of their text."""


@dataclass(frozen=True, kw_only=True)
class BuildRequest:
    """All that one build is told."""

    context: Path
    tag: str
    platform: str
    epoch: int
    compression: Literal["zstd", "gzip", "uncompressed"] = "zstd"
    build_contexts: Mapping[str, str]
    secrets: Mapping[str, Path]
    build_args: Mapping[str, str]
    no_cache: bool = False
    cache_from: Sequence[str] = ()
    cache_to: Sequence[str] = ()
    """Where BuildKit's own cache comes from and goes, in buildx's words: ``type=registry,ref=…``."""
    target: str | None = None
    """The stage to build, if not the last one."""


@dataclass(frozen=True, kw_only=True)
class Finished:
    """How a build that succeeded went."""

    digest: str
    """``containerimage.digest`` of buildx's metadata."""
    seconds: float
    steps: int
    cached: int


def command_line(
    request: BuildRequest,
    *,
    docker: Sequence[str],
    builder: str,
    driver: str = "docker",
    store: Literal["containerd", "graphdriver"],
) -> list[str]:
    """The command without its places for progress and metadata: what a user can paste to see the same.

    A containerd store keeps compressed layers as the exporter makes them: BuildKit inside the engine writes
    them there (``type=image``), any other streams them through buildx into it (``type=docker``), and the
    digest is the same. A graphdriver unpacks what it is given, and there is nothing to compress.

    Proxy arguments are named without their value, which buildx then takes from the environment: neither
    ``ps`` nor a log shows the password that a proxy's address may hold.
    """
    command = [*docker, "buildx", "build", "--builder", builder]
    command += ["--platform", request.platform, "--provenance=false", "--sbom=false"]
    if request.target is not None:
        command += ["--target", request.target]
    if request.no_cache:
        command.append("--no-cache")
    command += ["--build-arg", f"SOURCE_DATE_EPOCH={request.epoch}"]
    for name, value in sorted(request.build_args.items()):
        command += ["--build-arg", name if name in PREDEFINED_PROXY_ARGS else f"{name}={value}"]
    for name, place in sorted(request.build_contexts.items()):
        command += ["--build-context", f"{name}={place}"]
    for name, path in sorted(request.secrets.items()):
        command += ["--secret", f"id={name},src={path}"]
    for place in request.cache_from:
        command += ["--cache-from", place]
    for place in request.cache_to:
        command += ["--cache-to", place]
    if store == "containerd":
        kind = "image" if driver == "docker" else "docker"
        how = f"compression={request.compression}"
        how += ",compression-level=3" if request.compression == "zstd" else ""
        command += [
            "--output",
            f"type={kind},name={request.tag},oci-mediatypes=true,{how}",
        ]
    else:
        command += ["--tag", request.tag, "--load"]
    return [*command, str(request.context)]


def run_build(
    command: Sequence[str],
    request: BuildRequest,
    *,
    log: Path,
    on_event: Callable[[BuildEvent], None],
    cancel: threading.Event,
) -> Finished:
    """Run ``command``, which :func:`command_line` made. Raises CommandError or CancelledError."""
    proxies = {name: value for name, value in request.build_args.items() if name in PREDEFINED_PROXY_ARGS}
    environment = {**os.environ, **proxies, "DOCKER_CLI_HINTS": "false", "NO_COLOR": "1"}
    progress = BuildProgress()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="rtbuild-") as folder, BuildLog(log) as text:
        metadata = Path(folder) / "metadata.json"
        extra = ["--progress=rawjson", "--metadata-file", str(metadata)]
        text.line("+ " + shlex.join(command))
        process = subprocess.Popen(
            [*command[:-1], *extra, command[-1]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=environment,
            start_new_session=True,  # Ctrl-C reaches rtbuild alone, which then ends its builds in order
        )
        try:
            for item in _messages(process, cancel):
                if isinstance(item, str):
                    text.line(item)
                    continue
                for event in progress.events(item):
                    text.event(event)
                    on_event(event)
            for event in progress.finish():
                text.event(event)
                on_event(event)
            returncode = process.wait()
        except BaseException:
            _close(process)
            _stop(process)
            raise
        _close(process)
        if cancel.is_set() and returncode != 0:
            text.line("cancelled")
            raise CancelledError(f"the build of {request.tag} was cancelled", hint=f"its log so far: {log}")
        if returncode != 0:
            step = progress.failed
            raise _failure(command, request.tag, returncode, tail=text.tail(step), log=log, step=step)
        seconds = time.monotonic() - began
        text.line(f"done in {seconds:.1f} s: {progress.total} steps, {progress.cached} from the cache")
        digest = json.loads(metadata.read_text("utf-8"))["containerimage.digest"]
    return Finished(digest=digest, seconds=seconds, steps=progress.total, cached=progress.cached)


def _messages(process: subprocess.Popen[bytes], cancel: threading.Event) -> Iterator[dict[str, object] | str]:
    """Decode stderr until it ends; a set ``cancel`` ends the process, whose last words are read too."""
    pipe = process.stderr
    if pipe is None:
        raise TypeError("the process was started without a pipe")
    decoder = MessageDecoder()
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
                yield from decoder.feed(chunk)
            elif process.poll() is not None:
                break  # a child of its own may hold the pipe open
    yield from decoder.feed(b"", final=True)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End a build and all its children, however long it takes."""
    for number, grace in _ESCALATION:
        _signal_group(process, number)
        try:
            process.wait(grace)
        except subprocess.TimeoutExpired:
            continue
        return


def _close(process: subprocess.Popen[bytes]) -> None:
    if process.stderr:
        process.stderr.close()


def _signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    try:
        os.killpg(process.pid, number)  # it leads its own session, so its group has its number
    except ProcessLookupError:
        return


def hint_for(text: str) -> str | None:
    """What to do about a failure of the engine's machine that this output shows."""
    return next((hint for part, hint in _HINTS if part in text), None)


def _failure(
    command: Sequence[str], tag: str, returncode: int, *, tail: Sequence[str], log: Path, step: str | None
) -> CommandError:
    errors = [line for line in tail if line.startswith("ERROR: ")]
    reason = errors[-1].removeprefix("ERROR: ") if errors else f"docker buildx ended with status {returncode}"
    reason = reason.removeprefix("failed to solve: ")
    status = re.search(r"did not complete successfully: exit code: (\d+)$", reason)
    if step and status:  # BuildKit repeats the whole script, which may be a page long
        reason = f"{shorten(one_line(step), 100)} ended with status {status[1]}"
    text = "\n".join(tail)
    return CommandError(
        f"{tag} did not build: {reason}",
        command=command,
        returncode=returncode,
        tail=tail,
        log=log,
        hint=hint_for(text) or f"the whole log: {log}",
    )
