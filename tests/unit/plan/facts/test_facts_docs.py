"""The pages that people read as truth say what the data and the rules say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pages import last_releases, packages
from pages.facts import markdown

from builder.plan.facts.rules.checking import RULES
from builder.plan.facts.tables import loader as facts

ROOT = Path(__file__).resolve().parents[4]


def test_the_page_of_facts(generated) -> None:
    generated("docs/facts.md", markdown(facts.load()))


def test_the_page_of_packages(generated) -> None:
    generated("docs/packages.md", packages.markdown(facts.load()))


@pytest.mark.slow
def test_the_page_of_last_releases(generated) -> None:
    generated("docs/last-releases.md", last_releases.markdown(facts.load()))


def test_every_rule_is_explained_and_no_other() -> None:
    page = (ROOT / "docs" / "compatibility.md").read_text()
    explained = set(re.findall(r"^\| `([a-z][a-z-]+)` \|", page.split("## Rules")[1], re.MULTILINE))
    assert explained == {*RULES, "disagreement"}
