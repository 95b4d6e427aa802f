"""Bases of images: a reference to a registry image, or ``rootfs:debian/<suite>``."""

import re
from dataclasses import dataclass

from builder.core.model import Base
from builder.plan.matrix.source import nearest
from builder.plan.matrix.values import BadValue, Syntax

ROOTFS = "rootfs:"
DEBIAN_SUITES = ("bullseye", "bookworm", "trixie")
"""Debian's releases with a Python that cudnn-verify runs on and packages that are still served."""

# The grammar of https://github.com/distribution/reference/blob/main/reference.go
_LABEL = "[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_HOST = re.compile(rf"{_LABEL}(?:\.{_LABEL})*(?::[0-9]{{1,5}})?")
_PATH = re.compile(r"[a-z0-9]+(?:(?:\.|__?|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|__?|-+)[a-z0-9]+)*)*")
_TAG = re.compile("[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
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
    if colon and not _TAG.fullmatch(tag):
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


BASE = Syntax(
    check=_base,
    pattern=rf"{ROOTFS}debian/({'|'.join(DEBIAN_SUITES)})|(?!{ROOTFS})[A-Za-z0-9].*[:@].+",
    longest=400,
)
