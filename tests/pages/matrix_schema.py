"""``docs/matrix.schema.json``: the format of a matrix, for editors; ``load`` checks far more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from builder.plan.matrix import reader, values

if TYPE_CHECKING:
    from collections.abc import Mapping

    from builder.plan.matrix.reader import Key
    from builder.plan.matrix.values import Syntax


def json_schema() -> dict[str, Any]:
    """The schema, draft 2020-12. Values count as strings; what YAML reads as numbers is accepted as well."""
    layer = {"type": "object", "properties": _each(reader.CELL), "additionalProperties": False}
    axes = {
        name: {"type": "array", "minItems": 1, "items": _value(key), "description": key.summary}
        for name, key in reader.CELL.items()
    }
    sections: dict[str, dict[str, Any]] = {
        "defaults": layer,
        "axes": {"type": "object", "properties": axes, "additionalProperties": False, "minProperties": 1},
        "zip": {
            "type": "array",
            "items": {
                "type": "array",
                "minItems": 2,
                "uniqueItems": True,
                "items": {"enum": list(reader.CELL)},
            },
        },
        "include": {"type": "array", "items": layer},
        "exclude": {"type": "array", "items": _rule()},
        "options": {"type": "object", "properties": _each(reader.OPTIONS), "additionalProperties": False},
        "publish": _publish(),
    }
    described = {name: {**schema, "description": reader.SECTIONS[name]} for name, schema in sections.items()}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "urn:rtbuild:schema:matrix:1",
        "title": "rtbuild matrix",
        "description": "Every scalar is read as the text that stands there: 3.10 stays '3.10'.",
        "type": "object",
        "properties": {**_each(reader.HEAD), **described},
        "required": ["version"],
        "anyOf": [{"required": ["axes"]}, {"required": ["include"]}],
        "additionalProperties": False,
    }


def _publish() -> dict[str, Any]:
    rule = {
        "type": "object",
        "properties": _each(reader.EXEMPT),
        "required": [key.name for key in reader.EXEMPT.values() if key.required],
        "additionalProperties": False,
    }
    aliases = {
        "type": "object",
        "propertyNames": {"pattern": f"^({values.TAG.pattern})$"},
        "additionalProperties": {"type": "string"},
    }
    properties = _each(reader.PUBLISH)
    properties["aliases"] = {**aliases, "description": reader.PUBLISH["aliases"].summary}
    properties["exempt"] = {"type": "array", "items": rule, "description": reader.PUBLISH["exempt"].summary}
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _each(table: Mapping[str, Key]) -> dict[str, Any]:
    return {name: {**_value(key), "description": key.summary} for name, key in table.items()}


def _rule() -> dict[str, Any]:
    glob = {"type": ["string", "number", "boolean"]}
    globs = {name: {**glob, "description": f"Glob on '{name}'."} for name in (*reader.CELL, "id")}
    reason = {"type": "string", "minLength": 1, "description": "Why these cells are left out."}
    return {
        "type": "object",
        "properties": {**globs, "reason": reason},
        "required": ["reason"],
        "minProperties": 2,
        "additionalProperties": False,
    }


def _value(key: Key) -> dict[str, Any]:
    one = _scalar(key.syntax)
    match key.shape:
        case "text":
            return one
        case "texts":
            least = {} if key.adds else {"minItems": 1}
            return {"anyOf": [one, {"type": "array", "items": one, **least}]}
        case "variables":
            names = {"pattern": f"^({values.ENV_NAME.pattern})$"}
            return {"type": "object", "propertyNames": names, "additionalProperties": one}
        case "provider":
            table = {
                "type": "object",
                "properties": _each(reader.PROVIDER),
                "required": ["from"],
                "additionalProperties": False,
            }
            return {"anyOf": [one, table]}
        case "python":
            table = {
                "type": "object",
                "properties": _each(reader.PYTHON),
                "required": ["version"],
                "additionalProperties": False,
            }
            return {"anyOf": [one, table]}
        case "builds":
            needs = _scalar(values.APT)
            table = {
                "type": "object",
                "propertyNames": {"pattern": one["pattern"]},
                "additionalProperties": {"anyOf": [needs, {"type": "array", "items": needs}]},
                "minProperties": 1,
                "maxProperties": 1,
            }
            entry = {"anyOf": [one, table]}
            return {"anyOf": [one, {"type": "array", "items": entry}]}


def _scalar(syntax: Syntax) -> dict[str, Any]:
    if syntax.choices:
        bare = [{"true": True, "false": False, "1": 1}[choice] for choice in syntax.choices if syntax.bare]
        return {"enum": [*syntax.choices, *bare]}
    schema: dict[str, Any] = {"type": ["string", *syntax.bare] if syntax.bare else "string"}
    if syntax.pattern is not None:
        schema["pattern"] = f"^({syntax.pattern})$"
    if not syntax.prose:
        schema["maxLength"] = syntax.longest
    return schema
