"""Runs the part of a module's source that the wheels of a set decide: functions that say what is installed
(``is_torch_available()``), and what a package imports when it is asked for a name (``_LazyModule``, a
``__getattr__``).

Nothing of a wheel is executed: the statements are walked, and whatever is not known stays unknown.
"""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from builder.core.decided_tests import SAYS_WHETHER, UnknownValueError
from builder.core.import_set import ImportSet
from builder.core.module_ends import catches, handled, raised
from builder.core.module_expressions import (
    CHANGES,
    MOST_TURNS,
    SOMETHING,
    UNKNOWN,
    Dotted,
    Expressions,
    Function,
    RaisesError,
    RunState,
    Scopes,
    Structure,
    is_doubtful,
)
from builder.core.module_syntax import bound_in, called, last_name, may_leave, nodes_of
from builder.core.module_values import ModuleNames
from builder.core.python_names import OF_PYTHON

_ASKS = re.compile(
    r"\b(?:find_spec|metadata|get_distribution|environ|getenv|__version__)\b|(?<!def )\b_?(?:is|has)_\w+\("
)
_DEFINES = ("def is_", "def has_", "def _is_", "def _has_", "def __getattr__", "dir(")
_MOST_CALLS = 12
_MOST_NODES = 400
_MOST_STEPS = 200_000
_BREAKS, _GOES_ON = object(), object()


# -- the part of a source that is kept


def kept_source(tree: ast.Module, text: str, globals_: Iterable[str], *, lazy: bool) -> str:
    """The statements of a module that its answers come from: those of functions that say whether something
    is there, of names that the environment gives, of its ``__getattr__`` and, if it is ``lazy``, of its
    ``_LazyModule``. Empty if there are none."""
    if not lazy and not any(one in text for one in _DEFINES):
        return ""
    body = [part for statement in tree.body for part in _without_types(statement)]
    binds = [bound_in(one) if hasattr(one, "body") or isinstance(one, _BINDS) else set[str]() for one in body]
    changed = [_changed(one) for one in body]
    wanted = {number for number, one in enumerate(body) if _is_wanted(one, lazy=lazy)}
    queue, names, never = list(wanted), set[str](), frozenset(globals_)
    while queue:
        number = queue.pop()
        new = {
            node.id
            for node in nodes_of(body[number])
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
        } | binds[number]
        new -= names | never
        names |= new
        if new:
            more = {at for at in range(len(body)) if at not in wanted and (binds[at] | changed[at]) & new}
            wanted |= more
            queue += more
    kept = [body[number] for number in sorted(wanted)]
    if not kept or not any(isinstance(one, ast.FunctionDef) or lazy for one in kept):
        return ""
    found = ast.unparse(ast.Module(body=kept, type_ignores=[]))
    return found if lazy or _ASKS.search(found) or "def __getattr__" in found or "dir(" in found else ""


_BINDS = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Import, ast.ImportFrom)


def _without_types(statement: ast.stmt) -> Iterable[ast.stmt]:
    """A statement without what type checkers alone read."""
    if isinstance(statement, ast.If) and "TYPE_CHECKING" in map(last_name, nodes_of(statement.test)):
        if last_name(statement.test) == "TYPE_CHECKING":
            return [part for one in statement.orelse for part in _without_types(one)]
        return [ast.If(test=statement.test, body=[ast.Pass()], orelse=statement.orelse)]
    return [statement]


