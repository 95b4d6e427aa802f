"""What the table says of each Python's standard library is what the interpreters of this machine have."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from builder.core import python_names

ASK = """\
import importlib, json, sys, warnings
warnings.simplefilter("ignore")
def there(name):
    try:
        return bool(importlib.import_module(name))
    except Exception:
        return False  # as of macpath, which another module replaces
def has(module, name):
    if there(module):  # Debian leaves out modules of other systems, as ctypes.macholib
        return hasattr(sys.modules[module], name) or there(module + "." + name)
modules, names = json.load(sys.stdin)
json.dump([list(map(there, modules)), [has(*one) for one in names]], sys.stdout)
"""
MODULES = sorted(python_names._MODULES)
NAMES = sorted(python_names._NAMES)
PYTHONS = json.loads(Path(python_names.__file__).with_name("python-names.json").read_text())["pythons"]
NOT_BUILT = {"nis", "ossaudiodev", "spwd", "crypt"}
"""Modules that a build of CPython may leave out, as the libraries below them are there or not."""


def _interpreters() -> list[str]:
    """CPython from 3.6 on."""
    kept = Path("~/.pyenv/versions").expanduser().glob("3.*/bin/python3")
    found = {path.parts[-3].split(".")[1]: str(path) for path in kept}
    return [path for minor, path in sorted(found.items()) if int(minor) > 5]


@pytest.mark.parametrize(
    "python", [sys.executable, *(pytest.param(path, marks=pytest.mark.slow) for path in _interpreters())]
)
def test_the_standard_library_is_as_the_table_says(python: str) -> None:
    """Another patch than those that the table is of may have other names; it has the same modules."""
    ask = "import sys; print(*sys.version_info[:3], sep='.')"
    version = subprocess.check_output([python, "-c", ask], text=True, cwd="/").strip()
    minor, asked = int(version.split(".")[1]), version in PYTHONS
    said = subprocess.check_output(
        [python, "-S", "-c", ASK], input=json.dumps([MODULES, NAMES]), text=True, cwd="/"
    )
    modules, names = json.loads(said)
    wrong = [
        name
        for name, there in zip(MODULES, modules, strict=True)
        if name not in NOT_BUILT and there is not (python_names.lacks(name, minor) is None)
    ]
    wrong += [
        f"{module}.{name}"
        for (module, name), there in zip(NAMES, names, strict=True)
        if asked
        and there is not None
        and there is not (not python_names.lacks_name(module, name, minor))
        and not python_names.lacks(module, minor)
    ]
    assert not wrong
