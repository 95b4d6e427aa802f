"""``rtbuild outdated``: exit codes, and what is said of cells about which something stays open."""

from __future__ import annotations

import contextlib
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from doubles import small_image
from doubles.registry import RegistryDouble, serve
from kept_documents import repository as serve_repository
from lock_values import lock_cell, lock_pinned, lock_wheel
from rtbuild_command import called

from builder.cli.commands import audit as module
from builder.core import resources
from builder.core.errors import UsageError
from builder.core.versions import canonical
from builder.plan.lock import LockChange, Outdated, file, newer_releases
from builder.plan.matrix import load
from builder.release.audit import run
from builder.sources.debian import Debian, ReleaseFile, SuiteToday
from builder.sources.index import Index
from builder.sources.oci import Registry

if TYPE_CHECKING:
    from collections.abc import Iterable

    from builder.sources.index import Files

MATRICES = Path(__file__).resolve().parents[3] / "benchmarks" / "matrices"


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[str, ...]]:
    """What every cell is answered."""
    found: dict[str, tuple[str, ...]] = {}
    monkeypatch.setattr(run, "pages", lambda names, _: dict.fromkeys(names, ()))
    monkeypatch.setattr(run, "outdated", lambda *_, **__: Outdated(changes=(), **{"unknown": (), **found}))
    return found


