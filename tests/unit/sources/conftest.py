from __future__ import annotations

from outside_fixtures import client, fake_index, home, own_configuration, server, uv_cache

__all__ = ["client", "fake_index", "home", "own_configuration", "server", "uv_cache"]
