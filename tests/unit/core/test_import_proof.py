# ruff: noqa: E501  # sources of modules
"""The proof by imports on made-up wheels: what it decides, and all forms of which it says nothing."""

import ast
import json
import time
import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest

from builder.core import module_additions, module_expressions, module_runs, module_statements, module_syntax
from builder.core.decided_tests import decided
from builder.core.import_outcomes import Missing
from builder.core.import_proof import missing
from builder.core.import_set import ImportSet, wheel_files
from builder.core.module_additions import LARGEST
from builder.core.module_names import names_of
from builder.core.module_syntax import nodes_of
from builder.core.module_values import ALWAYS, UNREAD, Effects, ModuleNames

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
    wheels: dict[tuple[str, str], Files] | None = None,
    environment: dict[str, str] | None = None,
) -> list[Missing]:
    sources: dict[str, Files] = {
        "taker": {"taker/__init__.py": taker} if isinstance(taker, str) else taker,
        "giver": {"giver/__init__.py": giver, "giver/sub.py": "x = 1\n"} if isinstance(giver, str) else giver,
        "more": more or {},
    }
    made = [wheel_files(name, "1.0", files) for name, files in sources.items()]
    for (name, version), files in (wheels or {}).items():
        made.append(wheel_files(name, version, files))
        sources[name] = files
    by_name = {wheel.name: wheel for wheel in made}

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
        made,
        read,
        python,
        mentions=mentions,
        brings=lambda _, lacks: [False] * len(lacks),
        whole=whole,
        exporting=lambda wheel, folder, text: [
            module
            for module, path in by_name[wheel].modules.items()
            if module.startswith(f"{folder}.") and path and repr(text) in sources[wheel][path]
        ],
        environment=environment or {},
        library=lambda name: {"there": True, "there*": True, "libthere.so.1": True}.get(
            name, None if "unknown" in name or ".dll" in name else False
        ),
    )
    named = by_name["taker"]
    return list(missing(every, {"taker": named.roots}, {"taker": named.beside}))


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
        "L = [('x', 1)]\nT = {n: 1 for n, _ in L}\nL = [('gone', 1)]\ndef __getattr__(n):\n    if n in T:\n        raise AttributeError\n    return 1",
        "T = ['x']\ndef __getattr__(n):\n    if n in T:\n        return 1\n    raise AttributeError\nT = ['gone']",
        "L = [('x', 1)]\nif FLAG:\n    L = [('gone', 1)]\nT = {n: 1 for n, _ in L}\ndef __getattr__(n):\n    if n in T:\n        raise AttributeError\n    return 1",
        "L = [('gone', 1)]\nif FLAG:\n    L = [('x', 1)]\nT = {n: 1 for n, _ in L}\ndef __getattr__(n):\n    if n in T:\n        raise AttributeError\n    return 1",
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
        "x = (",
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
        "L = [('gone', 1)]\nT = {n: 'text' for n, _ in L}\nL = [('x', 1)]\ndef __getattr__(n):\n    if n in T:\n        raise AttributeError(T[n])\n    return 1",
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


@pytest.mark.parametrize(
    "giver",
    [
        "import importlib as i\nS = ['sub']\ndef __getattr__(n):\n    if n in S:\n        return i.import_module(f'giver.{n}')\n    raise AttributeError(n)",
        "def __getattr__(n):\n    if n in ['sub']:\n        return import_module('.' + n, __name__)\n    raise AttributeError(n)",
        "def __getattr__(n):\n    if n in ['sub']:\n        return import_module(__name__ + '.' + n)\n    raise AttributeError(n)",
        "def __getattr__(n):\n    if n == 'sub':\n        import giver.sub as sub\n        return sub\n    raise AttributeError(n)",
        "import lazy_loader as lazy\n__getattr__, _, _ = lazy.attach(__name__, ['sub'], {'sub': ['x']})",
    ],
)
def test_modules_that_a_package_gives_as_they_are_asked_for_are_known(giver) -> None:
    """As ``scipy.linalg``, for which SciPy's and NumPy's ``__getattr__`` import it."""
    files = {"giver/__init__.py": giver, "giver/sub.py": "x = 1\n"}
    for taker in ("import giver.sub\ngiver.sub.gone", "import giver\ngiver.sub.gone"):
        assert lacks(taker, files) == ["giver.sub.gone"]
    assert lacks("from giver import sub\n@sub.gone\ndef f(): pass", files) == ["giver.sub.gone"]
    assert lacks("import giver\ngiver.sub.x", files) == []
    inner = {**files, "giver/sub.py": "from taker import gone\n"}
    unasked = {**inner, "giver/__init__.py": ""}
    assert lacks("import giver\ntry:\n    giver.sub\nexcept AttributeError:\n    pass", unasked) == []
    assert lacks("from giver import sub", inner) == lacks("import giver\ngiver.sub", inner) == ["taker.gone"]


@pytest.mark.parametrize(
    "giver",
    [
        "def __getattr__(n):\n    if n in ['sub']:\n        return f(n)\n    raise AttributeError(n)",
        "def __getattr__(n):\n    if n in ['sub']:\n        return import_module(T[n])\n    raise AttributeError(n)",
        "def __getattr__(n):\n    if n in ['sub']:\n        return getattr(import_module(f'giver.{n}'), n)\n    raise AttributeError(n)",
        "import lazy_loader as lazy\n__getattr__, _, _ = lazy.attach(__name__, ['sub'], {'sub': ['sub']})",
        "from .other import sub\ndef __getattr__(n):\n    if n == 'sub':\n        import giver.sub as sub\n        return sub\n    raise AttributeError(n)",
    ],
)
def test_what_a_package_gives_by_the_name_of_a_module_may_be_another_thing(giver) -> None:
    files = {"giver/__init__.py": giver, "giver/sub.py": "x = 1\n", "giver/other.py": "sub = 1\n"}
    assert lacks("from giver import sub\nsub.gone", files) == []


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
        ("from giver import g\nx = g(1, gone=2)", ["gone"]),
        ("import giver.sub as s\ndef g(x=s.A(gone=1)): pass", ["gone"]),
        ("from giver.sub import f\nf(a=1)\nf(1)\nf(**{'gone': 1})\nf(*x)", []),
        ("from giver.sub import f\nf()", ["a"]),
        ("from giver.sub import f\n@f(b=2)\ndef g(): pass", ["a"]),
        ("from giver.sub import A\nA()", ["b"]),
        ("from giver.sub import asks\nasks(1)\nasks(1, 2, c=3)", ["c"]),
        ("from giver.sub import asks\nasks(1, 2, c=3)\nasks(2, c=3)", []),
        ("from giver.sub import A, B, every, wrapped\nA(b=1)\nB(gone=1)\nevery(gone=1)\nwrapped(gone=1)", []),
    ],
)
def test_an_argument_that_a_function_does_not_take(taker, found) -> None:
    sub = (
        "def f(a, *, b=1): pass\nclass A:\n    def __init__(self, b): pass\nclass B(A):\n    pass\n"
        "def every(**words): pass\n@d\ndef wrapped(): pass\ndef asks(a, b=1, *rest, c, d=2): pass\n"
    )
    files = {
        "giver/__init__.py": "from .sub import f\nif TYPE_CHECKING:\n    from .more import *\n"
        "def __getattr__(n):\n    if n == 'g':\n        return f(n)\n    raise AttributeError\n",
        "giver/sub.py": sub,
        "giver/more.py": "def g(a): pass\n",
    }
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
        b"x = 1\n" * (LARGEST // 6 + 1),
        b"\n".join(b"n%d = 1" % n for n in range(25_000)),
    ],
)
def test_a_source_that_is_no_module_is_unread_and_takes_no_time(content) -> None:
    start = time.process_time()
    found = names_of(content, "module", package=False)
    assert replace(found, executed=Effects()) == UNREAD
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


def ends(
    taker: str | Files, *, python: int = 12, wheels: dict[tuple[str, str], Files] | None = None
) -> list[str]:
    """What ends the import of ``taker`` by itself, beside these wheels."""
    return [one.ends for one in proof(taker, "", python=python, whole=True, wheels=wheels) if one.ends]


@pytest.mark.parametrize(
    ("more", "lacked"),
    [
        ("", ["giver._six"]),  # as PyTorch 2 lacks it, which puts the modules of devices there
        ("DEVICES = ['_six']\n", []),
        ("# in place of _six\n", []),
    ],
)
def test_a_module_that_a_package_never_says_is_none_that_it_adds(more, lacked) -> None:
    puts = "import sys\ndef add(name, module):\n    sys.modules['.'.join([__name__, name])] = module\n"
    files = {"giver/__init__.py": puts, "giver/other.py": more}
    found = proof("from giver._six import container_abcs\n", files, whole=True)
    assert [(one.lacked, one.doubt) for one in found] == [(name, True) for name in lacked]
    assert lacks("from giver._six import container_abcs\n", files) == []


