"""What a project tells of the releases that it was written for, beside its requirements: the names that its
sources take of other packages, a README's words, and repositories in the place of releases.
"""

import contextlib
import datetime
import io
import itertools
import re
import tokenize
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path

import requests
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from builder.core import python_names
from builder.core.errors import CellError, UsageError
from builder.core.versions import apart, canonical, contains, key, lower_bound, release, requirement
from builder.plan.facts.tables import NameSpan, load, name_spans
from builder.plan.resolve.dates import OLDEST_PYTHON, Period, released
from builder.plan.resolve.project_texts import read_text
from builder.plan.resolve.set_aside import with_aside
from builder.plan.resolve.solve import Demand, closest
from builder.plan.resolve.wishes import OWN_SOURCE, TYPED, NamedRequirement, Wishes
from builder.sources.index import Index, IndexFile, RemoteZip, UnknownError, page, wheel_name

# -- what the sources themselves take: the releases that have it

_GUARDED = re.compile(
    r"(?:el)?if\b.*(?:version|hasattr|find_spec|TYPE_CHECKING|__name__)|try:|with suppress|with contextlib"
)
_GOES_ON = re.compile(r"(?:except|else|finally|elif)\b")
_CHAIN = re.compile(r"(?<![\w.])[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+")
_STRINGS = {tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}
_BLANK = {tokenize.NL, tokenize.COMMENT, tokenize.ENCODING, tokenize.ENDMARKER}
_OF_SETUPTOOLS = "distutils"
"""Which setuptools brings where Python has it no more."""


@dataclass(frozen=True, kw_only=True)
class UsedName:
    """A name of a package that a source takes for certain: ``numpy.float``."""

    name: str
    place: str
    """``train.py:12``."""
    called: bool = False
    """Whether it is called, so that it is no module."""


def used_names(text: str, place: Callable[[int], str]) -> tuple[list[UsedName], set[str]]:
    """The names of other packages that a source takes, by the packages' own names, and all modules that it
    imports; ``place`` tells that of a line.

    By its words, so that source of Python 2 is read, too. What stands in a ``try``, or under a test of a
    version, is not taken for certain.
    """
    found, modules, known, called = list[UsedName](), set[str](), dict[str, str](), set[str]()
    for number, line, certain in _certain_lines(text):
        names = list[str]()
        if imported := re.fullmatch(r"from ([\w.]+) import \(?(.*?)\)?", line):
            modules.add(imported[1])
            for one in re.split(r"\s*,\s*", imported[2].partition(";")[0].strip(" ,")):
                name, _, other = one.partition(" as ")
                if re.fullmatch(r"[A-Za-z_]\w*", name) and not imported[1].startswith("."):
                    known[other or name] = f"{imported[1]}.{name}"
                    names.append(f"{imported[1]}.{name}")
                    if re.search(rf"(?<![\w.]){re.escape(other or name)}[ \t]*\(", text):
                        called.add(names[-1])
        elif line.startswith("import "):
            for one in re.split(r"\s*,\s*", line.removeprefix("import ").strip()):
                name, _, other = one.partition(" as ")
                modules.add(name)
                known[other or name.partition(".")[0]] = name if other else name.partition(".")[0]
                names.append(name)
        else:
            for chain in _CHAIN.finditer(line):
                first, _, rest = chain[0].partition(".")
                if first in known:
                    names.append(f"{known[first]}.{rest}")
                    if line[chain.end() :].lstrip()[:1] == "(":
                        called.add(names[-1])
            names += _lone_calls(line, known)
        if certain:
            found += (UsedName(name=name, place=place(number), called=name in called) for name in names)
    return found, modules


_LONE = {"yaml.load": "pyyaml<6", "yaml.load_all": "pyyaml<6"}
"""Functions that took one argument alone up to a release: PyYAML 6.0 made Loader a required one,
https://github.com/yaml/pyyaml/blob/main/CHANGES (6.0, 2021-10-13).
"""
_ALONE = " with one argument"


