# ruff: noqa: E501  # sources of modules
"""The proof by imports on made-up wheels: what it decides, and all forms of which it says nothing."""

import json
import time

import pytest

from builder.core.import_proof import ImportSet, Missing, missing, wheel_files
from builder.core.module_names import ALWAYS, LARGEST, UNREAD, ModuleNames, decided, names_of

Files = dict[str, str]


def lacks(
    taker: str | Files,
    giver: str | Files,
    *,
    python: int = 12,
    more: Files | None = None,
    whole: bool = False,
) -> list[str]:
    """What ``import taker`` lacks, where nothing outside of the modules adds anything."""
    return [one.lacked for one in proof(taker, giver, python=python, more=more, whole=whole)]


def proof(
    taker: str | Files,
    giver: str | Files,
    *,
    python: int = 12,
    more: Files | None = None,
    whole: bool = False,
) -> list[Missing]:
    sources: dict[str, Files] = {
        "taker": {"taker/__init__.py": taker} if isinstance(taker, str) else taker,
        "giver": {"giver/__init__.py": giver, "giver/sub.py": "x = 1\n"} if isinstance(giver, str) else giver,
        "more": more or {},
    }
    wheels = [wheel_files(name, "1.0", files) for name, files in sources.items()]
    by_name = {wheel.name: wheel for wheel in wheels}

    def read(wheel: str, module: str) -> ModuleNames | None:
        path = by_name[wheel].modules[module]
        assert path is not None
        found = names_of(sources[wheel][path].encode(), module, package=module in by_name[wheel].packages)
        kept = ModuleNames.of_list(json.loads(json.dumps(found.as_list())))
        assert kept == found
        return kept

    def mentions(wheel: str, word: str) -> bool:
        return any(word in text for text in sources[wheel].values())

    every = ImportSet(
        wheels,
        read,
        python,
        mentions=mentions,
        brings=lambda _, lacks: [False] * len(lacks),
        whole=whole,
    )
    return list(missing(every, {"taker": by_name["taker"].roots}))


@pytest.mark.parametrize(
    "taker",
    [
        "from giver import gone",
        "from giver import x, gone as other",
        "import giver\ngiver.gone",
        "import giver as g\nclass A(g.gone): pass",
        "import giver as g\n@g.gone\ndef f(): pass",
        "import giver as g\ndef f(x=g.gone): pass",
        "import giver as g\ndef f(x: g.gone): pass",
        "import giver as g\ny: g.gone = 1",
        "import giver as g\nclass A:\n    kind = g.gone",
        "import giver as g\nlist(map(str, [g.gone.more()]))",
        "import sys\nif sys.version_info >= (3, 8):\n    from giver import gone",
        "import sys\nif sys.version_info[0] == 2:\n    pass\nelse:\n    from giver import gone",
        "import sys\nif sys.platform == 'win32':\n    pass\nelse:\n    from giver import gone",
        "from typing import TYPE_CHECKING\nif not TYPE_CHECKING:\n    from giver import gone",
        "try:\n    from giver import gone\nexcept ImportError as e:\n    raise ImportError('install it') from e",
        "try:\n    from giver import gone\nexcept KeyError:\n    pass",
        "try:\n    pass\nfinally:\n    from giver import gone",
        "import warnings\nwith warnings.catch_warnings():\n    from giver import gone",
        "class A:\n    from giver import gone",
        "import giver.sub as s\ns.gone",
        "x = '\\d' is 1\nfrom giver import gone",
        "if __TAKER_SETUP__:\n    pass\nelse:\n    from giver import gone",
        "import giver\nfor n in ['a', 'b']:\n    giver.gone(n)",
        "import giver\nT = dict(a=1)\nfor k, v in T.items():\n    giver.gone",
        "import giver\nfor k, v in zip('ab', (1, 2)):\n    giver.gone",
        "def f():\n    from giver import gone\nf()",
        "import giver\ndef f(x):\n    if x:\n        pass\n    giver.gone\ndef g():\n    f(1)\ng()",
        "__import__('giver.gone').f(__name__)",
        "import importlib\nx = importlib.import_module('giver.gone')",
        "try:\n    import giver.none\nexcept ImportError:\n    from giver import gone",
        "try:\n    from giver import none\nexcept (ImportError, OSError):\n    import giver\n    giver.gone",
        "import giver\ngiver.gone\ndel giver",
    ],
)
def test_a_name_that_is_taken_for_certain_and_is_not_there(taker) -> None:
    assert [text.rpartition(".")[2] for text in lacks(taker, "x = 1\n")] == ["gone"]


