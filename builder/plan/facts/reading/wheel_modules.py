"""The proof by imports over the wheels of a lock, with what is kept of their modules.

Modules are read as the proof comes to them: what one proof has read is kept by the wheel's hash, so that the
next one of the same set asks for no wheel. Asks no network: :mod:`.wheel_modules_read` does.
"""

import gc
import hashlib
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from builder.core.import_outcomes import Missing
from builder.core.import_proof import missing, pair_of
from builder.core.import_reach import ImportWords
from builder.core.import_set import OWN, OWN_MODULE, ImportSet, Lack, WheelFiles, wheel_files
from builder.core.model import Cell, RegistryBase, RootfsBase, Wheel
from builder.core.module_additions import adding_folders, brought
from builder.core.module_names import is_of_several, names_of
from builder.core.module_syntax import names_taken
from builder.core.module_values import ModuleNames
from builder.core.versions import canonical, first, minor, requirement, since
from builder.plan.facts.reading.binary import linked_texts
from builder.plan.facts.reading.cython_strings import names_of_cython
from builder.plan.facts.reading.observed import (
    WheelReading,
    bare_debs,
    framework_texts,
    load_reading,
    reading_path,
    save_reading,
    system_of,
)
from builder.plan.facts.reading.source_words import exports_of, words_of
from builder.plan.facts.tables import load

_OF_INTERPRETER = re.compile(
    r"python3(?:\.\d+)?(?:-(?:minimal|stdlib|dev|distutils|lib2to3|tk|gdbm|venv))?|python3(?:\.\d+)?-full"
)
"""Debian's packages of the interpreter and its own modules; others named so bring further modules."""
_READER = 23
"""Counts up when modules are read another way: what was kept before is read again."""
_UNREAD = "unread"
_ENTRIES = re.compile(r"[^/]+\.dist-info/entry_points\.txt")
_CONSOLE = re.compile(r"^\[(?:console|gui)_scripts\][ \t]*$(.*?)(?=^\[|\Z)", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"^[^#=\n\[]+=[ \t]*([\w.]+)[ \t]*(?::[ \t]*[\w.]+)?[ \t]*\r?$", re.MULTILINE)


class WheelSources(Protocol):
    """The Python sources of one wheel."""

    def paths(self) -> Sequence[str]:
        """All files of the wheel."""

    def read(self, path: str) -> bytes | None:
        """One source, or compiled module; None if it cannot be read."""

    def every(self) -> Iterator[tuple[str, bytes | None]]:
        """All sources, and other files that an interpreter executes, by their paths."""


@dataclass(frozen=True)
class ImportsProof:
    """The names that imports certainly lack."""

    lacks: tuple[Missing, ...] = ()
    loaded: frozenset[str] = frozenset()
    """Compiled modules that they certainly come to, and names of files of libraries that modules open."""
    unread: tuple[Wheel, ...] = ()
    """Wheels that nobody has read, those with a module on the way that nobody has read, and those with a name
    in doubt of which a release that was not read would tell."""


Opener = Callable[[Wheel], WheelSources | None]
"""Gives the sources of a wheel; None if it cannot be read."""
Releases = Callable[[Wheel, bool], Sequence[Wheel]]
"""Gives older releases of a wheel for the same Python and platform, the newest first; or, if that is asked,
newer ones, the oldest first."""
_THREADS = 8
_READ_HERE: dict[tuple[bytes, str, bool], tuple[ModuleNames, str]] = {}
"""What this process has read, by the sha256 of the source, the module's name and whether it is a package:
wheels of one release for several Pythons, and of several releases, have most sources in common.
"""
_MOST_READ = 10_000
"""Modules in it: all of a set, and some of the next one's."""
_MOST_OTHERS = 12
"""Other releases of a wheel in memory."""


