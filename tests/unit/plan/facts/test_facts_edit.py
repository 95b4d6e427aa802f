"""Changing a table in place: the values asked for, their source and its day, and nothing else."""

from __future__ import annotations

import shutil
import tomllib

import pytest

from builder.core import resources
from builder.plan.facts.reading.rereading import Change, apply
from builder.plan.facts.tables import FactsError
from builder.plan.facts.tables import loader as facts

TABLE = """\
# a comment that stays

name = "thing"

rows = [
  # about the first
  { versions = "==1.*", latest = "1.0", python = ["3.8"], pins = ["a==1", "b[x]==2"], sources = ["docs"] },
  { versions = "==2.*", latest = "2.0", python = ["3.9"], sources = ["docs", "index"] },
]

[sources.docs]
reference = "somewhere"
date = "2020-01-01"

[sources.index]
reference = "wheels"
date = "2020-01-01"
"""
DATE = "2026-02-03"


def change(row, key, new, old=None, file="nvidia-wheels.toml"):
    return Change(file=file, row=row, label="thing", key=key, old=old, new=new)


def test_values_change_and_all_else_stays() -> None:
    done = apply(TABLE, [change(1, "latest", "2.1"), change(1, "python", ["3.9", "3.10"])], DATE)
    expected = TABLE.replace('latest = "2.0", python = ["3.9"]', 'latest = "2.1", python = ["3.9", "3.10"]')
    head, _, tail = expected.rpartition('date = "2020-01-01"')
    assert done == f'{head}date = "2026-02-03"{tail}'


def test_a_row_names_the_source_that_changed_it() -> None:
    rows = tomllib.loads(apply(TABLE, [change(0, "pins", ["b[x]==3", 'c; a == "]"'])], DATE))["rows"]
    assert rows[0]["pins"] == ["b[x]==3", 'c; a == "]"']
    assert rows[0]["sources"] == ["docs", "index"]
    assert rows[1]["sources"] == ["docs", "index"]


def test_a_new_source_is_added_first_where_it_decides_and_a_new_key_is_set() -> None:
    document = tomllib.loads(apply(TABLE, [change(0, "cudnn", "9.1", file="tags.toml")], DATE))
    assert document["rows"][0]["cudnn"] == "9.1"
    assert document["rows"][0]["sources"] == ["registry", "docs"]
    assert document["sources"]["registry"] == {
        "reference": "tag listing and image configs of nvidia/cuda on Docker Hub",
        "date": DATE,
    }


def test_nothing_to_change_changes_no_byte() -> None:
    assert apply(TABLE, [], DATE) == TABLE


def test_a_layout_that_would_be_spoilt_is_refused() -> None:
    spread = TABLE.replace('{ versions = "==2.*",', '{ versions = "==2.*", note = "{ latest = 1 }",').replace(
        'latest = "2.0"', 'latest="2.0"'
    )
    with pytest.raises(FactsError, match="in place"):
        apply(spread, [change(1, "latest", "2.1")], DATE)


def test_every_table_that_is_refreshed_can_be_changed(tmp_path) -> None:
    folder = tmp_path / "facts"
    shutil.copytree(resources.facts(), folder)
    for stem in ("nvidia-wheels", "tags"):
        path = folder / f"{stem}.toml"
        rows = tomllib.loads(path.read_text())["rows"]
        names = ("latest", "python", "cuda", "cudnn", "pins", "versions", "state", "requires")
        every = [
            change(n, key, row[key], file=path.name)
            for n, row in enumerate(rows)
            for key in names
            if key in row
        ]
        path.write_text(apply(path.read_text(), every, DATE))
    assert len(facts.read(folder).tags) == len(facts.load().tags)


def test_a_source_without_a_date_is_refused_and_no_other_source_gets_it() -> None:
    table = TABLE.replace('reference = "wheels"\ndate = "2020-01-01"', 'reference = "wheels"')
    table += '\n[sources.other]\nreference = "elsewhere"\ndate = "2020-01-01"\n'
    with pytest.raises(FactsError, match="index has no date"):
        apply(table, [change(1, "latest", "2.1")], DATE)
