"""Requirements out of lines as pip takes them, each with the place where it stands.

``requirements.txt`` (with its options, hashes, editable lines, URLs, constraints and nested files), and lines
that install by pip. What cannot go into an image by name and version is not dropped in silence: it becomes a
note with its line.

The format: https://pip.pypa.io/en/stable/reference/requirements-file-format/
"""

import codecs
import contextlib
import itertools
import os
import re
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self
from urllib.parse import unquote, urlsplit, urlunsplit

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.tags import Tag
from packaging.version import Version

from builder.core.documents import CONTROL, read_file, redact, shown
from builder.core.errors import UsageError
from builder.core.versions import (
    NO_NUMBER,
    WITH_PKG_RESOURCES,
    apart,
    canonical,
    contains,
    holds,
    pinned,
    requirement,
)
from builder.plan.facts.tables import load
from builder.sources.index import MACHINES, environment, wheel_name

MOST_BYTES = 16 << 20
"""Bytes that a file is read to at most; notebooks hold pictures."""
_MOST_WISHES, _MOST_FILES = 5000, 200
LONGEST_LINE = 64 << 10
"""Letters of a line, of several joined by backslashes, too."""
LONGEST = 4096
"""Letters of one requirement."""
_DEPTH = 8
"""How deep requirements files may name one another."""

_INDEX = ("--extra-index-url", "--index-url", "-i", "--index", "--default-index")
_VALUED = (
    *_INDEX, "-r", "--requirement", "-c", "--constraint", "-e", "--editable", "-f", "--find-links", "-t",
    "--target", "--root", "--prefix", "--platform", "--python-version", "--no-binary", "--only-binary",
    "--progress-bar", "--trusted-host", "--proxy", "--timeout", "--retries", "--cache-dir", "--hash",
    "--config-settings", "-C", "--global-option", "--log", "--upgrade-strategy", "--use-feature", "--python",
)  # fmt: skip
"""Options of ``pip install`` that take a value, which is no requirement."""
_NAMES_FILE, _NAMES_BOUNDS = ("-r", "--requirement"), ("-c", "--constraint")
_ADDRESS = re.compile(r"[\w+.-]+://|git\+|\.|/|\S+\.(?:whl|tar\.gz|zip)\s*$")
"""Files and addresses in place of a name."""
_SOURCES = re.compile(r"(?:[^@;/\\]*@\s*)?(?:(?:git|hg|svn|bzr)\+|file:)|(?:\.|~|[^\s:;@'\"]*[/\\])(?!/)")
"""A folder, or a repository of a version control system: https://pip.pypa.io/en/stable/topics/vcs-support/"""
OWN_SOURCE = "built from the repository's own source: not part of the set; build it in the image"

_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # it begins with the mark of UTF-16
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)

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
    compiling: list[tuple[str, str, str]] = field(default_factory=list)
    """What a project says of its own compilation: ``architectures``, ``nvcc``, what compiles CUDA code as
    programs ``run``, at their ``install`` by PyTorch's tool, by a ``script`` of its own (the value: sm_'s
    numbers), or ``perhaps``; the value, and its place."""

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
        folder = next((one / said for one in bases if _is_project(one / said)), file.parent / said)
        away = "+" in text.partition("/")[0] or not _is_folder(folder)
        here = os.path.normpath(folder)
        typed = text.strip() if away else here if folder.is_absolute() else f".{os.sep}{here}"
        if not away and Path(here) in (file.parent, *file.parent.parents):
            # its requirements are those that are resolved: again, they would undo the set
            if not _is_project(folder):
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
        if _is_folder(Path(text)) and (os.sep in text or not known):
            package = f"; for the package of that name write '{quoted(text)}>=0'" * (os.sep not in text)
            way = f"`rtbuild resolve -r {shlex.quote(quoted(text))}` reads the files of its project"
            raise UsageError(f"{quoted(text)!r} is a folder", hint=way + package)
        if "." in text and not known and _is_file(Path(text)):
            said = f"{TYPED}: {quoted(text)} is the name of a file, and no package"
            raise UsageError(said, hint=f"`rtbuild resolve -r {shlex.quote(quoted(text))}` reads it as text")
        if re.match(r"[A-Za-z0-9][\w.-]*/[^@\s]*$", text):
            said = f"{TYPED}: {quoted(text)} is a path, an image or a repository, and no package"
            raise UsageError(said, hint=_AS_IN)
        before = text
        found.add(text, TYPED)
    return found


