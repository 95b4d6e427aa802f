"""The names that a Python module defines, and those that it takes from others when it is imported, read
without running it.

A name that may be there counts as defined, and an import that may not happen is not demanded: what follows
from both, that a name is missing, holds whatever the module does.
"""

import ast
import builtins
import re
import sys
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from builder.core import python_names
from builder.core.lazy_names import (
    MAKERS,
    maker_of,
    names_given,
    names_gone,
    names_made,
    of_module,
    own_names,
)
from builder.core.module_additions import LARGEST, additions_of, old_finders
from builder.core.module_ends import (
    ALWAYS,
    METADATA,
    Ends,
    Expression,
    ExpressionReader,
    asks,
    before,
    counts_attributes,
    handled,
    has_no_hash,
    is_dataclass,
    lets_out,
    looked_for,
    mentioned,
    misplaced_flags,
    mutable_defaults,
    newest_syntax,
    opened,
    raised,
    refused_attributes,
    refused_bases,
    refused_code,
    refused_decorators,
    refused_field,
    settled,
    since,
    type_errors,
)
from builder.core.python_names import OF_PYTHON

_MOST_NAMES = 20_000
_MOST_USES = 5_000
_MOST_ENDS = 50
_NEW_SYNTAX = re.compile(
    r":=|^[ \t]*match\b|\bexcept[ \t]*\*|[(,]\s*/\s*[,)]|^[ \t]*type[ \t]+\w|^[ \t]*(?:def|class)[ \t]+\w+\[",
    re.MULTILINE,
)
"""In a source that may have a statement of Python 3.8 or newer."""
_OPENS = re.compile(r"\b(?:CDLL|PyDLL|LoadLibrary|dlopen|_?find_library)\b")
_RAISES = re.compile(r"\braise\s+(?:\w+\.)*(?:ImportError|ModuleNotFoundError)\b")
_TYPED = re.compile(r"\||\b(?:list|dict|tuple|set|frozenset|type)\[|\bcollections\b")

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
_GENERATED = re.compile(
    r"^\w+\.ValidateProtobufRuntimeVersion\(\s*\w+\.Domain\.PUBLIC,\s*(\d+),\s*(\d+),\s*(\d+),", re.MULTILINE
)
_OLD_DESCRIPTOR = re.compile(r"^_\w+ = _descriptor\.(?:Enum|Field)?Descriptor\($", re.MULTILINE)
BY_OLD_PROTOC = (3, 18, 0)
"""Stands for each protoc before 3.19, whose code makes descriptors by itself."""
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


class Called(NamedTuple):
    """``first.second(...)``, which is called when the module is executed."""

    line: int
    chain: tuple[str, ...]
    keywords: tuple[str, ...]
    """The arguments that are given by name."""
    pythons: int = ALWAYS


class Signature(NamedTuple):
    """The arguments of a function."""

    names: tuple[str, ...]
    any_keywords: bool
    """Whether it takes arguments of further names."""


class Guard(NamedTuple):
    """A ``try`` whose handlers may get an exception of its block."""

    tried: tuple[Taken, ...]
    """Imports. If one fails, the first handler gets its exception."""
    trial: "Effects"
    """The other effects of the block that may raise."""
    kinds: tuple[tuple[str, ...], ...]
    """Exceptions of each handler, by their names; ``*`` for all."""
    instead: "Effects"
    """The effects of the first handler."""


class DecidedTest(NamedTuple):
    """A test that the wheels of a set decide."""

    test: Expression
    true: "Effects"
    false: "Effects"


@dataclass(frozen=True, kw_only=True)
class Effects:
    """The names that executed statements take from elsewhere."""

    taken: tuple[Taken, ...] = ()
    used: tuple[Used, ...] = ()
    called: tuple[Called, ...] = ()
    guards: tuple[Guard, ...] = ()
    ends: tuple[Ends, ...] = ()
    branches: tuple[DecidedTest, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.taken or self.used or self.called or self.guards or self.ends or self.branches)

    def aliases(self) -> Iterator[str]:
        """Names whose attributes are used."""
        yield from (one.alias for one in self.used)
        for guard in self.guards:
            yield from (*guard.trial.aliases(), *guard.instead.aliases())
        for branch in self.branches:
            yield from (*branch.true.aliases(), *branch.false.aliases())

    def as_list(self) -> list[Any]:
        rows = [
            self.taken,
            self.used,
            self.called,
            [[one.tried, one.trial.as_list(), one.kinds, one.instead.as_list()] for one in self.guards],
            self.ends,
            [[one.test, one.true.as_list(), one.false.as_list()] for one in self.branches],
        ]
        return rows[: max((number for number, row in enumerate(rows, 1) if row), default=0)]

    @classmethod
    def of_list(cls, values: Sequence[Any]) -> "Effects":
        rows: list[Sequence[Any]] = [*values, *[()] * (6 - len(values))]
        taken, used, called, guards, ends, branches = rows
        return cls(
            taken=tuple(map(Taken._make, taken)),
            used=tuple(Used(line, alias, tuple(chain), pythons) for line, alias, chain, pythons in used),
            called=tuple(
                Called(line, tuple(chain), tuple(words), pythons) for line, chain, words, pythons in called
            ),
            guards=tuple(
                Guard(
                    tuple(map(Taken._make, tried)),
                    cls.of_list(trial),
                    tuple(map(tuple, kinds)),
                    cls.of_list(instead),
                )
                for tried, trial, kinds, instead in guards
            ),
            ends=tuple(
                Ends(line, kind, tuple(about), error, pythons) for line, kind, about, error, pythons in ends
            ),
            branches=tuple(
                DecidedTest(test, cls.of_list(true), cls.of_list(false)) for test, true, false in branches
            ),
        )


