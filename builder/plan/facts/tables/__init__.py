"""Facts of cards, toolkits, releases and systems: data in ``data/``, a row each with its sources.

:mod:`builder.plan.facts.tables.probe_facts` has what the probe carries of it.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .frameworks import (
        Brings as Brings,
        FactsError as FactsError,
        FrameworkRow as FrameworkRow,
        FrameworkTable as FrameworkTable,
        Row as Row,
        Source as Source,
        TableFile as TableFile,
    )
    from .gpus import (
        ON_JETSON as ON_JETSON,
        builds_of as builds_of,
        card_of as card_of,
        cards_of as cards_of,
        class_of as class_of,
        driver_installs as driver_installs,
        is_without as is_without,
        known_class as known_class,
        maker_of as maker_of,
        named_card as named_card,
        near_names as near_names,
        torch_for_cpu as torch_for_cpu,
        other_cards as other_cards,
        said_of as said_of,
        to_type as to_type,
    )
    from .loader import jax_cuda as jax_cuda, load as load
    from .packages import (
        CUDA_LIBRARY as CUDA_LIBRARY,
        NUMBERED as NUMBERED,
        NameSpan as NameSpan,
        PackageName as PackageName,
        PackageRow as PackageRow,
        PackageTable as PackageTable,
        name_spans as name_spans,
        leaving_out as leaving_out,
        newest_minor as newest_minor,
    )
    from .probe_facts import portable as portable
    from .rows import (
        BadRow as BadRow,
        CudnnRow as CudnnRow,
        GpuRow as GpuRow,
        JetpackRow as JetpackRow,
        KernelRow as KernelRow,
        NameRow as NameRow,
        SameFilesRow as SameFilesRow,
        SystemRow as SystemRow,
        TagRow as TagRow,
        VendorBuildRow as VendorBuildRow,
        WheelPageRow as WheelPageRow,
    )
    from .system_libraries import SystemLibraryRow as SystemLibraryRow
else:
    from builder.core import faces

    __getattr__, __dir__, __all__ = faces.attach(__name__, __file__)
