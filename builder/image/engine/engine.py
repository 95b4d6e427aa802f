"""The handle on the Docker Engine that the docker client would use, or what is missing if there is none:
builds by buildx, everything else by the Docker SDK.
"""

from __future__ import annotations

import atexit
import getpass
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import docker
import requests
from docker.tls import TLSConfig

from builder.core.errors import CancelledError, CellError, MissingToolError
from builder.image.engine.images import ImageStore, StoredImage, said_by_engine

if TYPE_CHECKING:
    from builder.image.engine.build import BuildRequest, SavedImage
    from builder.image.engine.container import ProbeRun
    from builder.image.engine.facts import EngineFacts
    from builder.image.layers import Layer
    from builder.sources.oci import OciImage


MINIMUM_ENGINE = "23.0"
"""The first Engine whose own Dockerfile frontend knows named build contexts and ``COPY --link``
(https://docs.docker.com/build/buildkit/dockerfile-release-notes/)."""

MINIMUM_BUILDX = "0.13"
"""The oldest buildx that rtbuild is tested with."""

_SCRIPT = Path(__file__).resolve().parents[3] / "scripts" / "ensure-engine"
"""There if rtbuild runs from a checkout."""
_USUAL = "unix:///var/run/docker.sock"
_SECONDS_TO_ANSWER = 20
_SECONDS_TO_WORK = 600
"""Removing an image of many gigabytes, or making a container while the disk is busy, takes minutes."""
_SECONDS_TO_CONNECT = 30
_WORDS = 2000
"""Characters of ssh's own words that are kept for a message."""


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """The address of an engine, with the certificates for it."""

    host: str
    tls: TLSConfig | None = None
    context: str = "default"
    """The docker context that names it; ``default`` is also what ``DOCKER_HOST`` says."""

    @property
    def local(self) -> bool:
        return self.host.startswith("unix://")

    @property
    def socket(self) -> Path:
        """The socket of a local engine."""
        return Path(self.host.removeprefix("unix://"))


@dataclass(frozen=True, kw_only=True)
class Connection:
    """An engine that answered, and the command line that reaches the same one."""

    client: docker.DockerClient
    endpoint: Endpoint
    docker: tuple[str, ...]
    """``("docker",)`` or ``("docker", "--context", NAME)``: what every docker command begins with."""
    version: str
    builder: str
    """The buildx builder to name in every build: ``docker buildx use`` may have made another the default."""
    builder_driver: str
    """``docker`` if BuildKit is the engine's own."""
    close: Callable[[], None]


def connect(context: str | None = None, builder: str | None = None) -> Connection:
    """Connect as the docker client would: ``--context``, ``DOCKER_HOST``, ``DOCKER_CONTEXT``, its config.

    Raises MissingToolError with the one command that helps if there is no client, no engine, no permission,
    or an engine that is too old.
    """
    if shutil.which("docker") is None:
        hint = f"install Docker: {_install_command()}"
        raise MissingToolError("the docker client is not on PATH", hint=hint)
    command = ("docker", "--context", context) if context else ("docker",)
    endpoint = _endpoint(command, context)
    with ExitStack() as stack:
        door = None
        if endpoint.host.startswith("ssh://"):
            door = stack.enter_context(SshDoor(ssh_command(endpoint.host)))
        client, version = _reach(endpoint, door)
        stack.callback(client.close)
        if _numbers(version) < _numbers(MINIMUM_ENGINE):
            raise MissingToolError(
                f"Docker Engine {version} at {endpoint.host} is too old: its BuildKit lacks named build"
                f" contexts, which came with Engine {MINIMUM_ENGINE}",
                hint=f"upgrade the engine: {_install_command()}",
            )
        return Connection(
            client=client,
            endpoint=endpoint,
            docker=command,
            version=version,
            builder=builder or endpoint.context,  # an engine's own builder has the name of its context
            builder_driver=_builder_driver(command, builder, endpoint) if builder else "docker",
            close=stack.pop_all().close,
        )


def _endpoint(command: tuple[str, ...], context: str | None) -> Endpoint:
    """This machine's own engine if nothing names another, else as ``docker context inspect`` says."""
    if not (context or _another_is_named()):
        return Endpoint(host=_USUAL)
    inspect = [*command[:1], "context", "inspect", *([context] if context else [])]
    found = json.loads(_said(inspect, "docker context inspect", "docker context ls"))[0]
    endpoint = found["Endpoints"]["docker"]
    folder = Path(found.get("Storage", {}).get("TLSPath") or "/nonexistent") / "docker"
    tls = _tls(folder, verify=not endpoint.get("SkipTLSVerify")) if folder.is_dir() else _environment_tls()
    return Endpoint(host=endpoint.get("Host") or _USUAL, tls=tls, context=found.get("Name") or "default")