def may_compile(folder: Path) -> bool:
    """Whether a project's folder may have CUDA code that its installation compiles: setuptools does that by
    setup.py alone, scikit-build by CMake.
    """
    if not _is_file(folder / "setup.py"):
        return _is_file(folder / "CMakeLists.txt") or not _is_file(folder / "pyproject.toml")
    with contextlib.suppress(UsageError):
        return re.search(r"CUDAExtension|CUDA_HOME|nvcc", read_text(folder / "setup.py")) is not None
    return True


def _is_project(folder: Path) -> bool:
    """Whether pip can install a folder: https://packaging.python.org/en/latest/tutorials/installing-packages/"""
    return _is_file(folder / "setup.py") or _is_file(folder / "pyproject.toml")


def _is_folder(path: Path) -> bool:
    with contextlib.suppress(OSError, ValueError):  # a name that no file can have
        return path.is_dir()
    return False


def _is_file(path: Path) -> bool:
    with contextlib.suppress(OSError, ValueError):
        return path.is_file()
    return False


def from_requirements(path: Path) -> Wishes:
    """A requirements file, with the files that it names. Raises UsageError, with file and line."""
    found = Wishes()
    _requirements(path, found, (), iter(range(_MOST_FILES)))
    return found


def _requirements(path: Path, found: Wishes, above: tuple[Path, ...], left: Iterator[int]) -> None:
    if CONTROL.search(str(path)):
        raise UsageError(f"{quoted(str(path))!r} is the name of no file that is read")
    if _is_folder(path):
        raise UsageError(f"{path} is a folder, and no requirements file")
    resolved = Path(os.path.realpath(path))  # Path.resolve() raises for links in a circle
    if next(left, None) is None:
        raise UsageError(f"{path}: more than {_MOST_FILES} requirements files are not read")
    if resolved in above or len(above) >= _DEPTH:
        how = "in a circle" if resolved in above else "too deep"
        raise UsageError(f"{path}: requirements files name one another {how}")
    text = read_text(path)
    if (head := _PIP_LIST.search(text)) is not None:
        _pip_list(path, text, text.count("\n", 0, head.end()) + 1, found)
        return
    for number, line in _logical_lines(text):
        _line(
            line,
            f"{path}:{number}",
            found,
            lambda name, into: _nested(path, name, into, (*above, resolved), left),
        )


def _nested(path: Path, name: str, found: Wishes, above: tuple[Path, ...], left: Iterator[int]) -> None:
    """The file that another one names, from that one's folder. Raises UsageError; _AbsentError without it."""
    file = path.parent / name
    if not CONTROL.search(name) and not os.path.lexists(file):
        raise _AbsentError(f"there is no {file} here, and what it asks for is not known")
    _requirements(file, found, above, left)


class _AbsentError(UsageError):
    """A file that another one names is not there."""


_PIP_LIST = re.compile(r"^Package +Version(?: +[^\n]*)?\r?\n-+ +-+[- ]*$", re.MULTILINE)
_NOT_FROZEN = frozenset(("pip", "setuptools", "wheel", "distribute"))


def _pip_list(path: Path, text: str, after: int, found: Wishes) -> None:
    """The packages of ``pip list``'s table, as ``pip freeze`` has them: less pip and what it builds with.

    https://pip.pypa.io/en/stable/cli/pip_list/, https://pip.pypa.io/en/stable/cli/pip_freeze/
    """
    for number, line in enumerate(text.splitlines(), 1):
        name, version, *more = [*line.split(), "", ""][:3] if number > after else ("", "")
        if not re.fullmatch(r"\w[\w.-]* [\w.+!-]+", f"{name} {version}"):
            continue  # what a console prints beside
        if more[0]:
            found.leave_out(line, f"{path}:{number}")
        elif canonical(name) not in _NOT_FROZEN:
            found.add(f"{name}=={version}", f"{path}:{number}")


def add_line(line: str, place: str, path: Path, found: Wishes) -> None:
    """A line as a requirements file has it, which stands in another kind of file. Raises UsageError."""
    left = iter(range(_MOST_FILES))
    _line(line, place, found, lambda name, into: _nested(path, name, into, (), left))


def _line(line: str, place: str, found: Wishes, take_file: Callable[[str, Wishes], None]) -> None:
    _refuse_long(line, place)
    if not line.startswith("-"):
        text, *options = re.split(r"\s(?=--\w)", line)
        if any(option.startswith("--hash") for option in options):
            found.note(place, text, "its hashes are left out: the lock has its own")
        found.add(text.strip(), place)
        return
    try:
        option, value = _option(shlex.split(line))
    except ValueError as problem:
        raise UsageError(f"{place}: {quoted(line)}: {problem}") from problem
    if option in (*_NAMES_FILE, *_NAMES_BOUNDS) and "://" in value:
        found.note(place, line, "it lies on the web, and is not read; download it, and name the copy")
    elif option in _NAMES_FILE:
        try:
            take_file(value, found)
        except _AbsentError as problem:  # it may have come from another repository
            found.note(place, line, f"{problem.message}; the rest is read")
    elif option in _NAMES_BOUNDS:
        bounds = Wishes()
        try:
            take_file(value, bounds)
        except UsageError as problem:
            found.note(place, line, f"constraints that are not read: {problem.message}")
        found.take_bounds(bounds)
    else:
        _note_option(option, value, place, found)


