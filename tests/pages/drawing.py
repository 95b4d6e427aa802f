"""The drawing in ``docs/how-it-works.md``: the values and the floors, read out of the code itself."""

from __future__ import annotations

import ast
import importlib
import inspect
import textwrap
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

STEPS = (
    ("Matrix", "matrix.expand", "load", "list"),
    ("Cell", "matrix.expand", "expand", "check"),
    ("Pinned", "lock.resolve", "pin", "lock"),
    ("Recipe", "recipe.render", "render", "render"),
    ("ComposedImage", "image.compose", "compose_image", "build"),
    ("Report", "verify.verify", "verify", "verify"),
    ("Decision", "publish.gate", "decide", "publish"),
)
"""Value, the module and function that return it, and the command that ends there."""
WIDTH, BOX, FLOOR, LEFT = 960, 80, 72, 20
_STYLE = """
text { font: 12.5px system-ui, sans-serif; fill: #1b1f24; }
.small { font-size: 10.5px; fill: #4d5661; }
.name { font-weight: 700; }
.long { font-size: 11px; }
.code { font-family: ui-monospace, monospace; }
rect { fill: #f3f5f8; stroke: #8893a0; }
.value { fill: #e3edf9; stroke: #0b57a4; }
path { stroke: #4d5661; fill: none; }
@media (prefers-color-scheme: dark) {
text { fill: #e8ecf1; }
.small { fill: #b4bfcb; }
rect { fill: #1e242b; }
.value { fill: #17324f; stroke: #7fb8ff; }
path { stroke: #b4bfcb; }
}
"""
_NAMESPACE = "http://www.w3.org/2000/svg"
_ROOT = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-label="{title}">'
)


def drawing(package: Path, floors: Sequence[Sequence[str]]) -> str:
    """An SVG. Raises if a function no longer returns its value, or a room has no docstring."""
    parts = [_text(LEFT, 26, "Values: each is made by one function and never changed", "name")]
    step = (WIDTH - 2 * LEFT) / len(STEPS)
    for number, (value, module, function, command) in enumerate(STEPS):
        _has_to_return(module, function, value)
        x = LEFT + number * step
        parts.append(
            f'<rect class="value" x="{x:.0f}" y="40" width="{step - 14:.0f}" height="{BOX}" rx="6"/>'
        )
        parts.append(_text(x + 8, 60, value, "name long" if len(value) > 11 else "name"))
        parts.append(_text(x + 8, 77, f"{function}()", "small code"))
        parts.append(_text(x + 8, 94, f"in {module.partition('.')[0]}", "small"))
        parts.append(_text(x + 8, 111, f"rtbuild {command}", "small"))
        if number:
            parts.append(f'<path d="M{x - 13:.0f} 80 h11 m-5 -4 l5 4 l-5 4"/>')
    y = 158
    parts.append(_text(LEFT, y, "Floors: a room imports only from lower floors", "name"))
    for height, named in reversed(list(enumerate(floors))):
        y += 10
        rooms = [room for room in named if room != "__init__"]
        width = (WIDTH - 2 * LEFT - 30) / len(rooms)
        parts.append(_text(LEFT, y + 34, str(height), "name"))
        for number, room in enumerate(rooms):
            x = LEFT + 30 + number * width
            parts.append(f'<rect x="{x:.0f}" y="{y}" width="{width - 8:.0f}" height="{FLOOR}" rx="6"/>')
            parts.append(_text(x + 8, y + 18, room, "name code"))
            lines = _fitting(_said(package, room), int((width - 24) / 5.9))
            parts += [_text(x + 8, y + 34 + 14 * row, line, "small") for row, line in enumerate(lines)]
        y += FLOOR
    apart = "builder/probe and builder/runtime stand apart: they go into images, and nothing imports them."
    parts.append(_text(LEFT, y + 24, apart, "small"))
    body = "\n".join(parts)
    title = "The values of rtbuild from a matrix to a publication, and the floors of its code"
    root = _ROOT.format(xmlns=_NAMESPACE, width=WIDTH, height=y + 40, title=title)
    return f"{root}\n<style>{_STYLE}</style>\n{body}\n</svg>\n"


def _fitting(text: str, columns: int) -> list[str]:
    """At most three lines: of the whole text, else of its first clause, else with an ellipsis."""
    for shorter in (text, text.partition(":")[0], text.partition(",")[0]):
        lines = textwrap.wrap(shorter, columns)
        if len(lines) <= 3:
            return lines
    return textwrap.wrap(text, columns, max_lines=3, placeholder=" …")


def _text(x: float, y: float, text: str, kind: str) -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" class="{kind}">{escape(text)}</text>'


def _has_to_return(module: str, function: str, value: str) -> None:
    found = getattr(importlib.import_module(f"builder.{module}"), function)
    annotation = inspect.get_annotations(found)["return"]
    returned = annotation.__name__ if isinstance(annotation, type) else str(annotation)
    assert value in returned, f"builder.{module}.{function} returns {returned}, not a {value}"


def _said(package: Path, room: str) -> str:
    """The first sentence of a room's docstring; empty for one that has none."""
    path = package / room / "__init__.py"
    path = path if path.is_file() else package / f"{room}.py"
    text = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    return " ".join(text.split()).partition(". ")[0].rstrip(".").replace("``", "").partition(": :")[0]
