"""Names that releases of a package lost or brought, and which of them a message asks for.

``names.json`` has modules and their names, members of classes and keywords of functions, out of wheels. Each
function takes a :class:`~remedies.Remedies`; None is for what is not known.
"""

import base64
import functools
import hashlib
import re
import struct
from collections import namedtuple

from .distributions import PLAIN_CLASSES, distribution_named, last_word, release_told
from .release_days import release_rows
from .tables import names_roots, names_row, read_patterns, rows_with, told_names
from .toolkit_facts import failing_words
from .versions import numbers

ASKED_NAME = re.compile(
    r"cannot import name ['`\"](?P<name>\w+)['`\"](?: from ['`\"](?P<origin>\w[\w.]*)['`\"])?|"
    r"module '?(?P<module>\w[\w.]*)'? has no attribute '?(?P<attribute>\w+)|"
    r"No module named '?(?P<path>\w[\w.]*)|(?P<np>`?\bnp)\.(?P<gone>\w+)`? was removed in the NumPy|"
    r"(?:(?P<call>\w+(?:\.\w+)*)\(\) got an )?unexpected keyword argument ['`](?P<argument>\w+)['`]|"
    r"(?:type object )?'(?P<owner>[\w.]*)'(?: object)? has no attribute '(?P<member>\w+)'|"
    r"from (?P<source>\w[\w.]*) import (?P<wanted>\w+)\s+(?:from [^\n]*\s+)?ImportError\b(?!:)"
)
BETWEEN_TWO = ("name", "module", "member", "argument", "size", "export")
"""Kinds of an :class:`~distributions.Apart` of two packages of Python's."""
# text: all of it; roots: the packages whose files a traceback goes through, the outermost folder of each, the
# last one first, and "" for the program's own; called: the classes and functions that its lines call by their
# names, the last one first
TraceNames = namedtuple("TraceNames", "text roots called")
_NO_TRACE = TraceNames("", (), ())
_TRACE_FRAME = re.compile(
    r"(?:site|dist)-packages[/\\](?P<root>[A-Za-z]\w*)[/\\.]|"
    r"File \"(?:(?!(?:site|dist)-packages[/\\]|[/\\]lib(?:64)?[/\\]python3|[/\\]Lib[/\\]|<)[^\"\n])+\", line"
)
_CALLED = re.compile(r"(?<![\w.])(?:\w+\.)*([A-Za-z]\w*)\(")
_FRAMES_CUT = re.compile(
    r"(?m)^[ \t]*(?:\.{3}|\u2026|\[\.{3}\]|\[\u2026\]|<snip>)[ \t]*\n(?:\w+\.)*\w+(?:Error|Exception): "
)
_REFUSED = re.compile(r"unexpected keyword argument")
_BEFORE = 2000
"""Characters before the message in which its call is looked for."""


def frames_left_out(text):
    """Whether the last frames of a traceback are left out of a text: which file asks is then not told."""
    return _FRAMES_CUT.search(text) is not None


def trace_names(text):
    """What the tracebacks of a text go through, as :class:`TraceNames`."""
    refused = [found.start() for found in _REFUSED.finditer(text)][-1:]
    before = text[max(0, refused[0] - _BEFORE) : refused[0]] if refused else ""
    roots = [found.group("root") or "" for found in _TRACE_FRAME.finditer(text)]
    roots = [] if frames_left_out(text) else roots
    return TraceNames(text, tuple(roots[::-1]), tuple(_CALLED.findall(before)[::-1]))


def apart_here(remedies, *kinds):
    apart = getattr(remedies.here, "apart", None)
    return apart if apart and apart.kind in kinds else None


def asked_names(remedies):
    """(module, name) of which a line says that a release does not have it; (None, None) without one. For an
    argument the module is ``argument``, and for a member of a class ``config`` or ``member``.
    """
    if remedies.detail.get("prose"):
        return remedies.detail["prose"]
    said = _words_of(remedies)
    if said.get("argument"):
        return "argument", said["argument"]
    if said.get("member"):
        return "config" if said["owner"].endswith("Config") else "member", said["member"]
    if said.get("np"):
        return "numpy", said["gone"]
    module, name = said.get("origin") or said.get("module"), said.get("name") or said.get("attribute")
    module, name = module or said.get("source"), name or said.get("wanted")  # a name that no message gives
    if said.get("path"):
        module, _, name = said["path"].rpartition(".")
    apart = apart_here(remedies, *BETWEEN_TWO) if not module else None
    if apart and apart.asked and not said.get("name"):
        return apart.asked.replace("-", "_"), last_word(apart)
    return module or None, name


