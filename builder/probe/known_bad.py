"""Releases of frameworks that are known to be faulty, and the texts by which that shows."""

import re
from collections import namedtuple

from .versions import numbers

# capabilities: (major, minor) from which to which the fault is known; says: a text of the exception
KnownBad = namedtuple("KnownBad", "framework version cuda capabilities says instead source")

_CUBLAS = r"CUBLAS_STATUS_(INTERNAL_ERROR|EXECUTION_FAILED|NOT_INITIALIZED)"
_ANY_STATUS = _CUBLAS + r"|CUDNN_STATUS_\w+|illegal memory"
_LATER = "1.9.0, or the build for CUDA 10.2"
_ISSUE = "https://github.com/pytorch/pytorch/issues/%d"
KNOWN_BAD = (
    KnownBad("torch", (1, 8, 0), (10, 2), ((7, 0), (7, 5)), _CUBLAS, "1.8.1", _ISSUE % 53336),
    KnownBad("torch", (1, 8, 1), (11, 1), ((6, 0), (6, 2)), _ANY_STATUS, _LATER, _ISSUE % 56747),
)


def known_bad(framework, version, cuda, capability=None, text=None):
    """The row for a release, or None; versions as texts. ``capability`` and ``text`` narrow it if given."""
    for row in KNOWN_BAD:
        here = (framework, numbers(version)[:3], numbers(cuda)[:2])
        if here != (row.framework, row.version, row.cuda):
            continue
        if capability and not row.capabilities[0] <= numbers(capability)[:2] <= row.capabilities[1]:
            continue
        if text is None or re.search(row.says, text):
            return row
    return None


def known_bad_words(row):
    """The known fault, as a sentence."""
    first, last = row.capabilities
    cards = "%d.%d to %d.%d" % (first + last)
    return "known to fail on compute capability %s, take %s (%s)" % (cards, row.instead, row.source)
