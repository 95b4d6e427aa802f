"""What ``names.json`` takes out of the wheels of a package's releases, and how the probe reads it."""

from __future__ import annotations

import base64
import json

import pytest
from facts_shelf import Shelf, names_row_of
from packaging.version import Version

from builder.core.packed_text import unpack_text
from builder.plan.facts.reading import name_rows, release_names
from builder.verify.cudnn_verify.common import name_changes, release_days


def row_of(*releases: tuple[str, dict[str, str]], tag: str = "py3-none-any") -> dict:
    """The row of NumPy, which stands for a package, of these releases: (version, {path: source})."""
    files = {
        f"numpy-{version}-{tag}.whl": {**members, f"numpy-{version}.dist-info/METADATA": "Name: numpy\n"}
        for version, members in releases
    }
    return names_row_of(release_names.names_table(Shelf(files), print, ("numpy",)), "numpy")  # type: ignore[arg-type]


def test_a_name_that_went_and_came_back_has_both_releases() -> None:
    """numpy.bool: gone with 1.24, another one from 2.0 on."""
    with_, without = {"numpy/__init__.py": "bool = 1\n"}, {"numpy/__init__.py": ""}
    row = row_of(("1.23.0", with_), ("1.24.0", without), ("1.25.0", without), ("2.0.0", with_))
    assert row["gone"] == {"1.24 1.23": {"numpy": "bool"}}
    assert row["new"] == {"2.0": {"numpy": "bool"}}


def test_private_names_and_modules_are_told_and_what_a_private_module_has_is_not() -> None:
    first = {"numpy/__init__.py": "", "numpy/_six.py": "one = 1\n", "numpy/_core.py": "one = 1\n"}
    second = {"numpy/__init__.py": "def _helper(): pass\n", "numpy/_core.py": "two = 2\n"}
    row = row_of(("2.0.0", first), ("2.1.0", second))
    assert row["gone"] == {"2.1 2.0": {"numpy._six": ""}}
    assert row["new"] == {"2.1": {"numpy": "_helper"}}


def test_each_patch_is_read_of_a_minor_release_with_many_and_the_last_post_of_each() -> None:
    """apache-tvm-ffi has one minor release, 0.1, and new names in its patches."""
    versions = [Version(f"0.1.{patch}") for patch in range(12)] + [Version("0.1.8.post1"), Version("1.0.1")]
    found = release_names._read_of([*versions, Version("1.0.2")])
    assert list(found.values()) == [*(f"0.1.{patch}" for patch in range(12)), "1.0"]
    assert Version("0.1.8.post1") in found
    assert Version("1.0.1") not in found
    long = [Version(f"8.0.{patch}") for patch in range(300)] + [Version("8.1.0")]
    assert list(release_names._read_of(long).values()) == ["8.0", "8.1"]


def test_a_new_name_of_inner_modules_stands_with_the_outer_one() -> None:
    inner = {"numpy/__init__.py": "", "numpy/a/__init__.py": "", "numpy/a/b.py": "", "numpy/a/c.py": ""}
    later = {
        **inner,
        "numpy/a/__init__.py": "from .b import fresh\n",
        "numpy/a/b.py": "fresh = 1\nalone = 2\n",
        "numpy/a/c.py": "from .b import fresh as fresh\n",
    }
    row = row_of(("2.0.0", inner), ("2.1.0", later))
    assert row["new"] == {"2.1": {"numpy.a": "fresh", "numpy.a.b": "alone"}}
    assert name_changes._outer_with(row["new"], "numpy.a.b", "fresh") == "numpy.a"
    assert name_changes._outer_with(row["new"], "numpy.a.b", "other") == ""


def test_a_package_gives_the_part_of_it_that_it_imports_under_another_name() -> None:
    """``mediapipe.solutions``, which is ``mediapipe.python.solutions``, and is gone from 0.10.31 on."""
    inner = {"numpy/python/__init__.py": "", "numpy/python/parts/__init__.py": "", "numpy/tasks.py": ""}
    old = {**inner, "numpy/__init__.py": "import os.path as path\nimport numpy.python.parts as parts\n"}
    new = {"numpy/__init__.py": "from . import tasks\n", "numpy/tasks.py": ""}
    row = row_of(("2.0.0", old), ("2.1.0", new))
    assert row["gone"] == {"2.1 2.0": {"numpy": "parts", "numpy.python": ""}}