def _words_of(remedies):
    found = ASKED_NAME.search(failing_words(remedies))
    return found.groupdict() if found else {}


def releases_with_name(remedies):
    """The releases of a package that have the name, the module, the member or the argument that a line asks
    for: ``transformers<5``, ``numpy>=1.26``, with both bounds where no release that is here tells the side.
    """
    change = name_change(remedies)
    return change.requirement if change else None


# since, gone: the first release of the package with the name, and the first one without it again; last: the
# one before that; None if there is none. home: where the name stands then, or the one to use; here: the
# release of the package in the text; stray: one in the text that has the name
NameChange = namedtuple("NameChange", "package name since gone last home here stray requirement")
# a row of the table: the package, the first release with a name, the first one without it, the one before
# that and where it stands then; owner: the class or function that has it; module: another one than is asked
_Found = namedtuple("_Found", "package since gone last home owner module")
_OF_CLASSES = ("argument", "config", "member")


def name_change(remedies):
    """When the name that a line asks for came and went, as a :class:`NameChange`; None if no table has it, or
    if what asks is a part of the same package.
    """
    module, name = asked_names(remedies)
    if not name or apart_here(remedies, "itself", "part", "python-gone", "python-new"):
        return None
    inner = module in _OF_CLASSES
    read = _in_classes(remedies, module, name) if inner else _in_releases(remedies, module, name)
    told = _by_hand(module, name)
    if read and inner and not (told or "").startswith(read.package):
        told = None
    if not read and not told:
        return None
    read = read or _Found(re.split("[<>]", told)[0], None, None, None, "", "", "")
    package, since, gone, last, home = read[:5]
    bounds = dict(re.findall(r"(<|>=)([\d.]+)", told or ""))
    here = (release_here if inner else _listed_release)(remedies.here, package)
    since = bounds.get(">=") or _patch_with(package, since, here)
    gone = gone or bounds.get("<")  # what was read of the wheels is of the very release
    back = since if since and gone and numbers(since) > numbers(gone) else None  # numpy.bool
    since = None if back else since
    new = bool(gone) and numbers(here) >= numbers(gone) and not (back and numbers(here) >= numbers(back))
    old = bool(since) and bool(here) and numbers(here) < numbers(since)
    stray, here = (here, None) if here and not (new or old) else (None, here)
    asked = [">=" + since] if since and not new else []
    asked += ["<" + plain_release(gone)] if gone and not old else []
    above = None if inner else read.module or module or package.replace("-", "_")
    where = ".".join(filter(None, (above, name)))
    home = read_patterns()["names-instead"].get(where.lower()) or home
    if read.owner:
        where = "%s of %s()" % (name, read.owner) if module == "argument" else "%s.%s" % (read.owner, name)
    return NameChange(package, where, since, gone, last, home, here, stray, package + ",".join(asked))


def _patch_with(package, since, here):
    """The release from which on a name is certainly there: of a minor release the newest patch was read, and
    an older one, which is here, may be without it.
    """
    first = numbers(since)
    every = [one for _, one in release_rows(package) if numbers(one)[: len(first)] == first]
    is_older = first and every and numbers(here)[: len(first)] == first and numbers(here) < numbers(every[-1])
    return every[-1] if is_older else since


def asker_of(remedies, change):
    """The package whose file asks for a name of another one; None if no line tells, or the program does."""
    apart, trace = apart_here(remedies, *BETWEEN_TWO), getattr(remedies.here, "trace", _NO_TRACE)
    if apart and apart.asker != change.package:
        return apart.asker or None
    roots = _packages_by_root()
    frames = (roots.get(root, root) for root in trace.roots)
    return next((package for package in frames if package != change.package), None) or None


