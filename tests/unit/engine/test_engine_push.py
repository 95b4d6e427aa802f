"""What an engine tells while it pushes, and what is made of it."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from builder.engine.push import push
from builder.errors import CancelledError, RegistryError

DIGEST = "sha256:" + "a" * 64
PUSHED: list[dict[str, Any]] = [
    {"status": "The push refers to repository [a.example/x]"},
    {"status": "Pushing", "id": "0123456789ab", "progressDetail": {"current": 10, "total": 40}},
    {"status": "Pushed", "id": "0123456789ab", "progressDetail": {}},
    {"status": f"staged-1: digest: {DIGEST} size: 1234"},
    {"progressDetail": {}, "aux": {"Tag": "staged-1", "Digest": DIGEST, "Size": 1234}},
]


class ApiDouble:
    """A test double of the SDK: answers pushes one after the other with what it was given."""

    def __init__(self, *answers: list[dict[str, Any]]) -> None:
        self.answers = list(answers)
        self.calls: list[str] = []
        self.api = self

    def tag(self, image: str, repository: str, tag: str) -> None:
        self.calls.append(f"tag {image} {repository}:{tag}")

    def push(self, repository: str, *, tag: str, stream: bool, decode: bool) -> list[dict[str, Any]]:
        assert stream
        assert decode
        self.calls.append(f"push {repository}:{tag}")
        return self.answers.pop(0)

    def remove_image(self, reference: str, *, noprune: bool) -> None:
        assert noprune, "the image itself stays"
        self.calls.append(f"untag {reference}")


def run(client: Any, **more: Any) -> str:
    return push(client, "sha256:image", "a.example:5000/x:staged-1", progress=lambda *_: None, **more)


def test_the_digest_is_what_the_push_came_to_and_the_name_is_taken_off() -> None:
    client = ApiDouble(PUSHED)
    told: list[tuple[str, int, int]] = []
    digest = push(client, "sha256:image", "a.example:5000/x:staged-1", progress=lambda *p: told.append(p))  # type: ignore[arg-type]
    assert digest == DIGEST
    assert told == [("0123456789ab", 10, 40)]
    name = "a.example:5000/x:staged-1"
    assert client.calls == [f"tag sha256:image {name}", f"push {name}", f"untag {name}"]


def test_a_registry_that_stays_away_is_tried_three_times() -> None:
    client = ApiDouble(*[[{"error": "received unexpected HTTP status: 503 Service Unavailable"}]] * 3)
    with pytest.raises(RegistryError, match="503") as caught:
        run(client)
    assert len([call for call in client.calls if call.startswith("push")]) == 3
    assert client.calls[-1].startswith("untag")
    assert "try again" in (caught.value.hint or "")


def test_a_push_that_is_mended_by_trying_again() -> None:
    assert run(ApiDouble([{"error": "unexpected EOF"}], PUSHED)) == DIGEST


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        ("push access denied, repository does not exist or may require authorization", "docker login"),
        ("no basic auth credentials", "docker login a.example:5000"),
        ("tls: failed to verify certificate: x509: certificate signed by unknown authority", "certs.d"),
    ],
)
def test_a_refusal_is_not_tried_again(error: str, hint: str) -> None:
    client = ApiDouble([{"error": error}])
    with pytest.raises(RegistryError, match="could not push") as caught:
        run(client)
    assert hint in (caught.value.hint or "")


def test_a_push_that_says_no_digest_is_none() -> None:
    with pytest.raises(RegistryError, match="did not say which digest"):
        run(ApiDouble(*[PUSHED[:3]] * 3))


def test_a_cancelled_push_ends_and_takes_its_name_off() -> None:
    cancel = threading.Event()
    cancel.set()
    client = ApiDouble(PUSHED)
    with pytest.raises(CancelledError):
        run(client, cancel=cancel)
    assert client.calls[-1].startswith("untag")
