"""The names that a module gives without a statement that binds them: those of its ``__getattr__``, where its
tables of names can be read, and those that it adds to itself by ``globals()``, or outside of functions by
``locals()``.
"""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple

from builder.core.module_syntax import MAKERS, children_of, nodes_of, text_parts

_End = Literal["raises", "goes on", "unknown"]


def of_module(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements of a module, also those in its tests and blocks."""
    for statement in body:
        yield statement
        if not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            for name in ("body", "orelse", "finalbody", "handlers"):
                for part in getattr(statement, name, ()):
                    yield from of_module(part.body if isinstance(part, ast.ExceptHandler) else [part])


def names_gone(tree: ast.Module, text: str) -> tuple[set[str], set[str]]:
    """Names for which ``__getattr__`` says that they are gone, and tables of such that are elsewhere.

    Python asks it for those alone that the module does not have.
    """
    tables, gone, elsewhere = _Tables(tree, text), set[str](), set[str]()
    for node in of_module(tree.body):
        if not isinstance(node, ast.FunctionDef) or node.name != "__getattr__" or len(node.args.args) != 1:
            continue
        for test in (one for one in of_module(node.body) if isinstance(one, ast.If)):
            if not isinstance(test.body[-1], ast.Raise) or any(
                isinstance(inner, ast.Return | ast.If) for one in test.body for inner in nodes_of(one)
            ):
                continue
            gate = _gate(test.test, node.args.args[0].arg, tables)
            gone |= gate or set()
            if gate is None and isinstance(test.test, ast.Compare) and isinstance(test.test.ops[0], ast.In):
                table = test.test.comparators[0]
                elsewhere |= {table.id} if isinstance(table, ast.Name) else set()
    return gone, elsewhere


class Given(NamedTuple):
    """The names for which a module's ``__getattr__`` returns something."""

    names: set[str]
    makers: set[str]
    """Functions that made the part of it which gives more, each called with the module's name alone."""
    modules: Mapping[str, str]
    """The modules that some of the names are for certain, by the names."""
    taken: Mapping[str, tuple[str, str | None]] = MappingProxyType({})
    """(module, name of it) that others of the names are."""


def names_given(tree: ast.Module, text: str, module: str) -> Given | None:
    """The names for which the ``__getattr__`` of ``module`` returns something; None if they are not known."""
    every: list[Given | None] = []
    tables = _Tables(tree, text)
    for node in of_module(tree.body):
        if isinstance(node, ast.FunctionDef) and node.name == "__getattr__":
            every.append(_of_function(node, tables, module))
        elif isinstance(node, ast.ClassDef) and node.name == "__getattr__":
            every.append(_of_class(node))
        elif isinstance(node, ast.Assign) and _binds_getattr(node.targets):
            every.append(_of_maker(node.value, tables, module))
    return every[0] if len(every) == 1 else None


def names_made(tree: ast.Module, text: str) -> dict[str, tuple[str, ...]]:
    """By the functions that make a ``__getattr__`` of a module's name: what it gives, as ``module:name``; by
    ``function:gone`` that of which it says that it is gone.

    That is pydantic's ``getattr_migration``.
    """
    found: dict[str, tuple[str, ...]] = {}
    for node in tree.body:
        if not isinstance(node, ast.FunctionDef) or len(node.args.args) != 1 or node.decorator_list:
            continue
        inner = [one for one in node.body if isinstance(one, ast.FunctionDef)]
        last = node.body[-1]
        if len(inner) != 1 or not isinstance(last, ast.Return) or not isinstance(last.value, ast.Name):
            continue
        if last.value.id == inner[0].name and len(inner[0].args.args) == 1:
            asked = _Asked(_Tables(tree, text), inner[0].args.args[0].arg, module=node.args.args[0].arg)
            if asked.block(inner[0].body) == "raises" and not asked.makers:
                found[node.name] = tuple(sorted(asked.found))
                found[f"{node.name}:gone"] = tuple(sorted(asked.refused - asked.found))
    return found


def _gives(statement: ast.AST, name: str) -> bool:
    """Whether a statement gives a name a value."""
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    targets = [statement.target] if isinstance(statement, ast.AnnAssign) else targets
    return any(isinstance(one, ast.Name) and one.id == name for one in targets)


def _binds_getattr(targets: list[ast.expr]) -> bool:
    every = [
        one for target in targets for one in (target.elts if isinstance(target, ast.Tuple) else [target])
    ]
    return any(isinstance(one, ast.Name) and one.id == "__getattr__" for one in every)


class _Tables:
    """Lists and dictionaries of a module that are written down in it, and never changed."""

    def __init__(self, tree: ast.Module, text: str) -> None:
        self.tree, self.text = tree, text

    def value(self, node: ast.expr | None) -> ast.expr | None:
        """The expression itself, or that of the name that it is."""
        if not isinstance(node, ast.Name):
            return node
        values = [one for one in nodes_of(self.tree) if _gives(one, node.id)]
        if len(values) > 1:
            values = self.before(node, values)
        changes = r"\s*(?:\[[^\]\n]*\]\s*=[^=]|\.(?:update|append|extend|add|setdefault|insert)\b|[|+]=)"
        if len(values) != 1 or re.search(rf"\b{re.escape(node.id)}\b{changes}", self.text):
            return None
        return getattr(values[0], "value", None)

    def before(self, node: ast.Name, values: list[ast.AST]) -> list[ast.AST]:
        """The last of the statements that give a name a value before it is read, as NumPy 1.24 gives one to
        ``_type_info`` twice; none if they are not all in the block that reads it, or a function reads it,
        whose calls come later.
        """
        blocks = [getattr(one, part, ()) for one in nodes_of(self.tree) for part in ("body", "orelse")]
        for block in (one for one in blocks if isinstance(one, list) and values[0] in one):
            reads = next((at for at, one in enumerate(block) if node in nodes_of(one)), 0)
            later = any(isinstance(one, _CALLED_LATER) for one in nodes_of(block[reads]))
            if not later and all(one in block for one in values):
                return [one for one in block[:reads] if one in values][-1:]
        return []

    def texts(self, node: ast.expr | None) -> set[str] | None:
        """The texts that are in a list, or the keys of a dictionary."""
        value = self.value(node)
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and len(value.args) == 1:
            return self.texts(value.args[0]) if value.func.id in _COPIES and not value.keywords else None
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and not value.args:
            return self.texts(value.func.value) if value.func.attr == "keys" else None
        if isinstance(value, ast.DictComp):
            return self.compared(value)
        if isinstance(value, ast.Dict):
            parts: list[ast.expr | None] = list(value.keys)
        elif isinstance(value, ast.List | ast.Tuple | ast.Set):
            parts = list(value.elts)
        else:
            return None
        found = {one.value for one in parts if isinstance(one, ast.Constant) and isinstance(one.value, str)}
        whole = all(isinstance(one, ast.Constant) and isinstance(one.value, str) for one in parts)
        return found if whole else None

    def compared(self, value: ast.DictComp) -> set[str] | None:
        """The keys of ``{name: ... for name, _ in [("first", ...), ...]}``."""
        loop, rows = value.generators[0], self.value(value.generators[0].iter)
        target = loop.target.elts[0] if isinstance(loop.target, ast.Tuple) else loop.target
        if len(value.generators) > 1 or not isinstance(rows, ast.List | ast.Tuple) or loop.ifs:
            return None
        if not isinstance(target, ast.Name):
            return None
        firsts = [one.elts[0] if isinstance(one, ast.Tuple) and one.elts else one for one in rows.elts]
        found = self.texts(ast.List(elts=firsts))
        if found is None or (isinstance(value.key, ast.Name) and value.key.id == target.id):
            return found
        parts = value.key.values if isinstance(value.key, ast.JoinedStr) else []
        inner = [one for one in parts if not isinstance(one, ast.Constant)]
        if not inner or any(_formatted(one) != target.id for one in inner):
            return None
        return {
            "".join(str(one.value) if isinstance(one, ast.Constant) else text for one in parts)
            for text in found
        }


def _formatted(part: ast.expr) -> str | None:
    """The variable that a part of a formatted text is, as it is."""
    if not isinstance(part, ast.FormattedValue) or part.conversion != -1 or part.format_spec is not None:
        return None
    return part.value.id if isinstance(part.value, ast.Name) else None


_CALLED_LATER = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_COPIES = frozenset({"set", "frozenset", "list", "tuple", "dict", "sorted"})


def _of_function(function: ast.FunctionDef, tables: _Tables, module: str) -> Given | None:
    if len(function.args.args) != 1 or function.decorator_list:
        return None
    asked = _Asked(tables, function.args.args[0].arg)
    if asked.block(function.body) != "raises":
        return None
    modules = {name: whole.replace("__name__", module, 1) for name, whole in asked.imported.items()}
    return Given(asked.found, asked.makers, modules)


def _of_class(made: ast.ClassDef) -> Given | None:
    """Matplotlib's ``@caching_module_getattr``, which gives what the class has."""
    decorators = {getattr(one, "attr", getattr(one, "id", "")) for one in made.decorator_list}
    if decorators != {"caching_module_getattr"}:
        return None
    found: set[str] = set()
    for one in made.body:
        if isinstance(one, ast.FunctionDef):
            found.add(one.name)
        elif isinstance(one, ast.Assign):
            found |= {target.id for target in one.targets if isinstance(target, ast.Name)}
        elif not isinstance(one, ast.Expr | ast.Pass):
            return None
    return Given(found, set(), {})


class _Asked:
    """Follows what a ``__getattr__`` does with the name that it is asked for.

    ``module``: the variable with the name of the module, if what it is asked for is told as ``module:name``.
    """

    def __init__(self, tables: _Tables, name: str, module: str = "") -> None:
        self.tables, self.asked, self.module = tables, name, module
        self.name = name if not module else ""
        self.found, self.makers, self.refused = set[str](), set[str](), set[str]()
        self.got: dict[str, set[str]] = {}
        """Variables that are None but for these names."""
        self.own: set[str] = set()
        """Variables with what the module has."""
        self.imported: dict[str, str] = {}
        """Modules that it returns, by the name that is asked for; ``__name__`` is the module's own."""

    def block(self, body: list[ast.stmt]) -> _End:
        """The end of these statements for every name but those that they add to ``found``."""
        end: _End
        for statement in body:
            match statement:
                case ast.If():
                    end = self._test(statement)
                case ast.Assign() | ast.AnnAssign():
                    end = "goes on" if self._assigned(statement) else "unknown"
                case ast.Import() | ast.ImportFrom() | ast.Expr():
                    end = "goes on"
                case ast.Raise():
                    end = "raises"
                case ast.Try():
                    end = "raises" if self._of_own(statement) else "unknown"
                case ast.Return():
                    end = self._deprecated(statement.value)
                case _:
                    end = "unknown"
            if end != "goes on":
                return end
        return "goes on"

    def _assigned(self, statement: ast.Assign | ast.AnnAssign) -> bool:
        """Whether what is asked for stays what it is."""
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        bound = {
            node.id
            for one in targets
            for node in nodes_of(one)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        }
        if bound & {self.asked, self.module, self.name, *self.got, *self.own}:
            return False
        if len(bound) != 1 or not isinstance(targets[0], ast.Name):
            return True
        match statement.value:
            case ast.Call(func=ast.Attribute(value=table, attr="get"), args=[ast.Name(id=self.name)]):
                if (names := self.tables.texts(table)) is not None:
                    self.got |= dict.fromkeys(bound, names)
            case ast.JoinedStr(values=[first, ast.Constant(value=":"), second]):
                if (_formatted(first), _formatted(second)) == (self.module, self.asked):
                    (self.name,) = bound
            case ast.Attribute(value=ast.Subscript(value=ast.Attribute(attr="modules")), attr="__dict__"):
                self.own |= bound
            case _:
                pass
        return True

    def _test(self, statement: ast.If) -> _End:
        returns = any(isinstance(node, ast.Return) for one in statement.body for node in nodes_of(one))
        match statement.test:
            case ast.Compare(left=ast.Name(id=name), ops=[ast.Is()], comparators=[ast.Constant(value=None)]):
                if name in self.got and not statement.orelse and self._left_to(statement.body):
                    self.found |= self.got[name]
                    return "raises"
            case ast.Compare(left=ast.Name(id=name), ops=[ast.NotIn()], comparators=[table]):
                names = self.tables.texts(table) if name == self.name else None
                if names is not None and not returns and isinstance(statement.body[-1], ast.Raise):
                    self.found |= names
                    return "raises"
            case ast.Compare(left=ast.Name(), ops=[ast.In()], comparators=[ast.Name(id=name)]):
                if name in self.own and not statement.orelse:
                    return "goes on"
            case _:
                pass
        gate = _gate(statement.test, self.name, self.tables)
        if gate is None:
            after = any(isinstance(node, ast.Return) for one in statement.orelse for node in nodes_of(one))
            return "unknown" if returns or after else "goes on"
        if returns or not isinstance(statement.body[-1], ast.Raise):
            self.found |= gate
            whole = {name: _imported(statement.body, self.name, name) for name in gate}
            self.imported |= {name: module for name, module in whole.items() if module}
        else:
            self.refused |= gate
        return self.block(statement.orelse)

    def _of_own(self, statement: ast.Try) -> bool:
        """``try: return globals()[name]``, and an error without it."""
        match statement.body:
            case [
                ast.Return(
                    value=ast.Subscript(
                        value=ast.Call(func=ast.Name(id="globals")), slice=ast.Name(id=self.name)
                    )
                )
            ]:
                return all(isinstance(one.body[-1], ast.Raise) for one in statement.handlers)
            case _:
                return False

    def _deprecated(self, value: ast.expr | None) -> _End:
        """SciPy's ``_sub_module_deprecation(all=__all__, attribute=name)``, which gives what is in a list."""
        given = {one.arg: one.value for one in value.keywords} if isinstance(value, ast.Call) else {}
        names = self.tables.texts(given.get("all"))
        asked = given.get("attribute")
        if names is None or not isinstance(asked, ast.Name) or asked.id != self.name:
            return "unknown"
        self.found |= names
        return "raises"

    def _left_to(self, body: list[ast.stmt]) -> bool:
        """Whether this raises, or asks another ``__getattr__``."""
        match body:
            case [ast.Raise()]:
                return True
            case [ast.Return(value=ast.Call(func=ast.Name(id=other), args=[ast.Name(id=self.name)]))]:
                maker = maker_of(self.tables.value(ast.Name(id=other)))
                self.makers |= {maker} if maker else set()
                return maker is not None
            case _:
                return False


def _imported(body: list[ast.stmt], variable: str, name: str) -> str:
    """The module that these statements import and return for a name, which ``variable`` has; else empty."""
    match body:
        case [
            *_,
            ast.Return(
                value=ast.Call(
                    func=ast.Name(id="import_module") | ast.Attribute(attr="import_module"), args=[first, *_]
                )
            ),
        ]:
            known = {variable: name, "__name__": "__name__"}
            texts = [
                str(one.value) if isinstance(one, ast.Constant) else known.get(getattr(one, "id", ""), "?")
                for one in text_parts(first)
            ]
            whole = "".join(texts)
            return f"{'__name__' if whole.startswith('.') else ''}{whole}" if "?" not in whole else ""
        case [ast.Import(names=[ast.alias(name=module, asname=as_)]), ast.Return(value=ast.Name(id=given))]:
            return module if given == (as_ or module) else ""
        case _:
            return ""


def maker_of(value: ast.expr | None) -> str | None:
    """``maker`` of ``maker(__name__)``."""
    match value:
        case ast.Call(func=ast.Name(id=maker), args=[ast.Name(id="__name__")], keywords=[]):
            return maker
        case _:
            return None


def _gate(test: ast.expr, name: str, tables: _Tables) -> set[str] | None:
    """The names for which a test can be true; None if they are not known."""
    if isinstance(test, ast.BoolOp):
        gates = [_gate(one, name, tables) for one in test.values]
        known = [gate for gate in gates if gate is not None]
        if isinstance(test.op, ast.And):
            return known[0] if known else None
        return set[str]().union(*known) if len(known) == len(gates) else None
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return None
    right = test.comparators[0]
    if isinstance(test.left, ast.Name) and test.left.id == name:
        if isinstance(test.ops[0], ast.In):
            return tables.texts(right)
        if (
            isinstance(test.ops[0], ast.Eq)
            and isinstance(right, ast.Constant)
            and isinstance(right.value, str)
        ):
            return {right.value}
    return None


def _of_maker(value: ast.expr, tables: _Tables, module: str) -> Given | None:
    if not isinstance(value, ast.Call):
        return None
    name = value.func.attr if isinstance(value.func, ast.Attribute) else getattr(value.func, "id", "")
    names: set[str] | None = None
    if name in {"attach", "_attach"}:
        return _attached(value, tables, module)
    if name in MAKERS and len(value.args) == 2 and not value.keywords:
        names = _not_gone(tables.value(value.args[1]))
    elif (maker := maker_of(value)) is not None:
        return Given(set(), {maker}, {})
    return Given(names, set(), {}) if names is not None else None


def _attached(call: ast.Call, tables: _Tables, module: str) -> Given | None:
    """``attach(__name__, submodules, {submodule: [names]})``."""
    given = dict(zip(("package_name", "submodules", "submod_attrs"), call.args, strict=False))
    given |= {one.arg: one.value for one in call.keywords if one.arg}
    if len(call.args) > 3 or any(one.arg is None for one in call.keywords):
        return None
    submodules = given.get("submodules")
    attributes = tables.value(given.get("submod_attrs"))
    none = submodules is None or (isinstance(submodules, ast.Constant) and submodules.value is None)
    found = set[str]() if none else tables.texts(submodules)
    if found is None or not isinstance(attributes, ast.Dict | None):
        return None
    modules, taken = set(found), dict[str, tuple[str, str | None]]()
    keys, values = (attributes.keys, attributes.values) if attributes is not None else ([], [])
    for one in (*keys, *values):
        texts = {one.value} if isinstance(one, ast.Constant) else tables.texts(one)
        if texts is None or not all(isinstance(text, str) for text in texts):
            return None
        found |= {str(text) for text in texts}
        modules -= texts if one in values else set()
    for key, value in zip(keys, values, strict=True):
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            taken |= {text: (f"{module}.{key.value}", text) for text in tables.texts(value) or ()}
    return Given(found, set(), {name: f"{module}.{name}" for name in modules}, taken)


def _not_gone(table: ast.expr | None) -> set[str] | None:
    """JAX's ``{name: (message, function)}``, in which what is gone has no function."""
    if not isinstance(table, ast.Dict):
        return None
    found: set[str] = set()
    for key, value in zip(table.keys, table.values, strict=True):
        if not isinstance(key, ast.Constant) or not isinstance(key.value, str):
            return None
        last = value.elts[-1] if isinstance(value, ast.Tuple) and len(value.elts) == 2 else None
        if not isinstance(last, ast.Constant) or last.value is not None:
            found.add(key.value)
    return found


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_KNOWN = frozenset({"__getattr__", "attach", "_attach"})
"""Functions whose names :mod:`.lazy_names` reads."""
_GIVERS = frozenset({"globals", "locals", "vars"})
"""Functions that give the dictionary of the names here."""
_READS = frozenset({"items", "keys", "values", "get", "copy", "pop"})
_READ_BY = frozenset({"dict", "list", "tuple", "set", "sorted", "len", "frozenset", "print", "id", "iter"})


def own_names(tree: ast.Module) -> tuple[set[str], bool]:
    """The names, and whether there may be more."""
    if not any(isinstance(one, ast.Name) and one.id in _GIVERS for one in nodes_of(tree)):
        return set(), False
    above: dict[int, ast.AST] = {}
    calls = list(_calls(tree, above))
    if any(not isinstance(one, ast.Call) for one in calls):
        return set(), True  # the function itself goes somewhere
    uses: list[ast.AST] = []
    for call in calls:
        parent = above[id(call)]
        names = parent.targets if isinstance(parent, ast.Assign) else []
        if not names or not all(isinstance(one, ast.Name) for one in names):
            uses.append(call)
            continue
        aliases = {one.id for one in names if isinstance(one, ast.Name)}
        uses += (
            node
            for node in nodes_of(tree)
            if isinstance(node, ast.Name) and node.id in aliases and isinstance(node.ctx, ast.Load)
        )
    stored = [_stored(use, above) for use in uses]
    return set[str]().union(*(names for names, _ in stored)), any(more for _, more in stored)


def _calls(tree: ast.Module, above: dict[int, ast.AST]) -> Iterator[ast.AST]:
    """The calls that give the dictionary, and names of ``globals`` that stand elsewhere."""
    stack: list[tuple[ast.AST, bool, bool, bool]] = [(tree, False, False, False)]
    while stack:
        node, in_class, in_function, known = stack.pop()
        in_function = in_function or isinstance(node, _FUNCTIONS)
        in_class = isinstance(node, ast.ClassDef) or (in_class and not isinstance(node, _FUNCTIONS))
        known = known or (getattr(node, "name", "") in _KNOWN and isinstance(node, ast.FunctionDef))
        for child in children_of(node):
            above[id(child)] = node
            stack.append((child, in_class, in_function, known))
        if known or not isinstance(node, ast.Name) or not isinstance(node.ctx, ast.Load):
            continue
        is_global = node.id == "globals"
        if not is_global and (node.id not in _GIVERS or in_class or in_function):
            continue
        call = above[id(node)]
        if isinstance(call, ast.Call) and call.func is node:
            if not call.args:
                yield call
        elif is_global:
            yield node


def _stored(node: ast.AST, above: Mapping[int, ast.AST]) -> tuple[set[str], bool]:
    """The names that a use of the dictionary stores in it, and whether others may be among them."""
    parent = above[id(node)]
    if isinstance(parent, ast.Subscript) and parent.value is node:
        if isinstance(parent.ctx, ast.Load | ast.Del):
            return set(), False
        return _keys(parent.slice, above)
    if isinstance(parent, ast.Attribute) and parent.attr not in _READS:
        return _updated(parent, above.get(id(parent)))
    read = isinstance(parent, ast.Attribute | ast.Compare)
    read |= isinstance(parent, ast.comprehension) and parent.iter is node
    if isinstance(parent, ast.Call) and parent.func is not node:
        read |= isinstance(parent.func, ast.Name) and parent.func.id in _READ_BY
    return set(), not read


def _keys(key: ast.expr, above: Mapping[int, ast.AST]) -> tuple[set[str], bool]:
    """The texts that a key may be: one, or those of the list that a loop goes over."""
    if isinstance(key, ast.Constant):
        return ({key.value}, False) if isinstance(key.value, str) else (set(), True)
    loop: ast.AST | None = above.get(id(key))
    while isinstance(key, ast.Name) and loop is not None and not isinstance(loop, _FUNCTIONS):
        if isinstance(loop, ast.For) and isinstance(loop.target, ast.Name) and loop.target.id == key.id:
            rows = loop.iter.elts if isinstance(loop.iter, ast.List | ast.Tuple) else []
            texts = {one.value for one in rows if isinstance(one, ast.Constant)}
            found = {text for text in texts if isinstance(text, str)}
            stored = [one for one in nodes_of(loop) if isinstance(one, ast.Name) and one.id == key.id]
            once = sum(isinstance(one.ctx, ast.Store) for one in stored) == 1
            return (found, False) if rows and len(found) == len(rows) and once else (set(), True)
        loop = above.get(id(loop))
    return set(), True


def _updated(method: ast.Attribute, call: ast.AST | None) -> tuple[set[str], bool]:
    if method.attr != "update" or not isinstance(call, ast.Call) or call.func is not method:
        return set(), True
    names = {one.arg for one in call.keywords if one.arg}
    whole = len(names) == len(call.keywords)
    for one in call.args:
        keys = one.keys if isinstance(one, ast.Dict) else [None]
        texts = [key.value if isinstance(key, ast.Constant) else None for key in keys]
        names |= {text for text in texts if isinstance(text, str)}
        whole &= all(isinstance(text, str) for text in texts)
    return names, not whole
