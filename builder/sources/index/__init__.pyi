from .client import Files, Index, LocalWheel, Offer, ask, cache_path, page, pages
from .pythons import PythonArchives, choose_python, machine_platform, offered
from .remote_zip import DEEP_LIMIT, LIMIT, RemoteZip, UnknownError, is_html, unpacked
from .sdist_reading import SdistContents, sdist_contents, sdist_files
from .simple_api import IndexFile
from .target import MACHINES, Target, environment, glibc_of, rank, takes, wheel_name

__all__ = [
    "DEEP_LIMIT",
    "LIMIT",
    "MACHINES",
    "Files",
    "Index",
    "IndexFile",
    "LocalWheel",
    "Offer",
    "PythonArchives",
    "RemoteZip",
    "SdistContents",
    "Target",
    "UnknownError",
    "ask",
    "cache_path",
    "choose_python",
    "environment",
    "glibc_of",
    "is_html",
    "machine_platform",
    "offered",
    "page",
    "pages",
    "rank",
    "sdist_contents",
    "sdist_files",
    "takes",
    "unpacked",
    "wheel_name",
]