def test_an_attribute_is_there_in_each_form_in_which_a_constructor_sets_it() -> None:
    """FastAPI's ``webhooks`` has a type of several lines from 0.104 on."""
    head = "class App:\n    def __init__(self):\n"
    old = f"{head}        self.one = self.two = 1\n        self.hooks: int = 2\n"
    new = f"{head}        self.one, self.two = 1, 2\n"
    new += "        self.hooks: Annotated[\n            int, 'a doc'\n        ] = 2\n"
    row = row_of(("2.0.0", {"numpy/__init__.py": old}), ("2.1.0", {"numpy/__init__.py": new}))
    assert (row["members lost"], row["members brought"]) == ({}, {})


def test_classes_with_the_same_bases_stand_together() -> None:
    old = "class Base:\n    gone = 1\nclass Mixin:\n    lost = 1\n"
    old += "class One(Base, Mixin): pass\nclass Two(Base, Mixin): pass\n"
    new = old.replace("gone = 1", "pass").replace("lost = 1", "pass")
    row = row_of(("2.0.0", {"numpy/__init__.py": old}), ("2.1.0", {"numpy/__init__.py": new}))
    assert row["classes"] == {"Base Mixin": "One Two"}
    assert name_changes._bases(row, "Two") == ["Base", "Mixin"]


def test_what_no_source_gives_is_in_no_release() -> None:
    """The filter of the table and the probe's reading of it are of one kind; compiled code may give more."""
    source = "def outer():\n    from os import inner as own\nif 1:\n    branch = 2\nsetattr(x, 'texted', 1)\n"
    releases = [(version, {"numpy/__init__.py": source}) for version in ("2.0.0", "2.1.0")]
    bits = base64.b64decode(row_of(*releases)["bound"])
    for name in ("outer", "own", "branch", "texted", "numpy"):
        assert name_changes._may_hold(bits, name), name
    others = [name_changes._may_hold(bits, f"other_{number}") for number in range(300)]
    assert sum(others) < 100
    assert "bound" not in row_of(*releases, tag="cp312-cp312-manylinux_2_17_x86_64")


@pytest.mark.parametrize(
    ("release", "told"),
    [
        ("5.13.0", " (5.12.1 is the release before it, 5.13.1 the one after)"),
        ("5.13.99", ""),
        ("", ""),
    ],
)
def test_the_releases_before_and_after_one(monkeypatch, release, told) -> None:
    rows = {"transformers": {"releases": "5.12.1 .13.0 ..1", "days": "9648 37 2"}}
    release_days.release_rows.cache_clear()
    monkeypatch.setattr(release_days, "read_days", lambda: rows)
    assert release_days.releases_around("transformers", release) == told
    assert release_days.releases_around("unread", release) == ""
    release_days.release_rows.cache_clear()


def test_the_largest_row_goes_without_what_is_asked_for_least(monkeypatch) -> None:
    names = " ".join(f"name_{number}" for number in range(100))
    others = " ".join(f"other_{number}" for number in range(100))
    deep = {"numpy.a.b.c.d": others, "numpy.a.b": f"_{names}", "numpy.a.b.e": "", "numpy": "fresh"}
    row = {"roots": ["numpy"], "gone": {}, "new": {"2.1": deep}}
    small = {"roots": ["click"], "gone": {}, "new": {"8.1": {"click.a.b.c.d": "kept"}}}
    packed = {"click": name_rows.packed_row(small), "numpy": name_rows.packed_row(row)}
    rest = {"numpy.a.b": f"_{names}", "numpy.a.b.e": "", "numpy": "fresh"}
    most = len(name_rows.packed_row({**row, "new": {"2.1": rest}, "cut": 1})["row"])
    monkeypatch.setattr(name_rows, "_MOST_TEXT", most + 250)
    monkeypatch.setattr(name_rows, "_MOST_OF_ONE", (10_000, most, 50))
    table = name_rows.within(packed, {})
    assert json.loads(table)["click"] == packed["click"]
    assert names_row_of(table, "numpy")["new"] == {"2.1": rest}
    public = names.replace("name_0 ", "")
    cut = name_rows._cut({"new": {"2.1": rest}}, "new", 2, private=True)
    assert cut["new"] == {"2.1": {**rest, "numpy.a.b": public}}


