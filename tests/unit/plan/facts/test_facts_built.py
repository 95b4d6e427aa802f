"""The page of what was built and probed, and that its rows are cells of the matrices."""

from __future__ import annotations

from pathlib import Path

from pages.built import Built, markdown, of_run, read, write

from builder.plan.matrix import load

ROOT = Path(__file__).resolve().parents[4]
PATH = ROOT / "matrices" / "built.json"


def record(**image: object) -> dict[str, object]:
    framework = {
        "name": "torch",
        "version": "2.9.1+cu128",
        "compiled": {"cuda": "12.8", "cudnn": "9.10.2"},
        "loaded": {"cudnn": "9.10.2"},
    }
    cell = {
        "id": "torch2.9.1",
        "matrix": "torch",
        "seconds": {"build": 60.04, "verify": 5.0},
        "image": {"reused": False, "size": 5_000_000_000, "content": "sha256:" + "a" * 64} | image,
        "verification": {
            "verdict": "unverified",
            "test_double": False,
            "report": {"frameworks": [framework]},
        },
    }
    unbuilt = {"id": "other", "matrix": "torch", "seconds": {}, "image": None, "verification": None}
    return {"started": "2026-11-21T06:00:00+00:00", "cells": [cell, unbuilt]}


def test_rows_come_out_of_a_run_record() -> None:
    (row,) = of_run(record())
    assert row == Built(
        matrix="torch",
        cell="torch2.9.1",
        date="2026-11-21",
        verdict="unverified",
        frameworks=("torch 2.9.1+cu128",),
        cudnn=("9.10.2, loaded 9.10.2",),
        size=5_000_000_000,
        seconds=65.0,
        content="sha256:" + "a" * 64,
    )
    assert of_run(record(reused=True)) == []
    assert read(write([row, row])) == [row]


def test_the_page_of_what_was_built(generated) -> None:
    generated("docs/built.md", markdown(read(PATH.read_text("utf-8"))))


def test_every_row_is_a_cell_of_a_matrix_and_lies_in_order() -> None:
    text = PATH.read_text("utf-8")
    assert write(read(text)) == text
    cells = {(m.name, c.id) for m in map(load, (ROOT / "matrices").glob("*.yaml")) for c in m.cells}
    assert {(row.matrix, row.cell) for row in read(text)} <= cells
