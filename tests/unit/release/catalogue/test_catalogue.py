"""The catalogue never says more than its sources, and nothing in them does anything in a page."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from catalogue_scene import gathered, one_release, published, releases, reported
from doubles.project import Project
from jsonschema import Draft202012Validator, ValidationError
from rtbuild_command import rtbuild

from builder.cli.commands import catalogue as command
from builder.core import resources
from builder.core.errors import UsageError
from builder.plan.facts.rules.candidates import platform_of
from builder.plan.facts.rules.checking import check
from builder.plan.facts.rules.finding import Outcome
from builder.plan.facts.tables.gpus import card_of
from builder.plan.matrix import load
from builder.release.catalogue.collection import causes_of
from builder.release.catalogue.site import write_site
from builder.release.catalogue.values import branches_of, cards_of, slug

if TYPE_CHECKING:
    from builder.release.catalogue.values import Catalogue

DIGEST = "sha256:" + "d" * 64
FIRST = ("index.html", "style.css", "picker.js", "data.js")
"""What a browser loads before the first answer, and one of ``data/``."""
EVIL = "<script>alert(1)</script>\"'{{ 7*7 }}</pre><!--"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "project")


def site(catalogue: Catalogue, folder: Path, address: str = "") -> dict[str, str]:
    pages = write_site(catalogue, folder, made="2026-01-02", site=address)
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
        elif "src" in found or (tag == "link" and found["rel"] != "canonical"):
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
    bare = replace(catalogue, releases=(), cards=(), branches=(), causes=())
    assert name in site(bare, tmp_path / "site")["index.html"]


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
            if target.endswith(".json"):
                assert (path.parent / target).is_file(), f"{path} leads to {lead}"
                continue
            there = parsed.get(Path(os.path.normpath(path.parent / target)) if target else path)
            assert there is not None, f"{path} leads to {lead}"
            choice = re.fullmatch(r"(card|framework)=.+", anchor) and target.endswith("../index.html")
            assert not anchor or choice or anchor in there.ids, f"{path} leads to {lead}"


@pytest.mark.slow
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


def valid(folder: Path) -> dict[str, dict[str, Any]]:
    """The documents below ``api/v1/``, each by the schema, whose pages and documents are there."""
    schema = Draft202012Validator(json.loads((resources.schemas() / "catalogue.schema.json").read_text()))
    root = folder / "api/v1"
    found = {str(path.relative_to(root)): json.loads(path.read_text()) for path in root.rglob("*.json")}
    for name, document in found.items():
        schema.validate(document)
        assert document["page"] == name.replace(".json", ".html")
        assert (folder / document["page"]).is_file(), name
    for kind in ("releases", "cards", "drivers", "causes"):
        assert {row["path"] for row in found["index.json"][kind]} == {
            name for name in found if name.startswith(f"{kind}/")
        }
    named = [fit for one in found.values() for fit in one.get("newest", ())]
    named += [
        fit
        for one in found.values()
        if one["about"] == "driver"
        for row in one["cards"].values()
        for fit in row
    ]
    assert {fit["path"] for fit in named} - {None} <= found.keys()
    return found


def test_each_document_has_the_form_of_its_schema(project: Project, tmp_path: Path) -> None:
    reported(project)
    catalogue = gathered(project)
    pages = site(catalogue, tmp_path, "https://docs.example/rt")
    found = valid(tmp_path)
    assert found["cards/t4.json"]["ran"][0]["report"].endswith(".json")
    assert found["cards/t4.json"]["address"] == "https://docs.example/rt/cards/t4.html"
    assert '<link rel="canonical" href="https://docs.example/rt/cards/t4.html">' in pages["cards/t4.html"]
    release = catalogue.releases[0]
    document = found[f"releases/{release.framework}/{release.label}.json"]
    assert {name: one["answer"] for name, one in document["cards"].items()} == {
        name: one.answer for name, one in release.cards.items()
    }
    assert document["read"] == max(one["date"] or "" for one in document["sources"])


@pytest.mark.slow
@pytest.mark.usefixtures("all_releases")
def test_the_whole_site_has_a_page_for_each_thing_and_a_size(project: Project, tmp_path: Path) -> None:
    catalogue = gathered(project)
    site(catalogue, tmp_path)
    things = (catalogue.releases, catalogue.cards, catalogue.branches, catalogue.causes)
    assert len(valid(tmp_path)) == sum(map(len, things)) + 1
    assert sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()) < 80_000_000


def test_a_document_of_another_form_is_noticed(project: Project, tmp_path: Path) -> None:
    """The check above can fail."""
    site(gathered(project), tmp_path)
    path = tmp_path / "api/v1/cards/t4.json"
    path.write_text(path.read_text().replace('"about":"card"', '"about":"release"'))
    with pytest.raises(ValidationError):
        valid(tmp_path)


def test_a_reservation_is_a_warning_and_those_of_the_release_are_there() -> None:
    release = one_release("tensorflow", "2.4.1")
    assert release.cards["8.6"].answer == "possible"
    assert release.cards["8.6"].reason == ""
    (of_card,) = release.cards["8.6"].warnings
    assert "8.0.5 serves compute capability 3.0 to 8.0" in of_card.text
    assert [one.rule for one in release.warnings] == ["known-bad"]
    assert release.outside
    assert "protobuf<3.21" in release.pins


def test_what_goes_beside_a_release_is_what_check_accepts() -> None:
    release = one_release("torch", "2.6.0", "cu124")
    found = {one.requirement: one for one in release.extensions}
    assert {"torchvision==0.21.0", "torchaudio==2.6.0"} <= found.keys()
    cell = release.cells[None]
    for text in found:
        beside = replace(cell, pip=(*cell.pip, text))
        assert Outcome.of(check(beside, suggest=False)).answer == "possible", text


def test_what_fits_a_driver_is_what_check_accepts() -> None:
    releases = [
        one_release("torch", version, variant)
        for version, variant in (("2.9.1", "cu128"), ("2.6.0", "cu124"), ("1.13.1", "cu117"))
    ]
    branches = {branch.name: branch for branch in branches_of(releases, cards_of())}
    seen = set()
    for name in ("470", "535", "570", "595"):
        for capability, model in (
            ("3.7", "sm_37"), ("6.1", "sm_61"), ("8.6", "sm_86"), ("12.0", "sm_120"),
            ("9.0, linux/arm64", "GH200"),
        ):  # fmt: skip
            (fit,) = branches[name].fits[capability]
            on_card = [(one, replace(one.cells[platform_of((model,))], gpus=(model,))) for one in releases]
            runs = [
                one
                for one, cell in on_card
                if Outcome.of(check(cell, driver=name, suggest=False)).answer == "possible"
            ]
            assert fit.release == (runs[0] if runs else None), (name, capability)
            assert (fit.why is None) == (fit.release == releases[0])
            assert fit.release is not None or fit.dropped == releases[0].label, (
                "the newest says why none runs"
            )
            seen.add(fit.release.label if fit.release else None)
    assert len(seen) > 2


@pytest.mark.parametrize(
    ("framework", "version", "variant", "answer", "why"),
    [
        ("torch", "2.9.1", "cu130", "possible", ""),
        ("tensorflow", "2.20.0", "", "impossible", "linux/arm64 was built without CUDA"),
        ("onnxruntime-gpu", "1.28.0", "", "impossible", "no wheel for linux/arm64"),
    ],
)
def test_a_card_that_is_bound_to_a_platform_is_judged_there(
    framework: str, version: str, variant: str, answer: str, why: str
) -> None:
    """GH200's processor is ARM; the cells of the pages are for x86."""
    release = one_release(framework, version, variant)
    found = release.cards["9.0, linux/arm64"]
    assert found.answer == answer
    assert why in found.reason
    assert release.cards["9.0"].answer == "possible"
    assert ("linux/arm64" in release.elsewhere) == (answer == "possible")
    for one in release.extensions:
        assert answer == "possible" or one.cards["9.0, linux/arm64"].answer != "possible", one.requirement


