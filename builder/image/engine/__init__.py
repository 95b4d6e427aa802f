"""The only place that talks to Docker: :class:`builder.image.engine.engine.Engine`."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .build import SavedImage as SavedImage, hint_for as hint_for
    from .container import ProbeRun as ProbeRun
    from .doctor import (
        DoctorCheck as DoctorCheck,
        diagnose as diagnose,
        gpu_checks as gpu_checks,
        network as network,
    )
    from .engine import Engine as Engine
    from .facts import (
        TOOLKIT_GUIDE as TOOLKIT_GUIDE,
        TOOLKIT_SETUP as TOOLKIT_SETUP,
        EngineFacts as EngineFacts,
        GpuFacts as GpuFacts,
        nvidia_smi as nvidia_smi,
        without_engine as without_engine,
    )
    from .images import StoredImage as StoredImage
    from .build import passing_names as passing_names, sweep_passing as sweep_passing
else:
    from builder.core import faces

    __getattr__, __dir__, __all__ = faces.attach(__name__, __file__)
