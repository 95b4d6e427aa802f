"""Advice about a failed build, by the usual messages of such builds."""

import re

from builder.core.model import Sdist
from builder.plan.facts.tables import load

NETWORK = "its build asks the network"
COMPILED = "it is compiled"
LACKS = "its build lacks"

_NETWORK = (
    "Temporary failure in name resolution", "Name or service not known", "Network is unreachable",
    "nodename nor servname", "Errno -2", "Errno -3", "Errno 101", "Failed to establish a new connection",
)  # fmt: skip
_COMPILER = (
    "gcc", "g++", "CMake", "cmake", "pkg-config", "command 'cc'", "clang", "meson", "Cython", "pg_config",
    "R_HOME", "gdal-config", "C compiler", "Python.h",
)  # fmt: skip
_LACKS = (
    # gcc
    (re.compile(r"fatal error: (?P<what>\S+): No such file or directory"), "the header {what}"),
    (re.compile(r"cannot find -l(?P<what>[\w.+-]+)"), "the library lib{what}.so"),
    # pkg-config of both makers
    (re.compile(r"No package '(?P<what>[^']+)' found"), "{what}.pc"),
    (re.compile(r"Package '?(?P<what>[\w.+-]+)'?(?:, required by '[^']*',| was) not found"), "{what}.pc"),
    (re.compile(r"Dependency [\"']?(?P<what>[\w.+-]+)[\"']? (?:is required but )?not found"), "{what}.pc"),
    (re.compile(r"(?<![\w./])(?P<program>pkg-config|cmake|ninja|meson|swig|pg_config|gdal-config)(?![\w./])"
                r"[^\n]{0,40}(?:not found|not installed|must be installed|No such file)", re.IGNORECASE),
     "the program {program}"),
    (re.compile(r"No such file or directory: '(?P<program>[a-z][\w+-]*)'"), "the program {program}"),
)  # fmt: skip


def to_compile(sdist: Sdist) -> str:
    """Advice about compiled sources that the matrix names as pure Python."""
    needs = load().build_needs(sdist.name, sdist.version)
    return (
        f"{COMPILED}: say so in 'from-source', with the Debian packages that its build needs, as in "
        f"'{sdist.name}: [{', '.join(needs or ())}]'; or name an index that has a wheel of it (`index:`)"
    )


def of_failure(text: str, sdist: Sdist, *, compiled: bool) -> str:
    """Advice; ``text`` is the output of the build, in which a compiler's message is far from the end."""
    end = "\n".join([line for line in text.splitlines() if line.strip()][-40:])
    if any(word in end for word in _NETWORK):
        return f"{NETWORK}, which it does not get: name the index that has a wheel (`index:`)"
    lacking = lacks(text) if compiled else None
    if lacking is not None:
        needs = load().build_needs(sdist.name, sdist.version)
        known = f" ({', '.join(needs)}, by its own pages)" if needs else ""
        return (
            f"{LACKS} {lacking}: add the Debian package that has it{known} to the list of "
            f"{sdist.name} in 'from-source'"
        )
    if not compiled and any(word in end for word in _COMPILER):
        return to_compile(sdist)
    return "pin another version of it, or leave it out of 'from-source'"


def lacks(text: str) -> str | None:
    """The first thing that a compiler or a tool asked for and did not find, in words."""
    found = []
    for pattern, words in _LACKS:
        if match := pattern.search(text):
            named = match.groupdict()
            if "program" in named:
                named["program"] = named["program"].lower()
            found.append((match.start(), words.format(**named)))
    return min(found)[1] if found else None