@pytest.mark.parametrize(
    "taker",
    [
        "from giver import x",
        "from giver import sub",
        "import giver.sub",
        "from giver import __doc__",
        "try:\n    from giver import gone\nexcept ImportError:\n    gone = None",
        "try:\n    from giver import gone\nexcept Exception:\n    pass",
        "try:\n    from giver import gone\nexcept:\n    pass",
        "try:\n    import giver\n    giver.gone\nexcept AttributeError:\n    pass",
        "try:\n    from giver import gone\nexcept ImportError as e:\n    if 0:\n        raise\n    gone = e",
        "try:\n    x\nexcept NameError:\n    from giver import gone",
        "try:\n    import nothing\nexcept ImportError:\n    pass\nelse:\n    from giver import gone",
        "import contextlib\nwith contextlib.suppress(ImportError):\n    from giver import gone",
        "def f():\n    from giver import gone",
        "f = lambda: __import__('giver').gone",
        "import giver\nf = lambda: giver.gone",
        "import giver\nx = hasattr(giver, 'gone') and giver.gone",
        "import giver\nx = giver.gone if hasattr(giver, 'gone') else 1",
        "import giver\nx = [giver.gone for _ in ()]",
        "import giver\nif FLAG:\n    giver.gone",
        "if FLAG:\n    from giver import gone",
        "while FLAG:\n    from giver import gone",
        "for x in ():\n    from giver import gone",
        "match FLAG:\n    case 1:\n        from giver import gone",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from giver import gone",
        "import typing\nif typing.TYPE_CHECKING:\n    from giver import gone",
        "import sys\nif sys.version_info < (3, 8):\n    from giver import gone",
        "import sys\nif sys.version_info >= (3, 12, 4):\n    from giver import gone",
        "import sys\nif sys.platform == 'win32':\n    from giver import gone",
        "from __future__ import annotations\nimport giver\ndef f(x: giver.gone): pass",
        "import giver\ngiver = object()\ngiver.gone",
        "import giver\nclass A:\n    giver = 1\n    y = giver.gone",
        "import giver\ngiver.gone = 1",
        "import giver\nassert giver.gone",
        "import nowhere\nfrom nowhere import gone",
        "from giver import (",
        "import giver\nfor n in ['a']:\n    if n:\n        continue\n    giver.gone",
        "import giver\nT = []\nfor n in T:\n    giver.gone",
        "import giver\nT = [1]\nT = f()\nfor n in T:\n    giver.gone",
        "def f(x):\n    if x:\n        return\n    from giver import gone\nf(1)",
        "def f():\n    yield\n    from giver import gone\nf()",
        "async def f():\n    from giver import gone\nf()",
        "@d\ndef f():\n    from giver import gone\nf()",
        "def f():\n    from giver import gone\nf = 1\nf()",
        "import giver\ndef f(giver):\n    giver.gone\nf(1)",
        "try:\n    import giver.sub\nexcept ImportError:\n    from giver import gone",
        "try:\n    import giver.none\nexcept KeyError:\n    pass\nexcept ImportError:\n    from giver import gone",
        "import giver\ndel giver\ngiver.gone",
        "__import__('giver.' + 'gone')",
    ],
)
def test_what_may_not_be_taken_is_not_asked_for(taker) -> None:
    assert lacks(taker, "x = 1\n") == []


