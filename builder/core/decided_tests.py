"""Tests, and other expressions, whose value the release of Python decides, or the wheels of a set."""

import ast
import operator
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from packaging.version import InvalidVersion, Version

from builder.core.module_syntax import called, last_name, names_in
from builder.core.module_values import ALWAYS, Expression
from builder.core.python_names import OF_PYTHON

_SIGNS: dict[type, str] = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Is: "is",
    ast.IsNot: "is not",
}
_COMPARES: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}

# -- by the release of Python

_IS_IN: dict[type, Callable[[Any, Any], bool]] = {
    ast.In: lambda one, other: one in other,
    ast.NotIn: lambda one, other: one not in other,
}
_IN_SETUP = re.compile(r"__[A-Z]+_SETUP__")
"""What NumPy's, SciPy's and scikit-learn's own setup.py sets, and nobody else."""


def decided(test: ast.expr, flags: Callable[[str], tuple[int, int]] = lambda _: (0, 0)) -> tuple[int, int]:
    """The Pythons on which a test is certainly true, and on which it is certainly false; ``flags``: those of
    a name."""
    if isinstance(test, ast.Constant):
        return (ALWAYS, 0) if test.value else (0, ALWAYS)
    if (name := last_name(test)) == "TYPE_CHECKING" or _IN_SETUP.fullmatch(name):
        return 0, ALWAYS
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        true, false = decided(test.operand, flags)
        return false, true
    if isinstance(test, ast.BoolOp):
        return _together(test, flags)
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        return _compared(test.left, test.ops[0], test.comparators[0])
    return flags(test.id) if isinstance(test, ast.Name) else (0, 0)


def _together(test: ast.BoolOp, flags: Callable[[str], tuple[int, int]]) -> tuple[int, int]:
    every, some = ALWAYS, 0
    whole = isinstance(test.op, ast.And)
    for value in test.values:
        one, other = decided(value, flags)[:: 1 if whole else -1]
        every &= one
        some |= other
    return (every, some) if whole else (some, every)


def _compared(left: ast.expr, sign: ast.cmpop, right: ast.expr) -> tuple[int, int]:
    compares = _IS_IN.get(type(sign)) or _COMPARES.get(_SIGNS.get(type(sign), ""))
    if isinstance(left, ast.Constant) and isinstance(sign, ast.Eq | ast.NotEq):
        left, right = right, left
    try:
        wanted = ast.literal_eval(right)
    except ValueError:
        return 0, 0
    if compares is None:
        return 0, 0
    true = false = 0
    for minor in range(32):
        found = _of_python(left, minor)
        if found is None or _is_open(found, wanted):
            continue
        try:
            answer = compares(found, wanted)
        except TypeError:
            return 0, 0
        true, false = true | (answer << minor), false | ((not answer) << minor)
    return true, false


def _is_open(found: Any, wanted: Any) -> bool:
    """Whether a patch of the release decides."""
    if not isinstance(found, tuple) or not isinstance(wanted, tuple):
        return isinstance(found, tuple)
    return len(found) > 2 and len(wanted) > 2 and wanted[:2] == found[:2]


def _of_python(node: ast.expr, minor: int) -> Any:
    """The value that an expression has on Linux, with Python 3.``minor``; None if it is another one."""
    text = ast.unparse(node).removeprefix("_")
    version = (3, minor, 0, "final", 0)
    return {
        "sys.version_info": version,
        "sys.version_info[:2]": version[:2],
        "sys.version_info[0:2]": version[:2],
        "sys.version_info[0]": 3,
        "sys.version_info.major": 3,
        "sys.version_info[1]": minor,
        "sys.version_info.minor": minor,
        "sys.platform": "linux",
        "platform.system()": "Linux",
        "os.name": "posix",
    }.get(text)


# -- by the wheels of a set


class UnknownValueError(Exception):
    """The value of an expression is not known."""


