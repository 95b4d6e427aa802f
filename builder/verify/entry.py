"""A sealed report as a file: its subject, its time, the probe's document, and a checksum over all of it."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from builder import __version__
from builder.digests import digest_of
from builder.documents import MalformedError, parse_moment, parse_object, shown
from builder.errors import CellError
from builder.verify.document import ProbeDocument, parse

_SCHEMA = 2

AGAINST_IMAGE = frozenset({"broken", "unsupported-gpu"})
"""Verdicts against an image."""
NO_WORD = frozenset({"unverified", "host", "busy"})
"""Verdicts about the machine alone; they do not replace one against the image."""


@dataclass(frozen=True, kw_only=True)
class ReportKey:
    """The subject of a report. Two reports with the same key should agree."""

    digest: str
    """:attr:`builder.model.Image.manifest`: the digest in a registry, or the engine's image id."""
    content: str
    """:attr:`builder.model.Image.content`"""
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