STAR_OF_TWO = "_a = b = 1\n"


@pytest.mark.parametrize(
    ("star", "name", "is_lacking"),
    [
        (STAR_OF_TWO, "b", False),
        (STAR_OF_TWO, "_a", True),
        (STAR_OF_TWO + "__all__ = ['_a']\n", "_a", False),
        (STAR_OF_TWO + "__all__ = ['_a']\n", "b", True),
        (STAR_OF_TWO + "__all__ = f()\n", "_a", False),
        (STAR_OF_TWO + "globals().update(f())\n", "_a", False),
    ],
)
def test_a_star_brings_what_all_lists_or_no_name_that_begins_with_an_underscore(
    star, name, is_lacking
) -> None:
    """As of pymongo 4.9, whose ``pymongo.cursor`` takes all of another module."""
    files = {"giver/__init__.py": "from .star import *\n__all__ = ['b']\n", "giver/star.py": star}
    assert lacks(f"from giver import {name}\n", files) == ([f"giver.{name}"] if is_lacking else [])


@pytest.mark.parametrize("star", ["x = 1\n", "from . import core\n__all__ = ['x']\n"])
def test_a_module_is_executed_by_its_package_beside_a_star_that_brings_no_such_name(star) -> None:
    """As motor 3.5, whose package takes all of one module where tornado is, and another takes ``core`` of it."""
    taker = {
        "taker/__init__.py": "try:\n    import tornado\nexcept ImportError:\n    tornado = None\nelse:\n"
        "    from .star import *\nfrom . import user\n",
        "taker/star.py": star,
        "taker/user.py": "from . import core\n",
        "taker/core.py": "from giver import gone\n",
    }
    assert [(one.lacked, one.aside) for one in proof(taker, "x = 1\n")] == [("giver.gone", False)]


def test_a_name_that_a_star_brings_may_be_another_thing_than_the_module() -> None:
    taker = {
        "taker/__init__.py": "from .star import *\nfrom . import _user\n",
        "taker/star.py": "_core = core = 1\n",
        "taker/_user.py": "from . import core\n",
    }
    taker |= {"taker/core.py": "from giver import gone\n"}
    assert [(one.lacked, one.aside) for one in proof(taker, "x = 1\n")] == [("giver.gone", True)]


def test_a_name_with_which_a_submodule_is_meant_as_well_may_be_either() -> None:
    """As ``estimator`` of TensorFlow 1.14: another package, and a module beside it."""
    files = {"giver/__init__.py": "from giver.other import sub\n", "giver/other/__init__.py": ""}
    files |= {"giver/other/sub.py": "x = 1\n"}
    taker = "from giver import sub\nsub.gone\n"
    assert lacks(taker, files) == ["giver.other.sub.gone"]
    assert lacks(taker, files | {"giver/sub.py": "gone = 1\n"}) == []


FINDS = {
    "spec": "import importlib\ndef is_it_there():\n    return importlib.util.find_spec({!r}) is not None\n",
    "kept": "from importlib.util import find_spec\n_is = find_spec({!r}) is not None\ndef is_it_there():\n"
    "    'Whether it is there.'\n    return _is\n",
    "cached": "import functools\nfrom importlib import util\n@functools.lru_cache()\ndef is_it_there():\n"
    "    return util.find_spec({!r}) is not None and is_too()\ndef is_too():\n    return True\n",
    "passed on": "import importlib.util\ndef is_first():\n    return bool_ and True\n"
    "def is_second():\n    return importlib.util.find_spec({!r}) is not None\ndef is_it_there():\n"
    "    return is_second()\n",
}


@pytest.mark.parametrize("way", FINDS)
def test_what_a_function_says_that_looks_for_a_module_decides(way) -> None:
    """As bitsandbytes 0.44 does, which takes ``triton.ops`` where there is a Triton."""

    def lacked(name: str, test: str) -> list[str]:
        main = f"from taker.look import is_it_there\nif {test}:\n    from giver import gone\n"
        files = {"taker/__init__.py": main, "taker/look.py": FINDS[way].format(name)}
        return lacks(files, "here = 1\n", whole=True)

    assert lacked("giver", "is_it_there()") == ["giver.gone"]
    assert lacked("giver", "not is_it_there()") == []
    assert lacked("absent", "is_it_there()") == []
    assert lacked("absent", "not is_it_there()") == ["giver.gone"]


def test_a_name_below_a_test_that_the_set_decides_may_be_there() -> None:
    """As ``torch.distributed.ProcessGroup`` of PyTorch 1.13, below ``if is_available()``."""
    giver = "def is_on():\n    return hasattr(f(), 'x')\nif is_on():\n    from json import here\nelse:\n    other = 1\n"
    assert lacks("import giver\ngiver.here\ngiver.other\nfrom giver import here, other\n", giver) == []
    assert lacks("import giver\ngiver.gone\n", giver) == ["giver.gone"]


HAS = "import importlib.metadata\nimport importlib.util\ndef has(name, version=False):\n"
SPEC = "    there = importlib.util.find_spec(name) is not None\n"
HAS_PACKAGE = {
    "version": HAS + SPEC + "    told = 'N/A'\n    if there:\n        try:\n"
    "            told = importlib.metadata.version(name)\n        except E:\n            there = False\n"
    "        logger.debug(f'{told}')\n    if version:\n        return there, told\n    else:\n        return there\n",
    "metadata": HAS
    + SPEC
    + "    if there:\n        try:\n            _ = importlib.metadata.metadata(name)\n"
    "            return True\n        except importlib.metadata.PackageNotFoundError:\n            return False\n",
}
HAS_NOT_SAID = {
    "more": HAS + SPEC + "    there = f(there)\n    return there\n",
    "anew": HAS_PACKAGE["version"] + "def has(name):\n    return f()\n",
    "raises": HAS + SPEC + "    try:\n        f()\n    except E:\n        there = False\n    return there\n",
}


@pytest.mark.parametrize("way", [*HAS_PACKAGE, *HAS_NOT_SAID])
def test_a_function_that_says_whether_a_package_is_installed_decides(way) -> None:
    """As transformers 4.45 does, which takes ``quantize_`` of torchao where there is a torchao."""

    def lacked(name: str, test: str) -> list[str]:
        says = f"_has = has({name!r})\ndef is_there():\n    return _has\n"
        main = f"from taker.look import is_there\nif {test}:\n    from giver import gone\n"
        look = (HAS_PACKAGE | HAS_NOT_SAID)[way] + says
        return lacks(
            {"taker/__init__.py": main, "taker/look.py": look},
            "here = 1\n",
            more={"other_name/__init__.py": ""},
            whole=True,
        )

    known = way in HAS_PACKAGE
    assert lacked("giver", "is_there()") == (["giver.gone"] if known else [])
    assert lacked("giver", "not is_there()") == []
    assert lacked("absent", "is_there()") == []
    assert lacked("absent", "not is_there()") == (["giver.gone"] if known else [])
    assert lacked("other_name", "is_there()") == []
    assert lacked("other_name", "not is_there()") == (["giver.gone"] if way == "metadata" else [])


LAZY = """
import sys
from typing import TYPE_CHECKING
from .look import OptionalDependencyNotAvailable, _LazyModule, is_one_available

_import_structure = {"plain": ["Plain"], "both": ["First"]}
_dummies = {}
try:
    if not is_one_available():
        raise OptionalDependencyNotAvailable()
except OptionalDependencyNotAvailable:
    from . import dummies
    _import_structure["dummies"] = [name for name in dir(dummies) if not name.startswith("_")]
    _dummies.update({"Set": dummies.Set})
else:
    _import_structure["model"] = ["Model"]
    _import_structure["both"].append("Second")
    _import_structure["set"] = ["Set"]
if TYPE_CHECKING:
    from .model import Model
else:
    sys.modules[__name__] = _LazyModule(__name__, globals()["__file__"], _import_structure, extra_objects={"own": 1})
    for name, value in _dummies.items():
        setattr(sys.modules[__name__], name, value)
"""
LOOK = """
import importlib.util
import importlib.metadata
import os
ON = {{"1", "AUTO"}}
USE = os.environ.get("USE_ONE", "AUTO").upper()
_one = False
if USE in ON.union({{"YES"}}):
    _one = importlib.util.find_spec("one") is not None
    if _one:
        try:
            _version = importlib.metadata.version("one")
            logger.info(f"one {{_version}}")
        except importlib.metadata.PackageNotFoundError:
            _one = False
def is_one_available():
    return {}
"""
BREAKS = "from giver import gone\n"


