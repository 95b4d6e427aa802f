"""The JSON Schema for editors: it accepts all that ``load`` accepts, and refuses what it can see is wrong."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator
from pages.matrix_schema import json_schema

from builder.plan.matrix import load
from builder.plan.matrix.reader import CELL

ROOT = Path(__file__).parents[4]
GOLDEN = ROOT / "tests" / "golden" / "matrix"
GOOD = [*sorted((GOLDEN / "good").glob("*.yaml")), *sorted((ROOT / "matrices").glob("*.yaml"))]
BAD = sorted(GOLDEN.glob("*.yaml"))

# What is wrong in these is no matter of one value, or no YAML at all.
BEYOND = {
    "axis-value-twice",
    "duplicate-ids-of-include",
    "duplicate-ids-on-an-axis",
    "duplicate-keys",
    "exclude-braces",
    "exclude-matches-nothing",
    "exclude-never-both",
    "hidden-characters",
    "max-size-zero",
    "missing-keys",
    "no-cells-included",
    "too-many-cells",
    "too-many-entries",
    "zip-repeated-axis",
    "zip-unequal",
    "zip-without-axes",
}


class Strings(yaml.SafeLoader):
    """Reads as rtbuild does: scalars are the text that stands there, and ``<<`` merges."""

    yaml_implicit_resolvers = {"<": [("tag:yaml.org,2002:merge", re.compile("<<"))]}  # noqa: RUF012


def documents(path):
    """A file as rtbuild and as an editor read it; nothing for what neither can."""
    text = path.read_bytes()
    for loader in (Strings, yaml.SafeLoader):
        try:
            yield yaml.load(text, Loader=loader)
        except (yaml.YAMLError, UnicodeDecodeError, OverflowError, ValueError, TypeError):
            continue


def test_the_schema_is_committed(generated):
    generated("docs/matrix.schema.json", json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n")


def test_the_schema_is_one():
    Draft202012Validator.check_schema(json_schema())


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_good_files_pass_as_numbers_and_as_strings(path):
    load(path)
    found = list(documents(path))
    assert len(found) == 2
    for document in found:
        Draft202012Validator(json_schema()).validate(document)


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_bad_files_fail_where_a_schema_can_see_it(path):
    found = list(documents(path))
    valid = bool(found) and Draft202012Validator(json_schema()).is_valid(found[0])
    assert valid == (path.stem in BEYOND)


def test_every_key_is_described():
    schema = json_schema()["properties"]
    for section in ("defaults", "axes"):
        assert set(schema[section]["properties"]) == set(CELL)
        assert all(len(value["description"]) > 10 for value in schema[section]["properties"].values())


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_an_editor_finds_the_schema(path):
    """A matrix of the project names its schema for the YAML language server."""
    if path.parent.name == "matrices":
        assert path.read_text().startswith("# yaml-language-server: $schema=../docs/matrix.schema.json\n")
    else:
        assert yaml.load(path.read_text(), Loader=Strings)["version"] == "1"