def _another_is_named() -> bool:
    """Whether the environment or the client's configuration may lead elsewhere: starting the client to hear
    that they do not takes longer than asking the engine.
    """
    if os.environ.get("DOCKER_HOST") or os.environ.get("DOCKER_CONTEXT"):
        return True
    folder = Path(os.environ.get("DOCKER_CONFIG") or Path.home() / ".docker")
    try:
        current = json.loads((folder / "config.json").read_bytes()).get("currentContext")
    except FileNotFoundError:
        return False
    except (OSError, ValueError, AttributeError):
        return True  # the client says what is wrong with it
    return current not in {None, "", "default"}


def _environment_tls() -> TLSConfig | None:
    """The certificates that go with ``DOCKER_HOST``, as the docker client reads them."""
    if not os.environ.get("DOCKER_HOST", "").startswith("tcp://"):
        return None
    verify = bool(os.environ.get("DOCKER_TLS_VERIFY"))
    if not verify and not os.environ.get("DOCKER_TLS"):
        return None
    return _tls(Path(os.environ.get("DOCKER_CERT_PATH") or Path.home() / ".docker"), verify=verify)


def _tls(folder: Path, *, verify: bool) -> TLSConfig:
    certificate, key, authority = (
        str(folder / name) if (folder / name).exists() else None for name in ("cert.pem", "key.pem", "ca.pem")
    )
    pair = (certificate, key) if certificate and key else None
    return _EngineTls(client_cert=pair, ca_cert=authority, verify=verify)


class _EngineTls(TLSConfig):
    """The certificates of an engine, whatever the environment says of other servers.

    In requests, ``REQUESTS_CA_BUNDLE`` wins over the authority that a session was given
    (https://github.com/psf/requests/issues/3829), so the environment is not asked at all; nor for a proxy.
    """

    def configure_client(self, client: docker.APIClient) -> None:
        super().configure_client(client)
        client.trust_env = False


def _reach(endpoint: Endpoint, door: SshDoor | None) -> tuple[docker.DockerClient, str]:
    address = f"unix://{door.socket}" if door is not None else endpoint.host
    try:
        if endpoint.local:  # the error that this gives is not wrapped by three libraries
            _knock(endpoint.socket)
        client = docker.DockerClient(base_url=address, tls=endpoint.tls or False, timeout=_SECONDS_TO_ANSWER)
        if address.startswith("unix://"):
            client.api.trust_env = False  # no proxy leads there: looking for one is a third of each request
        version = str(client.version()["Version"])
    except (docker.errors.DockerException, requests.RequestException, OSError) as error:
        raise _unreachable(endpoint, error, door.said() if door is not None else "") from error
    client.api.timeout = _SECONDS_TO_WORK
    return client, version


def _knock(path: Path) -> None:
    """Open the engine's socket and close it."""
    with socket.socket(socket.AF_UNIX) as door:
        door.settimeout(_SECONDS_TO_ANSWER)
        door.connect(str(path))


def _unreachable(endpoint: Endpoint, error: BaseException, said: str) -> MissingToolError:
    if isinstance(error, PermissionError):
        return MissingToolError(
            f"no permission on {endpoint.socket}: its users are root and the group docker",
            hint=f"sudo usermod -aG docker {getpass.getuser()}   (then log in again)",
        )
    if not endpoint.local:
        hint = f"docker --host {endpoint.host} info"
    elif Path("/run/systemd/system").is_dir() and not _SCRIPT.is_file():
        hint = "sudo systemctl start docker"
    elif shutil.which("dockerd") is not None and not _SCRIPT.is_file():
        hint = "sudo dockerd >/dev/null 2>&1 &   (it is installed, and does not run)"
    else:
        hint = _install_command()
    while error.__cause__ or error.__context__:  # requests and urllib3 wrap it up to four times
        error = error.__cause__ or error.__context__  # type: ignore[assignment]
    why = said or getattr(error, "strerror", None) or error
    return MissingToolError(f"no Docker Engine answers at {endpoint.host}: {why}", hint=hint)


