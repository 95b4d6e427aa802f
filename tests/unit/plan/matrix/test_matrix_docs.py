"""What ``docs/matrix.md`` says is what the code does."""

from __future__ import annotations

import re
from pathlib import Path

from builder.plan.matrix import nodes, reader
from builder.plan.matrix.expand import MOST_CELLS
from builder.plan.matrix.values import DEBIAN_SUITES, PLATFORM, PROVIDER

TEXT = (Path(__file__).parents[4] / "docs" / "matrix.md").read_text()
EXAMPLES = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)


def section(title):
    return TEXT.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def table(title):
    return re.findall(r"^\| `([^`]+)` \| (.*?) \|", section(title), re.MULTILINE)


def test_the_worked_example_gives_the_cells_shown(load_text):
    (example,) = (text for text in EXAMPLES if "version: 1" in text)
    cells = load_text(example, "tf28.yaml").cells
    shown = [(cell.id, f"excluded: {cell.excluded}" if cell.excluded else "") for cell in cells]
    rows = re.findall(r"^\| `([^`]+)` \|(.*)\|$", section("A worked example"), re.MULTILINE)
    assert [(name, why.strip()) for name, why in rows] == shown


def test_the_example_of_named_lists_works(load_text):
    (example,) = (text for text in EXAMPLES if "scikit-learn" in text)
    head = "version: 1\ndefaults: {framework: torch==2.1.0, base: 'a:1', cuda: base, python: 3.9}\n"
    assert [(cell.variant, len(cell.pip)) for cell in load_text(head + example).cells] == [
        ("plain", 0),
        ("sci", 1),
        ("learn", 2),
    ]


def test_every_key_is_in_its_table():
    assert [name for name, _ in table("Sections")] == [*reader.HEAD, *reader.SECTIONS]
    assert [name for name, _ in table("Keys of a cell")] == list(reader.CELL)
    assert [name for name, _ in table("Options")] == list(reader.OPTIONS)
    assert [name for name, _ in table("Publishing")] == list(reader.PUBLISH)


def test_what_is_required_and_what_adds_is_said():
    rows = re.findall(r"^\| `([\w-]+)` \| (.*) \| (\w+)[^|]*\|$", section("Keys of a cell"), re.MULTILINE)
    said = {name: ("Required." in text, verb == "adds") for name, text, verb in rows}
    assert said == {key.name: (key.required, key.adds) for key in reader.CELL.values()}


def test_names_and_limits_are_those_of_the_code():
    assert f"({', '.join(DEBIAN_SUITES)})" in TEXT
    assert all(f"`{name}" in TEXT for name in (*PROVIDER.choices, *PLATFORM.choices))
    limits = re.search(r"- Limits: (.*)", TEXT)[1]
    numbers = [int(number.replace(",", "")) for number in re.findall(r"[\d,]*\d", limits)]
    assert numbers == [nodes.MAX_BYTES >> 20, nodes.MAX_LINE, MOST_CELLS, reader.MOST_ITEMS]
    assert nodes.MAX_NODES > MOST_CELLS