_PARSERS = {"parse", "parse_version", "Version", "LooseVersion", "StrictVersion", "digit_version", "V"}
_PARTS = {"major", "minor", "micro", "release", "base_version", "public"}
_LEAVES = {"of", "installed", "library", "found", "result"}
_OF_PACKAGE = ("found", "installed")
"""Leaves that are not None if a module is there, and a distribution of its name."""
_UNKNOWN: Expression = ["?"]


def value(expression: Expression, leaf: Callable[[Expression], Any]) -> Any:
    """The value of an expression. ``leaf`` gives those that the set decides. Raises UnknownValueError."""
    kind, *parts = expression
    if kind in _LEAVES:
        return leaf(expression)
    match expression:
        case ["const", found]:
            answer: Any = tuple(found) if isinstance(found, list) else found
        case ["version", inner]:
            answer = _version(value(inner, leaf))
        case ["part", str(name), inner]:
            answer = getattr(_version(value(inner, leaf)), name)
        case ["first", int(count), inner]:
            answer = _first_numbers(value(inner, leaf), count)
        case ["not", inner]:
            answer = not value(inner, leaf)
        case ["all" | "any", *_]:
            answer = _all_or_any(kind == "all", parts, leaf)
        case [str(sign), one, other]:
            answer = _holds(sign, value(one, leaf), value(other, leaf))
        case _:
            raise UnknownValueError
    return answer


def _first_numbers(found: Any, count: int) -> tuple[int, ...]:
    parts = str(found).split(".")[:count]
    if not all(part.isdecimal() for part in parts):
        raise UnknownValueError
    return tuple(map(int, parts))


def _version(found: Any) -> Version:
    try:
        return found if isinstance(found, Version) else Version(found)
    except (InvalidVersion, TypeError):
        raise UnknownValueError from None


def _all_or_any(whole: bool, parts: Sequence[Expression], leaf: Callable[[Expression], Any]) -> bool:
    unknown = False
    for part in parts:
        try:
            if bool(value(part, leaf)) is not whole:
                return not whole
        except UnknownValueError:
            unknown = True
    if unknown:
        raise UnknownValueError
    return whole


def _holds(sign: str, one: Any, other: Any) -> bool:
    if sign in {"is", "is not"}:
        if one is not None and other is not None:
            raise UnknownValueError
        return (one is other) == (sign == "is")
    if isinstance(one, Version) or isinstance(other, Version):
        one, other = _version(one), _version(other)
    if type(one) is not type(other) or sign not in _COMPARES:
        raise UnknownValueError
    return _COMPARES[sign](one, other)


def asks(expression: Expression) -> bool:
    """Whether the wheels of a set decide it."""
    return expression[0] in _LEAVES or any(isinstance(one, list) and one and asks(one) for one in expression)


def settled(expression: Expression) -> tuple[int, int]:
    """The Pythons on which an expression that asks for no wheel is true, and on which it is false."""
    try:
        return (ALWAYS, 0) if value(expression, lambda _: None) else (0, ALWAYS)
    except UnknownValueError:
        return 0, 0


def leaves(expression: Expression) -> Iterator[Expression]:
    if expression and expression[0] in _LEAVES:
        yield expression
    else:
        for one in expression:
            if isinstance(one, list):
                yield from leaves(one)


