"""Cell magics that Colab's notebooks use and IPython lacks."""

from __future__ import annotations

import subprocess
from typing import Any


def shell(line: str, cell: str) -> None:
    """``%%shell``: run the cell by bash, as Colab does, and fail where it fails."""
    process = subprocess.Popen(
        ["bash", "-c", cell],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        universal_newlines=True,
        errors="replace",
    )
    assert process.stdout is not None
    for text in process.stdout:
        print(text, end="")
    status = process.wait()
    if status != 0 and "--ignore-errors" not in line.split():
        raise subprocess.CalledProcessError(status, "%%shell")


def load_ipython_extension(ipython: Any) -> None:
    """What IPython calls for every name in ``InteractiveShellApp.extensions``."""
    ipython.register_magic_function(shell, "cell", "shell")
