"""What a Python module defines, and what it takes from others when it is imported, read without running it.

A name that may be there counts as defined, and an import that may not happen is not demanded: what follows
from both, that a name is missing, holds whatever the module does.
"""

import ast
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from builder.core.lazy_names import MAKERS, names_given, names_gone, of_module

ALWAYS = (1 << 32) - 1
"""One bit for each Python 3.n: in which a statement is certainly executed."""
LARGEST = 2 << 20
"""Bytes of a module that is read."""
OF_PYTHON = sys.stdlib_module_names | {"asynchat", "asyncore", "compression", "distutils", "imp", "smtpd"}
"""Modules of the standard library, which come before a wheel's, of some Python or other."""
_MOST_NAMES = 20_000
_MOST_USES = 5_000

_QUIET_CALLS = {
    "Logger",
    "NewType",
    "NullHandler",
    "Path",
    "PurePath",
    "PytestTester",
    "TypeVar",
    "abspath",
    "dirname",
    "endswith",
    "files",
    "find_spec",
    "format",
    "getChild",
    "getLogger",
    "get_log",
    "get_logger",
    "getattr",
    "import_module",
    "isinstance",
    "join",
    "len",
    "logger",
    "partition",
    "print",
    "realpath",
    "replace",
    "resource_filename",
    "rpartition",
    "rsplit",
    "split",
    "startswith",
    "version",
    "warn",
}
"""Functions that take ``__name__`` and leave the module as it is."""
_STAYS = ("KeyError", "ValueError", "TypeError", "NameError", "OSError", "IOError", "IndexError")
"""Exceptions that are not raised for what is missing in another module."""
_RUNS_THROUGH = {"RLock", "Lock", "catch_warnings", "errstate", "nullcontext", "open"}
"""Context managers that let every exception through."""
_GLOBAL = re.compile(r"^[ \t]*global[ \t]+(\w+(?:[ \t]*,[ \t]*\w+)*)", re.MULTILINE)
_READS_GLOBALS = re.compile(r"\bglobals\(\)(?:\.get\(|\[\s*([\"'])\w+\1\s*\](?!\s*(?:[-+*/|&]?=[^=]|\[|\.)))")
_GLOBALS = re.compile(r"\bglobals\b")
_IN_SETUP = re.compile(r"__[A-Z]+_SETUP__")
"""What NumPy's, SciPy's and scikit-learn's own setup.py sets, and nobody else."""
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


class Taken(NamedTuple):
    """A module, or a name of it, that an import statement takes whenever it is executed."""

    line: int
    module: str
    name: str | None = None
    """None for ``import module``, ``*`` for all."""
    pythons: int = ALWAYS


class Used(NamedTuple):
    """``alias.first.second``, which is evaluated when the module is executed."""

    line: int
    alias: str
    chain: tuple[str, ...]
    pythons: int = ALWAYS


