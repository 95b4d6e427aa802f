"""Options as types: none is a bag. Found in the program, and not listed here."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import pkgutil
import typing
from pathlib import Path
from typing import Any

import pytest

import builder.cli

MOST = 12
"""Fields of one type of options: more are several things, and each has a name."""
_NAMES = ("Options", "Settings", "Wish", "Policy")


def _fields(found: type) -> dict[str, Any]:
    """Types by field name, of a dataclass or a named tuple."""
    return typing.get_type_hints(found)


def _is_record(found: object) -> bool:
    return isinstance(found, type) and (dataclasses.is_dataclass(found) or hasattr(found, "_fields"))


def _inner(hint: Any) -> set[type]:
    """The records that stand in a field's type: ``EngineOptions | None``."""
    found = {hint} if _is_record(hint) else set()
    return found.union(*map(_inner, typing.get_args(hint)))


def _built(name: str) -> set[type]:
    """Records that a module of the command line makes with named values, to hand them to what it calls."""
    module = importlib.import_module(name)
    assert module.__file__ is not None
    calls = {
        node.func.id
        for node in ast.walk(ast.parse(Path(module.__file__).read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.keywords
    }
    return {found for found in (getattr(module, one, None) for one in calls) if _is_record(found)}  # type: ignore[misc]


def _types() -> dict[str, type]:
    """Every type of options: what commands make, what stands in those, and what is called so anywhere."""
    modules = [one.name for one in pkgutil.walk_packages(builder.cli.__path__, "builder.cli.")]
    left = {found for name in modules for found in _built(name)}
    for one in pkgutil.walk_packages(builder.__path__, "builder."):
        if one.name.startswith(("builder.verify.cudnn_verify", "builder.release.colab.runtime")):
            continue
        module = importlib.import_module(one.name)
        left |= {
            found
            for name, found in vars(module).items()
            if name.endswith(_NAMES) and _is_record(found) and found.__module__ == one.name
        }
    found: dict[str, type] = {}
    while left:
        one_type = left.pop()
        data = one_type.__module__.startswith(("builder.core.model", "builder.plan.facts.tables"))
        if data and not one_type.__name__.endswith(_NAMES):
            continue  # what the work is about: a cell, a base, a row of a table
        if one_type.__module__.startswith("builder.") and one_type.__qualname__ not in found:
            found[one_type.__qualname__] = one_type
            for hint in _fields(one_type).values():
                left |= _inner(hint)
    return found


TYPES = _types()


def test_the_known_ones_are_found() -> None:
    found = {"BuildOptions", "VerifyOptions", "EngineOptions", "LayerSource", "PublishOptions", "Policy"}
    assert found <= TYPES.keys()


@pytest.mark.parametrize("name", sorted(TYPES))
def test_no_type_of_options_is_a_bag(name: str) -> None:
    assert len(_fields(TYPES[name])) <= MOST
