"""The catalogue in a real browser: the picker, its addresses, a phone, no JavaScript, axe."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from chromium import opened
from doubles.project import Project, entry

from builder.core import resources
from builder.plan.facts.rules import Outcome, check
from builder.plan.facts.tables import card_of
from builder.plan.matrix import load as load_matrix
from builder.release.catalogue.collection import collect
from builder.release.catalogue.site import write_site

if TYPE_CHECKING:
    from pathlib import Path

    from builder.release.catalogue.values import Catalogue

pytestmark = [pytest.mark.docker, pytest.mark.browser, pytest.mark.long]

DIGEST = "sha256:" + "d" * 64


@pytest.fixture(scope="module")
def catalogue(tmp_path_factory: pytest.TempPathFactory) -> Catalogue:
    """The real tables, and one image with a report that no card made: it is of this test alone."""
    project = Project(tmp_path_factory.mktemp("project"))
    found = entry(project.cell)
    reports = project.results / "reports"
    reports.mkdir(parents=True)
    (reports / found.key.file_name()).write_text(found.text)
    return collect([project.matrix], results=project.results, runtimes=resources.matrices())


@pytest.fixture(scope="module")
def site(catalogue: Catalogue, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    write_site(catalogue, folder, made="2026-01-02")
    return folder


def choose(tab: Any, field: str, value: str) -> None:
    kind = "input" if field in {"card", "driver"} else "change"
    tab.value(
        f"(() => {{const f = document.getElementById('{field}'); f.value = {json.dumps(value)};"
        f" f.dispatchEvent(new Event('{kind}'))}})()"
    )
    if field == "framework":  # its releases are a file of their own
        tab.wait_for(f"location.hash.includes({'framework=' + value!r})")


def answer(tab: Any) -> str:
    return str(tab.wait_for("document.getElementById('answer').innerText"))


def state(tab: Any) -> str:
    return str(tab.value("document.getElementById('answer').className"))


def test_the_picker_answers_in_three_states(site: Path, tmp_path: Path) -> None:
    with opened(f"file://{site}/index.html") as tab:
        assert answer(tab)
        choose(tab, "framework", "torch")
        choose(tab, "version", "2.9.1+cu128")
        choose(tab, "card", "P100")
        assert state(tab) == "impossible"
        assert "Source:" in answer(tab)
        choose(tab, "card", "T4")
        assert state(tab) == "possible"
        assert "pip install 'torch==2.9.1'" in answer(tab)
        choose(tab, "driver", "470.82.01")
        assert state(tab) == "impossible"
        assert "driver 470.82.01 is older than 525.60.13" in answer(tab)
        choose(tab, "driver", "13.0")
        assert "no driver version" in answer(tab)
        choose(tab, "driver", "")
        choose(tab, "framework", "tensorflow")
        choose(tab, "version", "2.15.1")
        choose(tab, "python", "3.11")
        assert state(tab) == "ran"
        assert "Tesla T4, driver 535.104.05" in answer(tab)
        choose(tab, "driver", "470.82.01")  # older than the one that it ran with
        assert state(tab) == "impossible"
        tab.screenshot(tmp_path / "picker.png")
        assert (tmp_path / "picker.png").stat().st_size > 10_000


def test_an_answer_takes_less_than_a_tenth_of_a_second(site: Path) -> None:
    with opened(f"file://{site}/index.html") as tab:
        answer(tab)
        taken = tab.value(
            "(() => {const f = document.getElementById('framework'), t = performance.now();"
            " for (let i = 0; i < 20; i++) {"
            " f.selectedIndex = i % f.length; f.dispatchEvent(new Event('change'));}"
            " return (performance.now() - t) / 20})()"
        )
        assert taken < 100


def test_an_address_opens_what_it_was_copied_from(site: Path) -> None:
    with opened(f"file://{site}/index.html") as tab:
        answer(tab)
        choose(tab, "framework", "jax")
        choose(tab, "card", "H100")
        address, said = tab.value("location.href"), answer(tab)
    with opened(address) as tab:
        assert answer(tab) == said
        assert tab.value("document.getElementById('card').value") == "H100"


@pytest.mark.parametrize(
    "typed",
    [
        *("NVIDIA GeForce RTX 3090", "rtx3090", "RTX 3090", "3090", "geforce gtx 3090", "8.6", "sm_86"),
        *("nvidia 3090", "3080ti", "2x RTX 3090", "A6000"),
    ],
)
def test_a_card_is_typed_as_people_write_it(site: Path, typed: str) -> None:
    with opened(f"file://{site}/index.html#framework=tensorflow&version=2.4.1") as tab:
        answer(tab)
        choose(tab, "card", typed)
        assert state(tab) == "possible"
        assert "(8.6) is newer" in answer(tab)
        assert "Warning:" in answer(tab)


def test_cards_and_drivers_are_judged_as_check_does(site: Path, catalogue: Catalogue) -> None:
    """The page's own comparison of drivers, beside that of the rules, over cards of five generations."""
    seen, listed_later = set(), False
    with opened(f"file://{site}/index.html#framework=torch") as tab:
        answer(tab)
        for version, variant in (("2.9.1", "cu128"), ("2.6.0", "cu124"), ("1.13.1", "cu117")):
            label = f"{version}+{variant}"
            release = next(one for one in catalogue.by_framework()["torch"] if one.label == label)
            choose(tab, "version", release.label)
            for card in ("GTX 1080 Ti", "Tesla T4", "NVIDIA L4", "NVIDIA GeForce RTX 5090", "RTX 4070 SUPER"):
                for driver in ("450.80.02", "470", "525", "535.104.05", "570", "580.65.06", "595"):
                    choose(tab, "card", card)
                    choose(tab, "driver", driver)
                    row = card_of(card)
                    assert row is not None
                    expected = release.cards[row.capability].answer
                    told = False
                    if expected == "possible":
                        cell = replace(release.cells[None], gpus=(row.name,))
                        found = check(cell, driver=driver, only=("driver", "gpu"))
                        expected = Outcome.of(found).answer
                        told = any("first driver that lists" in finding.message for finding in found)
                    assert state(tab) == expected, (release.label, card, driver)
                    if expected == "possible":
                        assert ("first driver that lists" in answer(tab)) == told, (
                            release.label,
                            card,
                            driver,
                        )
                        listed_later |= told
                    seen.add(expected)
    assert listed_later
    assert seen == {"possible", "impossible", "unknown"}


