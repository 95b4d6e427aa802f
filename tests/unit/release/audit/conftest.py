from __future__ import annotations

from evidence_fixtures import pushed, registry, server

__all__ = ["pushed", "registry", "server"]