@pytest.mark.parametrize(("left", "code"), [(None, 0), ("unknown", 5), ("unasked", 5)])
def test_what_nobody_asked_is_no_good_news(
    answer: dict[str, tuple[str, ...]], left: str | None, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    if left is not None:
        answer[left] = ("the packages",)
    assert called(module.outdated, [str(MATRICES / "tf.yaml")]) == 0
    assert ("nothing newer\n" in capsys.readouterr().out) is (left is None)
    assert called(module.outdated, [str(MATRICES / "tf.yaml")], fail_on="security") == code
    assert called(module.outdated, [str(MATRICES / "tf.yaml")], fail_on="any") == code


def test_each_cell_is_named_when_it_is_asked_about(
    answer: dict[str, tuple[str, ...]], capsys: pytest.CaptureFixture[str]
) -> None:
    """A minute passed without a word."""
    assert called(module.outdated, [str(MATRICES / "tf.yaml")]) == 0
    said = capsys.readouterr()
    cells = [line.partition(":")[0] for line in said.out.splitlines()]
    assert said.err.splitlines() == [f"{cell}: asking what is newer" for cell in cells]


def test_a_lock_is_read_once(
    answer: dict[str, tuple[str, ...]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    read: list[Path] = []
    whole = file.read_file
    monkeypatch.setattr(file, "read_file", lambda path: (read.append(path), whole(path))[1])
    assert called(module.outdated, [str(MATRICES / "tf.yaml")]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3
    assert len(read) == 1


def test_a_cell_that_is_not_locked_is_not_known(
    answer: dict[str, tuple[str, ...]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "tf.yaml"
    path.write_text((MATRICES / "tf.yaml").read_text())
    assert called(module.outdated, [str(path)], fail_on="any") == 5
    shown = capsys.readouterr()
    said = shown.out.splitlines()
    assert len(said) == 3 * 3  # a line for each cell, one of its framework, and one that says why
    assert all(line.endswith("missing: there is no lock yet") for line in said[2::3])
    assert shown.err.splitlines() == [f"hint: `rtbuild lock {path}`, and commit what it writes"]


class Published:
    """``outdated`` about what 0.1.0 published, between an index and an archive that give one answer."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.indexes: list[tuple[str, ...]] = []
        self.files: Files = "the index is down"
        monkeypatch.setattr(run, "pages", self._pages)
        lists = ReleaseFile("bookworm-security", 1, None, 1)
        listed = SuiteToday(newest={}, security={}, releases=(lists,))
        monkeypatch.setattr(Debian, "today", lambda *_, **__: listed)

    def _pages(self, names: Iterable[str], index: Index) -> dict[str, Files]:
        self.indexes.append(index.settings.extra)
        return dict.fromkeys(names, self.files)

    def ask(self, tag: str, repository: str = "signed", **options: Any) -> tuple[int, str]:
        """The exit code, and what is printed."""
        printed = io.StringIO()
        with serve_repository("0.1.0", repository) as where, contextlib.redirect_stdout(printed):
            code = called(module.outdated, [where + tag], **options)
        return code, printed.getvalue().replace(where, "team/tf")


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> Published:
    return Published(monkeypatch)


@pytest.mark.parametrize("tag", [":latest", ""])
def test_a_published_image_is_asked_about_by_its_provenance(published: Published, tag: str) -> None:
    code, page = published.ask(tag, fail_on="any")
    (title, *lines) = page.splitlines()
    assert code == 1
    assert title.startswith(f"team/tf{tag}:")
    assert "  gone      libc6 2.36-9+deb12u9: the lists of bookworm have it no more" in page
    (down,) = (line for line in lines if "the index is down" in line)
    assert down == "  unknown   the packages: the index is down"
    assert published.indexes == [Index.from_user().settings.extra]


def test_reports_of_another_release_of_the_probe_are_told(published: Published) -> None:
    newer = resources.probe_version()
    (line,) = (line for line in published.ask(":latest")[1].splitlines() if line.startswith("  probe "))
    assert line.endswith(f" → {newer}: reports are of another release of the probe: verify it again")


def test_an_image_that_no_longer_audits_is_told(published: Published) -> None:
    page = published.ask(":latest", repository="against")[1]
    (line,) = (line for line in page.splitlines() if line.startswith("  audit     broken"))
    assert "it was found" in line
    assert "  audit" not in published.ask(":latest")[1]


@pytest.mark.parametrize("index", [[], ["https://index.example/simple"]])
def test_an_index_that_only_the_image_names_is_not_asked(
    published: Published, index: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    published.files = ()
    pinned = small_image.pinned(cell=small_image.cell(index=tuple(index)))
    monkeypatch.setattr(run, "lock_of", lambda *_: pinned)
    _, page = published.ask(":latest")
    assert published.indexes == [Index.from_user().settings.extra]
    word = "it may be of an index that only the image names" if index else "no index lists"
    assert page.count(word) == len(pinned.wheels)


def test_a_base_in_a_registry_that_only_the_image_names_is_not_asked(
    published: Published, monkeypatch: pytest.MonkeyPatch
) -> None:
    pinned = small_image.on_registry_base("evil.example/base:1", "sha256:" + "b" * 64)
    monkeypatch.setattr(run, "lock_of", lambda *_: pinned)
    monkeypatch.setattr(Registry, "inspect", lambda *_: pytest.fail("it was asked"))
    assert "evil.example/base:1 is in another registry, which only the image names" in published.ask("")[1]


def test_an_image_without_a_provenance_that_counts_is_not_known(published: Published, tmp_path: Path) -> None:
    key = tmp_path / "other.pub"
    key.write_text("-----BEGIN PUBLIC KEY-----\n")
    code, page = published.ask(":latest", key=str(key), fail_on="security")
    assert code == 5
    assert "no provenance beside it says what it was built from" in page


def test_a_repository_without_an_image_is_not_known(
    published: Published, capsys: pytest.CaptureFixture[str]
) -> None:
    with serve(RegistryDouble(tags={"sha256-" + "a" * 64: "sha256:" + "b" * 64})) as double:
        assert called(module.outdated, [f"{double.host}/team/none"], fail_on="security") == 5
    assert "unknown   it has no image" in capsys.readouterr().out


def test_a_key_without_a_published_image_is_a_mistake() -> None:
    with pytest.raises(UsageError, match="none is named"):
        called(module.outdated, [str(MATRICES / "tf.yaml")], key="cosign.pub")


def test_what_is_unknown_for_all_is_said_once(
    answer: dict[str, tuple[str, ...]], capsys: pytest.CaptureFixture[str]
) -> None:
    answer["unknown"] = (
        "the packages: package index https://index.example/simple/: the host name is unknown",
    )
    assert called(module.outdated, [str(MATRICES / "tf.yaml")]) == 0
    first, *cells = capsys.readouterr().out.splitlines()
    assert first == f"unknown for 3 of 3: {answer['unknown'][0]}"
    assert len(cells) == 3
    assert all(line.endswith(": not known") for line in cells)


def test_where_a_framework_stands_among_its_releases_is_told() -> None:
    cell = next(cell for cell in load(MATRICES / "tf.yaml").cells)
    (said,) = newer_releases(replace(cell, frameworks=("tensorflow==2.15.0",), python="3.11"))
    assert said.startswith(
        "TensorFlow 2.15.0 is behind 2.15.1, the newest patch of 2.15 for Python 3.11; the newest"
    )
    assert list(newer_releases(replace(cell, frameworks=("tensorflow==99.0",)))) == []


def test_what_answered_is_told_apart_from_what_is_open() -> None:
    some = Outdated(changes=(), unknown=("the base: its lists have no end",), answered=True)
    assert some.summary == "nothing newer in what answered, 1 open"
    assert replace(some, answered=False).summary == "not known"


def test_the_command_is_told_that_takes_what_is_a_matter_of_security(monkeypatch, capsys) -> None:
    changes = tuple(
        LockChange(kind=kind, name=name, locked="1", newer="2")
        for kind, name in (("security", "libssl3"), ("package", "zlib1g"))
    )
    monkeypatch.setattr(run, "pages", lambda names, _: dict.fromkeys(names, ()))
    monkeypatch.setattr(run, "outdated", lambda *_, **__: Outdated(changes=changes, unknown=()))
    path = str(MATRICES / "tf.yaml")
    assert called(module.outdated, [path], fail_on="security") == 1
    assert f"`rtbuild lock {path} --upgrade-only libssl3`" in capsys.readouterr().err


def test_two_matrices_with_a_cell_of_one_id_are_both_told(
    answer: dict[str, tuple[str, ...]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys
) -> None:
    """The second one took the first one's place, and with it a security update."""
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        (tmp_path / f"{name}.yaml").write_text(
            (MATRICES / "tf.yaml").read_text().replace("name: tf", f"name: {name}")
        )
    assert called(module.outdated, ["a.yaml", "b.yaml"], json_=True) == 0
    cells = [row["cell"] for row in json.loads(capsys.readouterr().out)["cells"]]
    assert len(cells) == 2 * len(set(cells)) == 6


def test_options_that_choose_cells_are_refused_without_a_matrix() -> None:
    for options in ({"select": ["python=3.11"]}, {"skip": ["python=3.11"]}):
        with pytest.raises(UsageError, match="choose among the cells of a matrix"):
            called(module.outdated, ["host.example/team/tf"], **options)


def test_an_image_is_answered_by_the_pages_of_its_own_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages that were asked for earlier, for another image, made it look answered."""
    given: list[set[str]] = []
    asked: list[str] = []
    monkeypatch.setattr(
        run,
        "pages",
        lambda names, _: (asked.extend(sorted(names)), dict.fromkeys(map(canonical, names), ()))[1],
    )
    monkeypatch.setattr(
        run,
        "outdated",
        lambda *_, pages, **__: (given.append(set(pages)), Outdated(changes=(), unknown=()))[1],
    )
    today = run.Today(Registry.from_user({}), note=lambda _: None)
    for names in (["Some_Thing", "numpy"], ["numpy"], ["some.thing"]):
        wheels = tuple(lock_wheel(name) for name in names)
        today.of_lock(replace(lock_pinned(lock_cell("c")), wheels=wheels))
    assert given == [{"some-thing", "numpy"}, {"numpy"}, {"some-thing"}]
    assert asked == ["numpy", "some-thing"]
