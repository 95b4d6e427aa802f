"""The names that a source adds to other modules, and the modules that it adds to the interpreter's, by its
syntax.

A target that may be a module counts as one: an object that is certainly none, as the first argument of a
method, does not.
"""

import ast
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from builder.core.import_set import Lack, WheelFiles
from builder.core.module_syntax import children_of, last_name, nodes_of

LARGEST = 2 << 20
"""Bytes of a module that is read."""
_LIKE_MODULE = re.compile(r"\w*mod(?:ule)?|namespace|ns|pkg|package")
"""Names under which functions get modules."""
_READERS = frozenset(
    {
        *("dict", "list", "tuple", "set", "frozenset", "sorted", "len", "print", "iter", "repr", "str", "id"),
        *("type", "dir", "getattr", "hasattr", "isinstance", "issubclass"),
        *("import_module", "__import__", "reload", "getLogger", "find_spec"),
    }
)
"""Functions that add nothing to what they are given."""
_EVALUATES = re.compile(r"\w*(?:eval|type_hints|forward_?ref)\w*")
"""Functions that look names up in the dictionary that they are given."""
_ATTACHES = frozenset({"attach", "_attach"})
"""Functions of lazy loaders, whose additions stand where they are called."""
_DEEPEST = 12
_FINDERS = rb"\bmeta_path\b|setattr\([ \t\n]*_?sys\.modules|\bmodules\[[^\]\n]*\]\.__dict__"
"""In a source that makes whichever modules it likes, or adds to them."""
_ATTACH = re.compile(rb"^def _?attach\(.*?(?=^[A-Za-z_@]|\Z)", re.MULTILINE | re.DOTALL)
"""A lazy loader: what it adds stands where it is called."""
_STORES = rb"\bmodules\[(?![ \t]*['\"][^'\"{}\n]*['\"][ \t]*\])[^\n]*\][ \t]*=(?!=)"
"""In a source that gives the interpreter a module by a name that is put together."""
_OF_TESTS = re.compile(r"(?:^|/)(?:tests?|conftest\.py)(?:/|$)|(?:^|/)test_[^/]*\.py$")
"""Sources that no import of the package executes."""
_PATHS = re.compile(
    rb"\bsys\.path(?:\.(?:insert|append|extend)|\[[^\]\n]*\][ \t]*=|[ \t]*\+?=)|\baddsitedir\b"
)
"""In a source that adds to the folders in which modules are looked for."""
_FOLDER_LINE = re.compile(rb"^(?!import[ \t]|#)[ \t]*\S", re.MULTILINE)
"""In a .pth file with a folder: https://docs.python.org/3/library/site.html"""


def is_named(module: str, name: str) -> bool:
    """Whether a module has a name, of which the beginning may be all that is known: ``package.*``."""
    return module.startswith(name[:-1]) if name.endswith("*") else module == name


class AddedTo(NamedTuple):
    """The target of an addition: the module ``name``, one whose name ends in ``last``, or any."""

    name: str = ""
    last: str = ""
    argument: str = ""
    """The argument of ``function`` that is the target."""
    function: str = ""
    below: bool = False
    """Whether nothing is known of its name but that it lies below another module."""

    def is_it(self, module: str) -> bool:
        """Whether the source itself says so."""
        if self.name:
            return is_named(module, self.name)
        return self.last == module.rpartition(".")[2]

    @property
    def is_open(self) -> bool:
        return not self.name and not self.last


class Additions(NamedTuple):
    """The additions of one source."""

    names: frozenset[tuple[AddedTo, str | None]] = frozenset()
    """Targets, and the name that each gets; None for a name that is put together."""
    modules: frozenset[str | None] = frozenset()
    """Names under which modules are put among the interpreter's, as :func:`is_named` has them; None for one
    of which nothing is known."""
    finder: str = ""
    """``append`` or ``insert``: how it puts something among those that find modules."""
    passed: frozenset[tuple[str, str]] = frozenset()
    """(function, the name of a module or another import that it is given); "" for any."""
    replaced: bool = False
    """Whether it puts something in its own place."""

    def adds(self, module: str, name: str, *, own: bool) -> bool:
        """Whether ``module`` may get ``name``; ``own``: whether it lies in the same wheel."""
        for target, key in self.names:
            if key in {None, name} and (target.is_it(module) or (own and target.is_open and key is not None)):
                return True
        return own and self.finder == "insert"

    def adds_whichever(self, module: str) -> bool:
        """Whether it adds names that it puts together to modules that it puts together, as ``module`` is."""
        every = (
            target for target, key in self.names if key is None and target.is_open and not target.argument
        )
        return any("." in module or not target.below for target in every)

    def givers(self) -> set[str]:
        """Functions that add names which they put together to a module that they are given."""
        every = (target for target, key in self.names if key is None and target.function)
        return {target.function for target in every if _LIKE_MODULE.fullmatch(target.argument)}