@dataclass(frozen=True, kw_only=True)
class ModuleNames:
    """One module; plain values, which JSON can hold."""

    names: frozenset[str] = frozenset()
    """Every name that may be defined in it, on whichever Python, star imports aside."""
    bound: Mapping[str, tuple[str, str | None]] = field(default_factory=dict)
    """Names that are bound by import statements alone, to one module or one name of it."""
    stars: tuple[str, ...] = ()
    """Modules of which it takes all names."""
    public: frozenset[str] | None = None
    """``__all__``, if it is a list of texts."""
    anything: bool = False
    """Whether it may have more names than those."""
    submodules: bool = False
    """Whether it may have more submodules than there are files."""
    lazy: bool = False
    """Whether what else it may have is named in its wheel's sources: a ``_LazyModule`` takes its place."""
    gone: frozenset[str] = frozenset()
    """Names for which it says itself that it has them no more."""
    gone_tables: tuple[tuple[str, str], ...] = ()
    """(module, name) of tables of more such names."""
    tables: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Its own tables of that kind, ``__name__ = {"text": ...}``."""
    taken: tuple[Taken, ...] = ()
    used: tuple[Used, ...] = ()

    def as_list(self) -> list[Any]:
        return [
            sorted(self.names),
            {name: list(target) for name, target in self.bound.items()},
            self.stars,
            None if self.public is None else sorted(self.public),
            int(self.anything),
            int(self.submodules),
            int(self.lazy),
            sorted(self.gone),
            self.gone_tables,
            dict(self.tables),
            self.taken,
            self.used,
        ]

    @classmethod
    def of_list(cls, values: Sequence[Any]) -> "ModuleNames":
        """Raises ValueError or TypeError for what :meth:`as_list` did not write."""
        names, bound, stars, public, anything, submodules, lazy, gone, gone_tables, tables, taken, used = (
            values
        )
        return cls(
            names=frozenset(names),
            bound={name: tuple(target) for name, target in bound.items()},
            stars=tuple(stars),
            public=None if public is None else frozenset(public),
            anything=bool(anything),
            submodules=bool(submodules),
            lazy=bool(lazy),
            gone=frozenset(gone),
            gone_tables=tuple((of, name) for of, name in gone_tables),
            tables={name: tuple(texts) for name, texts in tables.items()},
            taken=tuple(map(Taken._make, taken)),
            used=tuple(Used(line, alias, tuple(chain), pythons) for line, alias, chain, pythons in used),
        )


UNREAD = ModuleNames(anything=True, submodules=True)
"""A module of which nothing is known but that it is there."""


def names_of(content: bytes, module: str, *, package: bool) -> ModuleNames:
    """What is in a module's source; :data:`UNREAD` for what this Python does not parse, or not in bounds."""
    if len(content) > LARGEST:
        return UNREAD
    try:
        text = _decoded(content)
        reader = _Reader(module, text, package=package)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of others' escapes and comparisons
            tree = ast.parse(content)
        return reader.read(tree)
    except (SyntaxError, ValueError, LookupError, RecursionError, MemoryError):
        return UNREAD


def _decoded(content: bytes) -> str:
    """As text in which names can be looked for; the parser sees to the encoding."""
    return content.decode("utf-8", "replace")