def imports_of(
    cell: Cell,
    wheels: Sequence[Wheel],
    base: RegistryBase | RootfsBase | None,
    *,
    cache: Path | None = None,
    opened: Opener | None = None,
    releases: Releases | None = None,
    shelved: "dict[str, _Shelved] | None" = None,
) -> ImportsProof:
    """Modules and names that imports of a cell's packages, and its own ``imports``, certainly lack, by the
    wheels of its image.

    Without ``opened`` by what is kept of them alone. If a name is lacking, other ``releases`` are looked
    through for it. ``base`` None: nobody has resolved it yet. ``shelved``: the wheels of earlier sets, by
    sha256, which these are added to; of one thread alone.
    """
    collects = gc.isenabled()
    if collects:
        gc.disable()  # nearly all that is loaded stays until the end, and syntax trees have no cycles
    shelf: Mapping[str, _Shelved] = {}
    try:
        shelf = _shelf(wheels, cache, opened, shelved if shelved is not None else {})
        debs: Collection[str] | None = bare_debs(cell) if base is None else None
        if isinstance(base, RootfsBase):
            debs = {deb.package for deb in base.debs}
        system = system_of(cell if base is None else base)
        suite = system.suite if system is not None else None

        def library(name: str) -> bool | None:
            return _has_library(name, shelf, suite, debs)

        loaded = set[str]()
        found = _proven(cell, shelf, loaded, whole=_has_no_others(cell, base), library=library)
        lacks = dict[tuple[str, ...], Missing]()
        for lack in found:
            if lack.doubt and lack.name is not None and lack.giver in shelf:
                shelf[lack.giver].doubted.setdefault(lack.module, set()).add(lack.name)
        for lack in found:
            pair = (*pair_of(lack), *((lack.module,) if lack.shared else ()))
            if pair not in lacks:
                mended = _mended(lack, shelf, cell, cache, releases)
                if mended.older or mended.newer or mended.ends or not mended.doubt:
                    lacks[pair] = mended
                elif lack.giver in shelf and shelf[lack.giver].blind(lack):
                    shelf[lack.giver].unread = True
        unread = tuple(one.wheel for one in shelf.values() if one.files is None or one.unread)
        return ImportsProof(tuple(lacks.values()), frozenset(loaded), unread)
    finally:
        for one in shelf.values():
            one.keep()
        if collects:
            gc.enable()


def _shelf(
    wheels: Sequence[Wheel], cache: Path | None, opened: Opener | None, shelved: dict[str, "_Shelved"]
) -> dict[str, "_Shelved"]:
    new = [wheel for wheel in wheels if wheel.sha256 not in shelved]
    with ThreadPoolExecutor(_THREADS if opened is not None else 1) as pool:  # each one's directory is asked
        every = pool.map(lambda wheel: _Shelved(wheel, cache, opened), new)
        shelved |= zip((wheel.sha256 for wheel in new), every, strict=True)
    return {canonical(wheel.name): shelved[wheel.sha256] for wheel in wheels}


def _proven(
    cell: Cell,
    shelf: Mapping[str, "_Shelved"],
    loaded: set[str],
    *,
    whole: bool,
    library: Callable[[str], bool | None],
) -> tuple[Missing, ...]:
    unread = [name for name, one in shelf.items() if one.files is None]
    own, taken = WheelFiles(name=OWN, version="", modules={OWN_MODULE: OWN}), _own_imports(cell)
    every = ImportSet(
        [*(one.files for one in shelf.values() if one.files is not None), own],
        lambda wheel, module: taken if wheel == OWN else shelf[wheel].read(module),
        minor(cell.python) or 0,
        mentions=lambda wheel, word: shelf[wheel].mentions(word),
        brings=lambda wheel, lacks: [False] * len(lacks) if wheel == OWN else shelf[wheel].brings(lacks),
        adders=lambda wheel, module: () if wheel == OWN else shelf[wheel].adders(module),
        importers=lambda wheel, module: shelf[wheel].importers(module),
        whole=whole and not unread,
        compiled=lambda wheel, module, name: shelf[wheel].compiled(module, name),
        taken=lambda wheel, module, name: shelf[wheel].takes(module, name),
        exporting=lambda wheel, folder, name: shelf[wheel].exporting(folder, name),
        environment=dict(cell.env),
        library=library,
    )
    named = [requirement(text) for text in (*framework_texts(cell), *cell.pip)]
    roots = {
        name: shelf[name].roots for one in named if one is not None and (name := canonical(one.name)) in shelf
    }
    entered = {name: [one for root in found for one in every.entered(root)] for name, found in roots.items()}
    asked = roots if cell.dependencies != "listed" else ()  # a list is taken as it is
    beside = {name: (*shelf[name].commands(), *shelf[name].beside) for name in asked}
    if cell.imports:
        entered[OWN] = [OWN_MODULE]
    found = (*_shared(shelf), *missing(every, entered, beside, loaded))
    return tuple(one for one in found if not any(_may_mend(name, one, every, shelf) for name in unread))


