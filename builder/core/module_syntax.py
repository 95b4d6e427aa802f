"""Questions about the syntax of a source that have one answer, whatever is executed before."""

import ast
import re
from collections.abc import Iterable, Iterator

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
MAKERS = frozenset({"attach", "_attach", "deprecation_getattr", "_deprecation_getattr"})
"""Functions that make a ``__getattr__`` of tables: scientific-python's lazy loader, and JAX's."""
_WORD = re.compile(rb"[A-Za-z_]\w*")
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_QUIET_CALLS = frozenset(
    {
        *("Logger", "NewType", "NullHandler", "Path", "PurePath", "PytestTester", "TypeVar"),
        *("abspath", "dirname", "endswith", "files", "find_spec", "format", "getChild", "getLogger"),
        *("get_log", "get_logger", "getattr", "import_module", "isinstance", "join", "len", "logger"),
        *("partition", "print", "realpath", "replace", "resource_filename", "rpartition", "rsplit"),
        *("split", "startswith", "version", "warn"),
    }
)
"""Functions that take ``__name__`` and leave the module as it is."""


_WITHOUT_NODES = frozenset(
    {
        *("arg", "asname", "attr", "conversion", "ctx", "id", "is_async", "kind", "kwd_attrs", "level"),
        *("lineno", "module", "n", "op", "ops", "rest", "s", "simple", "tag", "type_comment"),
    }
)
"""Fields of a node that hold texts, numbers, or what has neither fields nor a place: contexts, operators."""
_FIELDS: dict[type, tuple[str, ...]] = {ast.Constant: ()}


def children_of(node: ast.AST) -> list[ast.AST]:
    """As :func:`ast.iter_child_nodes`, but for contexts and operators, which are a half of all nodes.

    Kept with the node, since one source is walked many times.
    """
    kept: list[ast.AST] | None = getattr(node, "kept_children", None)
    if kept is not None:
        return kept
    kind = type(node)
    fields = _FIELDS.get(kind)
    if fields is None:
        fields = _FIELDS[kind] = tuple(name for name in node._fields if name not in _WITHOUT_NODES)
    found: list[ast.AST] = []
    for name in fields:
        value = getattr(node, name, None)
        if isinstance(value, list):
            found += [one for one in value if isinstance(one, ast.AST)]
        elif isinstance(value, ast.AST):
            found.append(value)
    node.kept_children = found  # type: ignore[attr-defined]
    return found


def nodes_of(tree: ast.AST) -> list[ast.AST]:
    """A node and all below it, as :func:`children_of` has them, in the order of :func:`ast.walk`."""
    found = [tree]
    for node in found:
        try:
            found += node.kept_children  # type: ignore[attr-defined]
        except AttributeError:
            found += children_of(node)
    return found


def last_name(node: ast.AST | None) -> str:
    """The last name of ``a.b.c``; empty for another expression."""
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def called(node: ast.AST) -> str:
    """The last name of the function that is called, or of what is not called."""
    return last_name(node.func if isinstance(node, ast.Call) else node)


def attributes_of(node: ast.expr) -> tuple[ast.expr, tuple[str, ...]]:
    """``a.b.c`` as ``a`` and the attributes that are read of it."""
    chain: list[str] = []
    while isinstance(node, ast.Attribute):
        if isinstance(node.ctx, ast.Load):
            chain.append(node.attr)
        node = node.value
    return node, tuple(reversed(chain))


def names_in(node: ast.expr) -> tuple[str, ...]:
    """``a.b.c`` as its names; empty for another expression."""
    first, chain = attributes_of(node)
    return (first.id, *chain) if isinstance(first, ast.Name) else ()


def attributes(expression: ast.expr) -> Iterator[tuple[ast.expr, tuple[str, ...]]]:
    """Every ``name.first.second`` that is certainly evaluated; of one that is called, the call, too."""
    stack: list[ast.AST] = [expression]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Attribute):
            inner, chain = attributes_of(node)
            if isinstance(inner, ast.Name) and chain:
                yield node, (inner.id, *chain)
            elif not isinstance(inner, ast.Name):
                stack.append(inner)
            continue
        if isinstance(node, ast.Call):
            inner, chain = attributes_of(node.func)
            if isinstance(inner, ast.Name):
                yield node, (inner.id, *chain)
        stack += _evaluated(node)


