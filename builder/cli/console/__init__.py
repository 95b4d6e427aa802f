"""Output for people: lines, boards, tables and documents, on a terminal and in a pipe."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .board import CountTable as CountTable
    from .lines import reporter as reporter
    from .results import (
        Case as Case,
        CaseStatus as CaseStatus,
        case_of as case_of,
        error_text as error_text,
        junit_xml as junit_xml,
        run_summary as run_summary,
        write_job_files as write_job_files,
    )
    from .terminal import (
        Progress as Progress,
        Terminal as Terminal,
        accept_any_encoding as accept_any_encoding,
        counted as counted,
        document_printed as document_printed,
        human_bytes as human_bytes,
        print_json as print_json,
        say as say,
        show as show,
    )
    from .trace import Trace as Trace
else:
    from builder.core import faces

    __getattr__, __dir__, __all__ = faces.attach(__name__, __file__)