def _own_imports(cell: Cell) -> ModuleNames:
    """What code in the image imports, as a module that does so, a line for each."""
    pairs = (text.partition(":") for text in cell.imports)
    lines = [f"from {module} import {name}\n" if name else f"import {module}\n" for module, _, name in pairs]
    return names_of("".join(lines).encode(), OWN_MODULE, package=False)


def _shared(shelf: Mapping[str, "_Shelved"]) -> Iterator[Missing]:
    """Packages of two wheels with other contents in their ``__init__.py``: that of the wheel which was
    installed last stands beside the modules of both. A module of one file is whole, whosever it is: jupyter
    1.0 and jupyter-core both bring ``jupyter.py``.
    """
    by_root: dict[str, str] = {}
    for name, one in shelf.items():
        for root in one.roots:
            path = one.files.modules[root] if one.files is not None else None
            if path is None or not path.endswith("/__init__.py"):
                continue
            other = by_root.setdefault(root, name)
            contents = (
                {shelf[owner].content(root) for owner in (other, name)} if other != name else set[str]()
            )
            if len(contents) == 2 and all(contents):
                yield Missing(root, 1, root, None, shared=True, root=name, taker=name, giver=other, path=path)


def _has_library(
    name: str, shelf: Mapping[str, "_Shelved"], suite: str | None, debs: Collection[str] | None
) -> bool | None:
    """Whether a library that is opened by a name is in a wheel or among a Debian rootfs's; None if nobody
    knows."""
    stem = re.escape(name.removeprefix("lib").partition(".so")[0].removesuffix("*"))
    ends = "" if name.endswith("*") else "(?![A-Za-z0-9])"  # libGL is not libGLX
    bundled = re.compile(rf"(?:.*/)?lib{stem}{ends}[^/]*")
    if any(bundled.fullmatch(path) for one in shelf.values() for path in one.libraries):
        return True
    rows = load().libraries_named(name) if debs is not None else ()
    answers = {row.is_there(suite, debs or ()) for row in rows}
    return True if True in answers else None if None in answers or not answers else False


def _may_mend(unread: str, lack: Missing, every: ImportSet, shelf: Mapping[str, "_Shelved"]) -> bool:
    """Whether a wheel that nobody has read may bring what is lacking: if it is of the giver's family by its
    name, or a wheel on the way may import it.
    """
    lacks = ((lack.module, lack.name), *lack.because)
    givers = {every.giver(module, name) or "" for module, name in lacks}
    named = (*givers, *(module for module, _ in lacks))
    if not set(unread.split("-")).isdisjoint(word for name in named for word in re.split(r"[-._]", name)):
        return True
    way = {lack.root, *givers, *map(every.owner, (lack.taking, *lack.chain))} & shelf.keys()
    return any(shelf[name].imports(unread.replace("-", "_")) is not False for name in way if name)


def _has_no_others(cell: Cell, base: RegistryBase | RootfsBase | None) -> bool:
    """Whether the image has no packages of Python but its wheels: those of a registry's base, and of Colab's
    runtime, are read nowhere, and apt installs some beside what it is asked for.
    """
    if cell.base.kind != "rootfs" or cell.profile != "plain":
        return False
    if base is None:
        return not cell.apt and not cell.compilers
    if not isinstance(base, RootfsBase):
        return False
    ours = (deb.package for deb in base.debs if deb.package.startswith("python3"))
    return all(_OF_INTERPRETER.fullmatch(name) for name in ours)


