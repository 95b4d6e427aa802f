"""``rtbuild export``: a locked cell as a file that pip, uv or conda installs."""

import functools
from pathlib import Path
from typing import get_args

from builder.cli import options as opt
from builder.cli.console import say, show
from builder.core.files import write_whole
from builder.plan.lock import Form, lost_by, written
from builder.sources.index import Index

_FORMS = "|".join(get_args(Form))


def export(
    cell: str = opt.of("CELL: A cell's id, or a glob that matches one.", ...),
    matrices: list[Path] | None = opt.MATRICES,
    form: Form = opt.of(
        f"--format {_FORMS}: "
        "pylock.toml, hashed requirements, versions alone, a pyproject.toml for uv, an environment.yml.",
        "pylock",
    ),
    output: Path | None = opt.of("--output, -o FILE: Where it goes; without it, standard output."),
) -> int:
    """Write the cell's packages as its lock has them, and say what the form does not carry.

    pylock and uv name addresses: they are those of your own index, without a login.
    """
    loaded = opt.load_all(matrices)
    one = opt.choose_one(loaded, cell)
    pinned = opt.locked_cell(loaded, one)
    index = functools.cache(lambda: Index.from_user().with_extra(one.index))
    text = written(pinned, form, lambda file: index().place(file))
    if output is None:
        show(*text.splitlines())
    else:
        with opt.writing(output):
            write_whole(output, text.encode())
    for lost in lost_by(pinned):
        say(f"not carried: {lost}")
    return 0
