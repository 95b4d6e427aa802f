"""The metadata and single members of a wheel on the index, read by HTTP range.

The metadata sibling is used if the index offers one: PEP 658 and PEP 714, now in
https://packaging.python.org/en/latest/specifications/simple-repository-api/. A server that cannot be read
from makes the result unknown, with the reason; no guess is made.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import requests

from builder.facts import WheelTruth
from builder.facts.wheel import members_of, optional_of, truth_from_members
from builder.facts.wheelcache import WheelCache, dist_info
from builder.index.remote_zip import LIMIT, RemoteZip, UnknownError, is_html
from builder.net.http import Client, explain

if TYPE_CHECKING:
    from builder.index.simple_api import IndexFile


@dataclass(frozen=True, kw_only=True)
class Remote:
    """Members of a remote wheel by name. ``unknown`` says why one that was asked for is missing."""

    members: Mapping[str, bytes] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()
    transferred: int = 0
    """Bytes of all answers; 0 if everything came from the cache."""

    def member(self, name: str) -> bytes | None:
        return self.members.get(name)

    @property
    def metadata(self) -> bytes | None:
        """The ``METADATA`` file, from the archive or from its sibling."""
        found = (c for name, c in self.members.items() if re.fullmatch(r"[^/]+\.dist-info/METADATA", name))
        return next(found, None)


def read_listed(
    file: IndexFile, session: Client, *members: str, optional: Collection[str] = (), cache: Path | None = None
) -> Remote:
    """``METADATA`` and the named members of a wheel on an index; those of ``optional`` if that is cheap.

    The wheel's hash is the key of the cache, which is in the user's cache folder unless ``cache`` names
    another; without a hash nothing is cached. The size is checked. A member that the wheel does not have is
    left out silently.

    No exception leaves this function for anything a server does; see :attr:`Remote.unknown`.
    """
    metadata = f"{dist_info(file.name)}/METADATA"
    wanted = (metadata, *members)
    stored = WheelCache(cache, file.sha256)
    have = stored.read()
    reader = RemoteZip(url=file.url, session=session, size=file.size)
    unknown: list[str] = []
    found = {name: content for name in wanted if (content := have.get(name)) is not None}
    missing = [name for name in wanted if name not in have]
    try:
        if metadata in missing and file.metadata:
            content = _sibling(reader, file.metadata)
            if content is not None:
                found[metadata] = content
                missing.remove(metadata)
        if missing:
            read, why = reader.members(missing, optional)
            found |= read
            unknown += why
            if metadata in missing and metadata not in read and not why:
                unknown.append(f"it holds no {metadata}")
    except UnknownError as problem:
        unknown.append(str(problem))
    except requests.RequestException as problem:
        unknown.append(explain(problem))
    if reader.transferred and not unknown:
        stored.write({name: found.get(name) for name in wanted} | have)
    return Remote(
        members={name: found[name] for name in wanted if name in found},
        unknown=tuple(f"{file.name}: {reason}" for reason in unknown),
        transferred=reader.transferred,
    )


def truth_of_wheel(
    file: IndexFile, session: Client, *, cache: Path | None = None
) -> tuple[WheelTruth, Remote]:
    """A wheel's truth, and the members that were read for it.

    Fields that could not be read are None in the truth, and the remote's ``unknown`` says why.
    """
    name = file.name
    remote = read_listed(file, session, *members_of(name), optional=optional_of(name), cache=cache)
    return truth_from_members(name, remote.metadata, remote.members, sha256=file.sha256), remote


def _sibling(reader: RemoteZip, expected: str | bool) -> bytes | None:
    """The metadata file beside the wheel; None if it is not there after all, or differs."""
    headers = {"Accept-Encoding": "identity"}
    parts = urlsplit(reader.url)
    beside = parts._replace(path=f"{parts.path}.metadata", fragment="").geturl()
    with reader.session.get(beside, stream=True, headers=headers) as answer:
        if answer.status_code != 200 or is_html(answer):
            return None
        content = reader.body(answer, LIMIT // 2)
    matches = isinstance(expected, bool) or hashlib.sha256(content).hexdigest() == expected
    return content if matches and content.startswith(b"Metadata-Version:") else None
