from .advice import COMPILED, LACKS, NETWORK
from .workshop import Workshop

__all__ = [
    "COMPILED",
    "LACKS",
    "NETWORK",
    "Workshop",
]
