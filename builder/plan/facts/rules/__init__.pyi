from .beside import PYTORCH
from .candidates import Choice, Combination, choices, platform_of
from .checking import OF_MACHINE, OF_SET, check, check_candidate
from .finding import Finding, Outcome
from .packages import bad_pairs

__all__ = [
    "OF_MACHINE",
    "OF_SET",
    "PYTORCH",
    "Choice",
    "Combination",
    "Finding",
    "Outcome",
    "bad_pairs",
    "check",
    "check_candidate",
    "choices",
    "platform_of",
]
