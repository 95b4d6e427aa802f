"""The days on which packages' releases came, the releases before and after one, and the last one with a file
for a Python: ``release_days.json``.
"""

import datetime
import functools
import re

from .tables import read_days
from .versions import dotted, numbers, pins_of, satisfies


@functools.lru_cache(maxsize=None)
def release_rows(package):
    """[(day, release)] of a package in the order of its releases, a day as ``YYMMDD``, 260609; [] of one that
    the table does not have.
    """
    row, found, parts, day = read_days().get(package, {}), [], [], datetime.date(2000, 1, 1)
    for text, days in zip(row.get("releases", "").split(), row.get("days", "").split()):
        own = text.lstrip(".")
        parts = parts[: len(text) - len(own)] + own.split(".")
        day += datetime.timedelta(days=int(days))
        found.append((day.year % 100 * 10000 + day.month * 100 + day.day, ".".join(parts)))
    return found


def day_of(package, release):
    """The day of a release, or of the one before it if the table has not the very one; None if neither."""
    here = numbers(release)
    rows = [(numbers(known), day, known) for day, known in release_rows(package) if numbers(known) <= here]
    same = [day for number, day, _ in rows if number == rows[-1][0]]  # the first of it and its corrections
    exact = [day for _, day, known in rows if known == release]
    return (exact or same)[0] if here and rows else None


def day_told(day):
    """``June 2026`` of 260609."""
    return "%s %d" % (_MONTHS[day // 100 % 100 - 1], 2000 + day // 10000)


_MONTHS = "January February March April May June July August September October November December".split()


def newest_by(package, day):
    """The latest release of a package on a day."""
    rows = [release for of, release in release_rows(package) if of <= day]
    return rows[-1] if rows else None


def first_after(package, day):
    """The first release above all of those of a day."""
    newest = numbers(newest_by(package, day))
    rows = [release for of, release in release_rows(package) if of > day and numbers(release) > newest]
    return rows[0] if rows and newest else None


def last_for_python(package, release, python):
    """(the last release with a file for a Python, the next Python that the newest one has a file for), where
    this release is a later one and has none: ("1.23.2", "3.11") of onnxruntime 1.24.3 and 3.10. None for one
    that is not known to be without. ``python``: its numbers.
    """
    words = read_days().get(package, {}).get("pythons", "").split()
    rows = dict(zip(words[::2], words[1::2]))
    last = rows.get(".".join(map(str, python[:2])))
    if last is None or not numbers(release) or numbers(release) <= numbers(last):
        return None
    later = range(python[1] + 1, 15)
    return last, next(("3.%d" % minor for minor in later if "3.%d" % minor not in rows), None)


def left_behind(remedies):
    """(package, release, its last release with a file for this Python, the next Python that has one) of what
    cannot be installed; None if the release is not known to be without.
    """
    here, line = remedies.here, str(remedies.detail.get("line")).lower()
    what, _, wanted = (remedies.detail.get("what") or "").partition("==")
    name = (what or remedies.detail.get("name") or "").lower()
    if not name:
        words = set(re.findall(r"[a-z][a-z0-9-]*[a-z0-9]", line))
        named = sorted(name for name in words & set(read_days()) if read_days()[name].get("pythons"))
        name = named[0] if len(named) == 1 else ""
    release = remedies.detail.get("wanted") or wanted or here.packages.get(name)
    found = last_for_python(name, release, numbers(here.python)) if numbers(here.python)[1:] else None
    return (name, release) + found if found else None


def left_behind_told(remedies):
    """The sentence on :func:`left_behind`; None without it."""
    row = left_behind(remedies)
    python = dotted(numbers(remedies.here.python)[:2])
    told = "%s %s has no file for Python %s: %s is the last release with one"
    return told % (row[0], row[1], python, row[2]) if row else None


def numpy_exchanged(remedies):
    """The sentence on a NumPy of the text that is one which the package was compiled for, so that the one
    that is loaded is another; None without it.
    """
    asked, here = remedies.known("numpy-compiled"), remedies.here.packages.get("numpy")
    if not asked or not here or not satisfies(here, pins_of(asked)):
        return None
    return "what is imported was compiled for %s, as numpy %s is, and another NumPy is loaded" % (asked, here)


def releases_around(package, release):
    """A clause on the releases before and after one; empty for one that the table does not have."""
    every = [known for _, known in release_rows(package)]
    if release not in every:
        return ""
    at = every.index(release)
    told = ["%s is the release before it" % every[at - 1]] if at else []
    told += ["%s the one after" % every[at + 1]] if at + 1 < len(every) else []
    return " (%s)" % ", ".join(told) if told else ""
