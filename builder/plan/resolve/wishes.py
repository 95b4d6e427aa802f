"""What is asked for: requirements with their places, out of arguments and of a project's files.

What cannot go into an image by name and version is not dropped in silence: it becomes a note with its line.
"""

import itertools
import os
import re
import shlex
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self
from urllib.parse import unquote, urlsplit, urlunsplit

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.tags import Tag
from packaging.version import Version

from builder.core.documents import CONTROL, redact
from builder.core.errors import UsageError
from builder.core.versions import (
    NO_NUMBER,
    WITH_PKG_RESOURCES,
    apart,
    canonical,
    contains,
    holds,
    pinned,
)
from builder.plan.facts.tables import load
from builder.plan.resolve.project_texts import LONGEST, is_file, is_folder, is_project, may_compile, quoted
from builder.sources.index import MACHINES, environment, wheel_name

_MOST_WISHES = 5000
_ADDRESS = re.compile(r"[\w+.-]+://|git\+|\.|/|\S+\.(?:whl|tar\.gz|zip)\s*$")
"""Files and addresses in place of a name."""
_SOURCES = re.compile(r"(?:[^@;/\\]*@\s*)?(?:(?:git|hg|svn|bzr)\+|file:)|(?:\.|~|[^\s:;@'\"]*[/\\])(?!/)")
"""A folder, or a repository of a version control system: https://pip.pypa.io/en/stable/topics/vcs-support/"""
OWN_SOURCE = "built from the repository's own source: not part of the set; build it in the image"

_VARIANT = re.compile(r"cu\d{2,3}")
_AS_IN = "as in 'tensorflow==2.15.*'"
_VERSION = re.compile(r"[vV]?\d+(?:\.\d+)*(?:\.\*)?(?:\+cu\d+)?")
_FILES = re.compile(
    r"(?i).*(?:\.(?:txt|in|ipynb|ya?ml|lock)|dockerfile|(?:pyproject|pylock)\.toml|setup\.(?:py|cfg)|pipfile)"
)
"""Names of files that ``-r`` reads."""
_OTHERS = re.compile(
    r"\s*(?P<name>[A-Za-z][\w.-]*?)\s*(?:[=@: -]|=>|=<)\s*v?(?P<version>\d[\w.+]*(?:\.\*)?)"
    r"(?:=[\w.*]+)?\s*"
)
"""A release as conda, npm, docker and people write it: ``torch=2.1``, ``torch@2.1``, ``torch:2.1``."""
_OF_CUDA = frozenset(("cuda", "cudatoolkit", "pytorch-cuda", "cuda-toolkit", "cuda-version", "cudnn"))


def _several(text: str) -> list[str]:
    """The requirements in a text that has several, with commas between: ``torch==2.1,numpy``."""
    found = [part for part in re.split(r",\s*(?=[A-Za-z])", text.strip()) if part]
    try:
        return [str(Requirement(part)) for part in found] if len(found) > 1 else []
    except ValueError:
        return []


def _as_in(text: str) -> str:
    """A hint for a text that is no requirement: the one that was probably meant."""
    other = _OTHERS.fullmatch(text)
    if other is None:
        return f"did you mean {' '.join(several)}?" if (several := _several(text)) else _AS_IN
    if canonical(other["name"]) in _OF_CUDA:
        return (
            "a framework's build brings its CUDA and cuDNN: name the build, as in 'torch==2.1.0+cu121'; "
            "a conda environment is read by -r FILE"
        )
    return f"did you mean {other['name']}=={other['version']}?"


_WHEEL = re.compile(
    r"(?:[^@;]+@\s*)?https?://(?P<folder>[^\s;#]*)/(?P<file>[^\s;#/]+\.whl)(?:#\S*)?(?P<marker>\s*;.*)?"
)
"""The address of a wheel, whose file name tells its version."""


TYPED = "as typed"
"""The place of a requirement that is an argument."""


