"""Templates, and how values get into them: each by the filter of its type, which checks and quotes it.

A filter returns :class:`Quoted`, and the template environment refuses to write anything else: a value
that was forgotten here cannot reach a file.
"""

import json
import re
import threading
import unicodedata
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any
from urllib.parse import urlsplit

from builder.core import resources
from builder.core.errors import CellError
from builder.image.recipe.values import RecipeSetting, RecipeStep


class Quoted(str):
    """Text that may stand in a rendered file as it is."""

    __slots__ = ()


def _matching(kind: str, pattern: str, example: str) -> Callable[[object], Quoted]:
    compiled = re.compile(pattern)

    def check(value: object) -> Quoted:
        if not isinstance(value, str) or not compiled.fullmatch(value):
            raise CellError(f"{value!r} is no {kind}", hint=f"a {kind} looks like {example}")
        return Quoted(value)

    return check


_COMPONENT = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_DOMAIN = r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9a-fA-F:]+\])(?::[0-9]+)?"
_TAG = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}"
_CHECKS = {
    # https://www.debian.org/doc/debian-policy/ch-controlfields.html#source
    "apt_package": _matching(
        "Debian package",
        r"[a-z0-9][a-z0-9+.-]+(?:=[A-Za-z0-9][A-Za-z0-9.+:~-]*)?",
        "libgomp1 or libgomp1=10.2.1-6",
    ),
    "compression": _matching("compression", r"zstd|gzip", "zstd"),
    # https://github.com/distribution/reference/blob/main/regexp.go
    "docker_tag": _matching("Docker tag", _TAG, "tensorflow2.8.4-cu118-py3.9"),
    # https://pubs.opengroup.org/onlinepubs/9799919799/basedefs/V1_chap08.html
    "env_name": _matching("name of a variable", r"[A-Za-z_][A-Za-z0-9_]*", "TF_CPP_MIN_LOG_LEVEL"),
    # https://docs.docker.com/engine/manage-resources/labels/#key-format-recommendations
    "label_name": _matching("label", r"[a-z0-9]+(?:[.-][a-z0-9]+)*", "org.opencontainers.image.title"),
    "out_folder": _matching("folder below /out", r"[a-z]+(?:-[a-z]+)*", "environment"),
    "platform": _matching("platform", r"[a-z0-9]+/[a-z0-9]+(?:/[a-z0-9]+)?", "linux/amd64"),
    # https://packaging.python.org/en/latest/specifications/name-normalization/#name-format
    "project": _matching("package", r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?", "numpy"),
    "python_folder": _matching("folder of a Python", r"(?:/[a-z]+)+/bin", "/usr/bin"),
    "python_version": _matching("Python version", r"3\.(?:0|[1-9][0-9]?)", "3.9"),
    "release": _matching("version of a package", r"[A-Za-z0-9](?:[A-Za-z0-9._+!-]*[A-Za-z0-9])?", "1.23.5"),
    "sha256": _matching("SHA-256 in hexadecimal", r"[0-9a-f]{64}", "9f86d081… (64 characters)"),
    # https://packaging.python.org/en/latest/specifications/binary-distribution-format/#file-format
    "wheel_file": _matching(
        "name of a wheel's file",
        r"[A-Za-z0-9][A-Za-z0-9._+!]*(?:-[A-Za-z0-9._+!]+){4,5}\.whl",
        "numpy-1.23.5-cp39-cp39-manylinux_2_17_x86_64.whl",
    ),
}
env_name, label_name, python_version = (_CHECKS[n] for n in ("env_name", "label_name", "python_version"))
_user = _matching("user and group", r"\d+:\d+", "1000:1000")
_option = _matching("option of an instruction", r"[a-z]+(?:-[a-z]+)*", "start-period")
_place = _matching("path of a file", r"/?[\w.-]+(?:/[\w.-]+)*", "/mnt/expect.json")
_digest = _matching("digest", r"sha256:[0-9a-f]{64}", "sha256:9f86d081… (64 characters)")
_reference = _matching(
    "image reference",
    rf"(?:{_DOMAIN}/)?{_COMPONENT}(?:/{_COMPONENT})*(?::{_TAG})?",
    "nvidia/cuda:11.8.0-base-ubuntu22.04",
)


def image(reference: str, digest: str) -> Quoted:
    """``name:tag@sha256:…``: the tag is for people, the digest is what is taken.

    https://github.com/distribution/reference/blob/main/reference.go
    """
    return Quoted(f"{_reference(reference.partition('@')[0])}@{_digest(digest)}")


def epoch(value: object) -> Quoted:
    """Seconds since 1970."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 35:
        raise CellError(f"{value!r} is no date in seconds since 1970", hint="lock the matrix again")
    return Quoted(str(value))


def value(text: str) -> Quoted:
    r"""A value of ``ENV`` or ``LABEL``, in double quotes, that means exactly ``text``.

    Between double quotes a Dockerfile gives a meaning to ``"``, ``$`` and ``\``, and to no other character:
    https://docs.docker.com/reference/dockerfile/#environment-replacement
    """
    return Quoted('"' + re.sub(r'(["$\\])', r"\\\1", _printable(text)) + '"')


def run(step: RecipeStep) -> Quoted:
    """A step as the instruction ``RUN``, without its last newline."""
    if "EOF" in step.script.splitlines() or not step.script.endswith("\n"):
        raise CellError(f"the script of the step {step.name} cannot stand in a Dockerfile")
    mounts = "".join(
        f" \\\n    --mount=type=bind,source={_place(source)},target={_place(target)}"
        for source, target in step.files
    )
    return Quoted(f"RUN --network=none{mounts} <<'EOF'\n{step.script}EOF")


def setting(one: RecipeSetting) -> Quoted:
    """A change of the image's config as the instruction of the same name."""
    match one.kind:
        case "ENV":
            return Quoted(f"ENV {env_name(one.name)}={value(str(one.value))}")
        case "LABEL":
            return Quoted(f"LABEL {label_name(one.name)}={value(str(one.value))}")
        case "USER":
            return Quoted(f"USER {_user(one.value)}")
        case "HEALTHCHECK":
            options = " ".join(f"--{_option(name)}={seconds:d}s" for name, seconds in one.durations)
            return Quoted(f"HEALTHCHECK {options} \\\n    CMD {_words(one)}")
        case _:  # CMD, ENTRYPOINT
            return Quoted(f"{one.kind} {_words(one)}")


def _words(one: RecipeSetting) -> str:
    return json.dumps([_printable(word) for word in one.value], ensure_ascii=False)


def comment(text: str) -> Quoted:
    """Text on a line that a ``#`` begins, and in README.txt."""
    return Quoted(_printable(text))


def index_url(text: str) -> Quoted:
    """The address of a package index, on a line of its own in ``requirements.txt``."""
    parts = urlsplit(_printable(text))
    if parts.scheme not in {"http", "https"} or not parts.hostname or not re.fullmatch("[!-~]+", text):
        raise CellError(
            f"{text!r} is no address of a package index", hint="it looks like https://host/simple"
        )
    if "@" in parts.netloc or "$" in text or "#" in text:
        # pip replaces ${NAME} in requirements.txt by the environment's value.
        raise CellError(
            f"the address of the package index at {parts.hostname} holds credentials, '$' or '#'",
            hint="credentials belong into pip's configuration, which reaches the build as a secret",
        )
    return Quoted(text)


def _printable(text: object) -> str:
    if not isinstance(text, str):
        raise CellError(f"{text!r} is no text")
    if text.isprintable():  # the same categories, and spaces other than the plain one
        return text
    for position, character in enumerate(text):
        if unicodedata.category(character).startswith(("C", "Zl", "Zp")):
            raise CellError(
                f"{text!r} holds the control character U+{ord(character):04X} at position {position + 1}",
                hint="a value in a Dockerfile is one line of visible text",
            )
    return text


FILTERS: Mapping[str, Callable[..., Quoted]] = {
    **_CHECKS,
    "comment": comment,
    "epoch": epoch,
    "image": image,
    "index_url": index_url,
    "run": run,
    "setting": setting,
    "value": value,
}
"""All that the templates may use."""
_guard = threading.Lock()


def only_quoted(value: object) -> Quoted:
    """Jinja's ``finalize``: called with every value that a template writes. A bug in it is a TypeError."""
    if not isinstance(value, Quoted):
        raise TypeError(f"a template writes {value!r}, which no filter has checked and quoted")
    return value


@cache
def environment() -> Any:
    """An undefined name, a None and a value without its filter are errors; nothing is filled in."""
    import jinja2  # a tenth of a second, which a program that renders nothing need not pay

    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(resources.templates()),
        auto_reload=False,  # nobody changes them while rtbuild runs: no question for their dates at each use
        undefined=jinja2.StrictUndefined,
        finalize=only_quoted,
        autoescape=False,  # noqa: S701 - not HTML; every value is quoted by the filter of its type
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters.clear()
    made.filters.update(FILTERS)
    return made


def fill(name: str, values: Mapping[str, Any]) -> str:
    """The template ``name`` with ``values`` in it; it is compiled once, whichever threads ask for it."""
    with _guard:
        template = environment().get_template(name)
    return str(template.render(values))
