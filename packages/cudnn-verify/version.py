"""The version of the distribution is that of the probe itself."""

import re
from pathlib import Path

_HERE = Path(__file__).resolve().parent
_SOURCES = (
    _HERE.parent.parent / "builder" / "verify" / "cudnn_verify" / "__main__.py",
    _HERE / "cudnn_verify.py",
)
_TEXT = next(path for path in _SOURCES if path.is_file()).read_text(encoding="utf-8")

__version__ = re.search(r'^VERSION = "([^"]+)"$', _TEXT, re.MULTILINE)[1]