def lazy(
    name: str, *, said: str = "_one", one: bool = True, environment: dict[str, str] | None = None
) -> list[str]:
    """What ``from lazy import name`` lacks: modules that lack something are model, both and set."""
    files = {
        "lazy/__init__.py": LAZY,
        "lazy/look.py": LOOK.format(said),
        "lazy/plain.py": "Plain = own = Unlisted = 1\n",
        "lazy/both.py": "First = 1\n" + BREAKS,
        "lazy/model.py": "Model = 1\n" + BREAKS,
        "lazy/set.py": "Set = 1\n" + BREAKS,
        "lazy/dummies.py": "Model = Second = Set = 1\n",
    }
    wheels: dict[tuple[str, str], Files] = {("lazy", "1.0"): files}
    wheels |= {("one", "1.0"): {"one/__init__.py": ""}} if one else {}
    taker = f"from lazy import {name}\n"
    found = proof(taker, "here = 1\n", wheels=wheels, whole=True, environment=environment)
    return [f"{one.taking}: {one.lacked}" for one in found]


def test_a_lazy_module_imports_what_it_is_asked_for_alone() -> None:
    """As transformers and diffusers do, of which an import of the package executes nothing."""
    assert lazy("Plain") == lazy("own") == []
    assert lazy("First") == lazy("Second") == ["lazy.both: giver.gone"]
    assert lazy("Model") == ["lazy.model: giver.gone"]
    assert lazy("Set") == ["lazy.set: giver.gone"]
    assert lazy("both") == ["lazy.both: giver.gone"]


def test_of_what_is_not_installed_a_lazy_module_has_a_name_without_an_import() -> None:
    for name in ("Model", "Second", "Set"):
        assert lazy(name, one=False) == []
    assert lazy("First", one=False) == ["lazy.both: giver.gone"]


@pytest.mark.parametrize(
    ("said", "name"), [("_one", "Unlisted"), ("_other", "Unlisted"), ("_other", "Second")]
)
def test_a_lazy_module_lacks_what_its_tables_cannot_have(said, name, monkeypatch) -> None:
    without = LAZY.partition("    for name, value")[0]
    monkeypatch.setitem(globals(), "LAZY", without)
    assert lazy(name, said=said) == (["taker: lazy.Unlisted"] if said == "_one" else [])
    monkeypatch.setitem(globals(), "LAZY", without.replace('["First"]}', '["First"], **more}'))
    assert lazy(name, said=said) == []


def test_the_environment_of_the_image_decides_with_it() -> None:
    assert lazy("Model", environment={"USE_ONE": "0"}) == []
    assert lazy("Model", environment={"USE_ONE": "yes"}) == ["lazy.model: giver.gone"]


@pytest.mark.parametrize(
    "said", ["_other", "_one and f()", "importlib.util.find_spec(NAME)", "os.path.exists('x')"]
)
def test_a_name_of_a_backend_that_is_not_decided_is_not_followed(said) -> None:
    for name in ("Model", "Second", "Set"):
        assert lazy(name, said=said) == []


GREEDY = (
    "text = 'aaaaaaaa'\nfor one in range_:\n    text = text + text\n",
    "text = 'aaaaaaaa'\nfor one in range_:\n    text = text.replace('a', 'aaaaaaaa')\n",
    "text = '{:>1000000000}'.format('x')\n",
    "text = ['a', 'b']\nfor one in range_:\n    text.extend(text)\n",
    "text = ['a', 'b']\nfor one in range_:\n    text = text + text\n",
    "text = ['a']\nfor one in range_:\n    text.append([[a for a in range_] for b in range_])\n",
    "text = ['a']\nfor one in range_:\n    text.append(','.join(range_))\n",
    "text = 1\nfor one in range_:\n    text = text + text\n",
)


@pytest.mark.parametrize("greedy", GREEDY)
def test_a_source_that_makes_more_and_more_is_left_in_bounds(greedy, monkeypatch) -> None:
    monkeypatch.setattr(module_expressions, "_MOST_MADE", 100_000)
    names = str([f"name{number}" for number in range(3000)])
    text = f"range_ = {names}\n{greedy}def is_one_available():\n    return importlib.util.find_spec(text)\n"
    files = {
        "lazy/__init__.py": LAZY,
        "lazy/look.py": "import importlib.util\n" + text,
        "lazy/model.py": "Model = 1\n" + BREAKS,
    }
    tracemalloc.start()
    try:
        found = proof("from lazy import Model\n", "here = 1\n", wheels={("lazy", "1.0"): files}, whole=True)
        assert tracemalloc.get_traced_memory()[1] < 100_000_000
    finally:
        tracemalloc.stop()
    assert found == []


@pytest.mark.parametrize(
    ("module", "limit"), [(module_runs, "_MOST_STEPS"), (module_expressions, "_MOST_MADE")]
)
def test_what_comes_after_the_last_step_is_not_known(module, limit, monkeypatch) -> None:
    assert lazy("Model") == ["lazy.model: giver.gone"]
    monkeypatch.setattr(module, limit, 1)
    assert lazy("Model") == []


FOLDER = "from .look import _LazyModule, define_import_structure\nimport sys\n"
FOLDER += "sys.modules[__name__] = _LazyModule(__name__, __file__, define_import_structure(__file__))\n"


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("Model", ["lazy.modeling_x: giver.gone"]),
        ("Config", ["lazy.configuration_x: giver.gone"]),
        ("TFModel", []),
        ("Asks", []),
        ("Twice", []),
        ("Unsaid", ["taker: lazy.Unsaid"]),
        ("UnsaidFast", []),  # a release may give it by another name
    ],
)
def test_a_lazy_module_of_a_folder_takes_what_the_files_of_it_export(name, found) -> None:
    """As of transformers 4.46 on: by ``__all__``, and what the file's name and a decorator demand."""
    files = {
        "lazy/__init__.py": FOLDER,
        "lazy/look.py": LOOK.format("_one").replace("is_one", "is_torch")
        + "def is_tf_available():\n    return importlib.util.find_spec('tensorflow') is not None\n",
        "lazy/modeling_x.py": "__all__ = ['Model', 'Twice']\nModel = Unsaid = UnsaidFast = 1\n" + BREAKS,
        "lazy/modeling_tf_x.py": "__all__ = ['TFModel']\nTFModel = 1\n" + BREAKS,
        "lazy/modular_x.py": "__all__ = ['Model']\nModel = 1\n" + BREAKS,
        "lazy/configuration_x.py": "__all__ = ['Config', 'Asks', 'Twice']\nConfig = 1\n"
        "@requires(backends=('tf',))\nclass Asks: pass\n" + BREAKS,
    }
    wheels: dict[tuple[str, str], Files] = {("lazy", "1.0"): files, ("one", "1.0"): {"one/__init__.py": ""}}
    taker = f"from lazy import {name}\n"
    every = proof(taker, "here = 1\n", wheels=wheels, whole=True)
    assert [f"{one.taking}: {one.lacked}" for one in every if not one.aside] == found


IMPORTS = "import importlib\ndef __getattr__(name):\n"
ASKED = {
    "table": "_where = {'Name': '.sub', 'Other': '.more'}\n"
    + IMPORTS
    + "    if name in _where:\n        module = importlib.import_module(_where[name], __name__)\n"
    "        return getattr(module, name)\n    raise AttributeError(name)\n",
    "get": "_where = {'Name': 'sub', 'Other': 'more'}\n"
    + IMPORTS
    + "    module = _where.get(name)\n    if module is None:\n        raise AttributeError(name)\n"
    "    found = getattr(importlib.import_module(f'{__name__}.{module}'), name)\n"
    "    globals()[name] = found\n    return found\n",
    "name": "def __getattr__(name):\n    if name == 'Name':\n        from .sub import Name\n        return Name\n"
    "    if name == 'Other':\n        from . import more\n        return more.Other\n    raise AttributeError(name)\n",
    "attach": "import lazy_loader\n__getattr__, __dir__, __all__ = lazy_loader.attach(__name__, [], {'sub': ['Name'], 'more': ['Other']})\n",
}


