"""Sealed reports as files: subject, time, the probe's document, and a checksum; found again by their key."""

import contextlib
import json
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import KW_ONLY, asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from builder import __version__
from builder.core.digests import digest_of
from builder.core.documents import MalformedError, parse_moment, parse_object, read_file, shown
from builder.core.errors import CellError
from builder.core.files import write_whole
from builder.core.items import item
from builder.verify.runner.document import ProbeDocument, parse

_log = logging.getLogger(__name__)
_SCHEMA = 2
_SIGNATURE = ".sig"

AGAINST_IMAGE = frozenset({"broken", "unsupported-gpu"})
"""Verdicts against an image."""
REUSABLE = frozenset({"works", "unverified"})
"""A failed image is verified again, because its driver or toolkit may have changed."""
NO_WORD = frozenset({"unverified", "host", "busy"})
"""Verdicts about the machine alone; they do not replace one against the image."""


@dataclass(frozen=True, kw_only=True)
class ReportKey:
    """The subject of a report. Two reports with the same key should agree."""

    digest: str
    """:attr:`builder.core.model.Image.manifest`: the digest in a registry, or the engine's image id."""
    content: str
    """:attr:`builder.core.model.Image.content`"""
    probe: str
    """sha256 of the probe's file in the image, 64 hex digits."""
    gpus: tuple[tuple[str, str], ...]
    """Names and compute capabilities, sorted; empty without a GPU."""
    driver: str | None

    def file_name(self) -> str:
        content, rest = self.content.removeprefix("sha256:"), digest_of(asdict(self)).removeprefix("sha256:")
        return f"{content[:16]}-{rest[:16]}.json"


@dataclass(frozen=True, kw_only=True)
class SealedReport:
    """A report whose seal holds."""

    where: str
    """The file or reference that it came from, for messages."""
    key: ReportKey
    cell: str
    matrix: str
    verified: datetime
    """When the probe ended, by the clock of the machine that ran it; UTC."""
    rtbuild: str
    document: Mapping[str, Any]
    """The probe's own JSON, unchanged."""
    text: str
    """The sealed bytes as they were read."""
    signature: str = ""
    """What stands beside them, by nobody checked yet: cosign's bundle."""

    @property
    def verdict(self) -> str:
        return str(self.document["verdict"])

    @property
    def test_double(self) -> bool:
        return bool(self.document["test_double"])


@dataclass(frozen=True, kw_only=True)
class Damaged:
    """A file that should be a report and cannot be trusted."""

    where: str
    why: str
    name: str
    """The file's name; it begins with the first digits of the image's content digest."""


def key_of(content: str, document: ProbeDocument, digest: str) -> ReportKey | None:
    """The key by the report's own content; None if a GPU in it has no compute capability."""
    gpus = sorted((gpu.name, gpu.compute_capability or "") for gpu in document.gpus)
    if not all(capability for _, capability in gpus):
        return None
    return ReportKey(
        digest=digest,
        content=content,
        probe=document.probe.sha256.removeprefix("sha256:"),
        gpus=tuple(gpus),
        driver=document.driver.version if document.driver and gpus else None,
    )


def seal(
    key: ReportKey,
    document: Mapping[str, Any],
    *,
    cell: str = "",
    matrix: str = "",
    verified: datetime | None = None,
) -> str:
    """The text of an entry. ``verified`` is now by default; a fraction of a second is left out.

    The seal is a checksum over the rest: it reveals accidental and careless changes. An attacker can compute
    it again; only a signature prevents that.
    """
    entry = {
        "schema": _SCHEMA,
        "key": asdict(key),
        "about": {"cell": cell, "matrix": matrix},
        "verified": (verified or datetime.now(UTC)).astimezone(UTC).isoformat(timespec="seconds"),
        "rtbuild": __version__,
        "document": document,
    }
    return json.dumps({**entry, "seal": digest_of(entry)}, indent=1, ensure_ascii=False) + "\n"


def read_entry(text: str | bytes, where: str) -> SealedReport:
    """An entry from its text. Raises CellError if it is damaged, edited, or contradicts itself."""
    try:
        entry = parse_object(text, strict=True)
    except MalformedError as error:
        raise CellError(f"{where} cannot be read ({error})") from error
    if entry.get("schema") != _SCHEMA:
        raise CellError(f"{where} is no report of this version")
    body = {name: value for name, value in entry.items() if name != "seal"}
    if entry.get("seal") != digest_of(body):
        raise CellError(f"{where} was changed after it was written")
    try:
        document = parse(json.dumps(entry["document"]))
        stated = entry["key"]
        verified = parse_moment(entry["verified"])
        content, digest = stated["content"], stated["digest"]
        if not (isinstance(content, str) and isinstance(digest, str)):
            raise TypeError(content, digest)  # noqa: TRY301 - told below
        key = key_of(content, document, digest)
        about = entry["about"]
        cell, matrix, rtbuild = str(about["cell"]), str(about["matrix"]), str(entry["rtbuild"])
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise CellError(f"{where} lacks what a report has ({shown(repr(error))})") from error
    except CellError as error:
        raise CellError(f"{where} holds no report ({error.message})") from error
    if key is None or stated != json.loads(json.dumps(asdict(key))):
        raise CellError(f"{where} says something else than its document")
    return SealedReport(
        where=where,
        key=key,
        cell=cell,
        matrix=matrix,
        verified=verified,
        rtbuild=rtbuild,
        document=entry["document"],
        text=text if isinstance(text, str) else text.decode(),
    )


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
        if isinstance(entry, Damaged):
            self.warn(f"{entry.why}: the image is verified again")
        elif entry is not None and entry.key != key:
            self.warn(f"{path} is about another image, GPU or driver: the image is verified again")
        elif entry is not None and entry.verdict in REUSABLE and not entry.test_double and self.signed(entry):
            return entry.document
        return None

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

    def save(self, key: ReportKey, document: Mapping[str, Any], **about: Any) -> Path | None:
        """Write the report and return its path; None, with a warning, if it cannot be written.

        ``about`` is as of :func:`seal`. A report that says nothing about the image does not replace one
        against it. Raises CommandError if it cannot be signed.
        """
        text = seal(key, document, **about)
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
        with item(str(path)):
            try:
                content = read_file(path)
            except FileNotFoundError:
                return None
            except (OSError, MalformedError) as error:
                raise CellError(f"{path} cannot be read ({error})") from error
            entry = read_entry(content, str(path))
    except CellError as error:
        return Damaged(where=str(path), why=error.message, name=path.name)
    with contextlib.suppress(OSError, ValueError):  # an unreadable signature counts as none
        signature = read_file(path.with_suffix(_SIGNATURE), most=64 << 10).decode()
        return replace(entry, signature=signature)
    return entry
