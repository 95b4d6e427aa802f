"""Reports on their way from the machine that verifies to the one that publishes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from doubles import small_image
from doubles.registry import INDEX, RegistryDouble, registry_client, serve, sha256

from builder.core.errors import RegistryError
from builder.sources.oci.registry import Registry
from builder.verify.evidence.attach import REPORT_TYPE, share, shared
from builder.verify.runner.reports import Damaged, SealedReport, key_of, parse, read_entry, seal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from builder.sources.oci.staging import Staged


@pytest.fixture(params=[True, False], ids=["referrers", "tag"])
def server(request: pytest.FixtureRequest) -> Iterator[RegistryDouble]:
    with serve(RegistryDouble(referrers=request.param)) as running:
        yield running


@pytest.fixture
def registry() -> Registry:
    return registry_client()


@pytest.fixture
def image(server: RegistryDouble, registry: Registry, tmp_path: Path) -> Staged:
    return small_image.push_image(registry, f"{server.host}/team/staging", tmp_path)


def report(image: Staged, *, digest: str | None = None, **changes: object) -> SealedReport:
    document = small_image.double_report(**changes)
    key = key_of(image.content, parse(json.dumps(document)), digest or image.digest)
    assert key is not None
    text = seal(key, document, cell="cell", matrix="tf", verified=small_image.moment(days=1))
    return read_entry(text, "results/reports/x.json")


def test_what_one_machine_put_there_another_reads_to_the_byte(registry: Registry, image: Staged) -> None:
    here = report(image)
    other = report(image, driver={"version": "550.54.15", "api": "12.4"}, verdict="broken")
    assert share(registry, image, [here, other]) == 2
    found = shared(registry, image)
    assert sorted(entry.text for entry in found if isinstance(entry, SealedReport)) == sorted(
        [here.text, other.text]
    )
    assert {entry.verdict for entry in found if isinstance(entry, SealedReport)} == {"works", "broken"}
    assert all(entry.where.startswith(f"{image.repository}@sha256:") for entry in found)


def test_once_more_changes_nothing(server: RegistryDouble, registry: Registry, image: Staged) -> None:
    once = report(image)
    assert share(registry, image, [once]) == 1
    before = dict(server.manifests), dict(server.tags)
    assert share(registry, image, [once]) == 0
    assert (dict(server.manifests), dict(server.tags)) == before


def test_a_double_or_another_images_report_never_leaves(registry: Registry, image: Staged) -> None:
    for wrong in (report(image, test_double=True), report(image, digest="sha256:" + "0" * 64)):
        with pytest.raises(ValueError, match="is no report on"):
            share(registry, image, [wrong])
    assert shared(registry, image) == []


def attach(server: RegistryDouble, image: Staged, content: bytes, kind: str = REPORT_TYPE) -> None:
    """Something that was put beside an image by hand."""
    server.blobs[sha256(content)] = content
    layer = {"mediaType": kind, "digest": sha256(content), "size": len(content)}
    subject = {
        "mediaType": image.manifest.media_type,
        "digest": image.digest,
        "size": len(image.manifest.content),
    }
    document = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "artifactType": kind,
        "config": {"mediaType": "application/vnd.oci.empty.v1+json", "digest": sha256(b"{}"), "size": 2},
        "layers": [layer],
        "subject": subject,
    }
    manifest = json.dumps(document).encode()
    server.manifests[sha256(manifest)] = (document["mediaType"], manifest)
    if not server.referrers:
        entry = {"mediaType": document["mediaType"], "digest": sha256(manifest), "size": len(manifest)}
        index = json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": [entry]}).encode()
        server.manifests[sha256(index)] = (INDEX, index)
        server.tags[image.digest.replace(":", "-")] = sha256(index)


def test_a_report_edited_by_hand_is_named_and_not_believed(
    server: RegistryDouble, registry: Registry, image: Staged
) -> None:
    broken = report(image, verdict="broken")
    attach(server, image, broken.text.replace('"broken"', '"works"').encode())
    (found,) = shared(registry, image)
    assert isinstance(found, Damaged)
    assert "was changed after it was written" in found.why
    assert found.name.startswith(image.content.partition(":")[2][:16])


def test_a_whole_report_about_another_image_is_not_believed_here(
    server: RegistryDouble, registry: Registry, image: Staged
) -> None:
    attach(server, image, report(image, digest="sha256:" + "0" * 64).text.encode())
    (found,) = shared(registry, image)
    assert isinstance(found, Damaged)
    assert "is about sha256:000" in found.why


def test_other_things_beside_the_image_are_no_reports(
    server: RegistryDouble, registry: Registry, image: Staged
) -> None:
    attach(server, image, b"{}", "application/vnd.example.signature")
    assert shared(registry, image) == []


def test_a_registry_that_gives_other_bytes_is_caught(
    server: RegistryDouble, registry: Registry, image: Staged
) -> None:
    here = report(image)
    share(registry, image, [here])
    server.lies[sha256(here.text.encode())] = here.text.replace("Tesla T4", "Tesla V4").encode()
    (found,) = shared(registry, image)
    assert isinstance(found, Damaged)
    assert "another content" in found.why


def test_reports_beyond_what_is_read_are_no_silent_yes(
    registry: Registry, image: Staged, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of those that are left out may say broken."""
    share(registry, image, [report(image)])
    for number in range(3):
        share(registry, image, [report(image, summary=str(number))])
    assert len(shared(registry, image)) == 4
    monkeypatch.setattr("builder.sources.oci.artifacts._MOST", 3)
    with pytest.raises(RegistryError, match="not all reports"):
        shared(registry, image)
