"""Whether the packages of a lock can be imported: read out of wheels, kept, judged."""

from __future__ import annotations

import json
import struct
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import requests
from facts_shelf import Shelf, names_row_of
from lock_values import lock_deb, lock_registry_base

from builder.core.errors import CellError
from builder.core.model import Cell, Pinned, RegistryBase, RootfsBase
from builder.core.versions import first
from builder.pipeline import stages
from builder.plan.facts.reading.binary import CompiledTexts
from builder.plan.facts.reading.cache import ReadingCache
from builder.plan.facts.reading.release_names import names_table
from builder.plan.facts.reading.wheel_modules import _Shelved
from builder.plan.facts.reading.wheel_modules_read import opener
from builder.plan.facts.rules.checking import check
from builder.plan.facts.rules.finding import Outcome


def wheel(name: str, version: str, members: dict[str, bytes | str]) -> dict[str, dict]:
    stem = f"{name}-{version}"
    return {f"{stem}-py3-none-any.whl": {f"{stem}.dist-info/METADATA": "Metadata-Version: 2.1\n", **members}}


def rootfs(*more: str) -> RootfsBase:
    """Debian's interpreter with its own modules, and more packages."""
    names = ("libc6", "python3", "python3-minimal", "python3.11", "libpython3-stdlib", "python3-distutils")
    debs = tuple(map(lock_deb, (*names, *more)))
    return RootfsBase(suite="bookworm", debs=debs, epoch=0)


def judged(
    cell: Cell, folder: Path, *wheels: dict[str, dict], base: RegistryBase | RootfsBase | None = None
) -> list[tuple[str, str]]:
    """What the rule says of a lock of these wheels, read from an index, then by what was kept alone."""
    shelf = Shelf({file: members for one in wheels for file, members in one.items()})
    readings = ReadingCache(cache=folder)
    base = base or rootfs()
    locked = Pinned(cell=cell, base=base, wheels=shelf.wheels(), epoch=0)
    readings.read_imports(cell, locked.wheels, locked.base, shelf)  # type: ignore[arg-type]
    truth = ReadingCache(cache=folder).truth(cell, locked, links=True)
    return [(one.outcome.value, one.message) for one in check(cell, truth, only=("imports",))]


@pytest.fixture
def cell(make):
    return make("torch==2.11.0", python="3.12", base="rootfs:debian/bookworm", cuda="wheels", pip=("taker",))


def test_an_argument_that_is_left_out_is_told(cell, tmp_path) -> None:
    """As pandas 3 demands new_arg_name of its deprecate_kwarg, which statsmodels 0.14.4 leaves out."""
    taker = wheel("taker", "1.0", {"taker.py": "from giver import f\n@f('a')\ndef g(): pass\n"})
    giver = wheel("giver", "2.0", {"giver.py": "def f(kind, old, new=None): pass\n"})
    ((outcome, message),) = judged(cell, tmp_path, taker, giver)
    assert outcome == "impossible"
    assert "calls giver.f without the argument old, which it demands in giver 2.0" in message


def test_a_name_that_the_other_wheel_lacks_is_refused(cell, tmp_path) -> None:
    taker = wheel(
        "taker",
        "1.0",
        {"taker/__init__.py": "from . import inner\n", "taker/inner.py": "\nfrom giver.sub import gone\n"},
    )
    giver = wheel("giver", "2.0", {"giver/__init__.py": "", "giver/sub.py": "there = 1\n"})
    ((outcome, text),) = judged(cell, tmp_path, taker, giver)
    assert outcome == "impossible"
    assert text.startswith(
        "taker 1.0 imports giver.sub.gone, which giver 2.0 does not have: the import ends;"
    )


@pytest.mark.parametrize(
    ("base", "outcomes"),
    [
        (rootfs(), ["impossible"]),
        (rootfs("python3-click"), []),
        (rootfs("libgirepository-1.0-dev", "python3-markdown"), []),
        (lock_registry_base(), []),
    ],
)
def test_a_module_that_no_wheel_brings_is_refused_where_a_base_has_none(
    cell, tmp_path, base, outcomes
) -> None:
    """Of libgirepository's, apt brings a package of Python that nobody asked for."""
    taker = wheel("taker", "1.0", {"taker/__init__.py": "from click import Context\n"})
    found = judged(cell, tmp_path, taker, base=base)
    assert [outcome for outcome, _ in found] == outcomes
    if found:
        assert "imports click, which nothing in the lock brings" in found[0][1]


def test_pip_brings_its_own_modules_to_no_other_wheel(cell, tmp_path) -> None:
    taker = wheel("taker", "1.0", {"taker/__init__.py": "import pkg_resources\n"})
    inside = {
        "pip/__init__.py": "",
        "pip/__main__.py": "import sys\nsys.path.insert(0, '_vendor')\n",
        "pip/_vendor/pkg_resources/__init__.py": "",
    }
    found = judged(cell, tmp_path, taker, wheel("pip", "26.3", inside), base=rootfs())
    assert [outcome for outcome, _ in found] == ["impossible"]
    assert "imports pkg_resources, which nothing in the lock brings" in found[0][1]
    assert "add setuptools<82 to pip" in found[0][1]
    inside["pip/__init__.py"] = "from pip import __main__\n"
    taker = wheel("taker", "1.0", {"taker/__init__.py": "import pip\nimport pkg_resources\n"})
    assert judged(cell, tmp_path / "other", taker, wheel("other", "26.3", inside), base=rootfs()) == []


@pytest.mark.parametrize(
    ("one", "other", "is_refused"),
    [
        ("from json import loads\n", "from json import dumps\n", True),
        ("from json import loads\n", "from json import loads\n", False),
        (
            "from json import loads\n",
            "__path__ = __import__('pkgutil').extend_path(__path__, __name__)\n",
            False,
        ),
        ("from json import loads\n", "# of several distributions\n", False),
        ("'One.'\n__version__ = '1'\n", "from json import loads\n", False),
    ],
)
def test_a_package_of_two_distributions_is_one_of_them(cell, tmp_path, one, other, is_refused) -> None:
    """PyJWT and jwt both are ``import jwt``; parts of a namespace bring its ``__init__.py`` each."""
    found = judged(
        cell,
        tmp_path,
        wheel("taker", "1.0", {"taker/__init__.py": one, "taker/a.py": ""}),
        wheel("pytaker", "2.0", {"taker/__init__.py": other, "taker/b.py": ""}),
    )
    said = "taker 1.0 and pytaker 2.0 both bring taker/__init__.py, with different contents"
    assert found == [("impossible", f"{said}: an image has one of them")] * is_refused


def test_a_vendored_folder_that_is_no_module_may_be_put_into_the_path(cell, tmp_path) -> None:
    """wandb 0.16 has ``wandb/vendor/gql-0.2.0/wandb_gql``."""
    members = {
        "taker/__init__.py": "from taker import path\nimport gql\n",
        "taker/path.py": "import sys\nsys.path.insert(1, __file__ + '/../vendor/gql-0.2.0')\n",
    }
    vendored = {**members, "taker/vendor/gql-0.2.0/gql/__init__.py": ""}
    assert judged(cell, tmp_path / "vendored", wheel("taker", "1.0", vendored), base=rootfs()) == []
    ((outcome, _),) = judged(cell, tmp_path / "none", wheel("taker", "1.0", members), base=rootfs())
    assert outcome == "impossible"


@pytest.mark.parametrize(
    ("members", "is_refused"),
    [
        ({"taker/__init__.py": "import vendored\n"}, True),
        ({"taker/__init__.py": "def f():\n    import giver\nimport vendored\n"}, True),
        ({"taker/__init__.py": "def f():\n    import giver\nclass A: x = f()\nimport vendored\n"}, False),
        (
            {
                "taker/__init__.py": "class A:\n    def __init__(self): import giver\nimport vendored\n",
            },
            True,
        ),
        ({"taker/__init__.py": "try:\n    import giver\nexcept Exception: pass\nimport vendored\n"}, False),
        (
            {"taker/__init__.py": "class A:\n  def f(self): import giver\nA().f()\nimport vendored\n"},
            False,
        ),
        (
            {"taker/__init__.py": "class A:\n    def f(self): import giver\nx.f()\nimport vendored\n"},
            True,
        ),
        (
            {"taker/__init__.py": "if TYPE_CHECKING:\n    import giver\nimport vendored\n"},
            True,
        ),
        ({"taker/__init__.py": "__import__('giver.a')\nimport vendored\n"}, False),
        (
            {
                "taker/__init__.py": "if x():\n    from . import a\nimport vendored\n",
                "taker/a.py": "from .b import c\n",
                "taker/b.py": "def g():\n    from giver import path\n\ndef h():\n    g()\nc = h()\n",
            },
            False,
        ),
        ({"taker/__init__.py": "import vendored\n", "taker/a.py": "import giver\n"}, True),
    ],
)
def test_a_vendored_module_counts_if_an_import_may_come_to_what_adds_its_folder(
    cell, tmp_path, members, is_refused
) -> None:
    """tensordict 0.6.2 asks for packaging: that of ``setuptools/_vendor`` is there for whoever imported
    setuptools before, and PyTorch has functions that do.
    """
    inside = {
        "giver/__init__.py": "from giver import path\n",
        "giver/a.py": "",
        "giver/path.py": "import sys\nsys.path.append(__file__ + '/../_vendor')\n",
        "giver/_vendor/vendored/__init__.py": "",
    }
    found = judged(
        cell, tmp_path, wheel("taker", "1.0", members), wheel("giver", "2.0", inside), base=rootfs()
    )
    assert [outcome for outcome, _ in found] == ["impossible"] * is_refused