def nothing(message: str, found: Wishes, hint: str) -> UsageError:
    """For a file without a requirement: what was left out of it is told."""
    return UsageError("\n".join((message, *(f"  {note}" for note in found.notes))), hint=hint)


def files_beside(path: Path) -> Callable[[str, str, Wishes], None]:
    """A function that takes over the requirements file that an install line names, once.

    It lies beside the file of the line: ``/app/requirements.txt`` of a Dockerfile was copied from there.
    """
    left, taken = iter(range(_MOST_FILES)), set[Path]()

    def take(name: str, place: str, found: Wishes) -> None:
        with contextlib.suppress(OSError):  # a name that no system has a file of
            for file in (path.parent / name.lstrip("/"), path.parent / Path(name).name):
                if file.is_file():
                    if file not in taken:
                        taken.add(file)
                        _requirements(file, found, (), left)
                    return
        found.note(place, f"-r {name}", "there is no such file here; `rtbuild resolve -r FILE` reads it")

    return take


def _refuse_long(line: str, place: str) -> None:
    if len(line) > LONGEST_LINE:
        raise UsageError(f"{place}: a line of {len(line)} letters is not read")


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines without comments, each with its number; lines that end in a backslash are joined."""
    joined, first = "", 0
    for number, raw in enumerate([*text.splitlines(), ""], 1):
        first = first if joined else number
        line = re.sub(r"(?:^|\s)#.*$", "", raw)
        if line.rstrip().endswith("\\"):
            joined += line.rstrip()[:-1] + " "
            continue
        line, joined = (joined + line).strip(), ""
        if line:
            yield first, line


def _option(words: list[str]) -> tuple[str, str]:
    option, equals, value = words[0].partition("=")
    if not equals and re.match("-[^-].", option):  # -rfile
        return option[:2], option[2:]
    return option, value if equals else " ".join(words[1:2])


def _note_option(option: str, value: str, place: str, found: Wishes) -> None:
    pytorch = re.match(r"https://download\.pytorch\.org/whl/(?:(cu\d+)/)?", value)
    if option in _INDEX and re.match(r"https?://", value):
        found.add_index(value, place)
    elif option in ("-e", "--editable"):
        found.add_source(value, place)
        found.note(place, f"{option} {value}", OWN_SOURCE)
    elif option in ("-f", "--find-links") and pytorch is not None:
        found.note(
            place, f"{option} {value}", "PyTorch's page of wheels: a build is named by its version, +cu113"
        )
        if pytorch[1] is not None:
            found.add_index(pytorch[0].rstrip("/"), place)
    elif option in ("-f", "--find-links"):
        why = "a page of wheels, and no package index: what is there alone is not found here; "
        if re.match(r"https?://", value) and CONTROL.search(value) is None and redact(value) == value:
            found.pages.setdefault(value, place)
            why += "the line for pip has it, if it is of the same CUDA"
        found.note(place, f"{option} {value}", why.removesuffix("; "))
    else:
        found.note(place, f"{option} {value}", "an option of pip, left out")


_INSTALL = re.compile(
    r"^\s*(?:[!%]\s*)?(?:(?:sudo|\w+=\S*)\s+)*(?:\S+\s+-m\s+)?(?:uv\s+)?pip[\d.]*\s+(?:-\S+\s+)*install\s+(?P<rest>.*)$"
)


def install_line(line: str, place: str, found: Wishes, take_file: Callable[[str, str, Wishes], None]) -> None:
    """Take over what a shell's line installs by pip."""
    _refuse_long(line, place)
    for command in re.split(r"&&|;(?=\s*!?\s*pip)|\|\|?", line):
        match = _INSTALL.match(command)
        if match is None:
            continue
        try:
            # a comment begins at a word of its own: shlex would end `git+https://host/x#egg=x y` at x
            words = shlex.split(re.sub(r"(?:^|(?<=\s))#.*", "", match["rest"]))
        except ValueError:
            found.note(place, line, "its quotes do not close, so it was not read")
            continue
        _install_words(words, place, found, take_file)


