"""The proof by imports: what an import takes from other wheels of a set, held against what they have.

It follows what is certainly executed, and a name is missing only where nothing can bring it. Whatever is not
decided is no finding.
"""

import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from types import ModuleType
from typing import NamedTuple

from packaging.version import InvalidVersion, Version

from builder.core import python_names
from builder.core.module_ends import Ends, Expression, UnknownValueError, catches, leaves, lets_out, value
from builder.core.module_names import BY_OLD_PROTOC, Called, DecidedTest, Effects, Guard, ModuleNames, Taken
from builder.core.python_names import OF_PYTHON
from builder.core.versions import canonical, requirement

_DEEPEST = 40
_PROTOBUF = ("google.protobuf", "descriptor")
_PROGRAMS = frozenset({"pip"})
"""Distributions that run in a process of their own: no other import sees the modules that they carry."""
_MOST_OF_PAIR = 8
_MOST_CALLS = 12
"""Calls that are followed, one within the other."""
_SOURCE = re.compile(r"(?:[^/]+\.data/(?:pure|plat)lib/)?(?P<module>(?:\w+/)*\w+)\.py")
_COMPILED = re.compile(r"(?:[^/]+\.data/(?:pure|plat)lib/)?(?P<module>(?:\w+/)*\w+)(?:\.[\w-]+)*\.(?:so|pyc)")
_FOLDER = re.compile(r"(?:[^/]+\.data/(?:pure|plat)lib/)?(?P<module>(?:\w+/)*\w+)/[^/]*")
_MOST_MODULES = 40_000
_MOST_COUNTED = 2_000
_MOST_TRIED = 5_000
_OF_EACH_MODULE = frozenset(
    {
        *dir(ModuleType),
        *vars(ModuleType("module")),
        "__builtins__",
        "__cached__",
        "__file__",
        "__path__",
        "__warningregistry__",
    }
)
"""Names that every module has, though its source defines none of them."""


@dataclass(frozen=True, kw_only=True)
class WheelFiles:
    """The files of a wheel that an import may find."""

    name: str
    version: str
    modules: Mapping[str, str | None]
    """By dotted name: the path of its source; None for an extension, or bytecode alone."""
    packages: frozenset[str] = frozenset()
    """Those of the modules that are packages."""
    folders: frozenset[str] = frozenset()
    """Dotted names of folders without a module of their own, each of which can be imported, too."""

    @property
    def every(self) -> Iterator[str]:
        """All modules that can be imported."""
        yield from self.modules
        yield from self.folders

    def below(self, folder: str) -> bool:
        """Whether it has anything in a folder, by its dotted name."""
        return any(f"{name}.".startswith(f"{folder}.") for name in self.every)

    @property
    def label(self) -> str:
        return f"{self.name} {self.version}".rstrip()

    @property
    def roots(self) -> tuple[str, ...]:
        """The modules that a user of the package imports, as far as the names tell."""
        least = min((name.count(".") for name in self.modules), default=0)  # below folders of several wheels
        tops = [name for name in self.modules if name.count(".") == least]
        tops = [
            name for name in tops if not name.rpartition(".")[2].startswith("_") and name not in _NO_ROOTS
        ]
        named = [one for one in tops if _plain(one) == _plain(self.name)]
        if named or len(tops) == 1:
            return tuple(named or tops)
        counts = Counter(name.partition(".")[0] for name in self.modules) if not least else Counter[str]()
        return tuple(name for name in tops if 2 * counts[name] > len(self.modules))

    @property
    def beside(self) -> tuple[str, ...]:
        """The other outermost modules, and those right below the roots."""
        roots = self.roots
        inner = (name for name in self.modules if name.rpartition(".")[0] in {"", *roots})
        return tuple(name for name in inner if name not in roots and not _IS_INNER.search(name))


_IS_INNER = re.compile(
    r"(?:^|\.)(?:_|tests?\b|test_|testing\b|conftest|setup$|docs?\b|examples?\b|benchmarks?\b|scripts\b)"
)
_MAKE_ARRAYS = {"array", "zeros", "ones", "empty", "arange", "full", "eye", "linspace"}
_NO_ROOTS = {
    "tests",
    "test",
    "docs",
    "doc",
    "examples",
    "example",
    "benchmarks",
    "scripts",
    "setup",
    "conftest",
}


def _plain(name: str) -> str:
    return re.sub(r"[-_.]", "", name).lower()


def wheel_files(name: str, version: str, paths: Iterable[str]) -> WheelFiles:
    """The modules among a wheel's files: of one name an extension before a source before compiled bytes, as
    in ``importlib._bootstrap_external._get_supported_file_loaders``.
    """
    modules: dict[str, str | None] = {}
    packages, folders, seen = set[str](), set[str](), set[str]()
    for whole in sorted(paths, key=lambda path: path.endswith(".pyc")):
        path = whole.rpartition("/site-packages/")[2]
        folder = path.rpartition("/")[0]
        if folder not in seen:
            seen.add(folder)
            if found := _FOLDER.fullmatch(path):
                folders.add(found["module"].replace("/", "."))
        found = (_SOURCE if path.endswith(".py") else _COMPILED).fullmatch(path)
        if found is None or "__pycache__" in path:
            continue
        module = found["module"].replace("/", ".")
        if module.endswith(".__init__"):
            module = module.removesuffix(".__init__")
            packages.add(module)
        if path.endswith(".pyc") and module in modules:
            continue
        is_source = path.endswith(".py")
        # an extension comes before a source of the same name, and a package before a module
        if not is_source or module not in modules or (modules[module] is not None and module in packages):
            modules[module] = whole if is_source else None
    return WheelFiles(
        name=name,
        version=version,
        modules=modules,
        packages=frozenset(packages),
        folders=frozenset(folders - modules.keys()),
    )


