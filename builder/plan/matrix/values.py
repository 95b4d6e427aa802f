"""The syntax of plain values. A check takes the text of a scalar and gives back its normal form."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from urllib.parse import urlsplit

from builder.core.model import OLDEST_PYTHON
from builder.core.suites import SUITES
from builder.plan.matrix.source import did_you_mean


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
