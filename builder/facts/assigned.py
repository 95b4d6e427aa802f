"""Names that a Python file assigns literals to: parsed, never run."""

from __future__ import annotations

import ast
import re
from typing import Any


def assignments(source: bytes) -> dict[str, Any]:
    """Names that a Python file assigns a literal to at its top level, ``OrderedDict([…])`` as a dict."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return {}
    found: dict[str, Any] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target, value = node.targets[0], node.value
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            target, value = node.target, node.value
        else:
            continue
        if isinstance(target, ast.Name):
            _literal(found, target.id, value)
    return found


def _literal(found: dict[str, Any], name: str, value: ast.expr) -> None:
    wrapped = isinstance(value, ast.Call) and len(value.args) == 1
    try:
        literal = ast.literal_eval(value.args[0] if isinstance(value, ast.Call) and wrapped else value)
        found[name] = dict(literal) if wrapped else literal
    except (ValueError, TypeError):
        return  # not a literal: a function call, a name; nothing that is looked for here


def version_text(value: Any) -> str | None:
    """``64_8`` (TensorFlow on some builds) and ``False`` (Paddle on the CPU) are no versions."""
    return value if isinstance(value, str) and re.fullmatch(r"\d+(\.\d+)*", value) else None
