"""The tables: frameworks, their releases, cards, drivers, expressions for texts.

The ``.ini`` files are written by hand; ``facts.json`` is made from rtbuild's compatibility tables by
``rtbuild facts export``, ``names.json`` out of wheels by ``rtbuild facts names``, and ``release_days.json``
out of the package index by ``rtbuild facts days``. In the one-file form their texts stand here.
"""

import functools
import json
import os
import re

from ....core.cards import index_cards
from ....core.packed_text import unpack_text
from .versions import dotted, numbers, pins_of, satisfies


def beside(name):
    """The text of a data file, by its path below the probe's folder."""
    folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    with open(os.path.join(folder, name), "rb") as stream:
        return stream.read().decode("utf-8")


class Section(dict):
    """A section of a data file: its name and {key: text}."""

    def __init__(self, name, texts):
        super(Section, self).__init__(texts)
        self.name = name


TABLES = beside("common/facts.json")
PATTERNS = beside("common/patterns.ini")
NAMES = beside("common/names.json")
DAYS = beside("common/release_days.json")


def read_sections(text):
    """The sections of a data file in INI format, in its order, as Python's ``configparser`` has them, which
    takes five times as long. Raises ValueError for a line that is neither a section, a key nor the rest of a
    value, and for a key that is there twice.
    """
    found, rows, lines = [], None, None
    for line in text.splitlines():
        value = line.strip()
        if not value or value[0] == "#":
            if lines and not value:
                lines.append("")
        elif line[0] in " \t" and lines:
            lines.append(value)
        elif value[0] == "[" and value[-1] == "]":
            rows, lines = {}, None
            found.append((value[1:-1], rows))
        else:
            key, is_key, first = value.partition("=")
            key, lines = key.strip().lower(), [first.strip()]
            if rows is None or not is_key or key in rows:
                raise ValueError("a line that is no part of a section, or a key that is there twice: " + line)
            rows[key] = lines
    return [
        Section(name, {key: "\n".join(lines).rstrip() for key, lines in rows.items()}) for name, rows in found
    ]


def read_frameworks():
    """{framework: {key: value}}; ``plan/facts/tables/data/frameworks.toml`` says what the keys are."""
    return read_facts()["frameworks"]


def told_names():
    """The frameworks by the names under which a text's packages are filed."""
    return [row["told"] for row in read_frameworks().values()]


def newest_row(framework, key, version):
    """The text of the newest row that is not newer than ``version`` (numbers), ``""`` if there is none."""
    rows = [(numbers(since), text) for since, text in read_frameworks()[framework].get(key, {}).items()]
    return next((text for since, text in sorted(rows, reverse=True) if () < since <= version), "")


def cudnn_of_torch(packages):
    """The major version of the cuDNN that the PyTorch among packages brings; None if that is not known."""
    major = newest_row("torch", "cudnn", numbers(packages.get("torch")))
    return int(major) if major else None


def opened_libraries(framework, cuda):
    """File names that a framework's build for this CUDA (text) opens by itself; [] if that is not known."""
    return ["lib" + name for name in newest_row(framework, "opens", numbers(cuda)).split()]


@functools.lru_cache(maxsize=1)
def read_patterns():
    """{section: {key: text}} of ``patterns.ini``."""
    sections = read_sections(PATTERNS)
    return {row.name: {key: "".join(value.split("\n")) for key, value in row.items()} for row in sections}


@functools.lru_cache(maxsize=1)
def read_facts():
    """``facts.json``: an object for each kind of fact; ``plan/facts/tables/probe_facts.py`` says which."""
    return json.loads(TABLES)


@functools.lru_cache(maxsize=1)
def _read_names():
    return json.loads(NAMES)


@functools.lru_cache(maxsize=1)
def names_roots():
    """{package: its outermost modules} of ``names.json``."""
    return {package: row["roots"] for package, row in _read_names().items()}


@functools.lru_cache(maxsize=None)
def _names_text(package):
    return unpack_text(_read_names()[package]["row"])


@functools.lru_cache(maxsize=None)
def names_row(package):
    """What the releases of a package lost and brought, out of ``names.json``; ``names_table`` of
    ``plan/facts/reading/release_names.py`` says in which form. None for a package that it does not have.
    """
    return json.loads(_names_text(package)) if package in _read_names() else None


@functools.lru_cache(maxsize=64)
def rows_with(name):
    """[(package, its row)] of ``names.json`` where a name is in the text of the row."""
    return [(package, names_row(package)) for package in _read_names() if name in _names_text(package)]


@functools.lru_cache(maxsize=1)
def read_days():
    """``release_days.json``: {package: {"releases": ..., "days": ..., "asks": "package ...", "extras": ...}};
    ``days_table`` of ``plan/facts/reading/release_days.py`` says in which form.
    """
    return json.loads(DAYS)


@functools.lru_cache(maxsize=1)
def read_cards():
    rows = read_facts()["cards"].items()
    capabilities = {name: capability for capability, names in rows for name in names}
    return index_cards(capabilities, read_facts()["generations"], frozenset(read_facts()["short"]))


def driver_floor(cuda):
    """The oldest driver (numbers) that serves all of a CUDA major version; () if that is not known."""
    return numbers(read_facts()["cuda"].get(str(cuda), (None,))[0])


def cuda_of_driver(driver):
    """The newest CUDA (numbers) that came with a driver no newer than this one (numbers); () if none is
    known.
    """
    rows = [(numbers(shipped), numbers(cuda)) for cuda, shipped in read_facts()["shipped"].items()]
    return max([cuda for shipped, cuda in rows if () < shipped <= driver] or [()])