def _mended(
    lack: Missing,
    shelf: Mapping[str, "_Shelved"],
    cell: Cell,
    cache: Path | None,
    releases: Releases | None,
) -> Missing:
    """With the newest older release of the giver that has it, of a namespace that of a wheel with a part; of
    what is in doubt also the oldest newer one.
    """
    if lack.argument or lack.generated or lack.ends or lack.shared:
        return lack
    above = lack.module if lack.name is not None else lack.module.rpartition(".")[0]
    givers = [lack.giver] if lack.giver in shelf else []
    if above and not lack.giver:
        givers = [name for name, one in shelf.items() if one.files is not None and one.files.below(above)]
    python = minor(cell.python) or 0
    for name in givers:
        giver = shelf[name]
        if lack.doubt and lack.name is not None and giver.refers(lack.module, lack.name):
            return lack
        if older := _mend(giver, lack, python, cache, releases):
            return replace(lack, giver=name, older=older)
        if lack.doubt and (newer := _mend(giver, lack, python, cache, releases, newer=True)):
            return replace(lack, giver=name, newer=newer)
    return lack


def _mend(
    giver: "_Shelved",
    lack: Missing,
    python: int,
    cache: Path | None,
    releases: Releases | None,
    *,
    newer: bool = False,
) -> str:
    """The newest older release with what is lacking, or the oldest newer one."""
    key = f"{lack.module}:{lack.name or ''}:{'after' if newer else 'before'}"
    if key not in giver.answers and releases is not None and giver.opener is not None:
        others = releases(giver.wheel, newer)

        def has(number: int) -> bool | None:
            other = giver.other(others[number], cache)
            if other.is_blind(lack, giver):
                giver.answers[_blind(lack)] = True
            return other.gives(lack, python, giver)

        place = (since if newer else first)(len(others), has)
        giver.answers[key], giver.new = others[place].version if place is not None else "", True
    found = giver.answers.get(key, "")
    return found if isinstance(found, str) else ""


def _blind(lack: Missing) -> str:
    return f"{lack.module}:{lack.name or ''}:blind"


def wheel_alone(wheel: Wheel, opened: Opener, python: int) -> ImportSet | None:
    """The modules of one wheel, to ask what it has and what it certainly lacks; None if it cannot be read."""
    return _Shelved(wheel, None, opened).alone(python)