def test_each_card_is_found_by_the_name_that_its_page_shows() -> None:
    for card in cards_of():
        found = card_of(card.title)
        assert found is not None, card
        assert found.name == card.name
    assert "NVIDIA GeForce RTX 3090" in {card.title for card in cards_of()}


def test_while_nothing_ran_the_page_says_so_first(project: Project, tmp_path: Path) -> None:
    nothing = site(gathered(project), tmp_path / "nothing")["images/index.html"]
    assert 0 < nothing.index("Nothing here is known to work yet") < nothing.index("Each row is")
    reported(project)
    ran = site(gathered(project), tmp_path / "ran")["images/index.html"]
    assert "Nothing here" not in ran
    assert 0 < ran.index("Tesla T4") < ran.index("Each row is")


def test_the_page_of_an_image_that_is_gone_goes_and_others_stay(project: Project, tmp_path: Path) -> None:
    catalogue = gathered(project)
    site(catalogue, tmp_path)
    (tmp_path / "images" / "gone.html").write_text("works on T4")
    (tmp_path / "own.html").write_text("mine")
    site(catalogue, tmp_path)
    assert not (tmp_path / "images" / "gone.html").exists()
    assert (tmp_path / "images" / "index.html").exists()
    assert (tmp_path / "own.html").exists()


