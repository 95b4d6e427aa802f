"""Lists of packages in texts: whole files of them, and those that stand in a pasted session; what differs
between several, and what makes one machine as another one that works.
"""

import re

from ..common.distributions import canonical
from ..common.held_sets import doubles_of, past_pin
from ..common.tables import cuda_major_of, read_facts, read_frameworks, told_names
from ..common.versions import numbers

_BUILD = re.compile(r"\+(?:cu|cuda)(?P<major>\d\d)(?P<minor>\d)?")

_FEWEST_LISTED = 3
_PACKAGE_LINE = re.compile(
    r"(?P<name>[A-Za-z0-9][\w.-]*)(?:\[[\w,.-]+\])?(?: ?=={0,2} ?|\s+)v?(?P<version>\d[\w.!+]*)(?:[=\s;].*)?$"
)
_BETWEEN_PACKAGES = re.compile(r"\s*(?:#.*|--?[\w-].*|[-\s]+|Package\s+Version.*|[\w.-]+ @ \S+)?\\?$")
"""Lines of `pip freeze`, `pip list`, `conda list`, `conda list --export` and requirements with hashes."""
_RUNTIME = ("nvidia-cuda-runtime", "cuda-cudart", "cudatoolkit", "cuda-version", "pytorch-cuda")
_OLDEST, _PART_OF_CUDA = "oldest driver", re.compile("nvidia-|cuda-|lib")
_WITH_CUDA = re.compile(r"-cu(?:da)?1\d(?=x?$|-)")


def listed_packages(texts):
    """{name: version} of lines that are a list of packages; None for any other text."""
    rows = [(text, _PACKAGE_LINE.match(text)) for text in texts if text.strip()]
    if any(not found and not _BETWEEN_PACKAGES.match(text) for text, found in rows):
        return None
    packages = {canonical(found.group("name")): found.group("version") for _, found in rows if found}
    return packages if len(packages) >= _FEWEST_LISTED else None


def compared(lists, driver=None):
    """What differs between lists of packages, {name: version} each, in the order that matters to a GPU:
    ``rows`` [{what, values, note}] of frameworks, CUDA, the oldest driver for it, cuDNN and packages that are
    built for one of these; ``others``, names of the rest that differs; ``alike``, the number of those that do
    not. A value is None where a list tells none. ``driver``: the version that texts name, or None, or a list
    with that of each machine.
    """
    told = {alias: row["told"] for row in read_frameworks().values() for alias in row.get("aliases", ())}
    parts = [_parts_of(packages, told) for packages in lists]
    first = (
        told_names()
        + ["CUDA", _OLDEST, "nvidia-cudnn", "cudnn", "jaxlib", "numpy"]
        + sorted(read_facts()["pairs"])
    )
    names = sorted({name for row in parts for name in row})
    differ = [name for name in names if len({row.get(name) for row in parts}) > 1]
    rows = [
        {"what": name, "values": [row.get(name) for row in parts], "note": None}
        for name in dict.fromkeys(first)
        if name in differ
    ]
    for row in rows:
        if row["what"] == _OLDEST and driver:
            row["note"] = _served(driver, row["values"])
        if row["what"] == "numpy" and len({numbers(value)[:1] for value in row["values"] if value}) > 1:
            row["note"] = "packages compiled for NumPy 1 do not run with NumPy 2"
    return {
        "rows": rows,
        "others": sorted(
            (name for name in differ if name not in first),
            key=lambda name: (bool(_PART_OF_CUDA.match(name)), name),
        ),
        "alike": len(names) - len(differ),
    }


def _served(driver, floors):
    """Whether drivers serve what asks for these ones, in words."""
    words = {True: "serves it", False: "is too old", None: "not known"}
    drivers = driver if isinstance(driver, list) else [driver] * len(floors)
    pairs = list(zip(drivers, floors))
    serves = [bool(numbers(one) >= numbers(floor)) if one and floor else None for one, floor in pairs]
    if len(set(drivers)) == 1:
        return "driver %s: %s" % (drivers[0], ", ".join(words[one] for one in serves))
    told = ["driver %s %s" % (one or "of unknown release", words[row]) for one, row in zip(drivers, serves)]
    return ", ".join(told)


def listed_within(texts):
    """{name: version} of the longest list of packages that stands in a longer text, as a session has it that
    shows ``pip freeze``; None without one.
    """
    best, rows = {}, {}
    for text in [*texts, "$"]:
        found = _PACKAGE_LINE.match(text.strip())
        if found and ("==" in text or re.match(r"\s*\S+\s{2,}\d", text)):
            rows[canonical(found.group("name"))] = found.group("version")
        elif text.strip() and not re.match(r"[-\s]+$|Package\s+Version", text):
            best, rows = max(best, rows, key=len), {}
    return best if len(best) >= _FEWEST_LISTED else None


