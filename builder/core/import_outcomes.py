"""The outcome of a module's execution beside the wheels of a set: what it imports, and what ends it."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from typing import Any

from builder.core import python_names
from builder.core.decided_tests import UnknownValueError, leaves, value
from builder.core.import_set import NO_ROOTS, PYTHON, ImportSet
from builder.core.module_ends import catches
from builder.core.module_runs import Runs, deferred
from builder.core.module_values import (
    BY_OLD_PROTOC,
    Called,
    DecidedTest,
    Effects,
    Ends,
    Expression,
    Guard,
    ModuleNames,
    Taken,
    Used,
)
from builder.core.python_names import OF_PYTHON
from builder.core.versions import canonical, requirement

_DEEPEST = 40
_PROTOBUF = ("google.protobuf", "descriptor")
_MOST_CALLS = 12
"""Calls that are followed, one within the other."""
_MAKE_ARRAYS = {"array", "zeros", "ones", "empty", "arange", "full", "eye", "linspace"}


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
    left_out: bool = False
    """Whether it is called without ``argument``, which it demands."""
    because: tuple[tuple[str, str | None], ...] = ()
    """(module, name) that are lacking, too, so that it comes to this: the imports of a ``try``."""
    doubt: bool = False
    """Whether the module puts names together, of which this may be one: if nobody wrote it there before. Of
    what ``ends`` it: whether the import comes there."""
    untold: bool = False
    """Whether that is in doubt since compiled code alone can tell. ``doubt`` holds then, too."""
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
    newer: str = ""
    """The oldest newer one that has it, if somebody looked: it came with that."""

    @property
    def lacked(self) -> str:
        return self.module if self.name is None else f"{self.module}.{self.name}"


@dataclass(frozen=True)
class Executed:
    """The imports, and the lacks, of one module when it is executed."""

    executed: list[str] = field(default_factory=list)
    lacks: list[Missing] = field(default_factory=list)
    tried: list[tuple[str, Guard]] = field(default_factory=list)
    """Each ``try`` whose imports nothing is lacking to by themselves, and the module that has it: a function
    that is called may be another's."""
    deferred: list[str] = field(default_factory=list)
    """Those of the imports that a package does when it is asked for a name: what ends one comes out as
    another exception."""