@pytest.mark.parametrize(
    "giver",
    [
        "gone = 1",
        "if FLAG:\n    gone = 1",
        "try:\n    import gone\nexcept ImportError:\n    pass",
        "def f():\n    global gone\n    gone = 1",
        "for gone in ():\n    pass",
        "with open('x') as gone:\n    pass",
        "[y := 1, gone := 2]",
        "def __getattr__(name):\n    return 1",
        "def __getattr__(name):\n    if name in TABLE:\n        return 1\n    raise AttributeError(name)",
        "T = ['gone']\ndef __getattr__(name):\n    if name in T:\n        return 1\n    raise AttributeError(name)",
        "T = ['a']\nT.append(f())\ndef __getattr__(name):\n    if name in T:\n        return 1\n    raise AttributeError",
        "if FLAG:\n    def __getattr__(name):\n        return 1",
        "__getattr__ = make()",
        "from nowhere import *",
        "from .compiled import *",
        "from .star import *",
        "globals()['go' + 'ne'] = 1",
        "globals().update(TABLE)",
        "g = globals\ng()['gone'] = 1",
        "vars()['gone'] = 1",
        "globals().update({'gone': 1})",
        "globals().update(gone=1)",
        "d = globals()\nd[f()] = 1",
        "d = locals()\nd.update(f())",
        "f(globals())",
        "import sys\nm = sys.modules[__name__]\nm.gone = 1",
        "import sys\ng(sys.modules[__name__])",
        "locals()['gone'] = 1",
        "exec('gone = 1')",
        "for n in ['a', 'gone']:\n    globals()[n] = 1",
        "for n in ['a']:\n    n = f()\n    globals()[n] = 1",
        "def __getattr__(n):\n    if n == 'x':\n        return 1\n    elif f(n):\n        return 2\n    raise AttributeError",
        "T = {'x': 1}\ndef __getattr__(n):\n    v = T.get(n)\n    if v is None:\n        return f(n)\n    return v",
        "T = {'x': 1}\ndef __getattr__(n):\n    if n not in T:\n        f()\n    return T[n]",
        "def __getattr__(n):\n    n = f(n)\n    raise AttributeError",
        "from .moves import other\n__getattr__ = other(__name__)",
        "from .moves import move\n__getattr__ = move('giver')",
        "def __getattr__(n):\n    return _deprecated(all=['gone'], attribute=n)",
        "def __getattr__(n):\n    return _deprecated(all=TABLE, attribute=n)",
        "import sys\nsys.modules[__name__] = object()",
        "import sys\nsetattr(sys.modules[__name__], 'gone', 1)",
        "from sys import modules\nmodules[__name__] = 1",
        "import apipkg\napipkg.initpkg(__name__, {})",
        "import lazy_loader as lazy\n__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)",
        "import lazy_loader as lazy\n__getattr__, __dir__, __all__ = lazy.attach(__name__, ['gone'])",
        "import lazy_loader as lazy\n__getattr__, _, _ = lazy.attach(__name__, None, {'sub': ['gone']})",
        "import lazy_loader as lazy\n__getattr__, _, _ = lazy.attach(__name__, None, {**OTHER})",
        "__getattr__ = deprecation_getattr(__name__, {'gone': ('text', f)})",
        "import sys\nsys.modules[__name__] = _LazyModule(__name__, f, {'sub': ['gone']})",
        "match FLAG:\n    case [*gone]:\n        pass",
        "print 'an older Python'",
    ],
)
def test_what_may_be_there_is_taken_to_be_there(giver) -> None:
    files = {
        "giver/__init__.py": giver,
        "giver/compiled.cpython-312-x86_64-linux-gnu.so": "",
        "giver/star.py": "from .inner import *\n__all__ = ['x'] + f()\n",
        "giver/inner.py": "gone = 1\n",
        "giver/moves.py": MOVES.replace("return 3", "return f(n)"),
    }
    assert lacks("from giver import gone", files) == []
    assert lacks("import giver\ngiver.gone", files) == []


