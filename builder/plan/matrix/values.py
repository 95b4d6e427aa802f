"""The syntax of values: a check takes the text of a scalar and gives back its normal form.

Requirements are strings as Python's packages know them (PEP 508); a base is a reference to an image of a
registry, or ``rootfs:debian/<suite>``.
"""

import keyword
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from urllib.parse import urlsplit

from packaging.requirements import Requirement
from packaging.version import Version

from builder.core.model import OLDEST_PYTHON, Base
from builder.core.suites import SUITES
from builder.core.versions import canonical
from builder.plan.matrix.nodes import did_you_mean, nearest


@dataclass(eq=False)
class BadValue(Exception):  # noqa: N818 - it never leaves this room; the user meets a Diagnostic
    """An error in a text, with its place: ``offset`` and ``width`` count characters, 0 for the whole text."""

    message: str
    hint: str | None = None
    offset: int = 0
    width: int = 0

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True, kw_only=True)
class Syntax:
    """A kind of value: its check, and the part of the check that an editor can do by JSON Schema."""

    check: Callable[[str], str]
    pattern: str | None = None
    choices: tuple[str, ...] = ()
    bare: tuple[str, ...] = ()
    """YAML's types of such a value without quotes, as JSON Schema names them: ``number`` for ``3.9``."""
    prose: bool = False
    """Text for people: line breaks and runs of blanks become one blank."""
    longest: int = 200
    """In characters."""


def choice(what: str, *names: str, bare: tuple[str, ...] = ()) -> Syntax:
    def check(text: str) -> str:
        if text not in names:
            raise BadValue(f"'{text}' is no {what}", did_you_mean(text, names))
        return text

    return Syntax(check=check, choices=names, bare=bare)


def matching(what: str, pattern: str, hint: str, *, longest: int = 200, bare: tuple[str, ...] = ()) -> Syntax:
    compiled = re.compile(pattern)

    def check(text: str) -> str:
        if not compiled.fullmatch(text):
            raise BadValue(f"'{text}' is no {what}", hint)
        return text

    return Syntax(check=check, pattern=pattern, bare=bare, longest=longest)


def anything(*, longest: int, prose: bool = False) -> Syntax:
    return Syntax(check=lambda text: text, longest=longest, prose=prose, bare=("number", "boolean"))


_PYTHON = r"3\.(0|[1-9][0-9]?)(\.(0|[1-9][0-9]?))?"


def _python(text: str) -> str:
    hint = "one version, as in 3.12 or 3.12.4; several are values of an axis"
    if re.fullmatch(r"(cpython@)?3\.\d+(\.\d+)?(t|\+freethreaded)", text):
        what = "a free-threaded build, of which the frameworks have no wheels"
        raise BadValue(f"'{text}' is {what}", "write 3.13")
    if not re.fullmatch(_PYTHON, text):
        meant = re.fullmatch(r"(?:cpython@|cp|py|python|v)?[ -]?3\.?([1-9]?\d)(?:-dev|\.\*)?", text)
        hint = f"did you mean 3.{meant[1]}? {hint}" if meant else hint
        raise BadValue(f"'{text}' is no Python version", hint)
    if int(text.split(".")[1]) < OLDEST_PYTHON:
        ten = "did you mean 3.10? " if text == "3.1" else ""
        raise BadValue(f"Python {text} is too old", f"{ten}cudnn-verify runs on 3.{OLDEST_PYTHON} and later")
    return text


# No "-" at the end: apt-get takes "bash-" for an order to remove bash.
_APT = r"[a-z0-9][a-z0-9+.-]*[a-z0-9+.](=[A-Za-z0-9]([A-Za-z0-9.+:~-]*[A-Za-z0-9.+~])?)?"


def _apt(text: str) -> str:
    if not re.fullmatch(_APT, text):
        name, _, version = text.partition("==")
        meant = f"did you mean '{name}={version}'? " if version else ""
        hint = f"{meant}a name in lower case, or name=version: libgomp1"
        raise BadValue(f"'{text}' is no Debian package", hint)
    return text


