"""The proof by imports: what an import takes from other wheels of a set, held against what they have.

It follows what is certainly executed, and a name is missing only where nothing can bring it. Whatever is not
decided is no finding.
"""

import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from builder.core.module_names import OF_PYTHON, ModuleNames, Taken

_DEEPEST = 40
_MOST_OF_PAIR = 8
_SOURCE = re.compile(r"(?:[^/]+\.data/(?:pure|plat)lib/)?(?P<module>(?:\w+/)*\w+)\.py")
_COMPILED = re.compile(r"(?:[^/]+\.data/(?:pure|plat)lib/)?(?P<module>(?:\w+/)*\w+)(?:\.[\w-]+)*\.(?:so|pyc)")
_FOLDER = re.compile(r"(?:[^/]+\.data/(?:pure|plat)lib/)?(?P<module>(?:\w+/)*\w+)/[^/]*")
_MOST_MODULES = 40_000


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
    def label(self) -> str:
        return f"{self.name} {self.version}".rstrip()

    @property
    def roots(self) -> tuple[str, ...]:
        """The modules that a user of the package imports, as far as the names tell."""
        tops = [name for name in self.modules if "." not in name and not name.startswith("_")]
        tops = [name for name in tops if name not in _NO_ROOTS]
        named = [one for one in tops if _plain(one) == _plain(self.name)]
        return tuple(named or (tops if len(tops) == 1 else ()))


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
    """The modules among a wheel's files."""
    modules: dict[str, str | None] = {}
    packages, folders = set[str](), set[str]()
    for whole in paths:
        path = whole.rpartition("/site-packages/")[2]
        if found := _FOLDER.fullmatch(path):
            folders.add(found["module"].replace("/", "."))
        found = _SOURCE.fullmatch(path) or _COMPILED.fullmatch(path)
        if found is None or "__pycache__" in path:
            continue
        module = found["module"].replace("/", ".")
        if module.endswith(".__init__"):
            module = module.removesuffix(".__init__")
            packages.add(module)
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


@dataclass(frozen=True, kw_only=True)
class Missing:
    """What an import of ``root`` ends with."""

    root: str
    """The distribution whose import comes there, the first one of several."""
    taker: str
    """The distribution whose module takes what is missing."""
    path: str
    line: int
    giver: str
    """The distribution that lacks it; empty if no distribution has a module of that name."""
    module: str
    name: str | None
    """None where the module itself is missing."""
    used: bool = False
    """Whether it is an attribute that is evaluated, and no import statement."""
    chain: tuple[str, ...] = ()
    """Modules on the way from the outermost one to the one that takes it."""
    older: str = ""
    """The newest older release of ``giver`` that has it, if somebody looked."""

    @property
    def lacked(self) -> str:
        return self.module if self.name is None else f"{self.module}.{self.name}"


Lack = tuple[str, str | None, str]
"""A module, the name that it lacks, None if it is lacking itself, and the wheel that would have it, or ''."""


@dataclass(frozen=True)
class _Owned:
    """A module of the set. ``wheel`` is None where several have it."""

    wheel: str | None
    path: str | None
    package: bool


