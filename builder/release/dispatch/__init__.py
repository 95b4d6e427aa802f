"""Verifies many cells on many kinds of cards, by the scheduler that people already run.

The registry is the only meeting point: images come from it, reports go to it. There is no shared file system,
no database and no daemon, so whoever stops may start again anywhere.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .fleet import Scheduler as Scheduler, load_fleet as load_fleet
    from .node import verify_digest as verify_digest
    from .run import (
        building as building,
        rendered_cells as rendered_cells,
        try_fleet as try_fleet,
        verifying as verifying,
    )
    from .tasks import (
        Follower as Follower,
        TaskState as TaskState,
        exit_code as exit_code,
        missing as missing,
    )
else:
    from builder.core import faces

    __getattr__, __dir__, __all__ = faces.attach(__name__, __file__)
