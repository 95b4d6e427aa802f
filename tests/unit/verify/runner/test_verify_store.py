from __future__ import annotations

import json
import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from doubles.engine import WITH_GPU

from builder.core.digests import digest_of
from builder.verify.runner.reports import Damaged, ReportKey, ReportStore, SealedReport, key_of, parse

if TYPE_CHECKING:
    from pathlib import Path

CONTENT = "sha256:" + "c" * 64
DIGEST = "sha256:" + "d" * 64


@pytest.fixture
def warnings() -> list[str]:
    return []


@pytest.fixture
def store(tmp_path: Path, warnings: list[str]) -> ReportStore:
    return ReportStore(tmp_path / "reports", warn=warnings.append)


def keep(store: ReportStore, document: dict) -> tuple[ReportKey, Path]:
    key = key_of(CONTENT, parse(json.dumps(document)), DIGEST)
    assert key is not None
    path = store.save(key, document)
    assert path is not None
    return key, path


def test_a_report_comes_back_as_it_was(store: ReportStore, document, warnings: list[str]) -> None:
    key, path = keep(store, document())
    assert store.load(key) == document()
    assert (warnings, [p.name for p in path.parent.iterdir()]) == ([], [path.name])
    assert path.stat().st_mode & 0o777 == 0o644


def test_all_five_must_be_equal(store: ReportStore, document) -> None:
    key, _ = keep(store, document(**WITH_GPU))
    assert key == ReportKey(
        digest=DIGEST, content=CONTENT, probe=key.probe, gpus=(("Tesla T4", "7.5"),), driver="535.104.05"
    )
    assert store.load(key) is not None
    for changes in (
        {"digest": "sha256:" + "e" * 64},
        {"content": "sha256:" + "e" * 64},
        {"probe": "f" * 64},
        {"gpus": (("Tesla T4", "7.5"), ("Tesla T4", "7.5"))},
        {"gpus": ()},
        {"driver": "550.54.14"},
        {"driver": None},
    ):
        assert store.load(ReportKey(**{**vars(key), **changes})) is None


@pytest.mark.parametrize("verdict", ["broken", "unsupported-gpu", "host", "busy"])
def test_a_failure_is_tried_again(store: ReportStore, document, verdict: str) -> None:
    key, _ = keep(store, document(verdict=verdict))
    assert store.load(key) is None


@pytest.mark.parametrize("found", ["broken", "unsupported-gpu"])
@pytest.mark.parametrize("later", ["unverified", "host", "busy"])
def test_a_report_that_says_nothing_takes_no_finding_s_place(
    store: ReportStore, document, found: str, later: str
) -> None:
    _, path = keep(store, document(**WITH_GPU | {"verdict": found}))
    assert keep(store, document(**WITH_GPU | {"verdict": later}))[1] == path
    assert [entry.verdict for entry in store.entries() if isinstance(entry, SealedReport)] == [found]
    keep(store, document(**WITH_GPU))
    assert [entry.verdict for entry in store.entries() if isinstance(entry, SealedReport)] == ["works"]


def test_a_test_double_s_report_stands_for_nothing(store: ReportStore, document) -> None:
    key, _ = keep(store, document(test_double=True))
    assert store.load(key) is None


def test_an_edited_report_is_not_believed(store: ReportStore, document, warnings: list[str]) -> None:
    key, path = keep(store, document())
    path.write_text(path.read_text().replace('"unverified"', '"works"'))
    assert store.load(key) is None
    assert "was changed after it was written" in warnings[0]


def test_a_report_under_another_name_is_not_believed(
    store: ReportStore, document, warnings: list[str]
) -> None:
    key, path = keep(store, document())
    other = ReportKey(digest=DIGEST, content="sha256:" + "e" * 64, probe=key.probe, gpus=(), driver=None)
    path.rename(path.with_name(other.file_name()))
    assert store.load(other) is None
    assert "is about another image, GPU or driver" in warnings[0]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": 9}', '{"schema": 2}'])
def test_damage_is_said_and_survived(store: ReportStore, document, warnings: list[str], text: str) -> None:
    key, path = keep(store, document())
    path.write_text(text)
    assert store.load(key) is None
    assert str(path) in warnings[0]
    assert warnings[0].endswith("the image is verified again")


def test_a_folder_that_cannot_be_written_is_a_warning(tmp_path: Path, document, warnings: list[str]) -> None:
    (tmp_path / "file").write_text("in the way")
    store = ReportStore(tmp_path / "file" / "reports", warn=warnings.append)
    key = key_of(CONTENT, parse(json.dumps(document())), DIGEST)
    assert key is not None
    assert store.save(key, document()) is None
    assert "it will not be reused" in warnings[0]
    assert store.load(key) is None


def test_a_gpu_without_a_compute_capability_has_no_key(document) -> None:
    gpus = [{"name": "Tesla T4", "compute_capability": None}]
    assert key_of(CONTENT, parse(json.dumps(document(gpus=gpus))), DIGEST) is None


def test_writers_do_not_disturb_each_other(store: ReportStore, document) -> None:
    key, path = keep(store, document())
    threads = [threading.Thread(target=store.save, args=(key, document())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for _ in range(20):
        assert store.load(key) is not None
    for thread in threads:
        thread.join()
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_all_reports_and_what_should_be_one(store: ReportStore, document) -> None:
    key, path = keep(store, document())
    (path.parent / "0123-edited.json").write_text(path.read_text().replace('"unverified"', '"works"'))
    (path.parent / "notes.txt").write_text("no report")
    damaged, entry = store.entries()
    assert isinstance(entry, SealedReport)
    assert (entry.key, entry.verdict, entry.where) == (key, "unverified", str(path))
    assert abs((datetime.now(UTC) - entry.verified).total_seconds()) < 60
    assert isinstance(damaged, Damaged)
    assert damaged.why.endswith("0123-edited.json was changed after it was written")
    assert list(ReportStore(path.parent / "none").entries()) == []


def test_a_seal_that_was_made_anew_over_a_contradiction(store: ReportStore, document) -> None:
    """A key that names a GPU, over a document that saw none."""
    key, path = keep(store, document())
    body = {name: value for name, value in json.loads(path.read_text()).items() if name != "seal"}
    body["key"]["gpus"] = [["Tesla T4", "7.5"]]
    path.write_text(json.dumps(body | {"seal": digest_of(body)}))
    (found,) = store.entries()
    assert isinstance(found, Damaged)
    assert "says something else than its document" in found.why
    assert store.load(key) is None


@pytest.mark.parametrize("field", ["digest", "content"])
@pytest.mark.parametrize("value", [None, True, 5, [], {}])
def test_a_report_about_nothing_that_has_a_name(
    store: ReportStore, document, field: str, value: object
) -> None:
    """Its seal is right, as anybody can make it; the publisher's message cut the digest short and failed."""
    _, path = keep(store, document())
    entry = json.loads(path.read_text())
    entry["key"][field] = value
    body = {name: part for name, part in entry.items() if name != "seal"}
    path.write_text(json.dumps(body | {"seal": digest_of(body)}))
    (found,) = store.entries()
    assert isinstance(found, Damaged)
    assert "lacks what a report has" in found.why
