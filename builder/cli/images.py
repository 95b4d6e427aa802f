"""The image that a command is about: of a cell, by its name, or the only one here with a framework."""

import difflib
import shlex
import subprocess
import sys
from pathlib import Path

from builder.cli import options as opt
from builder.console import say
from builder.engine.engine import Engine
from builder.engine.images import StoredImage
from builder.errors import CommandError, UsageError
from builder.matrix.selection import matches
from builder.pipeline.settings import Settings

IMAGE_OR_CELL = opt.of("IMAGE|CELL: An image, or a cell's id or glob.", ...)


def find_image(name: str, matrices: list[Path] | None, engine: Engine) -> StoredImage:
    """The image of the cell with that id or glob; else the one of that name; else the one that holds it.

    A name with a registry, a repository or a tag in it is pulled if it is not here. A bare word is not: a
    mistyped cell would start whatever a public registry has by that name.
    """
    bare = not set("/:@") & set(name)
    cell = _cell_image(name, matrices) if bare else None
    if cell is not None:
        stored = engine.inspect(cell)
        if stored is None:
            raise UsageError(f"there is no image {cell}", hint=f"build it first: rtbuild build -s '{name}'")
        return stored
    if set("*?[]{}") & set(name):
        raise UsageError(f"no cell matches '{name}'", hint="`rtbuild list` shows the cells")
    capitals = bare and name != name.lower()  # as in CELL: no image's name has any
    stored = None if capitals else engine.inspect(name)
    if stored is None:
        stored = engine.inspect(_holding(name, engine) if bare else _pulled(name, engine))
    if stored is None:
        raise UsageError(f"the engine listed or pulled {name}, and has no such image now")
    return stored


def _holding(name: str, engine: Engine) -> str:
    """The image here in whose cell's id a part begins with ``name``: ``torch``, or ``torch==2.6``."""
    wanted = f"-{name.replace('==', '').casefold()}"
    here = engine.cells()
    found = sorted(image for image, cell in here.items() if wanted in f"-{cell.casefold()}")
    if len(found) == 1:
        return found[0]
    if found:
        several = "\n".join(f"  {image}" for image in found[:10])
        raise UsageError(f"{len(found)} images here hold {name}:\n{several}", hint="name one of them")
    near = difflib.get_close_matches(name, {*here, *here.values()}, n=3, cutoff=0.5)
    raise UsageError(
        f"there is no image {name} here, no cell of that name, and no image that holds it",
        hint=f"did you mean {', '.join(near)}?"
        if near
        else "`rtbuild list` shows the cells, `docker images` the images here; a name with its repository or"
        f" tag is pulled: {name}:latest",
    )


def _cell_image(name: str, matrices: list[Path] | None) -> str | None:
    """The name of the image of the cell that matches, if there is one; UsageError for several."""
    if not matrices and not opt.matrix_files():
        return None
    cells = [cell for matrix in opt.load_all(matrices) for cell in matrix.cells if cell.excluded is None]
    exact = [cell for cell in cells if cell.id == name]
    found = exact or [cell for cell in cells if matches(cell.id, name)]
    if len(found) > 1:
        ids = "\n".join(f"  {cell.id}" for cell in found[:10])
        raise UsageError(
            f"'{name}' matches {len(found)} cells, and one is started:\n{ids}", hint="name one of them"
        )
    return Settings().image_name(found[0]) if found else None


def _pulled(name: str, engine: Engine) -> str:
    command = [*engine.client_command, "pull", name]
    say(f"+ {shlex.join(command)}")
    status = subprocess.run(command, stdout=sys.stderr, check=False).returncode
    if status != 0:
        text = f"there is no image {name} here, no cell of that name, and it could not be pulled"
        hint = "`rtbuild list` shows the cells, `docker images` the images here"
        raise CommandError(text, command=command, returncode=status, hint=hint)
    return name


def is_colab(stored: StoredImage) -> bool:
    return stored.label("io.rtbuild.profile") == "colab"