@dataclass(frozen=True)
class Missing:
    """What an import ends with. The walk fills in ``root`` and what follows when it comes to the module."""

    taking: str
    """The module that takes it: where a function is called, it may be another's."""
    line: int
    module: str
    name: str | None
    """None where the module itself is missing."""
    _: KW_ONLY
    used: bool = False
    """Whether it is an attribute that is evaluated, and no import statement."""
    argument: str = ""
    """An argument that it is called with, and does not take; it is there itself then."""
    because: tuple[tuple[str, str | None], ...] = ()
    """(module, name) that are lacking, too, so that it comes to this: the imports of a ``try``."""
    doubt: bool = False
    """Whether the module puts names together, of which this may be one: if nobody wrote it there before. Of
    what ``ends`` it: whether the import comes there."""
    generated: str = ""
    """The protobuf that made the module, which the one of the set refuses; nothing lacks then."""
    ends: str = ""
    """The statement of the module that ends the import by itself, for the user. Nothing is lacking then, and
    ``giver`` is the distribution that refuses it, ``taker`` itself if no other does."""
    error: str = ""
    """The exception that this raises, if its name is known."""
    library: str = ""
    """The library that it opens by this name and does not find."""
    shared: bool = False
    """Whether ``taker`` and ``giver`` both bring the module, and not the same one. Then nothing lacks."""
    aside: bool = False
    """Whether it is the import of a module beside the package's own."""
    most: str = ""
    """``5 of 9`` modules of ``root`` whose import ends, if these are most. It is not ``aside`` then."""
    root: str = ""
    """The distribution whose import comes there, the first one of several."""
    taker: str = ""
    """The distribution whose module takes what is missing; :data:`OWN` if the cell's own imports do."""
    path: str = ""
    giver: str = ""
    """The distribution that lacks it; empty if no distribution has a module of that name, :data:`PYTHON` if
    it is one of the standard library's."""
    chain: tuple[str, ...] = ()
    """Modules on the way from the outermost one to the one that takes it."""
    older: str = ""
    """The newest older release of ``giver`` that has it, if somebody looked."""

    @property
    def lacked(self) -> str:
        return self.module if self.name is None else f"{self.module}.{self.name}"


PYTHON = "python"
"""Stands for the standard library among the distributions."""
OWN = "`imports`"
"""Stands for the code of whoever uses the image among the distributions; no name of one."""
OWN_MODULE = "<imports>"
"""The module of :data:`OWN`."""
Lack = tuple[str, str | None, str]
"""A module, the name that it lacks, None if it is lacking itself, and the wheel that would have it, or ''."""


class _Owned(NamedTuple):
    """A module of the set. ``wheel`` is None where several have it."""

    wheel: str | None
    path: str | None
    package: bool


@dataclass(frozen=True)
class Executed:
    """The imports, and the lacks, of one module when it is executed."""

    executed: list[str] = field(default_factory=list)
    lacks: list[Missing] = field(default_factory=list)
    tried: list[Guard] = field(default_factory=list)
    """Each ``try`` whose imports nothing is lacking to by themselves."""