def test_a_card_with_an_arm_processor_gets_a_matrix_for_it(site: Path, tmp_path: Path) -> None:
    with opened(f"file://{site}/index.html#framework=torch&version=2.9.1%2Bcu130&card=GH200") as tab:
        answer(tab)
        assert state(tab) == "possible"
        texts = "[...document.querySelectorAll('#answer code')].map((one) => one.textContent)"
        matrix = str(tab.value(f"{texts}.find((text) => text.startsWith('version: 1'))"))
        path = tmp_path / "mine.yaml"
        path.write_text(matrix)
        (cell,) = load_matrix(path).cells
        assert cell.platform == "linux/arm64"
        assert Outcome.of(check(replace(cell, gpus=("GH200",)), suggest=False)).answer == "possible"
        choose(tab, "framework", "tensorflow")
        assert state(tab) == "impossible"


def test_a_package_beside_it_is_in_what_is_typed(site: Path) -> None:
    with opened(f"file://{site}/index.html#framework=torch&version=2.6.0%2Bcu124&card=T4") as tab:
        answer(tab)
        choose(tab, "extension", "torchvision==0.21.0")
        assert "pip install 'torch==2.6.0' 'torchvision==0.21.0'" in answer(tab)
        assert 'pip: ["torchvision==0.21.0"]' in answer(tab)
        choose(tab, "card", "Radeon RX 7900")
        assert "no card of NVIDIA" in answer(tab)