@dataclass(frozen=True, kw_only=True)
class ModuleNames:
    """One module; plain values, which JSON can hold."""

    names: frozenset[str] = frozenset()
    """Every name that may be defined in it, on whichever Python, star imports aside."""
    bound: Mapping[str, tuple[str, str | None]] = field(default_factory=dict)
    """Names that are bound by import statements alone, to one module or one name of it."""
    stars: tuple[str, ...] = ()
    """Modules of which it takes all names."""
    hidden: tuple[str, ...] = ()
    """The same, for type checkers alone."""
    public: frozenset[str] | None = None
    """``__all__``, if it is a list of texts."""
    anything: bool = False
    """Whether it may have more names than those."""
    submodules: bool = False
    """Whether it may have more submodules than there are files."""
    unfound: int = 0
    """The Pythons that find none of these, as they ask its own importer no more."""
    lazy: bool = False
    """Whether what else it may have is named in its wheel's sources: a ``_LazyModule`` takes its place."""
    gone: frozenset[str] = frozenset()
    """Names for which it says itself that it has them no more."""
    gone_tables: tuple[tuple[str, str], ...] = ()
    """(module, name) of tables of more such names."""
    tables: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Its own tables of that kind, ``__name__ = {"text": ...}``, and what functions of it let others give."""
    makers: tuple[tuple[str, str], ...] = ()
    """(module, function) of those that make what its ``__getattr__`` gives, as ``module:name``."""
    executed: Effects = Effects()
    """By an import of it."""
    functions: Mapping[str, Effects] = field(default_factory=dict)
    """By a call of these functions of it."""
    signatures: Mapping[str, Signature] = field(default_factory=dict)
    """Of functions and classes that are bound once, and that nothing wraps."""
    generated: tuple[int, int, int] | None = None
    """The protobuf that made it, ``BY_OLD_PROTOC`` for one before 3.19, if protobuf asks for that."""
    hashless: frozenset[str] = frozenset()
    """Classes whose objects have no hash."""
    strict: frozenset[str] = frozenset()
    """Classes that refuse a class of them for the attributes that Python 3.13 gives it."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Names that are bound once, to a text that begins as a version does."""
    raises: bool = False
    """Whether it raises an ImportError somewhere by itself."""
    opens: frozenset[str] = frozenset()
    """Libraries that it may open by these names, whether or not on import."""

    def as_list(self) -> list[Any]:
        return [
            sorted(self.names),
            {name: list(target) for name, target in self.bound.items()},
            self.stars,
            self.hidden,
            None if self.public is None else sorted(self.public),
            int(self.anything),
            int(self.submodules),
            self.unfound,
            int(self.lazy),
            sorted(self.gone),
            self.gone_tables,
            dict(self.tables),
            self.makers,
            self.executed.as_list(),
            {name: body.as_list() for name, body in self.functions.items()},
            dict(self.signatures),
            self.generated,
            sorted(self.hashless),
            sorted(self.strict),
            dict(self.versions),
            sorted(self.opens),
            int(self.raises),
        ]

    @classmethod
    def of_list(cls, values: Sequence[Any]) -> "ModuleNames":
        """Raises ValueError or TypeError for what :meth:`as_list` did not write."""
        names, bound, stars, hidden, public, anything, submodules, unfound, lazy, *rest = values
        gone, gone_tables, *rest = rest
        (
            tables,
            makers,
            executed,
            functions,
            signatures,
            generated,
            hashless,
            strict,
            versions,
            opens,
            raises,
        ) = rest
        return cls(
            names=frozenset(names),
            bound={name: tuple(target) for name, target in bound.items()},
            stars=tuple(stars),
            hidden=tuple(hidden),
            public=None if public is None else frozenset(public),
            anything=bool(anything),
            submodules=bool(submodules),
            unfound=int(unfound),
            lazy=bool(lazy),
            gone=frozenset(gone),
            gone_tables=tuple((of, name) for of, name in gone_tables),
            tables={name: tuple(texts) for name, texts in tables.items()},
            makers=tuple((of, name) for of, name in makers),
            executed=Effects.of_list(executed),
            functions={name: Effects.of_list(body) for name, body in functions.items()},
            signatures={
                name: Signature(tuple(names), bool(any_keywords))
                for name, (names, any_keywords) in signatures.items()
            },
            generated=None if generated is None else (generated[0], generated[1], generated[2]),
            hashless=frozenset(hashless),
            strict=frozenset(strict),
            versions=dict(versions),
            opens=frozenset(opens),
            raises=bool(raises),
        )


UNREAD = ModuleNames(anything=True, submodules=True)
"""A module of which nothing is known but that it is there."""


def names_of(content: bytes, module: str, *, package: bool) -> ModuleNames:
    """The names in a module's source; :data:`UNREAD` if it is not read in bounds."""
    if len(content) > LARGEST:
        return UNREAD
    try:
        text = _decoded(content)
        reader = _Reader(module, text, package=package)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of others' escapes, comparisons and regular expressions
            return reader.read(ast.parse(content))
    except SyntaxError as problem:
        return _not_parsed(problem)
    except (ValueError, LookupError, RecursionError, MemoryError):
        return UNREAD


