from .cache import ReadingCache
from .cells import read
from .observed import (
    DOCKER_HUB,
    TAG,
    BaseTruth,
    CudaTag,
    Truth,
    WheelTruth,
    framework_texts,
    system_of,
    tag_of,
)
from .package_wheel import number_of, read_numpy, read_package, read_source, read_symbols
from .wheel import Kind, Metadata, WheelReading, metadata_of
from .wheelread import read_wheel

__all__ = [
    "DOCKER_HUB",
    "TAG",
    "BaseTruth",
    "CudaTag",
    "Kind",
    "Metadata",
    "ReadingCache",
    "Truth",
    "WheelReading",
    "WheelTruth",
    "framework_texts",
    "metadata_of",
    "number_of",
    "read",
    "read_numpy",
    "read_package",
    "read_source",
    "read_symbols",
    "read_wheel",
    "system_of",
    "tag_of",
]
