"""The page ``docs/architecture.md``: the wings and the walk of one cell, read out of the code itself."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

WALK = (
    ("the YAML file becomes a matrix and its cells", "plan.matrix.expand", "load"),
    ("the selectors leave some of them out", "plan.matrix.selection", "select"),
    ("the lock, else the facts, say whether the cell can work", "plan.facts.rules.checking", "check"),
    ("everything is fixed by content", "plan.lock.pinning", "pin"),
    ("the lock becomes a Dockerfile and all that it needs", "image.recipe.rendering", "render"),
    ("the run decides what is there already", "pipeline.build", "plan_cells"),
    ("wheels, base and Python are fetched", "pipeline.stages", "fetch_wheels"),
    ("each wheel gets its layer", "plan.lock.file", "groups_of"),
    ("a wheel becomes the tar of a layer", "image.layers.convert", "write_layer"),
    ("layers and the recipe's steps become an image", "image.compose.compose", "compose_image"),
    ("it is pushed under a tag that nobody is told of", "sources.oci.staging", "push_image"),
    ("the probe runs in it, on a machine with a card", "verify.runner.probe_run", "verify"),
    ("the report is attached to the image, signed", "verify.evidence.attach", "attach_statements"),
    ("each statement is judged: signer, age, verdict", "verify.evidence.judgement", "judge"),
    ("the gate decides about the digest", "release.publish.gate", "decide"),
    ("the digest gets its tags", "release.publish.run", "publish"),
    ("anybody asks whether the tag is known to work", "release.audit.run", "audit"),
)
"""What happens, and the module and function that do it."""
CHANGES = (
    ("a command or an option", "cli/commands"),
    ("the words and tables that a person reads", "cli/console"),
    ("which image may get a tag", "release/publish"),
    ("what `audit` answers", "release/audit"),
    ("a page of the catalogue", "release/catalogue"),
    ("a scheduler, a cluster", "release/dispatch"),
    ("Colab's runtimes", "release/colab"),
    ("which cell is built, in which order, and what is reused", "pipeline"),
    ("a check, a cause, a remedy, an error message that is recognized", "verify/cudnn_verify"),
    ("what a statement beside an image has to prove", "verify/evidence"),
    ("a line of the Dockerfile", "image/recipe"),
    ("how a wheel is laid out, and how layers are kept", "image/layers"),
    ("which layer comes where", "image/compose"),
    ("a combination that is judged wrongly", "plan/facts/rules"),
    ("a key of the matrix", "plan/matrix"),
    ("what `resolve` proposes", "plan/resolve"),
    ("what is written into the lock", "plan/lock"),
    ("a registry, an index or an archive that answers otherwise", "sources"),
    ("an exit code, an error's class", "core"),
)
"""What somebody wants to change, and the folder below ``builder/`` to begin in."""
_FROM_CORE = re.compile(r"(?m)^from \.{4}core\.(\w+) import")
_PAGE = """\
# Architecture

Generated from the code, and a test compares. [Words and principles](how-it-works.md) come first; this page
says where they are.

![Values from a matrix to a publication, and the wings of the code](house.svg)

## Eight wings

`builder/` has eight folders, in the order in which commands ask them. A wing imports only from itself and
from those below it, the rooms of a wing have one order, too, and a room is entered by the names of its
`__init__` alone: contracts of [import-linter](https://import-linter.readthedocs.io) in `pyproject.toml` and
`tests/unit/test_house.py` hold all three.

| wing | | rooms |
|---|---|---|
{wings}

`verify/cudnn_verify` (the probe) and `release/colab/runtime` go into images. They import nothing of ours
but {shared} of `core`, which the probe takes in, and nothing of ours imports them.

## One cell, from YAML to a published tag

Values flow one way: `Matrix → Cell → Pinned → Recipe → Image → Report → publication`, each made by one
function and immutable.

| | | function | file |
|---|---|---|---|
{walk}

## Where to begin

| to change | begin in |
|---|---|
{changes}
"""


def page(package: Path, wings: Sequence[str]) -> str:
    """The page. Raises if a function or a folder that it names is not there, or a room has no docstring."""
    return _PAGE.format(
        wings="\n".join(_wing(package, name) for name in wings),
        walk="\n".join(_stop(package, number, *stop) for number, stop in enumerate(WALK, 1)),
        shared=_shared(package / "verify" / "cudnn_verify"),
        changes="\n".join(f"| {wish} | {_folder(package, folder)} |" for wish, folder in CHANGES),
    )


def said(folder: Path) -> str:
    """The first sentence of a package's docstring."""
    text = ast.get_docstring(ast.parse((folder / "__init__.py").read_text("utf-8"))) or ""
    assert text, f"{folder.name} has no docstring"
    return text.split("\n\n")[0].replace("\n", " ").removesuffix(".")


def rooms(folder: Path) -> list[str]:
    """The rooms of a wing, folders or single modules; none for one that is a room itself."""
    found = {path.parent.name for path in folder.glob("*/__init__.py")}
    if folder.name not in {"cli", "pipeline", "core"}:
        found |= {path.stem for path in folder.glob("[!_]*.py")}
    return sorted(found)


def _wing(package: Path, name: str) -> str:
    inside = ", ".join(f"`{room}`" for room in rooms(package / name))
    return f"| [`{name}`](../builder/{name}) | {said(package / name)} | {inside} |"


def _shared(probe: Path) -> str:
    """The modules of ``core`` that the probe's files import."""
    found = {name for file in probe.rglob("*.py") for name in _FROM_CORE.findall(file.read_text("utf-8"))}
    assert found
    *names, last = [f"`{name}`" for name in sorted(found)]
    return f"{', '.join(names)} and {last}"


def _stop(package: Path, number: int, what: str, module: str, function: str) -> str:
    found = getattr(importlib.import_module(f"builder.{module}"), function)
    path = inspect.getsourcefile(inspect.unwrap(found))
    assert path is not None
    file = f"builder/{path.partition('/builder/')[2]}"
    assert (package.parent / file).is_file()
    return f"| {number} | {what} | `{function}` | [`{file.removeprefix('builder/')}`](../{file}) |"


def _folder(package: Path, folder: str) -> str:
    assert (package / folder).is_dir(), f"builder/{folder} is not there"
    return f"[`{folder}`](../builder/{folder})"
