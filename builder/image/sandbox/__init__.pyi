from .bwrap import View, environment, require, run, run_script
from .group import control_group
from .watch import Limits

__all__ = [
    "Limits",
    "View",
    "control_group",
    "environment",
    "require",
    "run",
    "run_script",
]
