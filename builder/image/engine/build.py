"""How an image comes into the engine's store: by ``docker buildx build``, whose plain output is the log and
the progress, and from which errors are read; or by ``docker load``, without the blobs that the store has.

A stage that was built comes out of the engine's store as ``docker save`` writes it.

The user's own network configuration reaches a build: certificate authorities as a secret, which no layer and
no history keeps, and proxies as the predefined build arguments, which stay out of the history as well.

With the containerd image store an archive may leave out blobs that belong to images of the engine; it looks
for them in its own store. Which blobs those are is known of images whose manifests rtbuild has given to an
engine before: a manifest's digest is the image's id there. A graphdriver takes whole archives only.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import selectors
import shlex
import signal
import subprocess
import tarfile
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

from builder.core.digests import sha256_of
from builder.core.errors import CancelledError, CellError, CommandError
from builder.core.files import locked, try_lock, write_whole
from builder.image.engine.facts import EngineFacts
from builder.image.engine.images import ImageStore
from builder.image.layers import END, Layer, file_header, padding, plain
from builder.sources.oci import OciImage, archive_parts, plain_image

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


ArchiveParts = Iterable[tuple[str, bytes | Path]]
"""Files by their paths in an archive."""

_BUFFER = 4 << 20
RECEIVING = "rtbuild-receiving"
"""The repository that an image is in until it is known to be whole."""
_NOTED = "receiving-"
_OVER = 24 * 3600
"""Seconds after which no build still needs a passing name, so that one whose note was lost goes, too."""
_REMEMBERED = 1000
"""Manifests that are remembered: of an image whose own is forgotten every layer is sent again."""
_NO_LAYER = "application/vnd.rtbuild.blob"
"""The media type of a layer that an engine keeps and does not unpack."""


def receive(
    images: ImageStore,
    command: Sequence[str],
    image: OciImage[Layer],
    blob: Callable[[Layer], Path],
    name: str,
    *,
    there: frozenset[str],
    advance: Callable[[int], None],
) -> None:
    """Give the engine an image as ``name``, first without the layers ``there``; if that fails, all of it.

    The image has a name of its own until it is whole: an image called ``name`` stays as it is if this fails.
    ``advance`` is told of bytes that are sent, and often of none; what it raises ends the transfer. Raises
    CommandError with the engine's words.
    """
    for without in dict.fromkeys((there & _layers(image.manifest), frozenset[str]())):
        with passing_names(images) as named:
            passing = named("image")
            try:
                load(command, archive_parts(image, passing, blob, without=without), name, advance)
                images.tag(passing, name)
                break
            except CommandError:
                if not without:
                    raise
    write_whole(images.memory / image.digest.removeprefix("sha256:"), image.manifest)


def keep(command: Sequence[str], layer: Layer, blob: Path, name: str, advance: Callable[[int], None]) -> None:
    """Give a containerd store a layer before the layers below it: kept under ``name``, and not unpacked.

    Of a manifest whose layers are none by their media types, the engine takes the blobs and unpacks nothing:
    https://github.com/moby/moby/blob/v26.1.5/daemon/containerd/image_exporter.go. Raises CommandError.
    """
    alone = plain_image((replace(layer, media_type=_NO_LAYER),), {"architecture": "amd64", "os": "linux"})
    load(command, archive_parts(alone, name, lambda _layer: blob), name, advance)


@contextmanager
def passing_names(images: ImageStore) -> Iterator[Callable[[str], str]]:
    """Gives names in the engine, by their tags, that are gone when the block ends.

    They are noted in a locked file. The kernel frees the lock if this process is killed, and
    :func:`sweep_passing` of a later one removes them. The time in their names serves where a removed cache
    took the note with it.
    """
    token = f"{int(time.time())}-{uuid.uuid4().hex[:12]}"
    images.memory.mkdir(parents=True, exist_ok=True)
    noted = images.memory / f"{_NOTED}{token}"
    with locked(noted) as file:

        def name(tag: str) -> str:
            new = f"{RECEIVING}/{token}:{tag}"
            os.write(file, f"{new}\n".encode())
            return new

        try:
            yield name
        finally:
            with contextlib.suppress(CellError):  # an engine that is gone keeps the names
                _forget(images, noted)


def sweep_passing(images: ImageStore) -> None:
    """Remove the names that killed processes left in the engine, and all but the manifests written last.

    Raises CellError if it does not answer.
    """
    given: list[tuple[float, Path]] = []
    for path in images.memory.glob("[0-9a-f]" * 64):
        with contextlib.suppress(OSError):  # another process has just done it
            given.append((path.stat().st_mtime, path))
    for _, path in sorted(given)[:-_REMEMBERED]:
        with contextlib.suppress(OSError):
            path.unlink()
    for noted in images.memory.glob(f"{_NOTED}*"):
        if try_lock(noted):
            _forget(images, noted)
    for name in images.named(f"{RECEIVING}/*"):
        begun = name.removeprefix(f"{RECEIVING}/").partition("-")[0]
        if begun.isdecimal() and int(begun) < time.time() - _OVER:
            images.remove(name)


def _forget(images: ImageStore, noted: Path) -> None:
    try:
        names = noted.read_text().splitlines()
    except FileNotFoundError:  # another process has just done it
        return
    for name in names:
        if name.startswith(f"{RECEIVING}/"):
            images.remove(name)
    noted.unlink(missing_ok=True)


def known_blobs(images: ImageStore) -> frozenset[str]:
    """The layers of images that the engine has, as far as their manifests are remembered."""
    found: set[str] = set()
    for name in {name for names in images.built().values() for name in names if name.startswith("sha256:")}:
        with contextlib.suppress(OSError, ValueError, LookupError, TypeError):  # not given from here
            content = (images.memory / name.removeprefix("sha256:")).read_bytes()
            if sha256_of(content) == name:
                found |= _layers(content)
    return frozenset(found)


def _layers(manifest: bytes) -> frozenset[str]:
    return frozenset(layer["digest"] for layer in json.loads(manifest)["layers"])


def load(command: Sequence[str], parts: ArchiveParts, name: str, advance: Callable[[int], None]) -> None:
    """Run ``docker load`` with an archive of ``parts``; ``advance`` as in :func:`receive`."""
    whole = [*command, "load", "--quiet"]
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            whole, stdin=subprocess.PIPE, stdout=said, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            with contextlib.suppress(BrokenPipeError):  # it ended, and says below why
                _send(process, parts, advance)
            while True:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    status = process.wait(0.1)
                    break
                advance(0)
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
        said.seek(0)
        tail = said.read().decode("utf-8", "replace").splitlines()[-25:]
    if status != 0:
        reason = tail[-1] if tail else f"docker load ended with status {status}"
        raise CommandError(
            f"the engine did not take {name}: {reason}",
            command=whole,
            returncode=status,
            tail=tail,
            hint=hint_for("\n".join(tail)) or f"try the same by hand: {shlex.join(whole)}",
        )


def _send(process: subprocess.Popen[bytes], parts: ArchiveParts, advance: Callable[[int], None]) -> None:
    if process.stdin is None:
        raise TypeError("the process was started without a pipe")
    # In few large pieces: between two of them this thread waits for those that make layers.
    buffer = memoryview(bytearray(_BUFFER))
    with process.stdin as pipe:
        for path, content in parts:
            with io.BytesIO(content) if isinstance(content, bytes) else content.open("rb", 0) as file:
                size = file.seek(0, io.SEEK_END)
                file.seek(0)
                pipe.write(file_header(path, mode=0o644, size=size))
                left = size
                while left:
                    count = file.readinto(buffer[: min(left, _BUFFER)])
                    if not count:
                        raise OSError(f"{path} became shorter")
                    pipe.write(buffer[:count])
                    left -= count
                    advance(count)
                pipe.write(padding(size))
        pipe.write(END)