@dataclass(frozen=True)
class Executed:
    """What one module does when it is executed."""

    executed: list[str] = field(default_factory=list)
    lacks: list[tuple[int, str, str | None, bool]] = field(default_factory=list)
    """(line, module, name, used)"""


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
    _modules: dict[str, _Owned] = field(default_factory=dict)
    _folders: dict[str, set[str]] = field(default_factory=dict)
    _inner: set[str] = field(default_factory=set)
    """Names of modules below others: a path of a wheel's own may make them outermost ones."""
    _outcomes: dict[str, Executed] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for wheel in self.wheels:
            for name in (*wheel.modules, *wheel.folders):
                self._inner.update(name.split(".")[1:])
            for name, path in wheel.modules.items():
                if name.partition(".")[0] in OF_PYTHON:
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

    def names(self, module: str) -> ModuleNames | None:
        """What is in a module; None for what no source says."""
        found = self._modules.get(module)
        if found is None or found.wheel is None or found.path is None:
            return None
        return self.read(found.wheel, module)

    def owner(self, module: str) -> str | None:
        """The one wheel that has a module."""
        found = self._modules.get(module)
        return found.wheel if found is not None else None

    def has(self, module: str, name: str, seen: frozenset[tuple[str, str]] = frozenset()) -> bool | None:
        """Whether ``from module import name`` finds something; None if nobody knows."""
        if name.startswith("__") or self.there(f"{module}.{name}"):
            return True
        found = self.names(module)
        if found is None or len(seen) > _DEEPEST:
            return None
        if name in found.names:
            return True
        if self.says_gone(module, name):
            return False
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

    def says_gone(self, module: str, name: str) -> bool:
        """Whether a module says itself that it has a name no more."""
        found = self.names(module)
        if found is None:
            return False
        others = ((self.names(of), table) for of, table in found.gone_tables)
        return name in found.gone or any(
            name in other.tables.get(table, ()) for other, table in others if other is not None
        )

    def _by_star(self, module: str, name: str, seen: frozenset[tuple[str, str]]) -> bool | None:
        """Whether ``from module import *`` may give a name."""
        found = self.names(module)
        if found is not None and found.public is not None and not found.anything:
            return name in found.public
        return self.has(module, name, seen)

    def path(self, module: str) -> str:
        found = self._modules.get(module)
        return (found.path if found is not None else None) or module

    def lacks_module(self, module: str) -> str | None:
        """The part of a module's name that is certainly not there."""
        parts = module.split(".")
        if not self.there(parts[0]):
            known = parts[0] in OF_PYTHON or parts[0] in self._inner or parts[0].startswith("_")
            return parts[0] if self.whole and not known else None
        for number in range(2, len(parts) + 1):
            part = ".".join(parts[:number])
            if self.there(part):
                continue
            above = part.rpartition(".")[0]
            found = self.names(above)
            if found is None or found.submodules:
                return None
            return part
        return None

    def target(self, module: str, name: str, seen: frozenset[tuple[str, str]] = frozenset()) -> str | None:
        """The module that ``module.name`` certainly is; None if it is another thing, or nobody knows."""
        found = self.names(module)
        if found is None or len(seen) > _DEEPEST or (module, name) in seen:
            return None
        if name not in found.names:
            there = self.there(f"{module}.{name}")
            return f"{module}.{name}" if there and not found.anything and not found.stars else None
        if name not in found.bound:
            return None
        source, inner = found.bound[name]
        if inner is None:
            return source if self.there(source) else None
        if (source, inner) == (module, name):
            return f"{module}.{name}" if self.there(f"{module}.{name}") else None
        return self.target(source, inner, seen | {(module, name)})

    def outcome(self, module: str) -> Executed:
        """What a module executes and lacks when it is executed."""
        if module not in self._outcomes:
            found = self.names(module)
            outcome = Executed()
            if found is not None and self.owner(module) is not None:
                self._take(found, outcome)
            self._outcomes[module] = outcome
        return self._outcomes[module]

    def _take(self, found: ModuleNames, outcome: Executed) -> None:
        bit = 1 << self.python
        for one in found.taken:
            if one.pythons & bit:
                self._take_one(one, outcome)
        for use in found.used:
            if use.pythons & bit and (lack := self._attribute(found, use.alias, use.chain)):
                outcome.lacks.append((use.line, *lack, True))

    def _take_one(self, one: Taken, outcome: Executed) -> None:
        absent = self.lacks_module(one.module)
        if absent is not None:
            outcome.lacks.append((one.line, absent, None, False))
            return
        outcome.executed.append(one.module)
        if one.name is None or one.name == "*":
            return
        given, inner = self.names(one.module), f"{one.module}.{one.name}"
        itself = given is not None and given.bound.get(one.name) == (one.module, one.name)
        if given is not None and one.name in given.names and not itself:
            return
        if not self.there(inner):
            if self.has(one.module, one.name) is False:
                outcome.lacks.append((one.line, one.module, one.name, False))
        elif given is None or itself or not (given.anything or given.stars):
            outcome.executed.append(inner)

    def _attribute(self, found: ModuleNames, alias: str, chain: tuple[str, ...]) -> tuple[str, str] | None:
        """The first part of ``alias.first.second`` that a module certainly lacks."""
        source, inner = found.bound[alias]
        at = source if inner is None else self.target(source, inner)
        for name in chain:
            if at is None or not self.there(at):
                return None
            if self.has(at, name) is False:
                return at, name
            at = self.target(at, name)
        return None


def missing(every: ImportSet, roots: Mapping[str, Iterable[str]]) -> Iterator[Missing]:
    """What imports of ``roots``, modules by distribution, certainly lack; the first for each two wheels."""
    found = list(_Walk(every).run(roots))
    lacks: list[Lack] = list(dict.fromkeys((one.module, one.name, one.giver) for one in found))
    givers = {lack[2] for lack in lacks}
    for wheel in sorted(every.wheels, key=lambda one: one.name not in givers):  # what they may add is most
        answers = every.brings(wheel.name, lacks) if lacks else ()
        said = (lack[1] and wheel.name == lack[2] and every.says_gone(lack[0], lack[1]) for lack in lacks)
        rows = zip(lacks, answers, said, strict=True)
        lacks = [lack for lack, brought, gone in rows if brought is False or gone]
    left = set(lacks)
    pairs = set[tuple[str, str]]()
    for one in found:
        if (one.module, one.name, one.giver) in left and (one.taker, one.giver) not in pairs:
            pairs.add((one.taker, one.giver))
            yield one


class _Walk:
    """The modules that imports execute, one after the other, each once."""

    def __init__(self, every: ImportSet) -> None:
        self.every = every
        self.by: dict[str, str | None] = {}
        self.roots: dict[str, str] = {}
        self.queue: deque[str] = deque()
        self.pairs: Counter[tuple[str, str]] = Counter()

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

    def lacking(self, module: str, outcome: "Executed") -> Iterator[Missing]:
        taker = self.every.owner(module)
        for line, lacked, name, used in outcome.lacks:
            above = lacked if name is not None else lacked.rpartition(".")[0]
            giver = self.every.owner(above) if above else ""
            if taker is None or giver is None or giver == taker:
                continue
            self.pairs[taker, giver] += 1
            if self.pairs[taker, giver] <= _MOST_OF_PAIR:
                yield Missing(
                    root=self.roots[module],
                    taker=taker,
                    path=self.every.path(module),
                    line=line,
                    giver=giver,
                    module=lacked,
                    name=name,
                    used=used,
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
