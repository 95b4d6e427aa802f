"""Statements that end the import of a module by themselves, read without running it.

They check the installed packages, open a library by its name, or are refused by a release of Python or of
pydantic.
"""

import ast
import builtins
import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from builder.core.decided_tests import FINDERS
from builder.core.module_syntax import called, names_in, nodes_of, parts_of
from builder.core.module_values import ALWAYS, before, since

_MOST_TEXT = 100

# -- libraries that are opened by name

_OPENERS = {"CDLL", "PyDLL", "LoadLibrary", "dlopen", *FINDERS}
_LIBRARY = re.compile(r"lib[\w+.-]+\.so[\d.]*|[A-Za-z][\w+.-]*")


def _libraries(nodes: Sequence[ast.expr]) -> list[str]:
    """Constants, also in tuples, that may be names of libraries of Linux."""
    found: list[str] = []
    for node in nodes:
        if isinstance(node, ast.Tuple | ast.List):
            found += _libraries(node.elts)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found += [node.value]
    return found


def opened(node: ast.Call, functions: Callable[[str], ast.AST | None]) -> tuple[str, ...]:
    """The names of a library that a call tries to open before it raises; empty for another call."""
    name = called(node)
    if any(isinstance(one.value, ast.Constant) and one.value.value is True for one in node.keywords):
        return ()  # the library may be absent, as by weasyprint's allow_fail=True
    function = functions(name) if isinstance(node.func, ast.Name) else None
    direct = function is None and name in _OPENERS - FINDERS and len(_libraries(node.args)) == 1
    helper = isinstance(function, ast.FunctionDef) and _opens_or_raises(function)
    names = _libraries(node.args) if direct or helper else []
    if direct and not names[0].endswith(".so") and ".so." not in names[0] and name != "dlopen":
        return ()
    return tuple(names) if any(_LIBRARY.fullmatch(one) for one in names) else ()


def _opens_or_raises(function: ast.FunctionDef) -> bool:
    """Whether a function ends in opening a library, or by raising, and looks for names that it is given."""
    arguments = {one.arg for one in (*function.args.args, function.args.vararg) if one is not None}
    last = function.body[-1]
    ends = isinstance(last, ast.Raise) or (
        isinstance(last, ast.Return) and isinstance(last.value, ast.Call) and called(last.value) in _OPENERS
    )
    calls = [one for one in nodes_of(function) if isinstance(one, ast.Call) and called(one) in _OPENERS]
    return ends and bool(calls) and bool(arguments)


def looked_for(loop: ast.For, every: Iterable[str], after: ast.stmt | None = None) -> tuple[str, ...]:
    """The names of a library that a loop tries before it raises, at its end or in what comes ``after`` it.

    ``every``: all names in the source; a function that the loop calls may give some of them.
    """
    breaks = any(isinstance(one, ast.Break) for one in nodes_of(loop))
    last = loop.orelse[-1] if loop.orelse else after if not breaks else None
    raises = isinstance(last, ast.Raise)
    calls = any(isinstance(one, ast.Call) and called(one) in _OPENERS for one in nodes_of(loop))
    names = sorted(every) if isinstance(loop.iter, ast.Call) else _libraries([loop.iter])
    return tuple(names) if raises and calls else ()


def mentioned(tree: ast.Module) -> set[str]:
    """Libraries that a source may open anywhere, by names that are written there; ``begin*`` of one whose end
    is put together."""
    found = set[str]()
    for node in nodes_of(tree):
        if isinstance(node, ast.Call) and called(node) in _OPENERS and node.args:
            found |= {one for one in _libraries(node.args[:1]) if _LIBRARY.fullmatch(one)}
            first = node.args[0]
            begin = _libraries([first.left]) if isinstance(first, ast.BinOp) else ()
            found |= {f"{one}*" for one in begin if called(node) in FINDERS and _LIBRARY.fullmatch(one)}
    return found


_FILE = re.compile(r"[\w+.-]+\.so(?:\.\d+)*")
_LATER = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda, ast.Try, ast.TryStar)
"""What an import does not execute, or gets over."""


