"""The wheels of one environment as imports find them: the modules among their files, and where a name of a
module comes from.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import NamedTuple

from packaging.version import InvalidVersion, Version

from builder.core import python_names
from builder.core.module_values import FolderImports, ModuleNames, Taken
from builder.core.python_names import OF_PYTHON

_DEEPEST = 40
_SOURCE = re.compile(r"(?:[^/]+\.data/(?:pure|plat)lib/)?(?P<module>(?:\w+/)*\w+)\.py")
_COMPILED = re.compile(r"(?:[^/]+\.data/(?:pure|plat)lib/)?(?P<module>(?:\w+/)*\w+)(?:\.[\w-]+)*\.(?:so|pyc)")
_FOLDER = re.compile(r"(?:[^/]+\.data/(?:pure|plat)lib/)?(?P<module>(?:\w+/)*\w+)/[^/]*")
IS_INNER = re.compile(
    r"(?:^|\.)(?:_|tests?\b|test_|testing\b|conftest|setup$|docs?\b|examples?\b|benchmarks?\b|scripts\b)"
)
"""In the name of a module that no user of its package imports."""
NO_ROOTS = frozenset(
    {
        *("tests", "test", "docs", "doc", "examples", "example"),
        *("benchmarks", "scripts", "setup", "conftest"),
    }
)
"""Outermost folders, and modules, that many wheels bring and no import of their packages comes to."""
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
PYTHON = "python"
"""Stands for the standard library among the distributions."""
OWN = "`imports`"
"""Stands for the code of whoever uses the image among the distributions; no name of one."""
OWN_MODULE = "<imports>"
"""The module of :data:`OWN`."""
Lack = tuple[str, str | None, str]
"""A module, the name that it lacks, None if it is lacking itself, and the wheel that would have it, or ''."""


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
        tops = [name for name in tops if not name.rpartition(".")[2].startswith("_") and name not in NO_ROOTS]
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
        return tuple(name for name in inner if name not in roots and not IS_INNER.search(name))


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


class _Owned(NamedTuple):
    """A module of the set. ``wheel`` is None where several have it."""

    wheel: str | None
    path: str | None
    package: bool
    real: str = ""
    """The name that it has by its place in the wheel, if another package's ``__path__`` has its folder."""


