"""Members of wheels that were read before, in the user's cache. Asks no network."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from builder import resources
from builder.facts import WheelTruth
from builder.files import read_cached, write_cached

_SCHEMA = 1


class WheelCache:
    """Members by the hash of their wheel: a wheel never changes, so nothing here goes stale."""

    def __init__(self, folder: Path | None, sha256: str | None) -> None:
        where = folder or resources.cache() / "wheelmeta"
        self.path = where / sha256[:2] / f"{sha256}.json" if sha256 else None

    def read(self) -> dict[str, bytes | None]:
        return read_cached(self.path, _members) or {}

    def write(self, members: Mapping[str, bytes | None]) -> None:
        if self.path is not None:
            texts = {n: None if c is None else base64.b64encode(c).decode() for n, c in members.items()}
            write_cached(self.path, {"schema": _SCHEMA, "members": texts}, indent=1)


def _members(document: dict[str, Any]) -> dict[str, bytes | None] | None:
    if document["schema"] != _SCHEMA:
        return None
    texts: Mapping[str, str | None] = document["members"]
    return {name: None if text is None else base64.b64decode(text) for name, text in texts.items()}


def cached_truth(file: str, sha256: str, *, cache: Path | None = None) -> WheelTruth | None:
    """The truth that an earlier reading of this very wheel found; None if it was not read."""
    have = WheelCache(cache, sha256).read()
    metadata = have.get(f"{dist_info(file)}/METADATA")
    if metadata is None:
        return None
    from builder.facts.wheel import members_of, truth_from_members  # with all that looks into binaries

    members = members_of(file)
    if any(name not in have for name in members):
        return None
    contents = {name: content for name in members if (content := have[name]) is not None}
    return truth_from_members(file, metadata, contents, sha256=sha256)


def dist_info(file: str) -> str:
    """``torch-2.9.1.dist-info`` of ``torch-2.9.1-cp312-cp312-manylinux_2_28_x86_64.whl``."""
    return "-".join(file.removesuffix(".whl").split("-")[:2]) + ".dist-info"