def test_a_folder_that_an_interpreter_adds_at_its_start_counts(cell, tmp_path) -> None:
    inside = {
        "giver/__init__.py": "",
        "giver/_vendor/vendored/__init__.py": "",
        "giver.pth": "giver/_vendor\n",
    }
    taker = wheel("taker", "1.0", {"taker/__init__.py": "import vendored\n"})
    assert judged(cell, tmp_path, taker, wheel("giver", "2.0", inside), base=rootfs()) == []


def test_setuptools_own_distutils_adds_its_folder(cell, tmp_path) -> None:
    inside = {
        "setuptools/__init__.py": "import sys\nsys.path.append(__file__ + '/../_vendor')\n",
        "setuptools/_vendor/vendored/__init__.py": "",
        "_distutils_hack/__init__.py": "",
    }
    source = "import distutils.version\nimport vendored\n"
    taker = wheel("taker", "1.0", {"taker/__init__.py": source})
    assert judged(cell, tmp_path, taker, wheel("setuptools", "81.0", inside), base=rootfs()) == []


def test_a_module_of_one_file_may_be_of_two_wheels(cell, tmp_path) -> None:
    """jupyter 1.0 and jupyter-core both bring ``jupyter.py``: either is whole."""
    launcher = wheel("taker", "1.0", {"taker.py": "from giver import main\n"})
    core = wheel("giver", "2.0", {"giver/__init__.py": "def main(): ...\n", "taker.py": "import giver\n"})
    assert judged(cell, tmp_path, launcher, core) == []


@pytest.mark.parametrize(("one", "is_refused"), [("a", True), ("z", False)])
def test_a_module_of_one_file_is_of_the_wheel_that_pip_installs_last(cell, tmp_path, one, is_refused) -> None:
    """By name, Z before A: what another one took of its own ``utils.py`` is gone."""
    taker = wheel("taker", "1.0", {"taker/__init__.py": "from giver import main\n"})
    giver = wheel("giver", "2.0", {"giver.py": "def main(): ...\n"})
    other = wheel(one, "3.0", {f"{one}/__init__.py": "", "giver.py": "def other(): ...\n"})
    found = judged(cell, tmp_path, taker, giver, other)
    said = f"taker 1.0 imports giver.main, which {one} 3.0 does not have"
    assert [text.partition(":")[0] for _, text in found] == [said] * is_refused


def test_a_package_whose_modules_do_not_import_is_refused_though_its_own_import_runs(cell, tmp_path) -> None:
    members = {
        "taker/__init__.py": "",
        "taker/a.py": "from giver import gone\n",
        "taker/b.py": "import taker.a\n",
    }
    giver = wheel("giver", "2.0", {"giver/__init__.py": ""})
    ((outcome, text),) = judged(cell, tmp_path, wheel("taker", "1.0", members), giver)
    assert outcome == "impossible"
    assert "`import taker.a` ends, as that of 2 of 2 modules of taker does" in text


def test_a_list_of_a_machine_is_taken_as_it_is(make, tmp_path) -> None:
    cell = make(
        *("torch==2.11.0", "taker==1.0"),
        python="3.12",
        base="rootfs:debian/bookworm",
        cuda="wheels",
        dependencies="listed",
    )
    found = judged(cell, tmp_path, wheel("taker", "1.0", {"taker/__init__.py": "import click\n"}))
    assert [outcome for outcome, _ in found] == ["warns"]


def test_a_module_that_a_wheel_puts_among_the_modules_is_not_lacking(cell, tmp_path) -> None:
    taker = wheel("taker", "1.0", {"taker/__init__.py": "import other\nimport absent\n"})
    other = wheel("other", "1.0", {"other/__init__.py": "import sys\nsys.modules['absent'] = object()\n"})
    assert judged(cell, tmp_path, taker, other) == []


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("other/__init__.py", "import giver.sub\ngiver.sub.gone = 1\n"),
        ("other/__init__.py", "import giver.sub as s\ndef patch():\n    s.gone: int = 1\n"),
        ("other/__init__.py", "from giver import sub as s\nsetattr(s, 'gone', 1)\n"),
        ("other/__init__.py", "from giver import sub\nsub.__dict__['gone'] = 1\n"),
        ("other/__init__.py", "from giver import sub\nvars(sub).update({'gone': 1})\n"),
        ("other/__init__.py", "import sys\nsetattr(sys.modules['giver.sub'], 'gone', 1)\n"),
        ("other.pth", "import giver.sub; giver.sub.gone = 1\n"),
        ("giver/late.py", "from . import sub\nfor n in ['gone']:\n    setattr(sub, n, 1)\n"),
        ("giver/late.py", "def add(x):\n    from giver import sub\n    setattr(sub, x.__name__, x)\n"),
        (
            "giver/late.py",
            "from . import sub\ndef add(mod, all):\n    for n in all: setattr(mod, n, 1)\nadd(sub, f())\n",
        ),
        ("other/__init__.py", "import giver.sub as s\nfor n in f():\n    setattr(s, n, 1)\n"),
        ("giver/late.py", "def add(m):\n    m.gone = 1\n"),
    ],
)
def test_a_name_that_another_place_may_add_is_not_lacking(cell, tmp_path, file, text) -> None:
    taker = wheel("taker", "1.0", {"taker/__init__.py": "from giver.sub import gone\n"})
    members = {"giver/__init__.py": "", "giver/sub.py": "there = 1\n"}
    other = {} if file.startswith("giver") else {file: text}
    giver = wheel("giver", "2.0", members | ({file: text} if not other else {}))
    assert judged(cell, tmp_path, taker, giver, wheel("other", "1.0", other)) == []
    elsewhere = {"other.py": "gone = 1\nself.other.gone == 1\nsetattr(self, 'gone', 1)\nf(gone=1)\n"}
    assert judged(
        cell, tmp_path / "2", taker, wheel("giver", "2.0", members), wheel("other", "1.0", elsewhere)
    )


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("giver/late.py", "def f(namespace):\n    return {k: 'gone' for k in vars(namespace).items()}\n"),
        (
            "giver/late.py",
            "class A:\n    def f(me, n):\n        setattr(me, 'gone', 1)\n        me.gone = n\n",
        ),
        ("giver/late.py", "def f(self):\n    self.gone = 1\n    setattr(self, g(), 'gone')\n"),
        ("giver/late.py", "meta_path = 'x.json'\nsetattr(f(), 'gone', 1)\n"),
        ("giver/late.py", "import giver.other as sub\nsub.gone = 1\nsetattr(sub, 'gone', 1)\n"),
        (
            "giver/late.py",
            "import sys\nsys.modules['giver.' + 'other'] = 'gone'\nsys.modules[f()] = 'gone'\n",
        ),
        ("giver/late.py", "def add(module, n):\n    setattr(module, n, 'gone')\nadd(f, 'gone')\n"),
        ("giver/late.py", "x = 'gone'\ny = dict(vars(sub))\nz = sub.__dict__['gone']\n"),
        ("giver/tests/test_sub.py", "import giver.sub\ngiver.sub.gone = 1\n"),
        ("other/__init__.py", "def f(sub):\n    setattr(sub.other, 'gone', 1)\n"),
        ("other/__init__.py", "from other import sub\nsub.gone = 1\nsetattr(sub, f(), 1)\n"),
    ],
)
def test_what_is_added_to_something_else_adds_nothing_to_the_module(cell, tmp_path, file, text) -> None:
    taker = wheel("taker", "1.0", {"taker/__init__.py": "from giver.sub import gone\n"})
    members = {"giver/__init__.py": "", "giver/sub.py": "there = 1\n"}
    mine = file.startswith("giver")
    giver = wheel("giver", "2.0", members | ({file: text} if mine else {}))
    other = wheel("other", "1.0", {} if mine else {file: text})
    assert [outcome for outcome, _ in judged(cell, tmp_path, taker, giver, other)] == ["impossible"]


@pytest.mark.parametrize(
    ("module", "name", "is_lacking"),
    [
        ("giver", "f'{me.package}.{n}'", True),
        ("giver", "f'{me.package}{n}'", False),
        ("giver", "g(n)", False),
        ("giver.sub", "f'{me.package}.{n}'", False),
    ],
)
def test_a_module_that_lies_below_another_is_no_outermost_one(
    cell, tmp_path, module, name, is_lacking
) -> None:
    """Jinja2 hands the dictionaries of compiled templates on: those of ``f"{package_name}.{key}"``."""
    late = (
        f"gone = 1\nclass A:\n    def load(me, n, f):\n        m = {name}\n"
        "        mod = __import__(m, None, None, ['root'])\n        f(mod.__dict__)\n"
    )
    taker = wheel("taker", "1.0", {"taker/__init__.py": f"from {module} import gone\n"})
    giver = wheel("giver", "2.0", {"giver/__init__.py": "", "giver/sub.py": "", "giver/late.py": late})
    found = judged(cell, tmp_path, taker, giver)
    assert [outcome for outcome, _ in found] == ["impossible"] * is_lacking


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("giver/late.py", "import sys\nsys.meta_path.append(f)\n"),
        ("giver/late.py", "import sys\nfor n in f():\n    sys.modules[n] = g(n)\n"),
        ("giver/late.py", "import sys\nsys.modules['giver.' + 'old'] = 1\n"),
        ("other/__init__.py", "import sys\nsys.modules['giver.old'] = 1\n"),
        ("giver-2.0.data/purelib/giver/old.py", "gone = 1\n"),
        ("giver-2.0.data/data/lib/python3.12/site-packages/giver/old.py", "gone = 1\n"),
    ],
)
def test_a_module_that_another_place_may_add_is_not_lacking(cell, tmp_path, file, text) -> None:
    taker = wheel("taker", "1.0", {"taker/__init__.py": "from giver.old import gone\n"})
    lazy = "def attach(\n    name,\n):\n    setattr(sys.modules[name], 'old', f())\n\n\nx = 1\n"
    reads = (
        "import sys\nfrom giver import old\nif 'giver' in sys.modules:\n    sys.modules['other'] = f(old)\n"
    )
    members = {"giver/__init__.py": "", "giver/lazy.py": lazy, "giver/reads.py": reads}
    extra = {file: text} if file.startswith("giver") else {}
    other = wheel("other", "1.0", {} if extra else {file: text})
    assert judged(cell, tmp_path, taker, wheel("giver", "2.0", members | extra), other) == []
    assert judged(cell, tmp_path / "2", taker, wheel("giver", "2.0", members), wheel("other", "1.0", {}))