@dataclass
class ImportSet:
    """Wheels of one environment. ``read`` gives a module of a wheel, None for one that was not read."""

    wheels: Sequence[WheelFiles]
    read: Callable[[str, str], ModuleNames | None]
    python: int
    """The minor release of Python 3."""
    mentions: Callable[[str, str], bool | None]
    """Whether a word is anywhere in a wheel's sources; None if they were not read."""
    brings: Callable[[str, Sequence[Lack]], Sequence[bool | None]]
    """Whether a wheel's sources may add each of these to the module of another place."""
    whole: bool = False
    """Whether nothing else can be imported, but for Python's own modules."""
    compiled: Callable[[str, str, str], bool | None] = lambda *_: None
    """Whether a compiled module of a wheel has a name; None if nobody knows."""
    library: Callable[[str], bool | None] = lambda _: None
    """Whether a library that is opened by a name is there; None if nobody knows."""
    _modules: dict[str, _Owned] = field(default_factory=dict)
    _folders: dict[str, set[str]] = field(default_factory=dict)
    _outcomes: dict[str, Executed] = field(default_factory=dict)
    _followed: set[tuple[str, str]] = field(default_factory=set)
    """Functions, whose calls are followed once."""

    def __post_init__(self) -> None:
        for wheel in self.wheels:
            for name, path in wheel.modules.items():
                if name.partition(".")[0] in OF_PYTHON and python_names.lacks(name, self.python) is None:
                    continue  # Python's own comes first
                other = self._modules.get(name)
                owner = wheel.name if other is None else None
                self._modules[name] = _Owned(owner, path, name in wheel.packages)
                parent = name.rpartition(".")[0]
                while parent and wheel.name not in (known := self._folders.setdefault(parent, set())):
                    known.add(wheel.name)
                    parent = parent.rpartition(".")[0]
            for name in wheel.folders:
                self._folders.setdefault(name, set()).add(wheel.name)

    def there(self, module: str) -> bool:
        return module in self._modules or module in self._folders

    def namespace(self, module: str) -> frozenset[str]:
        """The wheels of a module that is nothing but the modules below it; empty if it may have other names.

        A folder of several wheels without a source of its own: https://peps.python.org/pep-0420/
        """
        known = self._folders.get(module, set()) if self.whole and module not in self._modules else set()
        return frozenset(known)

    def names(self, module: str) -> ModuleNames | None:
        """The names of a module; None if no source says them."""
        found = self._modules.get(module)
        if found is None or found.wheel is None or found.path is None:
            return None
        return self.read(found.wheel, module)

    def owner(self, module: str) -> str | None:
        """The wheel that has a module."""
        found = self._modules.get(module)
        return found.wheel if found is not None else None

    def has(self, module: str, name: str, seen: frozenset[tuple[str, str]] = frozenset()) -> bool | None:
        """Whether ``from module import name`` finds something; None if nobody knows."""
        if name in _OF_EACH_MODULE or self.there(f"{module}.{name}"):
            return True
        found = self.names(module)
        if found is None or len(seen) > _DEEPEST:
            return False if self.namespace(module) else None
        if name in found.names:
            return True
        if self.says_gone(module, name):
            return False
        made = self._made(found, module, name)
        if made is not False:
            return made
        if found.lazy and not found.anything:
            owner = self.owner(module)
            answer = self.mentions(owner, name) if owner is not None else None
        elif found.anything or found.submodules:
            answer = None
        else:
            inner = seen | {(module, name)}
            stars = (star for star in found.stars if (star, name) not in inner)
            answers = [self._by_star(star, name, inner) for star in stars]
            answer = True if True in answers else None if None in answers else False
        return None if answer and found.lazy else answer

    def _made(self, found: ModuleNames, module: str, name: str) -> bool | None:
        """Whether another module's function, which made ``__getattr__``, lets it give a name."""
        for of, maker in found.makers:
            other = self.names(of)
            if other is None or maker not in other.tables:
                return None
            if f"{module}:{name}" in other.tables[maker]:
                return True
        return False

    def says_gone(self, module: str, name: str) -> bool:
        """Whether a module says itself that it has a name no more."""
        found = self.names(module)
        if found is None:
            return False
        others = [(self.names(of), table, name) for of, table in found.gone_tables]
        others += [(self.names(of), f"{maker}:gone", f"{module}:{name}") for of, maker in found.makers]
        return name in found.gone or any(
            text in other.tables.get(table, ()) for other, table, text in others if other is not None
        )

    def _by_star(self, module: str, name: str, seen: frozenset[tuple[str, str]]) -> bool | None:
        """Whether ``from module import *`` may give a name."""
        found = self.names(module)
        if found is not None and found.public is not None and not found.anything:
            return name in found.public
        return self.has(module, name, seen)

    def giver(self, module: str, name: str | None) -> str | None:
        """The distribution that would have what is lacking, '' if none would; None if several have it."""
        if module.partition(".")[0] in OF_PYTHON and not self.there(module):
            return PYTHON
        above = module if name is not None else module.rpartition(".")[0]
        return "" if not above or self.namespace(above) else self.owner(above)

    def path(self, module: str) -> str:
        found = self._modules.get(module)
        return (found.path if found is not None else None) or module

    def lacks_module(self, module: str) -> str | None:
        """The part of a module's name that is certainly not there."""
        parts = module.split(".")
        if not self.there(parts[0]):
            if parts[0] in OF_PYTHON:
                return self._not_in_python(module)
            return parts[0] if self.whole and not parts[0].startswith("_") else None
        for number in range(2, len(parts) + 1):
            part = ".".join(parts[:number])
            if self.there(part):
                continue
            above = part.rpartition(".")[0]
            found = self.names(above)
            if self.namespace(above):
                return part
            return part if found is not None and not found.submodules else None
        return None

    def unfound(self, module: str) -> str | None:
        """The module whose own importer would find this one, if this Python does not ask it."""
        parts = module.split(".")
        for number in range(1, len(parts)):
            above, part = ".".join(parts[:number]), ".".join(parts[: number + 1])
            if not self.there(part):
                found = self.names(above)
                return above if found is not None and found.unfound >> self.python & 1 else None
        return None

    def unsaid(self, module: str, name: str, taker: str) -> bool:
        """Whether nothing in a wheel says a name that a module of it may put together, or has compiled."""
        found, owner = self.names(module), self.owner(module)
        if found is None and owner is not None and owner != self.owner(taker) and self.is_compiled(module):
            open_ = name in _OF_EACH_MODULE or self.there(f"{module}.{name}")
            return not open_ and self.compiled(owner, module, name) is False
        if found is None or owner is None or not found.anything or self.there(f"{module}.{name}"):
            return False
        if name in found.names or name in _OF_EACH_MODULE or self.mentions(owner, name) is not False:
            return False
        return all(self._by_star(star, name, frozenset({(module, name)})) is False for star in found.stars)

    def is_compiled(self, module: str) -> bool:
        return module in self._modules and self._modules[module].path is None

    def _not_in_python(self, module: str) -> str | None:
        """The part of a module of the standard library that this Python lacks, and nothing brings."""
        part = python_names.lacks(module, self.python)
        if part is None or (part == "distutils" and self.there("_distutils_hack")):
            return None  # setuptools puts its own in that place when the interpreter starts
        return part if self.whole else None

    def target(self, module: str, name: str, seen: frozenset[tuple[str, str]] = frozenset()) -> str | None:
        """The module that ``module.name`` certainly is; None if it is another thing, or nobody knows."""
        found = self.names(module)
        if found is None or len(seen) > _DEEPEST or (module, name) in seen:
            return None
        if name not in found.names:
            there = self.there(f"{module}.{name}")
            return f"{module}.{name}" if there and not found.stars else None
        if name not in found.bound:
            return None
        source, inner = found.bound[name]
        if inner is None:
            return source if self.there(source) else None
        if (source, inner) == (module, name):
            return f"{module}.{name}" if self.there(f"{module}.{name}") else None
        return self.target(source, inner, seen | {(module, name)})

    def entered(self, module: str) -> list[str]:
        """What whoever uses a module imports: of one that has nothing, the only one below it, ``api``, or the
        one with its own name, as ``pyzbar.pyzbar``."""
        found, owner = self.names(module), self.owner(module)
        if found is None or found.executed or found.stars or found.anything:
            return [module]
        if any(not name.startswith("_") for name in found.names):
            return [module]
        every = [name for name, one in self._modules.items() if one.wheel == owner]
        below = [name for name in every if name.rpartition(".")[0] == module]
        below = [
            one for one in below if not re.search(r"\._\w*$", one) and one.rpartition(".")[2] not in _NO_ROOTS
        ]
        own = module.rpartition(".")[2]
        named = [name for name in below if name.rpartition(".")[2] in {"api", own}] or below
        return [module, *(self.entered(named[0]) if len(named) == 1 else ())]

    def outcome(self, module: str) -> Executed:
        """The modules that a module executes, and the names that it lacks then."""
        if module not in self._outcomes:
            found = self.names(module)
            outcome = Executed()
            if found is not None and self.owner(module) is not None:
                self._take(module, found, found.executed, outcome)
                if found.generated is not None and self.refuses(found.generated):
                    text = ".".join(map(str, found.generated))
                    outcome.lacks.append(Missing(module, 1, *_PROTOBUF, generated=text))
            self._outcomes[module] = outcome
        return self._outcomes[module]

    def wheel(self, distribution: str) -> WheelFiles | None:
        return next((one for one in self.wheels if one.name == distribution), None)

    def refuses(self, generated: tuple[int, int, int]) -> bool:
        """Whether the protobuf of the set ends the import of code that another one made.

        From 4.21 on its compiled half makes no descriptors for protoc before 3.19
        (https://protobuf.dev/news/2022-05-06/), and from 5.26 on it takes none of a newer protoc
        (``google/protobuf/runtime_version.py``, of 7.36.2, too, which takes code of each older one).
        """
        wheel = self.wheel("protobuf")
        release = re.match(r"(\d+)\.(\d+)\.(\d+)", wheel.version) if wheel is not None else None
        if release is None or not self.there(_PROTOBUF[0]):
            return False
        own = int(release[1]), int(release[2]), int(release[3])
        if generated == BY_OLD_PROTOC:
            return own >= (4, 21, 0) and self.there("google._upb._message")
        if not self.there("google.protobuf.runtime_version"):
            return False  # the import of that fails before
        return own < generated

    def refused_code(self, distribution: str) -> str | None:
        """One of the modules of a distribution that protobuf generated, if the one of the set refuses all.

        Modules outside of the package that has the distribution's name do not count: torch brings caffe2.
        One module alone is no protocol that the distribution speaks; where it is imported, that is told.
        """
        wheel = self.wheel(distribution)
        if wheel is None or not self.there(_PROTOBUF[0]):
            return None
        own = distribution.replace("-", "_")
        has_own = any(module.partition(".")[0] == own for module in wheel.modules)
        refused: list[str] = []
        for module in sorted(wheel.modules):
            # beside ``x_pb2`` may stand ``x_pb2_new``, which is taken with a newer protobuf
            if not re.search(r"_pb2(_(?!grpc)\w+)?$", module) or _NO_ROOTS & set(module.split(".")):
                continue
            if has_own and module.partition(".")[0] != own:
                continue
            found = self.names(module)
            if found is None or found.generated is None or not self.refuses(found.generated):
                return None
            refused.append(module)
        return refused[0] if len(refused) > 1 else None

    def _take(
        self, module: str, found: ModuleNames, effects: Effects, outcome: Executed, depth: int = 0
    ) -> None:
        bit = 1 << self.python
        for one in effects.taken:
            if one.pythons & bit:
                self._take_one(module, one, outcome)
        for use in effects.used:
            if use.pythons & bit and (lack := self._attribute(module, found, use.alias, use.chain)):
                at, name, doubt = lack
                outcome.lacks.append(Missing(module, use.line, at, name, used=True, doubt=doubt))
        for call in effects.called:
            if call.pythons & bit:
                self._call(module, found, call, outcome, depth)
        for end in effects.ends:
            if end.pythons & bit and (ended := self._ends(module, found, end)):
                outcome.lacks.append(ended)
        for branch in effects.branches:
            self._branched(module, found, branch, outcome, depth)
        for guard in effects.guards:
            self._guarded(module, found, guard, outcome, depth)

    def _branched(
        self, module: str, found: ModuleNames, branch: DecidedTest, outcome: Executed, depth: int
    ) -> None:
        """Take the branch of a test that the set decides."""
        answer = self._answer(found, branch.test)
        if answer is None:
            return
        inner = Executed()
        self._take(module, found, branch.true if answer else branch.false, inner, depth)
        outcome.executed.extend(inner.executed)
        giver, library = self._decides(found, branch.test)
        for one in inner.lacks:
            ours = bool(one.ends) and one.giver == self.owner(module)
            text = _opens(library) if library else one.ends
            outcome.lacks.append(replace(one, giver=giver, ends=text, library=library) if ours else one)

    def _guarded(self, module: str, found: ModuleNames, guard: Guard, outcome: Executed, depth: int) -> None:
        """Take a ``try``. If the first handler certainly gets an exception of the block, it is executed."""
        trial, inner = Executed(), Executed()
        self._take(module, found, guard.trial, trial, depth)
        outcome.executed.extend(trial.executed)
        outcome.lacks.extend(one for one in trial.lacks if not one.ends)
        ended = next((one for one in trial.lacks if one.ends), None)
        bit = 1 << self.python
        why = [failed for one in guard.tried if one.pythons & bit and (failed := self.fails(one))]
        if ended is not None and not why:
            answers = [catches(kinds, ended.error) for kinds in guard.kinds]
            if all(answer is False for answer in answers):
                outcome.lacks.append(ended)
            if answers[0] is not True:
                return
        elif not why:
            outcome.tried.append(guard)
            return
        self._take(module, found, guard.instead, inner, depth)
        outcome.executed.extend(inner.executed)
        for one in inner.lacks:
            if why:
                outcome.lacks.append(replace(one, because=(why[0], *one.because)))
            else:
                outcome.lacks.append(ended if one.ends and ended is not None else one)

    def _ends(self, module: str, found: ModuleNames, end: Ends) -> Missing | None:
        """The end of the import by a statement, if it raises beside the wheels of the set."""
        own = self.owner(module) or ""
        text, giver, library = end.about[0] if end.about else "", own, ""
        match end.kind:
            case "python":
                giver = PYTHON
            case "raise":
                said = f" ({text})" if text else ""
                text = f"raises {end.error or 'an error'}{said} when it is imported"
            case "pydantic":
                if not self._is_of_pydantic(found, end.about[1:]):
                    return None
                text, giver = f"{text}, which pydantic 2 refuses", "pydantic"
            case "dataclass" | "subclass":
                if not (text := self._refused_class(module, found, end)):
                    return None
                giver = PYTHON
            case "library":
                if (lacked := self.lacks_library(end.about)) is None:
                    return None
                text, giver, library = _opens(lacked), "", lacked
            case "installed":
                if (lacking := self._not_installed(text)) is None:
                    return None
                text, giver = lacking
            case _:
                return None
        return Missing(
            module, end.line, module, None, ends=text, error=end.error, library=library, giver=giver
        )

    def _refused_class(self, module: str, found: ModuleNames, end: Ends) -> str:
        """The text for the user about a class that this Python refuses; empty if it does not."""
        at = self._defined(module, found, end.about[1:])
        of = self.names(at[0]) if at is not None else None
        if at is None:
            return ""
        if end.kind == "subclass":
            strict = of is not None and at[1] in of.strict
            return (
                f"makes a class of {at[1]}, which refuses what Python 3.13 gives each class" if strict else ""
            )
        if not self._has_no_hash(*at):
            return ""
        return (
            f"gives the field {end.about[0]} of a dataclass a default without a hash, which Python 3.11 and"
            " newer refuse"
        )

    def lacks_library(self, names: Iterable[str]) -> str | None:
        """One of several names of a library, if none of them is that of one that is there."""
        known = {name: self.library(name) for name in names}
        if True in known.values():
            return None
        return next((name for name, there in known.items() if there is False), None)

    def _not_installed(self, text: str) -> tuple[str, str] | None:
        """(text for the user, distribution at fault) if the set does not meet a requirement."""
        asked = requirement(text)
        if asked is None:
            return None
        name = canonical(asked.name)
        wheel = self.wheel(name)
        if wheel is None:
            said = f"asks for the metadata of {name}, which is not in the lock"
            return (said, "") if self.whole else None
        if asked.specifier.contains(wheel.version, prereleases=True):
            return None
        return f"demands {text} when it is imported", name

    def _answer(self, found: ModuleNames, test: Expression) -> bool | None:
        """Whether a test holds in this set; None if nobody knows."""

        def leaf(expression: Expression) -> str | Version | None:
            kind, *names = expression
            if kind == "library" and self.library(names[0]) is False:
                return None
            wheel = self.wheel(canonical(names[0])) if kind == "installed" else None
            text = self._version(found, names) if kind == "of" else wheel.version if wheel else None
            if text is None:
                raise UnknownValueError
            return text

        try:
            return bool(value(test, leaf))
        except UnknownValueError:
            return None

    def _decides(self, found: ModuleNames, test: Expression) -> tuple[str, str]:
        """The distribution whose release decides a test, or the library that does."""
        kind, name, *_ = next(leaves(test))
        if kind == "library":
            return "", name
        if kind == "installed":
            return canonical(name), ""
        return (self.owner(found.bound[name][0]) or "") if name in found.bound else "", ""

    def _version(self, found: ModuleNames, chain: Sequence[str]) -> str | Version | None:
        """The text that ``alias.__version__`` is; a version if nobody knows how the module tells its own."""
        if chain[0] not in found.bound:
            return None
        source, inner = found.bound[chain[0]]
        at: str | None = source
        names = [*([inner] if inner else []), *chain[1:]]
        for name in names[:-1]:
            at = self.target(at, name) if at is not None else None
        return self._text(at, names[-1]) if at is not None and names else None

    def _text(self, module: str, name: str, depth: int = 0) -> str | Version | None:
        found, wheel = self.names(module), self.wheel(self.owner(module) or "")
        if found is None or wheel is None or depth > _DEEPEST:
            return None
        if name in found.versions:
            return found.versions[name]
        source, inner = found.bound.get(name, ("", None))
        if inner is not None and (source, inner) != (module, name):
            text = self._text(source, inner, depth + 1)
            if text is not None:
                return text
        elif name not in found.names:
            every = (self._text(star, name, depth + 1) for star in found.stars)
            return next((text for text in every if text is not None), None)
        named = "." not in module and (_plain(module) == _plain(wheel.name) or wheel.roots == (module,))
        return _released(wheel) if named and name == "__version__" and name in found.names else None

    def _is_of_pydantic(self, found: ModuleNames, chain: Sequence[str]) -> bool:
        """Whether a name is pydantic's own, of release 2, and none of the old ones that it keeps."""
        wheel = self.wheel("pydantic")
        if wheel is None or not re.match(r"[2-9]\.", wheel.version):
            return False
        at = self._origin(found, chain)
        return at is not None and self.owner(at) == "pydantic" and not at.startswith("pydantic.v1")

    def _origin(self, found: ModuleNames, chain: Sequence[str]) -> str | None:
        """The module of the first other wheel that a name is certainly taken from."""
        for _ in range(_DEEPEST):
            if chain[0] not in found.bound:
                return None
            source, inner = found.bound[chain[0]]
            other = self.names(source)
            if self.owner(source) == "pydantic" or inner is None or other is None:
                return source
            found, chain = other, (inner,)
        return None

    def _defined(self, module: str, found: ModuleNames, chain: Sequence[str]) -> tuple[str, str] | None:
        """The module that defines what ``first.second`` is, and its name there."""
        at, names = module, list(chain)
        for _ in range(_DEEPEST):
            if names[0] not in found.bound:
                return (at, names[0]) if len(names) == 1 and names[0] in found.names else None
            at, inner = found.bound[names[0]]
            names = [*([inner] if inner is not None else []), *names[1:]]
            other = self.names(at)
            if at.partition(".")[0] == "numpy" or other is None or not names:
                return (at, names[-1]) if names else None
            found = other
        return None

    def _has_no_hash(self, module: str, name: str) -> bool:
        if self.owner(module) == "numpy":
            return name in _MAKE_ARRAYS
        found = self.names(module)
        return found is not None and name in found.hashless

    def fails(self, one: Taken) -> tuple[str, str | None] | None:
        """The lack that certainly ends an import: a module, and None or a name of it; else None."""
        absent = self.lacks_module(one.module)
        if absent is not None:
            return absent, None
        if one.name is None or one.name == "*":
            return None
        if one.module.partition(".")[0] in OF_PYTHON and not self.there(one.module):
            gone = python_names.lacks_name(one.module, one.name, self.python)
            return (one.module, one.name) if gone else None
        if not self.there(f"{one.module}.{one.name}") and self.has(one.module, one.name) is False:
            return one.module, one.name
        return None

    def executes(self, one: Taken) -> list[str]:
        """The modules that an import executes to which nothing is lacking."""
        outcome = Executed()
        self._take_one(one.module, one, outcome)
        return outcome.executed

    def _take_one(self, module: str, one: Taken, outcome: Executed) -> None:
        if (finder := self.unfound(one.module)) is not None:
            text = f"imports {one.module}, for which {finder} has an importer that this Python does not ask"
            giver = self.owner(finder) if self.owner(finder) != self.owner(module) else PYTHON
            error = "ModuleNotFoundError"
            outcome.lacks.append(
                Missing(module, one.line, module, None, ends=text, error=error, giver=giver or "")
            )
            return
        lack = self.fails(one)
        if lack is not None:
            outcome.lacks.append(Missing(module, one.line, *lack))
            if lack[1] is None:
                return
        elif one.name is not None and one.name != "*" and self.unsaid(one.module, one.name, module):
            outcome.lacks.append(Missing(module, one.line, one.module, one.name, doubt=True))
        outcome.executed.append(one.module)
        if one.name is None or one.name == "*" or lack is not None:
            return
        given, inner = self.names(one.module), f"{one.module}.{one.name}"
        itself = given is not None and given.bound.get(one.name) == (one.module, one.name)
        if given is not None and one.name in given.names and not itself:
            return
        if self.there(inner) and (given is None or itself or not given.stars):
            outcome.executed.append(inner)

    def _call(self, module: str, found: ModuleNames, call: Called, outcome: Executed, depth: int) -> None:
        """Go where a call goes: what its arguments are there, and what the function executes."""
        at = self._called(module, found, call.chain)
        if at is None:
            return
        there, name = at
        of = self.names(there)
        if of is None:
            return
        if self.owner(there) != self.owner(module) and (wrong := _wrong(of, name, call)):
            outcome.lacks.append(Missing(module, call.line, there, name, used=True, argument=wrong))
            return
        if name in of.functions and (there, name) not in self._followed and depth < _MOST_CALLS:
            self._followed.add((there, name))
            self._take(there, of, of.functions[name], outcome, depth + 1)

    def _called(self, module: str, found: ModuleNames, chain: tuple[str, ...]) -> tuple[str, str] | None:
        """The module and the name in it of what is called, as far as that is certain."""
        if len(chain) == 1 and chain[0] not in found.bound:
            return (module, chain[0]) if chain[0] in found.functions or not found.anything else None
        source, inner = found.bound[chain[0]]
        at: str | None = source
        names = chain[1:] if inner is None else (inner, *chain[1:])
        for name in names[:-1]:
            at = self.target(at, name) if at is not None else None
        if at is None or not names:
            return None
        return self.origin(at, names[-1])

    def origin(self, module: str, name: str, depth: int = 0) -> tuple[str, str] | None:
        """The module that a name of another one comes from."""
        found = self.names(module)
        if found is None or found.anything or depth > _DEEPEST or self.owner(module) is None:
            return None
        if name in found.signatures or name in found.functions:
            return module, name
        if name not in found.bound:
            every = (*found.stars, *found.hidden)
            stars = [at for star in every if (at := self.origin(star, name, depth + 1))]
            return stars[0] if len(stars) == 1 else None
        source, inner = found.bound[name]
        return self.origin(source, inner, depth + 1) if inner is not None else None

    def _attribute(
        self, module: str, found: ModuleNames, alias: str, chain: tuple[str, ...]
    ) -> tuple[str, str, bool] | None:
        """The first part of ``alias.first.second`` that a module lacks, and whether that is in doubt."""
        source, inner = found.bound[alias]
        if source.partition(".")[0] in OF_PYTHON and not self.there(source):
            gone = inner is None and python_names.lacks_name(source, chain[0], self.python)
            return (source, chain[0], False) if gone else None
        at = source if inner is None else self.target(source, inner)
        for name in chain:
            if at is None or not self.there(at):
                return None
            if self.has(at, name) is False:
                return at, name, False
            if self.unsaid(at, name, module):
                return at, name, True
            at = self.target(at, name)
        return None


