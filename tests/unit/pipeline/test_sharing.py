"""Layers in a registry: found by what they are made of, checked when they come, left for others once."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import zstandard
from doubles.cosign import CosignDouble
from doubles.registry import RegistryDouble, serve

from builder.core.errors import RegistryError, UsageError
from builder.image.layers.store import MEDIA_TYPES, Layer, LayerStore
from builder.pipeline.layer_cache import (
    SIGNATURE,
    SIGNED,
    LayerRepository,
    check_content,
    shared_key,
    shared_tag,
    signed_text,
)
from builder.pipeline.run_context import LayerSource, open_context, share_layers
from builder.sources.oci.registry import Registry
from builder.sources.oci.spec import MANIFEST
from builder.verify.evidence.statement import Cosign, Signer, Verifier

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


KEY = "wheel-" + "a" * 64 + "-v1-zstd-1.5.7-1"
CONTENT = b"a tar stream, as far as this is concerned" * 1000


@pytest.fixture(autouse=True)
def signing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cosign, "find", CosignDouble)


@pytest.fixture
def registry() -> Iterator[RegistryDouble]:
    with serve() as double:
        yield double


class Side:
    """One machine: its store and its view of the repository."""

    def __init__(self, folder: Path, registry: RegistryDouble) -> None:
        self.said: list[str] = []
        self.store = LayerStore(folder)
        self.lease = self.store.lease()
        self.layers = LayerRepository(
            registry=Registry.to_write(),
            repository=f"{registry.host}/team/staging",
            store=self.store,
            warn=self.said.append,
            trusted=Verifier(key="theirs"),
            signer=Signer(key="theirs"),
        )

    def make(self, content: bytes = CONTENT) -> Layer:
        blob = zstandard.compress(content)
        layer = Layer(
            title="one 1.0",
            digest="sha256:" + hashlib.sha256(blob).hexdigest(),
            diff_id="sha256:" + hashlib.sha256(content).hexdigest(),
            size=len(blob),
            unpacked=len(content),
            media_type=MEDIA_TYPES["zstd"],
            details={"requires_python": {"one": None}},
            files=b'{"one":{"opt/a":"644 x"}}',
        )

        def write(target: Path) -> Layer:
            target.write_bytes(blob)
            return layer

        return self.lease.obtain(KEY, write)


@pytest.fixture
def here(tmp_path: Path, registry: RegistryDouble) -> Side:
    return Side(tmp_path / "here", registry)


@pytest.fixture
def there(tmp_path: Path, registry: RegistryDouble) -> Side:
    return Side(tmp_path / "there", registry)


def change_config(registry: RegistryDouble, *, signed_by: str = "theirs", **changes: object) -> None:
    """Put another config and a manifest that fits it under the layer's tag, as somebody who may push can."""
    tag = shared_tag(KEY)
    _, content = registry.manifests[registry.tags[tag]]
    manifest = json.loads(content)
    config = json.loads(registry.blobs[manifest["config"]["digest"]])
    for path, value in changes.items():
        *folders, last = path.split("__")
        target = config
        for folder in folders:
            target = target[folder]
        target[last] = value
    described = config.get("layer", {})
    text = json.dumps(config).encode()
    digest = "sha256:" + hashlib.sha256(text).hexdigest()
    registry.blobs[digest] = text
    manifest["config"] |= {"digest": digest, "size": len(text)}
    if isinstance(described, dict) and "digest" in described and "manifest" not in changes:
        manifest["layers"][0]["digest"] = described["digest"]
    signed = signed_text([text])
    signature = CosignDouble().sign_text(signed, Signer(key=signed_by))
    manifest["annotations"] = {SIGNED: signed.decode(), SIGNATURE: signature} if signed_by else {}
    new = json.dumps(manifest).encode()
    name = "sha256:" + hashlib.sha256(new).hexdigest()
    registry.manifests[name] = (MANIFEST, new)
    registry.tags[tag] = name


