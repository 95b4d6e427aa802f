"""Referrers by both ways, with another writer in between, and a registry that does not mean well."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from doubles.registry import INDEX, RegistryDouble, serve, sha256

from builder.core.errors import RegistryError
from builder.sources.net.http import Client
from builder.sources.oci import artifacts as module
from builder.sources.oci.artifacts import Artifact, attach, keep_in_tag, referrers, tag_of
from builder.sources.oci.registry import Registry
from builder.sources.oci.spec import MANIFEST, Descriptor, Reference, parse_reference

if TYPE_CHECKING:
    from collections.abc import Iterator

KIND = "application/vnd.example+json"


@pytest.fixture(params=[True, False], ids=["with the API", "by tag"])
def server(request: pytest.FixtureRequest) -> Iterator[RegistryDouble]:
    with serve(RegistryDouble(referrers=request.param)) as running:
        yield running


@pytest.fixture
def by_tag() -> Iterator[RegistryDouble]:
    with serve(RegistryDouble(referrers=False)) as running:
        yield running


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Registry:
    monkeypatch.setattr(module.time, "sleep", lambda _seconds: None)
    return Registry(client=Client(retries=0, backoff=0.01, read_timeout=5), login=lambda _host: None)


def subject(server: RegistryDouble, registry: Registry) -> tuple[Reference, Descriptor]:
    content = json.dumps({"schemaVersion": 2, "mediaType": MANIFEST, "layers": []}).encode()
    name = parse_reference(f"{server.host}/team/tf@{sha256(content)}")
    registry.put_manifest(name, content, MANIFEST)
    return name, Descriptor(media_type=MANIFEST, digest=sha256(content), size=len(content))


def artifact(text: str) -> Artifact:
    return Artifact(artifact_type=KIND, content=text.encode(), annotations=(("say", text),))


def test_what_is_attached_is_listed(server: RegistryDouble, registry: Registry) -> None:
    name, image = subject(server, registry)
    assert referrers(registry, name).descriptors == ()
    made = [attach(registry, name, image, artifact(text)) for text in ("one", "two")]
    assert [row.new for row in made] == [True, True]
    listing = referrers(registry, name)
    assert listing.kept == ("referrers" if server.referrers else "tag")
    assert [(d.artifact_type, d.annotations) for d in listing.descriptors] == [
        (KIND, (("say", "one"),)),
        (KIND, (("say", "two"),)),
    ]
    assert (tag_of(image.digest) in server.tags) is not server.referrers
    stored = json.loads(server.manifests[made[0].descriptor.digest][1])
    assert stored["subject"]["digest"] == image.digest
    assert server.blobs[stored["layers"][0]["digest"]] == b"one"
    assert server.blobs[stored["config"]["digest"]] == b"{}"


def test_twice_changes_nothing(server: RegistryDouble, registry: Registry) -> None:
    name, image = subject(server, registry)
    first = attach(registry, name, image, artifact("one"))
    before = (dict(server.manifests), dict(server.tags), dict(server.blobs))
    second = attach(registry, name, image, artifact("one"))
    assert (second.descriptor, second.new) == (first.descriptor, False)
    assert (server.manifests, server.tags, server.blobs) == before


def test_listed_and_gone_is_attached_again(by_tag: RegistryDouble, registry: Registry) -> None:
    name, image = subject(by_tag, registry)
    made = attach(registry, name, image, artifact("one"))
    del by_tag.manifests[made.descriptor.digest]
    assert attach(registry, name, image, artifact("one")).new
    assert made.descriptor.digest in by_tag.manifests


def test_what_others_put_into_the_tag_stays(by_tag: RegistryDouble, registry: Registry) -> None:
    name, image = subject(by_tag, registry)
    foreign = {
        "mediaType": MANIFEST,
        "digest": image.digest,
        "size": 1,
        "artifactType": "application/x",
        "unknown": {"kept": True},
    }
    document = {"schemaVersion": 2, "mediaType": INDEX, "manifests": [foreign], "annotations": {"a": "b"}}
    registry.put_manifest(
        f"{by_tag.host}/team/tf:{tag_of(image.digest)}", json.dumps(document).encode(), INDEX
    )
    attach(registry, name, image, artifact("one"))
    stored = json.loads(by_tag.manifests[by_tag.tags[tag_of(image.digest)]][1])
    assert stored["manifests"][0] == foreign
    assert stored["annotations"] == {"a": "b"}
    assert len(stored["manifests"]) == 2


def test_two_writers_of_one_tag(by_tag: RegistryDouble, registry: Registry) -> None:
    name, image = subject(by_tag, registry)
    other = attach(registry, name, image, artifact("other")).descriptor
    tag = tag_of(image.digest)
    overtaken = by_tag.tags[tag]
    times = []

    def overtake(reference: str) -> None:
        """The other writer read before us, and writes after us: what it writes lacks our entry."""
        if reference == tag and len(times) < 3:
            times.append(reference)

    by_tag.before_put = overtake
    original = registry.put_manifest

    def put(reference: Reference, content: bytes, media_type: str) -> str:
        digest = original(reference, content, media_type)
        if len(times) < 3:
            by_tag.tags[tag] = overtaken
        return digest

    registry.put_manifest = put  # type: ignore[method-assign, assignment]
    mine = attach(registry, name, image, artifact("mine")).descriptor
    assert {d.digest for d in referrers(registry, name).descriptors} == {other.digest, mine.digest}
    assert len(times) == 3


def test_what_a_third_writer_overwrote_is_put_back(by_tag: RegistryDouble, registry: Registry) -> None:
    name, image = subject(by_tag, registry)
    other = attach(registry, name, image, artifact("other")).descriptor
    tag = tag_of(image.digest)
    original = registry.put_manifest
    lost: list[str] = []

    def put(reference: Reference, content: bytes, media_type: str) -> str:
        digest = original(reference, content, media_type)
        if not lost:  # a third writer knew of neither
            lost.append(by_tag.tags.pop(tag))
        return digest

    registry.put_manifest = put  # type: ignore[method-assign, assignment]
    mine = attach(registry, name, image, artifact("mine")).descriptor
    assert {d.digest for d in referrers(registry, name).descriptors} == {other.digest, mine.digest}


def test_a_writer_that_never_stops(by_tag: RegistryDouble, registry: Registry) -> None:
    name, image = subject(by_tag, registry)
    original = registry.put_manifest

    def put(reference: Reference, content: bytes, media_type: str) -> str:
        digest = original(reference, content, media_type)
        by_tag.tags.pop(tag_of(image.digest), None)
        return digest

    registry.put_manifest = put  # type: ignore[method-assign, assignment]
    with pytest.raises(RegistryError, match="overwritten by others 8 times"):
        attach(registry, name, image, artifact("mine"))


def test_something_else_has_the_tag(by_tag: RegistryDouble, registry: Registry) -> None:
    name, image = subject(by_tag, registry)
    by_tag.tags[tag_of(image.digest)] = image.digest
    with pytest.raises(RegistryError, match="is no list of referrers"):
        attach(registry, name, image, artifact("one"))
    assert by_tag.tags[tag_of(image.digest)] == image.digest, "and it is left as it is"


def test_an_entry_whose_manifest_was_deleted(by_tag: RegistryDouble, registry: Registry) -> None:
    name, image = subject(by_tag, registry)
    gone = attach(registry, name, image, artifact("gone")).descriptor
    del by_tag.manifests[gone.digest]
    original = registry.put_manifest

    def strict(reference: Reference, content: bytes, media_type: str) -> str:
        """Registries refuse an index of what they do not have."""
        entries = json.loads(content).get("manifests", [])
        if any(entry["digest"] not in by_tag.manifests for entry in entries):
            raise RegistryError("manifest unknown")
        return original(reference, content, media_type)

    registry.put_manifest = strict  # type: ignore[method-assign, assignment]
    kept = attach(registry, name, image, artifact("kept")).descriptor
    assert [d.digest for d in referrers(registry, name).descriptors] == [kept.digest]


def test_nothing_to_add_writes_nothing(by_tag: RegistryDouble, registry: Registry) -> None:
    name, image = subject(by_tag, registry)
    made = attach(registry, name, image, artifact("one")).descriptor
    by_tag.requests.clear()
    keep_in_tag(registry, name, image.digest, (made,))
    assert not [request for request in by_tag.requests if request.startswith("PUT")]


def test_pages_are_asked_for_at_the_same_registry(registry: Registry) -> None:
    with serve(RegistryDouble(page=2)) as server:
        name, image = subject(server, registry)
        for number in range(5):
            attach(registry, name, image, artifact(str(number)))
        server.requests.clear()
        assert len(referrers(registry, name).descriptors) == 5
    assert [request.partition("?")[2] for request in server.requests] == ["", "after=2", "after=4"], (
        "its links name another host, and our login is not carried there"
    )


def test_a_list_without_end(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST", 10)
    with serve(RegistryDouble(page=1)) as server:
        name, _ = subject(server, registry)
        server.listed = [
            {"mediaType": MANIFEST, "digest": f"sha256:{n:064x}", "size": 1} for n in range(10_000)
        ]
        listing = referrers(registry, name)
    assert (len(listing.descriptors), listing.complete) == (10, False)
    assert len(server.requests) < 40


def test_entries_that_make_no_sense_count_towards_the_end(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MOST", 10)
    with serve(RegistryDouble(page=5)) as server:
        name, _ = subject(server, registry)
        server.listed = [{}] * 1000
        listing = referrers(registry, name)
    assert (listing.descriptors, listing.complete) == ((), False)
    assert len([request for request in server.requests if "referrers" in request]) == 3


def test_pages_without_end(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_PAGES", 3)
    with serve(RegistryDouble(page=1)) as server:
        name, image = subject(server, registry)
        for number in range(4):
            attach(registry, name, image, artifact(str(number)))
            assert referrers(registry, name).complete is (number < 3)


@pytest.mark.parametrize(
    "entry",
    [
        None,
        "sha256:" + "0" * 64,
        {"mediaType": MANIFEST, "digest": "sha256:xyz", "size": 1},
        {"mediaType": MANIFEST, "digest": "../../v2/secret", "size": 1},
        {"mediaType": MANIFEST, "digest": "sha256:" + "0" * 64, "size": -1},
        {"mediaType": MANIFEST, "digest": "sha256:" + "0" * 64, "size": "1"},
        {"mediaType": 1, "digest": "sha256:" + "0" * 64, "size": 1},
    ],
)
def test_entries_that_make_no_sense(entry: object, registry: Registry) -> None:
    with serve() as server:
        name, _ = subject(server, registry)
        server.listed = [entry]  # type: ignore[list-item]
        listing = referrers(registry, name)
    assert (listing.descriptors, listing.left_out) == ((), 1)


@pytest.mark.parametrize("answer", [b"[]", b"{}", b"no json", b"[" * 100_000, b'{"manifests": {}}'])
def test_an_answer_that_is_no_list(
    answer: bytes, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve() as server:
        name, _ = subject(server, registry)
        monkeypatch.setattr(json, "dumps", lambda *_args, **_options: answer.decode())
        with pytest.raises(RegistryError):
            referrers(registry, name)


def test_a_registry_that_refuses_once(by_tag: RegistryDouble, registry: Registry) -> None:
    """Docker's registry 2.8 does, where two clients put the same thing at the same moment."""
    name, image = subject(by_tag, registry)
    original = registry.put_manifest
    refused: list[str] = []

    def put(reference: Reference, content: bytes, media_type: str) -> str:
        if not refused:
            refused.append(str(reference))
            raise RegistryError("provided digest did not match uploaded content")
        return original(reference, content, media_type)

    registry.put_manifest = put  # type: ignore[method-assign, assignment]
    made = attach(registry, name, image, artifact("one")).descriptor
    assert [d.digest for d in referrers(registry, name).descriptors] == [made.digest]
    assert len(refused) == 1
