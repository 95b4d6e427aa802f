"""The drawing in ``docs/how-it-works.md``: the values and the wings, read out of the code itself."""

from __future__ import annotations

import ast
import importlib
import inspect
import textwrap
from html import escape
from typing import TYPE_CHECKING

from pages.architecture import rooms as rooms_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

STEPS = (
    ("Matrix", "plan.matrix.expand", "load", "list"),
    ("Cell", "plan.matrix.expand", "expand", "check"),
    ("Pinned", "plan.lock.pinning", "pin", "lock"),
    ("Recipe", "image.recipe.rendering", "render", "render"),
    ("ComposedImage", "image.compose.compose", "compose_image", "build"),
    ("Report", "verify.runner.probe_run", "verify", "verify"),
    ("Decision", "release.publish.gate", "decide", "publish"),
)
"""Value, the module and function that return it, and the command that ends there."""
WIDTH, BOX, FLOOR, LEFT = 960, 80, 84, 20
APART = ("verify", "cudnn_verify")
"""A folder that is no room: it goes into images."""
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


def drawing(package: Path, wings: Sequence[str]) -> str:
    """An SVG. Raises if a function no longer returns its value, or a wing or room has no docstring."""
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
        parts.append(_text(x + 8, 94, f"in {module.rpartition('.')[0]}", "small"))
        parts.append(_text(x + 8, 111, f"rtbuild {command}", "small"))
        if number:
            parts.append(f'<path d="M{x - 13:.0f} 80 h11 m-5 -4 l5 4 l-5 4"/>')
    y = 158
    parts.append(_text(LEFT, y, "Wings: each imports only from itself and from those below it", "name"))
    for wing in wings:
        y += 10
        rooms = [room for room in rooms_of(package / wing) if (wing, room) != APART]
        parts.append(f'<rect x="{LEFT}" y="{y}" width="{WIDTH - 2 * LEFT}" height="{FLOOR}" rx="6"/>')
        parts.append(_text(LEFT + 10, y + 20, wing, "name code"))
        lines = _fitting(_said(package, wing), 25)
        parts += [_text(LEFT + 10, y + 36 + 14 * row, line, "small") for row, line in enumerate(lines)]
        left = LEFT + 170
        width = (WIDTH - LEFT - left) / max(len(rooms), 1)
        for number, room in enumerate(rooms):
            x = left + number * width
            parts.append(_text(x, y + 20, room, "name code"))
            lines = _fitting(_said(package / wing, room), int((width - 10) / 5.6))
            parts += [_text(x, y + 36 + 14 * row, line, "small") for row, line in enumerate(lines)]
        y += FLOOR
    apart = "verify/cudnn_verify and release/colab/runtime go into images, apart from all imports."
    parts.append(_text(LEFT, y + 24, apart, "small"))
    body = "\n".join(parts)
    title = "The values of rtbuild from a matrix to a publication, and the wings of its code"
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
