from .build import SavedImage, hint_for
from .container import ProbeRun
from .doctor import diagnose, gpu_checks
from .engine import Engine
from .facts import TOOLKIT_GUIDE, TOOLKIT_SETUP, EngineFacts, GpuFacts, nvidia_smi, without_engine
from .images import StoredImage
from .receive import passing_names, sweep_passing

__all__ = [
    "TOOLKIT_GUIDE",
    "TOOLKIT_SETUP",
    "Engine",
    "EngineFacts",
    "GpuFacts",
    "ProbeRun",
    "SavedImage",
    "StoredImage",
    "diagnose",
    "gpu_checks",
    "hint_for",
    "nvidia_smi",
    "passing_names",
    "sweep_passing",
    "without_engine",
]