def breaks_after(number: int, get):
    """A line that gives no more than so many answers."""
    left = [number]

    def got(url: str, **options):
        left[0] -= 1
        if left[0] < 0:
            raise requests.ConnectionError
        return get(url, **options)

    return got


@pytest.mark.parametrize("place", [0, 1, 38, 70, 73])
def test_it_is_found_however_many_releases_lack_it(place: int) -> None:
    """huggingface-hub has 74 minor releases before 2.4, and 38 of them have no HfFolder."""
    assert first(74, lambda number: number >= place) == place
    assert first(74, lambda _: False) is None


@pytest.mark.parametrize("escape", ["", r"\n", r"\n\t", r"\n\x0c", r"\n\013"])
def test_a_name_in_the_text_that_a_source_makes_its_names_of_is_not_lacking(cell, tmp_path, escape) -> None:
    """protobuf 5 names its messages in ``DESCRIPTOR`` alone; 3 had a statement for each."""
    made = f"make(b'{escape}gone\\x12', globals())\n"
    wheels = [
        wheel("taker", "1.0", {"taker/__init__.py": "from giver import gone\n"}),
        wheel("giver", "2.0", {"giver/__init__.py": f"def make(text, names): ...\n{made}"}),
    ]
    shelf = Shelf({**wheels[0], **wheels[1], **wheel("giver", "1.0", {"giver/__init__.py": "gone = 1\n"})})
    base = RootfsBase(suite="bookworm", debs=(), epoch=0)
    newest = tuple(one for one in shelf.wheels() if one.name + one.version != "giver1.0")
    locked = Pinned(cell=cell, base=base, wheels=newest, epoch=0)
    lacks = ReadingCache(cache=tmp_path).read_imports(cell, locked.wheels, locked.base, shelf).lacks  # type: ignore[arg-type]
    assert lacks == ()


@pytest.mark.parametrize(("mine", "newest"), [("2.0", "1.5.1"), ("1.5.9", "1.5.1"), ("1.5.1", "1.5.0")])
def test_the_newest_older_release_that_has_it_is_named(cell, tmp_path, mine, newest) -> None:
    taker = wheel("taker", "1.0", {"taker/__init__.py": "from giver import gone\n"})
    giver = wheel("giver", mine, {"giver/__init__.py": ""})
    older = dict[str, dict]()
    for number in range(24):
        text = "gone = 1" if number < 12 else ""
        if (version := f"1.{number // 2}.{number % 2}") == mine:
            continue
        older |= wheel("giver", version, {"giver/__init__.py": text})
    shelf = Shelf({**taker, **giver, **older})
    locked = Pinned(
        cell=cell,
        base=RootfsBase(suite="bookworm", debs=(), epoch=0),
        wheels=tuple(
            one
            for one in shelf.wheels()
            if one.version in {"1.0", mine} and one.name + one.version != "giver1.0"
        ),
        epoch=0,
    )
    readings = ReadingCache(cache=tmp_path)
    (found,) = readings.read_imports(cell, locked.wheels, locked.base, shelf).lacks  # type: ignore[arg-type]
    assert found.older == newest
    assert readings.imports_of(cell, locked).lacks == (found,)
    (finding,) = check(cell, readings.truth(cell, locked, links=True), only=("imports",))
    assert f"take another release of taker, or giver {newest}, which has it" in finding.message


@pytest.mark.parametrize(
    ("content", "before", "is_lacking"),
    [
        (b"\0__test__\0blosc_gone\0", b"\0__test__\0gone\0", True),
        (b"\0__test__\0giver.inner.gone\0", b"\0__test__\0gone\0", False),
        (b"\0__test__\0blosc_gone\0", b"\0__test__\0other\0", False),
        (b"\0__test__\0from-import-* object has no\0", b"\0__test__\0gone\0", False),
        (b"\0blosc_gone\0", b"\0__test__\0gone\0", False),
        (b"__test__gonex", b"\0__test__\0gone\0", False),
    ],
)
@pytest.mark.parametrize("text", ["from giver.inner import gone\n", "from giver import inner\ninner.gone\n"])
def test_a_name_that_a_compiled_module_has_no_more(cell, tmp_path, text, content, before, is_lacking) -> None:
    """zarr 2 takes ``cbuffer_sizes`` of numcodecs.blosc, which Cython compiled."""
    path = "giver/inner.cpython-312-x86_64-linux-gnu.so"
    taker = wheel("taker", "3.0", {"taker/__init__.py": text})
    giver = wheel("giver", "2.0", {"giver/__init__.py": "", path: content})
    older = wheel("giver", "1.0", {"giver/__init__.py": "", path: before})
    shelf = Shelf({**taker, **giver, **older})
    base = RootfsBase(suite="bookworm", debs=(), epoch=0)
    wheels = tuple(one for one in shelf.wheels() if one.version != "1.0")
    locked = Pinned(cell=cell, base=base, wheels=wheels, epoch=0)
    readings = ReadingCache(cache=tmp_path)
    found = readings.read_imports(cell, locked.wheels, locked.base, shelf).lacks  # type: ignore[arg-type]
    assert [(one.lacked, one.older) for one in found] == [("giver.inner.gone", "1.0")] * is_lacking
    assert readings.imports_of(cell, locked).lacks == found


@pytest.mark.parametrize(
    ("more", "before", "is_lacking"),
    [
        ({}, "x = 1\n", True),
        ({"giver/other.py": "DEVICES = ['_six']\n"}, "x = 1\n", False),
        ({}, None, False),
    ],
)
def test_a_module_of_a_package_that_puts_modules_of_given_names_below_itself(
    cell, tmp_path, more, before, is_lacking
) -> None:
    """timm 0.3.2 takes ``torch._six``, and PyTorch puts those of devices there. Where no older release has
    the file, nothing is said.
    """
    puts = "import sys\ndef add(name, it):\n    sys.modules['.'.join([__name__, name])] = it\n"
    taker = wheel("taker", "3.0", {"taker/__init__.py": "from giver._six import container_abcs\n"})
    giver = wheel("giver", "2.0", {"giver/__init__.py": puts, **more})
    old = {"giver/__init__.py": puts} | ({"giver/_six.py": before} if before is not None else {})
    shelf = Shelf({**taker, **giver, **wheel("giver", "1.0", old)})
    wheels = tuple(one for one in shelf.wheels() if one.version != "1.0")
    base = RootfsBase(suite="bookworm", debs=(), epoch=0)
    locked = Pinned(cell=cell, base=base, wheels=wheels, epoch=0)
    found = ReadingCache(cache=tmp_path).read_imports(cell, locked.wheels, locked.base, shelf).lacks  # type: ignore[arg-type]
    assert [(one.lacked, one.older) for one in found] == [("giver._six", "1.0")] * is_lacking


@pytest.mark.parametrize(
    ("more", "before", "is_lacking"),
    [
        ({}, "gone = 1\n", True),
        ({"giver/other.py": "NAMES = ['gone']\n"}, "gone = 1\n", False),
        ({"giver/other.py": "def handle_gone_name(): pass\n"}, "gone = 1\n", True),
        ({}, "", False),
    ],
)
def test_a_name_of_a_module_that_may_be_replaced_by_one_of_a_given_name(
    cell, tmp_path, more, before, is_lacking
) -> None:
    """PyTorch 2.9 has no ``torch.onnx.dynamo_export``, and puts modules of devices' names below ``torch``."""
    puts = (
        "import sys\ndef add(name, module):\n    sys.modules[f'{__name__}.{name}'] = module\n"
        "    setattr(module, name + '_', 1)\n"
    )
    taker = wheel("taker", "3.0", {"taker/__init__.py": "from giver.onnx import gone\n"})
    files = {"giver/__init__.py": puts, "giver/onnx.py": "", **more}
    old = wheel("giver", "1.0", {"giver/__init__.py": puts, "giver/onnx.py": before})
    shelf = Shelf({**taker, **wheel("giver", "2.0", files), **old})
    wheels = tuple(one for one in shelf.wheels() if one.version != "1.0")
    base = RootfsBase(suite="bookworm", debs=(), epoch=0)
    locked = Pinned(cell=cell, base=base, wheels=wheels, epoch=0)
    found = ReadingCache(cache=tmp_path).read_imports(cell, locked.wheels, locked.base, shelf).lacks  # type: ignore[arg-type]
    assert [(one.lacked, one.older) for one in found] == [("giver.onnx.gone", "1.0")] * is_lacking


