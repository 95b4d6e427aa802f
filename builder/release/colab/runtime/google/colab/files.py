"""Files come and go through the work folder, which is a folder of the person's own machine."""

from __future__ import annotations

import os
import shutil

from .errors import LocalRuntimeError, say

_WORK = "/content"


def upload(target_dir: str = "") -> dict[str, bytes]:
    """Ask for paths in the work folder until an empty line; the files by name, as Colab gives them.

    With ``target_dir`` they are copied there, too.
    """
    say(
        f"files are not sent through the page. {_WORK} is a folder of your machine: put them there, and name"
        " them here."
    )
    found: dict[str, bytes] = {}
    while path := _ask(f"path below {_WORK}, or nothing to go on: "):
        full, name = os.path.join(_WORK, path), os.path.basename(path)
        try:
            with open(full, "rb") as stream:
                content = stream.read()
        except OSError as error:
            print(f"{full}: {error.strerror}")
            continue
        found[name] = content
        if target_dir:
            os.makedirs(target_dir, exist_ok=True)
            with open(os.path.join(target_dir, name), "wb") as stream:
                stream.write(content)
    return found


def upload_file(filename: str) -> None:
    """Ask for one path and copy that file to ``filename``."""
    taken = upload()
    if len(taken) != 1:
        raise ValueError(f"{len(taken)} files were named; one is needed")
    with open(filename, "wb") as stream:
        stream.write(next(iter(taken.values())))


def download(filename: str) -> None:
    """Say where the file is on the person's machine; one outside the work folder is copied into it.

    Raises:
        FileNotFoundError: as on Colab, where there is no such file.
    """
    path, work = _there(filename), os.path.realpath(_WORK)
    if not path.startswith(work + os.sep):
        path = shutil.copy(path, os.path.join(work, os.path.basename(path)))
    where = os.path.relpath(path, work)
    print(f"{filename} is on your machine already: it is {where} of your work folder")
    _link(path)


def view(filepath: str) -> None:
    """Show a link to the file. Raises FileNotFoundError where there is none."""
    _link(_there(filepath))


def _there(path: str) -> str:
    if not os.path.exists(path):
        raise FileNotFoundError(f"Cannot find file: {path}")
    return os.path.realpath(path)


def _ask(prompt: str) -> str:
    try:
        return input(prompt).strip()
    except (EOFError, RuntimeError) as error:  # IPython's StdinNotImplementedError is a RuntimeError
        # https://github.com/ipython/ipython/blob/main/IPython/core/error.py
        raise LocalRuntimeError(
            "files.upload() asks for a path, and nobody is there to answer. Open the file by its name"
            f" instead: {_WORK} is a folder of your machine."
        ) from error


def _link(path: str) -> None:
    from IPython.display import FileLink, display

    display(FileLink(os.path.relpath(path)))