def files_opened(tree: ast.Module) -> set[str]:
    """Names of files of libraries that stand in a source whose import opens one by a path: by a statement of
    the module, or of a function of it that such a one calls, and not within ``try``.
    """
    functions = {one.name: one for one in tree.body if isinstance(one, ast.FunctionDef)}
    left, every = list[ast.AST](tree.body), list[ast.AST]()
    while left:
        node = left.pop()
        if isinstance(node, _LATER):
            continue
        every.append(node)
        left += ast.iter_child_nodes(node)
        name = called(node) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""
        if name in functions:
            left += functions.pop(name).body
    if not any(isinstance(one, ast.Call) and called(one) in _OPENERS - FINDERS for one in every):
        return set()
    texts = (one.value for one in every if isinstance(one, ast.Constant) and isinstance(one.value, str))
    return {name for text in texts if _FILE.fullmatch(name := text.rpartition("/")[2])}


# -- statements that a release of Python refuses

_TYPES = {"list", "dict", "tuple", "set", "frozenset", "type"}
_BUILTINS = {*_TYPES, "int", "str", "float", "bool", "bytes", "object", "complex"}
_STANDARD = re.compile(r"(?:pathlib|datetime|decimal|uuid|typing|collections(?:\.abc)?|fractions)\.\w+")
_OF_COLLECTIONS = re.compile(r"collections\.(?:abc\.\w+|deque|defaultdict|OrderedDict|Counter|ChainMap)")


def type_errors(
    parts: Iterator[ast.AST], module: Callable[[tuple[str, ...]], set[str]], shadowed: Callable[[str], bool]
) -> Iterator[tuple[int, str, int]]:
    """(line, text, Pythons) of ``int | None`` and ``list[int]``, which older ones do not evaluate."""

    def is_plain(node: ast.expr) -> bool:
        """Whether it has no ``|`` of its own."""
        match node:
            case ast.Constant(value=None):
                return True
            case ast.Name(id=name) if name in _BUILTINS:
                return not shadowed(name)
            case ast.Subscript(value=inner):
                return is_plain(inner) and not isinstance(inner, ast.Constant)
            case ast.BinOp(op=ast.BitOr(), left=left, right=right):
                return is_plain(left) and is_plain(right)
            case ast.Name() | ast.Attribute():
                names = module(names_in(node))
                return bool(names) and all(_STANDARD.fullmatch(name) for name in names)
            case _:
                return False

    for node in parts:
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            nothing = isinstance(node.left, ast.Constant) and isinstance(node.right, ast.Constant)
            if not nothing and is_plain(node):
                text = f"evaluates {ast.unparse(node)[:_MOST_TEXT]}, which no Python before 3.10 does"
                yield node.lineno, text, before(10)
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
            names = module(names_in(node.value))
            own = isinstance(node.value, ast.Name) and node.value.id in _TYPES and not shadowed(node.value.id)
            if own or (names and all(_OF_COLLECTIONS.fullmatch(name) for name in names)):
                text = f"evaluates {ast.unparse(node)[:_MOST_TEXT]}, which no Python before 3.9 does"
                yield node.lineno, text, before(9)


_ALIASED = {
    "asyncio.TimeoutError": ("builtins.TimeoutError", since(11)),
    "asyncio.exceptions.TimeoutError": ("builtins.TimeoutError", since(11)),
    "concurrent.futures.TimeoutError": ("builtins.TimeoutError", since(11)),
    "socket.timeout": ("builtins.TimeoutError", since(10)),
    **dict.fromkeys(
        (f"builtins.{name}" for name in ("IOError", "EnvironmentError")), ("builtins.OSError", ALWAYS)
    ),
    **dict.fromkeys(("os.error", "select.error", "socket.error"), ("builtins.OSError", ALWAYS)),
}
"""What some Pythons call another exception's class: the version notes of ``asyncio.TimeoutError`` (3.11),
``concurrent.futures.TimeoutError`` (3.11), ``socket.timeout`` (3.10) and ``OSError`` (3.3) say so."""


