"""Pulling, against a stand-in for the SDK's client that says what an engine says."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import docker.errors
import pytest

from builder.core.errors import CancelledError, ImageMissingError, RegistryError
from builder.image.engine.images import ImageStore

if TYPE_CHECKING:
    from collections.abc import Iterable

REFERENCE = "registry.example.invalid:5000/team/staging@sha256:" + "a" * 64
LAYER = {"id": "abc", "status": "Downloading", "progressDetail": {"current": 5, "total": 10}}


def client(*answers: Iterable[dict[str, Any]] | Exception) -> tuple[Any, list[tuple[str, str]]]:
    """A test double of a client that answers each pull in turn, and remembers what was asked."""
    asked: list[tuple[str, str]] = []
    left = list(answers)

    def answer(repository: str, *, tag: str, stream: bool, decode: bool) -> Iterable[dict[str, Any]]:
        asked.append((repository, tag))
        now = left.pop(0)
        if isinstance(now, Exception):
            raise now
        return now

    return SimpleNamespace(api=SimpleNamespace(pull=answer)), asked


def quiet(_layer: str, _done: int, _total: int) -> None:
    """Nobody looks."""


def test_it_is_asked_for_by_digest_and_progress_is_told() -> None:
    told: list[tuple[str, int, int]] = []
    double, asked = client([{"status": "Pulling from team/staging"}, LAYER])
    ImageStore(double).pull(REFERENCE, progress=lambda *what: told.append(what), cancel=threading.Event())
    assert asked == [("registry.example.invalid:5000/team/staging", "sha256:" + "a" * 64)]
    assert told == [("abc", 5, 10)]


def test_a_passing_fault_is_tried_again() -> None:
    double, asked = client([LAYER, {"error": "unexpected EOF"}], [{"error": "received status 503"}], [LAYER])
    ImageStore(double).pull(REFERENCE, progress=quiet, cancel=threading.Event())
    assert len(asked) == 3


@pytest.mark.parametrize(
    ("error", "kind", "hint"),
    [
        ("manifest for x not found: manifest unknown", ImageMissingError, "rtbuild build --push"),
        (
            "unauthorized: authentication required",
            RegistryError,
            "docker login registry.example.invalid:5000",
        ),
        ("tls: failed to verify certificate: x509: unknown authority", RegistryError, "/etc/docker/certs.d/"),
        ("write /data/x: no space left on device", RegistryError, "docker image prune"),
    ],
)
def test_what_trying_again_does_not_change_is_said_at_once(error: str, kind: type, hint: str) -> None:
    double, asked = client([{"error": error}])
    with pytest.raises(kind, match=error.partition(":")[0]) as caught:
        ImageStore(double).pull(REFERENCE, progress=quiet, cancel=threading.Event())
    assert hint in str(caught.value.hint)
    assert len(asked) == 1


def test_a_refusal_before_the_first_layer() -> None:
    double, _ = client(docker.errors.NotFound("404", explanation="manifest unknown"))
    with pytest.raises(ImageMissingError, match="manifest unknown"):
        ImageStore(double).pull(REFERENCE, progress=quiet, cancel=threading.Event())


def test_a_registry_that_stays_away() -> None:
    double, asked = client(*[[{"error": "dial tcp: connection refused"}]] * 3)
    with pytest.raises(RegistryError, match="connection refused") as caught:
        ImageStore(double).pull(REFERENCE, progress=quiet, cancel=threading.Event())
    assert "not sent twice" in str(caught.value.hint)
    assert len(asked) == 3


def test_an_interrupted_pull_stops_at_the_next_word() -> None:
    cancel = threading.Event()
    cancel.set()
    double, _ = client([LAYER])
    with pytest.raises(CancelledError):
        ImageStore(double).pull(REFERENCE, progress=quiet, cancel=cancel)
