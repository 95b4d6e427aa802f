from .probe_facts import portable
from .rereading import reread

__all__ = [
    "portable",
    "reread",
]
