"""The names that a module adds to itself by ``globals()``, or outside of functions by ``locals()``."""

import ast
from collections.abc import Iterator, Mapping

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_KNOWN = frozenset({"__getattr__", "attach", "_attach"})
"""Functions whose names :mod:`.lazy_names` reads."""
_READS = frozenset({"items", "keys", "values", "get", "copy", "pop"})
_READ_BY = frozenset({"dict", "list", "tuple", "set", "sorted", "len", "frozenset", "print", "id", "iter"})


def own_names(tree: ast.Module) -> tuple[set[str], bool]:
    """The names, and whether there may be more."""
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
            for node in ast.walk(tree)
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
        for child in ast.iter_child_nodes(node):
            above[id(child)] = node
            stack.append((child, in_class, in_function, known))
        if known or not isinstance(node, ast.Name) or not isinstance(node.ctx, ast.Load):
            continue
        is_global = node.id == "globals"
        if not is_global and (node.id not in {"locals", "vars"} or in_class or in_function):
            continue
        call = above[id(node)]
        if isinstance(call, ast.Call) and call.func is node:
            if not call.args:
                yield call
        elif is_global:
            yield node


def _stored(node: ast.AST, above: Mapping[int, ast.AST]) -> tuple[set[str], bool]:
    """What a use of the dictionary stores in it, and whether that is not known."""
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
            stored = [one for one in ast.walk(loop) if isinstance(one, ast.Name) and one.id == key.id]
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