def refused_bases(bases: Sequence[str]) -> Iterator[tuple[str, int]]:
    """(text, Pythons) of bases that no class has together: one twice, or after one that it is made of.

    ``bases``: their dotted names, empty for one that may be another thing.
    """
    for number, later in enumerate(bases):
        for earlier in filter(None, bases[:number] if later else ()):
            pythons = 0
            for minor in range(32):
                one, other = (_class_of(name, minor) for name in (earlier, later))
                kind, of = (getattr(builtins, name.removeprefix("builtins."), None) for name in (one, other))
                above = isinstance(kind, type) and isinstance(of, type) and issubclass(of, kind)
                pythons |= (one == other or above) << minor
            if pythons:
                both = " and ".join(name.removeprefix("builtins.") for name in (earlier, later))
                yield f"makes a class of {both}, which this Python refuses together", pythons


def _class_of(name: str, minor: int) -> str:
    other, pythons = _ALIASED.get(name, ("", 0))
    return other if pythons >> minor & 1 else name


def refused_code(node: ast.Call) -> int:
    """The Pythons that do not take the arguments of a call of ``types.CodeType``.

    They changed with 3.8, which put posonlyargcount before all but the first, and with 3.11, which asks for
    qualname and exceptiontable (``Objects/codeobject.c``; the changes of the C API in "What's New").
    """
    if node.keywords or any(isinstance(one, ast.Starred) for one in node.args):
        return 0
    last = [getattr(one, "attr", "") for one in node.args]
    refused = 0
    for pythons, least, most, at in (
        (before(8), 13, 15, 5),
        (since(8) & before(11), 14, 16, 6),
        (since(11), 16, 18, 6),
    ):
        misplaced = "co_code" in last and last.index("co_code") != at
        if misplaced or not least <= len(last) <= most:
            refused |= pythons
    return refused


def misplaced_flags(node: ast.Call) -> bool:
    """Whether a regular expression has its global flags elsewhere than at its start."""
    first = node.args[0] if node.args else None
    if called(node) not in _OF_RE or not isinstance(first, ast.Constant) or not isinstance(first.value, str):
        return False
    text = first.value
    if not re.search(r".\(\?[aiLmsux]+\)", text, re.DOTALL):
        return False
    try:
        re.compile(text.lstrip() if len(node.args) > 1 or node.keywords else text)
    except re.error as problem:
        return "global flags not at the start" in str(problem)
    except (OverflowError, RecursionError):  # the flags were not come to
        return False
    return False


def old_entries(expression: ast.expr) -> Iterator[tuple[int, tuple[str, ...]]]:
    """(line, the called function) of each ``entry_points().get(group)``: a dictionary of groups, which the
    function of Python 3.8 to 3.11 gives ("What's New In Python 3.12", importlib.metadata)."""
    for node in parts_of(expression):
        match node:
            case ast.Call(
                func=ast.Attribute(
                    value=ast.Call(func=function, args=[], keywords=[]), attr="get" | "items" | "keys"
                )
            ):
                yield node.lineno, names_in(function)
            case _:
                pass


_OF_RE = {"compile", "search", "match", "fullmatch", "split", "findall", "finditer", "sub", "subn"}


def newest_syntax(tree: ast.Module) -> int:
    """The minor release of Python that the newest of its statements came with, as far as they tell."""
    nodes = nodes_of(tree)
    kinds = set(map(type, nodes))
    needs = max(_CAME.get(kind.__name__, 0) for kind in kinds)
    for field, came in (("posonlyargs", 8), ("type_params", 12)):
        having = tuple(kind for kind in kinds if issubclass(kind, ast.AST) and field in kind._fields)
        if came > needs and any(isinstance(node, having) and getattr(node, field) for node in nodes):
            needs = came
    return needs


_CAME = {"NamedExpr": 8, "Match": 10, "TryStar": 11, "TypeAlias": 12, "TemplateStr": 14}


