"""The images that this machine made: the digest by the inputs.

A label in an image says the same, but anyone who pushes an image can write one.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from builder.core.documents import MalformedError, parse_object, read_file
from builder.core.files import write_whole


@dataclass(frozen=True)
class MadeImages:
    """A folder in the cache with a file for each image's inputs."""

    folder: Path

    def remember(self, inputs: str, *, digest: str, content: str) -> None:
        """Note an image that was put together here. Raises OSError."""
        write_whole(self._path(inputs), json.dumps({"digest": digest, "content": content}).encode())

    def digest(self, inputs: str) -> str | None:
        """Digest of the manifest that was made last; None if there is none."""
        return self._read(inputs).get("digest")

    def content(self, inputs: str) -> str | None:
        """The same for :func:`builder.core.digests.content_of`, which identifies an engine's image."""
        return self._read(inputs).get("content")

    def _read(self, inputs: str) -> dict[str, str]:
        try:
            return parse_object(read_file(self._path(inputs), most=4096))
        except (OSError, MalformedError):
            return {}

    def _path(self, inputs: str) -> Path:
        return self.folder / f"{inputs.removeprefix('sha256:')}.json"
