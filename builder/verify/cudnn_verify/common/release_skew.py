"""Which of two packages of a failure is the later one, by the days on which their releases came, and which
release of the one belongs to the time of the other.

``facts`` is a :class:`~text_facts.TextFacts`; None is for a value that is not known.
"""

import re
from collections import namedtuple

from .distributions import canonical
from .name_changes import BETWEEN_TWO, plain_release, release_here
from .release_days import day_of, day_told, first_after, newest_by, release_rows, releases_around
from .tables import Releases, read_days, read_patterns
from .toolkit_facts import text_of
from .versions import numbers, pins_of, satisfies

# asked: the package that raises, or that lacks what is asked for; others: those that ask it, or that stand
# beside it; newer: whether it is later than all of them; since, until: the bounds of its releases that are of
# their time, None without one; asks: whether the others are the one that asks; written: how the days are told
OfTime = namedtuple("OfTime", "asked here others newer since until asks written")

_MOST_BESIDE = 4
"""Releases that stand beside a failure: a longer list is all that is installed."""


def may_move(package):
    """Whether pip may change a package alone: none of a build for a PyTorch or a CUDA, or with a rule of its
    own.
    """
    return not re.match("(?:%s)$" % read_patterns()["grammar"]["of-a-build"], package)


def releases_beside(facts, package):
    """{package: release} of those of the table that a text names with a release, without one of them."""
    text, found = text_of(facts).lower(), {}
    for name in read_days():
        known = name != package and (name in text or name.replace("-", "_") in text)
        release = known and release_here(facts, name)
        if release and day_of(name, release):
            found[name] = release
    return found


def _two(facts):
    """(asked, asker): of a name that one package lacks, else of an exception out of a package's own code."""
    apart = getattr(facts, "apart", None)
    if apart and apart.kind in BETWEEN_TWO and apart.asked:
        return apart.asked, apart.asker
    return (None if apart else getattr(facts, "raised_in", None)) or (None, None)


def _asks(package, *keys):
    """The packages of the table that a package asks for, or that its extras do."""
    row = read_days().get(package, {})
    return {name for key in keys for name in row.get(key, "").split()}


def _two_by_requirements(facts, raised, beside):
    """(asked, {its users: release}) by what the packages of a text ask for: of one that raises the releases
    that ask for it, else the latest of those that it asks for, if that is later than it.
    """
    users = {name: release for name, release in beside.items() if raised in _asks(name, "asks")}
    if users or getattr(facts, "apart", None):
        return raised, users
    mine, own = release_here(facts, raised), _asks(raised, "asks", "extras")
    later = [(day_of(name, release), name) for name, release in beside.items() if name in own]
    later = [row for row in later if day_of(raised, mine) and row[0] > day_of(raised, mine)]
    return (max(later)[1], {raised: mine}) if later else (raised, {})


def of_time(facts):
    """What the days tell of the package that raises, or lacks what another one asks for, as :class:`OfTime`:
    by its asker's release, else by those of the text that ask for it, or that it asks for, else by the few
    others in the text, if it is later than all of them or older.
    """
    asked, asker = _two(facts)
    if not asked:
        return None
    release, asks = release_here(facts, asker) if asker else None, True
    if release and day_of(asker, release):
        others = {asker: release}
    elif asker and read_days().get(asker):
        return None  # what asks is known, and its release is not
    else:
        beside = releases_beside(facts, asked)
        asked, others = _two_by_requirements(facts, asked, beside)
        if not others:
            others, asks = beside if len(beside) <= _MOST_BESIDE else {}, False
    here = release_here(facts, asked)
    mine, days = day_of(asked, here), [day_of(name, of) for name, of in others.items()]
    newer = bool(mine and days) and mine > max(days)
    if not mine or not days or not newer and mine >= min(days):
        return None
    written = ["%s %s is of %s" % (asked, here, day_told(mine))]
    written += ["%s %s of %s" % (name, of, day_told(day_of(name, of))) for name, of in sorted(others.items())]
    since = until = None
    # what raises is itself at fault, as far as the text tells
    raised = getattr(facts, "apart", None) is None and not asks
    if newer:
        own = here.partition("+")[0]
        until = own if raised else first_after(asked, max(days))
        # a correction (.post1) of the release that is here, which may be taken back, bounds nothing
        until = own if until and numbers(until) == numbers(own) else until
        until = plain_release(until) if until and numbers(until) <= numbers(own) else None
    else:
        since = newest_by(asked, max(days))
        since = since if numbers(since) > numbers(here) else None
    told = ", ".join(written)
    return OfTime(asked, here, tuple(sorted(others.items())), newer, since, until, asks, told)


_WORKS = re.compile(
    r"(?i)(?<![\w./-])(?P<name>[a-z][\w-]*\w)(?:[ \t]{1,3}|[ \t]?===?[ \t]?|[ \t]to[ \t]|[ \t]?: ?)v?"
    r"(?P<release>\d+(?:\.\d+)*(?:\.x)?)(?![\w.]*[+\w])(?:(?![.!?]\s)[^\n;]){0,80}?"
    r"\b(?:works?|worked|is fine|are fine|was fine|succeeds?|fixe[sd] it|solve[sd] it|"
    r"no (?:such )?(?:error|problem|issue)s?)\b"
    r"(?! (?:in|on|with|for|only)\b)"
)
_DENIED = re.compile(r"(?i)\b(?:not?|never|nothing|longer|stopped|fails?|broken?|neither|nor|cannot)\b|n't\b")