def test_of_a_row_that_is_too_large_what_releases_of_thirty_months_ago_brought_goes_first() -> None:
    days = {
        "numpy": {"releases": "2.0 .1 .2", "days": "8000 100 1200"},
        "click": {"releases": "8.0", "days": "9"},
    }
    old = name_rows.old_releases(days)
    assert old == {"numpy": Version("2.1"), "click": Version("8.0")}
    names = {"numpy": " ".join(f"name_{number}" for number in range(50))}
    row = {
        "roots": ["numpy"],
        "gone": {"2.1 2.0": names},
        "new": {"2.1": {"numpy": "outer", "numpy.a.b": names["numpy"]}, "2.2": names},
    }
    row["keywords brought"] = {"2.0": names, "2.2": names}
    packed = name_rows._cut_to(
        name_rows.packed_row(row), len(name_rows.packed_row(row)["row"]) - 1, old["numpy"]
    )
    kept = json.loads(unpack_text(packed["row"]))
    assert kept == {
        **row,
        "cut": 1,
        "new": {"2.1": {"numpy": "outer"}, "2.2": names},
        "keywords brought": {"2.2": names},
    }


def test_a_package_is_read_in_its_parts_and_by_the_names_that_its_path_gives() -> None:
    """nvidia-cutlass-dsl has a folder of its own on the path, and from 4.4 on modules in other packages."""
    shell = (
        "Name: numpy\nRequires-Dist: numpy-base==2.1.0\nRequires-Dist: numpy-more==2.1.0 ; extra == 'more'\n"
    )
    base = "Name: numpy-base\nRequires-Dist: numpy-core==2.1.0\nRequires-Dist: click\n"
    start = "import sys, os, own; sys.path.insert(0, os.path.join(own.__path__[0], 'later'))"
    files = {
        "numpy-2.0.0-py3-none-any.whl": {
            "own/first/inner/__init__.py": "old = 1\nkept = 2\n",
            "own/first/inner/a.py": "",
            "own.pth": "own/first\n",
            "numpy-2.0.0.dist-info/METADATA": "",
        },
        "numpy-2.1.0-py3-none-any.whl": {"numpy-2.1.0.dist-info/METADATA": shell, "own.pth": start},
        "numpy_base-2.1.0-py3-none-any.whl": {
            "own/later/inner/a.py": "new = 1\n",
            "numpy_base-2.1.0.dist-info/METADATA": base,
        },
        "numpy_core-2.1.0-py3-none-any.whl": {"own/later/inner/__init__.py": "kept = 2\n"},
    }
    row = names_row_of(release_names.names_table(Shelf(files), print, ("numpy",)), "numpy")  # type: ignore[arg-type]
    assert row["gone"] == {"2.1 2.0": {"inner": "old"}}
    assert row["new"] == {"2.1": {"inner.a": "new"}}
    assert "inner" in row["roots"]


def test_a_base_that_went_to_another_package_may_still_give_a_member() -> None:
    """langchain_community's loaders had their base from langchain_core from 0.0.27 on."""
    old = "class Loader:\n    def lazy_load(self): pass\nclass File(Loader): pass\nclass Own:\n    gone = 1\n"
    new = "from core import Loader\nclass File(Loader): pass\nclass Own: pass\n"
    row = row_of(("2.0.0", {"numpy/__init__.py": old}), ("2.1.0", {"numpy/__init__.py": new}))
    assert row["members lost"] == {"2.1 2.0": {"Own": "gone"}}
    back = row_of(("2.0.0", {"numpy/__init__.py": new}), ("2.1.0", {"numpy/__init__.py": old}))
    assert back["members brought"] == {"2.1": {"Own": "gone"}}


def test_new_keywords_of_many_constructors_of_a_large_row_stand_once() -> None:
    rows = {f"Config{number}": "dtype" for number in range(8)} | {"Own": "size", "load": "dtype"}
    found = name_rows._alike_once({"classes": {}, "keywords brought": {"5.0": rows}})
    assert found == {"keywords brought": {"5.0": {"Own": "size", "load": "dtype", "*": "dtype"}}}
    assert name_changes._of_any("Config9") == ["*"]