def is_of_several(content: bytes) -> bool:
    """Whether the source of a package says no more than that other folders have parts of it, too: each
    distribution of a namespace may bring one of its own (``pkgutil.extend_path``; PEP 420)."""
    if re.search(rb"extend_path|declare_namespace", content):
        return True
    try:
        body = ast.parse(content).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return True
    return all(
        (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))
        or (isinstance(one, ast.Assign) and isinstance(one.value, ast.Constant))
        for one in body
    )


def _not_parsed(problem: SyntaxError) -> ModuleNames:
    """A source that this Python does not parse: an older one does not either, newer ones may."""
    own = sys.version_info[1]
    if problem.msg.startswith("Missing parentheses in call to"):
        text = f"is written in Python 2: {problem.msg.partition('.')[0]}"
        ends = Ends(problem.lineno or 1, "python", (text,), "SyntaxError")
        return replace(UNREAD, executed=Effects(ends=(ends,)))
    if isinstance(problem, IndentationError) and "too many levels" in problem.msg:
        return UNREAD
    text = f"is written in no Python that 3.{own} reads: {problem.msg}"
    ends = Ends(problem.lineno or 1, "python", (text,), "SyntaxError", before(own + 1) & since(7))
    return replace(UNREAD, executed=Effects(ends=(ends,)))


def _decoded(content: bytes) -> str:
    """As text in which names can be looked for; the parser sees to the encoding."""
    return content.decode("utf-8", "replace")