MOVES = (
    "T = {f'giver:{n}': 'other' for n in ('moved', 'x')}\nREMOVED = {'giver:gone'}\n"
    "def move(module):\n    from .errors import E\n    def wrapper(n):\n"
    "        path = f'{module}:{n}'\n        if path in T.keys():\n            return 3\n"
    "        if path in REMOVED:\n            raise E(path)\n        d = sys.modules[module].__dict__\n"
    "        if n in d:\n            return d[n]\n        raise AttributeError(n)\n    return wrapper\n"
    "def other(module):\n    def wrapper(n):\n        d = sys.modules[module].__dict__\n"
    "        return d.get(n)\n    return wrapper\n"
)
"""As pydantic tells of what it moved."""


@pytest.mark.parametrize(
    "giver",
    [
        "from .sub import *",
        "from .named import *",
        "for n in ['a', 'b']:\n    globals()[n] = 1",
        "def __getattr__(n):\n    if n == 'x':\n        return 1\n    elif n == 'y':\n        return 2\n    raise AttributeError",
        "T = {'x': 1}\ndef __getattr__(n):\n    if n not in T:\n        raise AttributeError\n    return T[n]",
        "T = {'x': 1}\ndef __getattr__(n):\n    v = T.get(n)\n    if v is None:\n        raise AttributeError\n    return v",
        "def __getattr__(n):\n    if n in ['x']:\n        return 1\n    try:\n        return globals()[n]\n    except KeyError:\n        raise AttributeError",
        "from .moves import move\n__getattr__ = move(__name__)",
        "from .moves import move\n_old = move(__name__)\nT = {'x': 1}\ndef __getattr__(n):\n    v = T.get(n)\n    if v is None:\n        return _old(n)\n    return v",
        "def __getattr__(n):\n    return _deprecated(all=['x'], attribute=n)",
        "def __getattr__(name):\n    if name == 'x':\n        return 1\n    raise AttributeError(name)",
        "T = {'x': 1}\ndef __getattr__(n):\n    if n in T:\n        return T[n]\n    else:\n        raise AttributeError",
        "import lazy_loader as lazy\n__getattr__, __dir__, __all__ = lazy.attach(__name__, ['sub'], {'sub': ['x']})",
        "T = {'sub': ['x']}\n__getattr__, _, _ = _attach(__name__, submodules=[], submod_attrs=T)",
        "T = {'gone': ('text', None), 'x': ('text', f)}\n__getattr__ = deprecation_getattr(__name__, T)",
        "from .compiled import *\ndef __getattr__(n):\n    if n in {'gone'}:\n        raise E\n    return 1",
        "L = [('gone', 1)]\nT = {n: 'text' for n, _ in L}\ndef __getattr__(n):\n    if n in T:\n        raise AttributeError(T[n])\n    return 1",
        "from .tables import __old__\ndef __getattr__(n):\n    if n in __old__:\n        raise AttributeError(n)\n    return 1",
        "x = globals()['__file__']",
        "class A:\n    locals()['go' + 'ne'] = 1",
        "d = locals()\nfor n in ['x']:\n    setattr(d[n], 'y', 1)",
        "globals()['y'] = 1\nglobals().update({'z': 1}, w=2)",
        "import sys\nif 'other' in sys.modules:\n    x = sys.modules['other']",
        "@_api.caching_module_getattr\nclass __getattr__:\n    y = property(f)",
        "import logging\nx = logging.getLogger(__name__)",
    ],
)
def test_tables_of_names_are_read(giver) -> None:
    files = {
        "giver/__init__.py": giver,
        "giver/sub.py": "x = 1\n",
        "giver/named.py": "__all__ = ['x']\nx = gone = 1\n",
        "giver/tables.py": "__old__ = {'gone': 'use x'}\n",
        "giver/moves.py": MOVES,
        "giver/compiled.so": "",
    }
    assert lacks("from giver import gone", files) == ["giver.gone"]
    if "move(" in giver:
        assert lacks("from giver import moved, x", files) == []


def test_of_names_in_underscores_a_module_has_pythons_own_and_those_that_it_binds() -> None:
    assert (
        lacks("import giver\ngiver.__name__, giver.__file__, giver.__dict__, giver.__path__", "x = 1\n") == []
    )
    assert lacks("import giver\ngiver.__version__", "from .sub import x as __version__\n") == []
    assert lacks("import giver\ngiver.__version_info__ >= (3, 13)", "x = 1\n") == ["giver.__version_info__"]


