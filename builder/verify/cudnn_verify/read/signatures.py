"""The signatures of errors, and the checks that tell apart causes that fit equally: ``*.ini`` beside this
file.
"""

import functools
import re
from collections import namedtuple

from ..common.causes import ini_row
from ..common.tables import beside, read_sections

# example: a line as programs print it; pattern: the compiled expression; causes: ids, the most frequent
# first; when, first, unless: [(condition, cause)]
Signature = namedtuple(
    "Signature", "id example pattern systems kind causes when first unless wants says source"
)
NextCheck = namedtuple("NextCheck", "id causes place command decides")

SIGNATURES = beside("read/signatures.ini")
NEXTCHECKS = beside("read/next_checks.ini")


@functools.lru_cache(maxsize=1)
def read_next_checks():
    """The commands that tell causes apart, in the order of the file."""
    return [ini_row(NextCheck, section) for section in read_sections(NEXTCHECKS)]


@functools.lru_cache(maxsize=1)
def read_signatures():
    return [_signature(section) for section in read_sections(SIGNATURES)]


def _signature(section):
    def pairs(key):
        lines = [line.partition(":") for line in section.get(key, "").splitlines() if line.strip()]
        return [(condition.strip(), cause.strip()) for condition, _, cause in lines]

    return Signature(
        id=section.name,
        pattern=re.compile(section["text"].replace(" ", r"\s+"), re.IGNORECASE | re.MULTILINE),
        systems=_listed(section.get("in", "")),
        causes=_listed(section.get("causes", "")),
        when=pairs("when"),
        first=pairs("first"),
        unless=pairs("unless"),
        **{key: section.get(key) for key in ("example", "kind", "wants", "says", "source")},
    )


def _listed(text):
    return [part.strip() for part in text.split(",") if part.strip()]
