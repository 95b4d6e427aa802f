"""Layers are sent while others are made; the push that comes after them finds them, or sends them itself."""

from __future__ import annotations

import hashlib
import threading
from contextlib import nullcontext
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from doubles.registry import RegistryDouble, registry_client, serve

from builder.core.errors import RegistryError
from builder.image.layers.store import Layer
from builder.pipeline.image_build import RegistryUpload

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path


@pytest.fixture
def server() -> Iterator[RegistryDouble]:
    with serve() as running:
        yield running


def uploading(folder: Path, push: str, *, shared: Any = None) -> RegistryUpload:
    registry = registry_client()
    store: Any = SimpleNamespace(blob=lambda digest: folder / digest)
    return RegistryUpload(push, shared, store, registry)


def layer(folder: Path, content: bytes) -> Layer:
    digest = "sha256:" + hashlib.sha256(content).hexdigest()
    (folder / digest).write_bytes(content)
    return Layer(title="x", digest=digest, diff_id=digest, size=len(content), unpacked=0, media_type="x")


def test_what_is_ready_is_sent_once(server: RegistryDouble, tmp_path: Path) -> None:
    one, other = layer(tmp_path, b"one"), layer(tmp_path, b"other")
    with uploading(tmp_path, f"{server.host}/team/staging") as uploads:
        uploads.add([one])
        uploads.add([other])
        assert uploads.finish() == 2
        uploads.add([one])
        assert uploads.finish() == 2
    assert {server.blobs[one.digest], server.blobs[other.digest]} == {b"one", b"other"}


def test_each_upload_is_a_span_of_its_thread(server: RegistryDouble, tmp_path: Path) -> None:
    spans: list[tuple[str, str]] = []

    def span(name: str) -> AbstractContextManager[None]:
        spans.append((name, threading.current_thread().name))
        return nullcontext()

    with uploading(tmp_path, f"{server.host}/team/staging") as uploads:
        uploads.span = span
        uploads.add([layer(tmp_path, b"one")])
        assert uploads.finish() == 1
    assert spans == [("push x", "upload_0")]


def test_nothing_is_sent_that_is_mounted(server: RegistryDouble, tmp_path: Path) -> None:
    mounted = SimpleNamespace(has=lambda _digest: True)
    staging = f"{server.host}/team/staging"
    with uploading(tmp_path, staging, shared=mounted) as uploads:
        uploads.add([layer(tmp_path, b"one")])
        assert uploads.finish() == 0
    assert server.blobs == {}


def test_a_registry_that_fails_fails_who_waits_and_nobody_else(tmp_path: Path) -> None:
    with uploading(tmp_path, "127.0.0.1:1/team/staging") as uploads:
        uploads.add([layer(tmp_path, b"one")])
    with uploading(tmp_path, "127.0.0.1:1/team/staging") as uploads:
        uploads.add([layer(tmp_path, b"one")])
        with pytest.raises(RegistryError, match="did not answer"):
            uploads.finish()