def buildx_version(command: tuple[str, ...]) -> str:
    """The version of buildx. MissingToolError if there is none, or an old one."""
    hint = "sudo apt-get install docker-buildx-plugin   (Debian's own package: docker-buildx)"
    lacks = "the docker client has no buildx plugin, which builds images"
    # github.com/docker/buildx v0.13.1 788433953af10f2a698f5c07611dddce2e08c7a0
    words = _said([*command, "buildx", "version"], lacks, hint).split()
    version = words[1].removeprefix("v") if len(words) > 1 else "unknown"
    if _numbers(version) < _numbers(MINIMUM_BUILDX):
        said = f"buildx {version} is too old: {MINIMUM_BUILDX} is the oldest that rtbuild knows"
        raise MissingToolError(said, hint=hint)
    return version


def _builder_driver(command: tuple[str, ...], builder: str, endpoint: Endpoint) -> str:
    """How buildx reaches a builder. One with the driver ``docker`` is an engine, and keeps what it built."""
    text = _said([*command, "buildx", "inspect", builder], f"no buildx builder {builder}", "docker buildx ls")
    said = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    driver = said.get("Driver", "").strip() or "unknown"
    if driver == "docker" and builder != endpoint.context:
        raise MissingToolError(
            f"the builder {builder} is the engine of another docker context, where its images would stay",
            hint=f"use that engine for everything: --context {builder}",
        )
    return driver


def _said(command: Sequence[str], problem: str, hint: str) -> str:
    """The output of a docker command. MissingToolError with ``problem`` and its own words if it fails."""
    seconds = _SECONDS_TO_ANSWER
    try:
        done = subprocess.run(command, capture_output=True, errors="replace", check=False, timeout=seconds)
    except subprocess.TimeoutExpired as error:
        said = f"{shlex.join(command)} did not answer within {seconds} s"
        raise MissingToolError(said, hint="docker info") from error
    if done.returncode != 0:
        raise MissingToolError(f"{problem}: {done.stderr.strip() or 'failed without a word'}", hint=hint)
    return done.stdout


def _install_command() -> str:
    return (
        f"sudo {_SCRIPT}   (installs Docker Engine: Debian, Ubuntu)"
        if _SCRIPT.is_file()
        else "curl -fsSL https://get.docker.com | sudo sh"
    )