class _Reader:
    """Walks the statements that an import executes."""

    def __init__(self, module: str, text: str, *, package: bool) -> None:
        self.package = module if package else module.rpartition(".")[0]
        self.names: set[str] = set()
        self.targets: dict[str, set[tuple[str, str | None] | None]] = {}
        self.sure: dict[str, int] = {}
        """Pythons on which a name is bound by an import for certain, up to this statement."""
        self.stars: list[str] = []
        self.public: set[str] | None = None
        self.public_known = True
        self.taken: list[Taken] = []
        self.used: dict[tuple[str, tuple[str, ...]], Used] = {}
        self.shadows: list[set[str]] = []
        self.postponed = False
        self.text = text
        self.globals = {
            name for found in _GLOBAL.finditer(text) for name in re.split(r"[ \t]*,[ \t]*", found[1])
        }
        self.names |= self.globals
        self.submodules = self.anything = self.lazy = False

    def texts(self, tree: ast.Module) -> None:
        """What the text alone tells, functions aside that :mod:`.lazy_names` knows."""
        lines = self.text.split("\n")
        text = self.text
        for node in of_module(tree.body):
            if isinstance(node, ast.FunctionDef) and node.name in {"__getattr__", "attach", "_attach"}:
                lines[node.lineno - 1 : node.end_lineno] = [""] * ((node.end_lineno or 0) - node.lineno + 1)
                text = "\n".join(lines)
        lazy = "sys.modules[__name__] = _LazyModule("
        self.lazy, text = lazy in text, text.replace(lazy, "(")
        if any(word in text for word in ("sys.modules", "meta_path", "__path__", "from sys import modules")):
            self.submodules = True
        self.anything |= (
            "sys.modules" in text
            or "f_globals" in text
            or ("globals" in text and len(_GLOBALS.findall(text)) != len(_READS_GLOBALS.findall(text)))
            or ("from sys import" in text and "modules" in text)
        )

    def read(self, tree: ast.Module) -> ModuleNames:
        self.texts(tree)
        self.block(tree.body, ALWAYS)
        gone, tables = set[str](), set[str]()
        if "__getattr__" in self.names:
            gone, tables = names_gone(tree, self.text)
            given = names_given(tree, self.text)
            self.anything |= given is None
            self.names |= given or set()
        if self.lazy:
            texts = (one.value for one in ast.walk(tree) if isinstance(one, ast.Constant))
            self.names |= {text for text in texts if isinstance(text, str) and text.isidentifier()}
        if len(self.names) > _MOST_NAMES:
            return UNREAD
        bound: dict[str, tuple[str, str | None]] = {}
        for name, targets in self.targets.items():
            only = next(iter(targets))
            if len(targets) != 1 or only is None or name in self.globals:
                continue
            if only[0].partition(".")[0] not in OF_PYTHON:
                bound[name] = only
        return ModuleNames(
            names=frozenset(self.names),
            bound=bound,
            stars=tuple(dict.fromkeys(self.stars)),
            public=frozenset(self.public) if self.public is not None and self.public_known else None,
            anything=self.anything,
            submodules=self.submodules,
            lazy=self.lazy,
            gone=frozenset(gone),
            gone_tables=tuple(
                (of, name) for one in sorted(tables) for of, name in [bound.get(one, ("", None))] if name
            ),
            tables=_written(tree),
            taken=tuple(dict.fromkeys(self.taken)),
            used=tuple(one for (alias, _), one in self.used.items() if alias in bound)[:_MOST_USES],
        )

    def block(self, body: Iterable[ast.stmt], pythons: int) -> None:
        for statement in body:
            _VISITS.get(type(statement), _Reader.plain)(self, statement, pythons)

    def name(self, name: str, target: tuple[str, str | None] | None = None, pythons: int = 0) -> None:
        if self.shadows:
            self.shadows[-1].add(name)
            return
        self.names.add(name)
        self.targets.setdefault(name, set()).add(target)
        if target is not None:
            self.sure[name] = self.sure.get(name, 0) | pythons

    def evaluate(self, expressions: Iterable[ast.expr | None], pythons: int) -> None:
        """Names that the expressions bind, attributes that they take, and calls that change the module."""
        for expression in expressions:
            if expression is None:
                continue
            if isinstance(expression, ast.Constant):
                continue
            for node in ast.walk(expression):
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del):
                    self.name(node.id)
                elif isinstance(node, ast.Call) and _changes_module(node):
                    if _called(node) == "_LazyModule" and self.lazy:
                        continue
                    self.anything = self.submodules = True
            if pythons:
                for line, alias, chain in _attributes(expression):
                    self.use(line, alias, chain, pythons)

    def use(self, line: int, alias: str, chain: tuple[str, ...], pythons: int) -> None:
        if any(alias in names for names in self.shadows):
            return
        where = pythons & self.sure.get(alias, 0)
        if where and (alias, chain) not in self.used:
            self.used[alias, chain] = Used(line=line, alias=alias, chain=chain, pythons=where)

    def plain(self, statement: ast.stmt, pythons: int) -> None:
        """A statement without statements in it; of one that is not known, nothing is demanded."""
        if isinstance(statement, ast.Assert) or not isinstance(statement, _PLAIN):
            self.anywhere(statement)
            return
        self.public_names(statement)
        self.evaluate(
            (part for part in ast.iter_child_nodes(statement) if isinstance(part, ast.expr)), pythons
        )

    def anywhere(self, statement: ast.AST) -> None:
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
                self.name(node.id)
            elif isinstance(node, ast.alias):
                self.name(node.asname or node.name.partition(".")[0])
            elif (text := getattr(node, "name", None)) and isinstance(text, str):
                self.name(text)
            elif isinstance(node, ast.MatchMapping) and node.rest:
                self.name(node.rest)

    def annotated(self, statement: ast.stmt, pythons: int) -> None:
        assert isinstance(statement, ast.AnnAssign)  # noqa: S101  # by its key below
        self.public_names(statement)
        self.evaluate([statement.value, statement.target], pythons)
        self.evaluate([statement.annotation], self.now(pythons))

    def now(self, pythons: int) -> int:
        """Where annotations are evaluated at once: not from Python 3.14 on."""
        return 0 if self.postponed else pythons & ((1 << 14) - 1)

    def public_names(self, statement: ast.stmt) -> None:
        """``__all__``, as far as it is put together of texts."""
        if self.shadows or not any(
            isinstance(node, ast.Name) and node.id == "__all__" for node in ast.walk(statement)
        ):
            return
        value: ast.expr | None = None
        if isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            value = statement.value if [_name(one) for one in targets] == ["__all__"] else None
        texts = _texts(value)
        if texts is None:
            self.public_known = False
        else:
            self.public = (self.public or set()) | texts

    def function(self, statement: ast.stmt, pythons: int) -> None:
        assert isinstance(statement, _FUNCTIONS)  # noqa: S101
        self.name(statement.name)
        args = statement.args
        self.evaluate([*statement.decorator_list, *args.defaults, *args.kw_defaults], pythons)
        every = [*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg]
        hints = [one.annotation for one in every if one is not None]
        self.evaluate([*hints, statement.returns], self.now(pythons))

    def class_(self, statement: ast.stmt, pythons: int) -> None:
        assert isinstance(statement, ast.ClassDef)  # noqa: S101
        self.name(statement.name)
        self.evaluate(
            [*statement.decorator_list, *statement.bases, *(one.value for one in statement.keywords)], pythons
        )
        inner = _stored(statement)
        self.shadows.append(inner)
        self.block(statement.body, pythons)
        self.shadows.pop()

    def if_(self, statement: ast.stmt, pythons: int) -> None:
        assert isinstance(statement, ast.If)  # noqa: S101
        self.evaluate([statement.test], pythons)
        true, false = decided(statement.test)
        self.block(statement.body, pythons & true)
        self.block(statement.orelse, pythons & false)

    def loop(self, statement: ast.stmt, pythons: int) -> None:
        if isinstance(statement, ast.For | ast.AsyncFor):
            self.evaluate([statement.iter], pythons)
            self.evaluate([statement.target], 0)
        elif isinstance(statement, ast.While):
            self.evaluate([statement.test], pythons)
        self.block((*statement.body, *statement.orelse), 0)  # type: ignore[attr-defined]

    def with_(self, statement: ast.stmt, pythons: int) -> None:
        assert isinstance(statement, ast.With | ast.AsyncWith)  # noqa: S101
        self.evaluate([one.context_expr for one in statement.items[:1]], pythons)
        self.evaluate([one.context_expr for one in statement.items[1:]], 0)
        self.evaluate([one.optional_vars for one in statement.items], 0)
        through = all(_called(one.context_expr) in _RUNS_THROUGH for one in statement.items)
        self.block(statement.body, pythons if through else 0)

    def try_(self, statement: ast.stmt, pythons: int) -> None:
        body: list[ast.stmt] = statement.body  # type: ignore[attr-defined]
        handlers: list[ast.ExceptHandler] = statement.handlers  # type: ignore[attr-defined]
        sure = pythons if all(map(_lets_through, handlers)) else 0
        self.block(body, sure)
        for handler in handlers:
            if handler.name:
                self.name(handler.name)
            self.block(handler.body, 0)
        self.block(statement.orelse, sure)  # type: ignore[attr-defined]
        self.block(statement.finalbody, pythons)  # type: ignore[attr-defined]

    def match(self, statement: ast.stmt, pythons: int) -> None:
        assert isinstance(statement, ast.Match)  # noqa: S101
        self.evaluate([statement.subject], pythons)
        for case in statement.cases:
            self.anywhere(case.pattern)
            self.block(case.body, 0)

    def import_(self, statement: ast.stmt, pythons: int) -> None:
        assert isinstance(statement, ast.Import)  # noqa: S101
        for one in statement.names:
            self.take(Taken(line=statement.lineno, module=one.name, pythons=pythons))
            first = one.name.partition(".")[0]
            self.name(one.asname or first, (one.name if one.asname else first, None), pythons)

    def import_from(self, statement: ast.stmt, pythons: int) -> None:
        assert isinstance(statement, ast.ImportFrom)  # noqa: S101
        module = self.absolute(statement)
        if statement.module == "__future__" and not statement.level:
            self.postponed |= any(one.name == "annotations" for one in statement.names)
        for one in statement.names:
            if one.name == "*":
                if module is None:
                    self.anything = True
                elif not self.shadows:
                    self.stars.append(module)
            else:
                self.name(one.asname or one.name, None if module is None else (module, one.name), pythons)
            if module is not None:
                self.take(Taken(line=statement.lineno, module=module, name=one.name, pythons=pythons))

    def absolute(self, statement: ast.ImportFrom) -> str | None:
        """The module that it names; None if it lies above the outermost package."""
        if not statement.level:
            return statement.module
        parts = self.package.split(".") if self.package else []
        kept = len(parts) - statement.level + 1
        if kept <= 0:
            return None
        return ".".join([*parts[:kept], *([statement.module] if statement.module else [])])

    def take(self, taken: Taken) -> None:
        if taken.pythons and taken.module.partition(".")[0] not in OF_PYTHON:
            self.taken.append(taken)