class _Shelved:
    """One wheel: what is kept of it, and its sources if that is not enough."""

    def __init__(self, wheel: Wheel, cache: Path | None, opened: Opener | None) -> None:
        self.wheel, self.opener = wheel, opened
        self.place = reading_path(wheel.sha256, "modules", cache)
        self.kept: dict[str, str] = {}
        self.answers: dict[str, Any] = {}
        """To what was asked of all of its sources."""
        self.paths: list[str] = []
        self.new = False
        self.known = self._load()
        self.sources: WheelSources | None = None
        self.words: frozenset[bytes] | None = None
        self.exports: dict[str, list[str]] | None = None
        """The modules by the names in their ``__all__``; under an empty one those that are not read."""
        self.texts: dict[str, frozenset[bytes] | None] = {}
        """The names in compiled modules."""
        self.doubted: dict[str, set[str]] = {}
        """The names that a set's imports take from a module, of which its compiled code alone can tell."""
        self.takings: dict[str, frozenset[bytes] | None] = {}
        """The names that the sources take from a module."""
        self.seen: dict[str, ModuleNames | None] = {}
        self.reach: ImportWords | None = None
        self.others: dict[str, _Shelved] = {}
        """Other releases that were asked last, by sha256: each name that is lacking goes to the same few."""
        self.unread = False
        """Whether a module that an import comes to could not be read, or a source that may add to one."""
        if not self.known and (sources := self.opened()) is not None:
            self.paths, self.known, self.new = list(sources.paths()), True, True
        self.files = self._files() if self.known else None

    def _load(self) -> bool:
        reading = load_reading(self.place)
        if reading is None or reading.unread or reading.values.get("reader") != _READER:
            return False
        values = reading.values
        paths, kept, answers = (values.get(name) for name in ("paths", "modules", "answers"))
        if not (isinstance(paths, list) and isinstance(kept, dict) and isinstance(answers, dict)):
            return False  # a cache that somebody else wrote
        self.paths, self.kept, self.answers = list(map(str, paths)), kept, answers
        return True

    def _files(self) -> WheelFiles:
        return wheel_files(canonical(self.wheel.name), self.wheel.version, self.paths)

    @property
    def roots(self) -> tuple[str, ...]:
        return self.files.roots if self.files is not None else ()

    @property
    def beside(self) -> tuple[str, ...]:
        return self.files.beside if self.files is not None else ()

    @property
    def libraries(self) -> list[str]:
        return [path for path in self.paths if ".so" in path]

    def commands(self) -> tuple[str, ...]:
        """The modules that its console scripts import, but for those of an extra."""
        if "commands" not in self.answers and (sources := self.opened()) is not None:
            path = next((one for one in self.paths if _ENTRIES.fullmatch(one)), None)
            content = sources.read(path) if path is not None else b""
            if content is not None:
                section = _CONSOLE.search(content.decode("utf-8", "replace"))
                found = _COMMAND.findall(section[1]) if section is not None else []
                self.answers["commands"], self.new = sorted(set(found)), True
        found = self.answers.get("commands", ())
        return tuple(map(str, found)) if isinstance(found, list) else ()

    def opened(self) -> WheelSources | None:
        if self.sources is None and self.opener is not None:
            self.sources = self.opener(self.wheel)
            if self.sources is None:
                self.opener = None
        return self.sources

    def read(self, module: str) -> ModuleNames | None:
        if module not in self.seen:
            self.seen[module] = self._kept(module) or self._read(module)
        return self.seen[module]

    def _kept(self, module: str) -> ModuleNames | None:
        try:
            return ModuleNames.of_list(json.loads(self.kept[module])) if module in self.kept else None
        except (TypeError, ValueError, AttributeError):
            return None  # a cache that somebody else wrote

    def _read(self, module: str) -> ModuleNames | None:
        sources = self.opened()
        path = self.files.modules.get(module) if self.files is not None else None
        content = sources.read(path) if sources is not None and path is not None else None
        if content is None or self.files is None:
            self.unread |= path is not None
            return None
        key = hashlib.sha256(content).digest(), module, module in self.files.packages
        if key not in _READ_HERE:
            if len(_READ_HERE) >= _MOST_READ:
                _READ_HERE.clear()
            found = names_of(content, module, package=key[2])
            _READ_HERE[key] = found, json.dumps(found.as_list(), separators=(",", ":"))
        self.seen[module], self.kept[module] = _READ_HERE[key]
        self.new = True
        return self.seen[module]

    def has(self, lack: Missing, python: int) -> bool | None:
        """Whether this wheel, by itself, has what another release of it lacks."""
        alone = self.alone(python)
        if alone is None:
            return None
        found = alone.there(lack.module) if lack.name is None else alone.has(lack.module, lack.name)
        if found is None and lack.name is not None and alone.is_compiled(lack.module):
            found = self.compiled(lack.module, lack.name)
        return found

    def other(self, wheel: Wheel, cache: Path | None) -> "_Shelved":
        """Another release."""
        one = self.others.pop(wheel.sha256, None) or _Shelved(wheel, cache, self.opener)
        self.others[wheel.sha256] = one
        while len(self.others) > _MOST_OTHERS:
            self.others.pop(next(iter(self.others))).keep()
        return one

    def gives(self, lack: Missing, python: int, other: "_Shelved") -> bool | None:
        """Whether this wheel has what ``other``, another release, lacks: so its sources say, or compiled code
        that refers to the name, where that of the other one does not.
        """
        source = other.files is not None and other.files.modules.get(lack.module)
        unsaid = source and lack.name is not None and other.mentions(lack.name) is False
        by_code = lack.untold and not unsaid  # that alone
        found = None if by_code else self.has(lack, python)
        if found is not None or lack.name is None or not lack.doubt:
            return found
        mine, others = (one.texts_of(lack.module, lack.name, other.doubted) for one in (self, other))
        # a library that nobody could read has it, or not, in both of them
        known = all(told is False or told == mine.get(library) == _UNREAD for library, told in others.items())
        if known and any(told is True and others.get(library) is False for library, told in mine.items()):
            return True
        by_word = known and not by_code and (False in others.values() or not others)
        return self.takes(lack.module, lack.name) if by_word else None

    def is_blind(self, lack: Missing, other: "_Shelved") -> bool:
        """Whether this wheel, or a library of one of the two, could not be read, so that nothing tells apart
        what ``other``, another release, lacks."""
        if self.files is None or lack.name is None or not lack.doubt:
            return self.files is None
        mine, others = (one.texts_of(lack.module, lack.name, other.doubted) for one in (self, other))
        return any((told == _UNREAD) != (mine[one] == _UNREAD) for one, told in others.items() if one in mine)

    def blind(self, lack: Missing) -> bool:
        """Whether it was so with one of its other releases."""
        return self.answers.get(_blind(lack)) is True

    def alone(self, python: int) -> ImportSet | None:
        """This wheel and no other one; None if nobody has read it."""
        if self.files is None:
            return None
        return ImportSet(
            [self.files],
            lambda _, module: self.read(module),
            python,
            mentions=lambda _, word: self.mentions(word),
            brings=lambda _, lacks: self.brings(lacks),
        )

    def content(self, module: str) -> str:
        """A text for a module's content; empty for one that others may have, or that is not read."""
        key = f"{module}:content"
        path = self.files.modules.get(module) if self.files is not None else None
        sources = self.opened() if key not in self.answers and path is not None else None
        if sources is not None and path is not None and (content := sources.read(path)) is not None:
            found = "" if is_of_several(content) else hashlib.sha256(content).hexdigest()
            self.answers[key], self.new = found, True
        return str(self.answers.get(key, ""))

    def compiled(self, module: str, name: str) -> bool | None:
        """Whether a compiled module has a name."""
        key = f"{module}:{name}:compiled"
        if key not in self.answers and (sources := self.opened()) is not None:
            if module not in self.texts:  # a module of ten megabytes can be asked for a hundred names
                path = next(iter(self.compiled_parts(module)), None)
                content = sources.read(path) if path is not None else None
                if path is not None and content is None:
                    return None
                self.texts[module] = names_of_cython(content) if content is not None else None
            texts = self.texts[module]
            known = texts is not None and name.isascii()
            self.answers[key], self.new = name.encode() in (texts or ()) if known else None, True
        found = self.answers.get(key)
        return found if isinstance(found, bool) else None

    def refers(self, module: str, name: str) -> bool:
        """Whether compiled code that a module has its names of certainly has a use for this one."""
        return True in self.texts_of(module, name, self.doubted).values()

    def texts_of(
        self, module: str, name: str, doubted: Mapping[str, Collection[str]]
    ) -> Mapping[str, bool | str | None]:
        """By library with which a module's compiled code is linked: whether it refers to a name, None if that
        is not certain; :data:`_UNREAD` for one that was not read. The libraries are read once for all names
        that are ``doubted`` of a module.
        """
        key = f"{module}:{name}:texts"
        if key not in self.answers and (sources := self.opened()) is not None:
            names = {name, *doubted.get(module, ())}
            answers: dict[str, dict[str, bool | str | None]] = {one: {} for one in names}
            for path, texts in linked_texts(sources.read, self.compiled_parts(module), self.paths):
                for one, answer in answers.items():
                    answer[path] = texts.refers(one.encode()) if texts is not None else _UNREAD
            self.answers |= {f"{module}:{one}:texts": answer for one, answer in answers.items()}
            self.new = True
        found = self.answers.get(key)
        return found if isinstance(found, dict) else {}

    def compiled_parts(self, module: str) -> list[str]:
        """The files of a compiled module, or of those of which a module takes all names."""
        found = self.read(module) if self.files is not None and self.files.modules.get(module) else None
        stems = (one.replace(".", "/") for one in (found.stars if found is not None else (module,)))
        named = [re.compile(rf"(?:.*/)?{re.escape(stem)}(?:\.[\w-]+)*\.so") for stem in stems]
        return [path for path in self.paths if any(one.fullmatch(path) for one in named)]

    def takes(self, module: str, name: str) -> bool | None:
        """Whether the sources take a name from a module, by the module's name or another one of theirs."""
        key = f"{module}:{name}:taken"
        if key not in self.answers and (sources := self.opened()) is not None:
            if module not in self.takings:
                found = self.read(module)
                of = (module, *(found.stars if found is not None else ()))
                self.takings[module] = names_taken((content for _, content in sources.every()), of)
            if (every := self.takings[module]) is not None:
                self.answers[key], self.new = name.encode() in every, True
        answer = self.answers.get(key)
        return answer if isinstance(answer, bool) else None

    def mentions(self, word: str) -> bool | None:
        """Whether a word is anywhere in the sources."""
        if word not in self.answers:
            if self.words is None:
                self.words = words_of(opened.every()) if (opened := self.opened()) is not None else None
            if self.words is None:
                return None
            self.answers[word] = word.encode() in self.words
            self.new = True
        return None if self.answers[word] not in {True, False} else bool(self.answers[word])

    def exporting(self, folder: str, name: str) -> Sequence[str] | None:
        """The modules below a folder whose sources have a name in ``__all__``."""
        key = f"{folder}:{name}:exported"
        if key not in self.answers and (sources := self.opened()) is not None and self.files is not None:
            if self.exports is None:
                modules = {path: module for module, path in self.files.modules.items() if path is not None}
                self.exports = exports_of(sources.every(), modules)
            if "" in self.exports:
                return None
            inner = (one for one in self.exports.get(name, ()) if one.startswith(f"{folder}."))
            self.answers[key], self.new = sorted(inner), True
        found = self.answers.get(key)
        return list(map(str, found)) if isinstance(found, list) else None

    def imports(self, module: str) -> bool | None:
        """Whether a source may import a module, also by its name as a text."""
        key = f"{module}:imported"
        if key not in self.answers and (sources := self.opened()) is not None:
            word = re.escape(module.encode())
            named = re.compile(
                rb"^[ \t]*(?:import|from)\b[^\n]*\b" + word + rb"\b|['\"]" + word + rb"\b",
                re.MULTILINE | re.IGNORECASE,
            )
            every = [content is None or named.search(content) is not None for _, content in sources.every()]
            self.answers[key], self.new = any(every), True
        return self.answers.get(key)

    def brings(self, lacks: Sequence[Lack]) -> Sequence[bool | None]:
        """Whether the sources may add each of these names to its module."""
        asked = {lack: f"{lack[0]}:{lack[1] if lack[1] is not None else ':added'}" for lack in lacks}
        new = [lack for lack, key in asked.items() if key not in self.answers]
        sources = self.opened() if new else None
        if sources is not None:
            self.answers |= {
                asked[lack]: found for lack, found in brought(sources.every(), new, self.files).items()
            }
            self.new = True
        self.unread |= any(asked[lack] not in self.answers for lack in new)
        return [False if self.answers.get(asked[lack]) is False else None for lack in lacks]

    def adders(self, module: str) -> Sequence[str] | None:
        """The modules that may add a folder in which one lies to those that are searched; by paths, since
        ``gql-0.2.0``, which is no module, can be one."""
        held = re.compile(
            rf"(.+/[^/]+)/{re.escape(module)}(?:\.py|/.*)|([^/]+)/{re.escape(module)}(?:\.py|/.*)"
        )
        folders = {found[1] or found[2] for one in self.paths if (found := held.fullmatch(one))}
        key = f"{module}:adders"
        sources = self.opened() if folders and key not in self.answers else None
        if sources is not None and self.files is not None:
            self.answers[key], self.new = adding_folders(sources.every(), self.files, folders), True
        return self._list(key) if folders else ()

    def importers(self, module: str) -> Sequence[str] | None:
        """The modules that may import one when they are imported."""
        key = f"{module}:importers"
        if key not in self.answers and (sources := self.opened()) is not None and self.files is not None:
            self.reach = self.reach or ImportWords(sources.every(), self.files)
            self.answers[key], self.new = self.reach.importing(module, sources.read), True
        return self._list(key)

    def _list(self, key: str) -> list[str] | None:
        found = self.answers.get(key)
        return list(map(str, found)) if isinstance(found, list) else None

    def keep(self) -> None:
        if self.new and self.place is not None:
            kept, answers = self.kept, self.answers
            self._load()  # another process may have read more of it meanwhile
            self.kept, self.answers = self.kept | kept, self.answers | answers
            values = {
                "reader": _READER,
                "paths": self.paths,
                "modules": self.kept,
                "answers": self.answers,
            }
            save_reading(self.place, WheelReading(file=self.wheel.file, values=values))
            self.new = False
        for other in self.others.values():
            other.keep()
        self.others.clear()
