"""rtbuild facts refresh: a diff of what can be read, nothing a person fixed, and reasons for silence."""

from __future__ import annotations

import json
import shutil
import tomllib
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from facts_shelf import Shelf, torch
from rtbuild_command import called

from builder.cli.commands import facts as command
from builder.core import resources
from builder.core.errors import RegistryError, UsageError
from builder.core.model import RegistryBase
from builder.plan.facts.reading import rereading
from builder.plan.facts.reading.release_survey import load_table, table_text
from builder.plan.facts.reading.rereading import read_side_tables
from builder.plan.facts.reading.row_sources import total
from builder.plan.facts.tables import loader as facts

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def tool(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What differs of PyTorch's tool for extensions, which the shelf's wheels do not have: nothing."""
    lines: list[str] = []
    monkeypatch.setattr(rereading, "differences", lambda _index: lines)
    return lines


class Nobody:
    """A registry that is down."""

    def tags(self, _repository: str) -> frozenset[str]:
        raise RegistryError("registry docker.io did not answer: connection refused")


class Tags(Nobody):
    def __init__(self, *tags: str, cudnn: str = "8.0.4.30-1+cuda11.1") -> None:
        self.listed = frozenset(tags)
        self.cudnn = cudnn

    def tags(self, _repository: str) -> frozenset[str]:
        return self.listed

    def inspect(self, reference: str, _platform: str) -> RegistryBase:
        env = (("NV_CUDNN_VERSION", self.cudnn),)
        return RegistryBase(reference=reference, digest="sha256:0", env=env, labels=(), size=1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The tables, in a checkout of their own with the page that is made from them."""
    where = tmp_path / "builder" / "plan" / "facts" / "tables" / "data"
    shutil.copytree(resources.facts(), where)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "facts.md").write_text("old\n")
    return where


def run(folder: Path, index: Shelf, registry: Nobody, **options) -> int:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(command, "resources", SimpleNamespace(facts=lambda: folder))
        patch.setattr(command.Index, "from_user", lambda **_: index)
        patch.setattr(command.Registry, "from_user", lambda _mirrors: registry)
        return called(command.refresh_tables, **options)


def newer() -> Shelf:
    return Shelf(torch("2.9.8", cuda="12.9", cudnn="9.11.0.1", python="313"))


def test_what_wheels_say_is_written_and_the_page_is_named(folder, capsys) -> None:
    assert run(folder, newer(), Nobody(), only=["torch"]) == 0
    shown = capsys.readouterr()
    assert "torch torch 2.9.8: is new\n" in shown.out
    assert "torch torch 2.9.1: is no longer on the package index\n" in shown.out
    assert "1 wheels read" in shown.err
    assert "read from files + added by hand / all rows" in shown.err
    row = facts.read(folder).frameworks["torch"].row("2.9.8")
    assert row is not None
    assert (row.cuda, row.cudnn) == ("12.9", "9.11.0.1")
    assert "`make golden` writes docs/facts.md" in shown.err


def test_check_writes_nothing_and_exits_1(folder, capsys) -> None:
    before = {path: path.read_text() for path in folder.rglob("*") if path.is_file()}
    assert run(folder, newer(), Nobody(), only=["torch"], check_=True, json_=True) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["written"] is False
    assert "torch torch 2.9.8: is new" in document["releases"]
    assert document["coverage"][0]["framework"] == "TensorFlow"
    assert {path: path.read_text() for path in folder.rglob("*") if path.is_file()} == before


def altered(folder: Path, **values: str) -> None:
    """A row changed by somebody who knows of its check sum."""
    table = load_table(folder, "torch")
    for row in table.rows:
        row.update(values)
        row["sum"] = total(row)
    (folder / "releases" / "torch.json").write_text(table_text(table))


def test_verify_reads_every_wheel_again_and_finds_what_no_check_sum_tells(folder, capsys) -> None:
    shelf = newer()
    assert run(folder, shelf, Nobody(), only=["torch"]) == 0
    assert run(folder, shelf, Nobody(), only=["torch"], verify=True) == 0
    assert "1 wheels read" in capsys.readouterr().err
    altered(folder, cudnn="9.10.0.1")
    assert run(folder, shelf, Nobody(), only=["torch"], check_=True) == 0
    before = {path: path.read_text() for path in folder.rglob("*") if path.is_file()}
    assert run(folder, shelf, Nobody(), only=["torch"], verify=True) == 1
    assert "torch torch 2.9.8: cudnn 9.10.0.1 -> 9.11.0.1" in capsys.readouterr().out
    assert {path: path.read_text() for path in folder.rglob("*") if path.is_file()} == before