def parts_of(expression: ast.expr) -> Iterator[ast.AST]:
    """All parts of an expression that are evaluated whenever it is."""
    stack: list[ast.AST] = [expression]
    while stack:
        node = stack.pop()
        yield node
        stack += _evaluated(node)


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
    return children_of(node)


def bound_in(statement: ast.AST) -> set[str]:
    """Names that a statement may bind, those within its functions, too."""
    if isinstance(statement, (*FUNCTIONS, ast.ClassDef)):
        return {statement.name}
    found: set[str] = set()
    for node in nodes_of(statement):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            found.add(node.id)
        elif isinstance(node, ast.alias):
            found.add(node.asname or node.name.partition(".")[0])
        elif isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            found.add(node.name)
    return found


def stored_in(statement: ast.ClassDef | ast.FunctionDef) -> set[str]:
    """Names that a class body, or a function, may bind."""
    found: set[str] = set()
    stack: list[ast.AST] = list(statement.body)
    while stack:
        node = stack.pop()
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, ast.Name):
            if not isinstance(node.ctx, ast.Load):
                found.add(node.id)
        elif isinstance(node, ast.alias):
            found.add(node.asname or node.name.partition(".")[0])
        elif not isinstance(node, ast.Constant):
            try:
                stack += node.kept_children  # type: ignore[attr-defined]
            except AttributeError:
                stack += children_of(node)
    return found


def may_leave(statement: ast.stmt) -> bool:
    """Whether a statement may end the function, or the turn of the loop, that it is in."""
    stack: list[ast.AST] = [statement]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Return | ast.Raise | ast.Break | ast.Continue | ast.Assert):
            return True
        if not isinstance(node, (*FUNCTIONS, ast.ClassDef, ast.Lambda, ast.expr)):
            stack += children_of(node)
    return False


