"""Members of wheels that were read before, in the user's cache. Asks no network."""

from __future__ import annotations

import base64
import binascii
import json
from typing import TYPE_CHECKING

from builder import resources
from builder.facts.wheel import members_of, truth_from_members
from builder.files import write_cached

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from builder.facts import WheelTruth

_SCHEMA = 1


class WheelCache:
    """Members by the hash of their wheel: a wheel never changes, so nothing here goes stale."""

    def __init__(self, folder: Path, sha256: str | None) -> None:
        self.path = folder / sha256[:2] / f"{sha256}.json" if sha256 else None

    def read(self) -> dict[str, bytes | None]:
        if self.path is None:
            return {}
        try:
            document = json.loads(self.path.read_text("utf-8"))
            if document["schema"] != _SCHEMA:
                return {}
            members: Mapping[str, str | None] = document["members"]
            return {name: None if text is None else base64.b64decode(text) for name, text in members.items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError, binascii.Error):
            return {}  # absent or damaged: read again, and written anew

    def write(self, members: Mapping[str, bytes | None]) -> None:
        if self.path is None:
            return
        texts = {n: None if c is None else base64.b64encode(c).decode() for n, c in sorted(members.items())}
        write_cached(self.path, {"schema": _SCHEMA, "members": texts}, indent=1)


def cached_truth(file: str, sha256: str, *, cache: Path | None = None) -> WheelTruth | None:
    """What an earlier reading of this very wheel found; None if it was not read. Asks no network."""
    have = WheelCache(cache or resources.cache() / "wheelmeta", sha256).read()
    metadata = have.get(f"{dist_info(file)}/METADATA")
    members = members_of(file)
    if metadata is None or any(name not in have for name in members):
        return None
    contents = {name: content for name in members if (content := have[name]) is not None}
    return truth_from_members(file, metadata, contents, sha256=sha256)


def dist_info(file: str) -> str:
    """``torch-2.9.1.dist-info`` of ``torch-2.9.1-cp312-cp312-manylinux_2_28_x86_64.whl``."""
    return "-".join(file.removesuffix(".whl").split("-")[:2]) + ".dist-info"
