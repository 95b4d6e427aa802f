"""Pages of the reference that are made from the code: exit codes, and the fields of the schemas."""

from __future__ import annotations

import inspect
import json
from typing import TYPE_CHECKING, Any

from builder.core import errors
from builder.verify.runner.reports import EXIT_CODES

if TYPE_CHECKING:
    from pathlib import Path


def exit_codes() -> str:
    """``docs/exit-codes.md``"""
    by_code: dict[int, list[str]] = {}
    for name, cls in sorted(inspect.getmembers(errors, inspect.isclass)):
        if (
            issubclass(cls, errors.RtbuildError)
            and "exit_code" in vars(cls)
            and cls is not errors.RtbuildError
        ):
            by_code.setdefault(cls.exit_code, []).append(f"{first_sentence(cls)} (`{name}`)")
    by_code |= {0: ["done as asked"], 70: ["a bug in rtbuild"], 130: ["interrupted"]}
    lines = [
        "# Exit codes",
        "",
        "Made from `builder/core/errors.py` and from the probe's table; a test keeps it true. No code",
        "changes its meaning within a major version.",
        "",
        "## `rtbuild`",
        "",
        "| code | meaning |",
        "|---|---|",
        *(f"| {code} | {'; '.join(texts)} |" for code, texts in sorted(by_code.items())),
        "",
        "A run of several cells ends with 5 if each cell that failed did so by 5, and with 1 if another",
        "one failed.",
        "",
        "The answer to a question, for a script:",
        "",
        "| command | answer | code |",
        "|---|---|---|",
        "| `check` | no cell is impossible; an `unknown` one is told in the text and the JSON document | 0 |",
        "| `check`, `resolve` | a cell, or all that is asked for, is impossible | 1 |",
        "| `resolve` | possible; by the facts alone if the index is silent: `resolved` is false | 0 |",
        "| `resolve` | nothing is known to be possible | 7 |",
        "| `diagnose` | a cause, or none: `cause` of the JSON document is null then | 0 |",
        "| `audit` | yes, no, no answer of the registry, yes by the rules alone | 0, 1, 5, 7 |",
        "",
        "## `cudnn-verify`",
        "",
        "| code | verdict |",
        "|---|---|",
        *(f"| {code} | [`{verdict}`](verdicts.md#verdicts) |" for verdict, code in EXIT_CODES.items()),
        "| 30 | none: it was called wrongly, or failed itself |",
    ]
    return "\n".join(lines) + "\n"


def schemas(folder: Path) -> str:
    """``docs/schemas.md``"""
    lines = [
        "# Schemas",
        "",
        "Made from the schemas; a test keeps it true. `rtbuild schema NAME` prints one, also from a",
        "wheel. A document names its version in `schema` (a matrix in `version`); within a major version of",
        "rtbuild fields are added, and none changes its meaning.",
        "",
    ]
    for path in sorted(folder.glob("*.schema.json")):
        document = json.loads(path.read_text("utf-8"))
        root = _resolved(document, document)
        required = set(root.get("required", ()))
        lines += [
            f"## {path.name.removesuffix('.schema.json')}",
            "",
            _one_line(root.get("description", "")),
            "",
        ]
        lines += [f"`{document['$id']}`, [{path.name}]({path.name})", ""]
        lines += ["| field | type | |", "|---|---|---|"]
        for name, field in root.get("properties", {}).items():
            what = _resolved(field, document)
            meaning = _one_line(field.get("description") or what.get("description") or "")
            must = "" if name in required else "may be absent. "
            lines.append(f"| `{name}` | {_type(what, document)} | {must}{meaning} |".replace("  ", " "))
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def first_sentence(thing: Any) -> str:
    """Of a docstring, without markup and full stop."""
    text = _one_line(inspect.getdoc(thing) or "").replace("``", "`")
    return text.partition(". ")[0].rstrip(".")


def _one_line(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _resolved(field: dict[str, Any], document: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in field:
        found: Any = document
        for part in field["$ref"].removeprefix("#/").split("/"):
            found = found[part]
        field = found
    return field


def _type(field: dict[str, Any], document: dict[str, Any]) -> str:
    if "const" in field:
        return f"`{json.dumps(field['const'])}`"
    if "enum" in field:
        return ", ".join(f"`{json.dumps(value)}`" for value in field["enum"])
    for key in ("anyOf", "oneOf"):
        if key in field:
            kinds = dict.fromkeys(_type(_resolved(one, document), document) for one in field[key])
            return " or ".join(kinds)
    kind = field.get("type", "any")
    if isinstance(kind, list):
        return " or ".join(kind)
    items = field.get("items")
    if kind == "array" and isinstance(items, dict):
        return f"list of {_type(_resolved(items, document), document)}"
    return str(kind)
