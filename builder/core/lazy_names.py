"""The names that a module's ``__getattr__`` gives, where its tables of names can be read."""

import ast
import re
from collections.abc import Iterable, Iterator

MAKERS = frozenset({"attach", "_attach", "deprecation_getattr", "_deprecation_getattr"})
"""Functions that make a ``__getattr__`` of tables: scientific-python's lazy loader, and JAX's."""


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
                isinstance(inner, ast.Return | ast.If) for one in test.body for inner in ast.walk(one)
            ):
                continue
            gate = _gate(test.test, node.args.args[0].arg, tables)
            gone |= gate or set()
            if gate is None and isinstance(test.test, ast.Compare) and isinstance(test.test.ops[0], ast.In):
                table = test.test.comparators[0]
                elsewhere |= {table.id} if isinstance(table, ast.Name) else set()
    return gone, elsewhere


def names_given(tree: ast.Module, text: str) -> set[str] | None:
    """The names for which ``__getattr__`` returns something; None if they are not known."""
    found, made = set[str](), 0
    for node in of_module(tree.body):
        one: set[str] | None = None
        if isinstance(node, ast.FunctionDef) and node.name == "__getattr__":
            one = _of_function(node, _Tables(tree, text))
        elif isinstance(node, ast.ClassDef) and node.name == "__getattr__":
            one = _of_class(node)
        elif isinstance(node, ast.Assign) and _binds_getattr(node.targets):
            one = _of_maker(node.value, _Tables(tree, text))
        else:
            continue
        if one is None:
            return None
        found, made = found | one, made + 1
    return found if made == 1 else None


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
        values = [
            one.value
            for one in ast.walk(self.tree)
            if isinstance(one, ast.Assign | ast.AnnAssign)
            and any(
                isinstance(part, ast.Name) and part.id == node.id
                for part in (one.targets if isinstance(one, ast.Assign) else [one.target])
            )
        ]
        changes = r"\s*(?:\[[^\]\n]*\]\s*=[^=]|\.(?:update|append|extend|add|setdefault|insert)\b|[|+]=)"
        if len(values) != 1 or re.search(rf"\b{re.escape(node.id)}\b{changes}", self.text):
            return None
        return values[0]

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
        if (
            not isinstance(target, ast.Name)
            or not isinstance(value.key, ast.Name)
            or target.id != value.key.id
        ):
            return None
        firsts = [one.elts[0] if isinstance(one, ast.Tuple) and one.elts else one for one in rows.elts]
        return self.texts(ast.List(elts=firsts))


_COPIES = frozenset({"set", "frozenset", "list", "tuple", "dict", "sorted"})


def _of_function(function: ast.FunctionDef, tables: _Tables) -> set[str] | None:
    if len(function.args.args) != 1 or function.decorator_list:
        return None
    found: set[str] = set()
    return found if _block(function.body, function.args.args[0].arg, tables, found) else None


def _of_class(made: ast.ClassDef) -> set[str] | None:
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
    return found


def _block(body: list[ast.stmt], name: str, tables: _Tables, found: set[str]) -> bool:
    """Whether these statements raise for every name but those that they add to ``found``."""
    for statement in body:
        if isinstance(statement, ast.Raise):
            return True
        if isinstance(statement, ast.If):
            gate = _gate(statement.test, name, tables)
            if gate is not None:
                found |= gate
            elif any(isinstance(node, ast.Return) for node in ast.walk(statement)):
                return False
            if gate is not None and statement.orelse and _block(statement.orelse, name, tables, found):
                return True
            if any(isinstance(node, ast.Return) for part in statement.orelse for node in ast.walk(part)):
                return False
        elif not isinstance(statement, ast.Import | ast.ImportFrom | ast.Expr | ast.Assign) or any(
            isinstance(node, ast.Name) and node.id == name and not isinstance(node.ctx, ast.Load)
            for node in ast.walk(statement)
        ):
            return False
    return False


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


def _of_maker(value: ast.expr, tables: _Tables) -> set[str] | None:
    if not isinstance(value, ast.Call):
        return None
    name = value.func.attr if isinstance(value.func, ast.Attribute) else getattr(value.func, "id", "")
    if name in {"attach", "_attach"}:
        return _attached(value, tables)
    if name in MAKERS and len(value.args) == 2 and not value.keywords:
        return _not_gone(tables.value(value.args[1]))
    return None


def _attached(call: ast.Call, tables: _Tables) -> set[str] | None:
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
    for names in (list(attributes.keys), list(attributes.values)) if attributes is not None else ():
        for one in names:
            texts = {one.value} if isinstance(one, ast.Constant) else tables.texts(one)
            if texts is None or not all(isinstance(text, str) for text in texts):
                return None
            found |= {str(text) for text in texts}
    return found


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
