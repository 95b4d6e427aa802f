"""An image into the engine's store by ``docker load``, without the blobs that the store has.

With the containerd image store an archive may leave out blobs that belong to images of the engine; it looks
for them in its own store. Which blobs those are is known of images whose manifests rtbuild has given to an
engine before: a manifest's digest is the image's id there. A graphdriver takes whole archives only.
"""

import contextlib
import io
import json
import os
import shlex
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from builder.core.digests import sha256_of
from builder.core.errors import CellError, CommandError
from builder.core.files import locked, try_lock, write_whole
from builder.image.engine.build import hint_for
from builder.image.engine.images import ImageStore
from builder.image.layers import END, Layer, file_header, padding
from builder.sources.oci import OciImage, archive_parts, plain_image

ArchiveParts = Iterable[tuple[str, bytes | Path]]
"""Files by their paths in an archive."""

_BUFFER = 4 << 20
RECEIVING = "rtbuild-receiving"
"""The repository that an image is in until it is known to be whole."""
_NOTED = "receiving-"
_OVER = 24 * 3600
"""Seconds after which no build still needs a passing name, so that one whose note was lost goes, too."""
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
    """Remove the names that killed processes left in the engine. Raises CellError if it does not answer."""
    for noted in images.memory.glob(f"{_NOTED}*"):
        if try_lock(noted):
            _forget(images, noted)
    for name in images.named(f"{RECEIVING}/*"):
        begun = name.removeprefix(f"{RECEIVING}/").partition("-")[0]
        if begun.isdecimal() and int(begun) < time.time() - _OVER:
            images.remove(name)


def _forget(images: ImageStore, noted: Path) -> None:
    for name in noted.read_text().splitlines():
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
