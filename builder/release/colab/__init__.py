"""Colab: its dated runtimes as matrices, how near an image is to one, and images as local runtimes."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .diff import (
        PRESENT_GOAL as PRESENT_GOAL,
        SAME_GOAL as SAME_GOAL,
        Listed as Listed,
        Parity as Parity,
        ParityRow as ParityRow,
        ParityStatus as ParityStatus,
        compare as compare,
        labelled as labelled,
        listed as listed,
        measure as measure,
    )
    from .runtimes import (
        ABOUT as ABOUT,
        ColabGpu as ColabGpu,
        Login as Login,
        load as load,
        probe_runtime as probe_runtime,
        save as save,
    )
    from .imports import (
        Imported as Imported,
        import_runtime as import_runtime,
        matrix_text as matrix_text,
        record as record,
        record_text as record_text,
    )
    from .launch import (
        IMAGE_USER as IMAGE_USER,
        LaunchPlan as LaunchPlan,
        Machine as Machine,
        Mode as Mode,
        Wish as Wish,
        devcontainer as devcontainer,
        plan as plan,
        user_named as user_named,
        verdict_exit as verdict_exit,
        write_devcontainer as write_devcontainer,
    )
    from .runtimes import Runtime as Runtime, read_runtime as read_runtime
else:
    from builder.core import faces

    __getattr__, __dir__, __all__ = faces.attach(__name__, __file__)
