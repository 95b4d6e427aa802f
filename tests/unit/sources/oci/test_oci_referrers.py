"""Referrers by both ways, with another writer in between, and a registry that does not mean well."""

from __future__ import annotations

import itertools
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from doubles.registry import INDEX, RegistryDouble, registry_client, serve, sha256

from builder.core.errors import RegistryError
from builder.sources.net.http import Client
from builder.sources.oci import artifacts as module
from builder.sources.oci import registry as registry_module
from builder.sources.oci.artifacts import Artifact, attach, keep_in_tag, own_tag, referrers, tag_of
from builder.sources.oci.registry import Registry
from builder.sources.oci.spec import MANIFEST, Descriptor, Reference, parse_reference

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from doubles.http_server import Request

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
    return registry_client()


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
    assert (own_tag(image.digest, made[0].descriptor.digest) in server.tags) is not server.referrers
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


def kept(server: RegistryDouble, registry: Registry, text: str) -> Descriptor:
    """One artifact, attached and put into the index, as a publication does it."""
    name, image = subject(server, registry)
    made = attach(registry, name, image, artifact(text)).descriptor
    keep_in_tag(registry, name, image.digest, (made,))
    return made


def reader_of(server: RegistryDouble) -> Registry:
    """Another machine's registry, for a thread."""
    assert server.host
    return Registry(client=Client(retries=2, backoff=0.01, read_timeout=30), login=lambda _host: None)


def test_many_that_attach_at_one_moment_all_stay(server: RegistryDouble, registry: Registry) -> None:
    name, image = subject(server, registry)
    gate = threading.Barrier(12, timeout=30)

    def node(number: int) -> str:
        own = reader_of(server)
        gate.wait()
        return attach(own, name, image, artifact(str(number))).descriptor.digest

    with ThreadPoolExecutor(12) as pool:
        made = set(pool.map(node, range(12)))
    listing = referrers(registry, name)
    assert len(made) == 12
    assert ({found.digest for found in listing.descriptors}, listing.complete) == (made, True)


def test_a_slow_writer_removes_nothing(server: RegistryDouble, registry: Registry) -> None:
    """It looked before another one attached, and writes after that one made sure of its own."""
    name, image = subject(server, registry)
    looked, done = threading.Event(), threading.Event()

    def slowly(request: Request) -> None:
        if request.method == "PUT" and "/manifests/sha256-" in request.path and not looked.is_set():
            looked.set()
            assert done.wait(30)

    if not server.referrers:
        server.fault = slowly
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(attach, reader_of(server), name, image, artifact("late"))
        assert server.referrers or looked.wait(30)
        quick = attach(registry, name, image, artifact("quick"))
        done.set()
        made = {late.result().descriptor.digest, quick.descriptor.digest}
    assert {found.digest for found in referrers(registry, name).descriptors} == made


def test_a_tag_of_another_program_is_no_artifact(by_tag: RegistryDouble, registry: Registry) -> None:
    name, image = subject(by_tag, registry)
    made = attach(registry, name, image, artifact("one")).descriptor
    own = own_tag(image.digest, made.digest)
    for tag in (tag_of(image.digest) + ".att", own[:-1] + "z", own + "0"):
        by_tag.tags[tag] = made.digest
    by_tag.tags[own_tag(image.digest, image.digest)] = image.digest
    assert [found.digest for found in referrers(registry, name).descriptors] == [made.digest]


def test_what_was_deleted_since_the_tags_were_listed(by_tag: RegistryDouble, registry: Registry) -> None:
    name, image = subject(by_tag, registry)
    made = attach(registry, name, image, artifact("one")).descriptor
    del by_tag.manifests[made.digest]
    assert referrers(registry, name).descriptors == ()