def _lone_calls(line: str, known: Mapping[str, str]) -> Iterator[str]:
    """The functions of :data:`_LONE` that a line calls with one argument, by their whole names."""
    for call in re.finditer(r"(?<![\w.])([A-Za-z_]\w*)((?:\.\w+)*) ?\(", line):
        whole = known.get(call[1], "") + call[2]
        if whole not in _LONE:
            continue
        depth, more = 1, False
        for letter in line[call.end() :]:
            depth += (letter in "([{") - (letter in ")]}")
            more = more or (depth == 1 and letter in ",*")
            if depth == 0:
                break
        if depth == 0 and not more:
            yield whole + _ALONE


_WINDOWS = {
    f"cv2.{name}"
    for name in (
        "createTrackbar", "destroyAllWindows", "destroyWindow", "getTrackbarPos", "imshow", "namedWindow",
        "selectROI", "selectROIs", "setMouseCallback", "startWindowThread", "waitKey", "waitKeyEx",
    )
}  # fmt: skip
"""What OpenCV without windows, its distributions named headless, raises on:
https://docs.opencv.org/4.x/d7/dfc/group__highgui.html, https://github.com/opencv/opencv-python#installation-and-usage
"""
_HEADLESS = "-headless"


def _keep_windows(use: UsedName, found: Wishes) -> None:
    """Take OpenCV with windows where a source opens one: in the place of headless where conda's package,
    which has them, is meant, or where both are asked for. One that pip's own list names stays, with a note.
    """
    whole = {wish.name for wish in found.wishes if wish.name in _OPENCV}
    told, kept = f"{use.place} uses {use.name}, which opens windows", list[NamedRequirement]()
    for wish in found.wishes:
        plain = wish.name.removesuffix(_HEADLESS)
        if plain == wish.name or plain not in _OPENCV:
            kept.append(wish)
        elif whole:
            found.notes.append(f"{wish} ({wish.place}): left out: {told}; {', '.join(sorted(whole))} stays")
        elif wish.of_conda:
            kept.append(wish.named(plain))
            found.notes.append(f"{plain}: {told}: with them, not {wish.name}")
        else:
            kept.append(wish)
            found.notes.append(f"{wish} ({wish.place}) stays: but {told}, and it has none: {plain} has")
    found.wishes = kept


_OPENCV = {"opencv-python", "opencv-contrib-python"}


def _certain_lines(text: str) -> Iterator[tuple[int, str, bool]]:
    """Each logical line without its texts and comments, its number, and whether it is executed for certain
    with what it takes: neither in a ``try`` nor under a test of what there is.
    """
    depth, words, first = 0, list[str](), 0
    guards = list[int]()
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    while True:
        try:
            token = next(tokens, None)
        except (tokenize.TokenError, SyntaxError):  # Python 2's, from here on
            return
        if token is None:
            return
        if token.type in {tokenize.INDENT, tokenize.DEDENT}:
            depth += 1 if token.type == tokenize.INDENT else -1
        elif token.type == tokenize.NEWLINE:
            line = re.sub(r"\s*(\.|,)\s*", r"\1", " ".join(words)).replace(",", ", ")
            line = re.sub(r"(?<=from )(\S+?)(?: ?)import", r"\1 import", line)
            line = re.sub(r"\( | \)", lambda one: one[0].strip(), line)
            while guards and (guards[-1] > depth or (guards[-1] == depth and not _GOES_ON.match(line))):
                guards.pop()
            yield first, line, not guards
            if _GUARDED.match(line.replace(" :", ":")) and guards[-1:] != [depth]:
                guards.append(depth)
            words = []
        elif token.type not in _BLANK and token.type not in _STRINGS:
            first = first if words else token.start[0]
            words.append(token.string)