@pytest.mark.parametrize(
    "site", ["docs.example", "https://u:p@docs.example", "https://docs.example/?x", "javascript:1"]
)
def test_an_address_that_is_none_is_refused_before_the_work(
    site: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RTBUILD_SITE", site)
    with pytest.raises(UsageError, match="RTBUILD_SITE is no address of a site"):
        command.catalogue(None, Path("site"), Path("results"), None, None, None, False)


def test_the_site_of_the_project_counts_after_the_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RTBUILD_SITE", raising=False)
    assert resources.site() == ""
    settings = tmp_path / "pyproject.toml"
    settings.write_text('[tool.rtbuild]\nsite = "https://docs.example/rt/"\n')
    assert resources.site() == "https://docs.example/rt"
    said = rtbuild(tmp_path, "diagnose", "--json", "CUDA out of memory").stdout
    assert json.loads(said)["causes"][0]["page"] == "https://docs.example/rt/causes/out-of-memory.html"
    monkeypatch.setenv("RTBUILD_SITE", "https://other.example")
    assert resources.site() == "https://other.example"
    monkeypatch.setenv("RTBUILD_SITE", "")
    for text, said in (
        ("[tool.rtbuild]\nsite = 3\n", "tool.rtbuild.site of pyproject.toml is no address of a site: 3"),
        ("[tool.rtbuild]\nsite = 'javascript:1'\n", "is no address of a site"),
        ("[tool\n", r"pyproject.toml:1:6: it is no TOML"),
    ):
        settings.write_text(text)
        with pytest.raises(UsageError, match=said):
            resources.site()
        done = rtbuild(tmp_path, "diagnose", "--json", "CUDA out of memory")
        assert json.loads(done.stdout)["causes"][0]["page"] is None
        assert "warning: " in done.stderr
    settings.write_text("tool = 1\n")
    assert resources.site() == ""


def test_the_same_catalogue_gives_the_same_bytes(project: Project, tmp_path: Path) -> None:
    assert site(gathered(project), tmp_path / "one") == site(gathered(project), tmp_path / "two")


def test_an_empty_catalogue_is_a_site(tmp_path: Path, project: Project) -> None:
    empty = replace(gathered(project), images=(), releases=(), branches=(), notes=())
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
        assert Outcome.of(check(cell, suggest=False)).answer == "possible"
        for capability, found in release.cards.items():
            model = cards[capability]
            if (platform := platform_of((model,))) and found.answer != "possible":
                continue  # judged on the Python that is possible there, if one is
            on_card = replace(cell, gpus=(model,), platform=platform or cell.platform)
            if platform:
                python = release.elsewhere[platform][0]
                on_card = replace(on_card, python=python, base=release.cells[platform].base)
            expected = Outcome.of(check(on_card, suggest=False)).answer
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
