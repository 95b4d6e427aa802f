"""Questions of several commands to :mod:`builder.plan.resolve`, and the matrix of the best cell that it
finds.
"""

import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from builder.cli import options as opt
from builder.cli.console import Terminal, human_bytes, say
from builder.cli.walking import noted
from builder.core import resources
from builder.core.errors import NothingPossibleError, UsageError
from builder.core.files import write_whole
from builder.core.model import Base
from builder.image.engine import nvidia_smi
from builder.plan.resolve import (
    AskedMachine,
    Proposal,
    ProposedMatrix,
    Wishes,
    from_arguments,
    from_conda,
    from_file,
    from_notebook,
    from_pylock,
    from_pyproject,
    propose,
    to_matrix_yaml,
)
from builder.sources.index import MACHINES, Index, host_platform

_OTHER_BASES = 10
"""Proposals among which one with another base is looked for."""


def asked_machine(gpus: Sequence[str], driver: str | None, platform: str | None = None) -> AskedMachine:
    """The machine that is asked about; this one, if neither cards nor a driver are named and it has cards.

    Raises UsageError for a card or a platform that no table has.
    """
    if platform not in {None, *MACHINES}:
        raise UsageError(
            f"--platform {platform} is none that rtbuild knows", hint=f"one of {', '.join(MACHINES)}"
        )
    if not gpus and driver is None:
        cards, driver = nvidia_smi()
        gpus = [gpu.compute_capability or gpu.name for gpu in cards]
        platform = platform or (host_platform() if cards else None)
    return AskedMachine(gpus=tuple(dict.fromkeys(map(opt.card, gpus))), driver=driver, platform=platform)


def wishes(
    arguments: Sequence[str],
    files: Sequence[Path] = (),
    pyproject: Path | None = None,
    notebook: Path | None = None,
    environment: Path | None = None,
    pylock: Path | None = None,
) -> Wishes:
    """All requirements, with notes on those left out. Raises UsageError and CellError."""
    found = from_arguments(arguments)
    single = (
        (from_pyproject, pyproject),
        (from_pylock, pylock),
        (from_notebook, notebook),
        (from_conda, environment),
    )
    others = [*map(from_file, files), *(read(path) for read, path in single if path is not None)]
    for other in others:
        found.take_over(other)
    if not found.wishes:
        raise UsageError(
            "\n".join(("no framework is named", *(f"  {note}" for note in found.notes))),
            hint="a repository is cloned first, and its folder is read: `rtbuild resolve -r FOLDER`"
            if any("://" in text for text in arguments)
            else "as in `rtbuild resolve torch`; or -r, --pyproject, --from-pylock, --notebook, --conda",
        )
    return found.merged()


@dataclass(frozen=True, kw_only=True)
class MatrixWish:
    """The contents of a first matrix."""

    words: tuple[str, ...]
    """Requirements: ``torch``, ``tensorflow==2.15.*``."""
    python: str | None = None
    gpu: str | None = None
    driver: str | None = None
    platform: str | None = None
    """None for that of the card, else of this machine if the card is its own."""
    jupyter: bool = False
    offline: bool = False
    name: str | None = None
    rootfs: bool = False
    """A base that needs no registry, if there is one."""

    @property
    def title(self) -> str:
        """The matrix's name: the one given, or that of the first framework."""
        if self.name:
            return self.name.lower()
        found = re.match(r"[A-Za-z0-9][A-Za-z0-9._-]*", self.words[0])
        if found is None:
            raise UsageError(f"'{self.words[0]}' is no requirement", hint="as in `rtbuild init torch`")
        return found[0].lower()


def matrix_text(wish: MatrixWish, lacks: Callable[[Base], str | None] | None = None) -> str:
    """One cell, the best proposal of ``rtbuild resolve``. Raises as :func:`wishes` and :func:`propose`.

    ``lacks`` says why this machine cannot have a base: the first cell whose base it can have is then taken,
    and the others are told.
    """
    found = _found(wish, limit=1)
    taken = found.proposals[0]
    text, refused = found.text, lacks(taken.cell.base) if lacks is not None else None
    if lacks is not None and refused is not None:
        others = _found(wish, limit=_OTHER_BASES).proposals
        other = next((one for one in others if lacks(one.cell.base) is None), None)
        said = f"{taken.cell.base} cannot be had here: {refused}"
        if other is None:
            say(f"! {said}; nor can another base")
        else:
            taken, text = other, to_matrix_yaml([other], wish.title)
            cell = other.cell
            say(f"! {said}; {', '.join(cell.frameworks)} on Python {cell.python} and {cell.base} instead")
    defaults = "\ndefaults: {profile: colab}\n" if wish.jupyter else ""
    return _download(taken) + text.replace("\ninclude:\n", f"{defaults}\ninclude:\n", 1)


def _download(taken: Proposal) -> str:
    """A comment on how much is downloaded for a cell."""
    if taken.unasked is not None:
        return f"# how much is to be downloaded is not known: {taken.unasked}\n"
    size = "of a size that is not known" if taken.size is None else human_bytes(taken.size)
    base = "the base" if taken.cell.base.kind == "registry" else "Debian's packages"
    return f"# to be downloaded: {taken.wheels} wheels, {size}; and {base}\n"


def _found(wish: MatrixWish, *, limit: int) -> ProposedMatrix:
    try:
        with noted(Terminal.of(), wish.title) as note:
            return propose(
                wishes(wish.words),
                asked_machine([wish.gpu] if wish.gpu else [], opt.driver(wish.driver), wish.platform),
                python=wish.python,
                limit=limit,
                name=wish.title,
                index=None if wish.offline else Index.from_user(once=True),
                rootfs=wish.rootfs,
                note=note,
            )
    except NothingPossibleError as none:
        if none.hint is not None and none.hint.startswith("--nearest"):  # an option of resolve alone
            given = {"--python": wish.python, "--gpu": wish.gpu, "--driver": wish.driver}
            options = [word for name, value in given.items() if value for word in (name, value)]
            words = ["rtbuild", "resolve", *wish.words, *options, "--nearest", "-o", f"{wish.title}.yaml"]
            none.hint = f"`{shlex.join(words)}` takes these, and writes the matrix"
        raise


def write_matrix(text: str, path: Path) -> None:
    """Write it with the line by which editors find its schema. UsageError if it cannot be written."""
    name = where = "matrix.schema.json"
    if (path.parent.parent / "docs" / name).is_file():
        where = f"../docs/{name}"
    with opt.writing(path):
        if where == name:
            write_whole(path.parent / name, (resources.schemas() / name).read_bytes())
        write_whole(path, f"# yaml-language-server: $schema={where}\n{text}".encode())
    say(f"{path} is written")