@pytest.mark.parametrize("way", ASKED)
def test_what_a_getattr_imports_for_a_name_is_imported(way) -> None:
    files = {
        "lazy/__init__.py": ASKED[way],
        "lazy/sub.py": "Name = 1\n" + BREAKS,
        "lazy/more.py": "Other = 1\n",
    }
    wheels: dict[tuple[str, str], Files] = {("lazy", "1.0"): files}
    wheels |= {("lazy-loader", "0.4"): {"lazy_loader/__init__.py": "def attach(*a): pass\n"}}
    every = {
        name: proof(f"from lazy import {name}\n", "here = 1\n", wheels=wheels) for name in ("Name", "Other")
    }
    assert [one.taking for one in every["Name"]] == ["lazy.sub"]
    assert every["Other"] == proof("import lazy\n", "here = 1\n", wheels=wheels) == []
    used = proof("import lazy\nclass A(lazy.Name): pass\n", "here = 1\n", wheels=wheels)
    assert [one.taking for one in used] == ["lazy.sub"]
    tried = "try:\n    from lazy import Name\nexcept ImportError:\n    pass\n"
    assert proof(tried, "here = 1\n", wheels=wheels) == []


@pytest.mark.parametrize(
    "source",
    [
        "def __getattr__(name):\n    if f(name):\n        from .sub import Name\n        return Name\n",
        "def __getattr__(name):\n    try:\n        from .sub import Name\n    except ImportError:\n        return None\n",
        "Name = 1\ndef __getattr__(name):\n    from . import sub\n    return sub\n",
        "def __getattr__(name):\n    from . import sub\n    return sub\nfrom .more import *\n",
    ],
)
def test_what_a_getattr_may_import_is_not_followed(source) -> None:
    files = {"lazy/__init__.py": source, "lazy/sub.py": "Name = 1\n" + BREAKS, "lazy/more.py": "Name = 1\n"}
    wheels: dict[tuple[str, str], Files] = {("lazy", "1.0"): files}
    assert proof("from lazy import Name\n", "here = 1\n", wheels=wheels) == []


def test_functions_that_ask_each_other_decide_nothing() -> None:
    source = "def is_a():\n    return is_b()\ndef is_b():\n    return is_a()\nif is_a():\n    from giver import gone"
    assert lacks(source, "here = 1\n", whole=True) == []
    shadowed = "import importlib.util\ndef is_it():\n    return importlib.util.find_spec('giver')\n"
    call = "def f(is_it):\n    if is_it():\n        from giver import gone\nf(None)\n"
    assert lacks(shadowed + call, "here = 1\n", whole=True) == []


VERSIONED: dict[tuple[str, str], Files] = {
    ("one", "1.26.4"): {
        "one/__init__.py": "from .version import __version__\n",
        "one/version.py": "version = '1.26.4'\n__version__ = version\n",
    },
    ("two-lite", "2.2.0"): {
        "two/__init__.py": "from .version import *\n",
        "two/version.py": "__all__ = ['__version__']\n__version__ = '2.2.0'\n",
    },
    ("three", "3.10"): {"three/__init__.py": "__version__ = f()\n"},
    ("packaging", "24.0"): {"packaging/__init__.py": "", "packaging/version.py": "def parse(x): pass\n"},
    ("setuptools", "60.0"): {
        "pkg_resources/__init__.py": "def require(x): pass\ndef get_distribution(x): pass\n"
    },
}
PARSE = "from packaging.version import parse\n"
METADATA = "from importlib.metadata import PackageNotFoundError, version\n"


@pytest.mark.parametrize(
    "source",
    [
        PARSE
        + "import one\nif parse(one.__version__) < parse('2.0'):\n    raise ImportError('an older one')",
        PARSE
        + "from one import __version__ as v\nif not parse(v) >= parse('2.0') or FLAG:\n    raise ImportError",
        PARSE + "import three\nif parse(three.__version__).major != 2:\n    raise ImportError",
        "import one\nif tuple(map(int, one.__version__.split('.')[:2])) > (1, 21):\n    raise ImportError",
        "import one\nif tuple(int(n) for n in one.__version__.split('.')[:2]) > (1, 21):\n    raise ImportError",
        "import two\nleast, most = '1', 1\nmost = '2.2.0'\nv = digit_version(two.__version__)\nassert v >= digit_version('2.0.0rc4') and v < digit_version(most), 'another two'",
        "import one\nfrom packaging import version\ndef check():\n    least = '2'\n    if version.Version(one.__version__) < version.Version(least):\n        raise ImportError\ncheck()",
        METADATA + "__version__ = version('absent-one')",
        "import importlib.metadata as m\nm.version('absent')",
        METADATA
        + PARSE
        + "if parse(version('Two_Lite')) >= parse('2.2'):\n    raise RuntimeError('too new')",
        "import pkg_resources\npkg_resources.require('one>=2')",
        "from pkg_resources import get_distribution\nx = get_distribution('absent').version",
        "raise RuntimeError('install the other one')",
        "try:\n    import absent\nexcept ImportError:\n    if True:\n        raise OSError('install it')",
    ],
)
def test_a_check_of_its_own_that_the_set_does_not_pass(source) -> None:
    assert len(ends(source, wheels=VERSIONED)) == 1


@pytest.mark.parametrize(
    "source",
    [
        PARSE + "import one\nif parse(one.__version__) < parse('1.0'):\n    raise ImportError",
        "import three\nif three.__version__ < '3.9':\n    raise ImportError",
        PARSE + "import one\nif parse(one.__version__) < parse('2.0') and FLAG:\n    raise ImportError",
        PARSE + "import one\nif parse(one.__version__) < parse(LEAST):\n    raise ImportError",
        PARSE
        + "import one\nif f():\n    v = '1'\nelse:\n    v = '2'\nif parse(one.__version__) < parse(v):\n    raise E",
        PARSE
        + "import one\ntry:\n    v = one.__version__\nexcept E:\n    v = '9'\nif parse(v) < parse('2'):\n    raise E",
        PARSE
        + "import one\nv = '3'\nfor v in f():\n    pass\nif parse(one.__version__) < parse(v):\n    raise E",
        PARSE
        + "import one\nv = '3'\ndef f(v):\n    if parse(one.__version__) < parse(v):\n        raise E\nf('1')",
        PARSE + "import one as x\nx = f()\nif parse(x.__version__) < parse('2'):\n    raise E",
        METADATA + "version('one')\nversion(__name__)\nversion(f())",
        METADATA + "try:\n    v = version('absent')\nexcept PackageNotFoundError:\n    v = '0'",
        METADATA + "try:\n    v = version('absent')\nexcept Exception:\n    v = '0'",
        "import pkg_resources\npkg_resources.require('one>=1')",
        "def f():\n    raise ValueError\ntry:\n    f()\nexcept ValueError:\n    pass",
        "def f():\n    raise E\ntry:\n    f()\nexcept (OSError, E):\n    pass",
        "def f():\n    raise E\ndef g(x):\n    f()",
        "import sys\nif sys.platform == 'win32':\n    raise OSError",
    ],
)
def test_a_check_that_it_passes_or_of_which_nobody_knows(source) -> None:
    assert ends(source, wheels=VERSIONED) == []


def test_a_test_that_the_set_decides_shows_the_way() -> None:
    taker = (
        PARSE
        + "import one\nif parse(one.__version__) >= parse('{}'):\n    from one import {}\nelse:\n    from one import {}"
    )
    for least, names, found in (
        ("1.20", ("gone", "other"), ["one.gone"]),
        ("2", ("gone", "other"), ["one.other"]),
        ("2", ("gone", "version"), []),
    ):
        assert [one.lacked for one in proof(taker.format(least, *names), "", wheels=VERSIONED)] == found


TWO: dict[tuple[str, str], Files] = {
    ("pydantic", "2.5.0"): {
        "pydantic/__init__.py": "from .main import BaseModel\nfrom .fields import Field\n"
        "from .class_validators import root_validator, validator\n",
        "pydantic/main.py": "class BaseModel: pass\n",
        "pydantic/fields.py": "def Field(d=None, **k): pass\n",
        "pydantic/class_validators.py": "def root_validator(*a, **k): pass\ndef validator(*a, **k): pass\n",
        "pydantic/v1.py": "class BaseModel: pass\ndef Field(d=None, **k): pass\n",
    }
}
ONE = {("pydantic", "1.10.13"): next(iter(TWO.values()))}


