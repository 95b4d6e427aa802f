"""Follows the statements that an import of a module, or a call of a function of it, executes, and collects
their effects.
"""

import ast
import builtins
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from builder.core import python_names
from builder.core.decided_tests import METADATA, Bindings, Target, asks, decided, settled
from builder.core.lazy_names import maker_of
from builder.core.module_ends import (
    catches_imports,
    handled,
    is_dataclass,
    lets_out,
    lets_through,
    looked_for,
    misplaced_flags,
    mutable_defaults,
    old_entries,
    opened,
    raised,
    refused_attributes,
    refused_bases,
    refused_code,
    refused_decorators,
    refused_field,
    type_errors,
)
from builder.core.module_syntax import (
    attributes,
    bound_in,
    called,
    changes_module,
    children_of,
    last_name,
    listed_modules,
    may_leave,
    names_in,
    nodes_of,
    parts_of,
    stored_in,
    texts_of,
)
from builder.core.module_values import (
    ALWAYS,
    Called,
    DecidedTest,
    Effects,
    Ends,
    Expression,
    FolderImports,
    Guard,
    Taken,
    Used,
    before,
    since,
)
from builder.core.python_names import OF_PYTHON

_MOST_USES = 5_000
_MOST_ENDS = 50
_TYPED = re.compile(r"\||\b(?:list|dict|tuple|set|frozenset|type)\[|\bcollections\b")
_GLOBAL = re.compile(r"^[ \t]*global[ \t]+(\w+(?:[ \t]*,[ \t]*\w+)*)", re.MULTILINE)
_RUNS_THROUGH = {"RLock", "Lock", "catch_warnings", "errstate", "nullcontext", "open"}
"""Context managers that let every exception through."""
_PLAIN = (ast.Expr, ast.Assign, ast.AugAssign, ast.Return, ast.Raise, ast.Delete, ast.Pass, ast.Global)


@dataclass
class Collected:
    """The parts of :class:`Effects` that were found so far."""

    taken: list[Taken] = field(default_factory=list)
    used: dict[tuple[str, tuple[str, ...]], Used] = field(default_factory=dict)
    """The first use of each attribute."""
    called: list[Called] = field(default_factory=list)
    guards: "list[tuple[tuple[Taken, ...], Collected, tuple[tuple[str, ...], ...], Collected]]" = field(
        default_factory=list
    )
    ends: list[Ends] = field(default_factory=list)
    branches: "list[tuple[Expression, Collected, Collected]]" = field(default_factory=list)
    listed: list[FolderImports] = field(default_factory=list)

    def raising(self) -> "Collected":
        """Take out the effects that may raise for another reason than an import."""
        found = Collected(called=self.called, ends=self.ends, branches=self.branches)
        self.called, self.ends, self.branches = [], [], []
        return found

    def extend(self, other: "Collected") -> None:
        self.taken += other.taken
        for key, one in other.used.items():
            self.used.setdefault(key, one)
        self.called += other.called
        self.guards += other.guards
        self.ends += other.ends
        self.branches += other.branches
        self.listed += other.listed

    def effects(self, bound: Mapping[str, Target], known: Collection[str]) -> Effects:
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
            used=tuple(one for one in self.used.values() if _matters(bound, one.alias, one.chain))[
                :_MOST_USES
            ],
            called=tuple(dict.fromkeys(one for one in self.called if _goes_on(bound, known, one)))[
                :_MOST_USES
            ],
            guards=tuple(
                one
                for one in guards
                if one.trial or (one.tried and (one.instead or lets_out(one.kinds, "AttributeError")))
            ),
            ends=tuple(
                {(one.kind, one.about) if one.kind == "subclass" else one: one for one in ends}.values()
            )[:_MOST_ENDS],
            branches=tuple(one for one in branches if one.true or one.false)[:_MOST_ENDS],
            listed=tuple(dict.fromkeys(self.listed)),
        )

    def __bool__(self) -> bool:
        return any((self.taken, self.used, self.called, self.guards, self.ends, self.branches, self.listed))