_WHEELS_OF_CUDA = re.compile(r"(?:nvidia|cuda)-(?!ml-py)")


def as_another(here, there):
    """(packages to remove, requirements to install) that make the packages of one list, ``here``, those of
    another one that works; in both {name: version}. Of packages that neither is built for CUDA nor named by
    the tables nothing is exchanged.
    """
    known = {*told_names(), *read_facts()["pairs"], "jaxlib", "numpy", "onnxruntime-gpu", "tensorflow"}
    wanted = [name for name in there if name in known and here.get(name) != there[name]]
    wheels = sorted(name for name in here if _WHEELS_OF_CUDA.match(name) and name not in there)
    builds = {found.group(0)[1:] for found in map(_BUILD.search, map(there.get, wanted)) if found}
    pins = ["%s==%s" % (name, there[name]) for name in sorted(wanted, key=lambda name: name != "torch")]
    index = "https://download.pytorch.org/whl/"
    return wheels, pins + ["--extra-index-url " + index + build for build in sorted(builds)]


def why_both_fit(here, there):
    """The sentence on releases of one number and two builds, which one pin admits; None without one."""
    for name in told_names():
        plain, built = sorted((here.get(name) or "", there.get(name) or ""), key=len)
        if plain and plain != built and built.partition("+")[0] == plain.partition("+")[0]:
            told = "%s==%s names no build: %s fits it as well as %s, and the index that was asked decides"
            return told % (name, plain.partition("+")[0], built, plain)
    return None


def _parts_of(packages, told):
    """{name, without the CUDA in it: version} of a list, with its CUDA and the oldest driver for that."""
    parts = {}
    for name, version in packages.items():
        parts.setdefault(_WITH_CUDA.sub("", told.get(name, name)), version)
    builds = [found.group("major") for found in map(_BUILD.search, packages.values()) if found]
    majors = {cuda_major_of(name, version) for name, version in packages.items()} - {None}
    majors |= {int(found) for name in packages for found in re.findall(r"-cu(?:da)?(1\d)(?=x?$|-)", name)}
    majors = majors or set(map(int, builds))
    runtime = next((parts[name] for name in _RUNTIME if name in parts), None)
    majors = {numbers(runtime)[0]} if runtime else majors
    parts["CUDA"] = (
        ".".join(runtime.split(".")[:2]) if runtime else " and ".join(map(str, sorted(majors))) or None
    )
    parts[_OLDEST] = read_facts()["cuda"].get(str(max(majors or {0})), (None,))[0]
    return parts


def machines_of(texts):
    """{source: its lines} of sessions that each show the packages of a machine, where a framework is of
    another release or build on one of them; {} otherwise.
    """
    found = {name: listed_within(line.text for line in lines) for name, lines in texts.items()}
    found = {name: packages for name, packages in found.items() if packages}
    differ = any(len({packages.get(name) for packages in found.values()}) > 1 for name in told_names())
    common = set.intersection(*map(set, found.values())) if found else set()
    return {name: texts[name] for name in found} if len(found) > 1 and differ and len(common) > 1 else {}


def as_working(here, there, name, because):
    """What makes the packages of a machine those of the one that works, ``name``: values for its row."""
    wheels, words = as_another(here, there)
    why = why_both_fit(here, there)
    rows = []
    if wheels:
        rows.append(("pip", "pip uninstall -y " + " ".join(wheels), "of another CUDA than on %s" % name))
    if words:
        rows.append(("pip", "pip install " + " ".join(words), "as on %s, where it works" % name))
    commands = [dict(zip(("where", "text", "note"), row)) for row in rows]
    kept = sorted(words, key=lambda word: not word.startswith("-"))
    found = {"commands": commands, "keep": kept} if words else {}
    return dict(found, because=because + [why] * bool(why))


def two_of_one_folder(facts, _):
    """Packages of a list without a failure that write the same files."""
    found = doubles_of(facts.listed) if facts.quiet else []
    told = [
        "%s write one folder (keep %s: %s)" % (" and ".join(names), kept, why) for names, kept, why in found
    ]
    return "; ".join(told) or None


def cudnn_past_pin(facts, _):
    found = past_pin(facts.listed) if facts.quiet else None
    return found and "%s pins %s, and %s is here: it runs, and pip check names it" % found
