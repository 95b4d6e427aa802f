"""A catalogue of one matrix with reports beside it, written by the product's own code; no card took part."""

from __future__ import annotations

import functools
import itertools
import json
from typing import TYPE_CHECKING, Any

from doubles.project import Project, entry

from builder.plan.facts.tables import load
from builder.release.catalogue import values as judging
from builder.release.catalogue.collection import collect
from builder.release.catalogue.values import branches_of, cards_of, releases_of

if TYPE_CHECKING:
    from pathlib import Path

    from builder.release.catalogue.values import Branch, Catalogue, Release


@functools.cache
def releases(number: int | None = None) -> tuple[Release, ...]:
    """The releases of the tables, or the first ``number`` of them, judged once: all take seconds."""
    return tuple(itertools.islice(releases_of(), number))


@functools.cache
def branches(number: int | None = None) -> tuple[Branch, ...]:
    """The driver branches beside the same releases, judged once."""
    return tuple(branches_of(releases(number), cards_of()))


def one_release(framework: str, version: str, variant: str = "") -> Release:
    """One release, judged by the rules."""
    table = load().frameworks[framework]
    row = next(row for row in table.of(version) if row.variant == variant)
    models: dict[str, str] = {}
    for card in cards_of():
        models.setdefault(card.capability, card.name)
    return judging._release(table.name, table.title, row, models)


def reported(project: Project, **changes: Any) -> Path:
    """A report on the project's cell in its results."""
    found = entry(project.cell, **changes)
    path = project.results / "reports" / found.key.file_name()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(found.text)
    return path


def published(
    project: Project, digest: str, *, started: str = "2026-01-01T00:00:00+00:00", **changes: Any
) -> Path:
    """The record of a publication of the project's cell."""
    cell = {
        "id": project.cell.id,
        "matrix": project.cell.matrix,
        "outcome": "published",
        "target": "registry.example/tf",
        "digest": digest,
    }
    record = {
        "schema": 1,
        "kind": "publication",
        "started": started,
        "dry_run": False,
        "cells": [cell | changes],
    }
    path = project.results / f"publication-{started[:10]}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record))
    return path


def gathered(project: Project) -> Catalogue:
    return collect([project.matrix], results=project.results, runtimes=project.folder)