def test_a_module_that_is_not_there_is_lacking_unless_something_may_put_it_there() -> None:
    assert lacks("import giver.old.inner", "x = 1\n") == ["giver.old"]
    assert lacks("from giver.old import x", "x = 1\n") == ["giver.old"]
    assert lacks("import giver.sub.inner", "x = 1\n") == ["giver.sub.inner"]
    for text in (
        "import sys\nsys.modules['giver.old'] = f()",
        "__path__.append(f())",
        "sys.meta_path.append(f)",
    ):
        assert lacks("import giver.old", text) == []
    assert lacks("import giver.old", "x = 1\n", more={"giver/old/data.txt": ""}) == []
    assert lacks("import giver.old", "x = 1\n", more={"giver/old.py": ""}) == []
    assert lacks("import giver.old", "x = 1\n", more={"giver/__init__.py": ""}) == [], "two wheels have it"
    assert lacks("import giver.old", {"giver/__init__.cpython-312-x86_64-linux-gnu.so": ""}) == []


def test_the_standard_library_comes_before_a_wheel_of_the_same_name() -> None:
    assert lacks("from dataclasses import KW_ONLY", {"dataclasses.py": "x = 1\n"}) == []


@pytest.mark.parametrize(
    ("taker", "found"),
    [
        ("from giver.sub import f\nf(a=1, gone=2)", ["gone"]),
        ("from giver import f\nx = f(1, gone=2)", ["gone"]),
        ("import giver.sub as s\ndef g(x=s.A(gone=1)): pass", ["gone"]),
        ("from giver.sub import f\nf(a=1)\nf(**{'gone': 1})", []),
        ("from giver.sub import A, B, every, wrapped\nA(b=1)\nB(gone=1)\nevery(gone=1)\nwrapped(gone=1)", []),
    ],
)
def test_an_argument_that_a_function_does_not_take(taker, found) -> None:
    sub = (
        "def f(a, *, b=1): pass\nclass A:\n    def __init__(self, b): pass\nclass B(A):\n    pass\n"
        "def every(**words): pass\n@d\ndef wrapped(): pass\n"
    )
    files = {"giver/__init__.py": "from .sub import f\n", "giver/sub.py": sub}
    assert [one.argument for one in proof(taker, files)] == found


@pytest.mark.parametrize(
    ("taker", "found"),
    [
        ("import imp", ["imp"]),
        ("import distutils.version", ["distutils"]),
        ("from collections import Mapping", ["collections.Mapping"]),
        ("import collections\nclass A(collections.Mapping): pass", ["collections.Mapping"]),
        ("import inspect as i\nx = i.getargspec(f)", ["inspect.getargspec"]),
        ("try:\n    import imp\nexcept ImportError:\n    import absent", ["absent"]),
        ("import collections, telnetlib\nif hasattr(collections, 'Mapping'):\n    collections.Mapping", []),
        (
            "try:\n    from collections import Mapping\nexcept ImportError:\n    from collections.abc import Mapping",
            [],
        ),
        ("import sys\nif sys.version_info < (3, 12):\n    import imp", []),
    ],
)
def test_what_this_python_has_no_more(taker, found) -> None:
    assert lacks(taker, "", whole=True) == found


def test_it_follows_what_is_executed_and_says_the_way() -> None:
    taker = {
        "taker/__init__.py": "from . import first\nfrom .second import *\ndef f():\n    import taker.never\n",
        "taker/first.py": "from taker.deep.inner import y\n",
        "taker/second.py": "try:\n    import taker.optional\nexcept ImportError:\n    pass\n",
        "taker/optional.py": "from giver import optional\n",
        "taker/never.py": "from giver import never\n",
        "taker/deep/__init__.py": "",
        "taker/deep/inner.py": "\n\nfrom giver.sub import gone\ny = 1\n",
    }
    (found,) = proof(taker, "x = 1\n")
    assert (found.path, found.line, found.lacked, found.giver) == (
        "taker/deep/inner.py",
        3,
        "giver.sub.gone",
        "giver",
    )
    assert found.chain == ("taker", "taker.first")