def bound_by_sources(
    sources: Iterable[tuple[str, str, Callable[[int], str]]], found: Wishes, own: Set[str] = frozenset()
) -> None:
    """Bound what is asked for to the releases that have what the sources take: ``numpy<1.24``, where one uses
    ``np.float``, and the Python, where one imports ``imp``. Each with a note; where a requirement says
    otherwise, that stays, and the note says so.

    ``sources``: the name of each, its text, and the place of its lines. ``own``: modules of the project.
    """
    spans = {**name_spans(), **_lone_spans()}
    modules_of = {row.module for row in load().registry}
    uses: dict[str, dict[str, tuple[NameSpan, UsedName]]] = {}
    importing, concerned = Counter[str](), dict[str, set[str]]()
    minors: dict[int, UsedName] = {}
    window: UsedName | None = None
    for file, text, place in sources:
        names, modules = used_names(text, place)
        names = [use for use in names if use.name.partition(".")[0] not in own]
        window = window or next((use for use in names if use.name in _WINDOWS), None)
        importing.update({module.partition(".")[0] for module in modules})
        for use in names:
            if (root := use.name.partition(".")[0]) in modules_of:
                found.used.setdefault(root, set()).add(use.name)
            if (minor := _without_minor(use.name)) is not None:
                minors.setdefault(minor, use)
            parts = list(itertools.accumulate(use.name.split("."), "{}.{}".format))
            name = next((one for one in reversed(parts) if one in spans), None)
            if name is not None and not (spans[name].module and use.called and name == use.name):
                span = spans[name]
                uses.setdefault(span.package, {}).setdefault(name, (span, replace(use, name=name)))
                if span.until is not None:
                    concerned.setdefault(span.package, set()).add(file)
    for package, those in sorted(uses.items()):
        root = next(iter(those)).partition(".")[0]
        # a script for the data of another framework says nothing of the rest
        of_few = load().is_framework(package) and 3 * len(concerned.get(package, ())) < importing[root]
        _bound_package(package, those, found, upward=not of_few)
    if window is not None:
        _keep_windows(window, found)
    if minors:
        _bound_python(min(minors), minors[min(minors)], found)


def _lone_spans() -> dict[str, NameSpan]:
    """What calls with one argument say of their packages' releases."""
    return {
        f"{name}{_ALONE}": NameSpan(package=parsed.name, until=next(iter(parsed.specifier)).version)
        for name, parsed in ((name, Requirement(bound)) for name, bound in _LONE.items())
    }


def _without_minor(name: str) -> int | None:
    """The first Python 3, 12 for 3.12, from which on a name of its library is gone; None if it is there."""
    module, _, last = name.rpartition(".")
    if name.partition(".")[0] not in python_names.OF_PYTHON or name.partition(".")[0] == _OF_SETUPTOOLS:
        return None
    lacking = [
        minor
        for minor in range(OLDEST_PYTHON[1], 16)
        if python_names.lacks(name, minor) is not None or python_names.lacks_name(module, last, minor)
    ]
    return lacking[0] if lacking and lacking[0] > OLDEST_PYTHON[1] and lacking[-1] == 15 else None


