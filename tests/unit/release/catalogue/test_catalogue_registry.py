"""The catalogue out of a registry: by labels and evidence alone, and nothing that is there can harm it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from doubles import small_image
from doubles.registry import INDEX, RegistryDouble

from builder.core.errors import RegistryError
from builder.plan.lock import LockChange, Outdated
from builder.release.audit import Today
from builder.release.catalogue.collection import collect, images_of
from builder.release.catalogue.site import write_site
from builder.sources.debian import ReleaseFile
from builder.sources.oci.artifacts import Artifact, attach
from builder.sources.oci.spec import MANIFEST, Descriptor, parse_reference
from builder.sources.oci.staging import NoImageError
from builder.verify.evidence.attach import REPORT_TYPE, share
from builder.verify.evidence.judgement import EXTENSION, predicate_of
from builder.verify.evidence.statement import MEDIA_TYPE, PROVENANCE, TEST_RESULT, Statement
from builder.verify.runner.reports import key_of, parse, read_entry, seal

if TYPE_CHECKING:
    from pathlib import Path

    from builder.release.catalogue.values import Catalogue, CataloguedImage
    from builder.sources.oci.registry import Registry
    from builder.sources.oci.staging import Staged

EVIL = "<script>alert(1)</script>\"'{{ 7*7 }}|`$(id)`\x1b[31m</pre><!--"
CELL = small_image.CELL


def found(registry: Registry, repository: str) -> tuple[list[CataloguedImage], list[str]]:
    return images_of(registry, repository, now=datetime.now(UTC), say=lambda _: None)


def catalogued(registry: Registry, repository: str, folder: Path) -> Catalogue:
    images, notes = found(registry, repository)
    return collect([], results=folder, runtimes=folder, registered=images, notes=notes)


def hang(registry: Registry, image: Staged, content: bytes, kind: str = MEDIA_TYPE) -> None:
    subject = Descriptor(media_type=MANIFEST, digest=image.digest, size=len(image.manifest.content))
    attach(registry, parse_reference(image.reference), subject, Artifact(artifact_type=kind, content=content))


def stated(image: Staged, predicate: dict[str, Any], kind: str = TEST_RESULT) -> bytes:
    return Statement(subjects=(image.digest,), predicate_type=kind, predicate=predicate).content


def tag(registry: Registry, image: Staged, name: str) -> None:
    registry.put_manifest(f"{image.repository}:{name}", image.manifest.content, image.manifest.media_type)


def test_a_published_image_tells_cell_card_packages_and_layers(
    registry: Registry, pushed: Staged, tmp_path: Path
) -> None:
    small_image.attach_all(registry, pushed, small_image.evidence(pushed))
    tag(registry, pushed, CELL)
    (image,), notes = found(registry, pushed.repository)
    assert notes == []
    assert (image.cell.id, image.cell.frameworks) == (CELL, ("tensorflow==2.15.1",))
    assert str(image.cell.base) == "rootfs:debian/bookworm"
    assert image.works_on == ("T4",)
    assert image.published == f"{pushed.repository}:{CELL}"
    assert image.packages["numpy"] == "1.26.4"
    assert image.size == sum(size for _, size in pushed.blobs[1:])
    made = catalogued(registry, pushed.repository, tmp_path)
    pages = {
        str(p.relative_to(tmp_path)): p.read_text() for p in write_site(made, tmp_path, made="2026-01-02")
    }
    page = pages[f"images/{made.images[0].page}"]
    assert "ran on a GPU" in page
    assert "docker run --rm --gpus all" in page
    assert "rtbuild build" not in page, "no matrix is here to build it from"
    assert "ran on a GPU | T4" in pages["catalogue.md"]


@pytest.mark.parametrize(
    ("asked", "said"),
    [(False, "unknown"), (True, "security 1, probe 1 (lists of 2023-11-14)")],
    ids=["offline", "asked"],
)
def test_what_is_newer_is_known_only_if_it_was_asked(
    registry: Registry,
    pushed: Staged,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    asked: bool,
    said: str,
) -> None:
    small_image.attach_all(registry, pushed, small_image.evidence(pushed))
    change = LockChange(kind="security", name="libc6", locked="1", newer="2", why=EVIL)
    lists = (ReleaseFile("bookworm-security", 1_700_000_000, None, 1_700_000_000),)
    answer = Outdated(changes=(change,), unknown=(), lists=lists)
    monkeypatch.setattr(Today, "_ask", lambda *_, **__: answer)
    today = Today(registry, note=lambda _: None) if asked else None
    images, notes = images_of(
        registry, pushed.repository, now=datetime.now(UTC), say=lambda _: None, today=today
    )
    made = collect([], results=tmp_path, runtimes=tmp_path, registered=images, notes=notes)
    pages = {path.name: path.read_text() for path in write_site(made, tmp_path, made="2026-01-02")}
    assert f"| {said} |" in pages["catalogue.md"]
    assert f"<dt>Out of date</dt><dd>{said}</dd>" in pages[made.images[0].page]
    assert f"<td>{said}</td>" in (tmp_path / "images" / "index.html").read_text()
    assert ("security: libc6 1 → 2: &lt;script&gt;" in pages[made.images[0].page]) is asked


def test_without_evidence_it_is_unknown(registry: Registry, pushed: Staged) -> None:
    (image,), _ = found(registry, pushed.repository)
    assert (image.works_on, image.possible.answer) == ((), "unknown")


def test_reports_beside_a_staged_image_count(registry: Registry, pushed: Staged) -> None:
    document = small_image.double_report()
    key = key_of(pushed.content, parse(json.dumps(document)), pushed.digest)
    assert key is not None
    text = seal(key, document, cell=CELL, matrix="tf", verified=small_image.moment(days=1))
    share(registry, pushed, [read_entry(text, "x.json")])
    (image,), notes = found(registry, pushed.repository)
    assert image.works_on == ("T4",)
    assert notes == []
    hang(registry, pushed, text.encode()[:-40], REPORT_TYPE)
    (image,), notes = found(registry, pushed.repository)
    assert image.works_on == ("T4",)
    assert "cannot be read" in notes[0]


@pytest.mark.parametrize("beside", ["statement", "report"])
def test_a_clock_that_is_behind_knows_nothing_of_what_was_found_since(
    registry: Registry, pushed: Staged, monkeypatch: pytest.MonkeyPatch, beside: str
) -> None:
    """As `audit` and `publish` say: a newer report against the image is one from the future here."""
    if beside == "statement":
        small_image.attach_all(registry, pushed, small_image.evidence(pushed))
    else:
        document = small_image.double_report()
        key = key_of(pushed.content, parse(json.dumps(document)), pushed.digest)
        assert key is not None
        text = seal(key, document, cell=CELL, matrix="m", verified=small_image.moment(days=1))
        share(registry, pushed, [read_entry(text, "x.json")])
    monkeypatch.setattr(type(registry), "clock_ahead", lambda *_: -599.0)
    ((shown,), _) = found(registry, pushed.repository)
    assert shown.works_on
    monkeypatch.setattr(type(registry), "clock_ahead", lambda *_: -86400.0)
    ((shown,), notes) = found(registry, pushed.repository)
    assert not shown.works_on
    assert any("1440 minutes behind" in note for note in notes)


@pytest.mark.parametrize(
    "when", ["9999-12-31T23:59:59-23:59", "9999-12-31T23:59:59Z", "2199-01-01T00:00:00Z"]
)
def test_a_statement_of_the_future_makes_no_yes(registry: Registry, pushed: Staged, when: str) -> None:
    predicate = dict(predicate_of(small_image.verification(pushed), pushed, claims=("T4",), exempt=()))
    predicate[EXTENSION] |= {"verified": when}
    hang(registry, pushed, stated(pushed, predicate))
    ((shown,), notes) = found(registry, pushed.repository)
    assert not shown.works_on
    assert any("future" in note or "9999" in note or "date" in note for note in notes)


@pytest.mark.parametrize(
    ("predicate", "said"),
    [
        ({"result": "PASSED"}, "it is no test result of rtbuild"),
        ({"result": EVIL}, "it is no test result of rtbuild"),
    ],
)
def test_statements_of_another_kind_make_no_yes(
    registry: Registry, pushed: Staged, predicate: dict[str, Any], said: str
) -> None:
    hang(registry, pushed, stated(pushed, predicate))
    (image,), notes = found(registry, pushed.repository)
    assert image.works_on == ()
    assert said in notes[0]


@pytest.mark.parametrize(
    "content", [b"", b'{"half', b"[" * 5000, b'{"_type": "https://in-toto.io/Statement/v9"}', b"\xff\xfe"]
)
def test_half_a_statement_is_named(registry: Registry, pushed: Staged, content: bytes) -> None:
    small_image.attach_all(registry, pushed, small_image.evidence(pushed))
    hang(registry, pushed, content)
    (image,), notes = found(registry, pushed.repository)
    assert image.works_on == ("T4",)
    assert len(notes) == 1
    assert pushed.digest[:19] in notes[0]


WHOLE = {
    "id": "x",
    "frameworks": ["torch==2.6.0"],
    "python": "3.11",
    "base": "rootfs:debian/bookworm",
    "cuda": {"provider": "wheels", "packages": []},
    "platform": "linux/amd64",
    "pip": [],
    "apt": [],
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "wrong",
    [
        {"frameworks": [EVIL], "python": EVIL, "base": EVIL},
        {"frameworks": ["x"] * 50, "python": [[["3"]]], "base": {}},
        {"cuda": []},
        {"cuda": {"provider": EVIL, "packages": []}},
        {"base": "../../x", "pip": [EVIL], "platform": ""},
        {"frameworks": "torch==2.6.0"},
        {"frameworks": ["torch"], "python": "3"},
    ],
)
def test_a_provenance_that_names_no_possible_cell_makes_no_yes(
    registry: Registry, pushed: Staged, tmp_path: Path, wrong: dict[str, Any]
) -> None:
    predicate = {
        "buildDefinition": {
            "externalParameters": {"matrix": "tf", "cell": WHOLE | wrong},
            "internalParameters": {"content": pushed.content, "inputs": pushed.inputs},
            "resolvedDependencies": [],
        }
    }
    hang(registry, pushed, stated(pushed, predicate, PROVENANCE))
    made = catalogued(registry, pushed.repository, tmp_path)
    (image,) = made.images
    assert image.possible.answer in {"unknown", "impossible"}
    (tmp_path / "index.html").write_bytes(b"\xff")  # no page of ours
    pages = write_site(made, tmp_path, made="2026-01-02")
    assert not any("<script>alert" in path.read_text() for path in pages)


def test_two_digests_of_one_cell_both_have_a_page(
    server: RegistryDouble, registry: Registry, pushed: Staged, tmp_path: Path
) -> None:
    small_image.attach_all(registry, pushed, small_image.evidence(pushed))
    tag(registry, pushed, CELL)
    (tmp_path / "other").mkdir()
    other = small_image.push_image(
        registry, pushed.repository, tmp_path / "other", layers=(small_image.LAYERS[0],), tag="older"
    )
    found = catalogued(registry, pushed.repository, tmp_path)
    assert [image.digest for image in found.images] == [pushed.digest, other.digest]
    assert [image.works_on for image in found.images] == [("T4",), ()], "each has its own evidence"
    assert len({image.page for image in found.images}) == 2


def test_what_rtbuild_did_not_make_is_named_and_survived(
    server: RegistryDouble, registry: Registry, pushed: Staged, tmp_path: Path
) -> None:
    small_image.attach_all(registry, pushed, small_image.evidence(pushed))
    (tmp_path / "other").mkdir()
    small_image.push_image(
        registry,
        pushed.repository,
        tmp_path / "other",
        labels={"io.rtbuild.cell": "", "io.rtbuild.matrix": ""},
        tag="foreign",
    )
    registry.put_manifest(f"{pushed.repository}:index", b'{"schemaVersion": 2, "manifests": []}', INDEX)
    server.tags["gone"] = "sha256:" + "9" * 64
    images, notes = found(registry, pushed.repository)
    assert [image.digest for image in images] == [pushed.digest]
    assert [note.partition(" is not shown")[0].rpartition(":")[2] for note in sorted(notes)] == [
        "foreign",
        "gone",
        "index",
    ]


def test_hostile_labels_stay_text(registry: Registry, server: RegistryDouble, tmp_path: Path) -> None:
    (tmp_path / "image").mkdir()
    labels = {
        "org.opencontainers.image.base.name": f"../../../x{EVIL}\n| y\u202e\x9b",
        "io.rtbuild.profile": EVIL,
    }
    small_image.push_image(registry, f"{server.host}/team/tf", tmp_path / "image", labels=labels, tag="x")
    site = tmp_path / "a" / "b" / "site"
    made = catalogued(registry, f"{server.host}/team/tf", tmp_path)
    pages = write_site(made, site, made="2026-01-02")
    assert len(made.images) == 1
    for path in pages:
        assert path.resolve().is_relative_to(site)
        text = path.read_text()
        assert "<script>alert" not in text
        assert not {"\u202e", "\x9b", "\x1b"} & set(text)
        assert "\\u202e" not in text
        assert "49" not in text.partition("alert(1)")[2][:40]
    (row,) = (site / "catalogue.md").read_text().splitlines()[2:]
    assert row.count(" | ") == 6
    assert "\x1b" not in row


@pytest.mark.slow
@pytest.mark.parametrize("name", ["io.rtbuild.cell", "io.rtbuild.matrix"])
@pytest.mark.parametrize("value", ["a" * 300, "../../../x", "x\u202ey", EVIL, "a\nb", " "])
def test_a_label_of_ours_that_we_never_write_leaves_its_image_out_alone(
    name: str, value: str, registry: Registry, pushed: Staged, tmp_path: Path
) -> None:
    small_image.attach_all(registry, pushed, small_image.evidence(pushed))
    (tmp_path / "image").mkdir()
    with pytest.raises(NoImageError, match=name):  # when it is read back
        small_image.push_image(
            registry, pushed.repository, tmp_path / "image", labels={name: value}, tag="evil"
        )
    made = catalogued(registry, pushed.repository, tmp_path)
    assert [image.digest for image in made.images] == [pushed.digest]
    (note,) = made.notes
    assert ":evil is not shown" in note
    assert name in note
    write_site(made, tmp_path / "site", made="2026-01-02")


def test_an_empty_repository_is_a_catalogue(
    registry: Registry, server: RegistryDouble, tmp_path: Path
) -> None:
    made = catalogued(registry, f"{server.host}/team/tf", tmp_path)
    assert (made.images, made.notes) == ((), ())


def test_a_registry_that_does_not_answer_is_an_error(registry: Registry) -> None:
    with pytest.raises(RegistryError):
        found(registry, "127.0.0.1:1/team/tf")
