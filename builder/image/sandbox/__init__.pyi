from .group import control_group
from .run import View, environment, require, run, run_script
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