@dataclass(frozen=True, kw_only=True)
class NamedRequirement:
    """One requirement, and where it stands: ``requirements.txt:3``, or :data:`TYPED`."""

    parsed: Requirement
    place: str
    use: str = ""
    """``train.py:12 uses numpy.float``: the source that sets a bound of it, which counts less than any
    requirement; empty if none does.
    """
    loads: SpecifierSet = field(default_factory=SpecifierSet)
    """The releases with a wheel that the system's glibc loads: no others are taken in their place."""
    proven: SpecifierSet = field(default_factory=SpecifierSet)
    """The bounds that the project's own sources set by the names that they take."""
    told: SpecifierSet = field(default_factory=SpecifierSet)
    """The bounds that only a Dockerfile or a README sets: they tell of their author's machine."""
    of_conda: bool = False
    """Whether it stands for a package of conda's: ``opencv-python-headless`` for ``opencv``."""

    @property
    def name(self) -> str:
        return canonical(self.parsed.name)

    def __str__(self) -> str:
        return str(self.parsed)

    def firmly_takes(self, version: str) -> bool:
        """Whether a version is within all bounds but those that are only :attr:`told`."""
        return contains(SpecifierSet(",".join(self._firm())), version)

    def _firm(self) -> set[str]:
        # `in` asks a set of specifiers about versions
        return {*map(str, self.parsed.specifier)} - {*map(str, self.told)}

    def told_beside(self, other: Self) -> SpecifierSet:
        """The bounds that are only told in this and another requirement on the same package."""
        told = {*map(str, self.told), *map(str, other.told)}
        return SpecifierSet(",".join(sorted(told - self._firm() - other._firm())))

    def as_told(self) -> Self:
        """The requirement as a Dockerfile or a README has it beside a project's other files."""
        return replace(self, told=self.parsed.specifier)

    def bound(self, specifier: str, *, extras: bool = True) -> Self:
        """The package with other bounds, whatever its marker; with the same ``extras``, or with none."""
        kept = f"[{','.join(sorted(self.parsed.extras))}]" if extras and self.parsed.extras else ""
        return replace(self, parsed=Requirement(f"{self.parsed.name}{kept}{specifier}"))

    def named(self, other: str) -> Self:
        """Another package with the same bounds and marker; ``other`` may have extras."""
        marker = f" ; {self.parsed.marker}" if self.parsed.marker is not None else ""
        return replace(self, parsed=Requirement(f"{other}{self.parsed.specifier}{marker}"))

    def holds(self, python: str, platform: str = "linux/amd64") -> bool:
        """Whether its marker, if it has one, holds for ``3.11`` on Linux on that processor."""
        return holds(self.parsed, environment(f"{python}.0", machine=MACHINES[platform]))