# Source of the rule: https://pubs.opengroup.org/onlinepubs/9799919799/basedefs/V1_chap08.html
_ENV_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_KEPT_NAMES = {
    "PATH": "the image sets it, with its own Python environment in front",
    "CUDNN_VERIFY_EXPECT": "the image sets it: it tells cudnn-verify what should be there",
}


def _env_name(text: str) -> str:
    if not re.fullmatch(_ENV_NAME, text):
        hint = "letters, digits and '_', with no digit in front"
        raise BadValue(f"'{text}' is no name of a variable", hint)
    if text in _KEPT_NAMES:
        raise BadValue(f"the variable {text} cannot be set", _KEPT_NAMES[text])
    return text


def _url(text: str) -> str:
    hint = "write it as https://host/path"
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise BadValue(f"'{text}' is no URL: {error}", hint) from error
    if parts.scheme not in {"http", "https"} or not host or not re.fullmatch("[!-~]+", text):
        raise BadValue(f"'{text}' is no URL of a package index", hint)
    if "@" in parts.netloc:
        hint = "a matrix is committed; credentials belong into the package index's own configuration"
        raise BadValue("this URL holds a user name or password", hint)
    if parts.query or parts.fragment:
        raise BadValue("the URL of a package index has no '?' or '#' part", hint)
    return text


_UNITS = {"B": 1} | {
    f"{prefix}{suffix}": factor**power
    for suffix, factor in (("B", 1000), ("iB", 1024))
    for power, prefix in enumerate("kMGT", 1)
}
_SIZE = r"[0-9]+(\.[0-9]+)? ?([kMGT]i?)?B"


def _size(text: str) -> str:
    """``6GB`` → ``6000000000``, in bytes."""
    if not re.fullmatch(_SIZE, text):
        raise BadValue(f"'{text}' is no size", "a number and its unit: 6GB, 5.5GiB, 800MB")
    number = text.rstrip("kMGTiB ")
    size = int(Decimal(number) * _UNITS[text[len(number) :].strip()])
    if size == 0:
        raise BadValue(f"no image is as small as {text}", "leave 'max-size' out for no limit")
    return str(size)


def _format_version(text: str) -> str:
    if text != "1":
        raise BadValue(f"this rtbuild does not know version '{text}' of the format", "write 'version: 1'")
    return text


_AGES = {"m": 60, "h": 3600, "d": 86400, "w": 604800}
_AGE = r"[1-9][0-9]*[mhdw]"


def seconds(text: str) -> str:
    """``7d`` → ``604800``. Raises :class:`BadValue`."""
    if not re.fullmatch(_AGE, text):
        raise BadValue(f"'{text}' is no length of time", "a number and its unit: 30d, 12h, 2w, 90m")
    return str(int(text[:-1]) * _AGES[text[-1]])


_RESERVED = re.compile(r"staged-|report-|sha256-|.*-[0-9a-f]{12}$")
_TAG = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}"


def _tag(text: str) -> str:
    if not re.fullmatch(_TAG, text):
        raise BadValue(f"'{text}' is no tag of an image", "letters, digits, '_', '.' and '-', as in latest")
    if _RESERVED.match(text):
        hint = "staged-…, report-…, sha256-…, and an end of 12 digits of a digest"
        raise BadValue(f"the tag '{text}' has a form that rtbuild keeps for its own", hint)
    return text


# -- requirements


@lru_cache(maxsize=4096)
def parse(text: str) -> Requirement:
    """A requirement out of a matrix. Raises :class:`BadValue` at the character that stops the parser."""
    try:
        return Requirement(text)
    except (ValueError, RecursionError) as error:
        reason = str(error).partition("\n")[0]
        place = getattr(error.__cause__, "span", None)
        offset, end = place if isinstance(place, tuple) else (0, 0)
        width = max(1, end - offset) if offset else 0
        message = f"'{text}' is no requirement: {reason[:1].lower()}{reason[1:]}"
        raise BadValue(message, _repair(text), offset, width) from error


