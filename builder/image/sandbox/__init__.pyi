from .bwrap import View, environment, require, run, run_script
from .watch import Limits, control_group

__all__ = [
    "Limits",
    "View",
    "control_group",
    "environment",
    "require",
    "run",
    "run_script",
]
