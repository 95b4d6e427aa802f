"""Values of the expressions of a module, as far as the wheels of a set decide them: what is installed, in
which version, and what its own lists and dictionaries hold. Nothing of a wheel is executed.
"""

import ast
import operator
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from packaging.version import InvalidVersion, Version

from builder.core.decided_tests import METADATA, UnknownValueError, decided
from builder.core.import_set import ImportSet
from builder.core.module_syntax import called, last_name, nodes_of
from builder.core.python_names import OF_PYTHON
from builder.core.versions import canonical

CHANGES = frozenset({"append", "extend", "update", "add", "setdefault", "insert", "pop", "remove"})
_READS = frozenset(
    {
        *("copy", "endswith", "format", "get", "items", "join", "keys", "lower", "partition", "removeprefix"),
        *("removesuffix", "replace", "rpartition", "rsplit", "split", "startswith", "strip", "union"),
        *("upper", "values", "isdigit", "isdecimal"),
    }
)
_QUIET = frozenset({"logger", "logging", "log", "_logger", "warnings"})
_BUILTINS: dict[str, Callable[..., Any]] = {
    one.__name__: one for one in (bool, int, str, len, list, tuple, set, frozenset, sorted, any, all, dict)
}
_CLASSES: dict[str, type] = {
    **{one.__name__: one for one in (bool, int, str, list, tuple, set, dict)},
    "Version": Version,
}
_COMPARES: dict[type, Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.In: lambda one, other: one in other,
    ast.NotIn: lambda one, other: one not in other,
}
_PARTS = frozenset({"major", "minor", "micro", "release", "base_version", "public"})
_PARSERS = frozenset({"parse", "parse_version", "Version", "LooseVersion", "StrictVersion"})
_OF_VERSIONS = re.compile(
    r"(?:packaging|distutils|pkg_resources|looseversion|setuptools|importlib_metadata)\..*"
)
_OF_IMAGES = re.compile(
    r"PATH|HOME|CUDA|NVIDIA|PYTHON|LANG|^LC_|USER|SHELL|TERM|HOST|DISPLAY|TMP|TEMP|PWD|NAME"
)
"""In the name of a variable that an image, or a container, has though its cell sets none."""
_SIGNS = frozenset({"lt", "le", "eq", "ne", "ge", "gt"})
_KEYS = (str, int, frozenset)
MOST_TURNS = 20_000
_MOST_LENGTH = 4_000
"""Of a text that another one is made of: a wheel's source may double one at each turn of a loop."""
_MOST_MADE = 1_000_000
"""Letters and elements that the sources of a set make, or look through: 6,437 with transformers 4.52."""


class _Unknown:
    def __repr__(self) -> str:
        return "unknown"


UNKNOWN: Any = _Unknown()
SOMETHING: Any = object()
"""What is not None, of which no more is known."""


class Dotted(NamedTuple):
    """A module, or a name of one, that was imported."""

    module: str
    names: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        return ".".join((self.module, *self.names))


class ModulePlace(NamedTuple):
    """The file of a module, or a folder, by its dotted name."""

    folder: str
    is_file: bool = False


class Method(NamedTuple):
    on: Any
    name: str


class Function(NamedTuple):
    of: "Expressions"
    node: ast.FunctionDef


class Packages(NamedTuple):
    """``importlib.metadata.packages_distributions()``."""


class NameTable(dict[Any, Any]):
    """A dictionary of the module. ``doubt``: keys, or texts in its values, that it may have besides; None if
    it may have any."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.doubt: set[str] | None = set()


class Structure(NamedTuple):
    """The names that a ``_LazyModule`` has: ``rows`` of each module below it, and those that ``__all__`` of
    modules in ``folder`` tell."""

    rows: NameTable
    folder: str = ""
    own: frozenset[str] | None = frozenset()
    """Names that it has without an import; None if they are not known."""


class Folder(NamedTuple):
    """``define_import_structure(folder)``."""

    folder: str
    rows: NameTable


NAMED = (Dotted, ModulePlace, Method, Function, Packages, Folder)
"""What stands for more than a value of Python's."""
Scopes = list[dict[str, Any]]
"""Names of the function, or of the module, and those around it."""


class RaisesError(Exception):
    """A statement that was walked raises this exception, by its name."""


