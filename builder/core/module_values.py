"""Values of the proof by imports: what one module says, as plain values with a form that JSON can hold.

:mod:`.module_names` makes them of a source, and :mod:`.import_outcomes` holds them against a set of wheels.
A name that may be there counts as defined, and an import that may not happen is not demanded: what follows
from both, that a name is missing, holds whatever the module does.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

ALWAYS = (1 << 32) - 1
"""One bit for each Python 3.n: in which a statement is certainly executed."""
Expression = list[Any]
"""A value that the wheels of a set decide, as lists that JSON can hold: ``["version", ["of", "alias"]]``."""
BY_OLD_PROTOC = (3, 18, 0)
"""Stands for each protoc before 3.19, whose code makes descriptors by itself."""


def before(minor: int) -> int:
    """The Pythons before 3.``minor``."""
    return (1 << minor) - 1


def since(minor: int) -> int:
    return ALWAYS & ~before(minor)


class Taken(NamedTuple):
    """A module, or a name of it, that an import statement takes whenever it is executed."""

    line: int
    module: str
    name: str | None = None
    """None for ``import module``, ``*`` for all."""
    pythons: int = ALWAYS


class Used(NamedTuple):
    """``alias.first.second``, which is evaluated when the module is executed."""

    line: int
    alias: str
    chain: tuple[str, ...]
    pythons: int = ALWAYS


class Called(NamedTuple):
    """``first.second(...)``, which is called when the module is executed."""

    line: int
    chain: tuple[str, ...]
    keywords: tuple[str, ...]
    """The arguments that are given by name."""
    pythons: int = ALWAYS
    given: int = -1
    """How many others are given; -1 if there may be more of any kind."""


class Signature(NamedTuple):
    """The arguments of a function."""

    names: tuple[str, ...]
    any_keywords: bool
    """Whether it takes arguments of further names."""
    demanded: tuple[str, ...] = ()
    """Those without which it cannot be called, as far as that is certain."""


class Guard(NamedTuple):
    """A ``try`` whose handlers may get an exception of its block."""

    tried: tuple[Taken, ...]
    """Imports. If one fails, the first handler gets its exception."""
    trial: "Effects"
    """The other effects of the block that may raise; beside ``tried`` attributes alone, which are used if
    these imports succeed, and whose lack no handler gets."""
    kinds: tuple[tuple[str, ...], ...]
    """Exceptions of each handler, by their names; ``*`` for all."""
    instead: "Effects"
    """The effects of the first handler."""


class Ends(NamedTuple):
    """A statement that raises when it is executed."""

    line: int
    kind: str
    """``python`` and ``raise``, which do for certain; ``pydantic``, ``dataclass``, ``subclass``, ``library``
    and ``installed``, by what the set has."""
    about: tuple[str, ...]
    """``library``: its names; ``installed``: the requirement; else the text for the user, and the dotted name
    that decides."""
    error: str = ""
    """The exception, if its name is known."""
    pythons: int = ALWAYS


class FolderImports(NamedTuple):
    """Modules that are executed because they lie in the package's own folder."""

    line: int
    package: str
    inner: str
    """``compiler`` of ``backends/*/compiler.py``; empty for the modules right below the package."""
    kind: str
    """``file`` or ``package`` for these of the modules alone; empty for both."""
    pythons: int = ALWAYS


class DecidedTest(NamedTuple):
    """A test that the wheels of a set decide."""

    test: Expression
    true: "Effects"
    false: "Effects"


