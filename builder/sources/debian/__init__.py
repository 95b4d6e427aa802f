"""Debian archives: which packages make an operating system, and the packages themselves."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .apt import ReleaseFile as ReleaseFile
    from .archive import (
        Debian as Debian,
        SuiteToday as SuiteToday,
        day as day,
        older_lists as older_lists,
        security_suite as security_suite,
    )
else:
    from builder.core import faces

    __getattr__, __dir__, __all__ = faces.attach(__name__, __file__)