@dataclass(kw_only=True)
class Wishes:
    """All requirements. ``notes`` name the ones that were not taken over, with line and reason."""

    wishes: list[NamedRequirement] = field(default_factory=list)
    index: list[str] = field(default_factory=list)
    """Extra package indexes, by URL."""
    imports: list[str] = field(default_factory=list)
    """What the source beside them imports, as a cell's ``imports`` has it."""
    python: str | None = None
    """A set of Pythons, as in ``>=3.9``."""
    notes: list[str] = field(default_factory=list)
    bounds: list[NamedRequirement] = field(default_factory=list)
    """Constraints: bounds on what is asked for anyway."""
    places: dict[str, str] = field(default_factory=dict)
    """Where the project names each of :attr:`index`."""
    clashes: list[str] = field(default_factory=list)
    """What was asked for twice, so that no version is both."""
    wheels_for: dict[str, list[str]] = field(default_factory=dict)
    """By Python, ``3.10``: the wheels for Linux, by address, whose file is for it alone."""

    sources: list[tuple[str, str, bool]] = field(default_factory=list)
    """Folders and repositories that are installed from source: the text, its place, and whether it is here.
    Such as compile nothing, by their setup.py, are none of these."""
    itself: str | None = None
    """The project's own folder, as a word of pip's command line, where a list of its own names it."""
    by_hand: list[str] = field(default_factory=list)
    """What pip installs from a folder or a repository after the others, as words of its command line."""
    extras: dict[str, tuple[list[str], str, str]] = field(default_factory=dict)
    """Extras of a project that are not taken over: their requirements, place, and the project's name."""
    pages: dict[str, str] = field(default_factory=dict)
    """Pages of wheels, pip's ``--find-links``, each with its place."""
    used: dict[str, set[str]] = field(default_factory=dict)
    """By the module of a framework, the names that the sources take of it: ``tensorflow.data``."""
    aside: list[NamedRequirement] = field(default_factory=list)
    """Bounds of lists beside the one that is read, on what both name."""
    told: dict[str, NamedRequirement] = field(default_factory=dict)
    """What a README says of releases, by package, and ``python``: it counts less than a requirement."""
    unedited: list[NamedRequirement] = field(default_factory=list)
    """Bounds within which the sources work as they are written; where a machine takes none, others do."""
    compiling: list[tuple[str, str, str]] = field(default_factory=list)
    """What a project says of its own compilation: ``architectures``, ``nvcc``, what compiles CUDA code as
    programs ``run``, at their ``install`` by PyTorch's tool, by a ``script`` of its own (the value: sm_'s
    numbers), ``perhaps``, or against ``tensorflow`` (the CUDA in its paths); the value, and its place."""

    @property
    def compiles_itself(self) -> bool:
        """Whether the project's own folder is compiled as it is installed, beside the framework."""
        own = os.path.normpath(self.itself) if self.itself is not None else None
        places = [
            os.path.normpath(Path(place).parent) for kind, _, place in self.compiling if kind == "install"
        ]
        return own is not None and (own in places or any(here for _, _, here in self.sources))

    def add(self, text: str, place: str) -> None:
        """Take over one requirement; an address in its place is noted.

        Raises:
            UsageError: It is no requirement.
        """
        if len(text) > LONGEST or NO_NUMBER.search(text) or CONTROL.search(text):
            raise UsageError(f"{place}: {quoted(text)!r} is not a requirement", hint=_AS_IN)
        found = _WHEEL.fullmatch(text.strip())
        wheel = wheel_name(unquote(found["file"])) if found else None
        systems = {tag.platform for tag in wheel.tags} if wheel else {"any"}
        if not any(system == "any" or "linux" in system for system in systems):
            self.note(place, text, f"left out: its file is for {', '.join(sorted(systems))}, not Linux")
            return
        if found and wheel and (python := _python_of(wheel.name, wheel.tags, found["marker"] or "")):
            self.wheels_for.setdefault(python, []).append(f"{wheel.name} {wheel.version} ({place})")
        if found and wheel and (load().is_framework(wheel.name) or wheel.name in load().packages):
            exact = f"{wheel.name}=={wheel.version}{_build(wheel.name, wheel.version, found['folder'])}"
            self.note(place, text, f"taken as {exact}: an image installs versions from an index")
            text = exact + (found["marker"] or "")
        if _ADDRESS.match(text) or _SOURCES.match(text):
            self.leave_out(text, place)
            return
        if len(self.wishes) + len(self.notes) >= _MOST_WISHES:
            raise UsageError(f"{place}: more than {_MOST_WISHES} requirements are not read")
        try:
            parsed = Requirement(text)
        except (ValueError, RecursionError) as problem:
            raise UsageError(
                f"{place}: {quoted(text)!r} is not a requirement", hint=_as_in(text)
            ) from problem
        if parsed.url is not None:
            if _OTHERS.fullmatch(text):
                raise UsageError(f"{place}: {quoted(text)!r} is not a requirement", hint=_as_in(text))
            self.leave_out(text, place)
        elif canonical(parsed.name) == "pkg-resources":  # what Debian's `pip freeze` lists as 0.0.0
            self.note(
                place, text, f"taken as {WITH_PKG_RESOURCES}: it is a module of setuptools, and no package"
            )
            marker = f" ; {parsed.marker}" if parsed.marker is not None else ""
            self.add(f"{WITH_PKG_RESOURCES}{marker}", place)
        else:
            self.wishes.append(NamedRequirement(parsed=parsed, place=place))

    def leave_out(self, text: str, place: str) -> None:
        """Note an address or a path in the place of a version."""
        sources = _SOURCES.match(text) and not re.search(r"\.(?:whl|tar\.gz|zip)\s*$", text)
        if sources:
            self.add_source(text, place)
        self.note(
            place,
            text,
            OWN_SOURCE if sources else "not taken over: an image installs versions from an index",
        )

    def add_source(self, text: str, place: str) -> None:
        """Remember a folder or repository that is installed from source, unless it has no CUDA."""
        file = Path(re.split(r":\d+$|, ", place)[0])
        said = text.rpartition("file:")[2].partition("#")[0].partition("[")[0]
        # pip takes a list's paths from where it is called, which is the project's folder
        bases = [file.parent, *(one for one in [*file.parents][1:3] if one in file.parent.parents)]
        folder = next((one / said for one in bases if is_project(one / said)), file.parent / said)
        away = "+" in text.partition("/")[0] or not is_folder(folder)
        here = os.path.normpath(folder)
        typed = text.strip() if away else here if folder.is_absolute() else f".{os.sep}{here}"
        if not away and Path(here) in (file.parent, *file.parent.parents):
            # its requirements are those that are resolved: again, they would undo the set
            if not is_project(folder):
                return  # a folder of lists, which nothing installs
            typed = "." if here == "." else typed
            self.itself = self.itself or typed
            if may_compile(folder):
                self.sources.append((quoted(text), place, True))
            return
        known = {one.rpartition("@ ")[2] for one in self.by_hand}
        if CONTROL.search(text) is None and typed.rpartition("@ ")[2] not in known:
            self.by_hand.append(redact(typed))
        if away or may_compile(folder):
            self.sources.append((quoted(text), place, not away))

    def note(self, place: str, text: str, why: str) -> None:
        """Say what became of a text that is no requirement; without logins, for it may be an address."""
        self.notes.append(f"{place}: {quoted(text)}: {why}")

    def add_index(self, url: str, place: str) -> None:
        """Take over a package index; of an address with a login, the address alone."""
        try:
            parts = urlsplit(url)
            plain = urlunsplit((*parts[:1], parts.netloc.rpartition("@")[2], parts.path, "", ""))
            good = parts.scheme in {"http", "https"} and bool(parts.hostname)
        except ValueError:
            good, plain = False, ""
        if not good or CONTROL.search(url):
            self.note(place, url, "no address of a package index, left out")
            return
        if re.search(r"/nightly(?:/|$)", plain):
            self.note(place, url, "its builds are of last night, left out: releases are taken")
            return
        if plain != url:
            why = "its login is left out: a matrix is committed; it belongs into uv's or pip's configuration"
            self.note(place, plain, why)
        if plain not in self.index:
            self.index.append(plain)
        self.places.setdefault(plain, place)

    def take_bounds(self, constraints: "Wishes") -> None:
        """Take over another source's requirements as bounds on what is asked for anyway."""
        self.bounds += (*constraints.wishes, *constraints.bounds)
        self.notes += constraints.notes

    def take_over(self, other: "Wishes") -> None:
        """Add all of another source's; the Python of the first that names one stays, or one within that."""
        self.wishes += other.wishes
        self.index += [url for url in other.index if url not in self.index]
        self.notes += other.notes
        self.imports += other.imports
        self.sources += other.sources
        self.itself = self.itself or other.itself
        known = {one.rpartition("@ ")[2] for one in self.by_hand}
        self.by_hand += [text for text in other.by_hand if text.rpartition("@ ")[2] not in known]
        self.extras = {**other.extras, **self.extras}
        self.pages = {**other.pages, **self.pages}
        self.compiling += other.compiling
        self.unedited += other.unedited
        self.aside += other.aside
        for module, taken in other.used.items():
            self.used.setdefault(module, set()).update(taken)
        self.told = {**other.told, **self.told}
        self.bounds += other.bounds
        self.places = {**other.places, **self.places}
        for python, wheels in other.wheels_for.items():
            self.wheels_for.setdefault(python, []).extend(wheels)
        if self.python is None or (other.python is not None and _is_within(other.python, self.python)):
            self.python = other.python

    def merged(self) -> Self:
        """One requirement for each package and marker, with the bounds of all."""
        found: dict[tuple[str, str], NamedRequirement] = {}
        self._leave_other_pins()
        names = {wish.name for wish in self.wishes}
        for wish in (*self.wishes, *self._bounded(names)):
            key = (wish.name, str(wish.parsed.marker or ""))
            before = found.get(key)
            if before is not None:
                parsed = Requirement(str(before.parsed))
                parsed.specifier &= wish.parsed.specifier
                parsed.extras |= wish.parsed.extras
                places = dict.fromkeys((before.place, wish.place))
                place, use = ", ".join(places), before.use or wish.use
                proven, told_ = before.proven & wish.proven, before.told_beside(wish)
                wish = NamedRequirement(  # noqa: PLW2901
                    parsed=parsed, place=place, use=use, proven=proven, told=told_
                )
            found[key] = wish
        unused = [wish for wish in self.bounds if wish.name not in names]
        others = f" and {len(unused) - 6} more" if len(unused) > 6 else ""
        told = ", ".join(map(str, unused[:6]))
        notes = [f"constraints on what nothing here names, not taken over: {told}{others}"] if unused else []
        if self.extras:
            others = f" and {len(self.extras) - 12} more" if len(self.extras) > 12 else ""
            told = ", ".join(map(quoted, list(self.extras)[:12]))
            way = "-r 'FOLDER[EXTRA]' takes one, as pip does"
            notes.append(f"extras of the project that are not taken over: {told}{others}; {way}")
        clashes, python = self._clashes(), self.python
        if len(self.wheels_for) == 1:
            ((only, wheels),) = self.wheels_for.items()
            if python is None or _is_within(only, python):
                python = only
                more = f" and {len(wheels) - 3} more" if len(wheels) > 3 else ""
                notes.append(f"Python {only}: the files of {', '.join(wheels[:3])}{more} are for it alone")
        return replace(
            self,
            wishes=list(found.values()),
            clashes=clashes,
            notes=self.notes + notes,
            bounds=[],
            python=python,
        )

    def _leave_other_pins(self) -> None:
        """Leave out what files pin to another release than one that was read before: no release is both."""
        pins: dict[tuple[str, str], NamedRequirement] = {}
        for wish in [one for one in self.wishes if one.place != TYPED and pinned(one.parsed)]:
            first = pins.setdefault((wish.name, str(wish.parsed.marker or "")), wish)
            if first is not wish and apart(wish.parsed.specifier, first.parsed.specifier):
                self.wishes = [one for one in self.wishes if one is not wish]
                self.note(wish.place, str(wish), f"left out: {first.place} has {first}")

    def _bounded(self, names: Collection[str]) -> Iterator[NamedRequirement]:
        """The constraints on what is asked for, under each marker that it is asked for by."""
        for bound in self.bounds:
            mine = [wish for wish in self.wishes if wish.name == bound.name]
            if bound.use and any(apart(o.parsed.specifier, bound.parsed.specifier) for o in mine):
                continue
            markers = {str(wish.parsed.marker or "") for wish in mine}
            for marker in sorted(markers) if bound.name in names else ():
                text = f"{bound.parsed.name}{bound.parsed.specifier}" + (f" ; {marker}" if marker else "")
                yield replace(bound, parsed=Requirement(text))

    def _clashes(self) -> list[str]:
        """Each package whose requirements under one marker no version satisfies, with all their places."""
        mine: dict[tuple[str, str], list[NamedRequirement]] = {}
        for wish in (*self.wishes, *self._bounded({wish.name for wish in self.wishes})):
            mine.setdefault((wish.name, str(wish.parsed.marker or "")), []).append(wish)
        said = []
        for wishes in mine.values():
            pairs = itertools.combinations(wishes, 2)
            if any(apart(one.parsed.specifier, two.parsed.specifier) for one, two in pairs):
                named = " and ".join(dict.fromkeys(f"{wish} ({wish.place})" for wish in wishes))
                said.append(f"{named}: no version is {'both' if len(wishes) == 2 else 'all of these'}")
        return said

    def once(self, *, first: bool = False) -> Self:
        """The last of several requirements on one package in a notebook, as pip has it; with ``first`` the
        first, as of a README, whose later lines are for other machines and uses.
        """
        latest: dict[str, NamedRequirement] = {}
        notes = list(self.notes)
        for wish in reversed(self.wishes) if first else self.wishes:
            before = latest.pop(wish.name, None)
            if before is not None and str(before) != str(wish):
                notes.append(f"{before.place}: {before}: replaced by {wish} ({wish.place})")
            latest[wish.name] = wish
        kept = list(latest.values())
        return replace(self, wishes=kept[::-1] if first else kept, notes=notes)