@dataclass(frozen=True, kw_only=True)
class Effects:
    """The names that executed statements take from elsewhere."""

    taken: tuple[Taken, ...] = ()
    used: tuple[Used, ...] = ()
    called: tuple[Called, ...] = ()
    guards: tuple[Guard, ...] = ()
    ends: tuple[Ends, ...] = ()
    branches: tuple[DecidedTest, ...] = ()
    listed: tuple[FolderImports, ...] = ()

    def __bool__(self) -> bool:
        return any((self.taken, self.used, self.called, self.guards, self.ends, self.branches, self.listed))

    def aliases(self) -> Iterator[str]:
        """Names whose attributes are used."""
        yield from (one.alias for one in self.used)
        for guard in self.guards:
            yield from (*guard.trial.aliases(), *guard.instead.aliases())
        for branch in self.branches:
            yield from (*branch.true.aliases(), *branch.false.aliases())

    def as_list(self) -> list[Any]:
        rows = [
            self.taken,
            self.used,
            self.called,
            [[one.tried, one.trial.as_list(), one.kinds, one.instead.as_list()] for one in self.guards],
            self.ends,
            [[one.test, one.true.as_list(), one.false.as_list()] for one in self.branches],
            self.listed,
        ]
        return rows[: max((number for number, row in enumerate(rows, 1) if row), default=0)]

    @classmethod
    def of_list(cls, values: Sequence[Any]) -> "Effects":
        rows: list[Sequence[Any]] = [*values, *[()] * (7 - len(values))]
        taken, used, called, guards, ends, branches, listed = rows
        return cls(
            taken=tuple(map(Taken._make, taken)),
            used=tuple(Used(line, alias, tuple(chain), pythons) for line, alias, chain, pythons in used),
            called=tuple(
                Called(line, tuple(chain), tuple(words), *rest) for line, chain, words, *rest in called
            ),
            guards=tuple(
                Guard(
                    tuple(map(Taken._make, tried)),
                    cls.of_list(trial),
                    tuple(map(tuple, kinds)),
                    cls.of_list(instead),
                )
                for tried, trial, kinds, instead in guards
            ),
            ends=tuple(
                Ends(line, kind, tuple(about), error, pythons) for line, kind, about, error, pythons in ends
            ),
            branches=tuple(
                DecidedTest(test, cls.of_list(true), cls.of_list(false)) for test, true, false in branches
            ),
            listed=tuple(map(FolderImports._make, listed)),
        )