def _repair(text: str) -> str:
    if text.startswith("-"):
        return "options of pip have no place here; extra package indexes go under 'index'"
    written = re.fullmatch(
        r"([A-Za-z][\w.]*(?:-[A-Za-z][\w.]*)*)(\[[\w,-]*\])?\s*[=:@ -]\s*v?(\d[\w.!+]*)", text
    )
    if written:
        name, extras, version = written.groups(default="")
        return f"did you mean '{name}{extras}=={version}'?"
    return "write it as in requirements.txt: 'numpy==1.23.5', 'setuptools<81'"


def _requirement(text: str) -> str:
    if re.match("[^;@]*===", text):  # releases of packaging differ in whether `numpy===` can be parsed
        raise BadValue(f"'{text}' compares versions as text, by '==='", "write '=='")
    parsed = parse(text)
    if parsed.url is not None and "://" not in parsed.url:
        raise BadValue(f"'{text}' is no requirement", _repair(text))
    if parsed.url is not None:
        hint = f"write '{parsed.name}==X.Y.Z', and the package index that has it under 'index'"
        raise BadValue(f"'{text}' names a file by its URL", hint)
    return str(parsed)


def _framework(text: str) -> str:
    """``Torch == 2.1.0+cu118`` → ``torch==2.1.0+cu118``."""
    _requirement(text)
    parsed = parse(text)
    specifiers = list(parsed.specifier)
    hint = f"a cell holds one version: '{parsed.name}==X.Y.Z'"
    if not specifiers:
        raise BadValue(f"the framework '{text}' has no version", hint)
    if len(specifiers) > 1 or specifiers[0].operator != "==":
        raise BadValue(f"the framework '{text}' is not pinned by '=='", hint)
    if specifiers[0].version.endswith(".*"):
        raise BadValue(f"the framework '{text}' is pinned to a range", hint)
    if parsed.marker is not None:
        hint = "a cell knows its Python and platform; say it with 'exclude' or 'include'"
        raise BadValue(f"the framework '{text}' has a condition", hint)
    extras = f"[{','.join(sorted(map(canonical, parsed.extras)))}]" if parsed.extras else ""
    return f"{canonical(parsed.name)}{extras}=={Version(specifiers[0].version)}"


def exact_release(text: str) -> tuple[str, str] | None:
    """Name and version of a requirement that allows one version only; None for any other."""
    parsed = parse(text)
    specifiers = list(parsed.specifier)
    if len(specifiers) != 1 or specifiers[0].operator != "==" or specifiers[0].version.endswith(".*"):
        return None
    return canonical(parsed.name), str(Version(specifiers[0].version))


_MODULE = r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*"
_IMPORT = rf"{_MODULE}(:[A-Za-z_][A-Za-z0-9_]*)?"


def _import(text: str) -> str:
    """``moviepy.editor``, or ``openai:OpenAI`` as entry points have it:
    https://packaging.python.org/en/latest/specifications/entry-points/
    """
    if not re.fullmatch(_IMPORT, text):
        meant = [one for one in _meant_imports(text) if re.fullmatch(_IMPORT, one)]
        said = f"did you mean {' and '.join(repr(one) for one in meant)}? " if meant else ""
        hint = (
            f"{said}a module as code imports it, moviepy.editor; for `from openai import OpenAI` write "
            "openai:OpenAI; a package's name goes under 'pip'"
        )
        raise BadValue(f"'{text}' is no import", hint)
    if word := next((one for one in re.split("[.:]", text) if keyword.iskeyword(one)), None):
        raise BadValue(f"'{text}' is no import: '{word}' is a word of Python's own", "write it as code does")
    return text