class ExpressionReader:
    """Translates the expressions of a source. ``names``: the values of names; ``module``: the dotted names
    that a chain of names certainly stands for, empty if it may be another thing; ``shadowed``: whether the
    function, or the class, that the expression is in binds a name."""

    def __init__(
        self, module: Callable[[tuple[str, ...]], set[str]], shadowed: Callable[[str], bool]
    ) -> None:
        self.names: dict[str, Expression] = {}
        self.askers: set[str] = set()
        """Functions of the source that say whether the package of a name is installed."""
        self.module, self.shadowed = module, shadowed

    def read(self, node: ast.expr) -> Expression | None:
        answer: Expression | None = None
        match node:
            case ast.Constant(value=None | str() | int() | float() as constant):
                answer = ["const", constant]
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                known = [self.read(one) if isinstance(one, ast.Constant) else None for one in parts]
                if None not in known:
                    answer = ["const", [one[1] for one in known if one]]
            case ast.Name(id=name):
                answer = self.names.get(name) or self._of(node)
            case ast.Attribute(value=inner, attr=attribute):
                answer = self._attribute(node, inner, attribute)
            case ast.Call(args=[first, *_]):
                answer = self._call(node, first)
            case ast.Call(func=function, keywords=[]):
                chain = names_in(function)
                asked = bool(chain) and not self.shadowed(chain[0]) and _SAYS_WHETHER.match(chain[-1])
                answer = ["result", *chain] if asked else None
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                denied = self.read(operand)
                answer = ["not", denied] if denied is not None else None
            case ast.BoolOp(op=operator, values=values):
                every = [self.read(one) or _UNKNOWN for one in values]
                if any(one != _UNKNOWN for one in every):
                    answer = ["all" if isinstance(operator, ast.And) else "any", *every]
            case ast.Compare():
                answer = self._compare(node)
            case _:
                pass
        return answer

    def _of(self, node: ast.expr) -> Expression | None:
        chain = names_in(node)
        if chain and self.module(chain) and (len(chain) == 1 or chain[-1] in {"__version__", "VERSION"}):
            names = self.module(chain)
            ours = any(name.partition(".")[0] in OF_PYTHON for name in names)
            if not ours and all("version" in name.rpartition(".")[2].lower() for name in names):
                return ["of", *chain]
        return None

    def _attribute(self, node: ast.Attribute, inner: ast.expr, attribute: str) -> Expression | None:
        if attribute == "version" and isinstance(inner, ast.Call) and called(inner) == "get_distribution":
            first = inner.args[0] if inner.args else None
            return self._installed(inner, first) if isinstance(first, ast.Constant) else None
        if attribute in _PARTS and (found := self.read(inner)) is not None:
            return ["part", attribute, found]
        return self._of(node)

    def _call(self, node: ast.Call, first: ast.expr) -> Expression | None:
        name = called(node)
        if name in _PARSERS and len(node.args) == 1 and not node.keywords:
            inner = self.read(first)
            return ["version", inner] if inner is not None else None
        if (name == "version" or name in self.askers) and isinstance(first, ast.Constant):
            return self._installed(node, first)
        if name in FINDERS and isinstance(first, ast.Constant) and isinstance(first.value, str):
            return ["library", first.value]
        if name == "find_spec" and self.module(names_in(node.func)) == {"importlib.util.find_spec"}:
            text = first.value if isinstance(first, ast.Constant) else None
            return ["found", text] if isinstance(text, str) and text.isidentifier() else None
        if name == "tuple" and (found := _NUMBERS.fullmatch(ast.unparse(node))):
            inner = self.read(ast.parse(found["of"] or found["each"], mode="eval").body)
            return ["first", int(found["count"] or found["most"]), inner] if inner is not None else None
        return None

    def _installed(self, node: ast.Call, first: ast.Constant) -> Expression | None:
        if isinstance(node.func, ast.Name) and node.func.id in self.askers and isinstance(first.value, str):
            alone = len(node.args) == 1 and not node.keywords and not self.shadowed(node.func.id)
            every = [["is not", [kind, first.value], ["const", None]] for kind in _OF_PACKAGE]
            return ["all", *every] if alone and first.value.isidentifier() else None
        names = self.module(names_in(node.func))
        asked = bool(names) and names <= METADATA and isinstance(first.value, str)
        return ["installed", first.value] if asked else None

    def _compare(self, node: ast.Compare) -> Expression | None:
        sides = [self.read(one) for one in (node.left, *node.comparators)]
        signs = [_SIGNS.get(type(one)) for one in node.ops]
        every: list[Expression] = []
        for one, sign, other in zip(sides, signs, sides[1:], strict=False):
            known = one is not None and other is not None and sign is not None
            every.append([sign, one, other] if known else _UNKNOWN)
        if all(one == _UNKNOWN for one in every):
            return None
        return every[0] if len(every) == 1 else ["all", *every]