def _opens(library: str) -> str:
    return f"opens the library {library.removesuffix('*')}, which nothing in the lock brings"


def _released(wheel: WheelFiles) -> Version | None:
    try:
        return Version(wheel.version)
    except InvalidVersion:
        return None


def _wrong(of: ModuleNames, name: str, call: Called) -> str:
    """An argument that a call gives, and that the function does not take; empty without one."""
    signature = of.signatures.get(name)
    if signature is None or signature.any_keywords:
        return ""
    return next((word for word in call.keywords if word not in signature.names), "")


def missing(
    every: ImportSet,
    roots: Mapping[str, Iterable[str]],
    beside: Mapping[str, Iterable[str]] | None = None,
) -> Iterator[Missing]:
    """What imports of ``roots``, modules by distribution, certainly lack; the first for each two wheels.

    After them those of ``beside``, whose failure is ``aside``: what no wheel brings may be an extra's there.
    """
    walk = _Walk(every)
    found = list(walk.run(roots))
    found += (
        replace(one, aside=True)
        for one in walk.run(beside or {})
        if (one.giver or one.ends) and not one.because
        if not (one.ends and one.giver == one.taker)  # a module that is there to say that it is gone
    )
    lacks = list(dict.fromkeys(lack for one in found for lack in _lacks(every, one)))
    givers = {lack[2] for lack in lacks}
    others = (wheel for wheel in every.wheels if wheel.name not in _PROGRAMS)
    for wheel in sorted(others, key=lambda one: one.name not in givers):  # what they may add is most
        answers = every.brings(wheel.name, lacks) if lacks else ()
        said = (lack[1] and wheel.name == lack[2] and every.says_gone(lack[0], lack[1]) for lack in lacks)
        rows = zip(lacks, answers, said, strict=True)
        lacks = [lack for lack, brought, gone in rows if brought is False or gone]
    left = set(lacks)
    aside = {one.root for one in found if one.aside and left.issuperset(_lacks(every, one))}
    most = {root: _most(every, root, left) for root in aside}
    pairs = set[tuple[str, ...]]()
    for one in found:
        pair = (one.taker, one.giver, *([one.lacked] if one.taker == OWN else []))
        if left.issuperset(_lacks(every, one)) and pair not in pairs:
            pairs.add(pair)
            share = most.get(one.root, "") if one.aside else ""
            yield replace(one, aside=one.aside and not share, most=share)