def _meant_imports(text: str) -> Iterator[str]:
    """The imports that a statement of Python, or another spelling of one, stands for."""
    bare = re.sub(r"\s+as\s+\w+", "", text.strip().rstrip(";"))
    if found := re.fullmatch(r"from\s+([\w.]+)\s+import\s+(.+)", bare):
        names = re.split(r"\s*,\s*", found[2].strip("()").strip(" ,"))
        yield from (found[1] if name == "*" else f"{found[1]}:{name}" for name in names)
    elif found := re.fullmatch(r"import\s+(.+)", bare):
        yield from re.split(r"\s*,\s*", found[1])
    else:  # an attribute of a name is nothing that an import takes
        path = re.sub(r"\s*:\s*", ":", bare).replace("/", ".").removesuffix(".py")
        yield re.sub(r"(:\w+)\..*", r"\1", path)


_PROJECT = "[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?"


def _project(text: str) -> str:
    """``Lazr.URI`` → ``lazr-uri``."""
    if not re.fullmatch(_PROJECT, text):
        hint = "the name alone; its version goes under 'pip', as name==1.2"
        raise BadValue(f"'{text}' is no name of a package", hint)
    return canonical(text)


# -- bases


ROOTFS = "rootfs:"
DEBIAN_SUITES = ("bullseye", "bookworm", "trixie")
"""Debian's releases with a Python that cudnn-verify runs on and packages that are still served."""

# The grammar of https://github.com/distribution/reference/blob/main/reference.go
_LABEL = "[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_HOST = re.compile(rf"{_LABEL}(?:\.{_LABEL})*(?::[0-9]{{1,5}})?")
_PATH = re.compile(r"[a-z0-9]+(?:(?:\.|__?|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|__?|-+)[a-z0-9]+)*)*")
_DIGEST = re.compile("sha256:[0-9a-f]{64}")


@dataclass(frozen=True, kw_only=True)
class BaseReference:
    """``host/path:tag@digest``; ``path`` and at least one of the latter two are always there."""

    host: str | None
    path: str
    tag: str | None
    digest: str | None


def parse_reference(text: str) -> BaseReference:
    """An image reference in its parts. Raises :class:`BadValue`."""
    rest, at, digest = text.partition("@")
    if at and not _DIGEST.fullmatch(digest):
        found = f"; this one has {len(digest) - 7}" if digest.startswith("sha256:") else ""
        hint = f"'sha256:' and 64 hexadecimal digits in lower case{found}"
        raise BadValue(f"'{digest}' is no digest", hint, len(rest) + 1, len(digest))
    last = rest.rpartition("/")[2]
    _, colon, tag = last.partition(":")
    name = rest[: len(rest) - len(tag) - 1] if colon else rest
    if colon and not re.fullmatch(_TAG, tag):
        hint = "up to 128 letters, digits, '_', '.' and '-', and no '.' or '-' in front"
        raise BadValue(f"'{tag}' is no tag of an image", hint, len(name) + 1, len(tag))
    first, slash, remainder = name.partition("/")
    is_host = "." in first or ":" in first or first == "localhost"  # Docker's rule
    host, path = (first, remainder) if slash and is_host else (None, name)
    if host is not None and not _HOST.fullmatch(host):
        raise BadValue(f"'{host}' is no host of a registry", "as in host.example:5000", 0, len(host))
    if not _PATH.fullmatch(path):
        lower = text.replace(path, path.lower(), 1)
        meant = f"did you mean '{lower}'? " if _PATH.fullmatch(path.lower()) else ""
        hint = f"{meant}write 'repository:tag' in lower case, or '{ROOTFS}debian/<suite>'"
        raise BadValue(f"'{text}' is no image reference", hint)
    if not tag and not digest:
        hint = f"say which one is meant: '{text}:TAG', or '{text}@sha256:…'"
        raise BadValue(f"the image '{text}' has neither a tag nor a digest", hint)
    return BaseReference(host=host, path=path, tag=tag or None, digest=digest or None)


