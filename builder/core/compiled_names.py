"""The names of a compiled module, as far as its file tells without being loaded."""

import re


def has_name(content: bytes, name: str) -> bool | None:
    """Whether a module that Cython compiled may have a name; None if nobody knows.

    Cython keeps each name that a module binds as a text of its own, ended by a zero byte, as its own
    ``__test__`` (``Cython/Compiler/Code.py``, ``StringConst``); a newer one may keep all in one text, or
    packed. What ends in the name, ``blosc_cbuffer_sizes``, is another one. C, C++ and Rust do otherwise.
    """
    if b"\0__test__\0" not in content or b"from-import-*" in content:
        return None
    return re.search(rb"(?<!\w)" + re.escape(name.encode()) + rb"\0", content) is not None