def _bound_package(
    package: str, uses: Mapping[str, tuple[NameSpan, UsedName]], found: Wishes, *, upward: bool
) -> None:
    """Bound one package by the names that are taken of it; ``upward``: by those that are gone, too."""
    gone = [pair for pair in uses.values() if pair[0].until is not None and upward]
    new = [pair for pair in uses.values() if pair[0].since is not None]
    last = min(gone, key=lambda pair: release(pair[0].until or "0"), default=None)
    first = max(new, key=lambda pair: release(pair[0].since or "0"), default=None)
    if last and first and release(first[0].since or "0") >= release(last[0].until or "0"):
        return  # code for both sides, of which a test that was not seen decides
    wishes = [wish for wish in found.wishes if load().table_name(wish.name) == load().table_name(package)]
    wishes = [wish for wish in wishes if load().is_framework(package) or wish.name == package]
    if not wishes and (load().is_framework(package) or not last):
        return  # another package brings it, or a script of its own takes it
    for pair, sign in ((last, "<"), (first, ">=")):
        if pair is None:
            continue
        span, use = pair
        version = re.sub(r"(?:\.0)+$", "", (span.until if sign == "<" else span.since) or "")
        bound = f"{package}{sign}{version}"
        took = f"no longer from {version} on" if sign == "<" else f"from {version} on"
        told = f"{use.place} uses {use.name}"
        why = f"{told}, which {package} has {took}"
        others = len(gone if sign == "<" else new) - 1
        why += f", and {others} more such name{'s' * (others > 1)}" * (others > 0)
        why += f"; it is {span.home}.{use.name.rpartition('.')[2]} then" * bool(span.home and sign == "<")
        against = next(
            (w for w in wishes if apart(w.parsed.specifier, SpecifierSet(f"{sign}{version}"))), None
        )
        if against is not None:
            found.notes.append(f"{against} ({against.place}) stays: but {why}")
        elif not any(_within(wish, sign, version) for wish in wishes):
            found.notes.append(f"{bound}: {why}")
            if not wishes:
                parsed = Requirement(bound)
                found.wishes.append(_by_use(parsed, told))
            for name in sorted({wish.name for wish in wishes}):
                found.bounds.append(_by_use(Requirement(f"{name}{sign}{version}"), told))


def _by_use(parsed: Requirement, told: str) -> NamedRequirement:
    return NamedRequirement(parsed=parsed, place=told, use=told, proven=parsed.specifier)


def _within(wish: NamedRequirement, sign: str, version: str) -> bool:
    """Whether a requirement is within a bound anyway."""
    exact = next((one.version for one in wish.parsed.specifier if one.operator == "=="), None)
    if exact is not None:
        return True  # not apart from it
    same = (one for one in wish.parsed.specifier if one.operator in {sign, sign + "=", "<", "<=", "~="})
    if sign == "<":
        return any(one.operator in {"<", "<="} and release(one.version) < release(version) for one in same)
    bound = lower_bound(wish.parsed)
    return bound is not None and release(bound) >= release(version)


def _bound_python(minor: int, use: UsedName, found: Wishes) -> None:
    """Bound the Python, unless one is named that is none of these."""
    try:
        named = SpecifierSet(found.python) if found.python and found.python[0] in "<>=!~" else None
    except ValueError:
        named = None
    if found.python is not None and (named is None or not contains(named, f"3.{minor - 1}.99")):
        return  # one release, or later ones alone
    bound = f"<3.{minor}"
    found.python = ",".join(filter(None, (found.python, bound)))
    found.notes.append(f"Python {bound}: {use.place} uses {use.name}, which Python 3.{minor} has no more")


# -- what a README tells in its words

_VERSIONED = re.compile(
    r"(?i)(?<![\w/.-])(?P<name>python|pytorch|torch|torchvision|torchaudio|tensorflow(?:-gpu)?|tf|keras|jax|flax|"
    r"numpy|scipy|pandas|opencv(?:-python)?|scikit-learn|scikit-image|transformers|diffusers|accelerate|peft|"
    r"datasets|tokenizers|pytorch-lightning|lightning|torchtext|librosa|numba|gym|gradio|matplotlib|h5py|"
    r"bitsandbytes|deepspeed|xformers)(?![\w/])"
    r"(?P<between>[\s\]\[()*_`:|,-]{0,4}(?:\(?(?:version|ver\.?|v\.?)\s*[:=]?)?\s*)"
    r"(?P<sign>>=|==|=|<=|<|>|~=|\u2265|\u2264)?\s*v?(?P<version>\d+(?:\.(?:\d+|x|\*))+)(?P<open>\+|"
    r"[\s)]*(?:or|and) (?:higher|later|above|newer|up|greater))?"
)
"""A release in a README's own words: ``PyTorch v1.1``, ``Keras 2.1.5``, ``badge/PyTorch-1.7-red``."""
_OF_NEEDS = re.compile(
    r"(?i)require|install|depend|prereq|environment|set ?up|getting started|tested|developed|implement"
    r"|need|version|badge|compatib"
)
_MAJOR = re.compile(
    r"(?i)(?<![\w/.-])(?:(?P<name>fastai|tensorflow|tf|keras|pytorch|torch)-?v?|(?P<spaced>tensorflow|keras|fastai)"
    r"[ `*]+(?:version |v)?)(?P<major>[0-3])(?:\.[xX])?(?![\w.\d-]|[ ]*(?:GPU|card|layer|model))"
)
"""A line of releases by its major alone: ``fastai1``, ``TensorFlow 1``, ``tf2``."""
_ALSO = {"pytorch": "torch", "tf": "tensorflow", "opencv": "opencv-python", "tensorflow-gpu": "tensorflow"}


