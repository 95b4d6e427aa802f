"""Compares two images file by file, and gives the likely cause of each difference.

Images are read as ``docker save`` writes them: a tar with ``manifest.json``, a config, and layers that are
tar streams, compressed or not (https://github.com/moby/docker-image-spec). Only layers that differ are read.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from builder.image.engine import SavedImage

_CHUNK = 1 << 20
_SAMPLE = 1 << 16
"""Bytes of a file that are kept, to see what in it differs."""

_BY_PATH = (
    # https://github.com/python/cpython/issues/129724
    (r"\.pyc$", "compiled Python: compile with unchecked hashes in place of times, one file after another"),
    (r"(^|/)etc/ld\.so\.cache$", "the loader's cache, written in the order in which folders are read"),
    (r"(^|/)var/cache/ldconfig/", "ldconfig's own cache: inode numbers and times; remove it in the same RUN"),
    (r"(^|/)var/(log/|lib/dpkg/.*-old$|lib/apt/|cache/apt/|cache/debconf/)",
     "a log or cache of apt or dpkg: remove it in the same RUN"),
    (r"(^|/)(var/cache/fontconfig/|.*/fontlist-.*\.json$)", "a cache of fonts: it holds times"),
    (r"(^|/)etc/(passwd|shadow|group|gshadow)-?$", "a user was added: shadow holds the day"),
    (r"(^|/)(etc/machine-id|var/lib/dbus/machine-id)$", "the machine's id: empty it"),
    (r"(^|/)etc/ssh/ssh_host_", "a host key, made at random: remove it"),
    (r"\.dist-info/(direct_url\.json|RECORD)$", "where a package came from, or what was written for it"),
    (r"(^|/)(tmp|var/tmp|run)/", "a temporary file that was left behind"),
    (r"\.(tar|tgz|gz|zip|whl|jar|deb)$", "an archive: the times and the order of what is in it"),
    (r"\.(a|o|so)(\.|$)", "compiled code: paths, times and the order of files enter it"),
)  # fmt: skip

_BY_CONTENT = (
    # A date, a time of day, or seconds since 1970 between the years 2017 and 2040
    (re.compile(rb"\d{4}-\d\d-\d\d|\d\d:\d\d:\d\d|(Mon|Tue|Wed|Thu|Fri|Sat|Sun)[ ,]|(?<!\d)1[5-9]\d{8}(?!\d)"
                rb"|(?<!\d)2[0-2]\d{8}(?!\d)"),
     "it holds the time of the build: take SOURCE_DATE_EPOCH instead"),
    (re.compile(rb"[0-9a-f]{12,}"), "it holds a random or host-dependent identifier"),
)  # fmt: skip
"""A form that every line has which differs."""
_OUTSIDE = "a step depends on something outside of the recipe"


ComparedEntry = tuple[Mapping[str, str], bytes]
"""All of an entry that is compared, in words (sizes in bytes, times in seconds since 1970, the whole digest),
and the beginning of its content."""
_ABSENT: ComparedEntry = {}, b""


@dataclass(frozen=True, kw_only=True)
class FileDifference:
    """A file in which two layers differ. ``what`` is ``missing``, or names of what is compared."""

    path: str
    what: tuple[str, ...]
    first: str
    second: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class LayerDifference:
    """Two layers at the same height. Without ``files``, only their order or the compression differs."""

    number: int
    """From 1, the lowest."""
    files: tuple[FileDifference, ...]
    order: bool
    """The same entries in another order."""
    stream: bool
    """Whether the uncompressed streams differ; False says that only the compressed bytes do."""


@dataclass(frozen=True, kw_only=True)
class ImageDifference:
    """Everything that two images disagree about."""

    layers: tuple[LayerDifference, ...]
    config: tuple[tuple[str, str, str], ...]
    """Place in the config, and what the first and the second have there."""

    @property
    def files(self) -> tuple[FileDifference, ...]:
        return tuple(file for layer in self.layers for file in layer.files)


def compare(first: SavedImage, second: SavedImage) -> ImageDifference:
    """Compare two images. Layers with the same diff id are the same and are not read."""
    layers = []
    pairs = zip_longest(first.diff_ids, second.diff_ids)
    for number, (one, other) in enumerate(pairs):
        if one != other:
            layers.append(_compare_layers(first, second, number, one, other))
        elif first.layers[number] != second.layers[number] and first.size(number) != second.size(number):
            layers.append(LayerDifference(number=number + 1, files=(), order=False, stream=False))
    return ImageDifference(
        layers=tuple(layers), config=tuple(_compare_documents(first.config, second.config))
    )


def _compare_layers(
    first: SavedImage, second: SavedImage, number: int, one: str | None, other: str | None
) -> LayerDifference:
    mine = entries(first, number) if one is not None else {}
    theirs = entries(second, number) if other is not None else {}
    files = []
    for path in sorted(mine.keys() | theirs.keys()):
        (a, a_start), (b, b_start) = mine.get(path, _ABSENT), theirs.get(path, _ABSENT)
        what = tuple(name for name, text in a.items() if text != b.get(name)) if a and b else ("missing",)
        if what:
            reason = reason_of(path, what, a_start, b_start)
            files.append(
                FileDifference(
                    path=f"/{path}", what=what, first=_say(a, what), second=_say(b, what), reason=reason
                )
            )
    order = not files and list(mine) != list(theirs)
    return LayerDifference(number=number + 1, files=tuple(files), order=order, stream=True)


def _say(aspects: Mapping[str, str], what: tuple[str, ...]) -> str:
    """The entry in those respects, for people."""
    if not aspects:
        return "not there"
    texts = ", ".join(aspects.get(name, "there") for name in what)
    return re.sub(r"(sha256 [0-9a-f]{12})[0-9a-f]+", r"\1", texts)


def entries(image: SavedImage, number: int) -> dict[str, ComparedEntry]:
    """All entries of a layer, by path, in the order of the stream."""
    found: dict[str, ComparedEntry] = {}
    with image.layer(number) as tar:
        for member in tar:
            digest, sample = hashlib.sha256(), b""
            if member.isfile():
                content = tar.extractfile(member)
                while content is not None and (piece := content.read(_CHUNK)):
                    digest.update(piece)
                    if len(sample) < _SAMPLE:
                        sample += piece[: _SAMPLE - len(sample)]
            attributes = sorted((key, text) for key, text in member.pax_headers.items() if "xattr" in key)
            aspects = {
                "kind": f"type {member.type.decode('ascii', 'replace')}",
                "content": f"{member.size} bytes, sha256 {digest.hexdigest()}",
                "link": f"-> {member.linkname}",
                "mode": f"mode {member.mode:04o}",
                "owner": f"owner {member.uid}:{member.gid}",
                "time": f"time {member.mtime:.9f}".rstrip("0").rstrip("."),
                "attributes": " ".join(f"{key}={text}" for key, text in attributes) or "no attributes",
            }
            found[member.name.removeprefix("./").rstrip("/")] = aspects, sample
    return found


def _compare_documents(first: Any, second: Any, place: str = "") -> Iterator[tuple[str, str, str]]:
    """The leaves at which two JSON documents differ; layers are compared elsewhere."""
    if place == "rootfs" or first == second:
        return
    if isinstance(first, dict) and isinstance(second, dict):
        for key in sorted(first.keys() | second.keys()):
            inner = f"{place}.{key}" if place else key
            yield from _compare_documents(first.get(key), second.get(key), inner)
    elif isinstance(first, list) and isinstance(second, list):
        for number, (a, b) in enumerate(zip_longest(first, second)):
            yield from _compare_documents(a, b, f"{place}[{number}]")
    else:
        yield place, json.dumps(first), json.dumps(second)


def reason_of(path: str, what: tuple[str, ...], first: bytes, second: bytes) -> str:
    """The likely reason in a few words. ``first`` and ``second`` are the beginnings of both files."""
    if {"missing", "content"} & {*what}:
        by_path = next((reason for pattern, reason in _BY_PATH if re.search(pattern, path)), None)
        if what == ("missing",):
            return by_path or "made by one build only: a step depends on something outside of the recipe"
        return by_path or _by_content(first.splitlines(), second.splitlines())
    if what == ("time",):
        return "only its time: set times from SOURCE_DATE_EPOCH (touch -h -d) in the step that writes it"
    if "mode" in what:
        return "its mode: the umask of whoever built, or a file copied from the machine"
    if "owner" in what:
        return "its owner: a file copied from the machine, or a user with a number given at random"
    return _OUTSIDE


def _by_content(first: list[bytes], second: list[bytes]) -> str:
    if first != second and sorted(first) == sorted(second):
        return "the same lines in another order: sort what the step lists (LC_ALL=C, PYTHONHASHSEED=0)"
    changed = [(a, b) for a, b in zip(first, second, strict=False) if a != b]
    for pattern, reason in _BY_CONTENT:
        if changed and all(pattern.search(a) and pattern.search(b) for a, b in changed):
            return reason
    return _OUTSIDE
