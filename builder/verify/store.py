"""Reports on disk, found again by their key."""

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from builder.documents import MalformedError, read_file
from builder.errors import CellError
from builder.files import write_whole
from builder.verify.entry import AGAINST_IMAGE, NO_WORD, Damaged, ReportKey, SealedReport, read_entry, seal

_log = logging.getLogger(__name__)

REUSABLE = frozenset({"works", "unverified"})
"""A failed image is verified again, because its driver or toolkit may have changed."""
_SIGNATURE = ".sig"
_LARGEST_SIGNATURE = 64 << 10


@dataclass
class ReportStore:
    """A folder of reports. A damaged or edited file counts as absent, and ``warn`` is told."""

    folder: Path
    _: KW_ONLY
    warn: Callable[[str], None] = _log.warning
    sign: Callable[[bytes], str] | None = None
    """Makes the signature that is kept beside each report, in a file of the same name with ``.sig``."""
    signed: Callable[[SealedReport], bool] = lambda _report: True
    """A report that it does not accept is not reused."""

    def load(self, key: ReportKey) -> Mapping[str, Any] | None:
        """A kept document that replaces a new run of the probe: same key, undamaged, no test double."""
        path = self.folder / key.file_name()
        entry = _read(path)
        if entry is None:
            return None
        if isinstance(entry, Damaged):
            self.warn(f"{entry.why}: the image is verified again")
            return None
        if entry.key != key:
            self.warn(f"{path} is about another image, GPU or driver: the image is verified again")
            return None
        if not self.signed(entry):
            return None
        return entry.document if entry.verdict in REUSABLE and not entry.test_double else None

    def entries(self) -> Iterator[SealedReport | Damaged]:
        """All reports in the folder, damaged files included, by name."""
        try:
            paths = sorted(path for path in self.folder.iterdir() if path.suffix == ".json")
        except FileNotFoundError:
            return
        except OSError as error:
            yield Damaged(where=str(self.folder), why=f"{self.folder} cannot be read ({error})", name="")
            return
        yield from filter(None, map(_read, paths))

    def save(
        self,
        key: ReportKey,
        document: Mapping[str, Any],
        *,
        cell: str = "",
        matrix: str = "",
        verified: datetime | None = None,
    ) -> Path | None:
        """Write the report and return its path; None, with a warning, if it cannot be written.

        A report that says nothing about the image does not replace one against it. Raises CommandError if it
        cannot be signed.
        """
        text = seal(key, document, cell=cell, matrix=matrix, verified=verified)
        path = self.folder / key.file_name()
        if document["verdict"] in NO_WORD:
            kept = _read(path)
            if isinstance(kept, SealedReport) and kept.key == key and kept.verdict in AGAINST_IMAGE:
                return path
        signature = self.sign(text.encode()) if self.sign is not None else None
        try:
            beside = path.with_suffix(_SIGNATURE)
            beside.unlink(missing_ok=True)  # of the report that is replaced
            write_whole(path, text.encode())
            if signature is not None:
                write_whole(beside, signature.encode())
        except OSError as error:
            self.warn(f"the report cannot be kept in {self.folder} ({error.strerror}): it will not be reused")
            return None
        return path


def _read(path: Path) -> SealedReport | Damaged | None:
    """The report in a file, with the signature beside it; None if there is no file."""
    try:
        entry = read_entry(read_file(path), str(path))
    except FileNotFoundError:
        return None
    except (CellError, OSError, MalformedError) as error:
        why = error.message if isinstance(error, CellError) else f"{path} cannot be read ({error})"
        return Damaged(where=str(path), why=why, name=path.name)
    with contextlib.suppress(OSError, ValueError):  # an unreadable signature counts as none
        signature = read_file(path.with_suffix(_SIGNATURE), most=_LARGEST_SIGNATURE).decode()
        return replace(entry, signature=signature)
    return entry
