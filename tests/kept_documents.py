"""Documents of rtbuild's releases, kept in ``tests/documents``; see ``tests/unit/test_upgrades.py``."""

from __future__ import annotations

import base64
import json
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from doubles.registry import RegistryDouble, serve

if TYPE_CHECKING:
    from collections.abc import Iterator

DOCUMENTS = Path(__file__).parent / "documents"
RELEASES = tuple(sorted(path.name for path in DOCUMENTS.iterdir()))
REPOSITORIES = ("signed", "signed-referrers", "against")
"""As ``publish`` left them: signed, without and with the referrers API, and one that was found broken."""


@contextmanager
def repository(release: str, name: str) -> Iterator[str]:
    """Serve a repository as a release's ``publish`` left it, and give its name."""
    kept = json.loads((DOCUMENTS / release / f"{name}.registry.json").read_text())
    double = RegistryDouble(
        referrers=name.endswith("referrers"),
        tags=kept["tags"],
        manifests={
            digest: (one["mediaType"], one["content"].encode()) for digest, one in kept["manifests"].items()
        },
        blobs={digest: base64.b64decode(content) for digest, content in kept["blobs"].items()},
    )
    with serve(double):
        yield f"{double.host}/team/tf"
