from .apt import ReleaseFile
from .archive import Debian, SuiteToday, day, older_lists, security_suite

__all__ = [
    "Debian",
    "ReleaseFile",
    "SuiteToday",
    "day",
    "older_lists",
    "security_suite",
]