def test_one_wheel_may_lack_its_own_names() -> None:
    """That is no set that does not go together, and more often something that nobody saw."""
    assert lacks("from taker import gone\nimport taker.gone", "x = 1\n") == []


@pytest.mark.parametrize(
    ("test", "true", "false"),
    [
        ("sys.version_info >= (3, 8)", ~0xFF, 0xFF),
        ("sys.version_info[:2] == (3, 8)", 1 << 8, ~(1 << 8)),
        ("sys.version_info.minor < 8 and True", 0xFF, ~0xFF),
        ("sys.version_info > (3, 8, 1)", ~0x1FF, 0xFF),
        ("not TYPE_CHECKING or FLAG", ALWAYS, 0),
        ("FLAG or FLAG2", 0, 0),
        ("sys.version_info[0] >= 'x'", 0, 0),
        ("os.name == 'nt'", 0, ALWAYS),
        ("sys.version_info >= f()", 0, 0),
    ],
)
def test_tests_of_the_release(test, true, false) -> None:
    import ast

    answer = decided(ast.parse(test, mode="eval").body)
    assert answer == (true & ALWAYS, false & ALWAYS)


@pytest.mark.parametrize(
    "content",
    [
        b"x = " + b"(" * 5000 + b")" * 5000,
        b"x = " + b"+".join([b"a"] * 200_000),
        b"x = " + b"a" + b".b" * 100_000,
        b"\n".join(b" " * n + b"if x:" for n in range(500)),
        b"\0" * 100,
        b"\xff\xfe" * 1000,
        b"# coding: nonsense\nx = 1\n",
        b"x = 1\n" * (LARGEST // 6 + 1),
        b"print 'older'\n",
        b"\n".join(b"n%d = 1" % n for n in range(25_000)),
    ],
)
def test_a_source_that_is_no_module_is_unread_and_takes_no_time(content) -> None:
    start = time.process_time()
    assert names_of(content, "module", package=False) == UNREAD
    assert time.process_time() - start < 10


def test_a_wheel_of_100_000_modules_and_circles_take_no_time() -> None:
    paths = [f"taker/m{n}.py" for n in range(100_000)]
    start = time.process_time()
    assert len(wheel_files("taker", "1.0", paths).modules) == 100_000
    circle = {
        "giver/__init__.py": "from .a import *\n",
        "giver/a.py": "from .b import *\n",
        "giver/b.py": "from .a import *\n",
    }
    assert lacks("from giver import gone", circle) == ["giver.gone"]
    chain = {f"giver/c{n}.py": f"from .c{n + 1} import *\n" for n in range(300)}
    assert lacks("from giver import gone", {"giver/__init__.py": "from .c0 import *\n", **chain}) == []
    assert time.process_time() - start < 10


@pytest.mark.parametrize(
    "taker",
    [
        "import absent",
        "from absent.inner import name",
        "try:\n    import absent\nexcept ImportError:\n    raise",
    ],
)
def test_a_module_that_no_wheel_has_is_lacking_where_there_is_nothing_else(taker) -> None:
    """spaCy 3.8.2 takes click, which typer brought until it did no more."""
    (one,) = proof(taker, "", whole=True)
    assert (one.lacked, one.giver, one.taker) == ("absent", "", "taker")
    assert lacks(taker, "") == [], "a base may have it"


@pytest.mark.parametrize(
    ("taker", "more"),
    [
        ("import json, ssl, tomllib, importlib.metadata", {}),
        ("import imp, distutils", {"imp.py": "", "_distutils_hack/__init__.py": ""}),
        ("import _absent", {}),
        ("try:\n    import absent\nexcept ImportError:\n    absent = None", {}),
        ("def f():\n    import absent", {}),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import absent", {}),
        ("import absent", {"absent/data.txt": ""}),
        ("import absent", {"absent.cpython-312-x86_64-linux-gnu.so": ""}),
    ],
)
def test_a_module_that_may_be_there_is_not_lacking(taker, more) -> None:
    assert lacks(taker, "", more=more, whole=True) == []
