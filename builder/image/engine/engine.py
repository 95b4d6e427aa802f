"""The handle on a Docker Engine: builds by buildx, everything else by the Docker SDK."""

from __future__ import annotations

import shutil
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from builder.core.errors import CancelledError, CellError
from builder.image.engine.connect import Connection, buildx_version, connect
from builder.image.engine.images import ImageStore, StoredImage, said_by_engine

if TYPE_CHECKING:
    from builder.image.engine.build import BuildRequest, SavedImage
    from builder.image.engine.container import ProbeRun
    from builder.image.engine.facts import EngineFacts
    from builder.image.layers import Layer
    from builder.sources.oci import OciImage

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
        from builder.image.engine.receive import known_blobs, receive

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
        from builder.image.engine.receive import keep, known_blobs

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
