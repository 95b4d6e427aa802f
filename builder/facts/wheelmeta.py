"""The metadata and single members of a wheel on the index, read by HTTP range.

The metadata sibling is used if the index offers one: PEP 658 and PEP 714, now in
https://packaging.python.org/en/latest/specifications/simple-repository-api/. A server that cannot be read
from makes the result unknown, with the reason; no guess is made.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import requests

from builder.facts.wheel import members_of, optional_of, truth_from_members
from builder.facts.wheelcache import WheelCache, dist_info
from builder.index.remote_zip import LIMIT, RemoteZip, UnknownError, is_html
from builder.net.http import explain

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from builder.facts import WheelTruth
    from builder.index.simple_api import IndexFile
    from builder.net.http import Client


@dataclass(frozen=True, kw_only=True)
class WheelMember:
    """What was read of one member: its content, and hash and size to show for it."""

    name: str
    content: bytes

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()

    @property
    def size(self) -> int:
        return len(self.content)


@dataclass(frozen=True, kw_only=True)
class Remote:
    """What was read of a remote wheel. ``unknown`` says why something that was asked for is missing."""

    file: str
    members: tuple[WheelMember, ...] = ()
    unknown: tuple[str, ...] = ()
    transferred: int = 0
    """Bytes of all answers; 0 if everything came from the cache."""

    def member(self, name: str) -> bytes | None:
        return next((member.content for member in self.members if member.name == name), None)

    @property
    def metadata(self) -> bytes | None:
        """The ``METADATA`` file, from the archive or from its sibling."""
        names = (m.name for m in self.members if re.fullmatch(r"[^/]+\.dist-info/METADATA", m.name))
        name = next(names, None)
        return self.member(name) if name else None


def read_remote(
    url: str,
    session: Client,
    members: Sequence[str],
    *,
    optional: Collection[str] = (),
    sha256: str | None = None,
    size: int | None = None,
    metadata_sha256: str | bool = False,
    cache: Path | None = None,
) -> Remote:
    """``METADATA`` and the named members of the wheel at ``url``; those of ``optional`` if that is cheap.

    ``sha256`` is the wheel's hash from the index or lock: the key of the cache, which is in the user's cache
    folder unless ``cache`` names another; without a hash nothing is cached. ``size`` is what the index says,
    and is checked. ``metadata_sha256`` is what the index says of the metadata sibling: its hash, True for one
    without a hash, False if there is none. A member that the wheel does not have is left out silently.

    No exception leaves this function for anything a server does; see :attr:`Remote.unknown`.
    """
    file = unquote(urlsplit(url).path.rsplit("/", 1)[-1])
    metadata = f"{dist_info(file)}/METADATA"
    wanted = (metadata, *members)
    stored = WheelCache(cache, sha256)
    have = stored.read()
    reader = RemoteZip(url=url, session=session, size=size)
    unknown: list[str] = []
    found = {name: content for name in wanted if (content := have.get(name)) is not None}
    missing = [name for name in wanted if name not in have]
    try:
        if metadata in missing and metadata_sha256:
            content = _sibling(reader, metadata_sha256)
            if content is not None:
                found[metadata] = content
                missing.remove(metadata)
        if missing:
            read, why = reader.members(missing, optional)
            found |= read
            unknown += [f"{file}: {reason}" for reason in why]
            if metadata in missing and metadata not in read and not why:
                unknown.append(f"{file}: it holds no {metadata}")
    except UnknownError as problem:
        unknown.append(f"{file}: {problem}")
    except requests.RequestException as problem:
        unknown.append(f"{file}: {explain(problem)}")
    if reader.transferred and not unknown:
        stored.write({name: found.get(name) for name in wanted} | have)
    return Remote(
        file=file,
        members=tuple(WheelMember(name=name, content=found[name]) for name in wanted if name in found),
        unknown=tuple(unknown),
        transferred=reader.transferred,
    )


def read_listed(file: IndexFile, session: Client, *members: str) -> Remote:
    """:func:`read_remote` of a wheel as its index lists it."""
    size = file.size or None
    return read_remote(
        file.url, session, members, sha256=file.sha256, size=size, metadata_sha256=file.metadata
    )


def truth_of_wheel(
    url: str,
    session: Client,
    *,
    sha256: str | None = None,
    size: int | None = None,
    metadata_sha256: str | bool = False,
    cache: Path | None = None,
) -> tuple[WheelTruth, Remote]:
    """What the wheel at ``url`` says of itself, and what was read for it.

    Fields that could not be read are None in the truth, and the remote's ``unknown`` says why.
    """
    file = unquote(urlsplit(url).path.rsplit("/", 1)[-1])
    remote = read_remote(
        url,
        session,
        members_of(file),
        optional=optional_of(file),
        sha256=sha256,
        size=size,
        metadata_sha256=metadata_sha256,
        cache=cache,
    )
    contents = {member.name: member.content for member in remote.members}
    return truth_from_members(file, remote.metadata, contents, sha256=sha256), remote


def _sibling(reader: RemoteZip, expected: str | bool) -> bytes | None:
    """The metadata file beside the wheel; None if it is not there after all, or differs."""
    headers = {"Accept-Encoding": "identity"}
    with reader.session.get(_beside(reader.url), stream=True, headers=headers) as answer:
        if answer.status_code != 200 or is_html(answer):
            return None
        content = reader.body(answer, LIMIT // 2)
    matches = isinstance(expected, bool) or hashlib.sha256(content).hexdigest() == expected
    return content if matches and content.startswith(b"Metadata-Version:") else None


def _beside(url: str) -> str:
    parts = urlsplit(url)
    return parts._replace(path=parts.path + ".metadata", fragment="").geturl()
