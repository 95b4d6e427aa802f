from .board import CountTable
from .lines import reporter
from .results import Case, CaseStatus, case_of, error_text, junit_xml, run_summary, write_job_files
from .terminal import (
    Progress,
    Terminal,
    accept_any_encoding,
    counted,
    document_printed,
    human_bytes,
    print_json,
    say,
    show,
)
from .trace import Trace

__all__ = [
    "Case",
    "CaseStatus",
    "CountTable",
    "Progress",
    "Terminal",
    "Trace",
    "accept_any_encoding",
    "case_of",
    "counted",
    "document_printed",
    "error_text",
    "human_bytes",
    "junit_xml",
    "print_json",
    "reporter",
    "run_summary",
    "say",
    "show",
    "write_job_files",
]