def asker_beside_framework(remedies):
    """What asks a framework for a name that its later releases do not have, by its distribution: raised, it
    leaves the framework as it is, with all that stands on it. None where the program itself asks, or a
    package that is compiled for one release of the framework.
    """
    change = name_change(remedies)
    gone = change and change.package in told_names() and change.gone and "<" in change.requirement
    asker = distribution_named(asker_of(remedies, change)) if gone and asker_of(remedies, change) else None
    bound = re.match("(?:%s)$" % read_patterns()["grammar"]["ml-package"], asker or "torch")
    return None if bound or asker == change.package else asker


@functools.lru_cache(maxsize=1)
def _packages_by_root():
    return {root: package for package, roots in names_roots().items() for root in roots}


def release_here(facts, package):
    """The release of a package that a text names; empty without one."""
    told = _listed_release(facts, package)
    return told or release_told(getattr(facts, "trace", _NO_TRACE).text, package) or ""


def _listed_release(facts, package):
    """The release of a package out of a list, or beside the message that one lacks what another asks for."""
    apart = getattr(facts, "apart", None)
    told = (facts.packages.get(package) or "").partition("+")[0]
    return told or ((apart.versions.get(package) or "").partition("+")[0] if apart else "")


def no_release_told(remedies):
    """The sentence on a name of a module that a line asks for and no source of any release that was read
    gives; None if one may, or if the text names a later release.
    """
    module, name = asked_names(remedies)
    if not module or not name or module in _OF_CLASSES or name_change(remedies):
        return None
    package = _only_with(module.partition(".")[0])
    row = names_row(package) or {}
    bits = base64.b64decode(row.get("bound", ""))
    lacked = [part for part in (module + "." + name).split(".") if bits and not _may_hold(bits, part)]
    if not lacked:
        return None
    last = numbers(row["read"][1])
    if numbers(release_here(remedies.here, package))[: len(last)] > last:
        return None
    told = (
        "no release of %s from %s to %s has %s: it is of a later one, of sources that are not released, of "
    )
    return told % (package, row["read"][0], row["read"][1], lacked[0]) + "a fork, or of another package"


def _only_with(root):
    """The only package with an outermost module; empty if none or several of the table have it."""
    packages = [package for package, roots in names_roots().items() if root in roots]
    return packages[0] if len(packages) == 1 else ""