@pytest.mark.parametrize(
    ("star", "is_lacking"),
    [(b"\0__test__\0other\0", True), (b"\0__test__\0gone\0", False), (b"other\0", False)],
)
def test_a_name_that_goes_beside_a_star_of_a_compiled_module(cell, tmp_path, star, is_lacking) -> None:
    """jax 0.4.20 takes ``tril`` of scipy.linalg, which has every name of a module of Cython's, too."""
    path = "giver/inner.cpython-312-x86_64-linux-gnu.so"
    init = {"giver/__init__.py": "from .inner import *\nfrom .sub import *\n", path: star}
    taker = wheel("taker", "3.0", {"taker/__init__.py": "from giver import gone\n"})
    giver = wheel("giver", "2.0", {**init, "giver/sub.py": "there = 1\n"})
    shelf = Shelf({**taker, **giver, **wheel("giver", "1.0", {**init, "giver/sub.py": "gone = 1\n"})})
    wheels = tuple(one for one in shelf.wheels() if one.version != "1.0")
    base = RootfsBase(suite="bookworm", debs=(), epoch=0)
    locked = Pinned(cell=cell, base=base, wheels=wheels, epoch=0)
    found = ReadingCache(cache=tmp_path).read_imports(cell, locked.wheels, locked.base, shelf).lacks  # type: ignore[arg-type]
    assert [(one.lacked, one.older) for one in found] == [("giver.gone", "1.0")] * is_lacking


def test_without_a_wheel_nothing_is_said_and_nothing_is_read_twice(cell, tmp_path) -> None:
    taker = wheel("taker", "1.0", {"taker/__init__.py": "from giver import gone\n"})
    giver = wheel("giver", "2.0", {"giver/__init__.py": ""})
    shelf = Shelf({**taker, **giver})
    locked = Pinned(
        cell=cell, base=RootfsBase(suite="bookworm", debs=(), epoch=0), wheels=shelf.wheels(), epoch=0
    )
    readings = ReadingCache(cache=tmp_path)
    nothing = readings.imports_of(cell, locked)
    assert nothing.lacks == ()
    assert len(nothing.unread) == 2, "nothing was read"
    broken = Shelf({**taker, **giver})
    broken.get = breaks_after(3, broken.get)  # type: ignore[method-assign]
    part = readings.read_imports(cell, locked.wheels, locked.base, broken)  # type: ignore[arg-type]
    assert part.lacks == ()
    assert part.unread, "the line broke"
    down = Shelf({**taker, **giver}, down=True)
    down.address = lambda wheel: down.offers("")  # type: ignore[assignment]
    assert readings.read_imports(cell, locked.wheels, locked.base, down).lacks == ()  # type: ignore[arg-type]
    first = readings.read_imports(cell, locked.wheels, locked.base, shelf)  # type: ignore[arg-type]
    assert [one.lacked for one in first.lacks] == ["giver.gone"]
    assert first.unread == ()
    asked = len(shelf.asked)
    assert ReadingCache(cache=tmp_path).read_imports(cell, locked.wheels, locked.base, shelf) == first  # type: ignore[arg-type]
    assert len(shelf.asked) == asked
    for place in (tmp_path / "wheelfacts").rglob("*.modules.json"):
        place.write_text('{"schema": 1, "file": "x", "values": {"reader": 1, "paths": 3}}')
    assert ReadingCache(cache=tmp_path).imports_of(cell, locked).lacks == (), (
        "a cache that somebody else wrote"
    )


@pytest.mark.parametrize(("name", "there"), [("BoolValue", True), ("DoubleValue", True), ("BotValue", False)])
def test_names_behind_the_escapes_of_a_descriptor_are_there(tmp_path, name: str, there: bool) -> None:
    """protoc binds what its serialized text names: wandb takes BoolValue of protobuf's wrappers_pb2."""
    text = r"D = add(b'\n\x1ewrappers.proto\x12\x0fgoogle\"#\n\x0b\x44oubleValue\"!\n\tBoolValue\x12\301')"
    shelf = Shelf(wheel("giver", "1.0", {"giver/wrappers_pb2.py": text}))
    (locked,) = shelf.wheels()
    assert _Shelved(locked, tmp_path, opener(shelf, tmp_path)).mentions(name) is there  # type: ignore[arg-type]


def test_two_that_read_one_wheel_at_once_keep_what_both_have_read(tmp_path) -> None:
    shelf = Shelf(wheel("taker", "1.0", {"one.py": "import a\n", "two.py": "import b\n"}))
    (locked,) = shelf.wheels()
    read = opener(shelf, tmp_path)  # type: ignore[arg-type]
    first, second = (_Shelved(locked, tmp_path, read) for _ in range(2))
    for one, module in ((first, "one"), (second, "two")):
        assert one.read(module) is not None
    first.keep()
    second.keep()
    assert _Shelved(locked, tmp_path, None).kept.keys() == {"one", "two"}


def test_a_compiled_module_is_fetched_once_for_all_names_that_are_asked_of_it(tmp_path) -> None:
    """NumPy's is of three megabytes, and fifteen names reached the limit of what is read of a wheel."""
    shelf = Shelf(wheel("giver", "1.0", {"giver/inner.so": b"\0__test__\0one\0two\0x\xe9\0"}))
    (locked,) = shelf.wheels()
    told = list[str]()
    one = _Shelved(locked, tmp_path, opener(shelf, tmp_path, told.append))  # type: ignore[arg-type]
    sources = one.opened()
    assert sources is not None
    fetched, read = list[str](), sources.read
    sources.read = lambda path: (fetched.append(path), read(path))[1]  # type: ignore[method-assign]
    asked = ("one", "two", "wo", "three", "x\xe9")
    assert [one.compiled("giver.inner", name) for name in asked] == [True, True, False, False, None]
    assert fetched == ["giver/inner.so"]
    one.keep()
    kept = _Shelved(locked, tmp_path, None)
    assert [kept.compiled("giver.inner", name) for name in asked] == [True, True, False, False, None]


def test_lock_refuses_a_set_that_cannot_be_imported(cell, tmp_path) -> None:
    shelf = Shelf(
        {
            **wheel("taker", "1.0", {"taker/__init__.py": "from giver import gone\n"}),
            **wheel("giver", "2.0", {"giver/__init__.py": ""}),
        }
    )
    with pytest.raises(CellError, match=r"cannot work together \(imports: taker 1\.0 imports giver\.gone"):
        proven(shelf, cell, tmp_path)
    truth = ReadingCache(cache=tmp_path).truth(cell, None)
    (finding,) = check(cell, truth, only=("last-lock",))
    assert finding.outcome is Outcome.UNKNOWN
    assert "imports giver.gone" in finding.message


@pytest.mark.parametrize(
    ("unread", "taken", "left"),
    [
        ("other", "from giver import gone\n", ["giver.gone"]),
        ("other", "from giver import gone\nimport nowhere\n", ["giver.gone"]),
        ("other", "import nowhere\n", []),
        ("other", "# as every other\nfrom giver import gone\n", ["giver.gone"]),
        ("other", "from importlib import import_module as load\nload('other')\nfrom giver import gone\n", []),
        ("other", "try:\n    import other\nexcept ImportError:\n    pass\nfrom giver import gone\n", []),
        ("giver_more", "from giver import gone\n", []),
        ("other", "from other import gone\n", []),
    ],
)
def test_a_wheel_that_nobody_has_read_leaves_open_what_may_come_from_it_alone(
    cell, tmp_path, unread, taken, left
) -> None:
    """As one that is built from sources on another machine: pyspark among Colab's 615."""
    shelf = Shelf(
        {
            **wheel("taker", "1.0", {"taker/__init__.py": taken}),
            **wheel("giver", "2.0", {"giver/__init__.py": ""}),
            **wheel(unread, "1.0", {"other/__init__.py": ""}),
        }
    )
    address = shelf.address
    shelf.address = lambda one: shelf.offers("") if one.file.startswith(unread) else address(one)  # type: ignore[assignment]
    locked = Pinned(cell=cell, base=rootfs(), wheels=shelf.wheels(), epoch=0)
    found = ReadingCache(cache=tmp_path).read_imports(cell, locked.wheels, locked.base, shelf)  # type: ignore[arg-type]
    assert [one.lacked for one in found.lacks] == left
    truth = ReadingCache(cache=tmp_path).truth(cell, locked, links=True)
    assert [one.lacked for one in truth.imports] == left
    assert truth.unproven == f"{unread}-1.0-py3-none-any.whl was not read"


def proven(shelf: Shelf, cell: Cell, folder: Path, *, refuse: bool = True) -> list[str]:
    """The notes of ``lock`` on these wheels."""
    locked = Pinned(
        cell=cell, base=RootfsBase(suite="bookworm", debs=(), epoch=0), wheels=shelf.wheels(), epoch=0
    )
    sources, stores = SimpleNamespace(mirrors={}, index=shelf), SimpleNamespace(cache=folder)
    notes: list[str] = []
    run = SimpleNamespace(
        progress=lambda *_, **__: None,
        note=lambda text, **_: notes.append(text),
        go_on=lambda: None,
        cell=cell,
    )
    context = SimpleNamespace(sources=sources, stores=stores)
    found = stages.judge_set(run, context, locked)  # type: ignore[arg-type]
    stages.tell_set(run, context, found, refuse=refuse)  # type: ignore[arg-type]
    return notes


