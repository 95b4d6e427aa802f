"""The wings of the house: what ``pyproject.toml`` says of them is true, and a class name means one thing.

The order of the wings and of the rooms in them stands in the contracts of import-linter.
"""

from __future__ import annotations

import ast
import functools
import importlib
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from importlinter.cli import EXIT_STATUS_SUCCESS, lint_imports

BUILDER = Path(__file__).resolve().parents[2] / "builder"
PROJECT = BUILDER.parent / "pyproject.toml"
CONTRACTS = tomllib.loads(PROJECT.read_text())["tool"]["importlinter"]["contracts"]
WINGS: tuple[str, ...] = tuple(CONTRACTS[0]["layers"])
"""From what a person types down to values, errors and files."""
APART = {"verify.cudnn_verify", "release.colab.runtime"}
"""What goes into images: data to ``image.recipe``."""
ALONE = {"image.sdist.inside"}
"""Runs on the Python of an image, in a file of its own."""


def apart(module: str) -> bool:
    return any(f"{module}.".startswith(f"{room}.") for room in APART)


def dotted(path: Path) -> str:
    """``builder/sources/oci/wire.py`` is ``oci.wire``; a package is its ``__init__``'s folder."""
    parts = path.relative_to(BUILDER).with_suffix("").parts
    return ".".join(parts[:-1] if len(parts) > 1 and parts[-1] == "__init__" else parts)


FILES = sorted(
    path for path in BUILDER.rglob("*.py") if not apart(dotted(path)) and "_templates" not in path.parts
)


MODULES = {dotted(path): path for path in FILES}


@functools.cache
def statements(path: Path) -> tuple[ast.stmt, ...]:
    """All of a file: at its top, in functions and in classes; expressions have none in them."""
    found: list[ast.stmt] = []
    left: list[ast.AST] = [ast.parse(path.read_text())]
    while left:
        node = left.pop()
        if isinstance(node, ast.stmt):
            found.append(node)
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            inner = getattr(node, name, None)
            left += inner if isinstance(inner, list) else ()
    return tuple(found)


@functools.cache
def imports(path: Path) -> set[str]:
    """Modules below ``builder`` that a file imports: at its top, in a function, or for its types alone."""
    found = set()
    for node in statements(path):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            inside = {alias.name: f"{node.module}.{alias.name}" for alias in node.names}
            found |= {full if _module(full) in MODULES else node.module for full in inside.values()}
    return {_module(name) for name in found if name.split(".")[0] == "builder"}


def _module(name: str) -> str:
    return name.removeprefix("builder").lstrip(".") or "__init__"


def all_imports() -> dict[str, set[str]]:
    """By module."""
    return {module: imports(path) for module, path in MODULES.items()}


def test_the_folder_shows_the_wings_alone() -> None:
    shown = {path.relative_to(BUILDER).parts[0] for path in BUILDER.rglob("[!_]*.py")}
    assert shown == set(WINGS)


def test_tests_lie_where_what_they_test_lies() -> None:
    here = Path(__file__).parent
    folders = {path.parent.relative_to(here) for path in here.rglob("test_*.py")}
    assert len(folders) > len(WINGS)
    assert not {str(folder) for folder in folders if not (BUILDER / folder).is_dir()}


def test_nobody_imports_upward_or_sideways(capsys: pytest.CaptureFixture[str]) -> None:
    code = lint_imports(config_filename=str(PROJECT), no_cache=True)
    assert code == EXIT_STATUS_SUCCESS, capsys.readouterr().out


def room(module: str) -> str:
    """``plan.lock.file`` is in the room ``plan.lock``. ``pipeline`` is one room, and so is each module of
    ``core``; ``plan.facts`` has rooms of its own.
    """
    parts = module.split(".")
    depth = {"pipeline": 1, "cli": 1 if parts[1:2] != ["console"] else 2}.get(parts[0], 2)
    depth += parts[:2] == ["plan", "facts"]
    return ".".join(parts[:depth])


