"""References, mirrors and platforms."""

from __future__ import annotations

import pytest

from builder.core.errors import RegistryError, UsageError
from builder.sources.oci.spec import choose_manifest, is_loopback, parse_mirrors, parse_reference, place_of

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


@pytest.mark.parametrize("text", ["", "UPPER/case:1", "a/b@sha256:12", "host.example/", "h" * 256 + ":1"])
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


AMD, ARM, OTHER = (f"sha256:{letter * 64}" for letter in "abc")


def entry(digest: str, *words: str, **more: object) -> dict[str, object]:
    own = dict(zip(("os", "architecture", "variant"), words, strict=False))
    return {"digest": digest, "platform": own, **more}


def test_choose() -> None:
    listed = [
        entry("sha256:" + "d" * 64, "unknown", "unknown"),
        entry(ARM, "linux", "arm64", "v8"),
        entry(AMD, "linux", "amd64"),
    ]
    index = {"manifests": listed}
    assert choose_manifest(index, "linux/amd64", "x") == AMD
    assert choose_manifest(index, "linux/arm64", "x") == ARM
    with pytest.raises(RegistryError, match=r"linux/s390x, only for linux/amd64, linux/arm64"):
        choose_manifest(index, "linux/s390x", "x")
    assert choose_manifest({"manifests": [*listed, entry(AMD, "linux", "x86_64")]}, "linux/amd64", "x") == AMD


@pytest.mark.parametrize(
    "other",
    [
        entry(OTHER, "linux", "amd64"),
        entry(OTHER, "linux", "amd64", "v2"),
        entry(OTHER, "linux", "amd64", "v3"),
        entry(OTHER, "linux", "x86_64"),
        entry(OTHER, "Linux", "AMD64"),
        entry(OTHER),
        {"digest": OTHER},
        {"digest": OTHER, "platform": None},
    ],
    ids=str,
)
@pytest.mark.parametrize("first", [True, False])
def test_an_index_of_which_engines_may_take_either_is_refused(other: dict[str, object], first: bool) -> None:
    mine = entry(AMD, "linux", "amd64", "v1")
    with pytest.raises(RegistryError, match="2 images that an engine may take for linux/amd64"):
        choose_manifest({"manifests": [other, mine] if first else [mine, other]}, "linux/amd64", "x")


def test_a_base_has_a_plain_entry_beside_others() -> None:
    """AlmaLinux 10 offers linux/amd64 and linux/amd64/v2. A base is pulled by the digest that was chosen."""
    index = {"manifests": [entry(OTHER, "linux", "amd64", "v2"), entry(AMD, "linux", "amd64")]}
    assert choose_manifest(index, "linux/amd64", "x", baseline=True) == AMD
    both = {"manifests": [entry(OTHER, "linux", "amd64"), entry(AMD, "linux", "amd64")]}
    with pytest.raises(RegistryError, match="2 images"):
        choose_manifest(both, "linux/amd64", "x", baseline=True)


@pytest.mark.parametrize(
    "index",
    [
        [],
        {},
        {"manifests": None},
        {"manifests": {}},
        {"manifests": ["text"]},
        {"manifests": [{}]},
        {"manifests": [{"digest": 1}]},
        {"manifests": [{"digest": "../../x"}]},
        {"manifests": [{"digest": AMD, "platform": "linux/amd64"}]},
        {"manifests": [{"digest": AMD, "platform": {"os": ["linux"], "architecture": "amd64"}}]},
        {"manifests": [entry(AMD, "linux", "amd64", mediaType="application/vnd.oci.image.index.v1+json")]},
        {"manifests": [entry(AMD, "linux", "amd64")] * 1001},
    ],
    ids=lambda index: str(index)[:60],
)
def test_a_malformed_index_is_refused(index: object) -> None:
    with pytest.raises(RegistryError, match="x is no index of images"):
        choose_manifest(index, "linux/amd64", "x")