def test_lock_refuses_what_is_known_to_fail_once_it_knows_the_releases(make, tmp_path) -> None:
    """``check`` without a lock cannot: nothing in the cell says which releases come."""
    cell = make("torch==2.11.0", python="3.12", base="rootfs:debian/bookworm", cuda="wheels", pip=("peft",))
    assert not [one for one in check(cell, suggest=False) if one.rule == "known-bad"]
    every = {"peft": "0.17.1", "transformers": "5.0.0", "torch": "2.11.0"}
    files = (wheel(name, version, {f"{name}/__init__.py": ""}) for name, version in every.items())
    shelf = Shelf({file: members for one in files for file, members in one.items()})
    with pytest.raises(CellError, match=r"cannot work together \(known-bad: peft-transformers-5"):
        proven(shelf, cell, tmp_path)
    assert [note.partition(":")[0] for note in proven(shelf, cell, tmp_path, refuse=False)] == ["known-bad"]


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("import pyarrow\n", "impossible"),
        ("def table():\n    import pyarrow\n", "warns"),
        ("try:\n    import pyarrow\nexcept ImportError:\n    pass\n", "warns"),
    ],
)
def test_what_ends_the_import_of_a_compiled_module_ends_that_of_packages_which_come_to_it(
    make, tmp_path, text, outcome
) -> None:
    """Streamlit imports PyArrow when it draws a table."""
    cell = make("app==1.0", python="3.12", base="rootfs:debian/bookworm", cuda="none")
    arrow = {"pyarrow/__init__.py": "from pyarrow.lib import Table\n", "pyarrow/lib.abi3.so": b""}
    every = {
        **wheel("app", "1.0", {"app/__init__.py": text}),
        **wheel("pyarrow", "26.0.1", arrow),
        **wheel("numpy", "1.26.4", {"numpy/__init__.py": ""}),
    }
    shelf = Shelf(every)
    base = RootfsBase(suite="bookworm", debs=(), epoch=0)
    locked = Pinned(cell=cell, base=base, wheels=shelf.wheels(), epoch=0)
    readings = ReadingCache(cache=tmp_path)
    proof = readings.read_imports(cell, locked.wheels, locked.base, shelf)  # type: ignore[arg-type]
    truth = readings.with_proofs(readings.truth(cell, locked), locked.wheels, proof)
    found = check(cell, truth, only=("known-bad",))
    assert [(one.message.partition(":")[0], one.outcome.value) for one in found] == [
        ("pyarrow-26-numpy-1", outcome)
    ]


def test_a_lock_with_a_wheel_that_nobody_could_read_says_so(cell, tmp_path) -> None:
    shelf = Shelf(wheel("taker", "1.0", {"taker/__init__.py": "import giver\n"}), down=True)
    shelf.address = lambda wheel: shelf.offers("")  # type: ignore[assignment]
    unread = "not wholly proven that the wheels load: taker-1.0-py3-none-any.whl was not read"
    assert proven(shelf, cell, tmp_path) == [unread]


NEW = (
    "from google.protobuf import descriptor as _descriptor\n"
    "from google.protobuf import runtime_version as _rv\n"
    "_rv.ValidateProtobufRuntimeVersion(\n    _rv.Domain.PUBLIC,\n    6,\n    31,\n    1,\n    'x'\n)\n"
)
OLD = "from google.protobuf import descriptor as _descriptor\n_A = _descriptor.Descriptor(\n  name='A',\n)\n"


@pytest.mark.parametrize(
    ("code", "release", "env", "says"),
    [
        (NEW, "5.29.5", (), "code that protobuf 6.31.1 generated, which protobuf 5.29.5 refuses"),
        (NEW, "6.31.0", (), "which protobuf 6.31.0 refuses"),
        (NEW, "8.40.0", (), ""),
        (NEW, "6.31.0", (("TEMPORARILY_DISABLE_PROTOBUF_VERSION_CHECK", "true"),), ""),
        (NEW, "6.31.1", (), ""),
        (NEW, "7.34.0", (), ""),
        (OLD, "4.21.0", (), "code that a protoc before 3.19 generated, which protobuf 4.21.0 refuses"),
        (OLD, "4.21.0", (("PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION", "python"),), ""),
        (OLD, "3.20.3", (), ""),
    ],
)
def test_code_that_another_protobuf_generated_is_refused(make, tmp_path, code, release, env, says) -> None:
    cell = make(
        *("torch==2.11.0",),
        python="3.12",
        base="rootfs:debian/bookworm",
        cuda="wheels",
        pip=("taker",),
        env=env,
    )
    files = {
        "taker/__init__.py": "",
        "taker/v1/__init__.py": "from . import a_pb2\n",
        "taker/v1/a_pb2.py": code,
    }
    lazy = {"taker/__init__.py": "def f():\n    from . import a_pb2, b_pb2\n", "taker/b_pb2.py": code}
    every = [wheel("taker", "1.0", files), wheel("taker", "1.0", {**lazy, "taker/a_pb2.py": code})]
    text = "class Domain: PUBLIC = 1\nclass Descriptor: pass\ndef ValidateProtobufRuntimeVersion(*a): pass\n"
    files = dict.fromkeys(("__init__", "descriptor", "runtime_version"), text)
    given = {f"google/protobuf/{name}.py": inner for name, inner in files.items()}
    given |= {"google/_upb/_message.abi3.so": b""}
    for number, taker in enumerate(every):
        found = judged(cell, tmp_path / str(number), taker, wheel("protobuf", release, given))
        assert [outcome for outcome, _ in found] == (["impossible"] if says else [])
        assert all(says in message for _, message in found)
    other = wheel("taker", "1.0", {**lazy, "taker/a_pb2.py": "from google.protobuf import descriptor\n"})
    found = judged(cell, tmp_path / "other", other, wheel("protobuf", release, given))
    assert [outcome for outcome, _ in found] == (["warns"] if says else []), "nothing imports it"
    beside = wheel(
        "taker", "1.0", {"taker/__init__.py": "", "caffe2/__init__.py": "", "caffe2/a_pb2.py": code}
    )
    assert judged(cell, tmp_path / "beside", beside, wheel("protobuf", release, given)) == []
    within = {"taker/__init__.py": "NAME = 1\n", "taker/inner/__init__.py": "", "taker/inner/a_pb2.py": code}
    newer = {**within, "taker/inner/b_pb2.py": code, "taker/inner/b_pb2_new.py": "a = 1\n"}
    for number, files in enumerate((within, newer)):
        taker = wheel("taker", "1.0", files)
        assert judged(cell, tmp_path / f"within{number}", taker, wheel("protobuf", release, given)) == []


def test_a_console_script_that_ends_is_a_reservation_but_for_those_of_an_extra(cell, tmp_path) -> None:
    entries = (
        "[console_scripts]\ntaker = taker.cli._main:run\nmore = taker.cli._more:run [extra]\n[x]\ny = z:f\n"
    )
    taker = wheel(
        "taker",
        "1.0",
        {
            "taker/__init__.py": "",
            "taker/cli/__init__.py": "",
            "taker/cli/_main.py": "from giver import gone\n",
            "taker/cli/_more.py": "from giver import away\n",
            "taker-1.0.dist-info/entry_points.txt": entries,
        },
    )
    ((outcome, text),) = judged(cell, tmp_path, taker, wheel("giver", "2.0", {"giver/__init__.py": ""}))
    assert outcome == "warns"
    assert "giver.gone" in text
    assert "`import taker.cli._main`, which is not the import of taker, ends" in text


def test_a_library_that_an_import_opens_is_named_with_its_package(cell, tmp_path) -> None:
    source = (
        "from ctypes.util import find_library\nx = find_library('zbar')\nif not x:\n    raise ImportError"
    )
    taker = wheel("taker", "1.0", {"taker/__init__.py": source})
    ((outcome, text),) = judged(cell, tmp_path, taker)
    assert (outcome, text.rpartition("; ")[2]) == ("impossible", "write libzbar0 into `apt`")
    assert judged(cell, tmp_path / "with", taker, base=rootfs("libzbar0")) == []
    for number, (name, missing) in enumerate((("libzbar-0a1b2c3d.so.0", 0), ("libzbarx.so.0", 1))):
        other = wheel("other", "1.0", {f"other.libs/{name}": ""})
        assert len(judged(cell, tmp_path / f"bundled{number}", taker, other)) == missing
    registry = lock_registry_base()
    assert judged(cell, tmp_path / "other", taker, base=registry) == [], "nobody read what that base has"


def test_an_import_that_a_module_ends_is_refused_with_what_mends_it(cell, tmp_path) -> None:
    source = (
        "from giver import __version__ as v\nfrom packaging.version import parse\nif parse(v) > parse('1'):\n"
        "    raise ImportError('too new')\n"
    )
    taker = wheel("taker", "1.0", {"taker/__init__.py": source})
    giver = wheel("giver", "2.0", {"giver/__init__.py": "__version__ = '2.0'\n"})
    packaging = wheel("packaging", "24.0", {"packaging/version.py": "def parse(x): pass\n"})
    ((outcome, text),) = judged(cell, tmp_path, taker, giver, packaging)
    assert outcome == "impossible"
    assert text == (
        "taker 1.0 raises ImportError (too new) when it is imported: the import ends; take another release "
        "of taker or of giver"
    )


def own(cell: Cell, *imports: str) -> Cell:
    return replace(cell, pip=("giver",), imports=imports)


GIVER = {
    "giver/__init__.py": "from giver.new import Maker\n",
    "giver/new.py": "class Maker:\n    pass\n",
    "giver/lazy.py": "def __getattr__(name):\n    return name\n",
}


