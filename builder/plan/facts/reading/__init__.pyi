from .cache import ReadingCache
from .cells import read
from .observed import (
    DOCKER_HUB,
    BaseTruth,
    CudaTag,
    Truth,
    WheelTruth,
    framework_texts,
    system_of,
    tag_of,
)
from .rereading import reread
from .wheelread import read_wheel

__all__ = [
    "DOCKER_HUB",
    "BaseTruth",
    "CudaTag",
    "ReadingCache",
    "Truth",
    "WheelTruth",
    "framework_texts",
    "read",
    "read_wheel",
    "reread",
    "system_of",
    "tag_of",
]
