"""Texts and folders of a project, read within bounds."""

import codecs
import contextlib
import re
from pathlib import Path

from builder.core.documents import read_file, redact, shown
from builder.core.errors import UsageError

MOST_BYTES = 16 << 20
"""Bytes that a file is read to at most; notebooks hold pictures."""
LONGEST_LINE = 64 << 10
"""Letters of a line, of several joined by backslashes, too."""
LONGEST = 4096
"""Letters of one requirement."""

_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # it begins with the mark of UTF-16
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


def may_compile(folder: Path) -> bool:
    """Whether a project's folder may have CUDA code that its installation compiles: setuptools does that by
    setup.py alone, scikit-build by CMake.
    """
    if not is_file(folder / "setup.py"):
        return is_file(folder / "CMakeLists.txt") or not is_file(folder / "pyproject.toml")
    with contextlib.suppress(UsageError):
        return re.search(r"CUDAExtension|CUDA_HOME|nvcc", read_text(folder / "setup.py")) is not None
    return True


def is_project(folder: Path) -> bool:
    """Whether pip can install a folder: https://packaging.python.org/en/latest/tutorials/installing-packages/"""
    return is_file(folder / "setup.py") or is_file(folder / "pyproject.toml")


def is_folder(path: Path) -> bool:
    with contextlib.suppress(OSError, ValueError):  # a name that no file can have
        return path.is_dir()
    return False


def is_file(path: Path) -> bool:
    with contextlib.suppress(OSError, ValueError):
        return path.is_file()
    return False


def quoted(text: str) -> str:
    """A foreign text in a note or an error."""
    return shown(redact(text), most=200)


def read_text(path: Path) -> str:
    """A file of at most :data:`MOST_BYTES`, by its mark of encoding as pip reads it, else as UTF-8.

    PowerShell's ``pip freeze > requirements.txt`` is UTF-16. Raises UsageError.
    """
    try:
        content = read_file(path, most=MOST_BYTES)
        encoding = next((name for mark, name in _MARKS if content.startswith(mark)), "utf-8")
        return content.decode(encoding)
    except UnicodeDecodeError as problem:
        said = f"{path} is no text: its byte {problem.start} is none of UTF-8"
        raise UsageError(said, hint="a picture, a PDF or an archive is not read; copy the text") from problem
    except (OSError, ValueError) as problem:
        said = f"{path}: {getattr(problem, 'strerror', None) or problem}"
        raise UsageError(said, hint=_beside(path)) from problem


def _beside(path: Path) -> str | None:
    """The files of that kind in the folder of one that is not there."""
    try:
        if path.exists() or not path.parent.is_dir():
            return None
        alike = sorted(file.name for file in path.parent.iterdir() if file.suffix == path.suffix)
    except OSError:  # a name that no system has a file of, a folder that nobody may read
        return None
    listed = ", ".join(shown(name, most=80) for name in alike[:5])
    return f"{path.parent.absolute().name or '/'} has {listed}" if alike else None