_PLAIN = (ast.Expr, ast.Assign, ast.AugAssign, ast.Return, ast.Raise, ast.Delete, ast.Pass, ast.Global)
_VISITS: dict[type, Callable[[_Reader, ast.stmt, int], None]] = {
    ast.AnnAssign: _Reader.annotated,
    ast.FunctionDef: _Reader.function,
    ast.AsyncFunctionDef: _Reader.function,
    ast.ClassDef: _Reader.class_,
    ast.If: _Reader.if_,
    ast.For: _Reader.loop,
    ast.AsyncFor: _Reader.loop,
    ast.While: _Reader.loop,
    ast.With: _Reader.with_,
    ast.AsyncWith: _Reader.with_,
    ast.Try: _Reader.try_,
    ast.TryStar: _Reader.try_,
    ast.Match: _Reader.match,
    ast.Import: _Reader.import_,
    ast.ImportFrom: _Reader.import_from,
}


def _written(tree: ast.Module) -> dict[str, tuple[str, ...]]:
    """``__name__ = {"text": ...}``, the keys."""
    found: dict[str, tuple[str, ...]] = {}
    for one in tree.body:
        name = _name(one.targets[0]) if isinstance(one, ast.Assign) else None
        if isinstance(one, ast.Assign) and isinstance(one.value, ast.Dict) and name and name.startswith("__"):
            keys = [key.value for key in one.value.keys if isinstance(key, ast.Constant)]
            found[name] = tuple(key for key in keys if isinstance(key, str))
    return found


