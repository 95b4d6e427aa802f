"""What a build needs to reach the user's network: certificate authority, proxies, package indexes."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class UserNetwork:
    """Secrets (``ca``, ``pip_conf``: temporary files, mode 0600) and predefined proxy build arguments."""

    secrets: Mapping[str, Path]
    build_args: Mapping[str, str]


@contextmanager
def user_network() -> Iterator[UserNetwork]:
    """Yield the user's network settings for builds; the temporary files go away with the context."""
    raise NotImplementedError
    yield
