"""Folders that can be written to, whoever the user of the container is."""

from __future__ import annotations

import os
import pwd
import tempfile
from typing import Callable, MutableMapping

from .settings import StartError

WORK = "/content"
"""Colab's work folder."""


def writable(folder: str) -> bool:
    """Whether a file can be made there; the modes alone do not tell of a read-only mount."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def settle_home(environment: MutableMapping[str, str], say: Callable[[str], None]) -> str:
    """Give ``environment`` a HOME that can be written to, and a name for a user who has none; the HOME.

    Raises:
        StartError: nothing at all can be written to.
    """
    home = environment.get("HOME") or "/"
    if not writable(home):
        try:
            made = tempfile.mkdtemp(prefix="home-")
        except OSError as error:
            raise StartError(
                f"neither the home folder {home} nor a temporary folder can be written to: {error}",
                "give the container a place to write: --tmpfs /tmp",
                5,
            )
        if home != "/":
            say(f"the home folder {home} cannot be written to: {made} is taken, and goes with the container")
        home = made
    environment["HOME"] = home
    try:
        name = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # `--user` may name anyone; getpass, and so PyTorch's compiler, wants a name
        name = f"user{os.getuid()}"
    environment.setdefault("LOGNAME", environment.setdefault("USER", name))
    return home


def work_folder(home: str, say: Callable[[str], None]) -> str:
    """``/content``, or the home folder where an image has none."""
    if not os.path.isdir(WORK):
        say(f"there is no {WORK}: notebooks are kept in {home}")
        return home
    if not writable(WORK):
        owner = os.stat(WORK)
        hint = f"start as its owner: --user {owner.st_uid}:{owner.st_gid}"
        if owner.st_uid == 0:
            hint = f'mount a folder that is yours: --volume "$PWD:{WORK}"'
        say(
            f"{WORK} cannot be written to by user {os.getuid()}, it belongs to user {owner.st_uid}: notebooks"
            f" there cannot be saved.\n  hint: {hint}"
        )
    return WORK