def add_told(path: Path, found: Wishes) -> None:
    """Take over the releases that a README names in its words, which count less than any requirement: the
    first of each package, where it speaks of what is needed or tested.
    """
    with contextlib.suppress(UsageError):  # no text
        heading, lead = "", 0
        for number, line in enumerate(read_text(path).splitlines(), 1):
            heading = line if re.match(r"#+ |[-=]{4,}$", line) else heading
            plain = re.sub(
                r"%20|_(?=\d)",
                " ",
                line.replace("%3E%3D", ">=").replace("%2B", "+").replace("badge/", "badge "),
            )
            plain = re.sub(r"\]\(https?://(?![^)]*badge)[^)]*\)", "]", plain)
            listed = re.match(r"\s*(?:[-*|]|\d\.)\s", line) and _OF_NEEDS.search(heading)
            if _OF_NEEDS.search(line):
                lead = number + 4  # a list follows
            if not (listed or number <= lead or _OF_NEEDS.search(heading)):
                continue
            for one in _MAJOR.finditer(plain):
                name = _ALSO.get(
                    (one["name"] or one["spaced"]).lower(), (one["name"] or one["spaced"]).lower()
                )
                line_ = Requirement(f"{name}=={one['major']}.*")
                found.told.setdefault(name, NamedRequirement(parsed=line_, place=f"{path}:{number}"))
            for one in _VERSIONED.finditer(plain):
                name = _ALSO.get(one["name"].lower(), one["name"].lower())
                version = re.sub(r"\.(?:x|\*)$", ".*", one["version"])
                sign = {"\u2265": ">=", "\u2264": "<=", ">": ">="}.get(one["sign"] or "", one["sign"] or "==")
                sign = ">=" if one["open"] else "==" if sign == "=" else sign
                version = version.removesuffix(".*") if sign not in {"==", "~="} else version
                parsed = requirement(f"{name}{sign}{version}")
                if parsed is not None and not (name == "python" and version.startswith("2")):
                    found.told.setdefault(name, NamedRequirement(parsed=parsed, place=f"{path}:{number}"))


# -- repositories in the place of releases

_OF_GIT = re.compile(
    r"(?:(?P<name>[\w.-]+)(?:\[[\w,\s-]*\])?\s*@\s*)?git\+(?:https?|ssh|git)://(?:[\w.-]+@)?(?P<host>[\w.-]+)[/:]"
    r"(?P<owner>[\w.-]+)/(?P<project>[\w.-]+?)(?:\.git)?/?(?:@(?P<at>[\w./-]+))?(?:[#&?].*)?"
)
_MOST_METADATA = 4 << 20
_BRANCHES = frozenset(("main", "master", "HEAD", "dev", "develop"))