def test_a_long_list_of_tags_is_used_for_some_time(
    by_tag: RegistryDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = Registry(client=Client(retries=0), login=lambda _host: None, keeps_tags=True)
    name, image = subject(by_tag, registry)
    clock = itertools.count(0, 0.2)
    monkeypatch.setattr(registry_module.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(registry_module, "_LONG", 0.1)
    for _ in range(3):
        assert referrers(registry, name).descriptors == ()
    assert sum("tags/list" in line for line in by_tag.requests) == 1
    made = attach(registry, name, image, artifact("one")).descriptor
    assert [found.digest for found in referrers(registry, name).descriptors] == [made.digest], "its own"


@pytest.mark.parametrize("make", [Registry.to_write, Registry.from_user, Registry])
def test_whoever_decides_reads_the_tags_each_time(
    by_tag: RegistryDouble, monkeypatch: pytest.MonkeyPatch, make: Callable[[], Registry]
) -> None:
    """A report that says broken, and came a moment ago, counts for the gate and for an audit."""
    registry = make()
    name, image = subject(by_tag, registry)
    clock = itertools.count(0, 30)
    monkeypatch.setattr(registry_module.time, "monotonic", lambda: next(clock))
    assert referrers(registry, name).descriptors == ()
    late = attach(Registry(), name, image, artifact("broken")).descriptor
    assert [found.digest for found in referrers(registry, name).descriptors] == [late.digest]


def test_listed_and_gone_is_attached_again(by_tag: RegistryDouble, registry: Registry) -> None:
    name, image = subject(by_tag, registry)
    made = attach(registry, name, image, artifact("one"))
    del by_tag.manifests[made.descriptor.digest]
    assert attach(registry, name, image, artifact("one")).new
    assert made.descriptor.digest in by_tag.manifests


def test_what_others_put_into_the_tag_stays(by_tag: RegistryDouble, registry: Registry) -> None:
    _, image = subject(by_tag, registry)
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
    kept(by_tag, registry, "one")
    stored = json.loads(by_tag.manifests[by_tag.tags[tag_of(image.digest)]][1])
    assert stored["manifests"][0] == foreign
    assert stored["annotations"] == {"a": "b"}
    assert len(stored["manifests"]) == 2


def test_two_writers_of_one_tag(by_tag: RegistryDouble, registry: Registry) -> None:
    name, image = subject(by_tag, registry)
    other = kept(by_tag, registry, "other")
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
    mine = kept(by_tag, registry, "mine")
    assert {d.digest for d in referrers(registry, name).descriptors} == {other.digest, mine.digest}
    assert len(times) == 3


def test_what_a_third_writer_overwrote_is_put_back(by_tag: RegistryDouble, registry: Registry) -> None:
    name, image = subject(by_tag, registry)
    other = kept(by_tag, registry, "other")
    tag = tag_of(image.digest)
    original = registry.put_manifest
    lost: list[str] = []

    def put(reference: Reference, content: bytes, media_type: str) -> str:
        digest = original(reference, content, media_type)
        if not lost:  # a third writer knew of neither
            lost.append(by_tag.tags.pop(tag))
        return digest

    registry.put_manifest = put  # type: ignore[method-assign, assignment]
    mine = kept(by_tag, registry, "mine")
    assert {d.digest for d in referrers(registry, name).descriptors} == {other.digest, mine.digest}


def test_a_writer_that_never_stops(by_tag: RegistryDouble, registry: Registry) -> None:
    _, image = subject(by_tag, registry)
    original = registry.put_manifest

    def put(reference: Reference, content: bytes, media_type: str) -> str:
        digest = original(reference, content, media_type)
        by_tag.tags.pop(tag_of(image.digest), None)
        return digest

    registry.put_manifest = put  # type: ignore[method-assign, assignment]
    with pytest.raises(RegistryError, match="overwritten by others 8 times"):
        kept(by_tag, registry, "mine")


def test_something_else_has_the_tag(by_tag: RegistryDouble, registry: Registry) -> None:
    _, image = subject(by_tag, registry)
    by_tag.tags[tag_of(image.digest)] = image.digest
    with pytest.raises(RegistryError, match="is no list of referrers"):
        kept(by_tag, registry, "one")
    assert by_tag.tags[tag_of(image.digest)] == image.digest, "and it is left as it is"


def test_an_entry_whose_manifest_was_deleted(by_tag: RegistryDouble, registry: Registry) -> None:
    name, _ = subject(by_tag, registry)
    gone = kept(by_tag, registry, "gone")
    del by_tag.manifests[gone.digest]
    original = registry.put_manifest

    def strict(reference: Reference, content: bytes, media_type: str) -> str:
        """Registries refuse an index of what they do not have."""
        entries = json.loads(content).get("manifests", [])
        if any(entry["digest"] not in by_tag.manifests for entry in entries):
            raise RegistryError("manifest unknown")
        return original(reference, content, media_type)

    registry.put_manifest = strict  # type: ignore[method-assign, assignment]
    stays = kept(by_tag, registry, "kept")
    assert [d.digest for d in referrers(registry, name).descriptors] == [stays.digest]


def test_nothing_to_add_writes_nothing(by_tag: RegistryDouble, registry: Registry) -> None:
    name, image = subject(by_tag, registry)
    made = kept(by_tag, registry, "one")
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
    refused: list[str] = []

    def once(request: Request) -> int | None:
        if request.method != "PUT" or own_tag(image.digest, "")[:20] not in request.path or refused:
            return None
        refused.append(request.path)
        return 400

    by_tag.fault = once
    made = attach(registry, name, image, artifact("one")).descriptor
    assert [d.digest for d in referrers(registry, name).descriptors] == [made.digest]
    assert len(refused) == 1


@pytest.mark.parametrize("times", [2, 3])
def test_an_image_that_another_client_puts_at_the_same_moment(
    by_tag: RegistryDouble, registry: Registry, times: int
) -> None:
    """Refused twice by Docker's registry 2.8 it is taken; more often it is refused for another reason."""
    refused: list[str] = []

    def refusing(request: Request) -> int | None:
        if request.method != "PUT" or len(refused) == times:
            return None
        refused.append(request.path)
        return 400

    by_tag.fault = refusing
    if times == 2:
        name, image = subject(by_tag, registry)
        assert registry.digest_of(name) == image.digest
    else:
        with pytest.raises(RegistryError, match="HTTP 400"):
            subject(by_tag, registry)
    assert len(refused) == times
