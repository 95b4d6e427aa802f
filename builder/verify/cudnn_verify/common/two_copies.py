"""Two copies of one library in a process, or in a folder, by the packages that a text names.

The conditions take a :class:`~text_facts.TextFacts` and the detail of the line, and give a sentence if it is
so, else nothing.
"""

import re

from .toolkit_facts import text_of

_OPENCV = re.compile(
    r"\bopencv(?:[-_]contrib)?[-_]python(?:[-_]headless)?\b|(?<=[,/])\s*(?:and )?-(?:contrib|headless)\b"
)
_WITH_OPENMP = ("torch", "faiss", "xgboost", "lightgbm", "sklearn", "scikit-learn", "shapiq", "tensorflow")
"""Packages whose wheels for macOS bring a libomp:
https://pypackaging-native.github.io/key-issues/native-dependencies/blas_openmp/
"""
_IMPORTED = re.compile(r"\bimport(?:s|ed|ing)? +([a-z]\w+)")


def opencv_several(facts, _):
    """Several of the packages that all bring the folder ``cv2``."""
    found = {re.sub("_", "-", name.strip()) for name in _OPENCV.findall(facts.trace.text)}
    return found and len(found) > 1 and "the text names %s" % ", ".join(sorted(found))


def openmp_pair(facts, _):
    """A crash on a Mac, or where no other system is told, in a text about two packages with a libomp each."""
    text = facts.trace.text
    elsewhere = {"windows", "wsl", "container", "jetson", "colab"} & facts.places
    linux = re.search(r"(?i)\blinux\b|ubuntu|debian|manylinux|/usr/lib/|\bnvidia\b|\bcuda\b", text)
    if elsewhere or linux and "macos" not in facts.places:
        return None
    lower = text.lower()
    named = [name for name in _WITH_OPENMP if re.search(r"(?<![a-z])_?(?:swig)?%s" % name, lower)]
    named += [name for name in _IMPORTED.findall(lower) if named and name not in named]
    told = "macos" in facts.places or re.search("libomp|_swigfaiss|import order|earlier|first", lower)
    pair = list(dict.fromkeys(named))[:2]
    return told and len(pair) > 1 and "%s and %s are in one process" % tuple(pair)


def one_opencv(remedies):
    """The one OpenCV that a text's program needs: with windows if it shows some, else without them; takes a
    :class:`~remedies.Remedies`.
    """
    text = text_of(remedies.here)
    shows = re.search(r"\bimshow\b|namedWindow|waitKey", text)
    contrib = "-contrib" if re.search(r"opencv[-_]contrib", text) else ""
    return "opencv%s-python%s" % (contrib, "" if shows else "-headless")


TWO_COPIES = {"opencv-several": opencv_several, "openmp-pair": openmp_pair}
"""By the names in ``signatures.ini``."""