@pytest.mark.parametrize(
    ("imports", "said"),
    [
        (("giver.new", "giver:Maker", "giver:new", "giver.new:Maker", "json:loads", "giver.lazy:Any"), []),
        (("giver.editor",), ["names giver.editor, which giver 2.0 does not have: take another release"]),
        (("giver.editor:clip",), ["names giver.editor, which giver 2.0 does not have"]),
        (
            ("giver:Gone", "giver.new", "giver:Lost"),
            ["names giver.Gone, which giver 2.0", "names giver.Lost, which giver 2.0 does not have"],
        ),
        (
            ("collections:Mapping",),
            ["names collections.Mapping, which Python 3.12 does not have: take another Python"],
        ),
        (("imp",), ["names imp, which Python 3.12 does not have"]),
        (("cv2",), ["nothing in the lock brings: add opencv-python or opencv-python-headless or"]),
        (
            ("absent.part",),
            ["names absent, which nothing in the lock brings: add the package that has absent"],
        ),
    ],
)
def test_what_the_cell_s_own_code_imports_is_proven(cell, tmp_path, imports, said) -> None:
    found = judged(own(cell, *imports), tmp_path, wheel("giver", "2.0", GIVER), base=rootfs())
    assert [outcome for outcome, _ in found] == ["impossible"] * len(said)
    for (_, text), words in zip(found, said, strict=True):
        assert text.startswith("`imports` names ")
        assert words in text


def test_what_cannot_be_decided_of_own_imports_is_not_told(cell, tmp_path) -> None:
    """A registry's base may have any package; a module that may put names together has any name."""
    taken = own(cell, "absent", "giver.lazy:Any")
    found = judged(taken, tmp_path, wheel("giver", "2.0", GIVER), base=lock_registry_base())
    assert found == []
    assert judged(own(cell), tmp_path / "none", wheel("giver", "2.0", GIVER)) == []


def test_own_imports_come_to_what_a_package_s_import_does_not(cell, tmp_path) -> None:
    """torchtext's own import is sound, and that of a part of it takes what the other wheel has no more."""
    taker = wheel(
        "taker", "1.0", {"taker/__init__.py": "a = 1\n", "taker/data/__init__.py": "from giver import gone\n"}
    )
    givers = wheel("giver", "2.0", {"giver/__init__.py": ""})
    ((outcome, text),) = judged(replace(cell, imports=("taker.data",)), tmp_path, taker, givers)
    assert outcome == "impossible"
    assert text.startswith(
        "taker 1.0, which `imports` names, imports giver.gone, which giver 2.0 does not have"
    )


LISTED = (
    "import pkgutil\nfor _, one, _ in pkgutil.iter_modules(__path__, {}):\n    sys.modules[one] = object()"
)


@pytest.mark.parametrize(
    ("put", "is_refused"),
    [
        ("sys.modules['pkg_resources'] = object()", True),  # openai 0.28
        ("sys.modules['giver.editor'] = object()", False),
        ("sys.modules[__name__ + '.editor'] = object()", False),
        ("for one in sys.argv:\n    sys.modules[f'giver.{one}'] = object()", False),
        ("for one in sys.argv:\n    sys.modules[one] = object()", False),
        (LISTED.format("__name__ + '.'"), False),
        (LISTED.format("prefix"), False),
        (LISTED.format(""), False),
    ],
)
def test_a_module_that_is_put_among_the_interpreter_s_may_be_meant(cell, tmp_path, put, is_refused) -> None:
    giver = wheel("giver", "2.0", {"giver/__init__.py": f"import sys\n{put}\n"})
    found = judged(own(cell, "giver.editor"), tmp_path, giver, base=rootfs())
    assert [outcome for outcome, _ in found] == ["impossible"] * is_refused


@pytest.mark.parametrize(("more", "is_refused"), [("", True), ("KNOWN = ['editor']\n", False)])
def test_a_module_that_a_package_never_says_is_none_that_a_function_of_it_puts(
    cell, tmp_path, more, is_refused
) -> None:
    """PEFT 0.18 takes ``transformers.modeling_layers``, and transformers loads modules of models so."""
    loads = f"import sys\ndef load(name):\n    sys.modules[name] = f(name)\n{more}"
    giver = wheel("giver", "2.0", {"giver/__init__.py": "", "giver/dynamic.py": loads})
    found = judged(own(cell, "giver.editor"), tmp_path, giver, base=rootfs())
    assert [outcome for outcome, _ in found] == ["impossible"] * is_refused


def test_modules_that_are_put_below_another_package_are_not_meant(cell, tmp_path) -> None:
    """As Triton puts those of ``triton.language.extra``."""
    inner = {"giver/__init__.py": "", "giver/inner/__init__.py": LISTED.format("prefix=__name__ + '.'")}
    files = wheel("giver", "2.0", {path: f"import sys\n{text}\n" for path, text in inner.items()})
    found = judged(own(cell, "giver.editor"), tmp_path, files, base=rootfs())
    assert [outcome for outcome, _ in found] == ["impossible"]
    assert judged(own(cell, "giver.inner.editor"), tmp_path / "inner", files, base=rootfs()) == []


def test_a_list_of_packages_is_refused_for_its_own_imports_too(cell, tmp_path) -> None:
    listed = replace(own(cell, "giver.editor"), dependencies="listed")
    ((outcome, _),) = judged(listed, tmp_path, wheel("giver", "2.0", GIVER))
    assert outcome == "impossible"


def test_a_namespace_of_several_wheels_has_its_modules_and_nothing_else(cell, tmp_path) -> None:
    """cuda-bindings 13 and cuda-pathfinder share the folder ``cuda``, where cudart was until 12."""
    one = wheel("giver", "13.0", {"space/bindings/__init__.py": ""})
    other = wheel("taker", "1.0", {"space/pathfinder/__init__.py": ""})
    taken = own(cell, "space.bindings", "space:pathfinder", "space:cudart", "space.nvrtc")
    found = judged(taken, tmp_path, one, other, base=rootfs())
    assert [text.partition(":")[0] for _, text in found] == [
        f"`imports` names space.{name}, which nothing in the lock brings" for name in ("cudart", "nvrtc")
    ]
    assert judged(taken, tmp_path / "base", one, other, base=lock_registry_base()) == []


@pytest.mark.parametrize(
    ("above", "is_refused"),
    [
        ({"giver/_C.cpython-312-x86_64-linux-gnu.so": b"\x7fELF"}, False),
        ({"giver/_C/__init__.py": "import sys\nsys.modules[__name__ + '.inner'] = f()\n"}, False),
        ({"giver/_C/__init__.cpython-312-x86_64-linux-gnu.so": b"\x7fELF"}, False),
        ({"giver/_C/__init__.py": ""}, True),
        ({}, True),
    ],
)
def test_a_folder_of_stubs_below_a_compiled_module_is_no_namespace(cell, tmp_path, above, is_refused) -> None:
    """PyTorch's ``torch/_C`` has stubs of what its compiled module makes: torch._C._dynamo.guards."""
    stubs = {"giver/__init__.py": "", "giver/_C/inner/guards.pyi": "", **above}
    found = judged(own(cell, "giver._C.inner.guards"), tmp_path, wheel("giver", "2.0", stubs), base=rootfs())
    assert [outcome for outcome, _ in found] == ["impossible"] * is_refused


@pytest.mark.parametrize(
    ("source", "is_refused"),
    [
        ("from giver import inner\nshort = inner.made\n", True),
        ("from giver import inner as one\nshort = one.made\n", True),
        ("import giver\nshort = giver.inner.made\n", True),
        ("from giver.again import inner\nshort = inner.made\n", True),
        ("from giver import inner\n", False),
        ("import giver\nshort = giver.inner\n", False),
        ("from giver.again import inner\n", False),
        ("from giver import inner\ndef call():\n    return inner.made\n", False),
        (
            "from giver import inner\ntry:\n    short = inner.made\nexcept ImportError:\n    short = None\n",
            False,
        ),
    ],
)
def test_a_module_that_is_loaded_on_use_is_imported_by_its_first_attribute(
    cell, tmp_path, source, is_refused
) -> None:
    """TensorFlow Probability's `substrates.jax`, whose first attribute distrax asks for."""
    giver = {
        "giver/__init__.py": "from .lazy import LazyLoader\n"
        "inner = LazyLoader('inner', globals(), 'giver.inner')\n",
        "giver/lazy.py": "class LazyLoader:\n    pass\n",
        "giver/again.py": "from giver import inner\n",
        "giver/inner.py": "import absent_of_all\nmade = 1\n",
        "taker.py": source,
    }
    found = judged(own(cell, "taker"), tmp_path, wheel("giver", "2.0", giver), base=rootfs())
    assert [outcome for outcome, _ in found] == ["impossible"] * is_refused


