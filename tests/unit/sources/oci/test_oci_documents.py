"""Manifests and configs that one program reads as this image, and another as that one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from builder.core.documents import MalformedError
from builder.sources.oci.spec import blobs_of, parse_config, parse_manifest

A, B = "sha256:" + "a" * 64, "sha256:" + "b" * 64
BLOB = {"mediaType": "x", "digest": A, "size": 5}
MANIFEST: dict[str, Any] = {"schemaVersion": 2, "config": BLOB, "layers": [BLOB | {"digest": B}]}
SETTINGS = {"Env": ["A=b"], "Labels": {"io.rtbuild.inputs": A, "env": "x", "Env": "y"}, "User": ""}
CONFIG: dict[str, Any] = {
    "os": "linux",
    "architecture": "amd64",
    "container_config": {"env": 5},
    "config": SETTINGS,
    "rootfs": {"type": "layers", "diff_ids": [A]},
    "history": [{"created_by": "one"}],
}


def test_what_all_programs_read_alike() -> None:
    assert blobs_of(parse_manifest(json.dumps(MANIFEST).encode())) == ((A, 5), (B, 5))
    assert parse_config(json.dumps(CONFIG).encode())["config"] == SETTINGS
    empty = dict.fromkeys(CONFIG)
    assert parse_config(json.dumps(empty).encode()) == empty


@pytest.mark.parametrize(
    "more",
    [
        {"Layers": []},
        {"layer\N{LATIN SMALL LETTER LONG S}": []},
        {"MediaType": "y"},
        {"config": BLOB | {"Digest": B}},
        {"layers": [BLOB, BLOB | {"\N{LATIN SMALL LETTER LONG S}ize": 6}]},
        {"manifests": [{"digest": A, "platform": {"os": "linux", "OS": "windows"}}]},
    ],
)
def test_a_manifest_of_two_readings(more: dict[str, Any]) -> None:
    with pytest.raises(MalformedError, match="some programs read its"):
        parse_manifest(json.dumps(MANIFEST | more).encode())


@pytest.mark.parametrize("size", [True, -1, 0, 1e3, 5.7, "5", None, [1]])
def test_a_size_that_is_none(size: object) -> None:
    with pytest.raises(MalformedError, match="digest or size"):
        blobs_of(MANIFEST | {"layers": [BLOB | {"size": size}]})


@pytest.mark.parametrize(
    "digest", ["", "x", "sha256:", "../../../evil", "sha256:../../evil", A + "\n", 5, None]
)
def test_a_digest_that_is_none(digest: object) -> None:
    with pytest.raises(MalformedError, match="digest or size"):
        blobs_of(MANIFEST | {"layers": [BLOB | {"digest": digest}]})
    with pytest.raises(MalformedError, match="digest or size"):
        blobs_of(MANIFEST | {"config": BLOB | {"digest": digest}})


@pytest.mark.parametrize("layers", [{}, None, "a", ["a"], [None]])
def test_layers_that_are_none(layers: object) -> None:
    with pytest.raises(MalformedError):
        blobs_of(MANIFEST | {"layers": layers})


@pytest.mark.parametrize(
    "more",
    [
        {"Config": {"Env": ["LD_PRELOAD=/evil"]}},
        {"config": SETTINGS | {"entrypoint": ["/evil"]}},
        {"config": SETTINGS | {"Env": {"A": "b"}}},
        {"config": SETTINGS | {"Env": [1]}},
        {"config": SETTINGS | {"Labels": ["a"]}},
        {"config": SETTINGS | {"Labels": {"a": None}}},
        {"config": SETTINGS | {"User": {}}},
        {"config": [1]},
        {"RootFS": {"diff_ids": [B]}},
        {"rootfs": {"diff_ids": [None]}},
        {"history": {"a": 1}},
        {"history": ["a"]},
        {"architecture": [1]},
    ],
)
def test_a_config_of_two_readings_or_of_none(more: dict[str, Any]) -> None:
    with pytest.raises(MalformedError):
        parse_config(json.dumps(CONFIG | more).encode())
