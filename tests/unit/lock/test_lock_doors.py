"""The three modules that talk to the outside stay strangers to one another."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from builder import lock

ROOM = Path(lock.__file__).parent
SIDES = {
    "index": {"index", "index_settings", "simple_api", "target", "uv"},
    "registry": {"registry", "registry_answers", "registry_auth", "oci", "upload", "wire"},
    "debian": {"debian", "apt"},
}


def imports(module: str) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse((ROOM / f"{module}.py").read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "builder.lock":
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("builder.lock."):
            found.add((node.module or "").removeprefix("builder.lock."))
    return found


@pytest.mark.parametrize("side", SIDES)
def test_no_side_knows_another(side: str) -> None:
    others = set().union(*(names for name, names in SIDES.items() if name != side), {"file", "resolve"})
    for module in SIDES[side]:
        assert not imports(module) & others, module
