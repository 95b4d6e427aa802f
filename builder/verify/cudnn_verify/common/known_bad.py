"""Releases, and pairs of them, that are on record as bad, by the words of their failure in a text:
``known-bad.toml``.

``facts`` is a :class:`~text_facts.TextFacts`, ``detail`` what is known of the line that failed.
"""

import re

from .name_changes import release_here
from .tables import Releases, read_facts
from .versions import numbers, pins_of, satisfies

KNOWN_BAD = "known-bad "
"""How what a signature wants begins that is of a row; its name follows."""
_OF_THE_MACHINE = {"python": "python", "gpu": "capability", "cuda": "built_cuda"}


def rows_with_words():
    """The rows that a text's words tell, and a line for pip mends."""
    return [row for row in read_facts()["known_bad"] if row["says"] and row.get("mend")]


def bad_row(detail):
    """The row of the line that failed; None for another line."""
    name = detail.get("requirement") or ""
    rows = (row for row in rows_with_words() if name == KNOWN_BAD + row["id"])
    return next(rows, None) if name.startswith(KNOWN_BAD) else None


def _told(facts, detail, row):
    """[(package, its release in the text or "", whether that one is bad or may be)] of a row. What the words
    of the failure alone name is what they ask for.
    """
    found, matched = [], detail.get("matched") or ""
    others = facts.trace.text.replace(matched, "") if matched else facts.trace.text
    for name, bounds in row["when"].items():
        field = _OF_THE_MACHINE.get(name)
        release = (getattr(facts, field) or "") if field else release_here(facts, name)
        release = "" if release in matched and release not in others else release
        found.append((name, release, not release or satisfies(release, pins_of(bounds))))
    return found


def known_bad_fits(facts, detail):
    """What the row says, if no release in the text is another one than it names."""
    row = bad_row(detail)
    told = _told(facts, detail, row)
    if not all(fits for _, _, fits in told) or row["named"] and not known_bad_here(facts, detail):
        return None
    return row["message"]


def known_bad_here(facts, detail):
    """The sentence on the releases of a row, where the text has them all, and they are the bad ones."""
    told = _told(facts, detail, bad_row(detail))
    if not all(release and fits for _, release, fits in told):
        return None
    return "the text names %s" % " and ".join("%s %s" % (name, release) for name, release, _ in told)


def known_bad_mend(remedies):
    """The requirements that mend the row of the line that failed; of a package that is compiled for a PyTorch
    the release for the one that is here, if that is among them.
    """
    row = bad_row(remedies.detail)
    if row is None:
        return None
    return [_below_other_rows(remedies, for_torch_here(remedies, one)) for one in row["mend"]]


def _below_other_rows(remedies, requirement):
    """A requirement with its upper bound where another row has it: what mends this fault is not to bring a
    release that is bad beside one in the text.
    """
    name, pins = re.match(r"[\w.-]+", requirement).group(0), pins_of(requirement)
    floor = next((numbers(version) for operator, version in pins if operator == ">="), ())
    tops = [version for operator, version in pins if operator == "<"]
    if any(operator not in (">=", "<") for operator, _ in pins):
        return requirement
    for row in read_facts()["known_bad"]:
        bad, others = pins_of(row["when"].get(name, "")), {**row["when"], name: ""}
        del others[name]
        beside = [(release_here(remedies.here, other), pins_of(when)) for other, when in others.items()]
        if [operator for operator, _ in bad] == [">="] and beside and numbers(bad[0][1]) > floor:
            if all(release and satisfies(release, when) for release, when in beside):
                tops.append(bad[0][1])
    least = ["<" + min(tops, key=numbers)] if tops else []
    return name + ",".join([operator + version for operator, version in pins if operator != "<"] + least)


def for_torch_here(remedies, requirement):
    """A requirement with a lower bound alone, or the one release within it that is compiled for the PyTorch
    of the text: a later one would ask for another PyTorch.
    """
    name, floor = (requirement + ">=").split(">=")[:2]
    torch = (remedies.here.packages.get("torch") or "").partition("+")[0]
    paired = Releases().paired(name, torch) if torch and floor and "," not in floor else None
    exact = (
        paired and "==" in paired and satisfies(paired.partition("==")[2].rstrip(".*"), pins_of(">=" + floor))
    )
    return paired if exact else requirement


KNOWN_BAD_FAULTS = {"known-bad-fits": known_bad_fits, "known-bad-here": known_bad_here}
"""By the names in ``signatures.ini``."""