def _is_within(one: str, other: str) -> bool:
    """Whether a Python, ``3.6``, is one of a set of them, ``>=3.5``."""
    exact = re.fullmatch(r"(?:==\s*)?(\d+\.\d+)(?:\.[\d*]+)?", one.strip())
    try:
        return exact is not None and contains(SpecifierSet(other), f"{exact[1]}.99")
    except ValueError:
        return False


def _python_of(name: str, tags: Collection[Tag], marker: str) -> str | None:
    """The one Python, ``3.10``, that a wheel's file is for; None for several, or where its marker does not
    hold for it on Linux.
    """
    found = {re.fullmatch(r"cp(3)(\d+)", tag.interpreter) for tag in tags if tag.abi != "abi3"}
    match = found.pop() if len(found) == 1 else None
    try:
        asked = Requirement(f"{name}{marker}")
    except ValueError:
        return None
    python = f"{match[1]}.{match[2]}" if match else ""
    held = (holds(asked, environment(f"{python}.0", machine=one)) for one in MACHINES.values() if python)
    return python if any(held) else None


def _build(name: str, version: Version, folder: str) -> str:
    """``+cu102`` of PyTorch's ``whl/cu102/torch-1.8.1-…``, whose file name does not tell its CUDA."""
    parts = [part for part in folder.split("/") if _VARIANT.fullmatch(part)]
    if not parts or version.local is not None or not load().is_framework(name):
        return ""
    return f"+{parts[-1]}" if any(_VARIANT.fullmatch(row.variant) for row in load().table(name).rows) else ""


