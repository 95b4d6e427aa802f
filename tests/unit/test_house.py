"""The floors of the house: nobody imports upward, and some rooms do not know one another."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

BUILDER = Path(__file__).resolve().parents[2] / "builder"

FLOORS: dict[str, int] = {
    "cli": 4,
    "pipeline": 3,
    "console": 3,
    "publish": 3,
    "catalogue": 3,
    "colab": 3,
    "engine": 2,
    "layers": 2,
    "lock": 2,
    "sdist": 2,
    "verify": 2,
    "evidence": 2,
    "matrix": 1,
    "sandbox": 1,
    "compat": 1,
    "recipe": 1,
    "digests": 0,
    "model": 0,
    "errors": 0,
    "files": 0,
    "resources": 0,
    "__init__": 0,
}
APART = {"probe", "runtime"}
"""What goes into images: data to ``recipe``."""
STRANGERS = {
    ("engine", "lock.registry"),
    ("engine", "lock.index"),
    ("lock.registry", "lock.index"),
    ("lock.index", "lock.registry"),
    ("lock.registry", "engine"),
    ("lock.index", "engine"),
}
ROOMS = sorted(p.stem for p in BUILDER.iterdir() if p.stem not in {"__pycache__", "_templates"})
FILES = sorted(p for p in BUILDER.rglob("*.py") if "__pycache__" not in p.parts)


def imports(path: Path) -> set[str]:
    """Dotted names below ``builder`` that a file imports, wherever in it the import stands."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return {
        name.removeprefix("builder").lstrip(".") or "__init__"
        for name in found
        if name.split(".")[0] == "builder"
    }


def room(path: Path) -> str:
    return path.relative_to(BUILDER).parts[0].removesuffix(".py")


@pytest.mark.parametrize("name", ROOMS)
def test_every_room_has_a_floor(name: str) -> None:
    assert name in FLOORS or name in APART


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(BUILDER)))
def test_nobody_imports_upward(path: Path) -> None:
    mine = room(path)
    for name in imports(path):
        other = name.split(".")[0]
        assert other not in APART, f"{path}: what goes into an image is data, nothing of ours imports it"
        if other not in FLOORS:  # a name out of builder/__init__.py, such as __version__
            continue
        assert mine not in APART, f"{path}: what goes into an image imports nothing of ours"
        assert FLOORS[other] <= FLOORS[mine], f"{path}: {mine} (floor {FLOORS[mine]}) imports {name}"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(BUILDER)))
def test_strangers_stay_strangers(path: Path) -> None:
    dotted = ".".join(path.relative_to(BUILDER).with_suffix("").parts)
    for name in imports(path):
        for mine, other in STRANGERS:
            if (dotted + ".").startswith(mine + "."):
                assert not (name + ".").startswith(other + "."), f"{dotted} imports {name}"