def test_verify_takes_no_wheel_from_the_cache(folder, capsys) -> None:
    shelf = newer()
    assert run(folder, shelf, Nobody(), only=["torch"]) == 0
    shelf.asked.clear()
    assert run(folder, shelf, Nobody(), only=["torch"], again=True, check_=True) == 0
    from_cache = len(shelf.asked)
    assert run(folder, shelf, Nobody(), only=["torch"], verify=True) == 0
    assert len(shelf.asked) > 2 * from_cache
    capsys.readouterr()


@pytest.mark.parametrize(
    ("shelf", "options"), [(Shelf({}, down=True), {}), (newer(), {"mebibytes": -1})], ids=["silent", "budget"]
)
def test_what_could_not_be_read_is_not_verified(folder, shelf, options) -> None:
    assert run(folder, newer(), Nobody(), only=["torch"]) == 0
    assert run(folder, shelf, Nobody(), only=["torch"], verify=True, **options) == 1


def test_a_tool_for_extensions_that_differs_from_its_table_is_told_and_not_verified(
    folder, tool, capsys
) -> None:
    assert run(folder, newer(), Nobody(), only=["torch"]) == 0
    tool.append("the tool for extensions of torch 1.2.0 refuses no card")
    assert run(folder, newer(), Nobody(), only=["torch"], verify=True) == 1
    assert "torch 1.2.0 refuses no card" in "".join(capsys.readouterr())
    assert run(folder, newer(), Nobody(), only=["torch"], check_=True) == 0  # a person has to mend the table
    assert "torch 1.2.0 refuses no card" in "".join(capsys.readouterr())


def test_a_new_release_is_no_fault_of_a_row(folder) -> None:
    one = torch("2.9.8", cuda="12.9", cudnn="9.11.0.1", python="313")
    assert run(folder, Shelf(one), Nobody(), only=["torch"]) == 0
    assert run(folder, Shelf(one | torch("2.9.9")), Nobody(), only=["torch"], verify=True) == 0


def test_a_framework_without_a_table_is_named(folder) -> None:
    with pytest.raises(UsageError, match="no table of pytorch"):
        run(folder, newer(), Nobody(), only=["pytorch"], check_=True)


def test_a_mistyped_mirror_is_refused_before_anything_is_read(monkeypatch) -> None:
    monkeypatch.setattr(command, "reread", lambda *_, **__: pytest.fail("wheels are read for hours"))
    with pytest.raises(UsageError, match="nonsense"):
        called(command.refresh_tables, mirror=["nonsense"])


def test_everybody_silent_changes_nothing(folder, capsys) -> None:
    assert run(folder, Shelf({}, down=True), Nobody(), check_=True) == 0
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "0 values would change" in shown.err


def test_tags_that_are_gone_come_back_or_tell_their_cudnn(folder) -> None:
    rows = tomllib.loads((folder / "tags.toml").read_text())["rows"]

    def tags_of(row: dict) -> set[str]:
        kind = "-".join(filter(None, (row["cuda"], row["infix"], "runtime")))
        return {f"{kind}-{system}" for system in row["systems"]}

    everything = set().union(*(tags_of(row) for row in rows if row["state"] == "listed"))
    gone = next(row for row in rows if row["state"] == "listed" and "cudnn" in row)
    listed = everything - tags_of(gone)
    new = "99.0.0-cudnn-runtime-ubuntu24.04"
    found = read_side_tables(
        folder, index=Shelf({}, down=True), registry=Tags(*listed, new, "99.0.0-base-ubuntu24.04")
    )
    states = [(change.old, change.new) for change in found.changes if change.key == "state"]
    assert states == [("listed", "deleted")]
    told = [change for change in found.changes if change.key == "cudnn"]
    assert {(change.old, change.new) for change in told} == {(None, "8.0.4.30")}
    unread = [row for row in rows if row["state"] == "listed" and row["infix"] and "cudnn" not in row]
    assert len(told) == len(unread)
    assert f"nvidia/cuda:{new} is listed and no row covers it" in found.notes
    assert run(folder, Shelf({}, down=True), Tags(*listed)) == 0
    after = tomllib.loads((folder / "tags.toml").read_text())
    first = next(
        row for row in after["rows"] if row["state"] == "deleted" and row["sources"][0] == "registry"
    )
    assert first["cuda"] == gone["cuda"]
    facts.read(folder)