@dataclass(frozen=True, kw_only=True)
class ModuleNames:
    """One module; plain values, which JSON can hold."""

    names: frozenset[str] = frozenset()
    """Every name that may be defined in it, on whichever Python, star imports aside."""
    only: Mapping[str, int] = field(default_factory=dict)
    """The Pythons of those of them that others never bind."""
    bound: Mapping[str, tuple[str, str | None]] = field(default_factory=dict)
    """Names that are bound by import statements alone, to one module or one name of it."""
    stars: tuple[str, ...] = ()
    """Modules of which it takes all names."""
    hidden: tuple[str, ...] = ()
    """The same, for type checkers alone."""
    public: frozenset[str] | None = None
    """``__all__``, if it is a list of texts."""
    anything: bool = False
    """Whether it may have more names than those."""
    submodules: bool = False
    """Whether it may have more submodules than there are files."""
    paths: tuple[str, ...] = ()
    """Packages whose folders it adds to its ``__path__``."""
    unfound: int = 0
    """The Pythons that find none of these, as they ask its own importer no more."""
    lazy: bool = False
    """Whether what else it may have is named in its wheel's sources: a ``_LazyModule`` takes its place."""
    gone: frozenset[str] = frozenset()
    """Names for which it says itself that it has them no more."""
    gone_tables: tuple[tuple[str, str], ...] = ()
    """(module, name) of tables of more such names."""
    tables: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Its own tables of that kind, ``__name__ = {"text": ...}``, and what functions of it let others give."""
    makers: tuple[tuple[str, str], ...] = ()
    """(module, function) of those that make what its ``__getattr__`` gives, as ``module:name``."""
    executed: Effects = Effects()
    """By an import of it."""
    functions: Mapping[str, Effects] = field(default_factory=dict)
    """By a call of these functions of it."""
    signatures: Mapping[str, Signature] = field(default_factory=dict)
    """Of functions and classes that are bound once, and that nothing wraps."""
    generated: tuple[int, int, int] | None = None
    """The protobuf that made it, ``BY_OLD_PROTOC`` for one before 3.19, if protobuf asks for that."""
    hashless: frozenset[str] = frozenset()
    """Classes whose objects have no hash."""
    strict: frozenset[str] = frozenset()
    """Classes that refuse a class of them for the attributes that Python 3.13 gives it."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Names that are bound once, to a text that begins as a version does."""
    source: str = ""
    """The statements that :mod:`.module_runs` runs, if the wheels of a set decide something there."""
    deferred: Mapping[str, tuple[str, str | None]] = field(default_factory=dict)
    """Names that its ``__getattr__`` alone gives: the module that it imports then and the name of it there;
    no module if ``source`` tells it."""
    on_use: Mapping[str, str] = field(default_factory=dict)
    """Names that stand for a module, which the first attribute that is asked of them imports: TensorFlow's
    ``LazyLoader``."""
    backends: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """What its functions and classes demand by a decorator: ``@requires(backends=("torch",))``."""
    raises: bool = False
    """Whether it raises an ImportError somewhere by itself."""
    opens: frozenset[str] = frozenset()
    """Libraries that it may open by these names, whether or not on import."""
    files: frozenset[str] = frozenset()
    """Names of files of libraries, of which its import certainly opens those that its wheel has."""

    def as_list(self) -> list[Any]:
        return [
            sorted(self.names),
            {name: list(target) for name, target in self.bound.items()},
            self.stars,
            self.hidden,
            None if self.public is None else sorted(self.public),
            int(self.anything),
            int(self.submodules),
            self.unfound,
            int(self.lazy),
            sorted(self.gone),
            self.gone_tables,
            dict(self.tables),
            self.makers,
            self.executed.as_list(),
            {name: body.as_list() for name, body in self.functions.items()},
            dict(self.signatures),
            self.generated,
            sorted(self.hashless),
            sorted(self.strict),
            dict(self.versions),
            self.source,
            dict(self.deferred),
            dict(self.on_use),
            dict(self.backends),
            sorted(self.opens),
            sorted(self.files),
            int(self.raises),
            self.paths,
            dict(self.only),
        ]

    @classmethod
    def of_list(cls, values: Sequence[Any]) -> "ModuleNames":
        """Raises ValueError or TypeError for what :meth:`as_list` did not write."""
        names, bound, stars, hidden, public, anything, submodules, unfound, lazy, *rest = values
        gone, gone_tables, *rest = rest
        (
            tables,
            makers,
            executed,
            functions,
            signatures,
            generated,
            hashless,
            strict,
            versions,
            source,
            deferred,
            on_use,
            backends,
            opens,
            files,
            raises,
            paths,
            only,
        ) = rest
        return cls(
            names=frozenset(names),
            bound={name: tuple(target) for name, target in bound.items()},
            stars=tuple(stars),
            hidden=tuple(hidden),
            public=None if public is None else frozenset(public),
            anything=bool(anything),
            submodules=bool(submodules),
            unfound=int(unfound),
            lazy=bool(lazy),
            gone=frozenset(gone),
            gone_tables=tuple((of, name) for of, name in gone_tables),
            tables={name: tuple(texts) for name, texts in tables.items()},
            makers=tuple((of, name) for of, name in makers),
            executed=Effects.of_list(executed),
            functions={name: Effects.of_list(body) for name, body in functions.items()},
            signatures={
                name: Signature(tuple(names), bool(any_keywords), tuple(demanded))
                for name, (names, any_keywords, demanded) in signatures.items()
            },
            generated=None if generated is None else (generated[0], generated[1], generated[2]),
            hashless=frozenset(hashless),
            strict=frozenset(strict),
            versions=dict(versions),
            source=str(source),
            deferred={name: (of, inner) for name, (of, inner) in deferred.items()},
            on_use={name: str(of) for name, of in on_use.items()},
            backends={name: tuple(every) for name, every in backends.items()},
            opens=frozenset(opens),
            files=frozenset(map(str, files)),
            raises=bool(raises),
            paths=tuple(map(str, paths)),
            only={name: int(on) for name, on in only.items()},
        )

    def on(self, python: int) -> "ModuleNames":
        """The same on one Python, by its minor release: without the names that it certainly does not bind."""
        absent = {name for name, on in self.only.items() if not on >> python & 1}
        return replace(self, names=self.names - absent) if absent else self


UNREAD = ModuleNames(anything=True, submodules=True)
"""A module of which nothing is known but that it is there."""
