"""The days on which packages' releases came, and the releases before and after one: ``release_days.json``."""

import functools

from .tables import read_days
from .versions import numbers


@functools.lru_cache(maxsize=None)
def release_rows(package):
    """[(day, release)] of a package in the order of its releases; [] of one that the table does not have."""
    words = read_days().get(package, {}).get("days", "").split()
    return list(zip(map(int, words[::2]), words[1::2]))


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


def releases_around(package, release):
    """A clause on the releases before and after one; empty for one that the table does not have."""
    every = [known for _, known in release_rows(package)]
    if release not in every:
        return ""
    at = every.index(release)
    told = ["%s is the release before it" % every[at - 1]] if at else []
    told += ["%s the one after" % every[at + 1]] if at + 1 < len(every) else []
    return " (%s)" % ", ".join(told) if told else ""