def works_told(facts):
    """{package: release, or a line of them (``4.*``)} of which a text's own words tell that it works with it,
    where it names another one, too: what pip may change alone.
    """
    found, text = {}, text_of(facts)
    for row in _WORKS.finditer(text):
        name, release = canonical(row.group("name")), row.group("release")
        rows = release_rows(name)
        line = re.sub(r"\.x$", ".*", release)
        known = any(numbers(of)[: len(numbers(line))] == numbers(line) for _, of in rows)
        here = release_here(facts, name)
        if not known or not may_move(name) or _DENIED.search(row.group(0)) or here == release:
            continue
        found[name] = line if "*" in line or line.count(".") > 1 else line + ".*"
    return found


def works_words(facts):
    """The packages and releases of :func:`works_told` as one line; None without one."""
    told = sorted(works_told(facts).items())
    return " and ".join("%s %s" % row for row in told).replace(".*", ".x") or None


def of_time_told(facts):
    """The sentence on an :class:`OfTime`."""
    found = of_time(facts)
    if found is None:
        return None
    if not found.asks:
        side = "newest" if found.newer else "oldest"
        return "%s: %s is the %s of the releases in the text" % (found.written, found.asked, side)
    if found.newer:
        return "%s: what asks was written for an earlier %s" % (found.written, found.asked)
    return "%s: what asks was written for a later %s" % (found.written, found.asked)


def raised_out(facts):
    """An exception comes out of a package's own code: its release is in the text, or another one calls it."""
    package, caller = facts.raised_in or (None, "")
    release = release_here(facts, package) if package else ""
    of_other, time = facts.apart or not package, of_time(facts)
    if (
        of_other
        or not (release or caller or facts.code_apart)
        or facts.value_raised
        and not (time and time.asks)
    ):
        return None
    told = "the exception comes out of the own code of %s" % " ".join(filter(None, (package, release)))
    told += releases_around(package, release.partition("+")[0])
    told += ", which %s calls" % caller if caller else ""
    return "; ".join(filter(None, (told, of_time_told(facts))))


def asked_of_time(facts):
    """The requirement on the package that is asked, for a release of the time of what asks it."""
    found = of_time(facts)
    if found is None or not may_move(found.asked) or not (found.since or found.until):
        return None
    bound = ">=" + found.since if found.since else "<" + found.until
    return found.asked + bound


def asker_to_raise(facts):
    """What asks, where it is the older one and later releases of it came since the one that it asks."""
    found = of_time(facts)
    if found is None or not found.newer or len(found.others) > 1:
        return None
    (name, _), mine = found.others[0], day_of(found.asked, found.here)
    later = newest_by(name, 999999)
    return name if may_move(name) and day_of(name, later) > mine else None


def torch_of_time(facts):
    """The release line of PyTorch of the time of what asks it: ``2.9``."""
    found = of_time(facts)
    if found is None or found.asked != "torch" or found.newer or not found.since:
        return None
    return ".".join(map(str, numbers(found.since)[:2]))


def _of_the_time(remedies, framework, spec, variant):
    """[Requirements] beside an older release of a framework, ``<0.4.24``, on the packages of the text that
    ask for it and are later than the first release without the name, and on the cuDNN of its build for
    ``variant`` (``cuda12``) where that asks for a major version and for all later ones.
    """
    bound, facts = re.match(r"<(\d[\d.]*)$", spec or ""), remedies.here
    day = bound and day_of(framework, bound.group(1))
    if not day:
        return []
    words = []
    for name, release in sorted(releases_beside(facts, framework).items()):
        of_that_day = newest_by(name, day) if framework in _asks(name, "asks") else None
        if of_that_day and day_of(name, release) > day:
            words.append("%s<=%s" % (name, of_that_day))
    builds = Releases().builds(framework, None)
    builds = [row for row in builds if satisfies(row["latest"], pins_of(spec)) and row["variant"] == variant]
    for pin in builds[0]["pins"] if builds else ():
        major = numbers(builds[0]["cudnn"])[:1]
        words.append("%s,<%d" % (pin, major[0] + 1) if major and "<" not in pin and "==" not in pin else pin)
    return words


def with_plugin(remedies, requirement):
    """A requirement; on JAX beside its plug-in for CUDA on that one, too, with what stands on JAX of the
    time of an older one, and with its cuDNN where the wheel of that JAX sets no upper bound to it.
    """
    plugin = re.search(r"(?:^| )jax-(cuda\d+)-p", " ".join(remedies.here.packages))
    if not plugin or not re.match(r"jax[<>=]", requirement or ""):
        return requirement
    bare = "jax[%s]%s" % (plugin.group(1), requirement[3:])
    return [bare, *_of_the_time(remedies, "jax", requirement[3:], plugin.group(1))]
