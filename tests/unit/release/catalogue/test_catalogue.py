"""The catalogue never says more than its sources, and nothing in them does anything in a page."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from catalogue_scene import gathered, published, releases, reported
from doubles.project import Project

from builder.cli.commands import catalogue as command
from builder.core.errors import UsageError
from builder.plan.facts.rules.checking import check
from builder.plan.facts.rules.finding import summary
from builder.plan.facts.tables.gpus import card_of
from builder.plan.matrix import load
from builder.release.catalogue.collection import causes_of
from builder.release.catalogue.releases import cards_of
from builder.release.catalogue.site import slug, write_site

if TYPE_CHECKING:
    from builder.release.catalogue.values import Catalogue

DIGEST = "sha256:" + "d" * 64
FIRST = ("index.html", "style.css", "picker.js", "data.js")
"""What a browser loads before the first answer, and one of ``data/``."""
EVIL = "<script>alert(1)</script>\"'{{ 7*7 }}</pre><!--"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "project")


def site(catalogue: Catalogue, folder: Path) -> dict[str, str]:
    pages = write_site(catalogue, folder, made="2026-01-02")
    return {str(path.relative_to(folder)): path.read_text() for path in pages}


class Links(HTMLParser):
    """Where a page leads and what it loads."""

    def __init__(self) -> None:
        super().__init__()
        self.leads: list[str] = []
        self.loads: list[str] = []
        self.ids: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        if tag == "a":
            self.leads.append(found["href"])
        elif "src" in found or tag == "link":
            self.loads.append(found.get("src") or found["href"])
        if "id" in found:
            self.ids.add(found["id"])


def test_without_a_report_nothing_ran(project: Project) -> None:
    (image,) = gathered(project).images
    assert (image.works_on, image.runs, image.published) == ((), (), None)


def test_a_report_of_this_digest_says_on_which_card_it_ran(project: Project, tmp_path: Path) -> None:
    reported(project)
    published(project, DIGEST)
    (image,) = gathered(project).images
    assert image.works_on == ("T4",)
    assert image.published == f"registry.example/tf:{project.cell.id}"
    pages = site(gathered(project), tmp_path / "site")
    page = pages[f"images/{project.cell.matrix}--{slug(project.cell.id)}.html"]
    assert "ran on a GPU" in page
    assert f"docker run --rm --gpus all {image.published} cudnn-verify" in page
    assert "Tesla T4" in page


@pytest.mark.parametrize(
    "changes",
    [
        {"digest": "sha256:" + "e" * 64},
        {"test_double": True},
        {"gpus": [], "driver": None, "verdict": "unverified"},
        {"gpu": {"name": "NVIDIA Mystery 1", "compute_capability": "7.5"}},
        {
            "checks": [
                {"id": "C07", "stage": "convolution", "outcome": "failed", "summary": "x", "evidence": {}}
            ]
        },
        {"checks": []},
    ],
    ids=[
        "another digest",
        "a test double",
        "no GPU",
        "a card in no table",
        "a failed check",
        "no convolution",
    ],
)
def test_what_is_no_word_on_this_image_makes_no_yes(project: Project, changes: dict[str, object]) -> None:
    reported(project, **changes)
    published(project, DIGEST)
    (image,) = gathered(project).images
    assert image.works_on == ()


def test_a_newer_report_against_it_takes_the_card_away(project: Project) -> None:
    reported(project, verified=datetime(2026, 1, 1, tzinfo=UTC))
    reported(
        project,
        verdict="broken",
        cause="cudnn-missing",
        verified=datetime(2026, 1, 2, tzinfo=UTC),
        driver={"version": "550.54.14", "api": "12.4"},
    )
    (image,) = gathered(project).images
    assert image.works_on == ()
    assert [(run.verdict, run.cause) for run in image.runs] == [("broken", "cudnn-missing"), ("works", None)]


def test_of_two_publications_of_one_tag_the_later_counts(project: Project) -> None:
    published(project, "sha256:" + "1" * 64, started="2026-03-01T00:00:00+00:00")
    published(project, "sha256:" + "2" * 64, started="2026-02-01T00:00:00+00:00")
    (image,) = gathered(project).images
    assert image.digest == "sha256:" + "1" * 64


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("publication-a.json", '{"schema": 9, "kind": "publication"}'),
        ("publication-b.json", '{"schema": 1, "kind": "publication", "dry_run": false, "cells": [{}]}'),
        ("publication-c.json", '{"half'),
        ("publication-d.json", "[" * 100_000),
        ("publication-e.json", "\ud800".encode("utf-8", "surrogatepass").decode("latin-1")),
        ("reports/x.json", '{"half'),
        ("reports/y.json", '{"schema": 7}'),
    ],
)
def test_what_cannot_be_read_is_named_and_survived(
    project: Project, tmp_path: Path, name: str, text: str
) -> None:
    reported(project)
    (project.results / name).write_text(text, encoding="latin-1")
    catalogue = gathered(project)
    assert any(name in note for note in catalogue.notes)
    assert catalogue.images[0].works_on == ("T4",)
    assert name in site(catalogue, tmp_path / "site")["index.html"]


def test_hostile_text_does_nothing(project: Project, tmp_path: Path) -> None:
    reported(
        project,
        gpu={"name": f"Tesla T4 {EVIL}", "compute_capability": "7.5"},
        driver={"version": EVIL, "api": EVIL},
    )
    published(project, EVIL, target=EVIL)
    catalogue = gathered(project)
    evil = replace(catalogue.images[0], cell=replace(project.cell, id=f"../../x{EVIL}", matrix="../m"))
    cause = replace(catalogue.causes[0], texts=(EVIL,), title=EVIL, source=f"javascript:{EVIL}")
    release = replace(catalogue.releases[0], version=EVIL, matrix=EVIL, requirement=EVIL)
    found = replace(
        catalogue,
        images=(*catalogue.images, evil),
        causes=(cause, *catalogue.causes[1:]),
        releases=(release, *catalogue.releases[1:]),
        notes=(EVIL,),
    )
    pages = site(found, tmp_path / "site")
    for name, text in pages.items():
        assert "<script>alert" not in text, name
        assert "49" not in re.findall(r"\"'(\d+)", text), name
        assert (tmp_path / "site" / name).resolve().is_relative_to(tmp_path / "site"), name
        links = Links()
        links.feed(text)
        assert not any(lead.startswith("javascript:") for lead in links.leads), name
    for name, text in pages.items():
        if name.startswith("data"):
            assert "<" not in text
            json.loads(text.partition(" = ")[2].removesuffix(";\n"))


@pytest.mark.slow
@pytest.mark.usefixtures("all_releases")
def test_links_lead_to_pages_and_nothing_is_loaded_from_elsewhere(project: Project, tmp_path: Path) -> None:
    reported(project)
    folder = tmp_path / "site"
    parsed: dict[Path, Links] = {}
    for name, text in site(gathered(project), folder).items():
        if name.endswith(".html"):
            links = parsed[folder / name] = Links()
            links.feed(text)
            assert all(re.fullmatch(r"(\.\./)*[a-z]+\.(css|js)", load) for load in links.loads), name
    for path, links in parsed.items():
        for lead in set(links.leads):
            if lead.startswith("https://"):
                continue
            target, _, anchor = lead.partition("#")
            there = parsed.get(Path(os.path.normpath(path.parent / target)) if target else path)
            assert there is not None, f"{path} leads to {lead}"
            choice = re.fullmatch(r"card=.+", anchor) and target.endswith("../index.html")
            assert not anchor or choice or anchor in there.ids, f"{path} leads to {lead}"


@pytest.mark.slow
def test_a_release_stands_once_and_is_judged() -> None:
    rows = list(releases())
    found = {(one.framework, one.version, one.variant): one for one in rows}
    assert len(found) == len(rows), "tensorflow and tensorflow-gpu of one version"
    assert found["tensorflow", "2.8.4", ""].requirement == "tensorflow==2.8.4"
    assert found["tensorflow", "1.15.5", ""].requirement == "tensorflow-gpu==1.15.5"
    assert found["onnxruntime-gpu", "1.31.1", ""].cards["7.5"].answer == "possible", (
        "its extra is no hindrance"
    )
    of_no_index = found["jax", "0.4.25", "cuda11"].cards["8.0"]
    assert of_no_index.answer == "unknown"
    assert "no package index" in of_no_index.reason


def test_the_same_catalogue_gives_the_same_bytes(project: Project, tmp_path: Path) -> None:
    assert site(gathered(project), tmp_path / "one") == site(gathered(project), tmp_path / "two")


def test_an_empty_catalogue_is_a_site(tmp_path: Path, project: Project) -> None:
    empty = replace(gathered(project), images=(), releases=(), notes=())
    assert "no image here" in site(empty, tmp_path / "site")["images/index.html"]


@pytest.mark.slow
@pytest.mark.usefixtures("all_releases")
def test_the_first_page_is_light(project: Project, tmp_path: Path) -> None:
    pages = site(gathered(project), tmp_path / "site")
    largest = max(len(text) for name, text in pages.items() if name.startswith("data/"))
    assert "data/torch.js" in pages
    assert sum(len(pages[name]) for name in FIRST) + largest < 300_000


@pytest.mark.slow
def test_answers_are_those_of_check(tmp_path: Path) -> None:
    """A matrix of the page goes through ``check`` as it stands, for a card of each answer."""
    cards = {card.capability: card.name for card in cards_of()}
    seen = set()
    for number, release in enumerate(releases()):
        if not release.matrix or number % 7:
            continue
        path = tmp_path / f"m{number}.yaml"
        path.write_text(release.matrix)
        (cell,) = load(path).cells
        assert summary(check(cell, suggest=False)).answer == "possible"
        for capability, found in release.cards.items():
            on_card = replace(cell, gpus=(cards[capability],))
            expected = summary(check(on_card, suggest=False)).answer
            if expected != found.answer:  # a known-bad row asks for more than the card
                assert expected == "impossible"
                assert found.answer == "possible"
            seen.add(found.answer)
    assert seen >= {"possible", "impossible"}
    assert card_of("T4") is not None


def test_the_causes_are_the_probes() -> None:
    causes = causes_of()
    assert {"cudnn-shadowed", "driver-too-old"} <= {cause.id for cause in causes}
    assert all(cause.remedy and cause.source.startswith("https://") for cause in causes)
    texts = {cause.id: cause.texts for cause in causes}
    assert any("driver version is insufficient" in text for text in texts["driver-too-old"])
    assert sum(map(bool, texts.values())) > 30


@pytest.mark.parametrize("epoch", ["9" * 30, "9" * 5000])
def test_a_date_that_is_none_is_refused_before_the_work(epoch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", epoch)
    with pytest.raises(UsageError, match=r"SOURCE_DATE_EPOCH is no date: 9{30}") as refused:
        command.catalogue(None, Path("site"), Path("results"), None, None, None, False)
    assert len(refused.value.message) < 100
