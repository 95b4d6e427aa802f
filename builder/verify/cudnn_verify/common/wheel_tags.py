"""Which tag of a wheel's name does not fit the machine of a text, and what is installed there instead.

Tags are those of https://packaging.python.org/en/latest/specifications/platform-compatibility-tags/
"""

import re

from .distributions import canonical
from .tables import read_patterns
from .toolkit_facts import text_of
from .versions import dotted, numbers

_WHEEL = re.compile(r"-(?P<python>(?:cp|py|pp)\d[\w.]*)-(?P<abi>\w+)-(?P<platform>\w[\w.]*)\.whl")
_SYSTEMS_OF_TAGS = (
    ("win", "Windows"),
    ("macosx", "macOS"),
    ("musllinux", "Linux with musl"),
    ("manylinux", "Linux with glibc"),
    ("linux", "Linux"),
)
_UV_PLATFORM = re.compile(
    r"You're on (?P<system>\w+) \(`(?P<here>\w+)`\), but "
    r"`(?P<name>[\w.-]+)` \(v(?P<release>[\w.+!-]+)\) only has wheels? for the following "
    r"platforms?:\s+(?P<tags>`\w+`(?:,\s+`\w+`)*)"
)
_UV_PYTHON = re.compile(
    r"You(?:'re using| require) \w+ (?P<here>\d+\.\d+)\S*[^\n]{0,20}, but (?:we only found wheels for )?"
    r"`(?P<name>[\w.-]+)` \(v(?P<release>[\w.+!-]+)\)[^\n]{0,60}?Python (?:ABI |version |implementation )?"
    r"tags?:\s+(?P<tags>`\w+`(?:,\s+`\w+`)*)"
)
_UV_GLIBC = re.compile(
    r"`manylinux_2_(?P<here>\d+)_(?P<on>\w+)`\)[\s\S]{0,800}?"
    r"(?P<name>[A-Za-z][\w.-]*) \(v(?P<release>[\w.+!-]+)\) "
    r"on the following platforms?:[^:]{0,400}?manylinux_2_(?P<asked>\d+)_(?P=on)"
)
_NONE = re.compile(
    r"satisfies the requirement (?P<name>[A-Za-z][\w.-]*)[^\n]{0,40}\(from versions: none\)|"
    r"No matching distribution found for (?P<other>[A-Za-z][\w.-]*)"
)


def _python_of(tag):
    """``3.10`` of cp310; None of a tag for all releases."""
    found = re.match(r"(?:cp|pp)3(\d+)", tag)
    return "3." + found.group(1) if found else None


def _is_arm(text):
    return re.search(r"aarch64|arm64", text) is not None


def _apart_by_name(facts, name):
    """The tags of a wheel's name that do not fit, as sentences."""
    found, told = _WHEEL.search(name), []
    python, here = _python_of(found["python"]), dotted(numbers(facts.python)[:2]) or None
    fits = python == here or found["abi"] == "abi3" and numbers(here) >= numbers(python)
    if python and here and not fits:
        told.append("%s is for Python %s, and this is Python %s" % (found["python"], python, here))
    system = next((words for start, words in _SYSTEMS_OF_TAGS if found["platform"].startswith(start)), None)
    own = "Windows" if "windows" in facts.places else "macOS" if "macos" in facts.places else None
    if system and own and system != own and _system_told(facts, name):
        told.append("%s is for %s, and this is %s" % (found["platform"], system, own))
    elif system == "Linux with glibc" and facts.musl_told:
        told.append("%s is for Linux with glibc, and this one has musl (Alpine)" % found["platform"])
    arm = "aarch64" in facts.places and _is_arm(text_of(facts).replace(name, ""))
    if arm and re.search("x86_64|amd64", found["platform"]):
        told.append("%s is for x86-64, and this is an ARM processor" % found["platform"])
    if not told:
        plain = "%s (%s)" % (python or "any", found["python"])
        told.append("its name asks for Python %s and %s (%s)" % (plain, system, found["platform"]))
        told.append("`python3 -m pip debug --verbose` lists the tags that fit here; an old pip knows fewer")
    return told


def _system_told(facts, name):
    """Whether a text tells of its system elsewhere than in the wheel's name."""
    return re.search(
        r"(?i)windows|win(?:32|dows)|\bmac|darwin|apple|[A-Z]:\\", text_of(facts).replace(name, "")
    )


def tags_told(facts, detail):
    """The sentence on the tag that decides; None where nothing of the machine is told."""
    text = text_of(facts)
    found = _UV_PLATFORM.search(text)
    if found:
        tags = found["tags"].replace("`", "")
        return "%(name)s %(release)s has wheels for %(tags)s, and this is %(here)s" % dict(
            found.groupdict(), tags=tags
        )
    found = _UV_PYTHON.search(text)
    if found:
        pythons = sorted(filter(None, map(_python_of, re.findall(r"\w+", found["tags"]))), key=numbers)
        if pythons and found["here"] not in pythons:
            return "%s %s has wheels for Python %s to %s, and this is Python %s" % (
                found["name"], found["release"], pythons[0], pythons[-1], found["here"],
            )  # fmt: skip
    name = str(detail.get("what") or "")
    if _WHEEL.search(name):
        return "; ".join(_apart_by_name(facts, name))
    package = package_without_wheel(facts)
    if package and facts.musl_told:
        return "this Linux has musl (Alpine), and wheels named manylinux are for glibc"
    of_cuda = package and re.match(read_patterns()["grammar"]["made-for-cuda"], package)
    if of_cuda and "macos" in facts.places:
        return "%s is made for NVIDIA's cards, and has no wheel for macOS" % package
    return None


def glibc_of_wheels(facts):
    """(what uv says of the C library that a package's wheels ask for, its minor version); None if it says
    nothing of it, or if the one that is here is as new.
    """
    found = _UV_GLIBC.search(text_of(facts))
    if not found or int(found["asked"]) <= int(found["here"]):
        return None
    told = "the wheels of %(name)s %(release)s ask for glibc 2.%(asked)s, and this system has 2.%(here)s"
    return told % found.groupdict(), int(found["asked"])


def package_without_wheel(facts):
    """The package that pip finds no file of; None without one."""
    found = _NONE.search(text_of(facts))
    return canonical(found["name"] or found["other"]) if found else None


def without_cuda_here(remedies):
    """The package's build without CUDA, for a Mac."""
    package = package_without_wheel(remedies.here)
    return read_patterns()["without-cuda"].get(package) if "macos" in remedies.here.places else None


def faiss_of_today(remedies):
    """faiss-gpu ended with 1.7.2 and Python 3.10: https://github.com/kyamagu/faiss-wheels"""
    here = {"macos", "windows", "aarch64", "jetson"} & remedies.here.places
    return package_without_wheel(remedies.here) == "faiss-gpu" and not here
