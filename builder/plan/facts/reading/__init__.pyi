from .cache import ReadingCache
from .cells import read_cells
from .framework_wheel import read_wheel
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

__all__ = [
    "DOCKER_HUB",
    "BaseTruth",
    "CudaTag",
    "ReadingCache",
    "Truth",
    "WheelTruth",
    "framework_texts",
    "read_cells",
    "read_wheel",
    "reread",
    "system_of",
    "tag_of",
]
