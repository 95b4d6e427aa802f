from .archive import Debian

__all__ = [
    "Debian",
]
