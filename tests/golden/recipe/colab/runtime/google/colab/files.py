"""Files come and go through the work folder, which is a folder of the person's own machine."""

from __future__ import annotations

import os
import shutil

from ._explain import say
from .errors import LocalRuntimeError

__all__ = ["download", "upload", "upload_file", "view"]

_WORK = "/content"


def upload(target_dir: str = "") -> dict[str, bytes]:
    """Ask for paths in the work folder until an empty line; the files by name, as Colab gives them.

    With ``target_dir`` they are copied there, too.
    """
    say(
        "files are not sent through the page. %s is a folder of your machine: put them there, and name them"
        " here." % _WORK
    )
    found: dict[str, bytes] = {}
    while True:
        path = _ask("path below %s, or nothing to go on: " % _WORK)
        if not path:
            return found
        content = _read(path)
        if content is None:
            continue
        name = os.path.basename(path)
        found[name] = content
        if target_dir:
            os.makedirs(target_dir, exist_ok=True)
            with open(os.path.join(target_dir, name), "wb") as stream:
                stream.write(content)


def upload_file(filename: str) -> None:
    """Ask for one path and copy that file to ``filename``."""
    taken = upload()
    if len(taken) != 1:
        raise ValueError("%d files were named; one is needed" % len(taken))
    with open(filename, "wb") as stream:
        stream.write(next(iter(taken.values())))


def download(filename: str) -> None:
    """Say where the file is on the person's machine; one outside the work folder is copied into it.

    Raises:
        FileNotFoundError: as on Colab, where there is no such file.
    """
    if not os.path.exists(filename):
        raise FileNotFoundError("Cannot find file: %s" % filename)
    path = os.path.realpath(filename)
    work = os.path.realpath(_WORK)
    if not path.startswith(work + os.sep):
        path = shutil.copy(path, os.path.join(work, os.path.basename(path)))
    print(
        "%s is on your machine already: it is %s of your work folder"
        % (filename, os.path.relpath(path, work))
    )
    _link(path)


def view(filepath: str) -> None:
    """Show a link to the file. Raises FileNotFoundError where there is none."""
    if not os.path.exists(filepath):
        raise FileNotFoundError("Cannot find file: %s" % filepath)
    _link(os.path.realpath(filepath))


def _ask(prompt: str) -> str:
    try:
        return input(prompt).strip()
    except (EOFError, RuntimeError) as error:  # IPython's StdinNotImplementedError is a RuntimeError
        # https://github.com/ipython/ipython/blob/main/IPython/core/error.py
        raise LocalRuntimeError(
            "files.upload() asks for a path, and nobody is there to answer. Open the file by its name"
            " instead: %s is a folder of your machine." % _WORK
        ) from error


def _read(path: str) -> bytes | None:
    full = os.path.join(_WORK, path)
    try:
        with open(full, "rb") as stream:
            return stream.read()
    except OSError as error:
        print("%s: %s" % (full, error.strerror))
        return None


def _link(path: str) -> None:
    from IPython.display import FileLink, display

    display(FileLink(os.path.relpath(path)))