def _changed(statement: ast.stmt) -> set[str]:
    """Names of lists and dictionaries that a statement of the module changes."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return set()
    found = set[str]()
    for node in nodes_of(statement):
        inner: ast.AST | None = None
        if isinstance(node, ast.Subscript):
            inner = node.value if not isinstance(node.ctx, ast.Load) else None
        elif isinstance(node, ast.Attribute):
            inner = node.value if node.attr in CHANGES else None
        while isinstance(inner, ast.Subscript):
            inner = inner.value
        found |= {inner.id} if isinstance(inner, ast.Name) else set()
    return found


def _is_wanted(statement: ast.stmt, *, lazy: bool) -> bool:
    if isinstance(statement, ast.FunctionDef):
        if statement.name == "__getattr__":
            return True
        calls = {called(one) for one in nodes_of(statement) if isinstance(one, ast.Call)}
        if "dir" in calls and len(statement.body) < 8:
            return True  # diffusers' get_objects_from_module
        few = len(statement.args.args) < 4 and len(nodes_of(statement)) < _MOST_NODES
        return few and SAYS_WHETHER.match(statement.name) is not None
    if isinstance(statement, ast.ClassDef):
        return False
    every = nodes_of(statement)
    if isinstance(statement, ast.Assign) and any(last_name(one) in {"environ", "getenv"} for one in every):
        return True
    return lazy and any(isinstance(one, ast.Call) and called(one) == "_LazyModule" for one in every)


# -- the run of what is kept


class Runs(RunState):
    """The modules of a set, each run once."""

    def __init__(self, every: ImportSet) -> None:
        super().__init__(every)
        every.unlisted = partial(_unlisted, self)
        self._modules: dict[str, ModuleRun | None] = {}
        self._answers: dict[tuple[str, str, str], tuple[Any, str]] = {}

    def module(self, module: str) -> "ModuleRun | None":
        if module not in self._modules:
            self._modules[module] = None  # of modules that import each other
            found = self.every.names(module)
            if found is not None and found.source and self.every.owner(module) is not None:
                outer = self.trying, self.decides
                self.trying = 0  # the import of a module is not what the block that asks it tries
                self._modules[module] = ModuleRun(self, module, found.source)
                self.trying, self.decides = outer
        return self._modules[module]

    def answer(self, module: str, name: str, args: Sequence[Any], words: Mapping[str, Any]) -> Any:
        """What a function of a module returns. Raises UnknownValueError."""
        key = (module, name, repr((args, sorted(words.items()))))
        if key not in self._answers:
            self.decides = ""
            found = self.value_of(module, name)
            try:
                answer = self.call(found, list(args), dict(words))
            except RaisesError:
                answer = UNKNOWN
            self._answers[key] = answer, self.decides
        answer, self.decides = self._answers[key]
        if answer is UNKNOWN or isinstance(answer, Dotted):
            raise UnknownValueError
        return answer is not None if answer is SOMETHING else answer

    def value_of(self, module: str, name: str, depth: int = 0) -> Any:
        """The value of a name of a module, that of the one that it is imported from if it is."""
        run = self.module(module)
        value = run.names.get(name, UNKNOWN) if run is not None else UNKNOWN
        if isinstance(value, Dotted) and len(value.names) == 1:
            value, module, name = UNKNOWN, value.module, value.names[0]
            return self.value_of(module, name, depth + 1) if depth < _MOST_CALLS else UNKNOWN
        if value is not UNKNOWN or depth >= _MOST_CALLS:
            return value
        found = self.every.names(module)
        at: tuple[str, str] | None = None
        if found is not None and name in found.bound and found.bound[name][1] is not None:
            source, inner = found.bound[name]
            at = (source, inner or "")
        elif found is not None and name not in found.names:
            at = self.every.origin(module, name)
        return self.value_of(*at, depth + 1) if at is not None and at != (module, name) else UNKNOWN

    def call(self, function: Any, args: list[Any], words: dict[str, Any]) -> Any:
        if not isinstance(function, Function) or self.depth >= _MOST_CALLS:
            return UNKNOWN
        names = _arguments(function, args, words)
        if names is None:
            return UNKNOWN
        self.depth += 1
        try:
            found = function.of.block(function.node.body, [names], inside=True)
        except UnknownValueError:
            return UNKNOWN
        finally:
            self.depth -= 1
        return None if found is ... else found


def _arguments(function: Function, args: list[Any], words: dict[str, Any]) -> dict[str, Any] | None:
    own = function.node.args
    every = [*own.posonlyargs, *own.args]
    if len(args) > len(every) and own.vararg is None:
        return None
    names: dict[str, Any] = {one.arg: UNKNOWN for one in (own.vararg, own.kwarg) if one is not None}
    rows = list(zip(every[len(every) - len(own.defaults) :], own.defaults, strict=True))
    rows += [(one, value) for one, value in zip(own.kwonlyargs, own.kw_defaults, strict=True) if value]
    names |= {one.arg: function.of.value(value, [{}]) for one, value in rows}
    names |= {one.arg: value for one, value in zip(every, args, strict=False)}
    known = {one.arg for one in (*every, *own.kwonlyargs)}
    names |= {name: value for name, value in words.items() if name in known}
    return names if known <= names.keys() else None


class ModuleRun(Expressions):
    """The run of what is kept of one module."""

    def __init__(self, runs: RunState, module: str, source: str) -> None:
        super().__init__(runs, module)
        try:
            self.block(ast.parse(source).body, [self.names])
        except (RaisesError, UnknownValueError, RecursionError, SyntaxError):
            self.names, self.structure = {}, None

    def block(self, body: Sequence[ast.stmt], scopes: Scopes, *, inside: bool = False) -> Any:
        """What the statements return; ``...`` if they do not. Raises RaisesError, and UnknownValueError if it
        is not known where they go."""
        for statement in body:
            self.runs.steps += 1
            if self.runs.steps > _MOST_STEPS:
                raise UnknownValueError
            outer = self.runs.decides
            if scopes[0] is self.names:
                self.runs.decides = ""
            try:
                answer = self.statement(statement, scopes, inside=inside)
            except UnknownValueError:
                if inside or self.runs.trying:
                    raise
                self.doubt(statement, scopes)
                continue
            finally:
                if scopes[0] is self.names:
                    if self.runs.decides:
                        self.deciders |= dict.fromkeys(bound_in(statement), self.runs.decides)
                    self.runs.decides = outer
            if answer is not ...:
                return answer
        return ...

    def statement(self, statement: ast.stmt, scopes: Scopes, *, inside: bool) -> Any:
        match statement:
            case ast.Return(value=given):
                return self.value(given, scopes) if given is not None else None
            case ast.Raise():
                raise RaisesError(raised(statement)[0])
            case ast.Break():
                return _BREAKS
            case ast.Continue():
                return _GOES_ON
            case ast.If() | ast.Try() | ast.For() | ast.With():
                return self.compound(statement, scopes, inside=inside)
            case _:
                self.plain(statement, scopes, inside=inside)
        return ...

    def plain(self, statement: ast.stmt, scopes: Scopes, *, inside: bool) -> None:
        """A statement after which the next one follows."""
        match statement:
            case ast.Assign(targets=targets, value=given):
                value = self.value(given, scopes)
                for target in targets:
                    self.store(target, value, scopes)
            case ast.AnnAssign(target=target, value=given):
                if given is not None:
                    self.store(target, self.value(given, scopes), scopes)
            case ast.AugAssign(target=target, op=op, value=given):
                self.store(target, self.value(ast.BinOp(target, op, given), scopes), scopes)
            case ast.Expr(value=given):
                self.value(given, scopes)
            case ast.Import() | ast.ImportFrom():
                self.import_(statement, scopes)
            case ast.FunctionDef(name=name):
                known = _is_undecorated(statement) and not inside
                scopes[0][name] = Function(self, statement) if known else UNKNOWN
            case ast.ClassDef(name=name) | ast.AsyncFunctionDef(name=name):
                scopes[0][name] = UNKNOWN
            case ast.Pass() | ast.Global():
                pass
            case _:
                raise UnknownValueError

    def compound(
        self, statement: ast.If | ast.Try | ast.For | ast.With, scopes: Scopes, *, inside: bool
    ) -> Any:
        match statement:
            case ast.If(test=test, body=then, orelse=other):
                answer = self.test(test, scopes)
                if answer is not UNKNOWN:
                    return self.block(then if answer else other, scopes, inside=inside)
                if may_leave(statement):
                    raise UnknownValueError
                self.doubt(statement, scopes)
                return ...
            case ast.With(items=[ast.withitem(context_expr=given)], body=body):
                if called(given) not in {"catch_warnings", "suppress_warnings"}:
                    raise UnknownValueError
                return self.block(body, scopes, inside=inside)
            case ast.For():
                return self.for_(statement, scopes, inside=inside)
            case ast.Try():
                return self.try_(statement, scopes, inside=inside)
            case _:
                raise UnknownValueError

    def try_(self, statement: ast.Try, scopes: Scopes, *, inside: bool) -> Any:
        self.runs.trying += 1
        error = ""
        answer: Any = ...
        try:
            answer = self.block(statement.body, scopes, inside=inside)
        except RaisesError as problem:
            error = str(problem)
            if not error:
                raise UnknownValueError from None
        finally:
            self.runs.trying -= 1
        if not error:
            answer = self.block(statement.orelse, scopes, inside=inside) if answer is ... else answer
        else:
            for handler in statement.handlers:
                gets = catches(handled(handler), error)
                if gets is None:
                    gets = False if _is_optional(error) or _is_optional(*handled(handler)) else None
                if gets is None:
                    raise UnknownValueError
                if gets:
                    answer = self.block(handler.body, scopes, inside=inside)
                    break
            else:
                raise RaisesError(error)
        last = self.block(statement.finalbody, scopes, inside=inside)
        return answer if last is ... else last

    def for_(self, statement: ast.For, scopes: Scopes, *, inside: bool) -> Any:
        every = self.value(statement.iter, scopes)
        if not isinstance(every, list | tuple | set | frozenset | dict) or is_doubtful(every):
            if may_leave(statement) or self.runs.trying:
                raise UnknownValueError
            self.doubt(statement, scopes)
            return ...
        for one in list(every)[:MOST_TURNS]:
            self.store(statement.target, one, scopes)
            answer = self.block(statement.body, scopes, inside=inside)
            if answer is _BREAKS:
                return ...
            if answer is not ... and answer is not _GOES_ON:
                return answer
        return self.block(statement.orelse, scopes, inside=inside)

    def importing(self, module: str) -> None:
        """An import: in a ``try``, which asks whether it succeeds, nobody knows of one that is there."""
        lacking = self.every.lacks_module(module)
        if lacking is not None:
            self.decided_by(module)
            raise RaisesError("ModuleNotFoundError")
        if self.runs.trying and module.partition(".")[0] not in OF_PYTHON:
            raise UnknownValueError
        self.imported.append(module)

    def import_(self, statement: ast.Import | ast.ImportFrom, scopes: Scopes) -> None:
        if isinstance(statement, ast.Import):
            for one in statement.names:
                self.importing(one.name)
                first = one.name.partition(".")[0]
                scopes[0][one.asname or first] = Dotted(one.name if one.asname else first)
            return
        parts = self.package.split(".")
        kept = len(parts) - statement.level + 1
        if statement.level and kept <= 0:
            raise UnknownValueError
        begin = parts[:kept] if statement.level else []
        module = ".".join([*begin, *([statement.module] if statement.module else [])])
        self.importing(module)
        for one in statement.names:
            if one.name != "*":
                inner = f"{module}.{one.name}"
                self.imported += [inner] if self.every.there(inner) else []
                scopes[0][one.asname or one.name] = Dotted(module, (one.name,))


def _is_undecorated(function: ast.FunctionDef) -> bool:
    """Whether a call of a function returns what its statements do."""
    around = {last_name(getattr(one, "func", one)) for one in function.decorator_list}
    yields = any(isinstance(one, ast.Yield | ast.YieldFrom) for one in nodes_of(function))
    return around <= {"cache", "lru_cache"} and not yields


# -- names that a package imports when it is asked for them


def deferred(runs: Runs, module: str, name: str) -> Iterator[tuple[str, str | None]]:
    """The modules that a package imports when it is asked for a name, each with the name that it takes of
    it, if that is known. Nothing for a name that it has without, or of which it is not known."""
    found = runs.every.names(module)
    if found is None:
        return
    # what is asked of none of these is not run at all
    asks = found.lazy or ("__getattr__" in found.names and (name in found.deferred or _is_free(found, name)))
    run = runs.module(module) if asks else None
    if runs.every.there(f"{module}.{name}"):
        if found.lazy and run is not None and run.structure is not None and name in run.structure.rows:
            yield f"{module}.{name}", None
        return
    of, inner = found.deferred.get(name, ("", None))
    if of:
        yield of, inner
    elif run is not None and found.lazy and run.structure is not None:
        if (at := _of_structure(runs, run, run.structure, name)) is not None:
            yield at, name
    elif run is not None and "__getattr__" in run.names:
        run.imported = []
        try:
            runs.call(run.names["__getattr__"], [name], {})
        except RaisesError:
            return
        yield from ((one, None) for one in dict.fromkeys(run.imported))


def _is_free(found: ModuleNames, name: str) -> bool:
    """Whether no statement of a module binds a name."""
    return name not in found.names and not found.stars and not name.startswith("__")


def _is_known(structure: Structure, run: ModuleRun, name: str) -> bool:
    """Whether the rows alone tell what a ``_LazyModule`` gives for a name."""
    rows = structure.rows
    if rows.doubt is None or name in rows.doubt or structure.own is None or run.added is None:
        return False
    if name in structure.own or name in run.added:
        return False
    return all(isinstance(names, list | set | tuple) and UNKNOWN not in names for names in rows.values())


_DERIVED = re.compile(r"(?:Fast|Tokenizer|Processor\w*|Extractor)$")
"""Names that transformers 5 gives by others:
https://github.com/huggingface/transformers/blob/v5.0.0/src/transformers/utils/import_utils.py
"""


def _unlisted(runs: Runs, module: str, name: str) -> bool:
    """Whether a ``_LazyModule`` certainly lacks a name that is no module below it."""
    run = runs.module(module)
    structure = run.structure if run is not None else None
    if run is None or structure is None or _DERIVED.search(name) or not _is_known(structure, run, name):
        return False
    if any(name in names or name in str(key).split(".") for key, names in structure.rows.items()):
        return False
    folder = structure.folder
    return not folder or runs.every.exporting(runs.every.owner(folder) or "", folder, name) == []


def _of_structure(runs: Runs, run: ModuleRun, structure: Structure, name: str) -> str | None:
    """The module that a ``_LazyModule`` takes a name of."""
    rows, module = structure.rows, run.module
    if not _is_known(structure, run, name):
        return None
    inner = [key for key, names in rows.items() if name in names and isinstance(key, str)]
    if inner:
        return f"{module}.{inner[-1]}"
    return _of_folder(runs, module, structure.folder, name) if structure.folder else None


# what transformers' define_import_structure demands of a module by its name:
# https://github.com/huggingface/transformers/blob/v4.52.2/src/transformers/utils/import_utils.py
_OF_FILES = (
    ("modeling_tf_", "", ("tf",)),
    ("modeling_flax_", "", ("flax",)),
    ("modeling_", "", ("torch",)),
    ("tokenization_", "_fast", ("tokenizers",)),
    ("image_processing_", "_fast", ("vision", "torch", "torchvision")),
    ("image_processing_", "", ("vision",)),
)


def _of_folder(runs: Runs, module: str, folder: str, name: str) -> str | None:
    """The only module of a folder with a name in ``__all__`` whose demands the set meets."""
    every = runs.every
    said = every.exporting(every.owner(folder) or "", folder, name)
    rows = [(one, every.names(one)) for one in said or ()]
    having = [
        (one, found) for one, found in rows if found is None or found.public is None or name in found.public
    ]
    having = [(one, found) for one, found in having if not one.rpartition(".")[2].startswith("modular_")]
    having = [(one, found) for one, found in having if found is None or not found.lazy]
    at, found = having[0] if len(having) == 1 else ("", None)
    if found is None or found.public is None:
        return None
    last, demands = at.rpartition(".")[2], found.backends.get(name, ())
    for begin, end, needed in _OF_FILES:
        if begin in last and last.endswith(end):
            demands = (*demands, *needed)
            break
    maker = runs.module(module)
    asked = maker.names.get("define_import_structure") if maker is not None else None
    if not isinstance(asked, Dotted):
        return None
    for one in demands:
        try:
            if not runs.answer(asked.module, f"is_{one}_available", (), {}):
                return None
        except UnknownValueError:
            return None
    return at


def _is_optional(*names: str) -> bool:
    """Whether all of these exceptions are transformers' ``OptionalDependencyNotAvailable``: no
    handler of another exception gets it, and a handler of it gets no other.
    """
    return all("OptionalDependency" in name for name in names)
