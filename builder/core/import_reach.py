"""The modules that an import may come to at most: the other bound of the proof, which follows what is
certain.

It goes backwards, from a module to the sources that may import it as they are imported themselves: whatever
stands outside of functions, and the functions of the same source that something outside of them names.
"""

import ast
import re
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from builder.core.import_set import WheelFiles
from builder.core.module_syntax import FUNCTIONS, called, children_of, last_name, nodes_of

_MOST_CANDIDATES = 600
"""Sources that are parsed for one module; of more nothing is said."""
_MOST_ON_THE_WAY = 200
_HOOKS = frozenset({"__getattr__", "__init_subclass__", "__set_name__", "__class_getitem__", "__prepare__"})
"""Functions that an import calls, and that nobody names."""
_LAZY = re.compile("lazy|attach|import_structure", re.IGNORECASE)
_DOTTED = re.compile(r"\.*\w+(?:\.\w+)*")
_STANDS_IN = {"setuptools": "distutils"}
"""Packages that put their own copy in the place of a module of the standard library: whoever imports that one
executes them: https://setuptools.pypa.io/en/latest/deprecated/distutils-legacy.html
"""
_IMPORTS = re.compile(
    rb"(?:^|[:;])[ \t]*(?:from|import)[ \t][^\n(]*(?:\([^)]*\))?|[\"'][.\w]+[\"']", re.MULTILINE
)
_WORDS = re.compile(rb"[A-Za-z_]\w*")
Importers = Callable[[str, str], Sequence[str] | None]
"""(a wheel, a module): the modules of the wheel that may import it, or one below it, as they are imported;
None if nobody knows."""


def may_come_to(module: str, executed: Collection[str], wheels: Iterable[str], importers: Importers) -> bool:
    """Whether imports that certainly execute some modules may execute another one, too."""
    names = tuple(wheels)
    queue, seen = [module], {module}
    for at in queue:
        if at in executed or len(queue) > _MOST_ON_THE_WAY:
            return True
        for asked in filter(None, (at, _STANDS_IN.get(at))):
            if asked != at and asked in executed:
                return True
            for wheel in names:
                found = importers(wheel, asked)
                if found is None:
                    return True
                new = [one for one in found if one not in seen]
                queue += new
                seen.update(new)
    return False


class ImportWords:
    """The sources of a wheel by the words in their imports and their texts, so that of thousands only those
    are parsed that may import a module."""

    def __init__(self, sources: Iterable[tuple[str, bytes | None]], files: WheelFiles) -> None:
        self.files, self.unread = files, False
        self.by_word: dict[bytes, list[str]] = {}
        """Modules, by the last words of what they may import."""
        self.parsed: dict[str, set[str] | None] = {}
        named = {path: module for module, path in files.modules.items() if path is not None}
        for path, content in sources:
            module = named.get(path)  # no import finds another one
            if module is None:
                continue
            self.unread |= content is None
            for word in {word for part in _IMPORTS.findall(content or b"") for word in _WORDS.findall(part)}:
                self.by_word.setdefault(word, []).append(module)

    def importing(self, module: str, read: Callable[[str], bytes | None]) -> list[str] | None:
        """The modules that may import one, or one below it, as they are imported; None if a source was not
        read, or if there are too many to tell."""
        above, _, last = module.rpartition(".")
        asked = self.by_word.get(last.encode(), [])
        # whoever lies elsewhere names the folder, too, and of another package the outermost one
        for own in filter(None, (above, module.partition(".")[0])):
            having = set(self.by_word.get(own.rpartition(".")[2].encode(), ()))
            asked = [one for one in asked if one in having or f"{one}.".startswith(f"{own}.")]
        if self.unread or len(asked) > _MOST_CANDIDATES:
            return None
        found = list[str]()
        for one in asked:
            if one not in self.parsed:
                content = read(self.files.modules[one] or "")
                package = one in self.files.packages
                self.parsed[one] = (
                    imports_at_most(content, one, package=package) if content is not None else None
                )
            every = self.parsed[one]
            if one != module and (
                every is None or any(f"{name}.".startswith(f"{module}.") for name in every)
            ):
                found.append(one)
        return found