def additions(content: bytes, module: str, *, package: bool = False) -> Additions | None:
    """The additions of the source of ``module``; None if this Python does not parse it."""
    if len(content) > LARGEST:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(content)
        return additions_of(tree, module, module if package else module.rpartition(".")[0])
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def additions_of(tree: ast.Module, module: str, package: str) -> Additions:
    """As :func:`additions`, of a source that was parsed. Raises RecursionError."""
    walk = _AddingWalk(module, package)
    walk.scope(tree.body, [_BoundNames(tree.body, package)])
    return Additions(
        names=frozenset(walk.names),
        modules=frozenset(walk.modules),
        finder=walk.finder,
        passed=frozenset(walk.passed),
        replaced=walk.replaced,
    )


def old_finders(tree: ast.Module, module: str) -> set[str]:
    """The classes of a source's own importers, if it puts no others among those that find modules, none of
    them has ``find_spec``, and nothing else in it gives modules below its own.

    Python 3.12 and newer ask no ``find_module`` ("What's New In Python 3.12", removed from importlib).
    """
    every = [one for one in tree.body if isinstance(one, ast.ClassDef)]
    methods = {
        one.name: {inner.name for inner in one.body if isinstance(inner, ast.FunctionDef)} for one in every
    }
    plain = {one.name for one in every if all(_is_named(base, "object") for base in one.bases)}
    old = {name for name in plain if "find_module" in methods[name] and "find_spec" not in methods[name]}
    makes = {
        target.id: getattr(one.value.func, "id", "")
        for one in tree.body
        if isinstance(one, ast.Assign) and isinstance(one.value, ast.Call)
        for target in one.targets
        if isinstance(target, ast.Name)
    }
    rest = ast.Module(
        [one for one in tree.body if not (isinstance(one, ast.ClassDef) and one.name in old)], []
    )
    inside = {id(node) for one in every if one.name in old for node in nodes_of(one)}
    for node in nodes_of(tree):
        if isinstance(node, ast.Assign) and any(_is_named(one, "__path__") for one in node.targets):
            if not (isinstance(node.value, ast.List) and not node.value.elts):
                return set()
        elif isinstance(node, ast.Call):
            on = node.func.value if isinstance(node.func, ast.Attribute) else None
            given = [getattr(one, "id", "") for one in node.args]
            if on is not None and _is_named(on, "__path__"):
                return set()
            if on is not None and _is_named(on, "meta_path"):
                found = {makes.get(given[-1], "")} if given else set()
                if not found <= old and not (id(node) in inside and given[-1:] == ["self"]):
                    return set()
    added = additions_of(rest, module, module)
    return old if not added.modules and not added.replaced else set()


_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


