"""A registry that means ill: altered, huge, exchanged, replayed. None of it becomes evidence."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from doubles import small_image
from doubles.cosign import CosignDouble
from doubles.registry import RegistryDouble, sha256

from builder.core.errors import RegistryError
from builder.sources.oci.spec import MANIFEST, parse_reference
from builder.verify.evidence import statement
from builder.verify.evidence.statement import (
    MEDIA_TYPE,
    TEST_RESULT,
    Gathered,
    Statement,
    Verifier,
    check_signatures,
    gather,
)

if TYPE_CHECKING:
    from pathlib import Path

    from builder.sources.oci.registry import Registry
    from builder.sources.oci.spec import Reference
    from builder.sources.oci.staging import Staged


@pytest.fixture
def name(registry: Registry, pushed: Staged) -> Reference:
    small_image.attach_all(registry, pushed, small_image.evidence(pushed))
    return parse_reference(pushed.repository).at(pushed.digest)


def verification(server: RegistryDouble) -> tuple[str, dict[str, Any]]:
    """The artifact of the verification, and its manifest."""
    for digest, (_, content) in server.manifests.items():
        document = json.loads(content)
        if document.get("annotations", {}).get("in-toto.io/predicate-type") == TEST_RESULT:
            return digest, document
    raise AssertionError("nothing is attached")


def put(server: RegistryDouble, document: dict[str, Any]) -> str:
    content = json.dumps(document).encode()
    server.manifests[sha256(content)] = (MANIFEST, content)
    return sha256(content)


def kinds(found: Gathered) -> list[str]:
    return sorted(piece.statement.predicate_type.split("/")[2] for piece in found.pieces)


def why(found: Gathered) -> str:
    assert len(found.refused) == 1, found.refused
    assert not any(piece.statement.predicate_type == TEST_RESULT for piece in found.pieces)
    return found.refused[0].reason


def test_an_altered_blob(server: RegistryDouble, registry: Registry, name: Reference) -> None:
    _, document = verification(server)
    blob = document["layers"][0]["digest"]
    server.lies[blob] = server.blobs[blob].replace(b"535.104.05", b"535.104.06")
    assert "another content" in why(gather(registry, name))


def test_an_altered_manifest(server: RegistryDouble, registry: Registry, name: Reference) -> None:
    digest, document = verification(server)
    server.lies[digest] = json.dumps(document | {"annotations": {}}).encode()
    assert "another content" in why(gather(registry, name))


def test_a_blob_without_end(server: RegistryDouble, registry: Registry, name: Reference) -> None:
    _, document = verification(server)
    server.endless.add(document["layers"][0]["digest"])
    assert "more than 16 MiB" in why(gather(registry, name))


@pytest.mark.parametrize(
    ("size", "reason"), [(1 << 40, "up to 16 MiB"), (0, "up to 16 MiB"), (5, "and its man")]
)
def test_a_size_that_is_not_so(
    size: int, reason: str, server: RegistryDouble, registry: Registry, name: Reference
) -> None:
    digest, document = verification(server)
    del server.manifests[digest]
    document["layers"][0]["size"] = size
    put(server, document)
    assert reason in why(gather(registry, name))


def test_it_is_attached_to_another_image(server: RegistryDouble, registry: Registry, name: Reference) -> None:
    _digest, document = verification(server)
    document["subject"]["digest"] = "sha256:" + "9" * 64
    other = put(server, document)
    server.listed = [
        {"mediaType": MANIFEST, "digest": other, "size": 1, "artifactType": MEDIA_TYPE},
    ]
    assert "which is another image" in why(gather(registry, name))


def test_a_statement_about_another_digest(
    server: RegistryDouble, registry: Registry, name: Reference
) -> None:
    """Replayed: a true statement about another image, hung onto this one."""
    digest, document = verification(server)
    statement = json.loads(server.blobs[document["layers"][0]["digest"]])
    statement["subject"][0]["digest"]["sha256"] = "9" * 64
    content = json.dumps(statement).encode()
    server.blobs[sha256(content)] = content
    document["layers"][0].update(digest=sha256(content), size=len(content))
    del server.manifests[digest]
    put(server, document)
    assert "a statement about sha256:999" in why(gather(registry, name))


def test_two_subjects_are_one_too_many(server: RegistryDouble, registry: Registry, name: Reference) -> None:
    digest, document = verification(server)
    statement = json.loads(server.blobs[document["layers"][0]["digest"]])
    statement["subject"].append({"digest": {"sha256": "9" * 64}})
    content = json.dumps(statement).encode()
    server.blobs[sha256(content)] = content
    document["layers"][0].update(digest=sha256(content), size=len(content))
    del server.manifests[digest]
    put(server, document)
    assert "a statement about" in why(gather(registry, name))


@pytest.mark.parametrize("layers", [[], [{}], [{"digest": "x"}], {}, None])
def test_a_manifest_of_something_else(
    layers: Any, server: RegistryDouble, registry: Registry, name: Reference
) -> None:
    digest, document = verification(server)
    del server.manifests[digest]
    put(server, document | {"layers": layers})
    assert "not that of one document" in why(gather(registry, name))


def test_more_than_is_read(
    server: RegistryDouble, registry: Registry, name: Reference, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statement, "MOST", 2)
    found = gather(registry, name)
    assert len(found.pieces) == 2
    assert "more than 2 statements" in found.refused[0].reason


def test_an_entry_whose_manifest_is_gone(server: RegistryDouble, registry: Registry, name: Reference) -> None:
    digest, _document = verification(server)
    server.listed = [{"mediaType": MANIFEST, "digest": digest, "size": 1, "artifactType": MEDIA_TYPE}]
    del server.manifests[digest]
    assert "does not exist" in why(gather(registry, name))


def test_other_artifacts_are_none_of_ours(
    server: RegistryDouble, registry: Registry, name: Reference
) -> None:
    server.listed = [
        {"mediaType": MANIFEST, "digest": "sha256:" + "1" * 64, "size": 1, "artifactType": "application/x"}
    ]
    found = gather(registry, name)
    assert (found.pieces, found.refused, found.signatures) == ((), (), False)


def test_signatures_are_noticed(server: RegistryDouble, registry: Registry, name: Reference) -> None:
    server.tags[f"sha256-{name.digest.partition(':')[2]}.att"] = name.digest or ""
    assert gather(registry, name).signatures
    server.tags.clear()
    bundle = "application/vnd.dev.sigstore.bundle.v0.3+json"
    server.listed = [
        {"mediaType": MANIFEST, "digest": "sha256:" + "1" * 64, "size": 1, "artifactType": bundle}
    ]
    assert gather(registry, name).signatures


def test_a_registry_that_does_not_answer(tmp_path: Path, registry: Registry) -> None:
    with pytest.raises(RegistryError):
        gather(registry, parse_reference("127.0.0.1:9/x/y").at("sha256:" + "1" * 64))


def test_only_what_is_signed_is_called_signed(
    server: RegistryDouble, registry: Registry, name: Reference
) -> None:
    found = gather(registry, name)
    mine = next(piece.statement for piece in found.pieces if piece.statement.predicate_type == TEST_RESULT)
    image = f"registry.example/x@{name.digest}"
    checked, reasons = check_signatures(
        found,
        CosignDouble(mine),
        image,
        Verifier(key="k"),
        (TEST_RESULT, "https://x"),  # type: ignore[arg-type]
    )
    assert [piece.signed for piece in checked.pieces] == [
        piece.statement.predicate_type == TEST_RESULT for piece in found.pieces
    ]
    assert reasons == ("https://x: not signed",)


def test_what_only_cosign_has_counts_too(registry: Registry, name: Reference) -> None:
    """A registry that withholds a referrer does not hide what is signed."""
    alone = Statement(subjects=(name.digest or "",), predicate_type=TEST_RESULT, predicate={"own": 1})
    other = Statement(subjects=("sha256:" + "9" * 64,), predicate_type=TEST_RESULT, predicate={"own": 2})
    nothing = Gathered(pieces=(), refused=(), kept="tag", signatures=False)
    checked, _ = check_signatures(
        nothing,
        CosignDouble(alone, alone, other),  # type: ignore[arg-type]
        f"registry.example/x@{name.digest}",
        Verifier(key="k"),
        (TEST_RESULT,),
    )
    assert [(piece.statement, piece.digest, piece.signed) for piece in checked.pieces] == [(alone, "", True)]
    assert checked.signatures
