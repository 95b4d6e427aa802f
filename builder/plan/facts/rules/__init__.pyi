from .candidates import Choice, Combination, choices, platform_of
from .cell_packages import PYTORCH
from .checking import BROKEN_SET, OF_MACHINE, OF_SET, broken_set, check, check_candidate
from .finding import Finding, Outcome
from .packages import bad_pairs

__all__ = [
    "BROKEN_SET",
    "OF_MACHINE",
    "OF_SET",
    "PYTORCH",
    "Choice",
    "Combination",
    "Finding",
    "Outcome",
    "bad_pairs",
    "broken_set",
    "check",
    "check_candidate",
    "choices",
    "platform_of",
]