def _matters(bound: Mapping[str, Target], alias: str, chain: tuple[str, ...]) -> bool:
    """Whether an attribute may be lacking: of Python's own modules, one that some release lacks."""
    if alias not in bound:
        return False
    module, name = bound[alias]
    if module.partition(".")[0] not in OF_PYTHON:
        return True
    return name is None and python_names.varies(module, chain[0])


def _goes_on(bound: Mapping[str, Target], known: Collection[str], call: Called) -> bool:
    """Whether a call is of a function of the module, or of one of another wheel."""
    first = call.chain[0]
    other = first in bound and bound[first][0].partition(".")[0] not in OF_PYTHON
    return bool(call.pythons) and (other or (first in known and len(call.chain) == 1))


class StatementWalk:
    """Walks statements in their order. ``pythons``: the releases on which one is certainly executed."""

    def __init__(self, module: str, package: str, text: str) -> None:
        self.module, self.package = module, package
        self.bound = Bindings(
            name for found in _GLOBAL.finditer(text) for name in re.split(r"[ \t]*,[ \t]*", found[1])
        )
        self.out = Collected()
        self.defined: dict[str, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef] = {}
        """The last function or class of each name."""
        self.stars: list[str] = []
        self.hidden: list[str] = []
        """Modules of which it takes all names for type checkers alone."""
        self.public: set[str] | None = None
        self.public_known = True
        self.submodules = self.anything = False
        """Whether there may be more submodules than files, and more names than are bound."""
        self.lazy = False
        """Whether a ``_LazyModule`` takes the module's place."""
        self.makers: set[str] = set()
        """Functions that make what its ``__getattr__`` gives."""
        self.opens: set[str] = set()
        """Libraries that it may open."""
        self.typed = "|" in text or bool(_TYPED.search(text))
        self.yields, self.says_all = "yield" in text, "__all__" in text
        self.bound.lists_folder = "listdir(" in text or "iter_modules(" in text
        self.loads_files = "exec_module(" in text
        self.asks_entries = "entry_points()" in text
        self.after: ast.stmt | None = None
        """The statement that follows, if any."""
        self.turns = 0
        """Loops that the statement is in."""
        self.within = False
        """Whether it is in a function, which adds no names to the module."""
        self.postponed = False
        """Whether annotations are not evaluated."""

    def bodies(self, known: Mapping[str, Target]) -> dict[str, Effects]:
        """The effects of calls of the functions, once all statements were walked; ``known``: modules and
        their names, by the name of each here."""
        found: dict[str, Effects] = {}
        initial = {name: one for name, one in self.bound.initial.items() if one is not None}
        self.within = True
        for name, function in self.defined.items():
            if (
                name in self.bound.again
                or not isinstance(function, ast.FunctionDef)
                or function.decorator_list
            ):
                continue
            if self.yields and any(isinstance(n, ast.Yield | ast.YieldFrom) for n in nodes_of(function)):
                continue
            self.out = Collected()
            given = {one.arg for one in _arguments(function.args)}
            with self.bound.scope(given | stored_in(function), initial):
                self.block(function.body, ALWAYS)
            if body := self.out.effects(known, self.defined):
                found[name] = body
        return found

    def block(self, body: Sequence[ast.stmt], pythons: int) -> None:
        for statement, self.after in zip(body, [*body[1:], None], strict=False):
            values = self.bound.values.names
            inner = bound_in(statement) if values and hasattr(statement, "body") else set()
            if hasattr(statement, "body"):
                loops = isinstance(statement, ast.For | ast.AsyncFor | ast.While)
                self.bound.values.names = {k: v for k, v in values.items() if not loops or k not in inner}
            self.statement(statement, pythons)
            self.bound.values.names = values
            self.bound.forget(inner)
            if pythons and (self.within or self.turns) and may_leave(statement):
                pythons = 0  # what follows may not be executed

    def statement(self, statement: ast.stmt, pythons: int) -> None:
        match statement:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self.function(statement, pythons)
            case ast.Import():
                self.import_(statement, pythons)
            case ast.ImportFrom():
                self.import_from(statement, pythons)
            case ast.ClassDef():
                self.class_(statement, pythons)
            case ast.If():
                self.if_(statement, pythons)
            case ast.AnnAssign():
                self.annotated(statement, pythons)
            case ast.For() | ast.AsyncFor() | ast.While():
                self.loop(statement, pythons)
            case ast.With() | ast.AsyncWith():
                self.with_(statement, pythons)
            case ast.Try() | ast.TryStar():
                self.try_(statement, pythons)
            case ast.Match():
                self.match(statement, pythons)
            case ast.Assert():
                self.asserted(statement, pythons)
            case _:
                self.plain(statement, pythons)

    def plain(self, statement: ast.stmt, pythons: int) -> None:
        """A statement without statements in it; of one that is not known, nothing is demanded."""
        if not isinstance(statement, _PLAIN):
            self.anywhere(statement)
            return
        self.public_names(statement)
        self.evaluate((part for part in children_of(statement) if isinstance(part, ast.expr)), pythons)
        if isinstance(statement, ast.Raise):
            error, text = raised(statement)
            self.end(statement.lineno, "raise", (text,), pythons, error)
        if isinstance(statement, ast.Assign | ast.AugAssign):
            self.bound.assign(statement, pythons)

    def asserted(self, statement: ast.Assert, pythons: int) -> None:
        """An assertion that the set decides; of another one nothing is demanded (``python -O``)."""
        test = self.bound.values.read(statement.test)
        if test is not None and asks(test) and pythons:
            out, self.out = self.out, Collected()
            self.end(
                statement.lineno, "raise", (ast.unparse(statement.test)[:100],), pythons, "AssertionError"
            )
            out.branches.append((["not", test], self.out, Collected()))
            self.out = out
        self.anywhere(statement)

    def annotated(self, statement: ast.AnnAssign, pythons: int) -> None:
        self.public_names(statement)
        self.evaluate([statement.value, statement.target], pythons)
        # of a function's own variables they are never evaluated
        self.evaluate([statement.annotation], 0 if self.within else self.now(pythons))

    def now(self, pythons: int) -> int:
        """The Pythons on which annotations are evaluated at once: not from Python 3.14 on."""
        return 0 if self.postponed else pythons & ((1 << 14) - 1)

    def public_names(self, statement: ast.stmt) -> None:
        """``__all__``, as far as it is put together of texts."""
        if (
            self.bound.shadows
            or not self.says_all
            or not any(isinstance(node, ast.Name) and node.id == "__all__" for node in nodes_of(statement))
        ):
            return
        value: ast.expr | None = None
        if isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            value = statement.value if [last_name(one) for one in targets] == ["__all__"] else None
        texts = texts_of(value)
        if texts is None:
            self.public_known = False
        else:
            self.public = (self.public or set()) | texts

    def function(self, statement: ast.FunctionDef | ast.AsyncFunctionDef, pythons: int) -> None:
        self.define(statement)
        args = statement.args
        self.evaluate([*statement.decorator_list, *args.defaults, *args.kw_defaults], pythons)
        hints = [one.annotation for one in _arguments(args)]
        self.evaluate([*hints, statement.returns], self.now(pythons))
        if isinstance(statement, ast.FunctionDef):
            for line, text, chain in refused_decorators(statement):
                self.end(line, "pydantic", (text, *chain), pythons, "PydanticUserError")

    def define(self, statement: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        if not self.bound.shadows and self.bound.possible:
            self.defined[statement.name] = statement
        self.bound.bind(statement.name)

    def class_(self, statement: ast.ClassDef, pythons: int) -> None:
        for whole in map(names_in, statement.bases):
            names = self.bound.dotted(whole)
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
        if pythons & since(11) and is_dataclass(statement, self.bound.dotted):
            for line, field_name, chain in mutable_defaults(statement):
                self.end(line, "dataclass", (field_name, *chain), pythons & since(11), "ValueError")
        with self.bound.scope(stored_in(statement), {}):
            self.block(statement.body, pythons)

    def if_(self, statement: ast.If, pythons: int) -> None:
        self.evaluate([statement.test], pythons)
        true, false = decided(statement.test, self.bound.flag_of)
        test = self.bound.values.read(statement.test) if pythons and not true and not false else None
        values = self.bound.values.names
        if test is not None and not asks(test):
            true, false = settled(test)
        outer = self.bound.possible
        on_true, on_false = outer & ~false, outer & ~true
        known = dict(self.bound.sure), dict(self.bound.flags)
        if test is not None and asks(test):
            true = false = pythons
            out, self.out, one, other = self.out, Collected(), Collected(), Collected()
            out.branches.append((test, one, other))
        else:
            test, out, one, other = None, self.out, self.out, self.out
        self.bound.values.names, self.out, self.bound.possible = dict(values), one, on_true
        self.block(statement.body, pythons & true)
        self.bound.values.names, self.out, self.bound.possible = dict(values), other, on_false
        self.block(statement.orelse, pythons & false)
        self.bound.values.names, self.out, self.bound.possible = values, out, outer
        if test is not None:  # what follows is executed also where one of the two was not
            self.bound.sure = known[0]
            self.bound.flags = {k: v for k, v in self.bound.flags.items() if known[1].get(k) == v}

    def loop(self, statement: ast.For | ast.AsyncFor | ast.While, pythons: int) -> None:
        if isinstance(statement, ast.For | ast.AsyncFor):
            self.evaluate([statement.iter], pythons)
            self.evaluate([statement.target], 0)
        else:
            self.evaluate([statement.test], pythons)
        first, after = isinstance(statement, ast.For) and self.bound.is_filled(statement.iter), self.after
        self.turns += 1
        self.block(statement.body, pythons if first else 0)
        self.turns -= 1
        if isinstance(statement, ast.For) and pythons and self.bound.lists_folder:
            folders = self.bound.own_folders
            for inner, kind in listed_modules(
                statement, self.module, self.package, folders, loads_files=self.loads_files
            ):
                self.out.listed.append(FolderImports(statement.lineno, self.package, inner, kind, pythons))
        if isinstance(statement, ast.For) and pythons and (names := looked_for(statement, self.opens, after)):
            last = statement.orelse[-1] if statement.orelse else after
            error = raised(last)[0] if isinstance(last, ast.Raise) else ""
            self.end(statement.lineno, "library", names, pythons, error)
        self.block(statement.orelse, 0)

    def with_(self, statement: ast.With | ast.AsyncWith, pythons: int) -> None:
        self.evaluate([one.context_expr for one in statement.items[:1]], pythons)
        self.evaluate([one.context_expr for one in statement.items[1:]], 0)
        self.evaluate([one.optional_vars for one in statement.items], 0)
        through = all(called(one.context_expr) in _RUNS_THROUGH for one in statement.items)
        self.block(statement.body, pythons if through else 0)

    def try_(self, statement: ast.Try | ast.TryStar, pythons: int) -> None:
        handlers, begin = statement.handlers, self.unguarded(statement)
        self.block(statement.body[:begin], pythons)
        body = statement.body[begin:]
        sure = pythons if all(map(lets_through, handlers)) else 0
        tried = tuple(self.tried(body, pythons)) if not sure and handlers else ()
        tried = tried if tried and catches_imports(handlers[0]) else ()
        # attributes that are used after these imports, if no handler gets what a lacking one raises
        after = pythons if tried and lets_out([*map(handled, handlers)], "AttributeError") else 0
        known = dict(self.bound.sure), dict(self.bound.flags)
        outer, self.out = self.out, Collected()
        self.block(body, sure or after)
        inner, self.out = self.out, outer
        if after:
            self.bound.sure = known[0]
            self.bound.flags = {k: v for k, v in self.bound.flags.items() if known[1].get(k) == v}
            inner = Collected(used=inner.used)
        trial = inner if after else inner.raising() if handlers else Collected()
        outer.extend(inner if not after else Collected())
        self.bound.forget(bound_in(statement) if self.bound.values.names else ())
        for number, handler in enumerate(handlers):
            if handler.name:
                self.bound.bind(handler.name)
            first = number == 0 and bool(tried or trial)
            self.out = Collected()
            self.block(handler.body, pythons if first else 0)
            if first:
                outer.guards.append((tried, trial, tuple(map(handled, handlers)), self.out))
            self.out = outer
        self.block(statement.orelse, sure)
        self.block(statement.finalbody, pythons)

    def unguarded(self, statement: ast.Try | ast.TryStar) -> int:
        """How many imports a block begins with whose failure no handler gets: the first handler evaluates
        what they bind, and a name that is not bound raises NameError."""
        asked = statement.handlers[0].type if statement.handlers else None
        open_ = self.within or self.turns or self.bound.shadows or self.stars or self.anything
        if asked is None or open_:
            return 0
        names = {one.id for one in nodes_of(asked) if isinstance(one, ast.Name)}
        names -= {one for one in names if self.bound.is_bound(one) or hasattr(builtins, one)}
        names -= self.bound.globals
        for number, one in enumerate(statement.body, 1):
            if not isinstance(one, ast.Import | ast.ImportFrom):
                return 0
            if names & bound_in(one):
                return number
        return 0

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

    def match(self, statement: ast.Match, pythons: int) -> None:
        self.evaluate([statement.subject], pythons)
        for case in statement.cases:
            self.anywhere(case.pattern)
            self.block(case.body, 0)

    def import_(self, statement: ast.Import, pythons: int) -> None:
        for one in statement.names:
            self.take(Taken(line=statement.lineno, module=one.name, pythons=pythons))
            first = one.name.partition(".")[0]
            self.bound.bind(one.asname or first, (one.name if one.asname else first, None), pythons)

    def import_from(self, statement: ast.ImportFrom, pythons: int) -> None:
        module = self.absolute(statement)
        if statement.module == "__future__" and not statement.level:
            self.postponed |= any(one.name == "annotations" for one in statement.names)
        for one in statement.names:
            if one.name == "*":
                if module is None:
                    self.anything = True
                elif not self.bound.shadows:
                    (self.stars if self.bound.possible else self.hidden).append(module)
            else:
                self.bound.bind(
                    one.asname or one.name, None if module is None else (module, one.name), pythons
                )
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

    def evaluate(self, expressions: Iterable[ast.expr | None], pythons: int) -> None:
        """Names that the expressions bind, attributes that they take, and calls that change the module."""
        for expression in expressions:
            if expression is None:
                continue
            if isinstance(expression, ast.Constant):
                continue
            for node in nodes_of(expression) if not self.within else ():
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                    self.bound.bind(node.id)
                elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Del) and not self.bound.shadows:
                    self.bound.sure.pop(node.id, None)
                elif isinstance(node, ast.Call) and changes_module(node):
                    if (called(node) == "_LazyModule" and self.lazy) or maker_of(node) in self.makers:
                        continue
                    self.anything = self.submodules = True
            if pythons:
                self.demand(expression, pythons)

    def demand(self, expression: ast.expr, pythons: int) -> None:
        """Take in the names that an expression takes, calls and raises."""
        for node, chain in attributes(expression):
            if isinstance(node, ast.Call):
                self.call(node, chain, pythons)
            else:
                self.use(node.lineno, chain[0], chain[1:], pythons)
        if self.asks_entries:
            for line, function in old_entries(expression):
                if "importlib.metadata.entry_points" in self.bound.dotted(function):
                    text = (
                        "takes the entry points for a dictionary, which they are no more from Python 3.12 on"
                    )
                    self.end(line, "python", (text,), pythons & since(12), "AttributeError")
        if self.typed and pythons & before(10):
            for line, text, where in type_errors(
                parts_of(expression), self.bound.dotted, self.bound.is_bound
            ):
                self.end(line, "python", (text,), pythons & where, "TypeError")

    def call(self, node: ast.Call, chain: tuple[str, ...], pythons: int) -> None:
        first = node.args[0] if node.args else None
        self.ended(node, chain, pythons)
        if chain[-1] in {"__import__", "import_module"} and isinstance(first, ast.Constant):
            name = first.value
            if isinstance(name, str) and name and not name.startswith(".") and len(node.args) == 1:
                self.take(Taken(line=node.lineno, module=name, pythons=pythons))
            return
        if self.bound.is_shadowed(chain[0]):
            return
        if self.within and len(chain) > 1 and not self.is_near(chain):
            return
        self.out.called.append(
            Called(
                line=node.lineno,
                chain=chain,
                keywords=tuple(one.arg for one in node.keywords if one.arg is not None),
                pythons=pythons & (ALWAYS if len(chain) == 1 else self.bound.sure.get(chain[0], 0)),
                given=-1 if _has_more(node) else len(node.args),
            )
        )

    def is_near(self, chain: tuple[str, ...]) -> bool:
        """Whether it is a function of a module of the same package."""
        root = self.module.partition(".")[0]
        return any(name.partition(".")[0] == root for name in self.bound.dotted(chain))

    def use(self, line: int, alias: str, chain: tuple[str, ...], pythons: int) -> None:
        if self.bound.is_shadowed(alias):
            return
        where = pythons & self.bound.sure.get(alias, 0)
        if where and (alias, chain) not in self.out.used:
            self.out.used[alias, chain] = Used(line=line, alias=alias, chain=chain, pythons=where)

    def ended(self, node: ast.Call, chain: tuple[str, ...], pythons: int) -> None:
        """Note a call that raises by itself."""
        first = node.args[0].value if node.args and isinstance(node.args[0], ast.Constant) else None
        names = self.bound.dotted(chain)
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

    def end(self, line: int, kind: str, about: Sequence[str], pythons: int, error: str = "") -> None:
        """Note a statement that raises here."""
        if pythons:
            self.out.ends.append(Ends(line, kind, tuple(about), error, pythons))

    def anywhere(self, statement: ast.AST) -> None:
        for node in nodes_of(statement):
            if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
                self.bound.bind(node.id)
            elif isinstance(node, ast.alias):
                self.bound.bind(node.asname or node.name.partition(".")[0])
            elif (text := getattr(node, "name", None)) and isinstance(text, str):
                self.bound.bind(text)
            elif isinstance(node, ast.MatchMapping) and node.rest:
                self.bound.bind(node.rest)

    def builtin(self, node: ast.expr) -> str:
        """The dotted name that an expression certainly is in the standard library; else empty."""
        if isinstance(node, ast.Name) and hasattr(builtins, node.id):
            open_ = self.bound.is_bound(node.id) or self.stars or self.anything
            return "" if open_ else f"builtins.{node.id}"
        names = self.bound.dotted(names_in(node))
        only = next(iter(names)) if len(names) == 1 else ""
        return only if only.partition(".")[0] in OF_PYTHON else ""


def _has_more(call: ast.Call) -> bool:
    return any(isinstance(one, ast.Starred) for one in call.args) or None in [w.arg for w in call.keywords]


def _arguments(args: ast.arguments) -> list[ast.arg]:
    every = [*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg]
    return [one for one in every if one is not None]
