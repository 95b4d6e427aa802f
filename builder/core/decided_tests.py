"""Tests, and other expressions, whose value the release of Python decides, or the wheels of a set; the names
that are bound in a module up to one of its statements, and what is known of each.
"""

import ast
import contextlib
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from packaging.version import InvalidVersion, Version

from builder.core.module_syntax import OWN_FOLDER, called, last_name, names_in, nodes_of
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
    never = (name := last_name(test)) == "TYPE_CHECKING" or _IN_SETUP.fullmatch(name)
    if never or isinstance(test, ast.Constant):
        return (ALWAYS, 0) if isinstance(test, ast.Constant) and test.value else (0, ALWAYS)
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        true, false = decided(test.operand, flags)
        return false, true
    if isinstance(test, ast.BoolOp):
        return _together(test, flags)
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        return _compared(test.left, test.ops[0], test.comparators[0])
    if isinstance(test, ast.Call):
        return _begins(test)
    return flags(test.id) if isinstance(test, ast.Name) else (0, 0)


def _begins(test: ast.Call) -> tuple[int, int]:
    """As of ``sys.platform.startswith("win")``."""
    match test:
        case ast.Call(func=ast.Attribute(value=on, attr="startswith"), args=[ast.Constant(value=str(begin))]):
            found = _of_python(ast.unparse(on).removeprefix("_"), 0)
            known = ALWAYS if isinstance(found, str) else 0
            return (known, 0) if known and found.startswith(begin) else (0, known)
        case _:
            return 0, 0


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
    text = ast.unparse(left).removeprefix("_")
    for minor in range(32 if text.startswith(("sys.", "platform.", "os.")) else 0):
        found = _of_python(text, minor)
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


def _of_python(text: str, minor: int) -> Any:
    """The value that an expression has on Linux, with Python 3.``minor``; None if it is another one."""
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
_LEAVES = {"of", "installed", "library", "found", "asked"}
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
            case ast.Call(args=args):
                answer = (self._call(node, args[0]) if args else None) or self._asked(node)
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
        if name == "version" and isinstance(first, ast.Constant):
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

    def _asked(self, node: ast.Call) -> Expression | None:
        """The call of a function that says whether something is there, with arguments written out."""
        chain = names_in(node.func)
        if not chain or self.shadowed(chain[0]) or not SAYS_WHETHER.match(chain[-1]):
            return None
        given = (*node.args, *(one.value for one in node.keywords))
        if not all(
            isinstance(one, ast.Constant) and isinstance(one.value, str | int | None) for one in given
        ):
            return None
        args = [one.value for one in node.args if isinstance(one, ast.Constant)]
        words = {one.arg: one.value.value for one in node.keywords if isinstance(one.value, ast.Constant)}
        return ["asked", list(chain), args, words] if None not in words else None

    def _installed(self, node: ast.Call, first: ast.Constant) -> Expression | None:
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


FINDERS = {"find_library", "_find_library"}
SAYS_WHETHER = re.compile(r"_?(?:is|has)_")
"""Functions that others call to know what is installed: ``is_triton_available()``."""


# -- names of a module

Target = tuple[str, str | None]
"""The module, and the name of it if it is none itself, that an import binds."""
_KEEP_FILLED = {"list", "tuple", "set", "sorted", "enumerate", "reversed", "dict", "iter"}