_NUMBERS = re.compile(
    r"tuple\(map\(int, (?P<of>[\w.]+)\.split\('\.'\)\[:(?P<count>\d)\]\)\)"
    r"|tuple\([\[(]?int\((?P<v>\w+)\) for (?P=v) in (?P<each>[\w.]+)\.split\('\.'\)\[:(?P<most>\d)\][\])]?\)"
)


METADATA = {
    f"{package}.{name}"
    for package, names in {
        "importlib.metadata": ("version", "distribution", "metadata"),
        "importlib_metadata": ("version", "distribution", "metadata"),
        "pkg_resources": ("get_distribution", "require"),
    }.items()
    for name in names
}
"""Functions that raise for a distribution that is not installed."""


def asks_for_package(own: ast.FunctionDef, module: Callable[[tuple[str, ...]], set[str]]) -> bool:
    """Whether a function's result is true if its first argument is the name of a module that is there and of
    a distribution that is installed, and false if there is no such module; as ``_is_package_available`` of
    transformers. ``module`` as that of :class:`ExpressionReader`.
    """
    args = own.args
    if len(args.args) != len(args.defaults) + 1 or args.posonlyargs or args.kwonlyargs or args.vararg:
        return False
    if args.kwarg or own.decorator_list:
        return False
    first, *others = (one.arg for one in args.args)
    try:
        for found in (True, False):
            names: dict[str, Any] = {}
            run = _PackageRun(first, names, found, module)
            names |= {name: run.value(one) for name, one in zip(others, args.defaults, strict=True)}
            answer = run.result(own.body)
            if answer not in ({True} if found else {False, None, ...}):
                return False
    except UnknownValueError:
        return False
    return True


class _PackageRun:
    """A run of a function whose argument ``first`` names a package that is ``found``, or is not.

    Each method raises UnknownValueError for what it does not know.
    """

    def __init__(
        self, first: str, names: dict[str, Any], found: bool, module: Callable[[tuple[str, ...]], set[str]]
    ) -> None:
        self.first, self.names, self.found, self.module = first, names, found, module

    def result(self, body: Sequence[ast.stmt]) -> Any:
        """What the statements return; ``...`` if they do not."""
        for statement in body:
            answer: Any = ...
            match statement:
                case ast.Expr(value=ast.Constant()):
                    pass
                case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id="logger")))):
                    pass
                case ast.Assign(targets=[ast.Name(id=name)], value=given) if name != self.first:
                    self.names[name] = self.value(given)
                case ast.If(test=test, body=then, orelse=other):
                    answer = self.result(then if self.value(test) else other)
                case ast.Try(body=tried, orelse=then, finalbody=[]):  # nothing raises that value() knows
                    answer = self.result([*tried, *then])
                case ast.Return(value=given) if given is not None:
                    return self.value(given)
                case _:
                    raise UnknownValueError
            if answer is not ...:
                return answer
        return ...

    def value(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=None | bool() | str() as found):
                return found
            case ast.Name(id=name) if name in self.names:
                return self.names[name]
            case ast.Compare(
                left=ast.Call(func=function, args=[ast.Name(id=asked)], keywords=[]),
                ops=[ast.IsNot()],
                comparators=[ast.Constant(value=None)],
            ) if asked == self.first and self.module(names_in(function)) == {"importlib.util.find_spec"}:
                return self.found
            case ast.Call(func=function, args=[ast.Name(id=asked)], keywords=[]) if (
                self.found and asked == self.first
            ):
                names = self.module(names_in(function))
                if names and names <= METADATA:
                    return "installed"
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return not self.value(operand)
            case _:
                pass
        raise UnknownValueError


FINDERS = {"find_library", "_find_library"}
_SAYS_WHETHER = re.compile(r"_?(?:is|has)_")
"""Functions that others call without arguments to know what is installed: ``is_triton_available()``."""
