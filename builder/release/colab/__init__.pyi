from .diff import Listed, Parity, ParityRow, ParityStatus, listed
from .fresh import ABOUT, ColabGpu, Login, load, probe_runtime, save
from .imports import Imported, import_runtime, matrix_text, record, record_text
from .launch import IMAGE_USER, LaunchPlan, Machine, Mode, Wish, address_in, plan, verdict_exit
from .measurement import measure
from .runtimes import Runtime, read_runtime

__all__ = [
    "ABOUT",
    "IMAGE_USER",
    "ColabGpu",
    "Imported",
    "LaunchPlan",
    "Listed",
    "Login",
    "Machine",
    "Mode",
    "Parity",
    "ParityRow",
    "ParityStatus",
    "Runtime",
    "Wish",
    "address_in",
    "import_runtime",
    "listed",
    "load",
    "matrix_text",
    "measure",
    "plan",
    "probe_runtime",
    "read_runtime",
    "record",
    "record_text",
    "save",
    "verdict_exit",
]
