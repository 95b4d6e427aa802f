"""Readings of wheels and base images, taken in small parts, and kept in the user's cache.

The tables are read again from the same places: :mod:`builder.plan.facts.reading.rereading`.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .binary import needs_of as needs_of
    from .cache import ReadingCache as ReadingCache
    from .cells import read_cells as read_cells
    from .framework_wheel import read_wheel as read_wheel
    from .observed import (
        DOCKER_HUB as DOCKER_HUB,
        BaseTruth as BaseTruth,
        CudaTag as CudaTag,
        Truth as Truth,
        WheelTruth as WheelTruth,
        framework_texts as framework_texts,
        system_of as system_of,
        tag_of as tag_of,
    )
    from .package_wheel import read_package as read_package
    from .release_days import days_table as days_table
    from .release_names import names_table as names_table
    from .rereading import reread as reread
else:
    from builder.core import faces

    __getattr__, __dir__, __all__ = faces.attach(__name__, __file__)
