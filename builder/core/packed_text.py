"""Texts of tables, packed: for rtbuild, which writes them, and for its probe, which reads them on Python
3.6."""

import base64
import zlib


def pack_text(text: str) -> str:
    """A text as zlib's stream in base64. Another zlib may write other bytes, so tables keep what was
    written.
    """
    return base64.b64encode(zlib.compress(text.encode("utf-8"), 9)).decode("ascii")


def unpack_text(packed: str) -> str:
    """The text of :func:`pack_text`. Raises ValueError or zlib.error for another one."""
    return zlib.decompress(base64.b64decode(packed)).decode("utf-8")
