"""The days of releases and what packages ask for, out of a package index."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import ClassVar

import pytest
from facts_shelf import Shelf

from builder.core.errors import PackageIndexError
from builder.plan.facts.reading import days_table
from builder.sources.index import IndexFile


class _Dated(Shelf):
    """A shelf whose index tells the day of each upload."""

    days: ClassVar[dict[str, str]] = {}

    def offers(self, name: str) -> tuple[IndexFile, ...]:
        return tuple(replace(file, uploaded=self.days.get(file.name)) for file in super().offers(name))


def _shelf() -> _Dated:
    metadata = (
        "Metadata-Version: 2.1\nRequires-Dist: torch>=2\nRequires-Dist: Hugging_Face.Hub\n"
        'Requires-Dist: huggingface_hub<2\nRequires-Dist: peft; extra == "lora"\nRequires-Dist: unheard-of\n'
    )
    shelf = _Dated(
        {
            "diffusers-0.9-py3-none-any.whl": {"diffusers-0.9.dist-info/METADATA": "Metadata-Version: 2.1\n"},
            "diffusers-0.10-py3-none-any.whl": {"diffusers-0.10.dist-info/METADATA": metadata},
            "diffusers-0.11rc1-py3-none-any.whl": {"a": "b"},
            "diffusers-0.10.1-py3-none-any.whl": {"a": "b"},
            "diffusers-0.9.tar.gz": {"a": "b"},
        }
    )
    shelf.days = {  # type: ignore[misc]
        "diffusers-0.9-py3-none-any.whl": "2022-11-25",
        "diffusers-0.9.tar.gz": "2022-11-24",
        "diffusers-0.10-py3-none-any.whl": "2022-12-07",
        "diffusers-0.11rc1-py3-none-any.whl": "2022-12-18",
        "diffusers-0.10.1-py3-none-any.whl": "2022-12-08",
    }
    shelf.yanked = {"diffusers-0.10.1-py3-none-any.whl": "broken"}
    return shelf


def test_a_row_has_the_first_day_of_each_final_release_and_what_the_newest_asks_for() -> None:
    told: list[str] = []
    current = '{"peft": {"asks": "torch", "extras": "", "releases": "0.0.1", "days": "8419"}}'
    text = days_table(_shelf(), told.append, ("diffusers",), current=current)  # type: ignore[arg-type]
    assert json.loads(text) == {
        "diffusers": {
            "asks": "huggingface-hub torch",
            "extras": "peft",
            "releases": "0.9 .10",
            "days": "8363 13",
        },
        "peft": {"asks": "torch", "extras": "", "releases": "0.0.1", "days": "8419"},
    }
    assert told == ["diffusers: 2 releases"]
    assert text.count("\n") == 4  # a change of one package is a change of one line


def test_what_the_index_does_not_tell_stays() -> None:
    shelf = _shelf()
    shelf.days = {}  # type: ignore[misc]
    current = '{"diffusers": {"asks": "torch", "extras": "", "releases": "0.9", "days": "8363"}}'
    assert json.loads(days_table(shelf, print, ("diffusers",), current=current)) == json.loads(current)  # type: ignore[arg-type]
    shelf.down = True
    with pytest.raises(PackageIndexError):
        days_table(shelf, print, ("diffusers",), current=current)  # type: ignore[arg-type]


def test_a_row_has_the_last_release_of_each_python_that_the_newest_leaves_out() -> None:
    files = {
        "onnx-1.0-cp38-cp38-manylinux2014_x86_64.whl": "2022-01-01",
        "onnx-1.1-cp39-abi3-manylinux2014_x86_64.whl": "2022-02-01",
        "onnx-1.2-cp311-cp311-manylinux2014_x86_64.whl": "2022-03-01",
        "onnx-1.2-cp312-abi3-manylinux2014_x86_64.whl": "2022-03-01",
        "onnx-1.3rc1-cp39-cp39-manylinux2014_x86_64.whl": "2022-04-01",
    }
    shelf = _Dated({name: {"a": "b"} for name in files})
    shelf.days = files  # type: ignore[misc]
    row = json.loads(days_table(shelf, print, ("onnx",)))["onnx"]  # type: ignore[arg-type]
    assert row["pythons"] == "3.8 1.0 3.9 1.1 3.10 1.1"
