"""Reports on disk, found again by what they are about."""

from __future__ import annotations

import json
import logging
import os
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from builder.errors import CellError
from builder.model import digest_of
from builder.verify.document import ProbeDocument, parse

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_SCHEMA = 1
_log = logging.getLogger(__name__)

REUSABLE = frozenset({"works", "unverified"})
"""A failure is tried again: that is what people expect of a second run, and of another driver or toolkit."""


@dataclass(frozen=True, kw_only=True)
class ReportKey:
    """What a report is about. Two reports with the same key say the same, or something is wrong."""

    content: str
    """:attr:`builder.model.Image.content`"""
    probe: str
    """sha256 of the probe's file in the image, 64 hex digits."""
    gpus: tuple[tuple[str, str], ...]
    """Names and compute capabilities, sorted; empty where no GPU took part."""
    driver: str | None

    def file_name(self) -> str:
        content, rest = self.content.removeprefix("sha256:"), digest_of(asdict(self)).removeprefix("sha256:")
        return f"{content[:16]}-{rest[:16]}.json"


def key_of(content: str, document: ProbeDocument) -> ReportKey | None:
    """The key of a report by its own account; None where a GPU in it has no compute capability."""
    gpus = sorted((gpu.name, gpu.compute_capability or "") for gpu in document.gpus)
    if not all(capability for _, capability in gpus):
        return None
    return ReportKey(
        content=content,
        probe=document.probe.sha256.removeprefix("sha256:"),
        gpus=tuple(gpus),
        driver=document.driver.version if document.driver and gpus else None,
    )


class ReportStore:
    """A folder of reports. A file that is damaged or edited is as good as absent, and ``warn`` says so."""

    def __init__(self, folder: Path, *, warn: Callable[[str], None] = _log.warning) -> None:
        self.folder = folder
        self._warn = warn

    def load(self, key: ReportKey) -> Mapping[str, Any] | None:
        """A document that may stand for a new run of the probe: same key, whole, and no test double's."""
        path = self.folder / key.file_name()
        try:
            entry = json.loads(path.read_text("utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            self._warn(f"{path} cannot be read ({error}): the image is verified again")
            return None
        fault = _fault(entry, key)
        if fault:
            self._warn(f"{path} {fault}: the image is verified again")
            return None
        document: Mapping[str, Any] = entry["document"]
        return document if document["verdict"] in REUSABLE and not document["test_double"] else None

    def save(self, key: ReportKey, document: Mapping[str, Any]) -> Path | None:
        """Write beside and rename, so that no reader ever sees half; None, and a warning, where it cannot."""
        entry = {"schema": _SCHEMA, "key": asdict(key), "document": document}
        text = json.dumps({**entry, "seal": digest_of(entry)}, indent=1, ensure_ascii=False) + "\n"
        path = self.folder / key.file_name()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            descriptor, name = tempfile.mkstemp(dir=self.folder, prefix=".", suffix=".part")
            part = Path(name)
            try:
                with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                    file.write(text)
                part.chmod(0o644)
                part.replace(path)
            except BaseException:
                part.unlink(missing_ok=True)
                raise
        except OSError as error:
            self._warn(
                f"the report cannot be kept in {self.folder} ({error.strerror}): it will not be reused"
            )
            return None
        return path


def _fault(entry: Any, key: ReportKey) -> str | None:
    """What is wrong with an entry, or None."""
    if not isinstance(entry, dict) or entry.get("schema") != _SCHEMA:
        return "is no report of this version"
    body = {name: value for name, value in entry.items() if name != "seal"}
    if entry.get("seal") != digest_of(body):
        return "was changed after it was written"
    if entry.get("key") != json.loads(json.dumps(asdict(key))):
        return "is about something else"
    try:
        document = parse(json.dumps(entry.get("document")))
    except CellError as error:
        return f"holds no report ({error.message})"
    return None if key_of(key.content, document) == key else "says something else than its name"