def releases_for_repositories(asked: Wishes, period: Period, index: Index) -> list[NamedRequirement]:
    """The requirements in place of a project's ``git+https://…``: of each that names no commit and no tag the
    newest release of the project's time, where the index has a package whose own metadata names that very
    repository. They are no longer installed by hand, and a note says so. Others stay.

    Code of 2023 that asks for a branch means that of 2023; the branch is of today.
    """
    found = dict[str, NamedRequirement]()
    known = {wish.name for wish in asked.wishes}
    for text in list(asked.by_hand):
        git = _OF_GIT.fullmatch(text.strip())
        if git is None or (git["at"] is not None and git["at"] not in _BRANCHES):
            continue
        named = re.search(r"[#&]egg=([\w.-]+)", text)
        name = canonical(git["name"] or (named[1] if named is not None else git["project"]))
        place = next((where for one, where, _ in asked.sources if git["project"] in one), "the project")
        files = page(name, index)
        version = None if isinstance(files, str) else _of_the_time(files, name, period.day)
        if (
            load().is_framework(name)
            or version is None
            or not _is_of(f"{git['host']}/{git['owner']}/{git['project']}", version[1], index)
        ):
            continue
        bound = f"{name}<={version[0]}"
        if name not in known:
            found[name] = NamedRequirement(parsed=Requirement(bound), place=place)
        asked.by_hand.remove(text)
        asked.sources = [one for one in asked.sources if text.rpartition("@ ")[2] not in one[0]]
        asked.notes = [
            one for one in asked.notes if not (text.rpartition("@ ")[2] in one and one.endswith(OWN_SOURCE))
        ]
        why = f"taken as {bound}, its newest release of the project's time ({period.why})"
        asked.note(place, text, f"{why}; its branch is of today: by hand, `pip install '{text}'` has that")
    return list(found.values())


def _of_the_time(files: Iterable[IndexFile], name: str, day: str) -> tuple[str, IndexFile] | None:
    """The newest release with a wheel to a day, and that wheel; None without one."""
    listed = list(files)
    days = released(listed, name)
    wheels = [(found.version, one) for one in listed if (found := wheel_name(one.name)) is not None]
    of_time = [row for row in wheels if days.get(str(row[0]), "9") <= day and row[1].yanked is None]
    best = max(of_time, key=lambda row: row[0], default=None)
    return (str(best[0]), best[1]) if best is not None else None


def _is_of(address: str, file: IndexFile, index: Index) -> bool:
    """Whether a wheel's metadata names a repository: a name on an index may be another's (CLIP, apex)."""
    archive = RemoteZip(url=file.url, session=index.client, size=file.size or 0, limit=_MOST_METADATA)
    try:
        own = [one for one in archive.entries() if re.fullmatch(r"[^/]+\.dist-info/METADATA", one.filename)]
        content = archive.content(own[0]) if own else b""
    except (CellError, UnknownError, requests.RequestException):
        return False  # what nobody read says nothing
    head = content.decode("utf-8", "replace").partition("\n\n")[0].lower()
    return (
        re.search(rf"(?m)^(?:home-page|project-url|download-url):.*{re.escape(address.lower())}\b", head)
        is not None
    )


# -- demands by what is told


def ways_of(
    demand: Demand,
    asked: Wishes,
    available: Mapping[str, Sequence[str]],
    index: Index | None,
    time: Callable[[Sequence[NamedRequirement]], Period | None],
) -> list[tuple[Demand, list[str]]]:
    """As :func:`with_told`, each of its own time, with the releases of that for repositories."""
    within = with_aside(demand, asked.aside)
    bases = [*([within] if within is not None else []), (demand, [])]
    ways = [
        (replace(one, period=time((*one.frameworks, *one.companions))), [*beside, *said])
        for base, beside in bases
        for one, said in with_told(base, asked.told, available)
    ]
    period = ways[0][0].period
    if index is None or period is None:
        return ways
    if (of_day := _frameworks_of_time(ways[0][0], period, available, index)) is not None:
        ways = [(replace(of_day[0], period=period), [*ways[0][1], *of_day[1]]), *ways]
    of_time = tuple(releases_for_repositories(asked, period, index))
    return [(replace(one, companions=(*one.companions, *of_time)), said) for one, said in ways]