def test_a_repository_that_is_pushed_to_is_not_taken_from(tmp_path: Path) -> None:
    """Else whoever may write to it decides which shell runs on this machine, and what is in the image."""
    site = open_context([], lambda _event: None, cache=tmp_path)
    share_layers(site, source=None, target="registry.example/staging")
    assert site.left_in is not None
    assert site.taken_from is None


def test_a_repository_is_taken_from_only_by_a_key(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--layers-from") as raised:
        LayerSource.named("registry.example/staging", None)
    assert "--layers-key" in (raised.value.hint or "")
    site = open_context([], lambda _event: None, cache=tmp_path)
    named = LayerSource.named("registry.example/staging", "cosign.pub")
    share_layers(site, source=named, target=None)
    assert site.taken_from is not None
    assert site.taken_from.trusted == Verifier(key="cosign.pub")


@pytest.mark.parametrize(
    ("key", "why"), [("", "it is not signed"), ("mine", "another key signed it")], ids=["none", "another"]
)
def test_what_the_named_key_did_not_sign_does_not_count(
    registry: RegistryDouble, here: Side, there: Side, key: str, why: str
) -> None:
    """Whoever may push describes a layer with a shell of his own under the key of Debian's packages."""
    here.layers.publish([here.make()])
    change_config(registry, signed_by=key, layer__title="a layer of his own")
    assert there.layers.find(KEY) is None
    assert why in there.said[0]
    assert "it is made here" in there.said[0]


def test_a_signature_speaks_of_its_own_descriptions_alone(
    registry: RegistryDouble, here: Side, there: Side
) -> None:
    here.layers.publish([here.make()])
    tag = shared_tag(KEY)
    notes = json.loads(registry.manifests[registry.tags[tag]][1])["annotations"]
    change_config(registry, signed_by="", layer__title="a layer of his own")
    manifest = json.loads(registry.manifests[registry.tags[tag]][1]) | {"annotations": notes}
    new = json.dumps(manifest).encode()
    registry.tags[tag] = "sha256:" + hashlib.sha256(new).hexdigest()
    registry.manifests[registry.tags[tag]] = (MANIFEST, new)
    assert there.layers.find(KEY) is None
    assert "it is not signed" in there.said[0]


@pytest.mark.skipif(shutil.which("cosign") is None, reason="cosign is not installed")
def test_by_cosign_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setenv("COSIGN_PASSWORD", "")
    for name in ("ours", "his"):
        command = ["cosign", "generate-key-pair", "--output-key-prefix", str(tmp_path / name)]
        subprocess.run(command, capture_output=True, check=True)
    program = Cosign.find()
    text = signed_text([b"{}"])
    signature = program.sign_text(text, Signer(key=str(tmp_path / "ours.key")))
    ours, his = (Verifier(key=str(tmp_path / f"{name}.pub")) for name in ("ours", "his"))
    assert program.verify_text(text, signature, ours) == ""
    assert program.verify_text(text, signature, his)
    assert program.verify_text(text + b" ", signature, ours)
    for broken in ("", "{}", "[" * 9999, signature[:-9]):
        assert program.verify_text(text, broken, ours)


def test_what_one_machine_made_another_finds_and_fetches(here: Side, there: Side) -> None:
    made = here.make()
    assert there.layers.find(KEY) is None
    there.layers._tags = None
    assert here.layers.publish([made]) == 1
    assert here.layers.publish([made]) == 0
    found = there.layers.find(KEY)
    assert found is not None
    assert found == made
    assert json.loads(found.files) == {"one": {"opt/a": "644 x"}}
    assert not there.store.blob(found.digest).exists(), "described, not downloaded"
    arrived: list[int] = []
    path = there.layers.fetch(found, there.lease, arrived.append)
    assert zstandard.decompress(path.read_bytes()) == CONTENT
    assert sum(arrived) == found.size
    kept = there.lease.find(KEY)
    assert kept is not None
    assert kept.details == made.details
    assert json.loads(there.store.files(KEY)) == json.loads(found.files)


def test_a_layer_of_another_release_of_the_compressor_will_do(here: Side, there: Side) -> None:
    here.layers.publish([here.make()])
    assert there.layers.find(KEY.replace("1.5.7", "1.4.0")) is not None
    assert there.layers.find(KEY.replace("zstd-1.5.7-1", "igzip-1.7.0-2")) is None
    assert shared_key("x-igzip-1.7.0-2") == shared_key("x-zlib-1.3-1") == "x-gzip"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"key": "wheel-" + "b" * 64 + "-v1-zstd"}, "made of something else"),
        ({"schema": 99}, "of another rtbuild"),
        ({"layer__size": 1}, "do not agree"),
        ({"layer__diff_id": "sha256:1"}, "its digests are none"),
        ({"layer": []}, "cannot be read"),
        ({"layer": {"title": "x", "digest": "", "diff_id": "", "size": 1, "media_type": ""}}, "unpacked"),
        ({"layer__media_type": "application/x-tar"}, "do not agree"),
        ({"files": None}, "does not say what is in it"),
        ({"details": {}}, "does not say what is in it"),
    ],
)
def test_a_description_that_is_not_right_counts_as_none(
    registry: RegistryDouble, here: Side, there: Side, change: dict[str, object], said: str
) -> None:
    here.layers.publish([here.make()])
    change_config(registry, **change)
    assert there.layers.find(KEY) is None
    assert said in there.said[0]
    assert "it is made again" in there.said[0]