def test_a_line_is_copied(site: Path) -> None:
    with opened(f"file://{site}/index.html#framework=torch&version=2.9.1%2Bcu128&card=T4") as tab:
        answer(tab)
        tab.click("button.copy")
        assert tab.wait_for("document.querySelector('button.copy').textContent === 'Copied'")


@pytest.mark.parametrize(
    ("message", "causes"),
    [
        ("Loaded runtime CuDNN library: 7.6.5 but source was compiled with: 8.1.0.", {"cudnn-too-old"}),
        ("cudnn handle: CUDNN_STATUS_NOT_INITIALIZED", {"cudnn-shadowed", "driver-too-old", "out-of-memory"}),
        ("Could not open the cupboard", set()),
    ],
)
def test_a_pasted_error_leads_to_its_causes(site: Path, message: str, causes: set[str]) -> None:
    with opened(f"file://{site}/causes/index.html") as tab:
        tab.wait_for("!document.getElementById('search').hidden")
        tab.value(
            f"(() => {{const f = document.getElementById('message'); f.value = {json.dumps(message)};"
            " f.dispatchEvent(new Event('input'))})()"
        )
        shown = "[...document.querySelectorAll('#causes li:not([hidden]) a')].map(a => a.textContent)"
        assert set(tab.value(shown)) == causes
        told = tab.value("document.getElementById('found').textContent")
        assert ("No known message" in told) == (not causes)


def test_without_javascript_everything_can_be_read(site: Path) -> None:
    with opened("about:blank") as tab:
        tab.call("Emulation.setScriptExecutionDisabled", value=True)
        tab.call("Page.navigate", url=f"file://{site}/index.html")
        until, text = time.monotonic() + 60, ""
        while not ("The picker needs JavaScript" in text and "frameworks/torch.html" in text):
            assert time.monotonic() < until, text
            time.sleep(0.1)
            root = tab.call("DOM.getDocument")["root"]["nodeId"]
            text = tab.call("DOM.getOuterHTML", nodeId=root)["outerHTML"]


def pages(site: Path) -> list[str]:
    image = next(path.name for path in (site / "images").iterdir() if path.name != "index.html")
    return [
        "index.html",
        "frameworks/torch.html",
        "images/index.html",
        f"images/{image}",
        "causes/index.html",
        "causes/cudnn-shadowed.html",
        "cards/index.html",
        "cards/t4.html",
        "cards/gtx1080-ti.html",
        "drivers/index.html",
        "drivers/535.html",
        "releases/tensorflow/2.4.1.html",
        "releases/torch/2.6.0+cu124.html",
    ]


def test_no_page_is_wider_than_a_phone(site: Path) -> None:
    with opened("about:blank") as tab:
        tab.call(
            "Emulation.setDeviceMetricsOverride", width=360, height=740, deviceScaleFactor=1, mobile=True
        )
        for page in pages(site):
            tab.call("Page.navigate", url=f"file://{site}/{page}")
            tab.wait_for(f"location.href.includes({page!r}) && document.readyState === 'complete'")
            assert tab.value("document.documentElement.scrollWidth") <= 360, page


@pytest.mark.parametrize("scheme", [pytest.param("light", marks=pytest.mark.nightly), "dark"])
def test_axe_finds_nothing(site: Path, axe: str, scheme: str) -> None:
    with opened("about:blank") as tab:
        tab.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        for page in pages(site):
            tab.call("Page.navigate", url=f"file://{site}/{page}")
            tab.wait_for(f"location.href.includes({page!r}) && document.readyState === 'complete'")
            tab.call("Runtime.evaluate", expression=axe)
            found = tab.call(
                "Runtime.evaluate",
                expression="axe.run().then(found => JSON.stringify("
                "found.violations.map(one => [one.id, one.nodes[0].html])))",
                awaitPromise=True,
                returnByValue=True,
            )["result"]["value"]
            assert json.loads(found) == [], page