def test_a_room_is_entered_by_its_face() -> None:
    taken = {
        name
        for module, names in all_imports().items()
        for name in names
        if room(name) != room(module) and name.split(".")[0] not in {"core", "__init__"}
    }
    assert taken
    assert not {name for name in taken if name != room(name)}


def takes(path: Path) -> set[tuple[str, str]]:
    """Modules of ours and the names that a file imports of each, or a program that is a text in it."""
    found = re.findall(r"(?m)^\s*from (builder[\w.]*) import (\([^)]*\)|.*)", path.read_text())
    return {
        (_module(module), name.partition(" as ")[0].strip())
        for module, names in found
        for name in re.sub(r"#.*|[()]", "", names).split(",")
    }


def test_a_face_shows_what_others_take_and_nothing_else() -> None:
    """Other rooms, or tests. A name of a room's own use is no part of its face."""
    faces = {
        module: getattr(importlib.import_module(f"builder.{module}"), "__all__", ())
        for module, path in MODULES.items()
        if path.name == "__init__.py"
    }
    others = [(module, path) for module, path in MODULES.items() if path.name != "__init__.py"]
    others += [("", path) for path in BUILDER.parent.glob("tests/**/*.py")]
    taken = {pair for module, path in others for pair in takes(path) if room(pair[0]) != room(module)}
    assert sum(map(bool, faces.values())) > 20
    assert not [
        f"{face}.{name}" for face, names in faces.items() for name in names if (face, name) not in taken
    ]


def test_nothing_imports_what_goes_into_images() -> None:
    wrong = {(module, name) for module, names in all_imports().items() for name in names if apart(name)}
    assert not wrong


def circles() -> set[frozenset[str]]:
    """Groups of modules that reach one another by imports."""
    reached = {module: set(names) - {module} for module, names in all_imports().items()}
    while True:
        wider = {
            module: names.union(*(reached.get(name, ()) for name in names))
            for module, names in reached.items()
        }
        if wider == reached:
            break
        reached = wider
    return {
        frozenset(name for name in names if module in reached.get(name, ()))
        for module, names in reached.items()
        if module in names
    }


def test_every_module_can_be_imported_first() -> None:
    """Also a name that another module needs for its types alone."""
    code = "import importlib, sys\nfor name in sys.argv[1:]: importlib.import_module(name)"
    names = [f"builder.{name}" for name in MODULES if name not in {"__init__", *ALONE}]
    subprocess.run([sys.executable, "-c", code, *names], check=True)


def test_no_modules_import_one_another_in_a_circle() -> None:
    assert not circles()


def test_a_class_name_means_one_thing() -> None:
    homes: dict[str, list[str]] = {}
    for module, path in MODULES.items():
        for node in statements(path):
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name, []).append(module)
    assert not {name: modules for name, modules in homes.items() if len(modules) > 1}


@pytest.mark.parametrize(
    "path",
    [path for part in sorted(APART) for path in sorted(BUILDER.joinpath(*part.split(".")).rglob("*.py"))],
    ids=str,
)
def test_what_goes_into_images_imports_nothing_of_ours(path: Path) -> None:
    assert not {name for name in imports(path) if not apart(name)}


def test_a_test_file_has_a_name_of_its_own() -> None:
    """pytest imports test files by their bare names: of two with one name, one is not collected."""
    names = [path.name for path in BUILDER.parent.glob("tests/**/test_*.py")]
    assert sorted(names) == sorted(set(names))


def test_a_run_that_has_nothing_to_do_imports_little() -> None:
    """The modules of ``rtbuild build`` for cells whose images an engine has: 4 cells take half a second."""
    used = (
        "cli.commands.build", "plan.matrix", "image.engine.engine", "image.layers.store",
        "pipeline.build", "image.recipe.probe_file",
    )  # fmt: skip
    code = f"import sys, {', '.join(f'builder.{name}' for name in used)}\n"
    code += "print(sum(name.split('.')[0] == 'builder' for name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) <= 90