def _frameworks_of_time(
    demand: Demand, period: Period, available: Mapping[str, Sequence[str]], index: Index
) -> tuple[Demand, list[str]] | None:
    """The demand with open frameworks bound to the project's time, or to the first releases from then on that
    the machine takes; None if none is open, or if no release is for the machine.

    Later ones break by what they take away: who pins bitsandbytes 0.40 has the PyTorch of that summer.
    """
    since = datetime.datetime.now(datetime.UTC).date() - datetime.date.fromisoformat(period.day)
    if period.by_use or since.days < _OLD:
        return None
    of_time, later = dict[str, str](), dict[str, list[str]]()
    compiled = any(_is_linked(wish) for wish in demand.companions)
    for wish in demand.frameworks:
        open_ = not any(one.operator in {"<", "<=", "==", "===", "~="} for one in wish.parsed.specifier)
        files = page(wish.name, index) if open_ and (wish.place != TYPED or compiled) else "it is bound"
        if isinstance(files, str):
            continue
        days = {one.partition("+")[0]: day for one, day in released(files, wish.name).items()}
        fitting = sorted((one for one in days if contains(wish.parsed.specifier, one)), key=release)
        if old := [one for one in fitting if days[one] <= period.day]:
            of_time[wish.name] = old[-1]
            last = {key(one)[:2]: one for one in fitting if release(one) > release(old[-1])}
            later[wish.name] = [*last.values()]

    def bounded(taken: Mapping[str, str]) -> Demand:
        frameworks = (
            wish.bound(",".join(filter(None, (str(wish.parsed.specifier), f"<={taken[wish.name]}"))))
            if wish.name in taken
            else wish
            for wish in demand.frameworks
        )
        return replace(demand, frameworks=tuple(frameworks))

    steps = [{**of_time, name: version} for name, each in later.items() for version in each[:_LATER_LINES]]
    for taken in [of_time, *steps] if of_time else ():
        found = bounded(taken)
        if closest(replace(found, companions=()), {}, available=available) is not None:
            first = ", or the first from then on for the card" * (taken != of_time)
            bounds = ", ".join(f"{name}<={version}" for name, version in taken.items())
            return found, [f"{bounds}: of the project's time{first}: {period.why}"]
    return None


def _is_linked(wish: NamedRequirement) -> bool:
    """Whether a requirement holds a package back that has code for one CUDA, or that a framework links."""
    row = load().package_names.get(wish.name)
    held = any(clause.operator in {"==", "~=", "<", "<="} for clause in wish.parsed.specifier)
    return row is not None and not row.light and held


_OLD = 365
"""Days after its time from which on a project is old."""
_LATER_LINES = 12
"""Minor lines after a project's time that are asked about, the oldest first."""


_COMPUTES = re.compile(
    r"tensorflow\.(?:compat\.v[12]\.)?(?:keras|nn|layers|Module|Variable|GradientTape|train|optimizers"
    r"|estimator|contrib|Session|placeholder|distribute|saved_model|lite|matmul|python|app|get_variable"
    r"|global_variables)\b"
)
"""What code takes of TensorFlow that computes by it, and does not just read data and write logs."""


def with_data_on_cpu(demand: Demand, asked: Wishes) -> Demand:
    """The demand with ``tensorflow-cpu`` in place of a TensorFlow beside another framework, where it is typed
    or what the sources take of it computes nothing: it would take the card's memory from the other.
    """
    other = next((wish for wish in demand.frameworks if load().table_name(wish.name) != "tensorflow"), None)
    mine = [wish for wish in demand.frameworks if load().table_name(wish.name) == "tensorflow"]
    typed = next((wish for wish in demand.companions if wish.name == "tensorflow-cpu"), None)
    names = asked.used.get("tensorflow", set()) - {"tensorflow"}
    data = bool(names) and not any(map(_COMPUTES.match, names))
    if other is None or not mine or not (data or typed is not None):
        return demand
    kept = [] if typed is not None else [mine[0].named("tensorflow-cpu")]
    why = f"{other} computes, and TensorFlow reads data here: it would take the card's memory"
    asked.notes.append(f"{', '.join(map(str, mine))} is taken as tensorflow-cpu: {why}")
    frameworks = tuple(wish for wish in demand.frameworks if wish not in mine)
    return replace(demand, frameworks=frameworks, companions=(*demand.companions, *kept))


