"""Images put together: a base, layers of wheels, and on top the small layers that the recipe's steps make."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .cell_layers import (
        BaseLayers as BaseLayers,
        LayerBuild as LayerBuild,
        Plan as Plan,
        SystemLayers as SystemLayers,
        layer_keys_of as layer_keys_of,
        plan as plan,
        python_key as python_key,
    )
    from .compose import ComposedImage as ComposedImage, compose_image as compose_image
    from .systems import FOLDER as FOLDER, Pythons as Pythons
    from .systems import (
        cached_rootfs as cached_rootfs,
        lacks_for_rootfs as lacks_for_rootfs,
        rootfs_key as rootfs_key,
    )
    from .run_steps import BaseCache as BaseCache, ComposeInput as ComposeInput
    from .sizes import (
        CellSize as CellSize,
        LayerSize as LayerSize,
        check_room as check_room,
        measure as measure,
    )
    from .step_runners import StepRunner as StepRunner, step_runner as step_runner
else:
    from builder.core import faces

    __getattr__, __dir__, __all__ = faces.attach(__name__, __file__)