def _most(every: ImportSet, distribution: str, left: set[Lack]) -> str:
    """How many modules of a distribution cannot be imported, if these are most: whoever imports the package
    alone has nothing of it then. What an extra would bring does not count, nor do its tests."""
    wheel = every.wheel(distribution)
    if wheel is None or len(wheel.modules) > _MOST_COUNTED:
        return ""
    mine = {name for name in wheel.modules if name not in wheel.roots and not _IS_INNER.search(name)}
    mine = {name for name in mine if (found := every.names(name)) is None or found.names or found.executed}
    above: dict[str, set[str]] = {}
    queue, seen, failing = deque(mine), set(mine), deque[str]()
    while queue:
        module = queue.popleft()
        outcome = every.outcome(module)
        owner = every.owner(module)
        if owner is not None and any(_ends_it(every, one, owner, left) for one in outcome.lacks):
            failing.append(module)
        parts = module.split(".")
        inner = [".".join(parts[:number]) for number in range(1, len(parts))]
        for other in (*inner, *outcome.executed):
            above.setdefault(other, set()).add(module)
            if other not in seen and every.there(other):
                seen.add(other)
                queue.append(other)
    ended = set(failing)
    while failing:
        for module in above.get(failing.popleft(), ()):
            if module not in ended:
                ended.add(module)
                failing.append(module)
    count = len(ended & mine)
    return f"{count} of {len(mine)}" if 2 * count > len(mine) else ""


