"""Every key of a matrix file, by section: the tables of ``keys.toml``."""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from builder.plan.matrix import values
from builder.plan.matrix.values import Syntax

Shape = Literal["text", "texts", "variables", "provider", "python", "builds"]


@dataclass(frozen=True, kw_only=True)
class Key:
    """One key. ``keys.toml`` says what its fields mean."""

    name: str
    summary: str
    syntax: Syntax
    shape: Shape = "text"
    required: bool = False
    adds: bool = False


_TABLES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))


def _keys(section: str) -> dict[str, Key]:
    table = _TABLES[section]
    return {
        name: Key(**row | {"name": name, "syntax": getattr(values, row["syntax"])})
        for name, row in table.items()
    }


HEAD, CELL, OPTIONS, PUBLISH = _keys("head"), _keys("cell"), _keys("options"), _keys("publish")
PROVIDER, PYTHON = _keys("provider"), _keys("python")
"""Keys of ``cuda`` and of ``python`` that are written as mappings."""
EXEMPT = _keys("exempt")
SECTIONS: dict[str, str] = _TABLES["sections"]
