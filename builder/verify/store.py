"""Reports on disk, found again by what they are about."""

from __future__ import annotations

import contextlib
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from builder.documents import MalformedError, read_file
from builder.errors import CellError
from builder.files import write_whole
from builder.verify.entry import AGAINST_IMAGE, NO_WORD, Damaged, ReportKey, SealedReport, read_entry, seal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from datetime import datetime
    from pathlib import Path

_log = logging.getLogger(__name__)

REUSABLE = frozenset({"works", "unverified"})
"""A failure is tried again: that is what people expect of a second run, and of another driver or toolkit."""
_SIGNATURE = ".sig"
_LARGEST_SIGNATURE = 64 << 10


class ReportStore:
    """A folder of reports. A file that is damaged or edited is as good as absent, and ``warn`` says so.

    ``sign`` makes the signature that is kept beside each report, in a file of the same name with ``.sig``; a
    report without one that ``signed`` accepts is not reused then.
    """

    def __init__(
        self,
        folder: Path,
        *,
        warn: Callable[[str], None] = _log.warning,
        sign: Callable[[bytes], str] | None = None,
        signed: Callable[[SealedReport], bool] = lambda _report: True,
    ) -> None:
        self.folder = folder
        self._warn = warn
        self._sign = sign
        self._signed = signed

    def load(self, key: ReportKey) -> Mapping[str, Any] | None:
        """A document that may stand for a new run of the probe: same key, whole, and no test double's."""
        path = self.folder / key.file_name()
        try:
            entry = _read(path)
        except FileNotFoundError:
            return None
        except (OSError, MalformedError) as error:
            self._warn(f"{path} cannot be read ({error}): the image is verified again")
            return None
        except CellError as error:
            self._warn(f"{error.message}: the image is verified again")
            return None
        if entry.key != key:
            self._warn(f"{path} is about something else: the image is verified again")
            return None
        if not self._signed(entry):
            return None
        return entry.document if entry.verdict in REUSABLE and not entry.test_double else None

    def entries(self) -> Iterator[SealedReport | Damaged]:
        """Every report in the folder, and every file that should be one, by name."""
        try:
            paths = sorted(path for path in self.folder.iterdir() if path.suffix == ".json")
        except FileNotFoundError:
            return
        except OSError as error:
            yield Damaged(where=str(self.folder), why=f"{self.folder} cannot be read ({error})", name="")
            return
        for path in paths:
            try:
                yield _read(path)
            except (CellError, OSError, MalformedError) as error:
                why = error.message if isinstance(error, CellError) else f"{path} cannot be read ({error})"
                yield Damaged(where=str(path), why=why, name=path.name)

    def _speaks_against(self, path: Path, key: ReportKey) -> bool:
        try:
            entry = _read(path)
        except (OSError, CellError, MalformedError):  # damaged is as good as absent
            return False
        return entry.key == key and entry.verdict in AGAINST_IMAGE

    def save(
        self,
        key: ReportKey,
        document: Mapping[str, Any],
        *,
        cell: str = "",
        matrix: str = "",
        verified: datetime | None = None,
    ) -> Path | None:
        """Write beside and rename, so that no reader ever sees half; None, and a warning, where it cannot.

        A report that says nothing about the image does not replace one that speaks against it. Raises
        CommandError if it is to be signed, and is not.
        """
        text = seal(key, document, cell=cell, matrix=matrix, verified=verified)
        path = self.folder / key.file_name()
        if document["verdict"] in NO_WORD and self._speaks_against(path, key):
            return path
        signature = self._sign(text.encode()) if self._sign is not None else None
        try:
            beside = path.with_suffix(_SIGNATURE)
            beside.unlink(missing_ok=True)  # of the report that is replaced
            write_whole(path, text.encode())
            if signature is not None:
                write_whole(beside, signature.encode())
        except OSError as error:
            self._warn(
                f"the report cannot be kept in {self.folder} ({error.strerror}): it will not be reused"
            )
            return None
        return path


def _read(path: Path) -> SealedReport:
    """A report, with what stands beside it. Raises OSError, MalformedError and CellError."""
    entry = read_entry(read_file(path), str(path))
    with contextlib.suppress(OSError, ValueError):  # a signature that cannot be read is none
        signature = read_file(path.with_suffix(_SIGNATURE), most=_LARGEST_SIGNATURE).decode()
        return replace(entry, signature=signature)
    return entry