def _install_words(
    words: list[str], place: str, found: Wishes, take_file: Callable[[str, str, Wishes], None]
) -> None:
    queue = iter(words)
    for word in queue:
        if word in (">", ">>", "2>", "&>") or word.startswith((">", "2>")):
            return
        if word.startswith("-"):
            option, equals, value = word.partition("=")
            if option in _VALUED and not equals:
                value = next(queue, "")
            if option in _NAMES_FILE:
                take_file(value, place, found)
            elif option in _NAMES_BOUNDS:
                bounds = Wishes()
                take_file(value, place, bounds)
                found.take_bounds(bounds)
            elif option in _VALUED:
                _note_option(option, value, place, found)
        elif "{" in word or "$" in word:
            found.note(place, word, "a variable, whose value is not known here")
        else:
            found.add(word, place)


def quoted(text: str) -> str:
    """A foreign text in a note or an error."""
    return shown(redact(text), most=200)


def read_text(path: Path) -> str:
    """A file of at most :data:`MOST_BYTES`, by its mark of encoding as pip reads it, else as UTF-8.

    PowerShell's ``pip freeze > requirements.txt`` is UTF-16. Raises UsageError.
    """
    try:
        content = read_file(path, most=MOST_BYTES)
        encoding = next((name for mark, name in _MARKS if content.startswith(mark)), "utf-8")
        return content.decode(encoding)
    except UnicodeDecodeError as problem:
        said = f"{path} is no text: its byte {problem.start} is none of UTF-8"
        raise UsageError(said, hint="a picture, a PDF or an archive is not read; copy the text") from problem
    except (OSError, ValueError) as problem:
        said = f"{path}: {getattr(problem, 'strerror', None) or problem}"
        raise UsageError(said, hint=_beside(path)) from problem


def _beside(path: Path) -> str | None:
    """The files of that kind in the folder of one that is not there."""
    try:
        if path.exists() or not path.parent.is_dir():
            return None
        alike = sorted(file.name for file in path.parent.iterdir() if file.suffix == path.suffix)
    except OSError:  # a name that no system has a file of, a folder that nobody may read
        return None
    listed = ", ".join(shown(name, most=80) for name in alike[:5])
    return f"{path.parent.absolute().name or '/'} has {listed}" if alike else None


def add_extras(extras: Mapping[str, Any], path: Path, found: Wishes, project: str | None = None) -> None:
    """Offer a project's extras, and take the frameworks that they alone name, if all that name one ask for
    the same of it. An extra of the CPU's build and one of CUDA's differ in their index alone.
    """
    asked: dict[str, dict[str, list[str]]] = {}
    for group, texts in extras.items():
        for parsed in map(requirement, map(str, texts if isinstance(texts, list) else [])):
            if parsed is not None and parsed.url is None and load().is_framework(canonical(parsed.name)):
                asked.setdefault(canonical(parsed.name), {}).setdefault(str(parsed), []).append(group)
    own = any(load().is_framework(wish.name) for wish in found.wishes)
    taken = {} if own else {name: texts for name, texts in asked.items() if len(texts) == 1}
    for texts in taken.values():
        for text, groups in texts.items():
            found.add(text, f"{path}, the extras {', '.join(map(quoted, groups))}")
    names = {wish.name for wish in found.wishes}
    for group, listed in extras.items():
        texts_ = [str(one) for one in listed if str(one).strip()] if isinstance(listed, list) else []
        own_names = [requirement(text) for text in texts_] if isinstance(listed, list) else [None]
        if all(one is not None and canonical(one.name) in names for one in own_names):
            continue  # alternatives of what is asked for anyway: builds for the CPU, and for CUDA
        found.extras[canonical(str(group))] = texts_, f"{path}, the extra {quoted(str(group))}", project or ""


def take_extras(asked: Iterable[str], path: Path, found: Wishes) -> None:
    """Take over extras of the project that was read, ``FOLDER[training]`` as pip has it, with those that they
    name. Raises UsageError for one that it has not.
    """
    queue, left = [canonical(one) for one in asked], dict(found.extras)
    for name in queue:  # it grows
        if name not in left:
            known = (
                ", ".join(sorted(left)) or "none that are read, or all their packages are asked for anyway"
            )
            raise UsageError(f"{path} has no extra '{quoted(name)}'", hint=f"its extras: {known}")
        texts, place, project = left[name]
        found.extras.pop(name, None)
        for text in texts:
            parsed = requirement(text)
            if parsed is not None and project and canonical(parsed.name) == canonical(project):
                queue += [one for one in map(canonical, sorted(parsed.extras)) if one not in queue]
            else:
                found.add(text, place)
