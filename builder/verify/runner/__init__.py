"""Runs the probe in an image, reads what it found, keeps the reports."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .probe_run import (
        CONFINED as CONFINED,
        PROBE_FAILED as PROBE_FAILED,
        PROBE_PATH as PROBE_PATH,
        host_fault as host_fault,
        verify as verify,
    )
    from .reports import (
        AGAINST_IMAGE as AGAINST_IMAGE,
        CONVOLUTIONS as CONVOLUTIONS,
        EXIT_CODES as EXIT_CODES,
        Damaged as Damaged,
        Expectation as Expectation,
        ProbeDocument as ProbeDocument,
        ReportKey as ReportKey,
        ReportStore as ReportStore,
        SealedReport as SealedReport,
        compare as compare,
        family as family,
        key_of as key_of,
        parse as parse,
        printed_report as printed_report,
        read_entry as read_entry,
        seal as seal,
    )
else:
    from builder.core import faces

    __getattr__, __dir__, __all__ = faces.attach(__name__, __file__)