def has_no_hash(own: ast.ClassDef, module: Callable[[tuple[str, ...]], set[str]]) -> bool:
    """Whether objects of a class certainly have none: by ``@dataclass``, or an ``__eq__`` without a hash."""
    defined = {one.name for one in own.body if isinstance(one, ast.FunctionDef)}
    defined |= {
        target.id
        for one in own.body
        if isinstance(one, ast.Assign)
        for target in one.targets
        if isinstance(target, ast.Name)
    }
    if "__hash__" in defined or own.keywords:
        return False
    if not own.decorator_list:
        return "__eq__" in defined
    if len(own.decorator_list) > 1 or not is_dataclass(own, module):
        return False
    decorator = own.decorator_list[0]
    given = {
        one.arg: getattr(one.value, "value", None)
        for one in (decorator.keywords if isinstance(decorator, ast.Call) else ())
    }
    settled = all(isinstance(one, bool) for one in given.values())
    return settled and not (given.get("eq") is False or given.get("frozen") or given.get("unsafe_hash"))


def is_dataclass(own: ast.ClassDef, module: Callable[[tuple[str, ...]], set[str]]) -> bool:
    names = [one.func if isinstance(one, ast.Call) else one for one in own.decorator_list]
    return any(module(names_in(one)) == {"dataclasses.dataclass"} for one in names)


def mutable_defaults(own: ast.ClassDef) -> Iterator[tuple[int, str, tuple[str, ...]]]:
    """(line, field, called name) of the fields of a dataclass whose default a call makes."""
    for one in own.body:
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name):
            hint = ast.unparse(one.annotation)
            if not isinstance(one.value, ast.Call) or re.search(r"ClassVar|InitVar", hint):
                continue
            if chain := names_in(one.value.func):
                yield one.lineno, one.target.id, chain


_OF_EACH_CLASS = {"__firstlineno__", "__static_attributes__"}
"""What Python 3.13 and newer put into the dictionary of each class ("What's New In Python 3.13")."""


def counts_attributes(own: ast.ClassDef) -> bool:
    """Whether a class raises for each class of it with attributes beside those that it lists, of which some
    are not that newer Pythons give each class."""
    for one in own.body:
        if not (isinstance(one, ast.FunctionDef) and one.name == "__init_subclass__" and one.args.args):
            continue
        rest = f"set({one.args.args[0].arg}.__dict__)"
        for node in nodes_of(one):
            match node:
                case ast.Assign(
                    targets=[ast.Name(id=name)],
                    value=ast.Call(
                        func=ast.Attribute(value=on, attr="difference"),
                        args=[ast.Set(elts=parts) | ast.List(elts=parts) | ast.Tuple(elts=parts)],
                    ),
                ) if ast.unparse(on) == rest:
                    listed = {getattr(part, "value", None) for part in parts}
                    settled = all(isinstance(text, str) for text in listed)
                    if settled and not listed >= _OF_EACH_CLASS and _raises_for(one, name):
                        return True
    return False


def _raises_for(function: ast.FunctionDef, name: str) -> bool:
    tests = (node for node in nodes_of(function) if isinstance(node, ast.If))
    return any(ast.unparse(one.test) == name and isinstance(one.body[-1], ast.Raise) for one in tests)


# -- code for pydantic 1 that pydantic 2 refuses
# https://docs.pydantic.dev/latest/errors/usage_errors/


def refused_decorators(function: ast.FunctionDef) -> Iterator[tuple[int, str, tuple[str, ...]]]:
    """(line, text, the decorator)"""
    for one in function.decorator_list:
        chain = names_in(one.func if isinstance(one, ast.Call) else one)
        if not chain:
            continue
        if chain[-1] == "root_validator":
            given = {word.arg: word.value for word in (one.keywords if isinstance(one, ast.Call) else ())}
            open_ = None in given or (isinstance(one, ast.Call) and one.args)
            mends = [given.get(word) for word in ("pre", "skip_on_failure")]
            left_out = all(
                word is None or (isinstance(word, ast.Constant) and word.value is False) for word in mends
            )
            if left_out and not open_:
                yield one.lineno, "has a @root_validator without skip_on_failure=True", chain
        elif chain[-1] == "validator" and isinstance(one, ast.Call):
            args = {arg.arg for arg in (*function.args.args, *function.args.kwonlyargs)}
            if wrong := sorted(args & {"field", "config"}):
                yield one.lineno, f"has a @validator with the argument {wrong[0]}", chain