def test_an_image_under_the_tag_of_a_layer_counts_as_none(
    registry: RegistryDouble, here: Side, there: Side
) -> None:
    here.layers.publish([here.make()])
    image = json.dumps({"mediaType": MANIFEST, "config": {"mediaType": "other"}}).encode()
    digest = "sha256:" + hashlib.sha256(image).hexdigest()
    registry.manifests[digest] = (MANIFEST, image)
    registry.tags[shared_tag(KEY)] = digest
    assert there.layers.find(KEY) is None
    assert "describes something else" in there.said[0]


def test_content_that_is_not_what_was_claimed_is_not_kept(
    registry: RegistryDouble, here: Side, there: Side
) -> None:
    here.layers.publish([here.make()])
    change_config(registry, layer__diff_id="sha256:" + "7" * 64)
    found = there.layers.find(KEY)
    assert found is not None
    with pytest.raises(RegistryError, match="7777 is claimed"):
        there.layers.fetch(found, there.lease, lambda _count: None)
    assert list((there.store.root / "blobs/sha256").glob("*")) == []
    assert list((there.store.root / "tmp").glob("fetched-*")) == []


def test_bytes_that_are_not_those_of_the_digest_are_not_kept(
    registry: RegistryDouble, here: Side, there: Side
) -> None:
    made = here.make()
    here.layers.publish([made])
    found = there.layers.find(KEY)
    assert found is not None
    registry.lies[made.digest] = b"x" * made.size
    with pytest.raises(RegistryError, match="another one"):
        there.layers.fetch(found, there.lease, lambda _count: None)
    assert there.lease.find(KEY) is None


def test_a_blob_that_is_no_compressed_stream(tmp_path: Path, here: Side) -> None:
    layer = here.make()
    path = tmp_path / "blob"
    whole = zstandard.compress(CONTENT)
    for content in (b"", b"no zstd", whole[:-10], whole + zstandard.compress(b"more, in a second frame")):
        path.write_bytes(content)
        with pytest.raises(RegistryError, match="is not the layer that it is named after"):
            check_content(layer, path, "here")
    import gzip

    path.write_bytes(gzip.compress(CONTENT))
    check_content(replace(layer, media_type=MEDIA_TYPES["gzip"]), path, "here")