def _name(node: ast.AST) -> str | None:
    """The last name of ``a.b.c``."""
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else None


def _called(node: ast.AST) -> str | None:
    return _name(node.func) if isinstance(node, ast.Call) else _name(node)


def _texts(node: ast.expr | None) -> set[str] | None:
    """The texts of a list or tuple of texts, also of several that are added."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = _texts(node.left), _texts(node.right)
        return None if left is None or right is None else left | right
    if not isinstance(node, ast.List | ast.Tuple):
        return None
    values = [one.value if isinstance(one, ast.Constant) else None for one in node.elts]
    return (
        {one for one in values if isinstance(one, str)} if all(isinstance(o, str) for o in values) else None
    )


def _stored(statement: ast.ClassDef) -> set[str]:
    """Names that a class body may bind."""
    found: set[str] = set()
    stack: list[ast.AST] = list(statement.body)
    while stack:
        node = stack.pop()
        if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, ast.Name):
            if not isinstance(node.ctx, ast.Load):
                found.add(node.id)
        elif isinstance(node, ast.alias):
            found.add(node.asname or node.name.partition(".")[0])
        elif not isinstance(node, ast.Constant):
            stack += ast.iter_child_nodes(node)
    return found


def _changes_module(call: ast.Call) -> bool:
    """Whether a call, executed on import, may add names to the module or take its place."""
    name = _called(call)
    if name in {"exec", "eval", "locals"} or (name == "vars" and not call.args):
        return True
    given = (*call.args, *(one.value for one in call.keywords))
    own = any(
        isinstance(one, ast.Name) and one.id in {"__name__", "__package__", "__spec__"} for one in given
    )
    return own and name not in _QUIET_CALLS and name not in MAKERS


def _attributes(expression: ast.expr) -> Iterator[tuple[int, str, tuple[str, ...]]]:
    """(line, name, attributes) of every ``name.first.second`` that is certainly evaluated."""
    stack: list[ast.AST] = [expression]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Attribute):
            inner, chain = _chain(node)
            if isinstance(inner, ast.Name) and chain:
                yield node.lineno, inner.id, chain
            elif not isinstance(inner, ast.Name):
                stack.append(inner)
        else:
            stack += _evaluated(node)


def _chain(node: ast.expr) -> tuple[ast.expr, tuple[str, ...]]:
    """``a.b.c`` as ``a`` and the attributes that are read of it."""
    chain: list[str] = []
    while isinstance(node, ast.Attribute):
        if isinstance(node.ctx, ast.Load):
            chain.append(node.attr)
        node = node.value
    return node, tuple(reversed(chain))


def _evaluated(node: ast.AST) -> Iterable[ast.AST]:
    """The parts of an expression that are evaluated whenever it is."""
    if isinstance(node, ast.BoolOp):
        return node.values[:1]
    if isinstance(node, ast.IfExp):
        return [node.test]
    if isinstance(node, ast.Compare):
        return [node.left, node.comparators[0]]
    if isinstance(node, _COMPREHENSIONS):
        return [node.generators[0].iter]
    if isinstance(node, ast.Lambda):
        return [one for one in (*node.args.defaults, *node.args.kw_defaults) if one is not None]
    return ast.iter_child_nodes(node)


def _lets_through(handler: ast.ExceptHandler) -> bool:
    """Whether what is missing ends the import nevertheless."""
    if handler.body and isinstance(handler.body[-1], ast.Raise):
        # nothing before it leaves the handler another way: it is no loop's and no function's
        return not any(isinstance(n, ast.Return | ast.Continue | ast.Break) for n in ast.walk(handler))
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return all(isinstance(one, ast.Name) and one.id in _STAYS for one in kinds)


def decided(test: ast.expr) -> tuple[int, int]:
    """The Pythons on which a test is certainly true, and on which it is certainly false."""
    if isinstance(test, ast.Constant):
        return (ALWAYS, 0) if test.value else (0, ALWAYS)
    if (name := _name(test)) is not None and (name == "TYPE_CHECKING" or _IN_SETUP.fullmatch(name)):
        return 0, ALWAYS
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        true, false = decided(test.operand)
        return false, true
    if isinstance(test, ast.BoolOp):
        return _together(test)
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        return _compared(test.left, test.ops[0], test.comparators[0])
    return 0, 0


def _together(test: ast.BoolOp) -> tuple[int, int]:
    every, some = ALWAYS, 0
    whole = isinstance(test.op, ast.And)
    for value in test.values:
        one, other = decided(value) if whole else decided(value)[::-1]
        every &= one
        some |= other
    return (every, some) if whole else (some, every)


_COMPARES: dict[type, Callable[[Any, Any], bool]] = {
    ast.Lt: lambda one, other: one < other,
    ast.LtE: lambda one, other: one <= other,
    ast.Gt: lambda one, other: one > other,
    ast.GtE: lambda one, other: one >= other,
    ast.Eq: lambda one, other: one == other,
    ast.NotEq: lambda one, other: one != other,
    ast.In: lambda one, other: one in other,
    ast.NotIn: lambda one, other: one not in other,
}


def _compared(left: ast.expr, operator: ast.cmpop, right: ast.expr) -> tuple[int, int]:
    compares = _COMPARES.get(type(operator))
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
        "os.name": "posix",
    }.get(text)
