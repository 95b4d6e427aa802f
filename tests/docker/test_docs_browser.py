"""The documentation in a real browser: axe in light and dark, a phone, the keyboard."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from chromium import opened

pytestmark = [pytest.mark.docker, pytest.mark.browser, pytest.mark.long, pytest.mark.nightly]

DOCS = Path(__file__).resolve().parents[2] / "docs"
STRUCTURE = (
    "aria-required-attr",
    "button-name",
    "empty-table-header",
    "heading-order",
    "image-alt",
    "label",
    "landmark-unique",
    "link-name",
    "page-has-heading-one",
    "scrollable-region-focusable",
)
"""What a page of many tables is asked: colours are the same on all pages, and cost axe a minute there."""
_LARGE = 90_000
"""Bytes of such a page."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("docs")
    subprocess.run([sys.executable, "-m", "sphinx", "-q", "-b", "html", str(DOCS), str(folder)], check=True)
    return folder


def sized(tab: Any, width: int) -> None:
    size = {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": width < 500}
    tab.call("Emulation.setDeviceMetricsOverride", **size)


def looked_at(tab: Any, page: Path) -> None:
    tab.call("Page.navigate", url=f"file://{page}")
    tab.wait_for(f"location.href.includes({page.name!r}) && document.readyState === 'complete'")


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390)])
def test_axe_finds_nothing_and_no_page_is_too_wide(site: Path, axe: str, scheme: str, width: int) -> None:
    with opened("about:blank") as tab:
        tab.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        tab.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=844,
            deviceScaleFactor=1,
            mobile=width < 500,
        )
        for page in sorted(site.glob("*.html")):
            looked_at(tab, page)
            assert tab.value("document.documentElement.scrollWidth") <= width, page.name
            asked = {"runOnly": list(STRUCTURE)} if page.stat().st_size > _LARGE else {}
            tab.call("Runtime.evaluate", expression=axe)
            found = tab.call(
                "Runtime.evaluate",
                expression=f"axe.run({json.dumps(asked)}).then(found => JSON.stringify("
                "found.violations.map(one => [one.id, one.nodes[0].html])))",
                awaitPromise=True,
                returnByValue=True,
            )["result"]["value"]
            assert json.loads(found) == [], page.name


def test_code_is_reached_by_the_keyboard_and_wraps(site: Path) -> None:
    with opened("about:blank") as tab:
        tab.call(
            "Emulation.setDeviceMetricsOverride", width=390, height=844, deviceScaleFactor=1, mobile=True
        )
        looked_at(tab, site / "tutorial.html")
        blocks = "[...document.querySelectorAll('pre')]"
        assert tab.value(f"{blocks}.length") > 3
        assert tab.value(
            f"{blocks}.every(one => one.tabIndex === 0 && one.scrollWidth <= one.clientWidth + 1)"
        )