def _ends_it(every: ImportSet, one: Missing, owner: str, left: set[Lack]) -> bool:
    """Whether a lack of a module ends its import for certain, and no extra would bring what is lacking."""
    giver = one.giver if one.ends else every.giver(one.module, one.name)
    known = bool(giver) and giver != owner and not one.because and not one.doubt
    return known and (bool(one.ends) or (one.module, one.name, giver) in left)


def _lacks(every: ImportSet, one: Missing) -> Iterator[Lack]:
    """All names that have to be lacking, so that an import ends with it."""
    if not one.ends:
        yield one.module, one.name, one.giver
    for module, name in one.because:
        yield module, name, every.giver(module, name) or ""


def _error(one: Missing) -> str:
    """The exception that an import ends with; empty if nobody knows."""
    if one.ends:
        return one.error
    return "TypeError" if one.argument else "AttributeError" if one.used else ""


def _is_no_import(one: Missing) -> bool:
    return bool(_error(one)) and catches(("ImportError",), _error(one)) is False and not one.because


class _Walk:
    """The modules that imports execute, one after the other, each once."""

    def __init__(self, every: ImportSet) -> None:
        self.every = every
        self.by: dict[str, str | None] = {}
        self.roots: dict[str, str] = {}
        self.queue: deque[str] = deque()
        self.pairs: Counter[tuple[str, str]] = Counter()
        self.tried = 0
        """Modules that imports of a ``try`` came to."""

    def run(self, roots: Mapping[str, Iterable[str]]) -> Iterator[Missing]:
        for root, modules in roots.items():
            for module in modules:
                self.execute(module, None, root)
            while self.queue and len(self.by) < _MOST_MODULES:
                module = self.queue.popleft()
                outcome = self.every.outcome(module)
                for other in outcome.executed:
                    self.execute(other, module, root)
                yield from self.lacking(module, outcome)
                yield from self.opening(module)
            if (code := self.every.refused_code(root)) is not None and code not in self.by:
                self.by[code], self.roots[code] = None, root
                yield from self.lacking(code, self.every.outcome(code))
        for module in tuple(self.by) if self.every.whole else ():
            for guard in self.every.outcome(module).tried:
                yield from self.trying(module, guard)

    def trying(self, module: str, guard: Guard) -> Iterator[Missing]:
        """What ends the imports of a ``try`` by another exception than its handlers get.

        Nothing if an ImportError may come before it, of which the handlers are.
        """
        inner, root = _Walk(self.every), self.roots[module]
        inner.by, inner.roots = dict(self.by), dict(self.roots)
        for one in guard.tried:
            if one.pythons >> self.every.python & 1:
                own = f"{module}.{one.name}" if one.module == module else ""  # bound by the handler alone
                for other in (*self.every.executes(one), own):
                    inner.execute(other, module, root)
        found: list[Missing] = []
        while inner.queue:
            at = inner.queue.popleft()
            self.tried += 1
            names, outcome = self.every.names(at), self.every.outcome(at)
            raises = names is not None and (names.raises or names.opens)
            if raises or self.tried > _MOST_TRIED or not all(map(_is_no_import, outcome.lacks)):
                return
            for other in outcome.executed:
                inner.execute(other, at, root)
            found += inner.lacking(at, outcome)
        yield from (one for one in found if lets_out(guard.kinds, _error(one)))

    def lacking(self, module: str, outcome: "Executed") -> Iterator[Missing]:
        for one in outcome.lacks:
            taker = self.every.owner(one.taking)
            giver = one.giver if one.ends else self.every.giver(one.module, one.name)
            if taker is None or giver is None or (giver == taker and not one.ends):
                continue
            self.pairs[taker, giver] += 1
            if self.pairs[taker, giver] <= _MOST_OF_PAIR or taker == OWN:
                path, chain = self.every.path(one.taking), self.chain(module)
                yield replace(one, root=self.roots[module], taker=taker, path=path, giver=giver, chain=chain)

    def opening(self, module: str) -> Iterator[Missing]:
        """Libraries that a module names to open them, if none of these is there."""
        names, taker = self.every.names(module), self.every.owner(module)
        lacked = self.every.lacks_library(names.opens) if names is not None and names.opens else None
        if lacked is not None and taker is not None:
            named = lacked.removesuffix("*")
            text = f"names the library {named} to open it, which nothing in the lock brings"
            yield Missing(
                module,
                1,
                module,
                None,
                ends=text,
                library=lacked,
                doubt=True,
                root=self.roots[module],
                taker=taker,
                path=self.every.path(module),
                chain=self.chain(module),
            )

    def execute(self, module: str, by: str | None, root: str) -> None:
        """A module is executed after all that it lies in."""
        parts = module.split(".")
        for number in range(1, len(parts) + 1):
            part = ".".join(parts[:number])
            if part not in self.by and self.every.there(part):
                self.by[part] = by
                self.roots[part] = root
                self.queue.append(part)

    def chain(self, module: str) -> tuple[str, ...]:
        found, at = list[str](), self.by.get(module)
        while at is not None and len(found) < _DEEPEST:
            found.append(at)
            at = self.by.get(at)
        return tuple(reversed(found))
