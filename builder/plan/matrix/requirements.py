"""Requirement strings as Python's packages know them (PEP 508), and pinned ones for frameworks."""

import re
from functools import lru_cache

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from builder.plan.matrix.values import BadValue, Syntax


@lru_cache(maxsize=4096)
def parse(text: str) -> Requirement:
    """A requirement out of a matrix. Raises :class:`BadValue` at the character that stops the parser."""
    try:
        return Requirement(text)
    except (ValueError, RecursionError) as error:
        reason = str(error).partition("\n")[0]
        place = getattr(error.__cause__, "span", None)
        offset, end = place if isinstance(place, tuple) else (0, 0)
        width = max(1, end - offset) if offset else 0
        message = f"'{text}' is no requirement: {reason[:1].lower()}{reason[1:]}"
        raise BadValue(message, _repair(text), offset, width) from error


def _repair(text: str) -> str:
    if text.startswith("-"):
        return "options of pip have no place here; extra package indexes go under 'index'"
    written = re.fullmatch(
        r"([A-Za-z][\w.]*(?:-[A-Za-z][\w.]*)*)(\[[\w,-]*\])?\s*[=:@ -]\s*v?(\d[\w.!+]*)", text
    )
    if written:
        name, extras, version = written.groups(default="")
        return f"did you mean '{name}{extras}=={version}'?"
    return "write it as in requirements.txt: 'numpy==1.23.5', 'setuptools<81'"


def _requirement(text: str) -> str:
    if re.match("[^;@]*===", text):  # releases of packaging differ in whether `numpy===` can be parsed
        raise BadValue(f"'{text}' compares versions as text, by '==='", "write '=='")
    parsed = parse(text)
    if parsed.url is not None and "://" not in parsed.url:
        raise BadValue(f"'{text}' is no requirement", _repair(text))
    if parsed.url is not None:
        hint = f"write '{parsed.name}==X.Y.Z', and the package index that has it under 'index'"
        raise BadValue(f"'{text}' names a file by its URL", hint)
    return str(parsed)


def _framework(text: str) -> str:
    """``Torch == 2.1.0+cu118`` → ``torch==2.1.0+cu118``."""
    _requirement(text)
    parsed = parse(text)
    specifiers = list(parsed.specifier)
    hint = f"a cell holds one version: '{parsed.name}==X.Y.Z'"
    if not specifiers:
        raise BadValue(f"the framework '{text}' has no version", hint)
    if len(specifiers) > 1 or specifiers[0].operator != "==":
        raise BadValue(f"the framework '{text}' is not pinned by '=='", hint)
    if specifiers[0].version.endswith(".*"):
        raise BadValue(f"the framework '{text}' is pinned to a range", hint)
    if parsed.marker is not None:
        hint = "a cell knows its Python and platform; say it with 'exclude' or 'include'"
        raise BadValue(f"the framework '{text}' has a condition", hint)
    extras = f"[{','.join(sorted(map(canonicalize_name, parsed.extras)))}]" if parsed.extras else ""
    return f"{canonicalize_name(parsed.name)}{extras}=={Version(specifiers[0].version)}"


def pin(text: str) -> tuple[str, str] | None:
    """Name and version of a requirement that allows one version only; None for any other."""
    parsed = parse(text)
    specifiers = list(parsed.specifier)
    if len(specifiers) != 1 or specifiers[0].operator != "==" or specifiers[0].version.endswith(".*"):
        return None
    return canonicalize_name(parsed.name), str(Version(specifiers[0].version))


_PROJECT = "[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?"


def _project(text: str) -> str:
    """``Lazr.URI`` → ``lazr-uri``."""
    if not re.fullmatch(_PROJECT, text):
        hint = "the name alone; its version goes under 'pip', as name==1.2"
        raise BadValue(f"'{text}' is no name of a package", hint)
    return canonicalize_name(text)


PROJECT = Syntax(check=_project, pattern=_PROJECT)
REQUIREMENT = Syntax(check=_requirement, pattern="[A-Za-z0-9].*")
FRAMEWORK = Syntax(check=_framework, pattern=r"[A-Za-z0-9][A-Za-z0-9._-]*(\[[^\]]*\])? *== *[^ ,;*]+ *")