@pytest.mark.parametrize(
    ("body", "is_refused"),
    [
        ("@root_validator\n    def f(cls, v): pass", True),
        ("@root_validator(allow_reuse=True)\n    def f(cls, v): pass", True),
        ("@root_validator(pre=True)\n    def f(cls, v): pass", False),
        ("@root_validator(skip_on_failure=True)\n    def f(cls, v): pass", False),
        ("@root_validator(**words)\n    def f(cls, v): pass", False),
        ("@validator('x')\n    def f(cls, v, field): pass", True),
        ("@validator('x')\n    def f(cls, v, values): pass", False),
        ("x: str = Field('a', regex='^a')", True),
        ("x: str = Field('a', regex=None)", False),
        ("x: int = Field(1, gt=0)\n    _y = 1\n    model_config = {}\n    def g(self): pass", False),
        ("x: int = 1\n    x = 2", False),
        ("x = 1", True),
        ("__root__: int", True),
    ],
)
def test_what_pydantic_2_refuses_of_a_model(body, is_refused) -> None:
    source = (
        f"from pydantic import BaseModel, Field, root_validator, validator\nclass A(BaseModel):\n    {body}"
    )
    assert bool(ends(source, wheels=TWO)) is is_refused
    assert ends(source, wheels=ONE) == []
    old = source.replace("pydantic import BaseModel, Field", "pydantic.v1 import BaseModel, Field")
    assert ends(old.replace("root_validator", "f").replace("validator", "f"), wheels=TWO) == []
    assert ends(f"try:\n    from pydantic.v1 import *\nexcept E:\n    pass\n{source}", wheels=TWO) is not None


@pytest.mark.parametrize(
    ("source", "pythons"),
    [
        ("def f(x: int | None): pass", range(7, 10)),
        ("import pathlib\nX = str | pathlib.Path", range(7, 10)),
        ("import giver\ndef f(x: giver.A | None, y: 'int | None', z: 1 | 2): pass", ()),
        ("from __future__ import annotations\ndef f(x: int | None): pass", ()),
        ("def f():\n    x: int | None = 1\nf()", ()),
        ("def f():\n    x = int | None\nf()", range(7, 10)),
        ("def f(x: list[int]): pass", (7, 8)),
        ("from collections.abc import Callable\nF = Callable[[int], int]", (7, 8)),
        ("list = f()\nlist[1]", ()),
        ("x = int | None if FLAG else 1", ()),
        ("import re\nre.compile('a(?i)b')", range(11, 15)),
        ("import re\nre.compile('a{99999999999999}(?i)b'), re.compile('[[a](?i:b)')", ()),
        (f"import re\nre.compile('{'(' * 3000}a{')' * 3000}(?i)')", ()),
        ("import re\nre.compile('(?i)b'), re.compile('a(?i:b)'), re.compile(' (?x)b', re.X)", ()),
        (
            "from dataclasses import dataclass\n@dataclass\nclass A: pass\n@dataclass\nclass B:\n    a: A = A()",
            range(11, 15),
        ),
        (
            "from dataclasses import dataclass\n@dataclass(frozen=True)\nclass A: pass\n@dataclass\nclass B:\n    a: A = A()",
            (),
        ),
        ("class A:\n    def __eq__(self, o): pass\nclass B:\n    a: A = A()", ()),
        ("import asyncio\nclass A(asyncio.TimeoutError, TimeoutError): pass", range(11, 15)),
        (
            "import asyncio, builtins\nclass TimeoutError(asyncio.TimeoutError, builtins.TimeoutError): pass",
            range(11, 15),
        ),
        (
            "import socket\nfrom asyncio import TimeoutError as T\nclass A(socket.timeout, T): pass",
            range(11, 15),
        ),
        ("import asyncio\nclass A(OSError, asyncio.TimeoutError): pass", range(11, 15)),
        ("class A(IOError, OSError): pass", range(7, 15)),
        (
            "import asyncio\nclass A(asyncio.TimeoutError, OSError): pass\nclass B(socket.timeout, TimeoutError): pass",
            (),
        ),
        ("import asyncio\nfrom giver import *\nclass A(asyncio.TimeoutError, TimeoutError): pass", ()),
        ("TimeoutError = f()\nimport asyncio\nclass A(asyncio.TimeoutError, TimeoutError): pass", ()),
        (
            f"import types\nx = types.CodeType(c.co_argcount, 0, 0, 1, 2, c.co_code, {'1, ' * 9})",
            range(8, 15),
        ),
        (
            f"import types\nx = types.CodeType(c.co_argcount, 0, 0, 1, 1, 2, c.co_code, {'1, ' * 8})",
            (7, *range(11, 15)),
        ),
        (
            f"import types\nx = types.CodeType(c.co_argcount, 0, 0, 1, 1, 2, c.co_code, {'1, ' * 11})",
            range(7, 11),
        ),
        (f"import types\ndef f():\n    types.CodeType({'1, ' * 15})\nx = types.CodeType(*f)", ()),
        (
            f"import sys, types\nif sys.version_info[0] < 3:\n    P = 0\nelse:\n    P = 1\ndef f():\n    if P:\n        return types.CodeType({'1, ' * 13})\nf()",
            range(8, 15),
        ),
        (
            f"import types\nP = f()\nif P:\n    types.CodeType({'1, ' * 13})\nP = False\nif P:\n    types.CodeType(1)",
            (),
        ),
        ("import sys\nNEW = sys.version_info >= (3, 8)\nif NEW:\n    raise E", range(8, 15)),
        ("import sys\nNEW = sys.version_info >= (3, 8)\nNEW = f()\nif NEW:\n    raise E", ()),
        ("import sys\nNEW = True\ndef f():\n    if NEW:\n        raise E\nNEW = False\nf()", ()),
        ("from importlib import metadata\nX = metadata.entry_points().get('group', ())", range(12, 15)),
        (
            "try:\n    import importlib.metadata as m\nexcept ImportError:\n    import importlib_metadata as m\nfor x in m.entry_points().get('g', []):\n    pass",
            range(12, 15),
        ),
        ("from importlib.metadata import entry_points\nX = entry_points(group='group').get('name')", ()),
        ("import importlib_metadata as m\nX = m.entry_points().get('group', ())", ()),
        ("from importlib import metadata\nif f():\n    X = metadata.entry_points().get('group', ())", ()),
        ("print 'older'", range(7, 15)),
        ("if (x := 1): pass", (7,)),
        ("match x:\n    case 1: pass", (7, 8, 9)),
        ("x = (", (7, 8, 9, 10, 11)),
    ],
)
def test_what_a_release_of_python_refuses(source, pythons) -> None:
    assert [minor for minor in range(7, 15) if ends(source, python=minor)] == list(pythons)


IMPORTER = (
    "import sys\nclass Moves(object):\n    def __init__(self, name):\n        self.known = {{name + '.moves': 1}}\n"
    "    def {find}(self, name, path=None):\n        return self\n"
    "    def load_module(self, name):\n        sys.modules[name] = self.known[name]\n"
    "_importer = Moves(__name__)\n{more}sys.meta_path.append(_importer)\n"
)
"""As six gives ``six.moves``, before and since its 1.16."""


@pytest.mark.parametrize(
    ("find", "more", "is_asked"),
    [
        ("find_module", "__path__ = []\n", False),
        ("find_spec", "", True),
        ("find_module", "__path__.append(f())\n", True),
        ("find_module", "sys.modules[__name__ + '.moves'] = f()\n", True),
        ("find_module", "sys.meta_path.append(f())\n", True),
    ],
)
def test_an_importer_that_newer_pythons_do_not_ask(find, more, is_asked) -> None:
    finder = IMPORTER.format(find=find, more=more)
    for taker in ("import {}.moves.x", "from {}.moves import x"):
        own = {"taker/__init__.py": taker.format("taker.six"), "taker/six.py": finder}
        wheels = {("six", "1.15.0"): {"six.py": finder}}
        for python in (11, 12):
            found = proof(taker.format("six"), "", python=python, wheels=wheels)
            assert [one.giver for one in found if one.ends] == ["six"] * (python == 12 and not is_asked)
            assert len(ends(own, python=python)) == (python == 12 and not is_asked)
    assert ends("from six import moves", wheels=wheels) == []
    assert ends("try:\n    import six.moves\nexcept ImportError:\n    pass", wheels=wheels) == []
    itself = finder.replace("sys.meta_path.append(_importer)", "").replace(
        "    def load_module",
        "    def install(self):\n        sys.meta_path.append(self)\n    def load_module",
    )
    assert bool(ends("import six.moves", wheels={("six", "1"): {"six.py": itself}})) is not is_asked


STRICT = (
    "class Only:\n    def __init_subclass__(cls):\n        if Only in cls.__bases__:\n"
    "            left = set(cls.__dict__).difference({{'__module__', '__doc__'{more}}})\n"
    "            if left:\n                {then}\n"
)