def _may_hold(bits, name):
    """Whether a filter of names may have this one: ``_filter_of`` of plan/facts/reading/release_names.py."""
    places = struct.unpack(">3I", hashlib.sha256(name.encode("utf-8")).digest()[:12])
    data = bytearray(bits)
    return all(data[place // 8 % len(data)] >> place % 8 & 1 for place in places)


def plain_release(release):
    """A release without zeros at its end: ``5`` of 5.0.0."""
    return re.sub(r"(?:\.0)+$", "", release)


def _found_of(package, gone, new, owner=""):
    without, _, last = (gone[0] if gone else "").partition(" ")
    home = gone[1] if gone else ""
    return _Found(package, new[0] if new else None, without or None, last or None, home, owner, "")


_TELLING = 12
"""Letters of a name from which on few packages have the same."""


def _in_releases(remedies, module, name):
    """The row of a module's name in the releases that were read; None if all of them have it, or none. A
    message that is cut before "from" is about the only package that has the name outermost, if the text names
    that package, or the name is a long one.
    """
    found, trace = [], getattr(remedies.here, "trace", _NO_TRACE)
    root = module.partition(".")[0] if module else ""
    every = [(package, names_row(package)) for package, roots in names_roots().items() if root in roots]
    for package, row in every if module else rows_with(name):
        if not module and len(name) < _TELLING and not _is_named(remedies, trace, package, row):
            continue
        for root in [module] if module else row["roots"]:
            # a module that came with a release may have had the name later
            gone, new = (
                _entry(row[kind], root, name, bool(module), kind == "gone") for kind in ("gone", "new")
            )
            outer = ""
            if module and not gone and not new and "." in root:  # it stands with an outer one
                outer = _outer_with(row["new"], root, name) or _outer_with(row["gone"], root, name)
                gone, new = (
                    outer and _entry(row[kind], outer, name, True, False) for kind in ("gone", "new")
                )
            if not gone and not new:
                continue
            row_of = _found_of(package, gone, new)._replace(module=outer)
            if not outer or row_of.home != "%s.%s" % (root, name):  # where the message says that it is not
                found.append(row_of)
    return found[0] if found and (module or len(found) == 1) else None


def _outer_with(places, module, name):
    """The module that a name of an inner one stands with; empty if none has it, or releases bring it to
    several.
    """
    root = module.partition(".")[0]
    found = [
        (place, other)
        for place, modules in places.items()
        for other, names in modules.items()
        if name in names
        and other.partition(".")[0] == root
        and name in [one.partition(">")[0] for one in names.split(" ")]
    ]
    same = len({place for place, _ in found}) == 1
    return min((other.count("."), other) for _, other in found)[1] if same else ""


def _in_classes(remedies, kind, name):
    """The row of a class's member, or of an argument, in the releases that were read; None if no package has
    it, or several that the text does not tell apart. The call is that of the message, else of the traceback's
    lines. Of a class that no table has, and of what a release brought, the text has to name the package.
    """
    said, trace = _words_of(remedies), getattr(remedies.here, "trace", _NO_TRACE)
    table = "keywords" if kind == "argument" else "members"
    owners = list(_owners(said, trace, table))
    found = []
    for package, row in rows_with(name):
        sides = [row.get("%s %s" % (table, side), {}) for side in ("lost", "brought")]
        for owner in owners:
            gone, new = (_of_owner(places, [owner] + _bases(row, owner), name) for places in sides)
            wide = not (gone or new or PLAIN_CLASSES.match(owner))
            if wide:
                last = not set(row["roots"]).isdisjoint(trace.roots[:1])
                every = _of_any(owner) + _kin(row, table, owner, name, last)
                gone, new = (_of_owner(places, every, name) for places in sides)
            named = (gone or new) and _is_named(remedies, trace, package, row)
            plain = owner.islower() and "_" not in owner and "." not in owner  # load(), of any package
            if named or (gone and not wide and not plain):
                found.append((named, _found_of(package, gone, new if named else None, owner)))
                break
    best = [row for named, row in found if named] or [row for _, row in found]
    if len(best) > 1:  # the package that the last frames are of
        last = [_packages_by_root().get(root) for root in trace.roots[:1]]
        best = [row for row in best if row.package in last]
    return best[0] if len(best) == 1 else None


def _owners(said, trace, table):
    """The class of a message, or the function as the table names it: ``Trainer``, ``Trainer.train``."""
    if table == "members":
        yield said["owner"].rpartition(".")[2]
        return
    call = re.sub(r"\.__(?:init|new)__$", "", said.get("call") or "")
    parts = [part for part in call.split(".") if part != "<locals>"]
    if call and parts[-1] not in ("__init__", "__new__"):
        yield ".".join(parts[-2:])
        yield parts[-1]
    else:
        for name in trace.called:
            if name[:1].isupper():
                yield name


def _of_any(owner):
    """What stands for a method, or a constructor, of which many classes take the same by name."""
    outer, dot, method = owner.partition(".")
    return ["*." + (method or outer)] if dot or not outer[:1].isupper() else ["*"]


def _bases(row, owner):
    """A class's bases in its package, of those with rows of their own."""
    outer, dot, method = owner.partition(".")
    return [
        base + dot + method
        for bases, names in row.get("classes", {}).items()
        if outer in names.split(" ")
        for base in bases.split(" ")
    ]


_LAST_WORD = re.compile(r"[A-Z]+[a-z0-9]*$|[A-Z]?[a-z0-9]+$")


def _kin(row, table, owner, name, of_last_frame):
    """For a class that the table does not have: the classes that lost a name, if all did so at once, of those
    whose names, or those of classes below them, end in the same word (``Model``); of all where the last frame
    of a traceback is the package's.
    """
    if "." in owner or not owner[:1].isupper():
        return []
    word, alike, any_ = _LAST_WORD.search(owner), {}, {}
    for place, rows in row.get(table + " lost", {}).items():
        for other, names in rows.items():
            if (
                name in names
                and "." not in other
                and name in [one.partition(">")[0] for one in names.split(" ")]
            ):
                any_.setdefault(place, []).append(other)
                below = (names for bases, names in row["classes"].items() if other in bases.split(" "))
                family = [other] + " ".join(below).split(" ")
                if word and any(one.endswith(word.group(0)) for one in family):
                    alike.setdefault(place, []).append(other)
    found = alike or (any_ if of_last_frame else {})
    return found.popitem()[1] if len(found) == 1 else []


def _of_owner(places, owners, name):
    """(place, the name to use instead) of the first owner that has the name; of what stands for many classes,
    if it is in one place alone.
    """
    for owner in owners:
        found = {}
        for place, rows in places.items():
            for one, _, instead in (text.partition(">") for text in rows.get(owner, "").split(" ")):
                found.update({place: instead} if one == name else {})
        if found and (len(found) == 1 or owner[0] != "*"):
            return max(found.items(), key=lambda row: numbers(row[0].partition(" ")[0]))
    return None


def _is_named(remedies, trace, package, row):
    """Whether a text is about a package: by its release, by a file of it in a traceback, or by an import."""
    if package in remedies.here.packages or not set(row["roots"]).isdisjoint(trace.roots):
        return True
    imported = r"(?m)^[^\n]{0,40}?\b(?:import|from) +(?:%s)\b" % "|".join(row["roots"])
    return bool(release_told(trace.text, package) or re.search(imported, trace.text))


def _entry(places, module, name, inner, around):
    """(place, new place) of a name, with ``inner`` or of a module of this name, and with ``around`` of one
    that it is in.
    """
    whole = "%s.%s" % (module, name)
    above = [".".join(whole.split(".")[:size]) for size in range(whole.count(".") + 1, 0, -1)]
    above = above[: None if around else 1] if inner else []
    for wanted, last in [(module, name)] + [(part, "") for part in above]:
        for place, modules in places.items():
            names = modules[wanted].split(" ") if wanted in modules else ()
            for one, _, home in (row.partition(">") for row in names):
                if one == last:
                    return place, home and home + ("." + name if last else whole[len(wanted) :])
    return None


def _by_hand(module, name):
    """The requirement of the tables by hand on a package with a name."""
    package, known = (module or "").partition(".")[0] if module else "", read_patterns()["python-names"]
    if not package:  # cut before "from"
        cut = {row for asked, row in known.items() if asked.partition(".")[2] == name.lower()}
        return next(iter(cut)) if len(cut) == 1 and name != name.lower() else None
    for asked in ("%s.%s" % (module, name), "%s.%s" % (package, name)):
        above = asked = asked.lower()
        while above not in known and "." in above:  # tensorflow.contrib.layers is gone with its package
            above = above.rpartition(".")[0]
        if above in known and (above == asked or "<" in known[above]):
            return known[above]
    lost = read_patterns()["python-lost"].items()
    return next(
        (row for row, names in lost if row.startswith(package + "<") and _is_one_of(name, names)), None
    )


def change_told(change):
    """The sentence on a :class:`NameChange`."""
    package, last = change.package, " (%s is the last release with it)" % change.last if change.last else ""
    if change.here:
        new = change.gone and numbers(change.here) >= numbers(change.gone)
        side = "too new" if new else "too old"
    else:
        new, side = bool(change.gone), "too new" if not change.since else "too old" if not change.gone else ""
        cut = not change.since and (names_row(package) or {}).get("cut")
        side = "" if cut else side  # it may have come with a later release
    told = "%s has %s from %s on" % (package, change.name, change.since) if change.since else ""
    if new:
        until = "no longer from %s on%s" % (plain_release(change.gone), last)
        both = told and not change.here
        told = "%s, and %s" % (told, until) if both else "%s has %s %s" % (package, change.name, until)
        told += "; it is %s now" % change.home if change.home else ""
    if change.here:
        told += ": %s %s, which the text names, is %s" % (package, change.here, side)
    elif side and not change.stray:
        told += ": the %s here is %s" % (package, side)
    if change.stray:
        told += "; the %s that the text names has it, so another %s is imported" % (change.stray, package)
    return told


def _is_one_of(name, names):
    return re.match("(?:%s)$" % re.sub(r"\s", "", names), name.rpartition(".")[2]) is not None
