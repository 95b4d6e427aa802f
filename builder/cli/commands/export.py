"""``rtbuild export``: a locked cell as a file that pip, uv or conda installs."""

import functools
from pathlib import Path
from typing import get_args

from builder.cli import options as opt
from builder.cli.console import say, show
from builder.core import resources
from builder.core.errors import PackageIndexError
from builder.core.files import write_whole
from builder.core.model import Pinned, Sdist, Wheel
from builder.plan.lock import Form, Place, lost_by, written
from builder.sources.index import Index, cache_path

_FORMS = "|".join(get_args(Form))
_WITH_FILES = ("pylock", "uv")
"""The forms that name where a file is."""


def export(
    cell: str = opt.of("CELL: A cell's id, or a glob that matches one, or a matrix file with one.", ...),
    matrices: list[Path] | None = opt.MATRICES,
    form: Form = opt.of(
        f"--format {_FORMS}: "
        "pylock.toml, hashed requirements, versions alone, a pyproject.toml for uv, an environment.yml.",
        "pylock",
    ),
    offline: bool = opt.of("--offline: Name the cache's files in place of addresses; ask no index.", False),
    output: Path | None = opt.of("--output, -o FILE: Where it goes; without it, standard output."),
) -> int:
    """Write the cell's packages as its lock has them, and say what the form does not carry.

    pylock and uv name addresses: they are those of your own index, without a login.
    """
    cell, matrices = opt.of_file(cell, matrices)
    loaded = opt.load_all(matrices)
    one = opt.choose_one(loaded, cell)
    pinned = opt.locked_cell(loaded, one)
    text = written(pinned, form, _kept(pinned) if offline and form in _WITH_FILES else _asking(one.index))
    if output is None:
        show(*text.splitlines())
    else:
        with opt.writing(output):
            write_whole(output, text.encode())
    for lost in lost_by(pinned):
        say(f"not carried: {lost}")
    return 0


def _asking(extra: tuple[str, ...]) -> Place:
    """A function that gives the place of a file on the user's indexes and a cell's own."""
    index = functools.cache(lambda: Index.from_user().with_extra(extra))

    def place(file: Wheel | Sdist) -> tuple[str, str]:
        try:
            return index().place(file)
        except PackageIndexError as problem:
            hint = f"{problem.hint}; without a network: --offline, or --format requirements"
            raise type(problem)(problem.message, hint=hint) from problem

    return place


def _kept(pinned: Pinned) -> dict[str, Path]:
    """The files that the cache has of each package. Raises PackageIndexError with those that it lacks."""
    files = [wheel if wheel.source is None else wheel.source.sdist for wheel in pinned.wheels]
    paths = {file.sha256: cache_path(file, resources.cache()).absolute() for file in files}
    lacking = [path for path in paths.values() if not path.is_file()]
    if lacking:
        rows = "".join(f"\n  missing here: {path}" for path in lacking)
        raise PackageIndexError(
            f"{len(lacking)} of {len(paths)} files are not in the cache{rows}",
            hint="`rtbuild build` fetches them where a network is; --format requirements needs no file",
        )
    return paths