def refused_field(call: ast.Call) -> str:
    """The text for the user about an argument that pydantic 2 refuses; empty without one."""
    removed = {"Field": ("const", "regex", "unique_items"), "conlist": ("unique_items",)}
    for word in call.keywords:
        nothing = isinstance(word.value, ast.Constant) and word.value.value is None
        if word.arg in removed.get(called(call), ()) and not nothing:
            return f"gives {called(call)} the argument {word.arg}"
    return ""


def refused_attributes(own: ast.ClassDef) -> Iterator[tuple[int, str, tuple[str, ...]]]:
    """(line, text, the base) of a model's fields."""
    chain = names_in(own.bases[0]) if len(own.bases) == 1 else ()
    if not chain or chain[-1] != "BaseModel" or own.decorator_list:
        return
    hinted = {
        one.target.id
        for one in own.body
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
    }
    if "__root__" in hinted:
        yield own.lineno, "has a model with a field __root__", chain
    for one in own.body:
        target = one.targets[0] if isinstance(one, ast.Assign) and len(one.targets) == 1 else None
        if not isinstance(one, ast.Assign) or not isinstance(target, ast.Name):
            continue
        plain = isinstance(one.value, ast.Constant | ast.List | ast.Dict | ast.Set | ast.Tuple)
        if plain and not target.id.startswith("_") and target.id not in hinted | {"model_config", "Config"}:
            yield one.lineno, f"has a model with {target.id}, which has no annotation", chain


# -- exceptions


def raised(statement: ast.Raise) -> tuple[str, str]:
    """The exception's name, and its text as far as that is written there."""
    if statement.exc is None:
        return "", ""
    texts = (
        one.value
        for one in nodes_of(statement.exc)
        if isinstance(one, ast.Constant) and isinstance(one.value, str)
    )
    text = " ".join(" ".join(texts).split())
    return called(statement.exc), text[:_MOST_TEXT]


def handled(handler: ast.ExceptHandler) -> tuple[str, ...]:
    """The names of the exceptions that it gets; ``*`` for all."""
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return tuple("*" if one is None else called(one) for one in kinds)


def catches(kinds: Sequence[str], error: str) -> bool | None:
    """Whether a handler of these kinds gets an exception; None if nobody knows."""
    mine = getattr(builtins, _ALIASES.get(error, error), None)
    unknown = False
    for kind in kinds:
        other = getattr(builtins, _ALIASES.get(kind, kind), None)
        if kind in {"*", "BaseException", "Exception"} or (error and kind == error):
            return True
        if not (isinstance(mine, type) and isinstance(other, type)):
            unknown = True
        elif issubclass(mine, other):
            return True
    return None if unknown or not error else False


def lets_out(handlers: Sequence[Sequence[str]], error: str) -> bool:
    """Whether no handler gets an exception, for certain."""
    return all(catches(kinds, error) is False for kinds in handlers)


_ALIASES = {"PackageNotFoundError": "ModuleNotFoundError", "error": "OSError"}
_STAYS = ("KeyError", "ValueError", "TypeError", "NameError", "OSError", "IOError", "IndexError")
"""Exceptions that are not raised for what is missing in another module."""


def lets_through(handler: ast.ExceptHandler) -> bool:
    """Whether what is missing ends the import nevertheless."""
    if handler.body and isinstance(handler.body[-1], ast.Raise):
        # nothing before it leaves the handler another way: it is no loop's and no function's
        turns = [n for n in nodes_of(handler) if isinstance(n, ast.For | ast.While)]
        inside = {id(n) for one in turns for part in one.body for n in nodes_of(part)}
        ends = (n for n in nodes_of(handler) if isinstance(n, ast.Return | ast.Continue | ast.Break))
        return all(id(n) in inside and not isinstance(n, ast.Return) for n in ends)
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return all(isinstance(one, ast.Name) and one.id in _STAYS for one in kinds)


def catches_imports(handler: ast.ExceptHandler) -> bool:
    """Whether it gets every import that fails."""
    return not {"*", "ImportError", "Exception", "BaseException"}.isdisjoint(handled(handler))
