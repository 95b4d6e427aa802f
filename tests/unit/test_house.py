"""The floors of the house: nobody imports upward, sideways only through a door, and in no circle.

What a class is called, it is called in the whole package.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

BUILDER = Path(__file__).resolve().parents[2] / "builder"

FLOORS: tuple[tuple[str, ...], ...] = (
    (
        "__init__",
        "cards",
        "elf",
        "model",
        "errors",
        "digests",
        "documents",
        "files",
        "items",
        "resources",
        "temporary",
    ),
    ("net", "matrix", "oci", "index", "debian", "sandbox"),
    ("facts", "lock", "recipe"),
    ("layers", "wheels", "image", "sdist", "resolve"),
    ("engine", "verify", "evidence"),
    ("pipeline",),
    ("publish", "audit", "colab", "dispatch"),
    ("catalogue",),
    ("console", "cli"),
)
"""From the ground up."""
DOORS = {
    ("oci", "net"),
    ("index", "net"),
    ("debian", "net"),
    ("lock", "facts"),
    ("wheels", "layers"),
    ("image", "layers"),
    ("image", "wheels"),
    ("sdist", "layers"),
    ("sdist", "wheels"),
    ("sdist", "image"),
    ("evidence", "verify"),
    ("verify", "engine"),
    ("cli", "console"),
    ("model", "digests"),
    ("errors", "model"),
    ("items", "documents"),
    ("items", "errors"),
    ("temporary", "files"),
    ("temporary", "errors"),
}
"""Rooms of one floor of which the first may import from the second."""
APART = {"probe", "runtime"}
"""What goes into images: data to ``recipe``."""

HEIGHT = {room: height for height, rooms in enumerate(FLOORS) for room in rooms}
FILES = sorted(
    path
    for path in BUILDER.rglob("*.py")
    if path.relative_to(BUILDER).parts[0] not in APART and "_templates" not in path.parts
)


def dotted(path: Path) -> str:
    """``builder/oci/wire.py`` is ``oci.wire``; a package is its ``__init__``'s folder."""
    parts = path.relative_to(BUILDER).with_suffix("").parts
    return ".".join(parts[:-1] if len(parts) > 1 and parts[-1] == "__init__" else parts)


MODULES = {dotted(path): path for path in FILES}


def imports(path: Path) -> set[str]:
    """Modules below ``builder`` that a file imports: at its top, in a function, or for its types alone."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            inside = {alias.name: f"{node.module}.{alias.name}" for alias in node.names}
            found |= {full if _module(full) in MODULES else node.module for full in inside.values()}
    return {_module(name) for name in found if name.split(".")[0] == "builder"}


def _module(name: str) -> str:
    return name.removeprefix("builder").lstrip(".") or "__init__"


def room(module: str) -> str:
    return module.split(".", maxsplit=1)[0]


IMPORTS = {module: imports(path) for module, path in MODULES.items()}


@pytest.mark.parametrize(
    "name", sorted(p.stem for p in BUILDER.iterdir() if p.stem not in {"__pycache__", "_templates"})
)
def test_every_room_has_one_floor(name: str) -> None:
    assert sum(name in rooms for rooms in (*FLOORS, APART)) == 1


@pytest.mark.parametrize("module", sorted(MODULES))
def test_nobody_imports_upward_or_sideways(module: str) -> None:
    mine = room(module)
    for name in IMPORTS[module]:
        other = room(name)
        assert other not in APART, f"{module}: what goes into an image is data, nothing of ours imports it"
        if other != mine and (mine, other) not in DOORS:
            assert HEIGHT[other] < HEIGHT[mine], f"{module}: {mine} imports {name}"


def test_doors_are_used_and_lead_one_way() -> None:
    used = {(room(module), room(name)) for module, names in IMPORTS.items() for name in names}
    assert used >= DOORS, "a door that nobody uses"
    order = [name for rooms in FLOORS for name in _sorted(rooms)]
    assert len(order) == len(HEIGHT)


def _sorted(rooms: tuple[str, ...]) -> list[str]:
    """The rooms of one floor, each after those that it imports: the total order; fails if there is none."""
    left, done = list(rooms), []
    while left:
        free = [name for name in left if not any((name, other) in DOORS for other in left)]
        assert free, f"doors in a circle: {left}"
        done += free
        left = [name for name in left if name not in free]
    return done


def circles() -> set[frozenset[str]]:
    """Groups of modules that reach one another by imports."""
    reached = {module: set(names) - {module} for module, names in IMPORTS.items()}
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
    names = [f"builder.{name}" for name in MODULES if name not in {"__init__", "sdist.inside"}]
    subprocess.run([sys.executable, "-c", code, *names], check=True)


def test_no_modules_import_one_another_in_a_circle() -> None:
    assert not circles()


def test_a_class_name_means_one_thing() -> None:
    homes: dict[str, list[str]] = {}
    for module, path in MODULES.items():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name, []).append(module)
    assert not {name: modules for name, modules in homes.items() if len(modules) > 1}


@pytest.mark.parametrize(
    "path", sorted((BUILDER / "runtime").rglob("*.py")) + sorted((BUILDER / "probe").rglob("*.py")), ids=str
)
def test_what_goes_into_images_imports_nothing_of_ours(path: Path) -> None:
    assert not {name for name in imports(path) if room(name) not in APART}


def test_a_test_file_has_a_name_of_its_own() -> None:
    """pytest imports test files by their bare names: of two with one name, one is not collected."""
    names = [path.name for path in BUILDER.parent.glob("tests/**/test_*.py")]
    assert sorted(names) == sorted(set(names))


def test_a_run_that_has_nothing_to_do_imports_little() -> None:
    """The modules of ``rtbuild build`` for cells whose images an engine has: 4 cells take half a second."""
    used = (
        "cli.build", "matrix", "engine.engine", "layers.store", "evidence.made", "pipeline.build",
        "recipe.bundle",
    )  # fmt: skip
    code = f"import sys, {', '.join(f'builder.{name}' for name in used)}\n"
    code += "print(sum(name.split('.')[0] == 'builder' for name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) <= 90