class Outcomes:
    """Executes the modules of a set, each once."""

    def __init__(self, every: ImportSet) -> None:
        self.every, self.runs = every, Runs(every)
        self._outcomes: dict[str, Executed] = {}
        self._followed: set[tuple[str, str]] = set()
        """Functions, whose calls are followed once."""

    def outcome(self, module: str) -> Executed:
        """The modules that a module executes, and the names that it lacks then."""
        if module not in self._outcomes:
            found = self.every.names(module)
            outcome = Executed()
            if found is not None and self.every.owner(module) is not None:
                self._take(module, found, found.executed, outcome)
                if found.generated is not None and self.refuses(found.generated):
                    text = ".".join(map(str, found.generated))
                    outcome.lacks.append(Missing(module, 1, *_PROTOBUF, generated=text))
            self._outcomes[module] = outcome
        return self._outcomes[module]

    def after(self, module: str, guard: Guard) -> Executed:
        """The outcome of what a ``try`` does after its imports, where these succeed."""
        found, outcome = self.every.names(module), Executed()
        if found is not None and guard.tried:
            self._take(module, found, guard.trial, outcome)
        return outcome if not outcome.deferred else Executed()  # a handler may get what ends one of these

    def executes(self, one: Taken) -> Executed:
        """The outcome of an import to which nothing is lacking."""
        outcome = Executed()
        self._take_one(one.module, one, outcome)
        return outcome

    def _take(
        self, module: str, found: ModuleNames, effects: Effects, outcome: Executed, depth: int = 0
    ) -> None:
        bit = 1 << self.every.python
        for one in effects.taken:
            if one.pythons & bit:
                self._take_one(module, one, outcome)
        outcome.executed.extend(
            at for one in effects.listed if one.pythons & bit for at in self.every.in_folder(one)
        )
        for use in effects.used:
            if use.pythons & bit and (lack := self._attribute(module, found, use, outcome)):
                outcome.lacks.append(lack)
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

    def _take_one(self, module: str, one: Taken, outcome: Executed) -> None:
        if (finder := self.every.unfound(one.module)) is not None:
            text = f"imports {one.module}, for which {finder} has an importer that this Python does not ask"
            other = self.every.owner(finder) or ""
            giver = other if other != self.every.owner(module) else PYTHON
            error = "ModuleNotFoundError"
            outcome.lacks.append(Missing(module, one.line, module, None, ends=text, error=error, giver=giver))
            return
        lack = self.every.fails(one)
        if lack is not None:
            outcome.lacks.append(Missing(module, one.line, *lack))
            if lack[1] is None:
                return
        elif (unsaid := self.every.unsaid_module(one.module)) is not None:
            outcome.lacks.append(Missing(module, one.line, unsaid, None, doubt=True))
            return
        elif one.name is not None and one.name != "*":
            doubted = self._doubted(module, one.line, one.module, one.name)
            outcome.lacks.extend([doubted] if doubted is not None else [])
        outcome.executed.append(one.module)
        if one.name is None or one.name == "*" or lack is not None:
            return
        self._defer(module, one, outcome)
        given, inner = self.every.names(one.module), f"{one.module}.{one.name}"
        to = given.bound.get(one.name) if given is not None else None
        if to is not None and to[1] is None and self.every.there(to[0]):
            outcome.executed.append(to[0])  # by its __getattr__, if not before
            return
        itself = to == (one.module, one.name)
        if given is not None and one.name in given.names and not itself:
            return
        stars = given.stars if given is not None and not itself else ()
        if self.every.there(inner) and all(self.every.by_star(star, one.name) is False for star in stars):
            outcome.executed.append(inner)

    def _defer(self, module: str, one: Taken, outcome: Executed, depth: int = 0) -> None:
        """Go where a package goes when it is asked for a name."""
        for at, name in deferred(self.runs, one.module, one.name or ""):
            outcome.deferred.append(at)
            if name is None or depth >= _MOST_CALLS:
                outcome.executed.append(at)
                continue
            inner = one._replace(module=at, name=name)
            lack = self.every.fails(inner)
            if lack is not None:
                outcome.lacks.append(Missing(one.module, 1, *lack))
            if lack is None or lack[1] is not None:
                outcome.executed.append(at)
                self._defer(module, inner, outcome, depth + 1)

    def _guarded(self, module: str, found: ModuleNames, guard: Guard, outcome: Executed, depth: int) -> None:
        """Take a ``try``. If the first handler certainly gets an exception of the block, it is executed."""
        trial, inner = Executed(), Executed()
        if not guard.tried:
            self._take(module, found, guard.trial, trial, depth)
        outcome.executed.extend(trial.executed)
        outcome.lacks.extend(one for one in trial.lacks if not one.ends)
        ended = next((one for one in trial.lacks if one.ends), None)
        bit = 1 << self.every.python
        why = [failed for one in guard.tried if one.pythons & bit and (failed := self.every.fails(one))]
        if ended is not None and not why:
            answers = [catches(kinds, ended.error) for kinds in guard.kinds]
            if all(answer is False for answer in answers):
                outcome.lacks.append(ended)
            if answers[0] is not True:
                return
        elif not why:
            outcome.tried.append((module, guard))
            return
        self._take(module, found, guard.instead, inner, depth)
        outcome.executed.extend(inner.executed)
        for one in inner.lacks:
            if why:
                outcome.lacks.append(replace(one, because=(why[0], *one.because)))
            else:
                outcome.lacks.append(ended if one.ends and ended is not None else one)

    def _branched(
        self, module: str, found: ModuleNames, branch: DecidedTest, outcome: Executed, depth: int
    ) -> None:
        """Take the branch of a test that the set decides."""
        answer = self._answer(module, found, branch.test)
        if answer is None:
            return
        inner = Executed()
        self._take(module, found, branch.true if answer else branch.false, inner, depth)
        outcome.executed.extend(inner.executed)
        giver, library = self._decides(module, found, branch.test)
        for one in inner.lacks:
            ours = bool(one.ends) and one.giver == self.every.owner(module)
            text = _opens(library) if library else one.ends
            outcome.lacks.append(replace(one, giver=giver, ends=text, library=library) if ours else one)

    def _answer(self, module: str, found: ModuleNames, test: Expression) -> bool | None:
        """Whether a test of a module holds in this set; None if nobody knows."""
        try:
            return bool(value(test, partial(self._leaf, module, found)))
        except UnknownValueError:
            return None

    def _leaf(self, module: str, found: ModuleNames, expression: Expression) -> Any:
        """A value that the set decides. Raises UnknownValueError."""
        kind, *names = expression
        answer: Any = None
        match kind:
            case "library" if self.every.library(names[0]) is False:
                return None
            case "found" if self.every.lacks_module(names[0]) is not None:
                return None
            case "found":
                answer = self.every.there(names[0]) or None
            case "installed":
                wheel = self.every.wheel(canonical(names[0]))
                answer = wheel.version if wheel is not None else None
            case "of":
                answer = self.every.version_of(found, names)
            case "asked":
                chain, args, words = names
                return self.runs.answer(*self._asked(module, found, chain), args, words)
            case _:
                pass
        if answer is None:
            raise UnknownValueError
        return answer

    def _asked(self, module: str, found: ModuleNames, chain: Sequence[str]) -> tuple[str, str]:
        """The module that defines a function, and its name there. Raises UnknownValueError."""
        at = self.every.defined(module, found, chain)
        if at is None and len(chain) == 1:
            at = self.every.origin(module, chain[0])
        if at is None:
            raise UnknownValueError
        return at

    def _decides(self, module: str, found: ModuleNames, test: Expression) -> tuple[str, str]:
        """The distribution whose release decides a test, or the library that does."""
        kind, name, *_ = leaf = next(leaves(test))
        match kind:
            case "library":
                return "", name
            case "installed":
                return canonical(name), ""
            case "found":
                return self.every.owner(name) or "", ""
            case "asked":
                self._answer(module, found, leaf)
                return self.runs.decides, ""
            case _:
                pass
        return (self.every.owner(found.bound[name][0]) or "") if name in found.bound else "", ""

    def _call(self, module: str, found: ModuleNames, call: Called, outcome: Executed, depth: int) -> None:
        """Go where a call goes: what its arguments are there, and what the function executes."""
        at = self._called(module, found, call.chain)
        if at is None:
            return
        there, name = at
        of = self.every.names(there)
        if of is None:
            return
        if self.every.owner(there) != self.every.owner(module) and (wrong := _wrong(of, name, call)):
            argument, left_out = wrong
            lack = Missing(module, call.line, there, name, used=True, argument=argument, left_out=left_out)
            outcome.lacks.append(lack)
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
            at = self.every.target(at, name) if at is not None else None
        if at is None or not names:
            return None
        return self.every.origin(at, names[-1])

    def _attribute(self, module: str, found: ModuleNames, use: Used, outcome: Executed) -> Missing | None:
        """The first part of ``alias.first.second`` that a module lacks.

        Parts that a ``__getattr__`` imports are among those that ``outcome`` executes.
        """
        source, inner = found.bound[use.alias]
        if source.partition(".")[0] in OF_PYTHON and not self.every.there(source):
            gone = inner is None and python_names.lacks_name(source, use.chain[0], self.every.python)
            return Missing(module, use.line, source, use.chain[0], used=True) if gone else None
        at = source if inner is None else self.every.target(source, inner)
        on_use = inner is not None and self.every.on_use(source, inner)
        for name in use.chain:
            if at is None or not self.every.there(at):
                return None
            outcome.executed.extend([at] if on_use else [])
            if self.every.has(at, name) is False:
                return Missing(module, use.line, at, name, used=True)
            if (doubted := self._doubted(module, use.line, at, name)) is not None:
                return replace(doubted, used=True)
            self._defer(module, Taken(use.line, at, name), outcome)
            on_use = self.every.on_use(at, name)
            given, at = self.every.names(at), self.every.target(at, name)
            if at is not None and given is not None and name in given.names and not on_use:
                outcome.executed.append(at)
        return None

    def _doubted(self, module: str, line: int, of: str, name: str) -> Missing | None:
        """A name that another module may lack."""
        untold = False
        if not self.every.unsaid(of, name, module):
            untold = self.every.untold(of, name, module)
            if not untold:
                return None
        return Missing(module, line, of, name, doubt=True, untold=untold)

    def _ends(self, module: str, found: ModuleNames, end: Ends) -> Missing | None:
        """The end of the import by a statement, if it raises beside the wheels of the set."""
        own = self.every.owner(module) or ""
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
        at = self.every.defined(module, found, end.about[1:])
        of = self.every.names(at[0]) if at is not None else None
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

    def _has_no_hash(self, module: str, name: str) -> bool:
        if self.every.owner(module) == "numpy":
            return name in _MAKE_ARRAYS
        found = self.every.names(module)
        return found is not None and name in found.hashless

    def _not_installed(self, text: str) -> tuple[str, str] | None:
        """(text for the user, distribution at fault) if the set does not meet a requirement."""
        asked = requirement(text)
        if asked is None:
            return None
        name = canonical(asked.name)
        wheel = self.every.wheel(name)
        if wheel is None:
            said = f"asks for the metadata of {name}, which is not in the lock"
            return (said, "") if self.every.whole else None
        if asked.specifier.contains(wheel.version, prereleases=True):
            return None
        return f"demands {text} when it is imported", name

    def lacks_library(self, names: Iterable[str]) -> str | None:
        """One of several names of a library, if none of them is that of one that is there."""
        known = {name: self.every.library(name) for name in names}
        if True in known.values():
            return None
        return next((name for name, there in known.items() if there is False), None)

    def _is_of_pydantic(self, found: ModuleNames, chain: Sequence[str]) -> bool:
        """Whether a name is pydantic's own, of release 2, and none of the old ones that it keeps."""
        wheel = self.every.wheel("pydantic")
        if wheel is None or not re.match(r"[2-9]\.", wheel.version):
            return False
        at = self._origin(found, chain)
        return at is not None and self.every.owner(at) == "pydantic" and not at.startswith("pydantic.v1")

    def _origin(self, found: ModuleNames, chain: Sequence[str]) -> str | None:
        """The module of the first other wheel that a name is certainly taken from."""
        for _ in range(_DEEPEST):
            if chain[0] not in found.bound:
                return None
            source, inner = found.bound[chain[0]]
            other = self.every.names(source)
            if self.every.owner(source) == "pydantic" or inner is None or other is None:
                return source
            found, chain = other, (inner,)
        return None

    def refuses(self, generated: tuple[int, int, int]) -> bool:
        """Whether the protobuf of the set ends the import of code that another one made.

        From 4.21 on its compiled half makes no descriptors for protoc before 3.19
        (https://protobuf.dev/news/2022-05-06/), and from 5.26 on it takes none of a newer protoc
        (``google/protobuf/runtime_version.py``, of 7.36.2, too, which takes code of each older one).
        """
        wheel = self.every.wheel("protobuf")
        release = re.match(r"(\d+)\.(\d+)\.(\d+)", wheel.version) if wheel is not None else None
        if release is None or not self.every.there(_PROTOBUF[0]):
            return False
        own = int(release[1]), int(release[2]), int(release[3])
        if generated == BY_OLD_PROTOC:
            return own >= (4, 21, 0) and self.every.there("google._upb._message")
        if not self.every.there("google.protobuf.runtime_version"):
            return False  # the import of that fails before
        return own < generated

    def refused_code(self, distribution: str) -> str | None:
        """One of the modules of a distribution that protobuf generated, if the one of the set refuses all.

        Modules outside of the package that has the distribution's name do not count: torch brings caffe2.
        One module alone is no protocol that the distribution speaks; where it is imported, that is told.
        """
        wheel = self.every.wheel(distribution)
        if wheel is None or not self.every.there(_PROTOBUF[0]):
            return None
        own = distribution.replace("-", "_")
        has_own = any(module.partition(".")[0] == own for module in wheel.modules)
        refused: list[str] = []
        for module in sorted(wheel.modules):
            # beside ``x_pb2`` may stand ``x_pb2_new``, which is taken with a newer protobuf
            if not re.search(r"_pb2(_(?!grpc)\w+)?$", module) or NO_ROOTS & set(module.split(".")):
                continue
            if has_own and module.partition(".")[0] != own:
                continue
            found = self.every.names(module)
            if found is None or found.generated is None or not self.refuses(found.generated):
                return None
            refused.append(module)
        return refused[0] if len(refused) > 1 else None


def _opens(library: str) -> str:
    return f"opens the library {library.removesuffix('*')}, which nothing in the lock brings"


def _wrong(of: ModuleNames, name: str, call: Called) -> tuple[str, bool] | None:
    """An argument that a call gives, and that the function does not take, or that it leaves out."""
    signature = of.signatures.get(name)
    if signature is None:
        return None
    if not signature.any_keywords:
        for word in call.keywords:
            if word not in signature.names:
                return word, False
    known = {*signature.names[: call.given], *call.keywords}
    left = [one for one in signature.demanded if one not in known] if call.given >= 0 else []
    return (left[0], True) if left else None
