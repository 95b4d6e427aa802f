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
                "neither the home folder %s nor a temporary folder can be written to: %s" % (home, error),
                "give the container a place to write: --tmpfs /tmp",
                5,
            )
        if home != "/":
            say(
                "the home folder %s cannot be written to: %s is taken, and goes with the container"
                % (home, made)
            )
        home = made
    environment["HOME"] = home
    try:
        name = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # `--user` may name anyone; getpass, and so PyTorch's compiler, wants a name
        name = "user%d" % os.getuid()
    environment.setdefault("USER", name)
    environment.setdefault("LOGNAME", environment["USER"])
    return home


def work_folder(home: str, say: Callable[[str], None]) -> str:
    """``/content``, or the home folder where an image has none."""
    if not os.path.isdir(WORK):
        say("there is no %s: notebooks are kept in %s" % (WORK, home))
        return home
    if not writable(WORK):
        owner = os.stat(WORK)
        hint = "start as its owner: --user %d:%d" % (owner.st_uid, owner.st_gid)
        if owner.st_uid == 0:
            hint = 'mount a folder that is yours: --volume "$PWD:%s"' % WORK
        say(
            "%s cannot be written to by user %d, it belongs to user %d: notebooks there cannot be saved.\n"
            "  hint: %s" % (WORK, os.getuid(), owner.st_uid, hint)
        )
    return WORK