def from_arguments(texts: Iterable[str]) -> Wishes:
    """The requirements on the command line. Raises UsageError."""
    found, before = Wishes(), "torch"
    for text in texts:
        if _VERSION.fullmatch(text):
            said = f"{TYPED}: {quoted(text)} is a version, and no package"
            raise UsageError(said, hint=f"did you mean {before}=={text}?")
        if _FILES.fullmatch(text):
            said = f"{TYPED}: {quoted(text)} is the name of a file, and no package"
            path = shlex.quote(quoted(text))
            matrix = f"; a matrix is judged by `rtbuild check {path}`" * text.endswith((".yml", ".yaml"))
            raise UsageError(said, hint=f"`rtbuild resolve -r {path}` reads it{matrix}")
        known = load().is_framework(text) or canonical(text) in load().packages
        if is_folder(Path(text)) and (os.sep in text or not known):
            package = f"; for the package of that name write '{quoted(text)}>=0'" * (os.sep not in text)
            way = f"`rtbuild resolve -r {shlex.quote(quoted(text))}` reads the files of its project"
            raise UsageError(f"{quoted(text)!r} is a folder", hint=way + package)
        if "." in text and not known and is_file(Path(text)):
            said = f"{TYPED}: {quoted(text)} is the name of a file, and no package"
            raise UsageError(said, hint=f"`rtbuild resolve -r {shlex.quote(quoted(text))}` reads it as text")
        if re.match(r"[A-Za-z0-9][\w.-]*/[^@\s]*$", text):
            said = f"{TYPED}: {quoted(text)} is a path, an image or a repository, and no package"
            raise UsageError(said, hint=_AS_IN)
        before = text
        found.add(text, TYPED)
    return found
