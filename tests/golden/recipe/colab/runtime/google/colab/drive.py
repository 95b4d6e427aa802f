"""Google Drive: a folder that the person mounts when the runtime starts."""

from __future__ import annotations

import os

from ._explain import say
from .errors import LocalRuntimeError

__all__ = ["flush_and_unmount", "mount"]

_HOW = (
    "Google Drive cannot be mounted from inside. Start the runtime with a folder of your machine there, such"
    ' as the one that Drive for desktop or rclone keeps: --volume "$HOME/My Drive:%s/MyDrive".'
)


def mount(
    mountpoint: str, force_remount: bool = False, timeout_ms: int = 120000, readonly: bool = False
) -> None:
    """Take ``mountpoint/MyDrive`` as it is, or make it an ordinary folder and say so.

    Raises:
        LocalRuntimeError: it is not there and cannot be made.
    """
    del force_remount, timeout_ms, readonly
    folder = os.path.join(mountpoint, "MyDrive")
    if os.path.ismount(folder) or os.path.ismount(mountpoint):
        print("Mounted at %s" % mountpoint)
        return
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise LocalRuntimeError("%s (%s: %s)" % (_HOW % mountpoint, folder, error.strerror)) from error
    say("%s Until then %s is an ordinary folder." % (_HOW % mountpoint, folder))


def flush_and_unmount(timeout_ms: int = 24 * 60 * 60 * 1000) -> None:
    """Write what is not yet on disk; the folder stays."""
    del timeout_ms
    os.sync()
