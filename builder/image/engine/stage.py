"""A stage of a Dockerfile that an engine builds: into its store, out of it as ``docker save`` writes it."""

from __future__ import annotations

import json
import tarfile
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from builder.core.errors import CellError
from builder.image.engine.build import BuildRequest
from builder.image.layers import plain

if TYPE_CHECKING:
    from builder.image.engine.engine import Engine

_CHUNK = 1 << 20
WORKING = "rtbuild-working"
"""The repository of images that are gone when their cell is built."""


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


@contextmanager
def built_stage(
    engine: Engine,
    *,
    log: Path,
    on_line: Callable[[str], None] = lambda _: None,
    cancel: threading.Event,
    **request: Any,
) -> Iterator[SavedImage]:
    """A stage that was built, as an image that can be read. ``request`` as of BuildRequest."""
    name = f"{WORKING}/{uuid.uuid4().hex[:12]}:stage"
    with tempfile.TemporaryDirectory(prefix="rtbuild-stage-") as folder:
        archive = Path(folder) / "stage.tar"
        engine.build(BuildRequest(tag=name, **request), log=log, on_line=on_line, cancel=cancel)
        try:
            engine.save(name, archive)
        finally:
            engine.remove(name)
        with SavedImage(archive) as saved:
            yield saved