@pytest.mark.parametrize(
    ("more", "then", "taker", "pythons"),
    [
        ("", "raise AssertionError(f'{left}')", "class A(Only): pass", range(13, 15)),
        ("", "raise E", "class A(B, Only[int] if 0 else Only): pass\nclass C(B): pass", ()),
        ("", "raise E", "def f():\n    class A(Only): pass", ()),
        ("", "print(left)", "class A(Only): pass", ()),
        (", '__firstlineno__', '__static_attributes__'", "raise E", "class A(Only): pass", ()),
        (", *MORE", "raise E", "class A(Only): pass", ()),
    ],
)
def test_a_class_that_takes_no_attributes_but_those_of_older_pythons(more, then, taker, pythons) -> None:
    """SQLAlchemy 2.0 before 2.0.31 has ``TypingOnly``."""
    files = {
        "taker/__init__.py": f"from .util import Only\n{taker}\n",
        "taker/util/__init__.py": "from .inner import Only as Only\n",
        "taker/util/inner.py": STRICT.format(more=more, then=then),
    }
    assert [minor for minor in range(7, 15) if ends(files, python=minor)] == list(pythons)


SOUNDFILE = (
    "from ctypes.util import find_library as _find_library\nimport sys as _sys\ntry:\n"
    "    _libname = _find_library('{}')\n    if _libname is None:\n        raise OSError('no sndfile')\n"
    "    _snd = _ffi.dlopen(_libname)\nexcept OSError:\n    if _sys.platform == 'darwin':\n"
    "        _libname = 'libsndfile.dylib'\n    else:\n        raise\n    _snd = f()\n"
)
SOUNDDEVICE = (
    "import sys as _sys\ntry:\n    for _libname in ('{}', 'bin/libportaudio-2.dll'):\n"
    "        _libname = _find_library(_libname)\n        if _libname is not None:\n            break\n"
    "    else:\n        raise OSError('no library')\nexcept OSError:\n    if _sys.platform == 'darwin':\n"
    "        x = 1\n    else:\n        raise\n"
)
CAIROCFFI = (
    "def dlopen(ffi, library_names, filenames):\n    for name in library_names:\n        x = find_library(name)\n"
    "    for name in filenames:\n        try:\n            return ffi.dlopen(name)\n        except OSError as e:\n"
    "            f(e)\n    raise OSError('no library')\n"
    "cairo = dlopen(ffi, ('unknown-2', '{}'), ('libunknown.so.2', 'unknown.dll'))\n"
)
MAGIC = (
    "import ctypes\nfrom ctypes.util import find_library\ndef _candidates():\n    yield find_library('{}')\n"
    "def load_lib():\n    for lib in _candidates():\n        if lib is None:\n            continue\n        try:\n"
    "            return ctypes.CDLL(lib)\n        except OSError:\n            pass\n    else:\n"
    "        raise ImportError('failed')\nlibmagic = load_lib()\n"
)
PYZBAR = {
    "taker/__init__.py": "from . import wrapper\n",
    "taker/wrapper.py": "from ctypes import CFUNCTYPE\nfrom . import zbar_library\nLIBZBAR = None\ndef load_libzbar():\n"
    "    global LIBZBAR\n    if not LIBZBAR:\n        libzbar, others = zbar_library.load()\n        LIBZBAR = libzbar\n"
    "    return LIBZBAR\ndef zbar_function(fname, restype, *args):\n    prototype = CFUNCTYPE(restype, *args)\n"
    "    return prototype((fname, load_libzbar()))\nzbar_version = zbar_function('zbar_version', f)\n",
    "taker/zbar_library.py": "import platform\nfrom ctypes.util import find_library\ndef load():\n"
    "    if 'Windows' == platform.system():\n        path = f()\n    else:\n        path = find_library('{}')\n"
    "        if not path:\n            raise ImportError('Unable to find zbar')\n    return path\n",
}
WAND = (
    "import ctypes\ndef paths():\n    for end in ('', '-6.Q16'):\n        yield find_library('{}' + end)\n"
    "def load():\n    for path in paths():\n        if path is None:\n            continue\n        try:\n"
    "            lib = ctypes.CDLL(path)\n        except OSError:\n            continue\n        return lib\n"
    "    raise IOError('cannot find library')\ntry:\n    lib = load()\nexcept (OSError, IOError):\n"
    "    for name in ('a', 'b'):\n        if f(name):\n            break\n    raise ImportError('not found')\n"
)
WEASYPRINT = (
    "def _dlopen(ffi, *names, allow_fail=False):\n    for name in names:\n        with suppress(OSError):\n"
    "            return ffi.dlopen(name)\n    if allow_fail:\n        return\n    return ffi.dlopen(names[0])\n"
    "x = _dlopen(ffi, '{}')\n"
)


@pytest.mark.parametrize(
    "source",
    [
        SOUNDFILE,
        SOUNDDEVICE,
        WEASYPRINT,
        CAIROCFFI,
        MAGIC,
        PYZBAR,
        WAND,
        "import ctypes\nx = ctypes.CDLL('lib{}.so.1')",
        "lib = find_library('{}')\nif not lib:\n    raise ImportError",
        "def load():\n    lib = find_library('{}')\n    if lib is None:\n        raise ImportError\nload()",
    ],
)
def test_a_library_that_is_opened_by_its_name(source) -> None:
    for name, count in (("absent", 1), ("there", 0), ("unknown", 0)):
        files = {"taker/__init__.py": source} if isinstance(source, str) else source
        every = proof({path: text.replace("{}", name) for path, text in files.items()}, "")
        assert len([one for one in every if not one.doubt]) == count


def test_a_library_that_may_be_opened_is_a_reservation() -> None:
    for source in (
        "def f():\n    ctypes.CDLL('libabsent.so.1')",
        "try:\n    x.dlopen('absent')\nexcept OSError:\n    pass",
    ):
        (one,) = proof(source, "")
        assert (one.doubt, "absent" in one.ends) == (True, True)


def test_a_module_beside_the_root_is_a_finding_of_its_own() -> None:
    taker = {
        "taker/__init__.py": "",
        "taker/inner.py": "from giver import gone\n",
        "taker/extra.py": "import absent\n",
        "taker/_own.py": "from giver import gone\n",
        "taker/tests/__init__.py": "from giver import gone\n",
    }
    (one,) = proof(taker, "", whole=True)
    assert (one.aside, one.path, one.lacked) == (True, "taker/inner.py", "giver.gone")


@pytest.mark.parametrize(
    ("more", "most"),
    [
        ({"taker/sub/__init__.py": "", "taker/sub/deep.py": "import taker.inner\n"}, "2 of 3"),
        ({"taker/sub/__init__.py": "import taker.inner\n", "taker/sub/deep.py": "x = 1\n"}, "3 of 4"),
        ({"taker/sub.py": "x = 1\n"}, ""),
        ({"taker/sub.py": "import absent\n"}, ""),
        ({"taker/tests/__init__.py": "import taker.inner\n", "taker/sub.py": "x = 1\n"}, ""),
        ({"taker/sub.py": "try:\n    import taker.inner\nexcept ImportError:\n    pass\n"}, ""),
    ],
)
def test_most_modules_of_a_package_that_cannot_be_imported_are_no_reservation(more, most) -> None:
    taker = {
        "taker/__init__.py": "",
        "taker/inner.py": "from giver import gone\n",
        "taker/other.py": "y = 1\n",
    }
    (one,) = proof(taker | more, "", whole=True)
    assert (one.aside, one.most, one.lacked) == (not most, most, "giver.gone")


@pytest.mark.parametrize(
    ("handler", "inner", "count"),
    [
        ("ImportError", "import giver\ngiver.gone\n", 1),
        ("ImportError", "from . import deep\n", 1),
        ("ImportError as e", "import collections\nx = collections.Mapping\n", 1),
        ("ImportError", "from giver import gone\n", 0),
        ("ImportError", "import absent, giver\ngiver.gone\n", 0),
        ("ImportError", "from . import older\nimport giver\ngiver.gone\n", 0),
        ("ImportError", "import giver\nif FLAG:\n    raise ImportError\ngiver.gone\n", 0),
        ("ImportError", "import giver\nctypes.CDLL('libunknown.so.1')\ngiver.gone\n", 0),
        ("(ImportError, AttributeError)", "import giver\ngiver.gone\n", 0),
        ("Exception", "import giver\ngiver.gone\n", 0),
    ],
)
def test_an_import_that_may_fail_for_want_of_a_module_ends_otherwise(handler, inner, count) -> None:
    """connexion 2.14 tries its module for Flask, which takes ``flask.json.JSONEncoder``."""
    taker = {
        "taker/__init__.py": f"try:\n    from . import inner\nexcept {handler}:\n    inner = None\n",
        "taker/inner.py": inner,
        "taker/deep.py": "import giver\ngiver.gone\n",
        "taker/older.py": "import absent\n",
    }
    found = [one for one in proof(taker, "", whole=True) if one.chain]
    assert len(found) == count