def imports_at_most(content: bytes, module: str, *, package: bool) -> set[str] | None:
    """All modules that the import of a source may import, a name that is taken from one counted as one, and
    so a text in a call; None if this Python does not parse it.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(content)
        return set(_imported(tree, module if package else module.rpartition(".")[0]))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _imported(tree: ast.Module, package: str) -> Iterator[str]:
    functions: dict[tuple[str, ...], list[ast.AST]] = {}
    bases: dict[str, set[str]] = {}
    known, queue = set[str](), list[ast.AST](tree.body)
    while queue:
        for node in _outside(queue.pop(), functions):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                base = _base(node, package)
                yield from (base, *(f"{base}.{alias.name}" for alias in node.names))
            else:
                known.update(_named(node))
                if isinstance(node, ast.ClassDef):
                    bases.setdefault(f"{node.name}()", set()).update(map(last_name, node.bases))
                for text in _texts(node):
                    yield from (text.lstrip("."), f"{package}.{text.lstrip('.')}")
        while made := [one for one in bases if one in known]:
            known |= {f"{name}()" for one in made for name in bases.pop(one)}
        for keys in [one for one in functions if known.issuperset(one)]:
            queue += functions.pop(keys)


def _named(node: ast.AST) -> Iterator[str]:
    """The names in an expression, also ``C.m``; as ``C()`` those that make objects, if they are classes."""
    yield last_name(node)
    if isinstance(node, ast.Attribute):
        yield f"{last_name(node.value)}.{node.attr}"
    elif isinstance(node, ast.Call):
        yield f"{last_name(node.func)}()"
    elif isinstance(node, ast.ClassDef):
        every = (*node.decorator_list, *(word.value for word in node.keywords))
        yield from (f"{last_name(one)}()" for one in every)


def _outside(statement: ast.AST, functions: dict[tuple[str, ...], list[ast.AST]]) -> Iterator[ast.AST]:
    """A statement and all below it but types, and the bodies of functions, which are kept by the names that
    all have to be known where they are called; none for those that Python calls as it makes a class.
    """
    queue = [(statement, "")]
    while queue:
        node, owner = queue.pop()
        if isinstance(node, ast.If) and last_name(node.test) == "TYPE_CHECKING":
            queue += [(one, owner) for one in node.orelse]
        elif isinstance(node, FUNCTIONS):
            special = re.fullmatch(r"__\w+__", node.name)
            keys: list[tuple[str, ...]] = [() if node.name in _HOOKS else (node.name,)]
            if owner and node.name not in _HOOKS:
                keys = [(f"{owner}()", *(() if special else (node.name,))), (f"{owner}.{node.name}",)]
            for one in keys:
                functions.setdefault(one, []).extend(node.body)
            decorators = [ast.Call(func=one, args=[], keywords=[]) for one in node.decorator_list]
            defaults = (one for one in (*node.args.defaults, *node.args.kw_defaults) if one is not None)
            queue += [(one, owner) for one in (*decorators, *defaults)]
        elif isinstance(node, ast.AnnAssign):
            yield node
            queue += [(one, owner) for one in (node.target, node.value) if one is not None]
        else:
            yield node
            owner = node.name if isinstance(node, ast.ClassDef) else owner
            queue += [(one, owner) for one in children_of(node)]


def _texts(node: ast.AST) -> Iterator[str]:
    """The texts in a call, or in a lazy loader's table, that may be names of modules."""
    of: list[ast.AST] = []
    if isinstance(node, ast.Call):
        of = [*node.args, *(word.value for word in node.keywords)]
        of = [inner for one in of for inner in nodes_of(one)] if _LAZY.search(called(node)) else of
    elif isinstance(node, (ast.Assign, ast.AnnAssign)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        of = nodes_of(node) if any(map(_LAZY.search, map(last_name, targets))) else []
    for one in of:
        if isinstance(one, ast.Constant) and isinstance(one.value, str) and _DOTTED.fullmatch(one.value):
            yield one.value


def _base(node: ast.ImportFrom, package: str) -> str:
    if not node.level:
        return node.module or ""
    parts = package.split(".")
    parts = parts[: len(parts) - node.level + 1]
    return ".".join((*parts, *([node.module] if node.module else [])))
