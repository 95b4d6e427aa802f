"""References, mirrors and platforms."""

from __future__ import annotations

import pytest

from builder.errors import RegistryError, UsageError
from builder.oci.spec import choose, is_loopback, parse_mirrors, parse_reference, place_of

DIGEST = "sha256:" + "a" * 64


@pytest.mark.parametrize(
    ("text", "full", "selector"),
    [
        ("ubuntu:22.04", "docker.io/library/ubuntu:22.04", "22.04"),
        ("nvidia/cuda:12.4.1-base", "docker.io/nvidia/cuda:12.4.1-base", "12.4.1-base"),
        ("index.docker.io/nvidia/cuda:x", "docker.io/nvidia/cuda:x", "x"),
        ("nvcr.io/nvidia/cuda:x", "nvcr.io/nvidia/cuda:x", "x"),
        ("localhost/thing", "localhost/thing", "latest"),
        ("127.0.0.1:5000/a/b/c:1", "127.0.0.1:5000/a/b/c:1", "1"),
        (f"a/b:1@{DIGEST}", f"docker.io/a/b:1@{DIGEST}", DIGEST),
    ],
)
def test_reference(text: str, full: str, selector: str) -> None:
    reference = parse_reference(text)
    assert str(reference) == full
    assert reference.selector == selector


@pytest.mark.parametrize("text", ["", "UPPER/case:1", "a/b@sha256:12", "host.example/"])
def test_no_reference(text: str) -> None:
    with pytest.raises(UsageError):
        parse_reference(text)


def test_mirrors() -> None:
    mirrors = parse_mirrors(
        ["docker.io=localhost:5000, nvcr.io=https://m.example/prefix/ngc", "docker.io=last:1", ""]
    )
    assert mirrors == {"docker.io": "last:1", "nvcr.io": "https://m.example/prefix/ngc"}
    place = place_of(parse_reference("nvcr.io/nvidia/cuda:x"), mirrors)
    assert (place.scheme, place.host, place.repository) == ("https", "m.example", "prefix/ngc/nvidia/cuda")
    assert str(place) == "m.example, mirror of nvcr.io"
    hub = place_of(parse_reference("ubuntu:22.04"), {})
    assert (str(hub), hub.repository, hub.scheme) == ("docker.io", "library/ubuntu", None)


@pytest.mark.parametrize(
    "text", ["localhost:5000", "=x", "docker.io=", "docker.io=ftp://x/y", "docker.io=a b"]
)
def test_no_mirror(text: str) -> None:
    with pytest.raises(UsageError, match="registry=mirror"):
        parse_mirrors([text])


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("localhost", True),
        ("localhost:5000", True),
        ("127.0.0.1:5000", True),
        ("127.8.8.8", True),
        ("[::1]:5000", True),
        ("10.0.0.1:5000", False),
        ("localhost.example", False),
        ("registry.example:443", False),
    ],
)
def test_loopback(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


def test_choose() -> None:
    index = {
        "manifests": [
            {"digest": "sha256:att", "platform": {"os": "unknown", "architecture": "unknown"}},
            {"digest": "sha256:arm", "platform": {"os": "linux", "architecture": "arm64", "variant": "v8"}},
            {"digest": "sha256:amd", "platform": {"os": "linux", "architecture": "amd64"}},
        ]
    }
    assert choose(index, "linux/amd64", "x") == "sha256:amd"
    assert choose(index, "linux/arm64", "x") == "sha256:arm"
    with pytest.raises(RegistryError, match=r"linux/s390x, only for linux/amd64, linux/arm64"):
        choose(index, "linux/s390x", "x")