def test_names_that_releases_lost_or_brought_are_in_the_table_of_names() -> None:
    """A name that one release may still have, as nobody can tell, is in none of its columns."""
    lost, kept = "def row_stack(): pass\n", "def kept(): pass\n"
    both = {"numpy/__init__.py": "from .inner import kept, row_stack\n", "numpy/inner.py": kept + lost}
    none = {"numpy/__init__.py": "from .inner import kept\ndef fresh(): pass\n", "numpy/inner.py": kept}
    open_ = {"numpy/__init__.py": "def __getattr__(name): return made(name)\nkept = 'fresh'\n"}
    shelf = Shelf(
        wheel("numpy", "2.0", both | {"numpy/compat.py": "x = 1\n"})
        | wheel("numpy", "2.1.1", none | {"numpy/lib.py": lost})
        | wheel("numpy", "2.2", open_ | {"numpy/lib.py": lost})
    )
    told: list[str] = []
    current = '{"jax": {"roots": ["jax"], "row": "as it is"}}'
    text = names_table(shelf, told.append, ("numpy",), current=current)  # type: ignore[arg-type]
    assert list(json.loads(text)) == ["jax", "numpy"]
    assert json.loads(text)["jax"] == json.loads(current)["jax"]
    assert "numpy: 3 releases" in told
    row = names_row_of(text, "numpy")
    assert row["read"] == ["2.0", "2.2"]
    assert row["gone"]["2.1 2.0"] == {
        "numpy": "row_stack>numpy.lib",
        "numpy.compat": "",
        "numpy.inner": "row_stack>numpy.lib",
    }
    assert row["new"]["2.1"] == {"numpy": "fresh", "numpy.lib": ""}
    assert "fresh" not in row["gone"].get("2.2 2.1", {}).get("numpy", "")


TAKES_ALL = "from giver import _C\nfrom giver._C import *\nfor one in dir(_C):\n    globals()[one] = 1\n"
"""As ``torch/__init__.py`` has the names of compiled code."""


def compiled_texts(
    texts: bytes, *taken: bytes, by_end: bytes = b"", table: bytes = b"", rest: bytes = b""
) -> bytes:
    """An x86-64 library whose code refers to some of its texts, to one by its end, and a table to another."""
    begin, code = 0x200, bytearray()
    place = begin + 0x200
    texts += bytes(-len(texts) % 8)  # tables stand at multiples of a pointer's size
    for text in taken:
        distance = place + texts.index(text + b"\0") - (begin + len(code) + 7)
        code += b"\x48\x8d\x3d" + struct.pack("<i", distance)
    if by_end:
        distance = place + texts.index(by_end + b"\0") + len(by_end) - (begin + len(code) + 7)
        code += b"\x48\x8d\x15" + struct.pack("<i", distance)
        code += b"\x48\x89\x07\x48\x8d\x72" + struct.pack("<b", -len(by_end))
    code += rest
    address = struct.pack("<Q", place + texts.index(table + b"\0")) if table else b""
    head = b"\x7fELF\x02\x01\x01" + bytes(9)
    head += struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, 0, 0, 64, 56, 2, 64, 0, 0)
    for flags, at, size in ((5, begin, len(code)), (4, place, len(texts) + len(address))):
        head += struct.pack("<IIQQQQQQ", 1, flags, at, at, at, size, size, 16)
    return head.ljust(begin, b"\xff") + bytes(code).ljust(0x200, b"\xff") + texts + address


@pytest.mark.parametrize(
    ("library", "answer"),
    [
        (compiled_texts(b"\0uint1\0", b"uint1"), False),
        (compiled_texts(b"\0uint1\0", b"int1"), True),
        (compiled_texts(b"\0uint1\0", by_end=b"int1"), True),
        (compiled_texts(b"\0uint1\0", by_end=b"uint1"), None),  # the end is that of both
        (compiled_texts(b"\0uint1\0", table=b"int1"), True),
        (compiled_texts(b"\0uint1\0", table=b"uint1"), False),
        (compiled_texts(b"\0uint1\0", b"uint1") + struct.pack("<Q", 0x402), False),  # a debugger's number
        (compiled_texts(b"\0other\0"), False),
        (compiled_texts(b"\0other\0", rest=b"\xc7\x07int1"), None),  # a short text within the code
        (compiled_texts(b"\0module.int1\0"), None),
        (b"\x7fELF", None),
    ],
)
def test_a_text_that_compiled_code_refers_to(library, answer) -> None:
    assert CompiledTexts(library).refers(b"int1") is answer


@pytest.mark.parametrize(
    ("mine", "newer", "says", "is_lacking"),
    [
        (b"uint1", b"int1", "import tl\ntl.int1\n", True),
        (b"int1", b"int1", "import tl\ntl.int1\n", False),
        (b"uint1", b"uint1", "import tl\ntl.int1\n", False),
        (b"uint1", b"int1", "import giver\ngiver.int1\n", False),  # its own sources have it from there
        (b"uint1", b"int1", "import giver as g\ng.int1\n", False),
        (b"uint1", b"int1", "from giver import (uint1,\n    int1)\n", False),
        (b"uint1", b"int1", "", True),
    ],
)
@pytest.mark.parametrize(
    "text", ["import giver\ngiver.int1\n", "from giver import int1\n", "from giver._C import int1\n"]
)
def test_a_name_that_compiled_code_gives_from_a_newer_release_on(
    cell, tmp_path, text, mine, newer, says, is_lacking
) -> None:
    """torchao 0.13 takes ``torch.int1``, which PyTorch has from 2.6 on; in 2.5 the word is Triton's, and the
    bytes are the end of ``uint1``.
    """
    path = "giver/_C.cpython-312-x86_64-linux-gnu.so"
    if "_C" in text:
        says = (
            says.replace("giver", "giver._C") if "as" not in says else says.replace("giver as", "giver._C as")
        )

    def giver(version: str, taken: bytes) -> dict[str, dict]:
        library = compiled_texts(b"\0uint1\0", taken)
        return wheel(
            "giver", version, {"giver/__init__.py": TAKES_ALL, "giver/other.py": says, path: library}
        )

    taker = wheel("taker", "9.0", {"taker/__init__.py": text})
    shelf = Shelf({**taker, **giver("2.0", mine), **giver("3.0", newer), **giver("4.0", newer)})
    wheels = tuple(one for one in shelf.wheels() if one.version in {"9.0", "2.0"})
    locked = Pinned(cell=cell, base=RootfsBase(suite="bookworm", debs=(), epoch=0), wheels=wheels, epoch=0)
    readings = ReadingCache(cache=tmp_path)
    found = readings.read_imports(cell, locked.wheels, locked.base, shelf).lacks  # type: ignore[arg-type]
    lacked = "giver._C.int1" if "_C" in text else "giver.int1"
    assert [(one.lacked, one.older, one.newer) for one in found] == [(lacked, "", "3.0")] * is_lacking
    assert readings.imports_of(cell, locked).lacks == found
    told = [one.message for one in check(cell, readings.truth(cell, locked, links=True), only=("imports",))]
    assert ["giver 3.0 or newer, which has it" in one for one in told] == [True] * is_lacking


@pytest.mark.parametrize(("newer", "is_lacking"), [(False, False), (True, True)])
def test_a_name_that_may_have_gone_to_a_library_that_nobody_read(
    cell, tmp_path, monkeypatch, newer, is_lacking
) -> None:
    """``jaxlib/utils.so`` has its names in a library of 300 MB from 0.6 on; PyTorch has had one all along."""
    monkeypatch.setattr("builder.plan.facts.reading.wheel_modules_read._LARGEST", 4000)
    stars = TAKES_ALL + "from giver._large import *\n"
    path, large = "giver/_C.cpython-312-x86_64-linux-gnu.so", "giver/_large.cpython-312-x86_64-linux-gnu.so"
    taker = wheel("taker", "9.0", {"taker/__init__.py": "import giver\ngiver.int1\n"})

    def giver(version: str, taken: bytes, *, linked: bool) -> dict[str, dict]:
        files = {path: compiled_texts(b"\0uint1\0", taken), "giver/other.py": "int1 = 1\n"}
        files |= {large: bytes(5000)} if linked else {}
        return wheel("giver", version, {"giver/__init__.py": stars if linked else TAKES_ALL, **files})

    shelf = Shelf({**taker, **giver("2.0", b"uint1", linked=True), **giver("3.0", b"int1", linked=newer)})
    wheels = tuple(one for one in shelf.wheels() if one.version != "3.0")
    locked = Pinned(cell=cell, base=RootfsBase(suite="bookworm", debs=(), epoch=0), wheels=wheels, epoch=0)
    found = ReadingCache(cache=tmp_path).read_imports(cell, locked.wheels, locked.base, shelf).lacks  # type: ignore[arg-type]
    assert [one.lacked for one in found] == ["giver.int1"] * is_lacking


def test_a_name_in_doubt_of_which_an_unread_release_would_tell_is_said(cell, tmp_path) -> None:
    path, text = "giver/_C.cpython-312-x86_64-linux-gnu.so", "import giver\ngiver.int1\n"

    def giver(version: str, taken: bytes) -> dict[str, dict]:
        files = {"giver/__init__.py": TAKES_ALL, path: compiled_texts(b"\0uint1\0", taken)}
        return wheel("giver", version, files)

    taker = wheel("taker", "9.0", {"taker/__init__.py": text})
    shelf = Shelf({**taker, **giver("2.0", b"uint1"), **giver("3.0", b"int1")})
    wheels = tuple(one for one in shelf.wheels() if one.version != "3.0")
    locked = Pinned(cell=cell, base=RootfsBase(suite="bookworm", debs=(), epoch=0), wheels=wheels, epoch=0)
    address = shelf.address
    shelf.address = lambda one: shelf.offers("") if one.version == "3.0" else address(one)  # type: ignore[assignment]
    for folder, hidden in (("blind", True), ("seen", False)):
        shelf.address = shelf.address if hidden else address  # type: ignore[method-assign]
        found = ReadingCache(cache=tmp_path / folder).read_imports(cell, wheels, locked.base, shelf)  # type: ignore[arg-type]
        assert [one.lacked for one in found.lacks] == ["giver.int1"] * (not hidden)
        assert [one.name for one in found.unread] == ["giver"] * hidden


