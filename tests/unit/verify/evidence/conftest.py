from __future__ import annotations

from evidence_fixtures import image, pushed, registry, server

__all__ = ["image", "pushed", "registry", "server"]
