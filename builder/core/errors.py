"""Every error that a user can meet, each class with its exit code.

A message says what happened and why it is likely; ``hint`` says what to do next. Whatever is not a
:class:`RtbuildError` is a bug: in the work on one item it fails that item (:mod:`builder.core.items`), and
elsewhere it ends with exit code 70 at the boundary in :mod:`builder.cli`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from builder.core.model import Span


class RtbuildError(Exception):
    """Base of every expected error."""

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\nhint: {self.hint}"


class CellError(RtbuildError):
    """One cell failed: it did not lock, did not build, or a check in it failed. Other cells go on."""

    exit_code = 1


class NothingPossibleError(CellError):
    """No cell meets a demand. Carries the reasons, and what is possible in place of it."""

    answer: ClassVar[str] = "impossible"

    def __init__(
        self,
        message: str,
        *,
        reasons: Sequence[str] = (),
        instead: Sequence[Mapping[str, Any]] = (),
        ways: Sequence[str] = (),
        hint: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.reasons = tuple(reasons)
        self.instead = tuple(instead)
        """For each way out, as JSON has it, what it is in place of, and the cell."""
        self.ways = tuple(ways)
        """The lines of the message that tell these ways, under one line that leads to them."""


class NotKnownError(NothingPossibleError):
    """No cell is known to be possible, and none is ruled out: a value that decides was read nowhere."""

    exit_code = 7
    answer = "unknown"


class FaultError(CellError):
    """A fault of rtbuild in the work on one item. The item failed, and is neither good nor bad for it."""


class UsageError(RtbuildError):
    """The command line asks for something that does not exist or cannot be combined."""

    exit_code = 2


@dataclass(frozen=True, kw_only=True)
class Diagnostic:
    """One error in a matrix file, with its place."""

    message: str
    span: Span
    hint: str | None = None

    def render(self, source_line: str | None) -> str:
        """``file:line:col: error: …``, then the line, a caret under the column, and the hint."""
        text = f"{self.span}: error: {self.message}"
        if source_line is not None:
            number = f"{self.span.line} | "
            pad = " " * (len(number) - 2)
            caret = " " * (self.span.column - 1) + "^" * max(1, self.span.width)
            text += f"\n  {number}{source_line}\n  {pad}| {caret}"
        if self.hint is not None:
            text += f"\n  hint: {self.hint}"
        return text


class MatrixError(RtbuildError):
    """A matrix file is wrong. Carries all of the file's errors, in the order of their lines."""

    exit_code = 2

    def __init__(self, path: Path | str, diagnostics: Sequence[Diagnostic], source: str = "") -> None:
        self.path = str(path)
        self.diagnostics = tuple(sorted(diagnostics, key=lambda d: (d.span.line, d.span.column)))
        lines = dict(enumerate(source.splitlines(), 1))
        count = len(self.diagnostics)
        body = "\n".join(d.render(lines.get(d.span.line)) for d in self.diagnostics)
        super().__init__(f"{body}\n{self.path}: {count} error{'s' if count != 1 else ''}")


class SeveralMatricesError(MatrixError):
    """Several matrix files are wrong: the errors of all of them, file by file."""

    def __init__(self, errors: Sequence[MatrixError]) -> None:
        RtbuildError.__init__(self, "\n\n".join(error.message for error in errors))
        self.path = ", ".join(error.path for error in errors)
        self.diagnostics = tuple(diagnostic for error in errors for diagnostic in error.diagnostics)


class NothingSelectedError(RtbuildError):
    """The selectors leave no cell."""

    exit_code = 3


class StaleLockError(RtbuildError):
    """A cell has no entry in the lock that fits it, and ``--locked`` or ``lock --check`` asks for one."""

    exit_code = 4


class MissingToolError(RtbuildError):
    """This machine lacks something: an engine, buildx, mmdebstrap, disk, a GPU."""

    exit_code = 5


class PublishRefusedError(RtbuildError):
    """The gate is shut: a digest has no report of its own that says ``works``."""

    exit_code = 6


class EvidenceError(CellError):
    """Evidence does not hold: it is about something else, contradicts the image, or is no evidence at all."""


class CancelledError(CellError):
    """A cell was stopped on request, before it ended."""


class RegistryError(CellError):
    """A container registry did not give what was asked: unreachable, refused, or the tag is gone."""


class ImageMissingError(RegistryError):
    """A registry answered, in its own protocol, that it has no such image."""


class RegistrySilentError(RegistryError):
    """A registry gave no answer: unreachable, too many requests, a problem of its own."""

    exit_code = 5


class RegistryLoginError(RegistryError):
    """A registry shows this login, or none, not what was asked for."""

    exit_code = 5


class PackageIndexError(CellError):
    """A package index did not give what was asked, or gave a file whose hash differs."""


class IndexSilentError(PackageIndexError):
    """A package index or an archive gave no answer: unreachable, too many requests, a problem of its own."""

    exit_code = 5


class NoSolutionError(PackageIndexError):
    """The index answered, and no set of its wheels satisfies the requirements."""


class CommandError(CellError):
    """A tool that rtbuild runs failed. Carries the exact command, its exit status and its last lines."""

    def __init__(
        self,
        message: str,
        *,
        command: Sequence[str],
        returncode: int,
        tail: Sequence[str] = (),
        log: Path | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.command = tuple(command)
        self.returncode = returncode
        self.tail = tuple(tail)
        self.log = log


class SchedulerError(CommandError):
    """A scheduler refused a task, or did not answer. It says nothing about an image."""

    exit_code = 5
