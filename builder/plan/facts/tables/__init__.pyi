from .frameworks import Brings, FactsError, FrameworkRow, FrameworkTable, TableFile
from .gpus import card_of, class_of, known_cards, known_class, maker_of, named_card, near_names
from .loader import (
    BadRow,
    CudnnRow,
    Facts,
    FrameworkName,
    GpuRow,
    KernelRow,
    SystemRow,
    TagRow,
    WheelFamilyRow,
    jax_cuda,
    load,
)
from .packages import PackageName, PackageRow, PackageTable, newest_minor
from .source import Source

__all__ = [
    "BadRow",
    "Brings",
    "CudnnRow",
    "Facts",
    "FactsError",
    "FrameworkName",
    "FrameworkRow",
    "FrameworkTable",
    "GpuRow",
    "KernelRow",
    "PackageName",
    "PackageRow",
    "PackageTable",
    "Source",
    "SystemRow",
    "TableFile",
    "TagRow",
    "WheelFamilyRow",
    "card_of",
    "class_of",
    "jax_cuda",
    "known_cards",
    "known_class",
    "load",
    "maker_of",
    "named_card",
    "near_names",
    "newest_minor",
]