def branch_for(cuda):
    """The driver branch that came with a CUDA (major, minor) or with the next one; None above all that are
    known.
    """
    rows = sorted((numbers(name), numbers(shipped)[0]) for name, shipped in read_facts()["shipped"].items())
    return next((branch for name, branch in rows if name >= cuda), None)


def known_bad(here, text=None):
    """The row about these versions (texts by name: a framework, cuda, cudnn, gpu), or None.

    ``text``, if given, has to be in the row's words for the failure.
    """
    for row in read_facts()["known_bad"]:
        known = {name: here[name] for name in row["when"] if here.get(name)}
        about = set(row["when"]) - {"gpu"} <= set(known)
        fits = all(satisfies(version, pins_of(row["when"][name])) for name, version in known.items())
        if about and fits and (text is None or (row["says"] and re.search(row["says"], text))):
            return row
    return None


def known_bad_words(row):
    """The known fault, as a sentence."""
    return "%(message)s; take %(remedy)s (%(source)s)" % row


def cuda_package(stem, major):
    """NVIDIA's name of a wheel for a CUDA major: ``nvidia-cublas-cu12``, and ``nvidia-cublas`` for 13."""
    plain = (read_facts()["families"].get(stem) or {}).get("plain")
    return "nvidia-%s" % stem if plain and major >= plain else "nvidia-%s-cu%d" % (stem, major)


def cuda_family(name):
    """("cublas", 12) for ``nvidia-cublas-cu12``, ("cublas", None) for ``nvidia-cublas``; (None, None) for
    what is no wheel of CUDA's libraries.
    """
    found = re.match(r"nvidia-(.+?)(?:-cu(\d+))?$", name)
    if not found or found.group(1) not in read_facts()["families"]:
        return None, None
    return found.group(1), int(found.group(2)) if found.group(2) else None


def cuda_major_of(name, version):
    """The CUDA major of one of NVIDIA's wheels: of its name, else of the version of CUDA's runtime or of
    ``cuda-toolkit``; None for others, which count by themselves (cuFFT 12 is of CUDA 13).
    """
    family, major = cuda_family(name)
    told = numbers(version)
    counted = family in ("cuda-runtime", "cuda-nvrtc", "cuda-nvcc") or name == "cuda-toolkit"
    return major or (told[0] if counted and told else None)


class Releases(object):
    """The releases of frameworks and of cuDNN's wheels that travel with the probe."""

    def builds(self, framework, version):
        """Rows of a framework, the newest and the index's own first; with a version its own alone."""
        rows = [row for row in read_facts()["builds"] if row["framework"] == framework]
        if version is not None:
            rows = [row for row in rows if satisfies(version, pins_of(row["versions"]))]
        return sorted(rows, key=lambda row: (numbers(row["latest"]), row["default"]), reverse=True)

    @staticmethod
    def refused(row, capability):
        """Whether a release is known to fail on a card although its build is one for it; numbers."""
        return any(
            row["framework"] == name
            and satisfies(row["latest"], pins_of(versions))
            and satisfies(dotted(capability[:2]), pins_of(cards))
            for name, versions, cards in read_facts()["refused"]
        )

    def paired(self, package, torch):
        """The requirement on a package that is compiled for a PyTorch: ``torchvision==0.24.1`` for
        ``2.9.1``, or ``torchvision==0.29.*`` where a release serves later ones, too; None if no release
        is known.
        """
        wanted, rows = numbers(torch), read_facts()["pairs"].get(package, ())
        minor = dotted(wanted[:2])
        if len(wanted) == 2:
            line = [row for row in rows if row[2].startswith("==") and numbers(row[2][2:])[:2] == wanted]
            return "%s==%s.*" % (package, dotted(numbers(line[-1][1])[:2])) if line else None
        of_minor = [row for row in rows if minor and minor in row[2].split()]
        exact = [row for row in rows if row[2].startswith("==") and numbers(row[2][2:]) == wanted]
        if exact or of_minor:
            return "%s==%s" % (package, (exact or of_minor)[-1][1])
        pinned = [numbers(row[2][2:]) for row in rows if row[2].startswith("==")]
        last = rows[-1] if rows and pinned and wanted > max(pinned) else None
        if last is None or last[2] and not satisfies(torch, pins_of(last[2])):
            return None
        line = numbers(last[1])[:2]
        return "%s==%s.*" % (package, dotted(line)) if any(line) else "%s>=%s" % (package, last[0])

    def pinned_torch(self, package, release):
        """The PyTorch that a release of a package pins; None if it pins none or is not known."""
        row = self.wheels_of(package, release)
        return row[2][2:] if row and row[2].startswith("==") and "," not in row[2] else None

    @staticmethod
    def wheels_of(package, release):
        """The row of a package's release in ``facts.json``'s ``pairs``; None if it is not known."""
        here = numbers(release)
        rows = read_facts()["pairs"].get(package, ())
        return next((row for row in rows if here and numbers(row[0]) <= here <= numbers(row[1])), None)

    def cudnn_wheel(self, cuda_major, wanted):
        """``nvidia-cudnn-cu12==9.3.0.75`` for a version, or a range if no such wheel is known, or None."""
        name = "nvidia-cudnn-cu%s" % cuda_major
        aim = numbers(wanted)
        known = read_facts()["wheels"]
        for text in known.get(name, ()):
            if aim and numbers(text)[: len(aim)] == aim:
                return "%s==%s" % (name, text)
        if name not in known or not aim:
            return None
        return "%s>=%s,<%d" % (name, ".".join(str(part) for part in aim), aim[0] + 1)