class _BoundNames:
    """The names that are bound in one function, or outside of all."""

    def __init__(self, body: Iterable[ast.AST], package: str, function: _Function | None = None) -> None:
        self.imported: dict[str, list[str]] = {}
        self.values: dict[str, list[ast.expr | None]] = {}
        self.function = getattr(function, "name", "")
        args = function.args if function is not None else None
        every = [*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg] if args else []
        self.arguments = {one.arg for one in every if one is not None}
        self.package = package
        for node in _inside(body):
            self._bind(node)

    def _bind(self, node: ast.AST) -> None:
        if isinstance(node, ast.Import):
            for one in node.names:
                whole = one.name if one.asname else one.name.partition(".")[0]
                self.imported.setdefault(one.asname or whole, []).append(whole)
        elif isinstance(node, ast.ImportFrom):
            for one in node.names:
                self.imported.setdefault(one.asname or one.name, []).append(
                    f"{self._absolute(node)}.{one.name}"
                )
        elif isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if isinstance(target, ast.Name):
                    self.values.setdefault(target.id, []).append(node.value)
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            self.values.setdefault(node.id, [])

    def _absolute(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        parts = self.package.split(".")
        kept = parts[: len(parts) - node.level + 1]
        return ".".join([*kept, *([node.module] if node.module else [])])


def _inside(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """The nodes of statements, but for those of functions in them."""
    stack = list(body)
    while stack:
        node = stack.pop()
        yield node
        if not isinstance(node, _Function):
            stack += children_of(node)


class _AddingWalk:
    def __init__(self, module: str, package: str) -> None:
        self.module, self.package = module, package
        self.names: set[tuple[AddedTo, str | None]] = set()
        self.modules: set[str | None] = set()
        self.finder = ""
        self.replaced = False
        self.passed: set[tuple[str, str]] = set()
        self.listed: dict[str, str] = {}
        """Variables that are modules of a package in turn, and the names of those, as of :meth:`named`."""

    def scope(self, body: Sequence[ast.AST], scopes: list[_BoundNames], owner: str = "") -> None:
        """``owner``: the first argument of a method, which is its object."""
        for node in _inside(body):
            if isinstance(node, ast.For):
                self.lists(node)
            if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.For | ast.With):
                self.stores(node, scopes, owner)
            elif isinstance(node, ast.Call):
                self.call(node, scopes, owner)
        for node, method in _functions(body):
            if getattr(node, "name", "") in _ATTACHES:
                continue
            first = [*node.args.posonlyargs, *node.args.args]
            inner = node.body if isinstance(node.body, list) else [node.body]
            self.scope(
                inner,
                [*scopes, _BoundNames(inner, self.package, node)],
                first[0].arg if method and first else owner,
            )

    def lists(self, loop: ast.For) -> None:
        """A loop over ``pkgutil.iter_modules(path, prefix)``: each name begins with the prefix."""
        match loop:
            case ast.For(
                target=ast.Tuple(elts=[_, ast.Name(id=name), _]),
                iter=ast.Call(func=function, args=given, keywords=words),
            ) if last_name(function) in {"iter_modules", "walk_packages"}:
                prefix = [*given[1:], *(one.value for one in words if one.arg == "prefix")]
                if begin := self.named(prefix[0]) if prefix else None:
                    self.listed[name] = f"{begin.removesuffix('*')}*"

    def stores(self, node: ast.AST, scopes: list[_BoundNames], owner: str) -> None:
        for target in (one for one in nodes_of(node) if isinstance(one, ast.Attribute | ast.Subscript)):
            if isinstance(target.ctx, ast.Load):
                continue
            if isinstance(target, ast.Attribute):
                self.add(target.value, target.attr, scopes, owner)
                if _is_named(target, "meta_path"):
                    self.finder = "insert"
            elif self.is_modules(target.value, scopes):
                self.put(target.slice)
            elif (inner := self.of_dictionary(target.value, scopes)) is not None:
                self.add(inner, _text(target.slice), scopes, owner)

    def call(self, node: ast.Call, scopes: list[_BoundNames], owner: str) -> None:
        function, given = node.func, node.args
        name = function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")
        on = function.value if isinstance(function, ast.Attribute) else None
        if name in {"setattr", "__setattr__"} and len(given) >= 2:
            # also object.__setattr__(module, name, value), and module.__setattr__(name, value)
            target, key = (given[0], given[1]) if on is None or len(given) > 2 else (on, given[0])
            self.add(target, _text(key), scopes, owner)
        elif on is not None and name in {"update", "setdefault", "__setitem__"}:
            if self.is_modules(on, scopes):
                self.put(given[0] if given and name != "update" else None)
            elif (inner := self.of_dictionary(on, scopes)) is not None:
                self.add(inner, None, scopes, owner)
        elif on is not None and name in {"append", "insert", "extend"} and _is_named(on, "meta_path"):
            self.finder = "insert" if name == "insert" or self.finder == "insert" else "append"
        elif name not in _READERS and not _EVALUATES.fullmatch(name):
            for one in (*given, *(one.value for one in node.keywords if one.arg)):
                if (inner := self.of_dictionary(one, scopes)) is not None:
                    self.add(inner, None, scopes, owner)
                elif not isinstance(one, ast.Attribute) or isinstance(one.value, ast.Name):
                    every = self.targets(one, scopes, owner)
                    self.passed |= {(name, to.name) for to in every if not to.last and not to.argument}

    def named(self, node: ast.expr | None) -> str | None:
        """The name of a module, as :func:`is_named` has it; None if nothing of it is known."""
        if isinstance(node, ast.Name) and node.id in {"__name__", "__package__"}:
            return self.module if node.id == "__name__" else self.package
        if isinstance(node, ast.Name) and node.id in self.listed:
            return self.listed[node.id]
        if isinstance(node, ast.JoinedStr | ast.BinOp):
            first = node.left if isinstance(node, ast.BinOp) else node.values[0]
            inner = first.value if isinstance(first, ast.FormattedValue) else first
            begin = self.named(inner) or ""
            if isinstance(node, ast.BinOp) and isinstance(inner, ast.BinOp | ast.JoinedStr):
                return begin or None
            if isinstance(node, ast.BinOp) and (end := _text(node.right)) is not None and begin:
                return begin + end
            return f"{begin}*" if begin and not begin.endswith("*") else None
        return _text(node)

    def put(self, key: ast.expr | None) -> None:
        text = self.named(key)
        if text == self.module:
            self.replaced = True  # which its names tell
            return
        self.modules.add(text)
        if text is not None:
            self.names.add((AddedTo(name=text), None))

    def add(self, target: ast.expr, name: str | None, scopes: list[_BoundNames], owner: str) -> None:
        for one in self.targets(target, scopes, owner):
            self.names.add((one, name))

    def is_modules(self, node: ast.expr, scopes: list[_BoundNames]) -> bool:
        """Whether it is ``sys.modules``."""
        if isinstance(node, ast.Attribute):
            of = node.value
            return node.attr == "modules" and isinstance(of, ast.Name) and of.id.endswith("sys")
        if not isinstance(node, ast.Name):
            return False
        for scope in reversed(scopes):
            if node.id in scope.arguments:
                return False
            values = [value for value in scope.values.get(node.id, ()) if isinstance(value, ast.Attribute)]
            if "sys.modules" in scope.imported.get(node.id, ()) or any(
                self.is_modules(value, scopes) for value in values
            ):
                return True
        return False

    def of_dictionary(self, node: ast.expr, scopes: list[_BoundNames], depth: int = 0) -> ast.expr | None:
        """The object whose names a dictionary has, ``vars(it)`` and ``it.__dict__``."""
        if isinstance(node, ast.Attribute):
            return node.value if node.attr == "__dict__" else None
        if isinstance(node, ast.Call):
            called = isinstance(node.func, ast.Name) and node.func.id == "vars"
            return node.args[0] if called and len(node.args) == 1 else None
        if isinstance(node, ast.Name) and depth < 2:
            for scope in reversed(scopes):
                for value in scope.values.get(node.id, ()):
                    inner = self.of_dictionary(value, scopes, depth + 1) if value is not None else None
                    if inner is not None:
                        return inner
        return None

    def targets(
        self, node: ast.expr | None, scopes: list[_BoundNames], owner: str, depth: int = 0
    ) -> set[AddedTo]:
        """The modules that an expression may be; none for what is certainly no module."""
        found: set[AddedTo] = set()
        if depth > _DEEPEST:
            found = {AddedTo()}
        elif isinstance(node, ast.Name):
            found = self._of_name(node.id, scopes, owner, depth)
        elif isinstance(node, ast.Attribute) and node.attr not in {"__class__", "__func__", "__wrapped__"}:
            above = self.targets(node.value, scopes, owner, depth + 1)
            found = {AddedTo(name=f"{one.name}.{node.attr}") for one in above if one.name}
            if any(not one.name for one in above) or _LIKE_MODULE.fullmatch(node.attr):
                found.add(AddedTo(last=node.attr))
        elif isinstance(node, ast.Subscript) and self.is_modules(node.value, scopes):
            # sys.modules[made.__module__]: what is made there gets its own name
            own = isinstance(node.slice, ast.Attribute) and node.slice.attr == "__module__"
            found = {AddedTo(argument="__module__") if own else AddedTo(name=self.named(node.slice) or "")}
        elif isinstance(node, ast.IfExp | ast.BoolOp):
            parts = [node.body, node.orelse] if isinstance(node, ast.IfExp) else node.values
            found = found.union(*(self.targets(one, scopes, owner, depth + 1) for one in parts))
        elif isinstance(node, ast.Call):
            found = self._of_call(node, scopes, owner, depth)
        return found

    def _of_call(self, node: ast.Call, scopes: list[_BoundNames], owner: str, depth: int) -> set[AddedTo]:
        function = node.func
        name = function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")
        first = node.args[0] if node.args else None
        if name in {"import_module", "__import__", "reload"}:
            known = self.named(first) or ""
            itself = name == "import_module" or len(node.args) > 1  # else the outermost module
            return {AddedTo(name=known, below=not known and itself and self._has_dot(first, scopes))}
        if isinstance(function, ast.Attribute) and self.is_modules(function.value, scopes):
            return {AddedTo(name=self.named(first) or "")}
        if name == "getattr" and len(node.args) >= 2 and (text := _text(node.args[1])) is not None:
            whole = ast.Attribute(value=node.args[0], attr=text, ctx=ast.Load())
            return self.targets(whole, scopes, owner, depth + 1)
        return set()

    def _has_dot(self, node: ast.expr | None, scopes: list[_BoundNames]) -> bool:
        """Whether the name of a module, put together, is one below another: ``f"{package}.{name}"``."""
        if isinstance(node, ast.Name):
            scope = next((one for one in reversed(scopes) if node.id in one.values), None)
            values = scope.values[node.id] if scope is not None and node.id not in scope.arguments else []
            return (
                len(values) == 1 and not isinstance(values[0], ast.Name) and self._has_dot(values[0], scopes)
            )
        parts = node.values[1:] if isinstance(node, ast.JoinedStr) else ()
        return any("." in (_text(one) or "") for one in parts)

    def _of_name(self, name: str, scopes: list[_BoundNames], owner: str, depth: int) -> set[AddedTo]:
        if name == owner or name in {"self", "cls"}:
            return set()
        found: set[AddedTo] = set()
        for scope in reversed(scopes):
            if name in scope.arguments:
                return {AddedTo(argument=name, function=scope.function)}
            if name not in scope.imported and name not in scope.values:
                continue
            found |= {AddedTo(name=one) for one in scope.imported.get(name, ())}
            for value in scope.values.get(name, ()):
                if not (isinstance(value, ast.Name) and value.id == name):
                    found |= self.targets(value, scopes, owner, depth + 1)
            break
        return found or ({AddedTo(argument=name)} if _LIKE_MODULE.fullmatch(name) else set())


def _functions(body: Iterable[ast.AST]) -> Iterator[tuple[_Function, bool]]:
    """The outermost functions, and whether each is a method."""
    stack: list[tuple[ast.AST, bool]] = [(one, False) for one in body]
    while stack:
        node, in_class = stack.pop()
        if isinstance(node, _Function):
            decorated = {getattr(one, "id", "") for one in getattr(node, "decorator_list", ())}
            yield node, in_class and "staticmethod" not in decorated
            continue
        within = in_class or isinstance(node, ast.ClassDef)
        stack += ((one, within) for one in children_of(node))


def _is_named(node: ast.AST, name: str) -> bool:
    return (node.id if isinstance(node, ast.Name) else getattr(node, "attr", "")) == name


def _text(node: ast.expr | None) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


# -- whether the text of a source allows for an addition, before its syntax is read


def may_pass(content: bytes, module: str) -> bool:
    """Whether a source may give a module to a function."""
    last = module.rpartition(".")[2].encode()
    every = rb"|".join(
        {rb"sys\.modules\[", *([_aliases(content, last) + rb"\s*[,)]"] if last in content else [])}
    )
    return re.search(rb"[(,]\s*(?:\w+\s*=\s*)?(?:\w+\.)*(?:" + every + rb")", content) is not None


def may_bring(content: bytes, target: str, added: str | None, *, own: bool) -> bool:
    """Whether a source may add a name to a module of another place, or, without one, the module to the
    interpreter's; ``own``: whether the module lies in the same wheel."""
    module, name = target.encode(), (added or "").encode()
    if own and b"attach(" in content:
        content = _ATTACH.sub(b"", content)
    if not name:
        return _may_bring_module(content, module, own=own)
    if (own and _makes_modules(content)) or _adds_whichever(content, module, own=own):
        return True
    if name not in content:
        return False
    word = re.escape(name)
    stored = rb"(?:^|[;:])[ \t]*(?:[\w.,\[\]\"' \t]*\.)" + word + rb"\b[^\n=(]*=(?!=)"
    if b"." + name in content and re.search(stored, content, re.MULTILINE):
        return True
    if not re.search(rb"['\"]" + word + rb"['\"]", content):
        return False
    return _adds_texts(content) if own else _adds_texts_to(content, module)


def _makes_modules(content: bytes) -> bool:
    """Whether a source makes whichever modules it likes; words are searched for first, which is fast."""
    words = b"meta_path" in content or b"modules" in content
    return words and re.search(_FINDERS, content) is not None


def _adds_whichever(content: bytes, module: bytes, *, own: bool) -> bool:
    """Whether a source adds names that it puts together to a module, by whichever name it goes there."""
    last = module.rpartition(b".")[2]
    if not (b"setattr(" in content or b"__dict__" in content or b"vars(" in content):
        return False
    every = _aliases(content, last) if last in content else b""
    if own and b"monkeypatch" not in content:  # in its own wheel a function may get it, too; not in its tests
        every += (b"|" if every else b"") + rb"\w*mod(?:ule)?|namespace|ns|pkg|package"
    if not every:
        return False
    target = rb"(?:\w+\.)*(?:" + every + rb")"
    called = rb"|(?:\w+\.)*(?:import_module|__import__)\(" if own else b""
    adds = (
        rb"setattr\(\s*(?:" + target + rb"\s*,\s*(?!['\"])" + called + rb")|\bvars\(\s*" + target + rb"\s*\)"
    )
    if re.search(adds, content):
        return True
    return b"__dict__" in content and re.search(rb"\b(?:" + every + rb")\.__dict__\b", content) is not None


def _aliases(content: bytes, last: bytes) -> bytes:
    """The names that a module goes by in a source, as alternatives of a pattern."""
    word = re.escape(last)
    named = re.findall(rb"\bimport\b[^\n]*\b" + word + rb"[ \t]+as[ \t]+(\w+)", content)
    return b"|".join({word, *named})


def _may_bring_module(content: bytes, module: bytes, *, own: bool) -> bool:
    if own and (_makes_modules(content) or (b"modules[" in content and re.search(_STORES, content))):
        return True
    last = module.rpartition(b".")[2]
    if last not in content or not re.search(rb"sys\.modules|meta_path|ModuleType|\bmodules\[", content):
        return False
    named = rb"['\"][\w.{}]*\b" + re.escape(last) + rb"\b" if own else rb"['\"]" + re.escape(module) + rb"\b"
    return re.search(named, content) is not None


def _adds_texts(content: bytes) -> bool:
    """Whether a source adds names that it has as texts to anything."""
    return re.search(rb"setattr\(|__dict__|\bvars\(|sys\.modules|globals\(", content) is not None


def _adds_texts_to(content: bytes, module: bytes) -> bool:
    """The same, to one module, by whichever name it goes in the source."""
    every = _aliases(content, module.rpartition(b".")[2])
    direct = rb"(?:setattr|vars)\([ \t\n]*(?:\w+\.)*(?:" + every + rb")\b|\b(?:" + every + rb")\.__dict__"
    quoted = rb"['\"]" + re.escape(module) + rb"['\"]"
    return bool(re.search(direct, content) or (b"sys.modules" in content and re.search(quoted, content)))


def brought(
    sources: Iterable[tuple[str, bytes | None]],
    lacks: Iterable[Lack],
    files: WheelFiles | None,
) -> Mapping[Lack, bool]:
    """Whether the sources of a wheel, by their paths, may add what is lacking to modules; nothing is known if
    one was not read. A module that lies in one of its folders is none: :func:`adding_folders` tells that.
    """
    found = dict.fromkeys(lacks, False)
    mine = {one for one in found if files is not None and files.name == one[2]}
    parsed, rest, said = _Parsed(files, mine), dict[str, bytes](), set[Lack]()
    for path, content in sources:
        if content is None:
            return {}
        if _OF_TESTS.search(path):
            continue
        left = [lack for lack, brought in found.items() if not brought]
        said |= {lack for lack in left if lack[1] and lack[1].encode() in content}
        asked = [lack for lack in left if may_bring(content, *lack[:2], own=lack in mine)]
        added = parsed.add(path, content) if asked else None
        for lack in asked:
            found[lack] = added is None or _brings(added, lack, own=lack in mine, path=path)
        if not asked and not mine.isdisjoint(left):
            rest[path] = content
    parsed.add_passing(rest)
    for lack, brought in found.items():
        found[lack] = brought or parsed.gives(lack) or (lack in parsed.whichever and lack in said)
    return found


class _Parsed:
    """What the sources of a wheel say together, of names that its own modules lack."""

    def __init__(self, files: WheelFiles | None, mine: set[Lack]) -> None:
        self.files, self.mine = files, mine
        self.named = {path: module for module, path in files.modules.items()} if files is not None else {}
        self.givers: set[str] = set()
        """Functions that add names which they put together to a module that they are given."""
        self.passed: set[tuple[str, str]] = set()
        """As :attr:`Additions.passed`."""
        self.whichever: set[Lack] = set()
        """Those whose module may be one to which names are added that a source puts together."""

    def add(self, path: str, content: bytes) -> Additions | None:
        """Parse a source; None if this Python cannot."""
        module = self.named.get(path, "")
        added = additions(content, module, package=self.files is not None and module in self.files.packages)
        if added is not None and self.mine:
            self.givers, self.passed = self.givers | added.givers(), self.passed | added.passed
            self.whichever |= {one for one in self.mine if added.adds_whichever(one[0])}
        return added

    def add_passing(self, rest: Mapping[str, bytes]) -> None:
        """Parse those of the other sources that may give a module to one of the functions: few have any."""
        known, left = set[str](), dict(rest)
        while new := [one.encode() for one in self.givers - known]:
            known = set(self.givers)
            for path in [one for one, content in left.items() if any(name in content for name in new)]:
                if any(may_pass(left[path], module) for module, _, _ in self.mine):
                    self.add(path, left.pop(path))

    def gives(self, lack: Lack) -> bool:
        """Whether a function may get the module of a lack, and give it the name."""
        module, name, _ = lack
        every = ({(one, ""), (one, module)} for one in self.givers)
        return lack in self.mine and name is not None and any(pair & self.passed for pair in every)


def adding_folders(
    sources: Iterable[tuple[str, bytes | None]], files: WheelFiles, folders: Iterable[str]
) -> list[str] | None:
    """The modules of a wheel that may add one of its folders, given by their paths, to those in which modules
    are looked for: which have a part of its path as a word, or lie in it. An empty text stands for what an
    interpreter executes at its start; None if a source was not read.
    """
    named, found, every = {path: module for module, path in files.modules.items()}, set[str](), set(folders)
    parts = {part.encode() for folder in every for part in folder.split("/")[1:]}
    for path, content in sources:
        if content is None:
            return None
        if _OF_TESTS.search(path) or ".data/scripts/" in path:
            continue
        added = path.endswith(".pth") and _FOLDER_LINE.search(content)
        if not added and not _PATHS.search(content):
            continue
        if path.rpartition("/")[0] in every or any(part in content for part in parts):
            found.add(named.get(path, ""))
    return sorted(found)


def _brings(added: Additions, lack: Lack, *, own: bool, path: str) -> bool:
    module, name, _ = lack
    if name is not None:
        return added.adds(module, name, own=own)
    if any(put is None or is_named(module, put) for put in added.modules):
        return True
    # that of six makes modules below its own alone
    return own and bool(added.finder) and not path.endswith("six.py")