def texts_of(node: ast.expr | None) -> set[str] | None:
    """The texts of a list or tuple of texts, also of several that are added."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = texts_of(node.left), texts_of(node.right)
        return None if left is None or right is None else left | right
    if not isinstance(node, ast.List | ast.Tuple):
        return None
    values = [one.value if isinstance(one, ast.Constant) else None for one in node.elts]
    return (
        {one for one in values if isinstance(one, str)} if all(isinstance(o, str) for o in values) else None
    )


def changes_module(call: ast.Call) -> bool:
    """Whether a call, executed on import, may add names to the module or take its place."""
    name = called(call)
    first = call.args[0] if call.args else None
    if name == "exec" or (name == "eval" and not isinstance(first, ast.Constant | ast.JoinedStr)):
        return True
    given = (*call.args, *(one.value for one in call.keywords))
    own = any(
        isinstance(one, ast.Name) and one.id in {"__name__", "__package__", "__spec__"} for one in given
    )
    return own and name not in _QUIET_CALLS and name not in MAKERS


OWN_FOLDER = re.compile(
    r"(?:os\.)?(?:path\.)?dirname\((?:(?:os\.)?(?:path\.)?(?:abspath|realpath)\()?__file__\)?\)"
    r"|(?:pathlib\.)?Path\(__file__\)(?:\.resolve\(\))?\.parent"
)
"""The folder that a module lies in."""
_LISTS = re.compile(
    r"(?:os\.)?listdir\((?P<folder>.+)\)"
    r"|(?:pkgutil\.)?iter_modules\((?:path=)?(?:__path__|\[(?P<path>.+)\])\)"
)
_KINDS = {
    "package": re.compile(r"(?:os\.)?(?:path\.)?isdir\(.*\)"),
    "file": re.compile(r"\w+\.endswith\('\.py'\)"),
}
_IS_INNER = re.compile(r"\w+\.startswith\('(?:__?|\.)'\)|\w+ == '__\w+__(?:\.py)?'")


def listed_modules(
    loop: ast.For, module: str, package: str, folders: set[str], *, loads_files: bool
) -> Iterator[tuple[str, str]]:
    """(module below each folder or empty; ``file``, ``package`` or empty) of what each turn of a loop over
    the own folder of a ``package`` imports in ``module``.

    ``folders``: names of that folder; ``loads_files``: whether the source executes files by their paths.
    Empty if a turn may be left out for more than the kind of the file, or a name that begins with ``_``.
    """
    folder = _own_folder(loop.iter, folders)
    if not folder:
        return
    kind: str | None = "" if folder == "__path__" else None
    texts, body = dict[str, ast.expr](), list(loop.body)
    while body:
        statement = body.pop(0)
        if isinstance(statement, ast.If):
            left_out = isinstance(statement.body[0], ast.Continue)
            kinds = _kinds_of(statement, left_out=left_out)
            if kinds is None:
                return
            kind, body = next(iter(kinds), kind), body if left_out else list(statement.body)
            continue
        if kind is None or not isinstance(statement, ast.Assign | ast.Expr):
            return
        for call in nodes_of(statement):
            if isinstance(call, ast.Call) and called(call) == "import_module" and call.args:
                first = call.args[0]
                text = texts.get(first.id, first) if isinstance(first, ast.Name) else first
                known = {"__name__": module, "__package__": package}
                whole = "".join(
                    str(one.value) if isinstance(one, ast.Constant) else known.get(last_name(one), "*")
                    for one in text_parts(text)
                )
                if whole == f"{package}.*" or (whole == ".*" and len(call.args) > 1):
                    yield "", kind
            elif isinstance(call, ast.Call) and loads_files and kind == "package":
                file = re.search(rf"join\({re.escape(folder)}, \w+, '(\w+)\.py'\)\)$", ast.unparse(call))
                if file is not None:
                    yield file[1], ""
        if isinstance(statement, ast.Assign):
            texts |= {one.id: statement.value for one in statement.targets if isinstance(one, ast.Name)}


def _own_folder(every: ast.expr, folders: set[str]) -> str:
    """The own folder that an expression lists; empty for another one. ``__path__`` has modules alone."""
    if isinstance(every, ast.Call) and called(every) == "sorted" and len(every.args) == 1:
        every = every.args[0]
    found = _LISTS.fullmatch(ast.unparse(every))
    if found is None:
        return ""
    folder = found["folder"] or found["path"]
    if folder is not None and folder not in folders and not OWN_FOLDER.fullmatch(folder):
        return ""
    return found["folder"] or "__path__"


def _kinds_of(statement: ast.If, *, left_out: bool) -> set[str] | None:
    """The kinds of files that a test asks for, or leaves out each other one; None if it asks for more."""
    test, joined = statement.test, ast.Or if left_out else ast.And
    kinds = set[str]()
    for one in test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, joined) else [test]:
        denied = isinstance(one, ast.UnaryOp) and isinstance(one.op, ast.Not)
        text = ast.unparse(one).removeprefix("not ") if denied else ast.unparse(one)
        inner = text.replace(" != ", " == ")
        if _IS_INNER.fullmatch(inner) and (denied or inner != text) != left_out:
            continue
        found = {kind for kind, pattern in _KINDS.items() if pattern.fullmatch(text) and denied == left_out}
        if not found or statement.orelse:
            return None
        kinds |= found
    return kinds


def text_parts(node: ast.expr) -> Iterator[ast.expr]:
    """The parts of a text that is put together."""
    match node:
        case ast.BinOp(op=ast.Add(), left=left, right=right):
            yield from (*text_parts(left), *text_parts(right))
        case ast.JoinedStr(values=values):
            yield from (one.value if isinstance(one, ast.FormattedValue) else one for one in values)
        case _:
            yield node


def names_taken(contents: Iterable[bytes | None], modules: Iterable[str]) -> frozenset[bytes] | None:
    """The names that sources take from modules; None if one was not read."""
    last = b"|".join({re.escape(one.rpartition(".")[2].encode()) for one in modules})
    again = re.compile(rb"(?<!\w)(?:" + last + rb")[ \t]+as[ \t]+(\w+)")
    known = list[bytes]()
    for content in contents:
        if content is None:
            return None
        known.append(content)
    bases = b"|".join({last, *(alias for one in known for alias in again.findall(one))})
    uses = re.compile(rb"(?<!\w)(?:" + bases + rb")\.([A-Za-z_]\w*)")
    imports = re.compile(rb"from[ \t]+[\w.]*(?<!\w)(?:" + last + rb")[ \t]+import[ \t]+(\([^)]*\)|[^\n]*)")
    found = {name for one in known for name in uses.findall(one)}
    return frozenset(found.union(*(_WORD.findall(text) for one in known for text in imports.findall(one))))
