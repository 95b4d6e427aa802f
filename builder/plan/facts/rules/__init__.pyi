from .candidates import Choice, Combination, choices, platform_of
from .checking import OF_MACHINE, check, explain, fitted, settled, until_refused
from .finding import Finding, Outcome, summary
from .packages import bad_pairs

__all__ = [
    "OF_MACHINE",
    "Choice",
    "Combination",
    "Finding",
    "Outcome",
    "bad_pairs",
    "check",
    "choices",
    "explain",
    "fitted",
    "platform_of",
    "settled",
    "summary",
    "until_refused",
]