class RunState(ABC):
    """The state of a run through the modules of a set."""

    def __init__(self, every: ImportSet) -> None:
        self.every = every
        self.decides = ""
        """The distribution that decided the last answer."""
        self.depth = self.steps = self.trying = 0
        """Calls, statements, and blocks of a ``try`` that a statement is in."""
        self.size_made = 0
        """Letters and elements of what was made so far."""

    def counted(self, value: Any) -> Any:
        """A value that was made. Raises UnknownValueError after the last that a set may make."""
        if isinstance(value, str | list | tuple | set | frozenset | dict):
            self.size_made += len(value)
            if self.size_made > _MOST_MADE:
                raise UnknownValueError
        return value

    @abstractmethod
    def value_of(self, module: str, name: str) -> Any:
        """The value of a name of a module."""

    @abstractmethod
    def call(self, function: Any, args: list[Any], words: dict[str, Any]) -> Any:
        """What a call of a function returns."""


class Expressions(ABC):
    """The names of one module, and the values of its expressions."""

    def __init__(self, runs: RunState, module: str) -> None:
        self.runs, self.every, self.module = runs, runs.every, module
        wheel = self.every.wheel(self.every.owner(module) or "")
        is_package = wheel is not None and module in wheel.packages
        self.package = module if is_package else module.rpartition(".")[0]
        self.structure: Structure | None = None
        self.added: set[str] | None = set()
        """Names that ``setattr`` gives the module; None if they are not known."""
        self.imported: list[str] = []
        """Modules that the last call of ``__getattr__`` imported."""
        self.deciders: dict[str, str] = {}
        """The distributions that decided what the module's names are."""
        self.names: dict[str, Any] = {
            "__name__": module,
            "__package__": self.package,
            "__file__": ModulePlace(module, is_file=True),
            "TYPE_CHECKING": False,
        }

    @abstractmethod
    def block(self, body: Sequence[ast.stmt], scopes: Scopes, *, inside: bool = False) -> Any:
        """What statements return; ``...`` if they do not. Raises RaisesError, and UnknownValueError if it is
        not known where they go."""

    def store(self, target: ast.expr, value: Any, scopes: Scopes) -> None:
        match target:
            case ast.Name(id=name):
                scopes[0][name] = value
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                known = isinstance(value, list | tuple) and len(value) == len(parts)
                for number, one in enumerate(parts):
                    self.store(one, value[number] if known else UNKNOWN, scopes)
            case ast.Subscript(value=on, slice=at):
                table, key = self.value(on, scopes), self.value(at, scopes)
                if isinstance(table, NameTable):
                    if isinstance(key, _KEYS):
                        table[key] = value
                    else:
                        table.doubt = None
                elif isinstance(table, list):
                    self.doubt(target, scopes)
            case _:
                pass

    def doubt(self, statement: ast.AST, scopes: Scopes) -> None:
        """A statement that is perhaps executed: what it binds is not known."""
        every = nodes_of(statement)
        texts = {one.value for one in every if isinstance(one, ast.Constant) and isinstance(one.value, str)}
        if any(isinstance(one, ast.Name) and one.id == "setattr" for one in every):
            self.added = None
        calls = [one for one in every if isinstance(one, ast.Call)]
        whole = True
        for call in calls:
            if isinstance(call.func, ast.Name) and call.func.id == "dir" and len(call.args) == 1:
                given = self.value(call, scopes)
                whole &= isinstance(given, list)
                texts |= set(given) if isinstance(given, list) else set()
            elif called(call) == "update" and not isinstance(call.args[0] if call.args else None, ast.Dict):
                whole = False
        for node in every:
            if not isinstance(node, ast.Name):
                continue
            found = self.lookup(node.id, scopes)
            if not isinstance(node.ctx, ast.Load):
                scopes[0][node.id] = UNKNOWN
            elif isinstance(found, NameTable):
                found.doubt = found.doubt | texts if whole and found.doubt is not None else None
            elif isinstance(found, list | set):
                scopes[0][node.id] = UNKNOWN

    def lookup(self, name: str, scopes: Scopes) -> Any:
        for one in (*scopes, self.names):
            if name in one:
                if one is self.names:
                    self.runs.decides = self.runs.decides or self.deciders.get(name, "")
                return one[name]
        return UNKNOWN

    def test(self, node: ast.expr, scopes: Scopes) -> Any:
        known = self.by_python(node)
        return known if known is not UNKNOWN else self.truth(self.value(node, scopes))

    def by_python(self, node: ast.expr) -> Any:
        """Whether a test holds on the Python of the set, if that decides it."""
        true, false = decided(node)
        bit = 1 << self.every.python
        return True if true & bit else False if false & bit else UNKNOWN

    def truth(self, value: Any) -> Any:
        """Whether a value is true; unknown if that is not known."""
        if isinstance(value, Dotted):
            value = self.runs.value_of(value.module, value.names[0]) if len(value.names) == 1 else UNKNOWN
        if value is UNKNOWN or isinstance(value, Dotted) or is_doubtful(value):
            return UNKNOWN
        return True if value is SOMETHING else bool(value)

    def value(self, node: ast.expr | None, scopes: Scopes) -> Any:
        """The value of an expression; :data:`UNKNOWN` if it is not known. Raises RaisesError, and
        UnknownValueError."""
        match node:
            case ast.Constant(value=found):
                answer: Any = found
            case ast.Name(id=name):
                answer = self.lookup(name, scopes)
            case ast.Attribute(value=on, attr=name):
                answer = self.attribute(self.value(on, scopes), name)
            case ast.Call():
                answer = self.runs.counted(self.call(node, scopes))
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                found = self.test(operand, scopes)
                answer = found if found is UNKNOWN else not found
            case ast.Compare(left=left, ops=[sign], comparators=[right]):
                answer = self.compare(self.value(left, scopes), sign, self.value(right, scopes))
            case ast.Subscript(value=on, slice=at):
                answer = self.subscript(self.value(on, scopes), self.value(at, scopes))
            case ast.BinOp(left=left, op=op, right=right):
                answer = self.runs.counted(
                    self.binary(self.value(left, scopes), op, self.value(right, scopes))
                )
            case ast.BoolOp() | ast.IfExp():
                answer = self.chosen(node, scopes)
            case _:
                answer = self.runs.counted(self.made(node, scopes))
        return answer

    def made(self, node: ast.expr | None, scopes: Scopes) -> Any:
        """The value of an expression that makes a list, a dictionary or a text."""
        match node:
            case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts):
                if not any(isinstance(one, ast.Starred) for one in parts):
                    kind = (
                        list if isinstance(node, ast.List) else tuple if isinstance(node, ast.Tuple) else set
                    )
                    return _made(kind, [self.value(one, scopes) for one in parts])
            case ast.Dict(keys=keys, values=values):
                table = NameTable()
                for key, given in zip(keys, values, strict=True):
                    at = self.value(key, scopes) if key is not None else UNKNOWN
                    if isinstance(at, _KEYS):
                        table[at] = self.value(given, scopes)
                    else:
                        table.doubt = None
                return table
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                return self.comprehension(node, scopes)
            case ast.JoinedStr(values=values):
                parts = [one.value if isinstance(one, ast.FormattedValue) else one for one in values]
                texts = [self.value(one, scopes) for one in parts]
                return "".join(texts) if all(isinstance(one, str) for one in texts) else UNKNOWN
            case _:
                pass
        return UNKNOWN

    def chosen(self, node: ast.BoolOp | ast.IfExp, scopes: Scopes) -> Any:
        if isinstance(node, ast.BoolOp):
            return self.bool_op(node.values, scopes, whole=isinstance(node.op, ast.And))
        found = self.test(node.test, scopes)
        return found if found is UNKNOWN else self.value(node.body if found else node.orelse, scopes)

    def bool_op(self, values: list[ast.expr], scopes: Scopes, *, whole: bool) -> Any:
        unknown, found = False, None
        for one in values:
            found = self.value(one, scopes)
            true = self.truth(found)
            if true is UNKNOWN:
                true = self.by_python(one)
            if true is UNKNOWN:
                unknown = True
            elif true is not whole:
                return (not whole) if unknown or found is UNKNOWN else found
        return UNKNOWN if unknown else found

    def attribute(self, on: Any, name: str) -> Any:
        if isinstance(on, Dotted):
            found = Dotted(on.module, (*on.names, name))
            if name == "__version__":
                return self.version_of(on)
            return found
        if isinstance(on, Version) and name in _PARTS:
            return getattr(on, name)
        if isinstance(on, ModulePlace) and name == "parent":
            return self.parent(on)
        if isinstance(on, str | list | set | frozenset | dict | Packages):
            return Method(on, name)
        return UNKNOWN

    def version_of(self, of: Dotted) -> Any:
        text = self.every.version_text(of.text, "__version__")
        self.decided_by(of.text)
        return UNKNOWN if text is None else text if isinstance(text, str) else str(text)

    def parent(self, place: ModulePlace) -> ModulePlace:
        if place.is_file:
            of = self.every.wheel(self.every.owner(place.folder) or "")
            is_package = of is not None and place.folder in of.packages
            return ModulePlace(place.folder if is_package else place.folder.rpartition(".")[0])
        return ModulePlace(place.folder.rpartition(".")[0])

    def compare(self, one: Any, sign: ast.cmpop, other: Any) -> Any:
        answer, compares = UNKNOWN, _COMPARES.get(type(sign))
        if isinstance(sign, ast.Is | ast.IsNot):
            if other is None and one is not UNKNOWN and not isinstance(one, Dotted):
                answer = (one is None) == isinstance(sign, ast.Is)
        elif isinstance(other, Packages):
            there = self.found(one) if isinstance(one, str) else UNKNOWN
            if isinstance(sign, ast.In | ast.NotIn) and there is not UNKNOWN:
                answer = (there is not None) == isinstance(sign, ast.In)
        elif compares is not None and self.is_plain(one) and self.is_plain(other) and not is_doubtful(other):
            try:
                answer = compares(one, other)
            except TypeError:  # as of a text and a number
                answer = UNKNOWN
        return answer

    def subscript(self, on: Any, at: Any) -> Any:
        match on:
            case Packages() if isinstance(at, str):
                there, owner = self.found(at), self.every.owner(at)
                if there is None:
                    raise RaisesError("KeyError")
                return [owner] if owner is not None and there is not UNKNOWN else UNKNOWN
            case Dotted() if on.text == "os.environ" and isinstance(at, str):
                return self.every.environment.get(at, UNKNOWN)
            case Folder() if at == frozenset():
                return on.rows
            case Method(on=None, name="globals") if isinstance(at, str):
                return self.names.get(at, UNKNOWN)
            case dict() | list() | str() | tuple() if isinstance(at, _KEYS) and not isinstance(on, NAMED):
                return self.element(on, at)
            case _:
                return UNKNOWN

    def element(self, on: Any, at: Any) -> Any:
        try:
            return on[at]
        except (KeyError, IndexError) as problem:
            if is_doubtful(on):
                return UNKNOWN
            raise RaisesError(type(problem).__name__) from None
        except TypeError:
            return UNKNOWN

    def binary(self, one: Any, op: ast.operator, other: Any) -> Any:
        if isinstance(one, ModulePlace) and isinstance(op, ast.Div) and isinstance(other, str):
            return ModulePlace(f"{one.folder}.{other.replace('/', '.')}")
        if isinstance(op, ast.Add) and type(one) is type(other) and isinstance(one, str | list | tuple | int):
            return one + other if _is_short(one) and _is_short(other) else UNKNOWN
        if isinstance(op, ast.BitOr) and isinstance(one, set) and isinstance(other, set):
            return one | other
        return UNKNOWN

    def comprehension(
        self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp, scopes: Scopes
    ) -> Any:
        if len(node.generators) != 1:
            return UNKNOWN
        loop = node.generators[0]
        every = self.value(loop.iter, scopes)
        if not isinstance(every, list | tuple | set | frozenset | dict) or is_doubtful(every):
            return UNKNOWN
        inner: dict[str, Any] = {}
        rows: list[Any] = []
        for one in list(every)[:MOST_TURNS]:
            self.store(loop.target, one, [inner, *scopes])
            tests = [self.test(test, [inner, *scopes]) for test in loop.ifs]
            if UNKNOWN in tests:
                return UNKNOWN
            if all(tests):
                if isinstance(node, ast.DictComp):
                    rows.append([self.value(part, [inner, *scopes]) for part in (node.key, node.value)])
                else:
                    rows.append(self.value(node.elt, [inner, *scopes]))
        if isinstance(node, ast.DictComp):
            return NameTable(rows) if all(isinstance(key, str | int) for key, _ in rows) else UNKNOWN
        return _made(set if isinstance(node, ast.SetComp) else list, rows)

    # -- calls

    def call(self, node: ast.Call, scopes: Scopes) -> Any:
        """What a call returns: in a ``try``, nobody knows whether one that is not known raises."""
        found = self.called(node, scopes)
        quiet = isinstance(node.func, ast.Attribute) and last_name(node.func.value) in _QUIET
        if found is UNKNOWN and self.runs.trying and not quiet:
            raise UnknownValueError
        return found

    def called(self, node: ast.Call, scopes: Scopes) -> Any:
        if any(isinstance(one, ast.Starred) for one in node.args) or any(
            w.arg is None for w in node.keywords
        ):
            return UNKNOWN
        text = ast.unparse(node.func) if isinstance(node.func, ast.Name) else ""
        args = [self.value(one, scopes) for one in node.args]
        words = {one.arg or "": self.value(one.value, scopes) for one in node.keywords}
        function = self.value(node.func, scopes)
        if isinstance(function, Function):
            return self.runs.call(function, args, words)
        if isinstance(function, Method):
            return self.method(function, args)
        if isinstance(function, Dotted):
            return self.call_of(function, args, words)
        return self.builtin(text, args, node, words) if function is UNKNOWN and text else UNKNOWN

    def builtin(self, name: str, args: list[Any], node: ast.Call, words: Mapping[str, Any]) -> Any:
        answer: Any = UNKNOWN
        if name == "globals" and not args:
            answer = Method(None, "globals")
        elif name == "dir" and len(args) == 1:
            answer = self.names_in(args[0])
        elif name == "isinstance" and len(args) == 2 and self.is_plain(args[0]):
            kinds = node.args[1].elts if isinstance(node.args[1], ast.Tuple) else [node.args[1]]
            classes = [_CLASSES.get(last_name(one)) for one in kinds]
            known = tuple(one for one in classes if one is not None)
            answer = isinstance(args[0], known) if len(known) == len(classes) else UNKNOWN
        elif name == "_LazyModule":
            self.lazy(args, words)
        elif name == "setattr" and self.added is not None:
            self.added = self.added | {args[1]} if len(args) > 1 and isinstance(args[1], str) else None
            answer = None
        elif name == "print":
            answer = None
        elif name in _BUILTINS and not words and all(map(self.is_plain, args)):
            answer = _applied(_BUILTINS[name], args) if not any(map(is_doubtful, args)) else UNKNOWN
        return answer

    def lazy(self, args: list[Any], words: Mapping[str, Any]) -> None:
        """Note what a ``_LazyModule`` is made of: ``(name, file, import_structure, ...)``."""
        given = args[2] if len(args) > 2 else words.get("import_structure")
        objects = words.get("extra_objects", NameTable())
        own = frozenset(objects) if isinstance(objects, NameTable) and objects.doubt == set() else None
        if isinstance(given, Folder):
            self.structure = Structure(given.rows, given.folder, own)
        elif isinstance(given, NameTable):
            self.structure = Structure(given, own=own)

    def names_in(self, of: Any) -> Any:
        """``dir(module)``."""
        if not isinstance(of, Dotted):
            return UNKNOWN
        found = self.every.names(of.text)
        if found is None or found.anything or found.stars or found.lazy:
            return UNKNOWN
        return sorted(found.names)

    def method(self, method: Method, args: list[Any]) -> Any:
        on, name = method
        if isinstance(on, Packages) and name == "get" and args and isinstance(args[0], str):
            there = self.found(args[0])
            default = args[1] if len(args) > 1 else None
            return (
                default if there is None else self.subscript(on, args[0]) if there is SOMETHING else UNKNOWN
            )
        if isinstance(on, NAMED) or on is None or (name not in _READS and name not in CHANGES):
            return UNKNOWN
        known = all(map(self.is_plain, args)) and not any(map(is_doubtful, args))
        if not known or not all(map(_is_short, (on, *args))) or (name == "format" and ":" in on):  # a width
            if isinstance(on, NameTable) and name in CHANGES:
                on.doubt = None
            elif isinstance(on, list) and name in CHANGES:
                on.append(UNKNOWN)
            elif isinstance(on, set) and name in CHANGES:
                on.add(UNKNOWN)
            return UNKNOWN
        found = _applied(getattr(on, name, None), args)
        if is_doubtful(on) and (found is None or name not in {"get", *CHANGES}):
            return UNKNOWN
        return list(found) if name in {"items", "keys", "values"} and found is not UNKNOWN else found

    def call_of(self, function: Dotted, args: list[Any], words: dict[str, Any]) -> Any:
        """The call of what was imported."""
        last = function.text.rpartition(".")[2]
        if last == "_LazyModule":
            self.lazy(args, words)
            return UNKNOWN
        if last == "define_import_structure" and args and isinstance(args[0], ModulePlace):
            folder = self.parent(args[0]) if args[0].is_file else args[0]
            return Folder(folder.folder, NameTable()) if folder.folder.startswith(self.package) else UNKNOWN
        if function.module.partition(".")[0] in OF_PYTHON or _OF_VERSIONS.fullmatch(function.text):
            return self.call_of_python(function.text, last, args, words)
        if len(function.names) != 1:
            return UNKNOWN
        return self.runs.call(self.runs.value_of(function.module, function.names[0]), args, words)

    def call_of_python(self, text: str, last: str, args: list[Any], words: dict[str, Any]) -> Any:
        """The call of a function of Python's own, or of one that asks for versions."""
        answer: Any = UNKNOWN
        match args:
            case [str(name), *_] if text == "importlib.util.find_spec":
                answer = self.found(name) if name.isidentifier() else UNKNOWN
            case [str(name), *_] if text in METADATA and last != "require":
                version = self.installed(name)
                answer = version if last == "version" or version is UNKNOWN else SOMETHING
            case [] if text == "importlib.metadata.packages_distributions":
                answer = Packages()
            case [str(name), *more] if text in {"os.environ.get", "os.getenv"}:
                default = more[0] if more else words.get("default", UNKNOWN)
                answer = self.every.environment.get(name, default if not _OF_IMAGES.search(name) else UNKNOWN)
            case [Version() | str() as version] if last in _PARSERS and _OF_VERSIONS.fullmatch(text):
                try:
                    answer = Version(str(version))
                except InvalidVersion:
                    raise RaisesError("InvalidVersion") from None
            case [one, other] if (
                text.startswith("operator.") and type(one) is type(other) and self.is_plain(one)
            ):
                answer = _applied(getattr(operator, last, None), args) if last in _SIGNS else UNKNOWN
            case [ModulePlace() as place, *_] if text == "pathlib.Path":
                answer = place
            case [ModulePlace() as place] if text == "os.path.dirname":
                answer = self.parent(place)
            case [str(name), *more] if text == "importlib.import_module":
                package = more[0] if more else words.get("package", "")
                answer = self.import_module(name, package if isinstance(package, str) else "?")
            case _:
                pass
        return answer

    def import_module(self, name: str, package: str) -> Any:
        dots = len(name) - len(name.lstrip("."))
        parts = package.split(".")
        if dots and (not package or "?" in package or dots > len(parts)):
            return UNKNOWN
        whole = ".".join([*parts[: len(parts) - dots + 1], name[dots:]]) if dots else name
        if self.runs.trying:
            raise UnknownValueError
        self.imported.append(whole)
        return Dotted(whole)

    # -- what the set decides

    def found(self, name: str) -> Any:
        """``find_spec(name)``."""
        self.decided_by(name)
        if self.every.lacks_module(name) is not None:
            return None
        return SOMETHING if self.every.there(name) or name in OF_PYTHON else UNKNOWN

    def installed(self, name: str) -> Any:
        wheel = self.every.wheel(canonical(name))
        self.runs.decides = self.runs.decides or canonical(name)
        if wheel is not None:
            return wheel.version
        if self.every.whole:
            raise RaisesError("PackageNotFoundError")
        return UNKNOWN

    def is_plain(self, value: Any) -> bool:
        """Whether a value is known through and through."""
        if isinstance(value, list | tuple | set | frozenset):
            return not isinstance(value, NAMED) and all(map(self.is_plain, self.runs.counted(value)))
        return value is None or isinstance(value, bool | int | str | dict | Version)

    def decided_by(self, module: str) -> None:
        self.runs.decides = self.runs.decides or self.every.owner(module.partition(".")[0]) or ""


def _made(kind: type, every: list[Any]) -> Any:
    try:
        return kind(every)
    except TypeError:
        return UNKNOWN


def _is_short(value: Any) -> bool:
    """Whether a text, a number or a list may become a part of a larger one."""
    if isinstance(value, int):
        return value.bit_length() < _MOST_LENGTH
    return not isinstance(value, str | list | tuple | set | frozenset | dict) or len(value) <= _MOST_LENGTH


def is_doubtful(value: Any) -> bool:
    return isinstance(value, NameTable) and value.doubt != set()


def _applied(function: Callable[..., Any] | None, args: list[Any]) -> Any:
    """What one of Python's own functions returns; unknown if it raises."""
    try:
        found = function(*args) if function is not None else UNKNOWN
    except (TypeError, ValueError, AttributeError, LookupError):
        return UNKNOWN
    return NameTable(found) if isinstance(found, dict) else found
