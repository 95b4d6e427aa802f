"""The names that are bound in a module up to one of its statements, and what is known of each."""

import ast
import contextlib
import re
from collections.abc import Iterable, Iterator

from builder.core.decided_tests import ExpressionReader, decided
from builder.core.module_syntax import OWN_FOLDER, nodes_of
from builder.core.module_values import ALWAYS, Expression

Target = tuple[str, str | None]
"""The module, and the name of it if it is none itself, that an import binds."""
_KEEP_FILLED = {"list", "tuple", "set", "sorted", "enumerate", "reversed", "dict", "iter"}


class Bindings:
    """The names of one module. ``globals_``: those that functions of it may bind."""

    def __init__(self, globals_: Iterable[str]) -> None:
        self.globals = frozenset(globals_)
        self.names = set(self.globals)
        """Every name that may be bound."""
        self.again: set[str] = set()
        """Names that are bound several times."""
        self.targets: dict[str, set[Target | None]] = {}
        """Imports that bind a name; None among them for any other way."""
        self.sure: dict[str, int] = {}
        """Pythons on which a name is bound by an import for certain, up to this statement."""
        self.shadows: list[set[str]] = []
        """Names of each class body, or function, that the statement is in."""
        self.never = False
        """Whether the statement is never executed: below ``if TYPE_CHECKING``, or for another system."""
        self.values = ExpressionReader(self.dotted, self.is_shadowed)
        """Values that the wheels of a set decide."""
        self.flags: dict[str, tuple[int, int]] = {}
        """The Pythons on which a name that is bound once is true, and those on which it is false."""
        self.initial: dict[str, Expression | None] = {}
        """None or False, if a name is bound to it first; None for another first value."""
        self.versions: dict[str, str] = {}
        """Texts that begin as a version does."""
        self.filled: set[str] = set()
        """Names of lists and dictionaries that have something in them."""
        self.own_folders: set[str] = set()
        """Names of the folder that the module lies in."""
        self.lists_folder = False
        """Whether the module asks for the files in a folder."""

    def is_shadowed(self, name: str) -> bool:
        """Whether a class body, or a function, that the statement is in binds a name."""
        return any(name in names for names in self.shadows)

    def is_bound(self, name: str) -> bool:
        return name in self.names or self.is_shadowed(name)

    def once(self, name: str) -> bool:
        """Whether a name of the module is bound at one place alone."""
        return name not in self.again and name not in self.globals

    @contextlib.contextmanager
    def scope(self, names: set[str], values: dict[str, Expression]) -> Iterator[None]:
        """The statements of a class body, or of a function, that binds ``names``; ``values``: of others."""
        outer = self.values.names
        self.values.names = {name: one for name, one in outer.items() if name not in names} | values
        self.shadows.append(names)
        yield
        self.shadows.pop()
        self.values.names = outer

    def dotted(self, chain: tuple[str, ...]) -> set[str]:
        """The dotted names that ``first.second`` certainly is; more than one of imports that may fail."""
        first = chain[0] if chain else ""
        if not first or self.is_shadowed(first):
            return set()
        targets = self.targets.get(first, set())
        if not targets or None in targets or first in self.globals:
            return set()
        return {".".join((one[0], *((one[1],) if one[1] else ()), *chain[1:])) for one in targets if one}

    def forget(self, names: Iterable[str]) -> None:
        """Forget the values of names that are bound anew."""
        for name in names:
            self.values.names.pop(name, None)

    def bind(self, name: str, target: Target | None = None, pythons: int = 0) -> None:
        """Note that a name is bound; ``target``: by an import, on these Pythons for certain."""
        self.values.names.pop(name, None)
        self.values.askers.discard(name)
        if self.shadows:
            self.shadows[-1].add(name)
            return
        self.targets.setdefault(name, set()).add(target)
        if self.never:
            return
        self.flags.pop(name, None)
        self.filled.discard(name)
        self.again |= {name} & self.names
        self.names.add(name)
        if target is not None:
            self.sure[name] = self.sure.get(name, 0) | pythons

    def assign(self, statement: ast.Assign | ast.AugAssign, pythons: int) -> None:
        """Note what is known of the value of names that were bound."""
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        bound = [one.id for target in targets for one in nodes_of(target) if isinstance(one, ast.Name)]
        self.forget(bound)
        self.own_folders.difference_update(bound)
        if isinstance(statement, ast.AugAssign):
            return
        plain = [one.id for one in targets if isinstance(one, ast.Name)]
        if len(bound) == 1 and plain == bound:
            self._value(bound[0], statement.value)
        if len(targets) == 1 and plain and pythons == ALWAYS and not self.never and not self.shadows:
            known = decided(statement.value, self.flag_of)  # as of ``PY3 = sys.version_info[0] == 3``
            if plain[0] not in self.again and known != (0, 0):
                self.flags[plain[0]] = known
        if self.lists_folder and OWN_FOLDER.fullmatch(ast.unparse(statement.value)):
            self.own_folders |= set(plain)
        if not self.shadows and self.is_filled(statement.value):
            self.filled |= set(plain)

    def _value(self, name: str, value: ast.expr) -> None:
        known = self.values.read(value)
        if known is not None and name not in self.globals:
            self.values.names[name] = known
        elif not self.shadows:  # what the first call of a function finds
            nothing = known in (["const", None], ["const", False]) and name not in self.initial
            self.initial[name] = known if nothing else None
        if not self.shadows and isinstance(value, ast.Constant | ast.Name):
            text = known[1] if known is not None and known[0] == "const" else None
            if isinstance(text, str) and re.match(r"v?\d+(?:\.\d+)+", text):
                self.versions[name] = text

    def flag_of(self, name: str) -> tuple[int, int]:
        """The Pythons on which a name is certainly true, and on which it is certainly false."""
        known = self.once(name) and not self.is_shadowed(name)
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
                found = name in self.filled and not self.is_shadowed(name)
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