def with_told(
    demand: Demand, told: Mapping[str, NamedRequirement], available: Mapping[str, Sequence[str]]
) -> list[tuple[Demand, list[str]]]:
    """The demand by what a README tells of releases, as far as no requirement is more exact, with what is to
    be said of it, then with releases near these, and at last as it is. Of the first ones only those that the
    rules find possible.
    """
    near = {
        wish.name: one
        for wish in (*demand.frameworks, *demand.companions)
        for one in (told.get(wish.name) or told.get(load().table_name(wish.name) or ""),)
        if one is not None and _is_nearer(one, wish)
    }
    found = list[tuple[Demand, list[str]]]()
    for whole in (True, False):
        taken = dict[str, str]()
        for name, one in near.items():
            version = next(iter(one.parsed.specifier)).version.removesuffix(".*")
            later = f">={version},<{_next_line(version)}"
            taken[name] = _of_line(str(one.parsed.specifier)) if whole else later
        changed = replace(
            demand,
            frameworks=tuple(_told(wish, taken, near) for wish in demand.frameworks),
            companions=tuple(_told(wish, taken, near) for wish in demand.companions),
        )
        if not taken or closest(changed, {}, available=available) is None:
            continue
        said = (f"{name}{taken[name]}: {one.place} says {one.parsed}" for name, one in near.items())
        found.append((changed, [f"{text}; a requirement would count more" for text in said]))
    return [*found, (demand, _not_taken(near))]


def _of_line(specifier: str) -> str:
    """``==2.4.*`` of ``==2.4``: who names two numbers means the line."""
    return f"{specifier}.*" if re.fullmatch(r"==\d+\.\d+", specifier) else specifier


def _is_nearer(told: NamedRequirement, wish: NamedRequirement) -> bool:
    """Whether what is told bounds a requirement that leaves it open, and does not speak against it."""
    (clause,) = told.parsed.specifier
    version, bound = clause.version.removesuffix(".*"), lower_bound(wish.parsed)
    if clause.operator == ">=" and bound is not None and release(bound) >= release(version):
        return False
    upper = any(one.operator in {"<", "<=", "==", "===", "~="} for one in wish.parsed.specifier)
    later = (
        bool(wish.use) and bound is not None and release(bound) > release(version)
    )  # of its line one may do
    return (not upper or bool(wish.use)) and (later or contains(wish.parsed.specifier, version))


def _told(
    wish: NamedRequirement, taken: Mapping[str, str], near: Mapping[str, NamedRequirement]
) -> NamedRequirement:
    if wish.name not in taken:
        return wish
    parsed = Requirement(str(wish.parsed))
    parsed.specifier &= SpecifierSet(taken[wish.name])
    places = (wish.place, near[wish.name].place)
    return replace(wish, parsed=parsed, place=", ".join(places if wish.parsed.specifier else places[::-1]))


def _next_line(version: str) -> str:
    """The release before which code for one mostly runs: the next major one; 2 for 0.4, too."""
    return str(max(key(version)[0] + 1, 2))


def _not_taken(near: Mapping[str, NamedRequirement]) -> list[str]:
    """What is to be said where nothing goes with the releases that a README names."""
    told = ", ".join(f"{one.parsed} ({one.place})" for one in near.values())
    return [f"{told}: nothing goes with {'these' if len(near) > 1 else 'it'}: others are taken"] * bool(near)