def _numbers(version: str) -> tuple[int, int]:
    """The first two numbers of a version; a version that has none (a development build) counts as new."""
    found = re.match(r"(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if found else (9999, 0)


def ssh_command(host: str) -> list[str]:
    """The command behind ``ssh://[user@]host[:port][/socket]``; MissingToolError for anything else."""
    parts = urlsplit(host)
    try:
        port = parts.port
    except ValueError:
        port = -1
    if parts.scheme != "ssh" or not parts.hostname or parts.password or port == -1:
        raise MissingToolError(
            f"{host} is no address of an engine: ssh://[user@]host[:port][/path/to/docker.sock]",
            hint="docker context ls",
        )
    command = ["ssh", "-o", f"ConnectTimeout={_SECONDS_TO_CONNECT}", "-T"]
    if parts.username:
        command += ["-l", unquote(parts.username)]
    if port is not None:
        command += ["-p", str(port)]
    path = unquote(parts.path)
    remote = ["docker", *([f"--host=unix://{path}"] if path.strip("/") else []), "system", "dial-stdio"]
    return [*command, "--", parts.hostname, *remote]


class SshDoor(ExitStack[None]):
    """A socket on this machine behind which an engine on another one answers, until it is closed.

    The engine is reached as the docker client reaches it: each connection is one ``ssh HOST docker system
    dial-stdio`` (https://github.com/docker/cli/blob/v26.1.5/cli/connhelper/connhelper.go). The Docker SDK has
    a way of its own, which needs paramiko even if it is told to run ``ssh``.
    """

    def __init__(self, command: Sequence[str]) -> None:
        if shutil.which(command[0]) is None:
            raise MissingToolError(
                f"{command[0]} is not on PATH, and the engine is reached by it",
                hint="sudo apt-get install openssh-client",
            )
        super().__init__()
        self._command = list(command)
        folder = tempfile.TemporaryDirectory(prefix="rtbuild-ssh-", ignore_cleanup_errors=True)  # mode 0700
        place = Path(self.enter_context(folder))
        self.socket = place / "docker.sock"
        self._words = self.enter_context((place / "stderr").open("a+b"))  # several write to it
        self._children: list[subprocess.Popen[bytes]] = []
        self.callback(self._end_children)
        self._door = self.enter_context(socket.socket(socket.AF_UNIX))
        self._door.bind(str(self.socket))
        self._door.listen(16)
        self.callback(self._door.shutdown, socket.SHUT_RDWR)  # wakes accept
        atexit.register(self.close)
        self.callback(atexit.unregister, self.close)
        threading.Thread(target=self._serve, name="ssh-door", daemon=True).start()

    def said(self) -> str:
        """The complaints of ssh, if there are any."""
        self._words.seek(0)
        return self._words.read()[-_WORDS:].decode(errors="replace").strip()

    def _end_children(self) -> None:
        for child in self._children:
            child.terminate()
        for child in self._children:
            child.wait()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._door.accept()
            except OSError:
                return  # closed
            with connection:
                self._children = [child for child in self._children if child.poll() is None]
                child = subprocess.Popen(
                    self._command,
                    stdin=connection.fileno(),
                    stdout=connection.fileno(),
                    stderr=self._words,
                    start_new_session=True,  # Ctrl-C reaches rtbuild alone, which then stops in order
                )
                self._children.append(child)


WORKING = "rtbuild-working"
"""The repository of images that are gone when their cell is built."""


class Engine(ImageStore, AbstractContextManager["Engine"]):
    """A Docker Engine that answers. Threads may share one."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection.client)
        self._connection = connection
        self._receiving = threading.Lock()
        self._keeping = threading.Lock()
        self._kept: set[str] = set()

    @classmethod
    def connect(cls, *, context: str | None = None, builder: str | None = None) -> Engine:
        """Find the engine as the docker client would; MissingToolError says which command helps.

        ``builder`` names a buildx builder other than the engine's own.
        """
        return cls(connect(context, builder))

    def close(self) -> None:
        """Close the connections to the engine."""
        self._connection.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def client_command(self) -> tuple[str, ...]:
        """The docker client's command line as far as it names this engine."""
        return self._connection.docker

    def facts(self) -> EngineFacts:
        """The abilities of the engine and its machine, asked for once per engine."""
        return self._facts

    @cached_property
    def buildx(self) -> str:
        """The version of buildx, which builds. MissingToolError if it is missing or old."""
        return buildx_version(self._connection.docker)

    @cached_property
    def _facts(self) -> EngineFacts:
        from builder.image.engine.facts import EngineFacts, gpu_facts

        info = self._info()
        local = self._connection.endpoint.local
        containerd = ["driver-type", "io.containerd.snapshotter.v1"] in (info.get("DriverStatus") or ())
        # The kernel's names of machines, in the words of image platforms.
        machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(info["Architecture"], info["Architecture"])
        return EngineFacts(
            version=self._connection.version,
            store="containerd" if containerd else "graphdriver",
            driver=str(info.get("Driver", "")),
            root=str(info.get("DockerRootDir", "")),
            disk_free=self.disk_free(),
            platform=f"{info.get('OSType')}/{machine}",
            host=self._connection.endpoint.host,
            gpu=gpu_facts(info, local=local),
            # ``rootless`` of ``name=rootless``, ``seccomp`` of ``name=seccomp,profile=builtin``
            security=tuple(
                text.partition(",")[0].removeprefix("name=") for text in info.get("SecurityOptions") or ()
            ),
            memory=info.get("MemTotal") or None,
            builder=self._connection.builder,
            builder_driver=self._connection.builder_driver,
        )

    def _info(self) -> dict[str, Any]:
        with said_by_engine("describe itself"):
            info: dict[str, Any] = self._client.info()
        return info

    def build(
        self,
        request: BuildRequest,
        *,
        log: Path,
        on_line: Callable[[str], None] = lambda _: None,
        cancel: threading.Event,
    ) -> None:
        """Build with buildx into the engine's store; ``on_line`` is told each line of its plain output.

        Raises CommandError with the exact command and the last lines of the step that failed, or
        CancelledError soon after ``cancel`` is set.
        """
        from builder.image.engine.build import command_line, run_build

        _ = self.buildx
        command = command_line(request, docker=self._connection.docker, facts=self.facts())
        run_build(command, request, log=log, on_line=on_line, cancel=cancel)

    @contextmanager
    def built_stage(
        self,
        *,
        log: Path,
        on_line: Callable[[str], None] = lambda _: None,
        cancel: threading.Event,
        **request: Any,
    ) -> Iterator[SavedImage]:
        """A stage that was built, as an image that can be read. ``request`` as of BuildRequest."""
        from builder.image.engine.build import BuildRequest, SavedImage

        name = f"{WORKING}/{uuid.uuid4().hex[:12]}:stage"
        with tempfile.TemporaryDirectory(prefix="rtbuild-stage-") as folder:
            archive = Path(folder) / "stage.tar"
            self.build(BuildRequest(tag=name, **request), log=log, on_line=on_line, cancel=cancel)
            try:
                self.save(name, archive)
            finally:
                self.remove(name)
            with SavedImage(archive) as saved:
                yield saved

    def receive(
        self,
        image: OciImage[Layer],
        blob: Callable[[Layer], Path],
        name: str,
        *,
        cancel: threading.Event,
        progress: Callable[[int], None],
    ) -> StoredImage:
        """Give the engine an image under ``name``: of cells that share layers, one after another.

        ``blob`` gives the file of a layer that the engine lacks; ``progress`` is told of bytes that are sent.
        Raises CommandError with the engine's words, or CancelledError.
        """
        from builder.image.engine.build import known_blobs, receive

        with _turn(self._receiving, name, cancel, progress) as advance:
            partly = self.facts().store == "containerd"
            there = known_blobs(self) | self._kept if partly else frozenset[str]()
            receive(self, self._connection.docker, image, blob, name, there=there, advance=advance)
        stored = self.inspect(name)
        if stored is None:
            raise CellError(f"{name} was given to the engine, and it has no such image")
        return stored

    def keep(
        self, layer: Layer, blob: Callable[[Layer], Path], name: str, *, cancel: threading.Event
    ) -> None:
        """Give a containerd store a layer that :meth:`receive` need not send, unless it has it.

        It stays as long as ``name`` or an image that has it; parameters and errors as of :meth:`receive`.
        """
        from builder.image.engine.build import keep, known_blobs

        with _turn(self._keeping, layer.title, cancel, lambda _size: None) as advance:
            if layer.digest not in self._kept and layer.digest not in known_blobs(self):
                keep(self._connection.docker, layer, blob(layer), name, advance)
                self._kept.add(layer.digest)

    def forget(self, kept: Iterable[str]) -> None:
        """Do not count on these layers of :meth:`keep` any longer: their names in the engine go now."""
        self._kept.difference_update(kept)

    def run_probe(
        self,
        reference: str,
        argv: Sequence[str],
        *,
        gpus: bool,
        timeout: float,
        mounts: Mapping[Path, str] | None = None,
        cancel: threading.Event | None = None,
        waits: Callable[[], None] | None = None,
    ) -> ProbeRun:
        """Run ``argv`` in a container without root, network or anything to write to but ``/tmp``.

        ``gpus`` asks for all GPUs in the way that this engine offers, and by ``--gpus all`` where it offers
        none, so that its own refusal says why. One such run has them at a time, and others wait for it, which
        ``waits`` is told. ``timeout`` is in seconds and hard; ``mounts`` are read-only.
        """
        from builder.image.engine import container

        facts = self.facts() if gpus else None  # a driver that hangs is asked only about GPUs
        request = container.ContainerRequest(
            reference=reference,
            argv=argv,
            gpu=None if facts is None else facts.gpu.request or "gpus",
            timeout=timeout,
            mounts=mounts or {},
        )
        cancel = cancel or threading.Event()
        if facts is None:
            return container.run(self._client, request, cancel)
        name = container.turn_name(facts.host, remote=facts.gpu.remote)
        with container.turn(name, cancel=cancel, waits=waits):
            return container.run(self._client, request, cancel)

    def disk_free(self) -> int | None:
        """Free bytes on the disk of the engine's images; None if that is not on this machine."""
        if not self._connection.endpoint.local:
            return None
        root = Path(self._info().get("DockerRootDir", ""))
        return shutil.disk_usage(root).free if root.is_dir() else None


@contextmanager
def _turn(
    lock: threading.Lock, what: str, cancel: threading.Event, progress: Callable[[int], None]
) -> Iterator[Callable[[int], None]]:
    """Hold a lock; gives the function to tell of bytes sent. It and the wait raise CancelledError."""

    def advance(size: int) -> None:
        if cancel.is_set():
            raise CancelledError(f"{what} was not given to the engine")
        progress(size)

    while not lock.acquire(timeout=0.1):
        advance(0)
    try:
        yield advance
    finally:
        lock.release()
