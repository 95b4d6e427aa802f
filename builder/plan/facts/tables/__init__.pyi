from .frameworks import Brings, FactsError, FrameworkRow, FrameworkTable, Source, TableFile
from .gpus import ON_JETSON, card_of, class_of, known_class, maker_of, named_card, near_names
from .loader import (
    BadRow,
    CudnnRow,
    GpuRow,
    KernelRow,
    NameRow,
    SameFilesRow,
    SystemLibraryRow,
    SystemRow,
    TagRow,
    jax_cuda,
    load,
)
from .packages import PackageName, PackageRow, PackageTable, newest_minor
from .probe_facts import portable

__all__ = [
    "ON_JETSON",
    "BadRow",
    "Brings",
    "CudnnRow",
    "FactsError",
    "FrameworkRow",
    "FrameworkTable",
    "GpuRow",
    "KernelRow",
    "NameRow",
    "PackageName",
    "PackageRow",
    "PackageTable",
    "SameFilesRow",
    "Source",
    "SystemLibraryRow",
    "SystemRow",
    "TableFile",
    "TagRow",
    "card_of",
    "class_of",
    "jax_cuda",
    "known_class",
    "load",
    "maker_of",
    "named_card",
    "near_names",
    "newest_minor",
    "portable",
]
