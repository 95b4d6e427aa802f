"""Google Drive: a folder that the person mounts when the runtime starts."""

from __future__ import annotations

import os
from typing import Any

from .errors import LocalRuntimeError, say

_HOW = (
    "Google Drive cannot be mounted from inside. Start the runtime with a folder of your machine there, such"
    ' as the one that Drive for desktop or rclone keeps: --volume "$HOME/My Drive:%s/MyDrive".'
)


def mount(mountpoint: str, *_: Any, **__: Any) -> None:
    """Take ``mountpoint/MyDrive`` as it is, or make it an ordinary folder and say so.

    Raises:
        LocalRuntimeError: it is not there and cannot be made.
    """
    folder, how = os.path.join(mountpoint, "MyDrive"), _HOW % mountpoint
    if os.path.ismount(folder) or os.path.ismount(mountpoint):
        print(f"Mounted at {mountpoint}")
        return
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise LocalRuntimeError(f"{how} ({folder}: {error.strerror})") from error
    say(f"{how} Until then {folder} is an ordinary folder.")


def flush_and_unmount(*_: Any, **__: Any) -> None:
    """Write what is not yet on disk; the folder stays."""
    os.sync()