def _of_two(one: _Owned, other: _Owned) -> _Owned:
    """Of a module that is no package, the one that pip installs last: by name, Z before A."""
    if one.package or other.package or one.wheel is None or other.wheel is None:
        return one._replace(wheel=None)
    return min(one, other, key=lambda each: each.wheel or "")


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
    adders: Callable[[str, str], Sequence[str] | None] = lambda *_: ()
    """The modules of a wheel that may add a folder of it in which a module lies to those in which modules are
    looked for; an empty text for what an interpreter executes at its start, None if nobody knows."""
    importers: Callable[[str, str], Sequence[str] | None] = lambda *_: None
    """The modules of a wheel that may import a module; None if nobody knows."""
    whole: bool = False
    """Whether nothing else can be imported, but for Python's own modules."""
    compiled: Callable[[str, str, str], bool | None] = lambda *_: None
    """Whether a compiled module of a wheel has a name; None if nobody knows."""
    taken: Callable[[str, str, str], bool | None] = lambda *_: None
    """Whether a wheel's own sources take a name from a module of it; None if nobody knows."""
    exporting: Callable[[str, str, str], Sequence[str] | None] = lambda *_: None
    """The modules in a folder of a wheel that have a name in ``__all__``; None if nobody knows."""
    unlisted: Callable[[str, str], bool] = lambda *_: False
    """Whether the table of a module's ``_LazyModule`` is known whole, and has no such name."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that the image sets; the proof takes no others to be set."""
    library: Callable[[str], bool | None] = lambda _: None
    """Whether a library that is opened by a name is there; None if nobody knows."""
    _modules: dict[str, _Owned] = field(default_factory=dict)
    _folders: dict[str, set[str]] = field(default_factory=dict)
    _added: dict[str, _Owned | None] = field(default_factory=dict)
    """Modules that are no files of the package which their names say."""
    _names: dict[str, ModuleNames | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for wheel in self.wheels:
            for name, path in wheel.modules.items():
                if name.partition(".")[0] in OF_PYTHON and python_names.lacks(name, self.python) is None:
                    continue  # Python's own comes first
                mine, other = _Owned(wheel.name, path, name in wheel.packages), self._modules.get(name)
                self._modules[name] = mine if other is None else _of_two(mine, other)
                parent = name.rpartition(".")[0]
                while parent and wheel.name not in (known := self._folders.setdefault(parent, set())):
                    known.add(wheel.name)
                    parent = parent.rpartition(".")[0]
            for name in wheel.folders:
                self._folders.setdefault(name, set()).add(wheel.name)

    def there(self, module: str) -> bool:
        return module in self._modules or module in self._folders or self._found(module) is not None

    def _found(self, module: str) -> _Owned | None:
        """A module, also one in a folder that a package adds to its ``__path__``: ``keras.layers`` of Keras 3
        is ``keras.api.layers``."""
        found = self._modules.get(module)
        if found is not None or "." not in module:
            return found
        if module not in self._added:
            self._added[module] = None  # of packages that name each other
            above, _, last = module.rpartition(".")
            for folder in self._path(above):
                inner = f"{folder}.{last}"
                if inner != module and (found := self._found(inner)) is not None:
                    self._added[module] = found._replace(real=found.real or inner)
                    break
        return self._added[module]

    def _path(self, package: str) -> Iterator[str]:
        """The packages whose folders a package's ``__path__`` has beside its own."""
        found, names = self._found(package), self.names(package)
        if found is not None and found.real:
            yield found.real
        yield from names.paths if names is not None else ()
        if package == "tensorflow" and (keras := self._keras()):
            yield keras.rpartition(".")[0]

    def _keras(self) -> str:
        """The package that ``tensorflow.keras`` is; empty if nobody knows.

        TensorFlow 2.16 and newer take that of Keras 3, but for whoever asks for the old one:
        https://github.com/tensorflow/tensorflow/blob/v2.16.2/tensorflow/python/util/lazy_loader.py
        """
        new, old = "keras._tf_keras.keras", "tf_keras.api._v2.keras"
        loader = self.names("tensorflow.python.util.lazy_loader")
        if loader is None or "KerasLazyLoader" not in loader.names or "tensorflow.keras" in self._modules:
            return ""
        name = "TF_USE_LEGACY_KERAS"
        if self.environment.get(name) in {"true", "True", "1"}:
            return old if old in self._modules else ""
        asks = (
            self.mentions(wheel.name, name) is not False
            for wheel in self.wheels
            if "keras" not in wheel.roots and "tensorflow" not in wheel.roots and wheel.name != OWN
        )
        known = new in self._modules and "keras.api._v2.keras" not in self._modules
        return new if known and ("tf_keras" not in self._modules or not any(asks)) else ""

    def real(self, module: str) -> str:
        """The name of a module by its place in the wheel."""
        found = self._found(module)
        return (found.real if found is not None else "") or module

    def namespace(self, module: str) -> frozenset[str]:
        """The wheels of a module that is nothing but the modules below it; empty if it may have other names.

        A folder of several wheels without a source of its own: https://peps.python.org/pep-0420/. A folder
        below a compiled module is none: ``torch/_C`` has stubs alone, and the module makes what is below it.
        """
        if not self.whole or self._found(module) is not None:
            return frozenset()
        above = module.rpartition(".")[0]
        if above and not self.namespace(above):
            owned, found = self._found(above), self.names(above)
            if owned is None or not owned.package or found is None or found.submodules:
                return frozenset()
        return frozenset(self._folders.get(module, ()))

    def in_folder(self, listed: FolderImports) -> Iterator[str]:
        """The modules of the wheels that a package executes as it lists its folder: whose name begins with
        ``_`` is left out.
        """
        begin, end = f"{listed.package}.", f".{listed.inner}" if listed.inner else ""
        for module, one in self._modules.items():
            if module.startswith(begin) and module.endswith(end):
                name = module[len(begin) : len(module) - len(end)]
                kind = "package" if one.package else "file"
                if name and "." not in name and not name.startswith("_") and listed.kind in {"", kind}:
                    yield module

    def names(self, module: str) -> ModuleNames | None:
        """The names of a module; None if no source says them."""
        if module in self._names:
            return self._names[module]
        found = self._found(module)
        if found is None or found.wheel is None or found.path is None:
            return None
        read = self.read(found.wheel, found.real or module)
        self._names[module] = read.on(self.python) if read is not None else None
        return self._names[module]

    def owner(self, module: str) -> str | None:
        """The wheel that has a module."""
        found = self._found(module)
        return found.wheel if found is not None else None

    def wheel(self, distribution: str) -> WheelFiles | None:
        return next((one for one in self.wheels if one.name == distribution), None)

    def path(self, module: str) -> str:
        found = self._found(module)
        return (found.path if found is not None else None) or module

    def is_compiled(self, module: str) -> bool:
        return module in self._modules and self._modules[module].path is None

    def giver(self, module: str, name: str | None) -> str | None:
        """The distribution that would have what is lacking, '' if none would; None if several have it."""
        if module.partition(".")[0] in OF_PYTHON and not self.there(module):
            return PYTHON
        above = module if name is not None else module.rpartition(".")[0]
        return "" if not above or self.namespace(above) else self.owner(above)

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
            one for one in below if not re.search(r"\._\w*$", one) and one.rpartition(".")[2] not in NO_ROOTS
        ]
        own = module.rpartition(".")[2]
        named = [name for name in below if name.rpartition(".")[2] in {"api", own}] or below
        return [module, *(self.entered(named[0]) if len(named) == 1 else ())]

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
            answer = False if answer and self.unlisted(module, name) else answer
        elif found.anything or found.submodules:
            answer = None
        else:
            inner = seen | {(module, name)}
            stars = (star for star in found.stars if (star, name) not in inner)
            answers = [self.by_star(star, name, inner) for star in stars]
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

    def by_star(self, module: str, name: str, seen: frozenset[tuple[str, str]] = frozenset()) -> bool | None:
        """Whether ``from module import *`` may give a name: of a module without ``__all__`` none that begins
        with ``_``."""
        found = self.names(module)
        if found is not None and found.public is not None and not found.anything:
            return name in found.public
        if found is not None and name.startswith("_") and not found.anything and "__all__" not in found.names:
            return False
        return self.has(module, name, seen)

    def unsaid(self, module: str, name: str, taker: str) -> bool:
        """Whether nothing in a wheel says a name that a module of it may put together, or has compiled."""
        found, owner = self.names(module), self.owner(module)
        if found is None and owner is not None and owner != self.owner(taker) and self.is_compiled(module):
            open_ = name in _OF_EACH_MODULE or self.there(f"{module}.{name}")
            return not open_ and self.compiled(owner, module, name) is False
        if found is None or owner is None or self.there(f"{module}.{name}"):
            return False
        if not found.anything and (
            found.lazy or found.submodules or not any(map(self.is_compiled, found.stars))
        ):
            return False
        if name in found.names or name in _OF_EACH_MODULE:
            return False
        if found.anything and self.mentions(owner, name) is not False:
            return False
        return all(self._lacks_star(module, star, name) for star in found.stars)

    def untold(self, module: str, name: str, taker: str) -> bool:
        """Whether nothing but compiled code can tell if a module has a name: its own sources have the word,
        for something else, and none of them takes it from there. ``int1`` of PyTorch 2.5 is Triton's.
        """
        found, owner = self.names(module), self.owner(module)
        if owner is None or owner == self.owner(taker) or self.there(f"{module}.{name}"):
            return False
        if name in _OF_EACH_MODULE or (found is not None and name in found.names):
            return False
        if found is not None:
            stars = [star for star in found.stars if not self.is_compiled(star)]
            if not found.anything or len(stars) == len(found.stars):
                return False
            if not all(self._lacks_star(module, star, name) or self._hides(star, name) for star in stars):
                return False
        elif not self.is_compiled(module):
            return False
        return self.taken(owner, module, name) is False

    def _hides(self, star: str, name: str) -> bool:
        """Whether a module's ``__all__``, as far as its own text says, has no such name."""
        found = self.names(star)
        return found is not None and found.public is not None and name not in found.public

    def _lacks_star(self, module: str, star: str, name: str) -> bool:
        owner = self.owner(star)
        if owner is not None and self.is_compiled(star):
            return self.compiled(owner, star, name) is False
        return self.by_star(star, name, frozenset({(module, name)})) is False

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

    def unsaid_module(self, module: str) -> str | None:
        """The part of a module's name that is no file, and that no source of the wheel says which has the
        package: one that puts modules of names that it is given below itself, as PyTorch does for devices.
        """
        parts = module.split(".")
        for number in range(2, len(parts) + 1):
            part, above = ".".join(parts[:number]), ".".join(parts[: number - 1])
            if self.there(part):
                continue
            found, owner = self.names(above), self.owner(above)
            if not self.whole or owner is None or found is None or not found.submodules:
                return None
            return part if self.mentions(owner, parts[number - 1]) is False else None
        return None

    def _not_in_python(self, module: str) -> str | None:
        """The part of a module of the standard library that this Python lacks, and nothing brings."""
        part = python_names.lacks(module, self.python)
        if part is None or (part == "distutils" and self.there("_distutils_hack")):
            return None  # setuptools puts its own in that place when the interpreter starts
        return part if self.whole else None

    def unfound(self, module: str) -> str | None:
        """The module whose own importer would find this one, if this Python does not ask it."""
        parts = module.split(".")
        for number in range(1, len(parts)):
            above, part = ".".join(parts[:number]), ".".join(parts[: number + 1])
            if not self.there(part):
                found = self.names(above)
                return above if found is not None and found.unfound >> self.python & 1 else None
        return None

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

    def target(self, module: str, name: str, seen: frozenset[tuple[str, str]] = frozenset()) -> str | None:
        """The module that ``module.name`` certainly is; None if it is another thing, or nobody knows."""
        found = self.names(module)
        if found is None or len(seen) > _DEEPEST or (module, name) in seen:
            return None
        if (module, name) == ("tensorflow", "keras") and (keras := self._keras()):
            return keras
        if name in found.on_use:
            return found.on_use[name] if self.there(found.on_use[name]) else None
        own = self.real(f"{module}.{name}")
        if name not in found.names:
            inner = seen | {(module, name)}
            stars = (star for star in found.stars if self.by_star(star, name) is not False)
            alone = self.there(own) and all(self.target(star, name, inner) == own for star in stars)
            return own if alone else None
        source, of = found.bound.get(name, ("", None))
        whole = self.real(source if of is None else f"{source}.{of}")
        if self.there(own) or of is None or whole == own:  # whoever imports a submodule binds it anew
            return whole if self.there(whole) and (whole == own or not self.there(own)) else None
        return self.target(source, of, seen | {(module, name)})

    def on_use(self, module: str, name: str, depth: int = 0) -> bool:
        """Whether ``module.name`` stands for a module that the first attribute asked of it imports."""
        found = self.names(module)
        if found is None or depth > _DEEPEST:
            return False
        source, inner = found.bound.get(name, ("", None))
        return name in found.on_use or (inner is not None and self.on_use(source, inner, depth + 1))

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

    def defined(self, module: str, found: ModuleNames, chain: Sequence[str]) -> tuple[str, str] | None:
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

    def version_of(self, found: ModuleNames, chain: Sequence[str]) -> str | Version | None:
        """The text that ``alias.__version__`` is; a version if nobody knows how the module tells its own."""
        if chain[0] not in found.bound:
            return None
        source, inner = found.bound[chain[0]]
        at: str | None = source
        names = [*([inner] if inner else []), *chain[1:]]
        for name in names[:-1]:
            at = self.target(at, name) if at is not None else None
        return self.version_text(at, names[-1]) if at is not None and names else None

    def version_text(self, module: str, name: str, depth: int = 0) -> str | Version | None:
        """The text that a name of a module is; a version if nobody knows how the module tells its own."""
        found, wheel = self.names(module), self.wheel(self.owner(module) or "")
        if found is None or wheel is None or depth > _DEEPEST:
            return None
        if name in found.versions:
            return found.versions[name]
        source, inner = found.bound.get(name, ("", None))
        if inner is not None and (source, inner) != (module, name):
            text = self.version_text(source, inner, depth + 1)
            if text is not None:
                return text
        elif name not in found.names:
            every = (self.version_text(star, name, depth + 1) for star in found.stars)
            return next((text for text in every if text is not None), None)
        named = "." not in module and (_plain(module) == _plain(wheel.name) or wheel.roots == (module,))
        return _released(wheel) if named and name == "__version__" and name in found.names else None


def _released(wheel: WheelFiles) -> Version | None:
    try:
        return Version(wheel.version)
    except InvalidVersion:
        return None