TRIES_A_NAME = "types = (bool,)\ntry:\n    import giver as g\n    types += (g.gone,)\nexcept {}:\n    pass\n"


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("import giver\n" + TRIES_A_NAME.format("ImportError"), [5]),
        (TRIES_A_NAME.format("ImportError") + "from giver import sub\n", [4]),
        (TRIES_A_NAME.format("ImportError"), []),
        ("import giver\n" + TRIES_A_NAME.format("(ImportError, AttributeError)"), []),
        ("import giver\n" + TRIES_A_NAME.format("Exception"), []),
        ("import giver\n" + TRIES_A_NAME.format("ImportError").replace("gone", "there"), []),
        ("import giver\n" + TRIES_A_NAME.format("ImportError").replace("types +=", "if f(): types +="), []),
        (
            "import giver\n"
            + TRIES_A_NAME.format("ImportError").replace("import giver as", "import absent as"),
            [],
        ),
    ],
)
def test_a_name_that_is_used_after_the_imports_of_a_try_is_lacking_to_the_import(source, lines) -> None:
    """bokeh 2.4 uses ``np.bool8`` so, and imports NumPy elsewhere, too: where no import tells whether the one
    of the ``try`` succeeds, an ImportError may come first."""
    giver = "there = 1\ndef __getattr__(name):\n    raise AttributeError(name)\n"
    assert [one.line for one in proof(source, giver)] == lines


def test_a_try_of_a_function_of_another_module_is_read_with_the_names_there() -> None:
    taker = {
        "taker/__init__.py": "import giver\nfrom .inner import known\nknown()\n",
        "taker/inner.py": "import giver as g\ndef known():\n    try:\n        import giver\n        g.gone\n    except ImportError:\n        pass\n",
    }
    assert [(one.path, one.line) for one in proof(taker, "")] == [("taker/inner.py", 5)]


_LOADED = """import os, importlib.util
def _load(name, path):
    importlib.util.spec_from_file_location(name, path).loader.exec_module(None)
def _discover():
    root = os.path.dirname(__file__)
    for name in os.listdir(root):
        if not os.path.isdir(os.path.join(root, name)):
            continue
        if name.startswith('__'):
            continue
        _load(name, os.path.join(root, name, 'driver.py'))
_discover()
"""


@pytest.mark.parametrize(
    ("init", "path", "is_lacking"),
    [
        (_LOADED, "taker/nvidia/driver.py", True),  # of Triton 3.0
        (_LOADED, "taker/driver.py", False),
        (_LOADED, "taker/__nvidia/driver.py", False),
        (_LOADED.replace("\n_discover()", ""), "taker/nvidia/driver.py", False),
        (_LOADED.replace("not os.path.isdir", "wanted"), "taker/nvidia/driver.py", False),
        (_LOADED.replace("dirname(__file__)", "join('/', 'else')"), "taker/nvidia/driver.py", False),
        (
            "import pkgutil, importlib\nfor _, name, _ in pkgutil.iter_modules(__path__):\n    importlib.import_module('.' + name, __name__)",
            "taker/one.py",
            True,
        ),
        (
            "import pkgutil, importlib\nfor _, name, _ in pkgutil.iter_modules(__path__):\n    importlib.import_module('other.' + name)",
            "taker/one.py",
            False,
        ),
        (
            "import os, importlib\nfor file in os.listdir(os.path.dirname(__file__)):\n    if file.endswith('.py') and not file.startswith('_'):\n        name = file[:-3]\n        importlib.import_module(f'taker.{name}')",
            "taker/one.py",
            True,
        ),
        (
            "import os, importlib\nfor file in os.listdir(os.path.dirname(__file__)):\n    if file.endswith('.py') and not file.startswith('_'):\n        importlib.import_module(f'{__name__}.{file[:-3]}')",
            "taker/one/__init__.py",
            False,
        ),
        (
            "import os, importlib\nfor file in os.listdir(os.path.dirname(__file__)):\n    if file.endswith('.py') and file != HIDDEN:\n        importlib.import_module(f'{__name__}.{file[:-3]}')",
            "taker/one.py",
            False,
        ),
        (
            "import os, importlib\nfor file in os.listdir(os.path.dirname(__file__)):\n    importlib.import_module(f'{__name__}.{file[:-3]}')",
            "taker/one.py",
            False,
        ),
    ],
)
def test_modules_that_a_package_finds_in_its_own_folder_are_executed(init, path, is_lacking) -> None:
    found = proof({"taker/__init__.py": init, path: "import nowhere_else"}, "", whole=True)
    assert [one.lacked for one in found if not one.aside] == (["nowhere_else"] if is_lacking else [])


def test_many_lacks_of_one_module_hide_none_of_another() -> None:
    files = {f"taker/m{number}.py": "import brought_later" for number in range(20)}
    files["taker/__init__.py"] = "".join(f"import taker.m{number}\n" for number in range(20))
    files["taker/m19.py"] = "import nowhere_else"
    found = proof(files, "", whole=True)
    assert {one.lacked for one in found} == {"brought_later", "nowhere_else"}


def test_each_module_that_no_wheel_has_is_told_once() -> None:
    """DGL 2.1 imports setuptools and pandas, of which its metadata names neither."""
    taker = {
        "taker/__init__.py": "import absent\nfrom . import data\n",
        "taker/data.py": "import absent, other.inner\nfrom other.inner import name\n",
    }
    assert lacks(taker, "", whole=True) == ["absent", "other"]


def test_of_several_outermost_modules_the_one_with_most_is_the_root() -> None:
    paths = ["official/__init__.py", "official/a.py", "official/b.py", "orbit/__init__.py"]
    files = wheel_files("tf-models-official", "2.19", paths)
    assert (files.roots, files.beside) == (("official",), ("official.a", "official.b", "orbit"))
    assert wheel_files("x", "1", ["a.py", "b.py"]).roots == ()


def test_a_name_for_type_checkers_alone_is_not_there() -> None:
    giver = {
        "giver/__init__.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .inner import *\n    x = 1\n",
        "giver/inner.py": "gone = 1\n",
    }
    assert lacks("from giver import gone", giver) == ["giver.gone"]
    assert lacks("from giver import x", giver) == ["giver.x"]
    both = {"giver/__init__.py": giver["giver/__init__.py"] + "else:\n    x = 2\n    gone = 3\n"}
    assert lacks("from giver import x, gone", both) == []


def test_a_maker_of_names_tells_which_are_gone() -> None:
    files = {
        "giver/__init__.py": "from .moves import move\n__getattr__ = move(__name__)\n",
        "giver/moves.py": MOVES,
    }
    wheels = [wheel_files("giver", "1.0", files)]
    every = ImportSet(
        wheels,
        lambda _, module: names_of(
            files[wheels[0].modules[module] or ""].encode(), module, package=module == "giver"
        ),
        12,
        mentions=lambda *_: None,
        brings=lambda _, lacks: [None] * len(lacks),
    )
    assert every.says_gone("giver", "gone")
    assert not every.says_gone("giver", "moved")


@pytest.mark.parametrize("paths", [("pkg/m.py", "pkg/m.pyc"), ("pkg/m.pyc", "pkg/m.py")])
def test_a_source_beside_its_compiled_bytes_is_read(paths: tuple[str, ...]) -> None:
    """tensorboardX 2.0 brings both of its generated modules."""
    assert wheel_files("pkg", "1.0", paths).modules == {"pkg.m": "pkg/m.py"}
    assert wheel_files("pkg", "1.0", ["pkg/m.pyc"]).modules == {"pkg.m": None}


def test_a_tree_is_walked_as_by_ast_but_for_contexts_and_operators() -> None:
    """Of sources of each kind of statement: this test's own, and those of the walk."""
    left_out = (ast.expr_context, ast.operator, ast.boolop, ast.unaryop, ast.cmpop)
    for file in (__file__, module_syntax.__file__, module_statements.__file__, ast.__file__):
        tree = ast.parse(Path(file).read_bytes())
        for start in (tree, *tree.body[:40]):
            assert nodes_of(start) == [one for one in ast.walk(start) if not isinstance(one, left_out)]