def _base(text: str) -> str:
    if "://" in text:  # not repeated: it may hold a login
        raise BadValue("an image reference has no '://'", "write 'host/repository:tag'")
    if not text.startswith(ROOTFS):
        parse_reference(text)
        return text
    known = [f"{ROOTFS}debian/{suite}" for suite in DEBIAN_SUITES]
    if text not in known:
        distribution, _, suite = text.removeprefix(ROOTFS).rpartition("/")
        close = nearest(suite, DEBIAN_SUITES) if distribution in {"", "debian"} else None
        meant = f"did you mean '{ROOTFS}debian/{close}'? " if close else ""
        hint = f"{meant}valid here: {', '.join(known)}"
        raise BadValue(f"'{text}' is no root file system that rtbuild makes", hint)
    return text


def parse_base(text: str) -> Base:
    """The base that a checked text names."""
    if text.startswith(ROOTFS):
        return Base(kind="rootfs", name=text.removeprefix(ROOTFS))
    return Base(kind="registry", name=text)


# -- every kind of value


FORMAT_VERSION = Syntax(check=_format_version, choices=("1",), bare=("number",))
# The strictest of the places where a matrix's name is used: a component of an image's repository,
# https://github.com/distribution/reference/blob/main/reference.go
NAME = matching(
    "name for a matrix",
    "[a-z0-9]+([._-][a-z0-9]+)*",
    "lower-case letters and digits, with single '.', '_' or '-' between them",
    longest=64,
    bare=("number",),
)
VARIANT = matching(
    "variant",
    "[a-z0-9]([a-z0-9._-]*[a-z0-9])?",
    "lower-case letters, digits, '.', '_' and '-': it becomes a part of the id",
    longest=40,
    bare=("number",),
)
GPU = matching("name of a GPU", "[A-Za-z0-9][A-Za-z0-9 ._+-]*", "as in T4, A100, RTX 4090", longest=40)
TAG = Syntax(check=_tag, pattern=_TAG, bare=("number",))
DURATION = Syntax(check=seconds, pattern=_AGE, longest=10)
# https://github.com/distribution/reference/blob/main/reference.go; the registry's name is always said.
REPOSITORY = matching(
    "repository of images",
    r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?(:[0-9]{1,5})?(/[a-z0-9]+([._-]+[a-z0-9]+)*)+",
    "registry and name without a tag, as in registry.example/team/images",
)
PYTHON = Syntax(check=_python, pattern=_PYTHON, bare=("number",))
APT = Syntax(check=_apt, pattern=_APT)
ENV_NAME = Syntax(check=_env_name, pattern=_ENV_NAME)
ENV_VALUE = anything(longest=1000)
URL = Syntax(check=_url, pattern="https?://[!-~]+", longest=1000)
SIZE = Syntax(check=_size, pattern=_SIZE, longest=20)
PLATFORM = choice("platform", "linux/amd64", "linux/arm64")
DEPENDENCIES = choice("way to find dependencies", "resolved", "listed")
PROVIDER = choice("CUDA provider", "base", "wheels", "none")
PYTHON_FROM = choice("origin of a Python", "base", "standalone")
PROFILE = choice("profile", "plain", "colab")
SUITE = choice("suite of the probe", *SUITES)
COMPRESSION = choice("compression", "zstd", "gzip")
FLAG = choice("truth value", "true", "false", bare=("boolean",))
PROSE = anything(longest=1000, prose=True)
GLOB = anything(longest=400)
IMPORT = Syntax(check=_import, pattern=_IMPORT)
PROJECT = Syntax(check=_project, pattern=_PROJECT)
REQUIREMENT = Syntax(check=_requirement, pattern="[A-Za-z0-9].*")
FRAMEWORK = Syntax(check=_framework, pattern=r"[A-Za-z0-9][A-Za-z0-9._-]*(\[[^\]]*\])? *== *[^ ,;*]+ *")
BASE = Syntax(
    check=_base,
    pattern=rf"{ROOTFS}debian/({'|'.join(DEBIAN_SUITES)})|(?!{ROOTFS})[A-Za-z0-9].*[:@].+",
    longest=400,
)