class _Reader:
    """Walks the statements that an import executes."""

    def __init__(self, module: str, text: str, *, package: bool) -> None:
        self.module, self.package = module, module if package else module.rpartition(".")[0]
        self.names: set[str] = set()
        self.targets: dict[str, set[tuple[str, str | None] | None]] = {}
        self.sure: dict[str, int] = {}
        """Pythons on which a name is bound by an import for certain, up to this statement."""
        self.stars: list[str] = []
        self.public: set[str] | None = None
        self.public_known = True
        self.out = _Collected()
        self.after: ast.stmt | None = None
        """The statement that follows, if any."""
        self.turns = 0
        """Loops that it is in."""
        self.within = False
        """Whether it is in a function, which adds no names to the module."""
        self.defined: dict[str, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef] = {}
        self.again: set[str] = set()
        """Names that are bound several times."""
        self.filled: set[str] = set()
        """Names of lists and dictionaries that have something in them."""
        self.shadows: list[set[str]] = []
        self.postponed = False
        self.text = text
        self.globals = {
            name for found in _GLOBAL.finditer(text) for name in re.split(r"[ \t]*,[ \t]*", found[1])
        }
        self.names |= self.globals
        self.submodules = self.anything = self.lazy = False
        self.makers: set[str] = set()
        self.reading = ExpressionReader(self.dotted)
        self.opens: set[str] = set()
        self.typed = bool(_TYPED.search(text))
        self.versions: dict[str, str] = {}
        self.hidden: list[str] = []
        self.never = False
        """Whether the statement is never executed: below ``if TYPE_CHECKING``, or for another system."""
        self.flags: dict[str, tuple[int, int]] = {}
        """The Pythons on which a name that is bound once is true, and those on which it is false."""
        self.initial: dict[str, Expression | None] = {}
        """None or False, if a name is bound to it first; None for another first value."""

    def texts(self, tree: ast.Module) -> None:
        """Take in what the text alone tells, functions aside that :mod:`.lazy_names` knows."""
        lines = self.text.split("\n")
        text = self.text
        for node in of_module(tree.body):
            if isinstance(node, ast.FunctionDef) and node.name in {"__getattr__", "attach", "_attach"}:
                lines[node.lineno - 1 : node.end_lineno] = [""] * ((node.end_lineno or 0) - node.lineno + 1)
                text = "\n".join(lines)
        lazy = "sys.modules[__name__] = _LazyModule("
        self.lazy, text = lazy in text, text.replace(lazy, "(")
        if "meta_path" in text or "__path__" in text:
            self.submodules = True
        if "f_globals" in text:
            self.anything = True
        if re.search(r"\bmodules\b", text) and ("sys.modules" in text or "from sys import" in text):
            self._added(tree)
        if any(word in text for word in ("globals", "locals", "vars(")):
            names, anything = own_names(tree)
            self.names |= names
            self.anything |= anything

    def _added(self, tree: ast.Module) -> None:
        """Take in the modules that the source puts among the interpreter's, itself among them."""
        added = additions_of(tree, self.module, self.package)
        below = f"{self.module}."
        for (
            name
        ) in added.modules:  # another package's, as openai 0.28 puts pkg_resources there, is none below
            begin, star, _ = (name or "*").partition("*")
            self.submodules |= begin.startswith(below) or (bool(star) and below.startswith(begin))
        if added.replaced and not self.lazy:
            self.anything = self.submodules = True
        if any(name == self.module for _, name in added.passed):
            self.anything = True
        for target, name in added.names:
            if target.name == self.module and name is not None:
                self.names.add(name)
            elif target.name == self.module:
                self.anything = True

    def read(self, tree: ast.Module) -> ModuleNames:
        self.texts(tree)
        given = names_given(tree, self.text) if "__getattr__" in self.text else None
        self.makers = given.makers if given is not None else set()
        self.opens = mentioned(tree) if _OPENS.search(self.text) else set()
        if (came := newest_syntax(tree) if _NEW_SYNTAX.search(self.text) else 0) > 7:
            text = f"is written in Python 3.{came}"
            self.out.ends.append(Ends(1, "python", (text,), "SyntaxError", before(came)))
        self.block(tree.body, ALWAYS)
        gone, tables = set[str](), set[str]()
        if "__getattr__" in self.names:
            gone, tables = names_gone(tree, self.text)
            self.anything |= given is None
            self.names |= given.names if given is not None else set()
        if self.lazy:
            texts = (one.value for one in ast.walk(tree) if isinstance(one, ast.Constant))
            self.names |= {text for text in texts if isinstance(text, str) and text.isidentifier()}
        if len(self.names) > _MOST_NAMES:
            return UNREAD
        made = names_made(tree, self.text) if "__dict__" in self.text else {}
        known = self.defined
        bound: dict[str, tuple[str, str | None]] = {}
        for name, targets in self.targets.items():
            only = next(iter(targets))
            if len(targets) != 1 or only is None or name in self.globals:
                continue
            if only[0].partition(".")[0] not in OF_PYTHON or only[0] in python_names.VARIES:
                bound[name] = only
        self.anything |= not all(one in bound and bound[one][1] for one in self.makers)
        executed, functions = self.out.effects(bound, known), self.bodies(bound, known)
        used = {alias for one in (executed, *functions.values()) for alias in one.aliases()}
        bound = {
            name: to for name, to in bound.items() if name in used or to[0].partition(".")[0] not in OF_PYTHON
        }
        return ModuleNames(
            names=frozenset(self.names),
            bound=bound,
            stars=tuple(dict.fromkeys(self.stars)),
            hidden=tuple(dict.fromkeys(self.hidden)),
            public=frozenset(self.public) if self.public is not None and self.public_known else None,
            anything=self.anything,
            submodules=self.submodules,
            unfound=since(12) if "find_module" in self.text and old_finders(tree, self.module) else 0,
            lazy=self.lazy,
            gone=frozenset(gone),
            gone_tables=tuple(
                (of, name) for one in sorted(tables) for of, name in [bound.get(one, ("", None))] if name
            ),
            tables=_written(tree) | made,
            makers=tuple(
                (of, name) for one in sorted(self.makers) for of, name in [bound.get(one, ("", None))] if name
            ),
            executed=executed,
            functions=functions,
            signatures=self.signatures(),
            generated=self.generated(),
            hashless=frozenset(
                name
                for name, one in self.defined.items()
                if isinstance(one, ast.ClassDef) and name not in self.again and has_no_hash(one, self.dotted)
            ),
            strict=frozenset(
                name
                for name, one in self.defined.items()
                if isinstance(one, ast.ClassDef) and name not in self.again and counts_attributes(one)
            ),
            versions={name: text for name, text in self.versions.items() if name not in self.again},
            opens=frozenset(self.opens),
            raises=_RAISES.search(self.text) is not None,
        )

    def dotted(self, chain: tuple[str, ...]) -> set[str]:
        """The dotted names that ``first.second`` certainly is; more than one of imports that may fail."""
        first = chain[0] if chain else ""
        if not first or any(first in names for names in self.shadows):
            return set()
        targets = self.targets.get(first, set())
        if not targets or None in targets or first in self.globals:
            return set()
        return {".".join((one[0], *((one[1],) if one[1] else ()), *chain[1:])) for one in targets if one}

    def generated(self) -> tuple[int, int, int] | None:
        """The protobuf that made the module."""
        if "_descriptor" not in self.text:
            return None
        found = _GENERATED.search(self.text)
        if found is not None:
            return int(found[1]), int(found[2]), int(found[3])
        return BY_OLD_PROTOC if _OLD_DESCRIPTOR.search(self.text) else None

    def bodies(self, bound: Mapping[str, Any], known: Collection[str]) -> dict[str, Effects]:
        """The effects of calls of its functions."""
        found: dict[str, Effects] = {}
        self.within = True
        for name, function in self.defined.items():
            if name in self.again or not isinstance(function, ast.FunctionDef) or function.decorator_list:
                continue
            if any(isinstance(node, ast.Yield | ast.YieldFrom) for node in ast.walk(function)):
                continue
            args = function.args
            every = [*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg]
            self.shadows.append({one.arg for one in every if one is not None} | _stored(function))
            self.out, values = _Collected(), self.reading.names
            self.reading.names = {k: v for k, v in values.items() if k not in self.shadows[-1]}
            self.reading.names |= {k: v for k, v in self.initial.items() if v is not None}
            self.block(function.body, ALWAYS)
            self.shadows.pop()
            self.reading.names = values
            if body := self.out.effects(bound, known):
                found[name] = body
        return found

    def signatures(self) -> dict[str, Signature]:
        found: dict[str, Signature] = {}
        for name, own in self.defined.items():
            if name in self.again or own.decorator_list:
                continue
            if isinstance(own, ast.FunctionDef):
                found[name] = _signature(own.args, 0)
            elif isinstance(own, ast.ClassDef) and (made := _made_by(own)) is not None:
                found[name] = _signature(made.args, 1)
        return found

    def block(self, body: Sequence[ast.stmt], pythons: int) -> None:
        for statement, self.after in zip(body, [*body[1:], None], strict=False):
            values = self.reading.names
            inner = _bound_in(statement) if values and hasattr(statement, "body") else set()
            if hasattr(statement, "body"):
                loops = isinstance(statement, ast.For | ast.AsyncFor | ast.While)
                self.reading.names = {k: v for k, v in values.items() if not loops or k not in inner}
            _VISITS.get(type(statement), _Reader.plain)(self, statement, pythons)
            self.reading.names = values
            self.forget(inner)
            if pythons and (self.within or self.turns) and _may_leave(statement):
                pythons = 0  # what follows may not be executed

    def forget(self, names: Iterable[str]) -> None:
        """Forget the values of names that are bound anew."""
        for name in names:
            self.reading.names.pop(name, None)

    def end(self, line: int, kind: str, about: Sequence[str], pythons: int, error: str = "") -> None:
        """Note a statement that raises here."""
        if pythons:
            self.out.ends.append(Ends(line, kind, tuple(about), error, pythons))

    def name(self, name: str, target: tuple[str, str | None] | None = None, pythons: int = 0) -> None:
        self.reading.names.pop(name, None)
        if self.shadows:
            self.shadows[-1].add(name)
            return
        if not self.never:
            self.flags.pop(name, None)
        if self.never:
            self.targets.setdefault(name, set()).add(target)
            return
        self.filled.discard(name)
        self.again |= {name} & self.names
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
            for node in ast.walk(expression) if not self.within else ():
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                    self.name(node.id)
                elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Del) and not self.shadows:
                    self.sure.pop(node.id, None)
                elif isinstance(node, ast.Call) and _changes_module(node):
                    if (_called(node) == "_LazyModule" and self.lazy) or maker_of(node) in self.makers:
                        continue
                    self.anything = self.submodules = True
            if pythons:
                self.demand(expression, pythons)

    def demand(self, expression: ast.expr, pythons: int) -> None:
        """Take in the names that an expression takes, calls and raises."""
        for node, chain in _attributes(expression):
            if isinstance(node, ast.Call):
                self.call(node, chain, pythons)
            else:
                self.use(node.lineno, chain[0], chain[1:], pythons)
        if self.typed and pythons & before(10):
            for line, text, where in type_errors(_parts(expression), self.dotted, self.is_bound):
                self.end(line, "python", (text,), pythons & where, "TypeError")

    def is_bound(self, name: str) -> bool:
        return name in self.names or any(name in names for names in self.shadows)

    def builtin(self, node: ast.expr) -> str:
        """The dotted name that an expression certainly is in the standard library; else empty."""
        if isinstance(node, ast.Name) and hasattr(builtins, node.id):
            open_ = self.is_bound(node.id) or self.stars or self.anything
            return "" if open_ else f"builtins.{node.id}"
        inner, chain = _chain(node)
        names = self.dotted((inner.id, *chain)) if isinstance(inner, ast.Name) else set()
        only = next(iter(names)) if len(names) == 1 else ""
        return only if only.partition(".")[0] in OF_PYTHON else ""

    def ended(self, node: ast.Call, chain: tuple[str, ...], pythons: int) -> None:
        """Note a call that raises by itself."""
        first = node.args[0].value if node.args and isinstance(node.args[0], ast.Constant) else None
        names = self.dotted(chain)
        if names and names <= METADATA and isinstance(first, str):
            self.end(node.lineno, "installed", (first,), pythons, "PackageNotFoundError")
        elif names and all(name.startswith("re.") for name in names) and misplaced_flags(node):
            text = "has a regular expression with flags in its middle, which Python 3.11 and newer refuse"
            self.end(node.lineno, "python", (text,), pythons & since(11), "error")
        elif names == {"types.CodeType"} and (refused := refused_code(node)):
            text = "makes a code object of arguments that this Python does not take"
            self.end(node.lineno, "python", (text,), pythons & refused, "TypeError")
        if text := refused_field(node):
            self.end(node.lineno, "pydantic", (text, *chain), pythons, "PydanticUserError")
        if libraries := opened(node, self.defined.get):
            self.end(node.lineno, "library", libraries, pythons, "OSError")

    def call(self, node: ast.Call, chain: tuple[str, ...], pythons: int) -> None:
        first = node.args[0] if node.args else None
        self.ended(node, chain, pythons)
        if chain[-1] in {"__import__", "import_module"} and isinstance(first, ast.Constant):
            name = first.value
            if isinstance(name, str) and name and not name.startswith(".") and len(node.args) == 1:
                self.take(Taken(line=node.lineno, module=name, pythons=pythons))
            return
        if any(chain[0] in names for names in self.shadows):
            return
        if self.within and len(chain) > 1 and not self.is_near(chain):
            return
        self.out.called.append(
            Called(
                line=node.lineno,
                chain=chain,
                keywords=tuple(one.arg for one in node.keywords if one.arg is not None),
                pythons=pythons & (ALWAYS if len(chain) == 1 else self.sure.get(chain[0], 0)),
            )
        )

    def is_near(self, chain: tuple[str, ...]) -> bool:
        """Whether it is a function of a module of the same package."""
        root = self.module.partition(".")[0]
        return any(name.partition(".")[0] == root for name in self.dotted(chain))

    def use(self, line: int, alias: str, chain: tuple[str, ...], pythons: int) -> None:
        if any(alias in names for names in self.shadows):
            return
        where = pythons & self.sure.get(alias, 0)
        if where and (alias, chain) not in self.out.used:
            self.out.used[alias, chain] = Used(line=line, alias=alias, chain=chain, pythons=where)

    def plain(self, statement: ast.stmt, pythons: int) -> None:
        """A statement without statements in it; of one that is not known, nothing is demanded."""
        if isinstance(statement, ast.Assert):
            test = self.reading.read(statement.test)
            if test is not None and asks(test) and pythons:
                out, self.out = self.out, _Collected()
                self.end(
                    statement.lineno, "raise", (ast.unparse(statement.test)[:100],), pythons, "AssertionError"
                )
                out.branches.append((["not", test], self.out, _Collected()))
                self.out = out
        if isinstance(statement, ast.Assert) or not isinstance(statement, _PLAIN):
            self.anywhere(statement)
            return
        self.public_names(statement)
        self.evaluate(
            (part for part in ast.iter_child_nodes(statement) if isinstance(part, ast.expr)), pythons
        )
        if isinstance(statement, ast.Raise):
            error, text = raised(statement)
            self.end(statement.lineno, "raise", (text,), pythons, error)
        if isinstance(statement, ast.Assign | ast.AugAssign):
            self.remember(statement)
            self.flag(statement, pythons)
        if isinstance(statement, ast.Assign) and not self.shadows and self.is_filled(statement.value):
            self.filled |= {one.id for one in statement.targets if isinstance(one, ast.Name)}

    def remember(self, statement: ast.Assign | ast.AugAssign) -> None:
        """Values that the wheels of a set decide, and texts that may be a version."""
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        bound = [one for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)]
        self.forget(one.id for one in bound)
        if len(bound) != 1 or not isinstance(targets[0], ast.Name) or isinstance(statement, ast.AugAssign):
            return
        name, known = targets[0].id, self.reading.read(statement.value)
        if known is not None and name not in self.globals:
            self.reading.names[name] = known
        elif not self.shadows:  # what the first call of a function finds
            nothing = known in (["const", None], ["const", False]) and name not in self.initial
            self.initial[name] = known if nothing else None
        if not self.shadows and isinstance(statement.value, ast.Constant | ast.Name):
            text = known[1] if known is not None and known[0] == "const" else None
            if isinstance(text, str) and re.match(r"v?\d+(?:\.\d+)+", text):
                self.versions[name] = text

    def flag(self, statement: ast.Assign | ast.AugAssign, pythons: int) -> None:
        """Keep ``PY3 = sys.version_info[0] == 3``."""
        if self.shadows or self.never or pythons != ALWAYS or isinstance(statement, ast.AugAssign):
            return
        name = statement.targets[0].id if isinstance(statement.targets[0], ast.Name) else ""
        known = decided(statement.value, self.flag_of)
        if len(statement.targets) == 1 and name and name not in self.again and known != (0, 0):
            self.flags[name] = known

    def flag_of(self, name: str) -> tuple[int, int]:
        known = not (name in self.again or name in self.globals or any(name in s for s in self.shadows))
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
                found = name in self.filled and not any(name in names for names in self.shadows)
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
        # of a function's own variables they are never evaluated
        self.evaluate([statement.annotation], 0 if self.within else self.now(pythons))

    def now(self, pythons: int) -> int:
        """The Pythons on which annotations are evaluated at once: not from Python 3.14 on."""
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
        self.define(statement)
        args = statement.args
        self.evaluate([*statement.decorator_list, *args.defaults, *args.kw_defaults], pythons)
        every = [*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg]
        hints = [one.annotation for one in every if one is not None]
        self.evaluate([*hints, statement.returns], self.now(pythons))
        if isinstance(statement, ast.FunctionDef):
            for line, text, chain in refused_decorators(statement):
                self.end(line, "pydantic", (text, *chain), pythons, "PydanticUserError")

    def define(self, statement: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        if not self.shadows:
            self.defined[statement.name] = statement
        self.name(statement.name)

    def class_(self, statement: ast.stmt, pythons: int) -> None:
        assert isinstance(statement, ast.ClassDef)  # noqa: S101
        for base in map(_chain, statement.bases):
            whole = (base[0].id, *base[1]) if isinstance(base[0], ast.Name) else ()
            names = self.dotted(whole)
            if names and not any(name.partition(".")[0] in OF_PYTHON for name in names):
                self.end(statement.lineno, "subclass", ("", *whole), pythons & since(13))
        for text, where in refused_bases([self.builtin(one) for one in statement.bases]):
            self.end(statement.lineno, "python", (text,), pythons & where, "TypeError")
        self.define(statement)
        self.evaluate(
            [*statement.decorator_list, *statement.bases, *(one.value for one in statement.keywords)], pythons
        )
        for line, text, chain in refused_attributes(statement):
            self.end(line, "pydantic", (text, *chain), pythons, "PydanticUserError")
        if pythons & since(11) and is_dataclass(statement, self.dotted):
            for line, field_name, chain in mutable_defaults(statement):
                self.end(line, "dataclass", (field_name, *chain), pythons & since(11), "ValueError")
        inner, values = _stored(statement), self.reading.names
        self.reading.names = {k: v for k, v in values.items() if k not in inner}
        self.shadows.append(inner)
        self.block(statement.body, pythons)
        self.shadows.pop()
        self.reading.names = values

    def if_(self, statement: ast.stmt, pythons: int) -> None:
        assert isinstance(statement, ast.If)  # noqa: S101
        self.evaluate([statement.test], pythons)
        true, false = decided(statement.test, self.flag_of)
        test = self.reading.read(statement.test) if pythons and not true and not false else None
        values = self.reading.names
        if test is not None and not asks(test):
            true, false = settled(test)
        if test is not None and asks(test):
            true = false = pythons
            out, self.out, one, other = self.out, _Collected(), _Collected(), _Collected()
            out.branches.append((test, one, other))
        else:
            test, out, one, other = None, self.out, self.out, self.out
        never = self.never
        self.reading.names, self.out, self.never = dict(values), one, never or false == ALWAYS
        self.block(statement.body, pythons & true)
        self.reading.names, self.out, self.never = dict(values), other, never or true == ALWAYS
        self.block(statement.orelse, pythons & false)
        self.reading.names, self.out, self.never = values, out, never

    def loop(self, statement: ast.stmt, pythons: int) -> None:
        if isinstance(statement, ast.For | ast.AsyncFor):
            self.evaluate([statement.iter], pythons)
            self.evaluate([statement.target], 0)
        elif isinstance(statement, ast.While):
            self.evaluate([statement.test], pythons)
        first, after = isinstance(statement, ast.For) and self.is_filled(statement.iter), self.after
        self.turns += 1
        self.block(statement.body, pythons if first else 0)  # type: ignore[attr-defined]
        self.turns -= 1
        if isinstance(statement, ast.For) and pythons and (names := looked_for(statement, self.opens, after)):
            last = statement.orelse[-1] if statement.orelse else after
            error = raised(last)[0] if isinstance(last, ast.Raise) else ""
            self.end(statement.lineno, "library", names, pythons, error)
        self.block(statement.orelse, 0)  # type: ignore[attr-defined]

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
        outer, self.out = self.out, _Collected()
        self.block(body, sure)
        inner, self.out = self.out, outer
        trial = inner.raising() if handlers else _Collected()
        outer.extend(inner)
        tried = tuple(self.tried(body, pythons)) if not sure and handlers else ()
        tried = tried if tried and _catches(handlers[0]) else ()
        self.forget(_bound_in(statement) if self.reading.names else ())
        for number, handler in enumerate(handlers):
            if handler.name:
                self.name(handler.name)
            first = number == 0 and bool(tried or trial)
            self.out = _Collected()
            self.block(handler.body, pythons if first else 0)
            if first:
                outer.guards.append((tried, trial, tuple(map(handled, handlers)), self.out))
            self.out = outer
        self.block(statement.orelse, sure)  # type: ignore[attr-defined]
        self.block(statement.finalbody, pythons)  # type: ignore[attr-defined]

    def tried(self, body: Iterable[ast.stmt], pythons: int) -> Iterator[Taken]:
        """The imports at the beginning of a block."""
        for statement in body:
            if not isinstance(statement, ast.Import | ast.ImportFrom):
                return
            module = self.absolute(statement) if isinstance(statement, ast.ImportFrom) else None
            for one in statement.names:
                name = one.name if isinstance(statement, ast.ImportFrom) else None
                whole = one.name if isinstance(statement, ast.Import) else module
                if whole is not None and name != "*":
                    yield Taken(line=statement.lineno, module=whole, name=name, pythons=pythons)

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
                    (self.hidden if self.never else self.stars).append(module)
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
        ours = taken.module.partition(".")[0] in OF_PYTHON
        if taken.pythons and (not ours or python_names.varies(taken.module, taken.name)):
            self.out.taken.append(taken)


@dataclass
class _Collected:
    """The parts of :class:`Effects` that were found so far."""

    taken: list[Taken] = field(default_factory=list)
    used: dict[tuple[str, tuple[str, ...]], Used] = field(default_factory=dict)
    called: list[Called] = field(default_factory=list)
    guards: "list[tuple[tuple[Taken, ...], _Collected, tuple[tuple[str, ...], ...], _Collected]]" = field(
        default_factory=list
    )
    ends: list[Ends] = field(default_factory=list)
    branches: "list[tuple[Expression, _Collected, _Collected]]" = field(default_factory=list)

    def raising(self) -> "_Collected":
        """Take out the effects that may raise for another reason than an import."""
        found = _Collected(called=self.called, ends=self.ends, branches=self.branches)
        self.called, self.ends, self.branches = [], [], []
        return found

    def extend(self, other: "_Collected") -> None:
        self.taken += other.taken
        for key, one in other.used.items():
            self.used.setdefault(key, one)
        self.called += other.called
        self.guards += other.guards
        self.ends += other.ends
        self.branches += other.branches

    def effects(self, bound: Mapping[str, tuple[str, str | None]], known: Collection[str]) -> Effects:
        """The effects, of names that are certainly modules, or functions and classes of the module."""
        guards = (
            Guard(tried, trial.effects(bound, known), kinds, instead.effects(bound, known))
            for tried, trial, kinds, instead in self.guards
        )
        branches = (
            DecidedTest(test, true.effects(bound, known), false.effects(bound, known))
            for test, true, false in self.branches
        )
        ends = sorted(self.ends, key=lambda one: one.kind == "subclass")  # of which there are many
        return Effects(
            taken=tuple(dict.fromkeys(self.taken)),
            used=tuple(one for (alias, _), one in self.used.items() if _matters(bound, alias, one.chain))[
                :_MOST_USES
            ],
            called=tuple(
                dict.fromkeys(
                    one
                    for one in self.called
                    if one.pythons
                    and (
                        (one.chain[0] in bound and bound[one.chain[0]][0].partition(".")[0] not in OF_PYTHON)
                        or (one.chain[0] in known and len(one.chain) == 1)
                    )
                )
            )[:_MOST_USES],
            guards=tuple(
                one
                for one in guards
                if one.trial or (one.tried and (one.instead or lets_out(one.kinds, "AttributeError")))
            ),
            ends=tuple(
                {(one.kind, one.about) if one.kind == "subclass" else one: one for one in ends}.values()
            )[:_MOST_ENDS],
            branches=tuple(one for one in branches if one.true or one.false)[:_MOST_ENDS],
        )

    def __bool__(self) -> bool:
        return bool(self.taken or self.used or self.called or self.guards or self.ends or self.branches)


def _matters(bound: Mapping[str, tuple[str, str | None]], alias: str, chain: tuple[str, ...]) -> bool:
    """Whether an attribute may be lacking: of Python's own modules, one that some release lacks."""
    if alias not in bound:
        return False
    module, name = bound[alias]
    if module.partition(".")[0] not in OF_PYTHON:
        return True
    return name is None and python_names.varies(module, chain[0])


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


def _bound_in(statement: ast.AST) -> set[str]:
    """Names that a statement may bind, those within its functions, too."""
    if isinstance(statement, (*_FUNCTIONS, ast.ClassDef)):
        return {statement.name}
    found: set[str] = set()
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            found.add(node.id)
        elif isinstance(node, ast.alias):
            found.add(node.asname or node.name.partition(".")[0])
        elif isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            found.add(node.name)
    return found


def _parts(expression: ast.expr) -> Iterator[ast.AST]:
    """All parts of an expression that are evaluated whenever it is."""
    stack: list[ast.AST] = [expression]
    while stack:
        node = stack.pop()
        yield node
        stack += _evaluated(node)


def _written(tree: ast.Module) -> dict[str, tuple[str, ...]]:
    """``__name__ = {"text": ...}``, the keys."""
    found: dict[str, tuple[str, ...]] = {}
    for one in tree.body:
        name = _name(one.targets[0]) if isinstance(one, ast.Assign) else None
        if isinstance(one, ast.Assign) and isinstance(one.value, ast.Dict) and name and name.startswith("__"):
            keys = [key.value for key in one.value.keys if isinstance(key, ast.Constant)]
            found[name] = tuple(key for key in keys if isinstance(key, str))
    return found


def _signature(args: ast.arguments, given: int) -> Signature:
    """``given``: how many of the first ones a call has already."""
    names = [one.arg for one in (*args.posonlyargs, *args.args)][given:]
    return Signature(
        names=(*names, *(one.arg for one in args.kwonlyargs)), any_keywords=args.kwarg is not None
    )


def _made_by(own: ast.ClassDef) -> ast.FunctionDef | None:
    """The function that a call of a class calls, if that is certainly its own ``__init__``."""
    methods = [one for one in own.body if isinstance(one, ast.FunctionDef)]
    made = [one for one in methods if one.name == "__init__"]
    if own.keywords or len(made) != 1 or made[0].decorator_list or any(m.name == "__new__" for m in methods):
        return None
    bases = [_name(one) or "?" for one in own.bases]
    return made[0] if not any(re.search(r"Meta|Enum|\?", base) for base in bases) else None


def _may_leave(statement: ast.stmt) -> bool:
    """Whether a statement may end the function, or the turn of the loop, that it is in."""
    stack: list[ast.AST] = [statement]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Return | ast.Raise | ast.Break | ast.Continue | ast.Assert):
            return True
        if not isinstance(node, (*_FUNCTIONS, ast.ClassDef, ast.Lambda, ast.expr)):
            stack += ast.iter_child_nodes(node)
    return False