def test_what_is_in_doubt_hides_nothing_that_is_certain(cell, tmp_path) -> None:
    """Nine names of compiled code that nobody can tell stand before one of a source that is gone."""
    takes = "".join(f"giver.name_{number}\n" for number in range(9))
    taker = wheel("taker", "9.0", {"taker/__init__.py": f"import giver\n{takes}from giver.sub import gone\n"})
    library = compiled_texts(b"\0uint1\0", b"uint1")
    files = {"giver/_C.cpython-312-x86_64-linux-gnu.so": library, "giver/sub.py": ""}
    giver = wheel("giver", "2.0", {"giver/__init__.py": TAKES_ALL, **files})
    ((outcome, message),) = judged(cell, tmp_path, taker, giver)
    assert outcome == "impossible"
    assert "giver.sub.gone" in message


@pytest.mark.parametrize(
    ("library", "is_lacking"),
    [
        (compiled_texts(b"\0uint1\0", b"uint1"), True),
        (b"", False),  # of another machine: nobody knows what it has
        (compiled_texts(b"\0ufloat4\0", by_end=b"ufloat4"), False),  # as the code says that, either may be it
    ],
)
def test_a_name_that_newer_sources_alone_say_came_with_them(cell, tmp_path, library, is_lacking) -> None:
    """Compiled code may put a name together; no source says it before a release has it."""
    path = "giver/_C.cpython-312-x86_64-linux-gnu.so"
    taker = wheel("taker", "9.0", {"taker/__init__.py": "import giver\ngiver.float4\n"})
    old = wheel("giver", "2.0", {"giver/__init__.py": TAKES_ALL, path: library})
    says = TAKES_ALL + "KINDS = [_C.float4]\n"
    new = wheel("giver", "3.0", {"giver/__init__.py": says, path: compiled_texts(b"\0uint1\0")})
    shelf = Shelf({**taker, **old, **new})
    wheels = tuple(one for one in shelf.wheels() if one.version != "3.0")
    locked = Pinned(cell=cell, base=RootfsBase(suite="bookworm", debs=(), epoch=0), wheels=wheels, epoch=0)
    found = ReadingCache(cache=tmp_path).read_imports(cell, locked.wheels, locked.base, shelf).lacks  # type: ignore[arg-type]
    assert [(one.lacked, one.newer) for one in found] == [("giver.float4", "3.0")] * is_lacking


def test_members_and_keywords_that_releases_lost_or_brought_are_in_the_table_of_names() -> None:
    """A base's stand with the base, and those of many classes alike with ``*``; what to use instead is what a
    deprecation of the last release with them says.
    """
    base = """\
class Base:
    limit: int = 1

    def __init__(self, size, tokenizer=None):
        self.size = size
        if tokenizer: warn("`tokenizer` is deprecated and goes with 2.1. Use `processing_class` instead.")
    def close(self): deprecate("close", 3, "shut")
class Child(Base): pass
def load(path, token=None): pass
def open_(path, **rest): pass
def open_late(path, mode=None): pass
"""
    anew = """\
class Base:
    limit: int = 1

    def __init__(self, processing_class=None): pass
    def shut(self): pass
class Child(Base): pass
def load(path): pass
def open_(path, mode=None): pass
def open_late(path, **rest): pass
"""
    many = "".join(f"class Model{n}:\n    def forward(self, x, seen=None): pass\n" for n in range(5))
    shelf = Shelf(
        wheel(
            "numpy",
            "2.0",
            {"numpy/__init__.py": base + many, "numpy/tests/__init__.py": "class Own: a = 1\n"},
        )
        | wheel("numpy", "2.1", {"numpy/__init__.py": anew + many.replace(", seen=None", "")})
    )
    row = names_row_of(names_table(shelf, print, ("numpy",)), "numpy")  # type: ignore[arg-type]
    assert row["members lost"] == {"2.1 2.0": {"Base": "close>shut size"}}
    assert row["members brought"] == {"2.1": {"Base": "shut"}}
    assert row["keywords lost"] == {
        "2.1 2.0": {"*.forward": "seen", "Base": "size tokenizer>processing_class", "load": "token"}
    }
    assert row["keywords brought"] == {"2.1": {"Base": "processing_class"}}
    assert row["classes"] == {"Base": "Child"}


def test_a_deprecated_name_that_a_decorator_takes_is_a_keyword() -> None:
    old = """\
class A:
    @deprecate_kwarg("tokenizer", new_name="processor", version="5.0.0")
    @Appender("text")
    def __init__(self, processor=None): pass
@dataclass
class Settings:
    size: int = 0
"""
    new = old.replace('    @deprecate_kwarg("tokenizer", new_name="processor", version="5.0.0")\n', "")
    shelf = Shelf(
        wheel("numpy", "2.0", {"numpy/__init__.py": old})
        | wheel("numpy", "2.1", {"numpy/__init__.py": new.replace("size: int", "length: int")})
    )
    row = names_row_of(names_table(shelf, print, ("numpy",)), "numpy")  # type: ignore[arg-type]
    assert row["keywords lost"] == {"2.1 2.0": {"A": "tokenizer>processor", "Settings": "size"}}
    assert row["keywords brought"] == {"2.1": {"Settings": "length"}}


def test_a_member_that_comes_back_has_both_releases() -> None:
    there, gone = "class A:\n    def size(self): pass\n", "class A:\n    pass\n"
    dummy = {"numpy/dummy_objects.py": "class A:\n    def __init__(self, **rest): pass\n"}
    shelf = Shelf(
        wheel("numpy", "2.0", {"numpy/__init__.py": there + "    def __init__(self, old=1): pass\n", **dummy})
        | wheel("numpy", "2.1", {"numpy/__init__.py": gone + "    def __init__(self): pass\n", **dummy})
        | wheel("numpy", "2.2", {"numpy/__init__.py": there + "    def __init__(self): pass\n", **dummy})
    )
    row = names_row_of(names_table(shelf, print, ("numpy",)), "numpy")  # type: ignore[arg-type]
    assert (row["members lost"], row["members brought"]) == (
        {"2.1 2.0": {"A": "size"}},
        {"2.2": {"A": "size"}},
    )
    assert row["keywords lost"] == {"2.1 2.0": {"A": "old"}}


@pytest.mark.parametrize(("folder", "outcome"), [("taker/more", "impossible"), ("other", "warns")])
def test_what_lies_beside_the_package_is_not_most_of_it(cell, tmp_path, folder, outcome) -> None:
    """Half of the modules in the wheel of torch 1.8 are caffe2, which ends beside protobuf 4 and which
    `import torch` never comes to (https://github.com/pytorch/pytorch/issues/69894).
    """
    takes = {f"{folder}/m{number}.py": "from giver import gone\n" for number in range(8)}
    files = {
        "taker/__init__.py": "NAME = 1\n",
        "taker/used.py": "NAME = 1\n",
        "taker/first.py": "from giver import gone\n" if folder != "other" else "NAME = 2\n",
        f"{folder}/__init__.py": "from giver import gone\n",
        **takes,
    }
    given = wheel("giver", "1.0", {"giver/__init__.py": "there = 1\n"})
    found = judged(cell, tmp_path, wheel("taker", "1.0", files), given)
    assert [one for one, _ in found] == [outcome]


def test_a_lack_names_the_bound_that_a_resolver_may_be_given(cell, tmp_path) -> None:
    """setuptools 82 without pkg_resources: https://setuptools.pypa.io/en/stable/history.html"""
    files = {"taker/__init__.py": "import pkg_resources\n"}
    shelf = Shelf(
        {**wheel("taker", "1.0", files), **wheel("setuptools", "82.0.0", {"setuptools/__init__.py": ""})}
    )
    locked = Pinned(cell=cell, base=rootfs(), wheels=shelf.wheels(), epoch=0)
    ReadingCache(cache=tmp_path).read_imports(cell, locked.wheels, locked.base, shelf)  # type: ignore[arg-type]
    truth = ReadingCache(cache=tmp_path).truth(cell, locked, links=True)
    (found,) = check(cell, truth, only=("imports",))
    assert (found.outcome, found.bounds, found.lacked) == (
        Outcome.IMPOSSIBLE,
        ("setuptools<82",),
        ("setuptools",),
    )


@pytest.mark.parametrize(
    ("handlers", "giver", "outcomes"),
    [
        ("except ImportError", "there = 1\n", ["impossible"]),
        ("except (ImportError, OSError)", "there = 1\n", ["impossible"]),
        ("except (ImportError, AttributeError)", "there = 1\n", []),
        ("except ImportError:\n    pass\nexcept AttributeError", "there = 1\n", []),
        ("except Exception", "there = 1\n", []),
        ("except ImportError", "import unread\n", []),
        ("except ImportError", "import nowhere\n", []),
        ("except ImportError", "if here():\n    raise ImportError\n", []),
    ],
)
def test_an_attribute_that_no_handler_of_its_try_gets_ends_the_import(
    cell, tmp_path, handlers, giver, outcomes
) -> None:
    """The imports of the block come to modules that were read, and nothing raises there. An attribute
    raises AttributeError, which is no ImportError: https://docs.python.org/3/library/exceptions.html
    """
    text = f"try:\n    import giver\n    X = giver.gone\n{handlers}:\n    X = None\n"
    found = judged(
        cell,
        tmp_path,
        wheel("taker", "1.0", {"taker/__init__.py": text}),
        wheel("giver", "1.0", {"giver/__init__.py": giver}),
        wheel("unread", "1.0", {"unread.abi3.so": b""}),
    )
    assert [outcome for outcome, _ in found] == outcomes