_TENSORFLOW = {
    "tensorflow/__init__.py": "import sys\nfrom tensorflow.python.util.lazy_loader import KerasLazyLoader\n"
    'setattr(sys.modules[__name__], "keras", KerasLazyLoader(globals()))\n__path__ = ["?"] + __path__\n',
    "tensorflow/python/__init__.py": "",
    "tensorflow/python/util/__init__.py": "",
    "tensorflow/python/util/lazy_loader.py": "class KerasLazyLoader:\n    pass\n",
}
_KERAS_3 = {
    "keras/__init__.py": "import os\nfrom keras.api import *\n"
    '__path__.append(os.path.join(os.path.dirname(__file__), "api"))\ndel os\n',
    "keras/api/__init__.py": "from keras.api import layers\n",
    "keras/api/layers/__init__.py": "Dense = 1\n",
    "keras/_tf_keras/__init__.py": "",
    "keras/_tf_keras/keras/__init__.py": "from keras._tf_keras.keras import layers\n",
    "keras/_tf_keras/keras/layers/__init__.py": "Dense = 1\n",
}
_OLD_KERAS = {
    f"tf_keras/{path}": "" for path in ("__init__.py", "api/__init__.py", "api/_v2/__init__.py")
} | {
    "tf_keras/api/_v2/keras/__init__.py": "from tf_keras.api._v2.keras import layers\n",
    "tf_keras/api/_v2/keras/layers/__init__.py": "Dense = LocallyConnected1D = 1\n",
}


@pytest.mark.parametrize(
    ("taker", "lacking"),
    [
        ("import tensorflow as tf\nclass A(tf.keras.layers.Dense): pass\n", ""),
        (
            "import tensorflow as tf\nclass A(tf.keras.layers.LocallyConnected1D): pass\n",
            "keras._tf_keras.keras.layers.LocallyConnected1D",
        ),
        (
            "from tensorflow import keras\n@keras.layers.deserialize\ndef f(): pass\n",
            "keras._tf_keras.keras.layers.deserialize",
        ),
        ("from tensorflow.keras.layers import Dense\nfrom tensorflow.keras import layers\n", ""),
        (
            "from tensorflow.keras.layers import LocallyConnected1D\n",
            "tensorflow.keras.layers.LocallyConnected1D",
        ),
        (
            "from tensorflow.keras.layers.experimental import preprocessing\n",
            "tensorflow.keras.layers.experimental",
        ),
        ("from keras.layers import Dense\nimport keras\nkeras.layers.Dense\n", ""),
        ("from keras.layers import Merge\n", "keras.layers.Merge"),
        ("import keras\nkeras.layers.Merge\n", "keras.api.layers.Merge"),
        ("from keras.utils.generic_utils import x\n", "keras.utils"),
        ("import tensorflow as tf\nif hasattr(tf.keras.layers, 'A'):\n    tf.keras.layers.A\n", ""),
        ("import tensorflow as tf\ntry:\n    tf.keras.layers.A\nexcept AttributeError:\n    pass\n", ""),
    ],
)
def test_tensorflow_takes_keras_3_from_the_wheel_of_keras(taker: str, lacking: str) -> None:
    wheels = {("tensorflow", "2.16.2"): _TENSORFLOW, ("keras", "3.3.3"): _KERAS_3}
    found = proof(taker, "", wheels=wheels, whole=True)
    assert [one.lacked for one in found] == ([lacking] if lacking else [])
    assert not found or found[0].giver == "keras"


def test_tensorflow_takes_the_old_keras_where_the_image_asks_for_it() -> None:
    taker = "import tensorflow as tf\nclass A(tf.keras.layers.LocallyConnected1D): pass\n"
    other = "from tensorflow.keras.layers import Merge\n"
    wheels = {("tensorflow", "2.16.2"): _TENSORFLOW, ("keras", "3.3.3"): _KERAS_3}
    old = {**wheels, ("tf-keras", "2.16.0"): _OLD_KERAS}
    asked = {"TF_USE_LEGACY_KERAS": "1"}
    assert proof(taker, "", wheels=old, whole=True, environment=asked) == []
    assert [one.giver for one in proof(other, "", wheels=old, whole=True, environment=asked)] == ["tf-keras"]
    assert len(proof(taker, "", wheels=old, whole=True)) == 1
    # a package may ask for it by itself
    asks = f"import os\nos.environ['TF_USE_LEGACY_KERAS'] = '1'\n{taker}"
    assert proof(asks, "", wheels=old, whole=True) == []
    # without the old one nothing is known
    assert proof(taker, "", wheels=wheels, whole=True, environment=asked) == []


@pytest.mark.parametrize(
    ("taker", "lacking"),
    [
        # the failure of the import binds no name, and the handler asks for one
        ("try:\n    import gone\n    gone.f()\nexcept gone.Error:\n    pass\n", ["gone"]),
        ("try:\n    import gone\nexcept (ValueError, gone.Error):\n    pass\n", ["gone"]),
        ("try:\n    import gone\nexcept ImportError:\n    pass\nexcept gone.Error:\n    pass\n", []),
        ("gone = None\ntry:\n    import gone\nexcept gone.Error:\n    pass\n", []),
        ("from giver import *\ntry:\n    import gone\nexcept gone.Error:\n    pass\n", []),
        ("try:\n    from gone import ImportError\nexcept ImportError:\n    pass\n", []),
        ("def f():\n    try:\n        import gone\n    except gone.Error:\n        pass\nf()\n", []),
        ("try:\n    import giver\n    import gone\nexcept giver.Error:\n    pass\n", []),
        (
            "try:\n    try:\n        import gone\n    except gone.Error:\n        pass\nexcept Exception:\n    pass\n",
            [],
        ),
    ],
)
def test_a_handler_that_asks_for_what_the_import_binds_gets_no_failure_of_it(
    taker: str, lacking: list[str]
) -> None:
    assert lacks(taker, "Error = ValueError\n", whole=True) == lacking


@pytest.mark.parametrize(
    ("giver", "python", "is_lacking"),
    [
        ("import sys\nif sys.version_info < (3, 9):\n    gone = 1\n", 12, True),
        ("import sys\nif sys.version_info < (3, 9):\n    gone = 1\n", 8, False),
        ("import sys\nif sys.platform.startswith('win'):\n    gone = 1\n", 12, True),
        ("import sys\nif sys.platform.startswith('lin'):\n    gone = 1\n", 12, False),
        ("import sys\nif sys.prefix.startswith('win'):\n    gone = 1\n", 12, False),
        (
            "import sys\nif sys.version_info >= (3, 9):\n    pass\nelse:\n    from os import path as gone\n",
            12,
            True,
        ),
        (
            "import sys\nif sys.version_info < (3, 9):\n    def gone(): pass\nif 1:\n    class gone: pass\n",
            12,
            False,
        ),
        (
            "import sys\nif sys.version_info < (3, 9):\n    gone = 1\nelif len(sys.argv):\n    gone = 2\n",
            12,
            False,
        ),
        ("import sys\nif sys.version_info < (3, 9):\n    gone = 1\nglobals()['gone'] = 2\n", 12, False),
        (
            "import sys\nif sys.version_info < (3, 9):\n    gone = 1\ndef f():\n    global gone\n    gone = 2\n",
            12,
            False,
        ),
        ("import sys\nif sys.version_info < (3, 9):\n    gone = 1\nfrom giver.sub import *\n", 12, True),
    ],
)
def test_a_name_that_is_bound_on_other_pythons_alone_is_lacking(giver, python, is_lacking) -> None:
    assert lacks("from giver import gone\n", giver, python=python) == ["giver.gone"] * is_lacking


def test_sources_are_parsed_if_a_function_adds_to_what_it_gets(monkeypatch) -> None:
    """Thousands of sources give a module to some function; one that adds names to it is rare."""
    parsed: list[str] = []
    real = module_additions.additions

    def additions(content: bytes, module: str, *, package: bool = False) -> module_additions.Additions | None:
        parsed.append(module)
        return real(content, module, package=package)

    monkeypatch.setattr(module_additions, "additions", additions)
    sources = {
        "giver/__init__.py": b"",
        "giver/core.py": b"",
        "giver/other.py": b"from giver import core\nprint(1, core)\n",
        "giver/user.py": b"from giver import core\nfrom giver.filling import fill\nfill(core)\n",
    }
    files = wheel_files("giver", "1.0", [*sources, "giver/filling.py"])
    lack = ("giver.core", "old", "giver")
    assert module_additions.brought(sources.items(), [lack], files) == {lack: False}
    assert parsed == []
    filling = b"def fill(module):\n    for name in NAMES:\n        setattr(module, name, 1)\n"
    sources["giver/filling.py"] = filling
    assert module_additions.brought(sources.items(), [lack], files) == {lack: True}
    assert sorted(parsed) == ["giver.filling", "giver.user"]