def _catches(handler: ast.ExceptHandler) -> bool:
    """Whether it gets every import that fails."""
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(one is None or _name(one) in _OF_IMPORTS for one in kinds)


_OF_IMPORTS = {"ImportError", "Exception", "BaseException"}
_KEEP_FILLED = {"list", "tuple", "set", "sorted", "enumerate", "reversed", "dict", "iter"}


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


def _stored(statement: ast.ClassDef | ast.FunctionDef) -> set[str]:
    """Names that a class body, or a function, may bind."""
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
    first = call.args[0] if call.args else None
    if name == "exec" or (name == "eval" and not isinstance(first, ast.Constant | ast.JoinedStr)):
        return True
    given = (*call.args, *(one.value for one in call.keywords))
    own = any(
        isinstance(one, ast.Name) and one.id in {"__name__", "__package__", "__spec__"} for one in given
    )
    return own and name not in _QUIET_CALLS and name not in MAKERS


def _attributes(expression: ast.expr) -> Iterator[tuple[ast.expr, tuple[str, ...]]]:
    """Every ``name.first.second`` that is certainly evaluated; of one that is called, the call, too."""
    stack: list[ast.AST] = [expression]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Attribute):
            inner, chain = _chain(node)
            if isinstance(inner, ast.Name) and chain:
                yield node, (inner.id, *chain)
            elif not isinstance(inner, ast.Name):
                stack.append(inner)
            continue
        if isinstance(node, ast.Call):
            inner, chain = _chain(node.func)
            if isinstance(inner, ast.Name):
                yield node, (inner.id, *chain)
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
        turns = [n for n in ast.walk(handler) if isinstance(n, ast.For | ast.While)]
        inside = {id(n) for one in turns for part in one.body for n in ast.walk(part)}
        ends = (n for n in ast.walk(handler) if isinstance(n, ast.Return | ast.Continue | ast.Break))
        return all(id(n) in inside and not isinstance(n, ast.Return) for n in ends)
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return all(isinstance(one, ast.Name) and one.id in _STAYS for one in kinds)


def decided(test: ast.expr, flags: Callable[[str], tuple[int, int]] = lambda _: (0, 0)) -> tuple[int, int]:
    """The Pythons on which a test is certainly true, and on which it is certainly false; ``flags``: those of
    a name."""
    if isinstance(test, ast.Constant):
        return (ALWAYS, 0) if test.value else (0, ALWAYS)
    if (name := _name(test)) is not None and (name == "TYPE_CHECKING" or _IN_SETUP.fullmatch(name)):
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
    if isinstance(left, ast.Constant) and isinstance(operator, ast.Eq | ast.NotEq):
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
