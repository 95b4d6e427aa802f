"""Requirements out of a README: what the lines install that it has for the shell."""

import contextlib
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from builder.core.errors import CellError, UsageError
from builder.plan.resolve.environments import CondaPackage, add_conda_line, add_conda_packages
from builder.plan.resolve.project_texts import read_text
from builder.plan.resolve.requirements import files_beside, install_line, nothing
from builder.plan.resolve.wishes import Wishes


def from_readme(path: Path) -> Wishes:
    """The packages that the shell's lines of a README install by pip or conda: those in its blocks of code,
    and those after a prompt. Raises UsageError without any.
    """
    found, take_file, fenced = Wishes(), files_beside(path), False
    packages, at = dict[str, CondaPackage](), dict[str, str]()
    lead, listed = "", list[tuple[str, str]]()
    for number, line in enumerate(re.sub(r"\\\r?\n", " ", read_text(path)).splitlines(), 1):
        command, place = line.strip(), f"{path}:{number}"
        code = fenced or line.startswith(("    ", "\t")) or command.startswith("$ ")
        if command.startswith(("```", "~~~")):
            fenced = not fenced
        elif code or (spans := _INLINE.findall(line)):
            for text in [command.removeprefix("$ ")] if code else spans:
                try:
                    install_line(text, place, found, take_file)
                except UsageError as problem:  # a placeholder, a folder of the reader's
                    found.notes.append(problem.message)
                mine = dict[str, CondaPackage]()
                add_conda_line(text, place, mine, found)
                packages = {**mine, **packages}
                for name in mine:
                    at.setdefault("torch" if name in {"pytorch", "pytorch-gpu"} else name, place)
        if code and command and _LISTED.search(lead):
            listed.append((command.strip("'\""), place))
        elif command and not code and not command.startswith(("```", "~~~")):
            _take_listed(listed, found)
            lead, listed = command, []
    _take_listed(listed, found)
    try:
        add_conda_packages(packages, path, found)
    except CellError as problem:  # alternatives for several machines, that of the CPU last
        found.notes.append(f"{path}: {problem.message}")
    found.wishes = [
        replace(one, place=at.get(one.name, one.place)) if one.place == str(path) else one
        for one in found.wishes
    ]
    found = found.once(first=True)
    if not found.wishes:
        raise nothing(
            f"{path} installs nothing by pip", found, "blocks with lines `pip install torch` are read"
        )
    return found


_INLINE = re.compile(r"`((?:python\d? -m )?(?:pip\d?|conda) install [^`]+)`")
"""A command in a sentence."""
_LISTED = re.compile(r"(?i)\b(?:pip\d? install|dependenc\w*|requirements?|packages)\b[^:]*:\W*$")
"""The line above a list of packages, one a line."""


def _take_listed(listed: Sequence[tuple[str, str]], found: Wishes) -> None:
    """Take over a block of code that has nothing but requirements, one a line."""
    texts = [text for text, _ in listed]
    if len(texts) > 1 and all(
        re.fullmatch(r"[A-Za-z][\w.-]*(?:\[[\w,-]*\])?[\d.*<>=!~, ]*", one) for one in texts
    ):
        for text, place in listed:
            with contextlib.suppress(UsageError):  # a word and a number: no requirement
                found.add(text, place)