class Bindings:
    """The names of one module. ``globals_``: those that functions of it may bind."""

    def __init__(self, globals_: Iterable[str]) -> None:
        self.globals = frozenset(globals_)
        self.names = set(self.globals)
        """Every name that may be bound."""
        self.again: set[str] = set()
        """Names that are bound several times."""
        self.targets: dict[str, set[Target | None]] = {}
        """Imports that bind a name; None among them for any other way."""
        self.sure: dict[str, int] = {}
        """Pythons on which a name is bound by an import for certain, up to this statement."""
        self.shadows: list[set[str]] = []
        """Names of each class body, or function, that the statement is in."""
        self.possible = ALWAYS
        """The Pythons on which the statement may be executed: none below ``if TYPE_CHECKING``, or for another
        system."""
        self.only: dict[str, int] = {}
        """The Pythons on which a name may be bound."""
        self.values = ExpressionReader(self.dotted, self.is_shadowed)
        """Values that the wheels of a set decide."""
        self.flags: dict[str, tuple[int, int]] = {}
        """The Pythons on which a name that is bound once is true, and those on which it is false."""
        self.initial: dict[str, Expression | None] = {}
        """None or False, if a name is bound to it first; None for another first value."""
        self.versions: dict[str, str] = {}
        """Texts that begin as a version does."""
        self.filled: set[str] = set()
        """Names of lists and dictionaries that have something in them."""
        self.own_folders: set[str] = set()
        """Names of the folder that the module lies in."""
        self.lists_folder = False
        """Whether the module asks for the files in a folder."""

    def is_shadowed(self, name: str) -> bool:
        """Whether a class body, or a function, that the statement is in binds a name."""
        return any(name in names for names in self.shadows)

    def is_bound(self, name: str) -> bool:
        return name in self.names or self.is_shadowed(name)

    def once(self, name: str) -> bool:
        """Whether a name of the module is bound at one place alone."""
        return name not in self.again and name not in self.globals

    @contextlib.contextmanager
    def scope(self, names: set[str], values: dict[str, Expression]) -> Iterator[None]:
        """The statements of a class body, or of a function, that binds ``names``; ``values``: of others."""
        outer = self.values.names
        self.values.names = {name: one for name, one in outer.items() if name not in names} | values
        self.shadows.append(names)
        yield
        self.shadows.pop()
        self.values.names = outer

    def dotted(self, chain: tuple[str, ...]) -> set[str]:
        """The dotted names that ``first.second`` certainly is; more than one of imports that may fail."""
        first = chain[0] if chain else ""
        if not first or self.is_shadowed(first):
            return set()
        targets = self.targets.get(first, set())
        if not targets or None in targets or first in self.globals:
            return set()
        return {".".join((one[0], *((one[1],) if one[1] else ()), *chain[1:])) for one in targets if one}

    def forget(self, names: Iterable[str]) -> None:
        """Forget the values of names that are bound anew."""
        for name in names:
            self.values.names.pop(name, None)

    def bind(self, name: str, target: Target | None = None, pythons: int = 0) -> None:
        """Note that a name is bound; ``target``: by an import, on these Pythons for certain."""
        self.values.names.pop(name, None)
        if self.shadows:
            self.shadows[-1].add(name)
            return
        self.targets.setdefault(name, set()).add(target)
        if not self.possible:
            return
        self.flags.pop(name, None)
        self.filled.discard(name)
        self.again |= {name} & self.names
        self.only[name] = self.only.get(name, ALWAYS if name in self.names else 0) | self.possible
        self.names.add(name)
        if target is not None:
            self.sure[name] = self.sure.get(name, 0) | pythons

    def add(self, names: Iterable[str]) -> None:
        """Note names that something else than a statement binds."""
        for name in names:
            self.names.add(name)
            self.only[name] = ALWAYS

    def assign(self, statement: ast.Assign | ast.AugAssign, pythons: int) -> None:
        """Note what is known of the value of names that were bound."""
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        bound = [one.id for target in targets for one in nodes_of(target) if isinstance(one, ast.Name)]
        self.forget(bound)
        self.own_folders.difference_update(bound)
        if isinstance(statement, ast.AugAssign):
            return
        plain = [one.id for one in targets if isinstance(one, ast.Name)]
        if len(bound) == 1 and plain == bound:
            self._value(bound[0], statement.value)
        if len(targets) == 1 and plain and pythons == ALWAYS and self.possible and not self.shadows:
            known = decided(statement.value, self.flag_of)  # as of ``PY3 = sys.version_info[0] == 3``
            if plain[0] not in self.again and known != (0, 0):
                self.flags[plain[0]] = known
        if self.lists_folder and OWN_FOLDER.fullmatch(ast.unparse(statement.value)):
            self.own_folders |= set(plain)
        if not self.shadows and self.is_filled(statement.value):
            self.filled |= set(plain)

    def _value(self, name: str, value: ast.expr) -> None:
        known = self.values.read(value)
        if known is not None and name not in self.globals:
            self.values.names[name] = known
        elif not self.shadows:  # what the first call of a function finds
            nothing = known in (["const", None], ["const", False]) and name not in self.initial
            self.initial[name] = known if nothing else None
        if not self.shadows and isinstance(value, ast.Constant | ast.Name):
            text = known[1] if known is not None and known[0] == "const" else None
            if isinstance(text, str) and re.match(r"v?\d+(?:\.\d+)+", text):
                self.versions[name] = text

    def flag_of(self, name: str) -> tuple[int, int]:
        """The Pythons on which a name is certainly true, and on which it is certainly false."""
        known = self.once(name) and not self.is_shadowed(name)
        return self.flags.get(name, (0, 0)) if known else (0, 0)

    def is_filled(self, node: ast.expr) -> bool:
        """Whether a loop over it has a first turn."""
        match node:
            case ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.Set(elts=parts):
                found = any(not isinstance(one, ast.Starred) for one in parts)
            case ast.Constant(value=str(text)):
                found = bool(text)
            case ast.Dict(keys=keys):
                found = any(key is not None for key in keys)
            case ast.Name(id=name):
                found = name in self.filled and not self.is_shadowed(name)
            case ast.Call(func=ast.Attribute(value=on, attr=name)):
                found = name in {"items", "keys", "values", "copy"} and self.is_filled(on)
            case ast.Call(func=ast.Name(id="dict"), keywords=[*words], args=[]):
                found = any(one.arg is not None for one in words)
            case ast.Call(func=ast.Name(id="zip"), args=[_, *_] as parts):
                found = all(map(self.is_filled, parts))
            case ast.Call(func=ast.Name(id=name), args=[first, *_]):
                found = name in _KEEP_FILLED and self.is_filled(first)
            case _:
                found = False
        return found
