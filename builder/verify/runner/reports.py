"""Reports: the probe's JSON, as far as rtbuild relies on it, and its differences from the versions asked of
an image; sealed as files: subject, time, the document, and a checksum, found again by their key.

Everything named of the JSON must be there; more may be there, too.
"""

import contextlib
import json
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import KW_ONLY, asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from packaging.utils import canonicalize_name
from packaging.version import Version
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from builder import __version__
from builder.core.digests import digest_of
from builder.core.documents import MalformedError, parse_moment, parse_object, read_file, shown
from builder.core.errors import CellError
from builder.core.files import write_whole
from builder.core.items import item
from builder.core.model import Difference, Pinned
from builder.image.recipe import expectation, first_parts
from builder.plan.facts.tables import load

EXIT_CODES = {"works": 0, "unverified": 10, "broken": 20, "unsupported-gpu": 21, "host": 22, "busy": 23}
"""How ``cudnn-verify`` ends for each verdict; 30 is the probe's own failure."""
CONVOLUTIONS = frozenset({"C07", "F05"})
"""The checks that convolve, with cuDNN alone and with each framework: docs/probe.md."""
_Verdict = Literal["works", "unverified", "broken", "unsupported-gpu", "host", "busy"]
_Sha256 = Annotated[str, Field(pattern=r"^(sha256:)?[0-9a-f]{64}$")]


class _Part(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True, frozen=True)


class ProbeIdentity(_Part):
    """The identity of a probe."""

    version: str
    sha256: _Sha256


class Check(_Part):
    """One thing that was looked at."""

    id: str
    stage: str
    outcome: Literal["passed", "failed", "not_run"]
    summary: str
    evidence: Any
    note: str | None = None


class GpuFound(_Part):
    """A GPU as the driver names it."""

    name: str
    compute_capability: str | None


class Driver(_Part):
    """NVIDIA's driver: the kernel module's version, and the CUDA version that ``libcuda`` offers."""

    version: str | None
    api: Any = None


class Library(_Part):
    """A library that was loaded, by the file that holds it."""

    name: str
    path: str
    version: str | None = None
    mapped_by: Any = None


class Framework(_Part):
    """A framework, the versions that it was compiled for, and those that it loaded."""

    name: str
    version: str | None
    compiled: dict[str, Any] | None = None
    loaded: dict[str, Any] | None = None


class SuiteFound(_Part):
    """The result of one suite in one framework, or why it did not run."""

    suite: str
    framework: str | None
    """``cudnn`` for cuDNN's own convolutions; None: no framework of the image has the suite."""
    outcome: Literal["passed", "failed", "not_run"]
    suggested: bool = False
    """Whether nobody named it, so that no verdict turns on it."""
    reason: str | None = None
    ran: int = 0
    """How many results were compared."""
    worst: Any = None
    """The result that comes closest to its bound: what it is, its error, the bound and its source."""
    seconds: float | None = None


class DifferenceFound(_Part):
    """Something that ``expect.json`` asks for and the probe did not find."""

    what: str
    asked: Any
    found: Any


class ProbeDocument(_Part):
    """The document that ``cudnn-verify --json`` prints."""

    schema_version: Literal[1] = Field(alias="schema")
    probe: ProbeIdentity
    verdict: _Verdict
    cause: str | None
    side: str | None
    summary: str
    remedy: Any
    proof: Any
    consequences: list[Any]
    checks: list[Check]
    python: str | dict[str, Any]
    gpus: list[GpuFound]
    driver: Driver | None
    libraries: list[Library]
    frameworks: list[Framework]
    differences: list[DifferenceFound]
    suites: list[SuiteFound] = []
    """Empty in a report from before there were suites, which counts as one of ``conv``."""
    test_double: bool
    seconds: float

    def python_version(self) -> str | None:
        """``3.9.2``, however the probe wraps it."""
        found = self.python if isinstance(self.python, str) else self.python.get("version")
        match = re.search(r"\d+(\.\d+)+", str(found))
        return match[0] if match else None

    def suites_asked(self) -> frozenset[str]:
        """The suites that were asked for, run or not; one that was only suggested counts if it passed."""
        loose = {row.suite for row in self.suites if row.suggested and row.outcome != "passed"}
        return frozenset({row.suite for row in self.suites} - loose)

    def suites_that_ran(self) -> frozenset[str]:
        """The suites that passed, with numbers, in every framework of the image that has them.

        A row that did not run or compared nothing takes its suite away, and each needs a passed check of its
        own. ``conv`` is told by the checks of convolutions, which older reports have, too.
        """
        ran = set()
        for suite in {row.suite for row in self.suites} - {"conv"}:
            rows = [row for row in self.suites if row.suite == suite]
            checked = sum(check.stage == suite and check.outcome == "passed" for check in self.checks)
            if checked >= len(rows) and all(row.outcome == "passed" and row.ran > 0 for row in rows):
                ran.add(suite)
        convolved = [row for row in self.suites if row.suite == "conv"]
        if any(row.id in CONVOLUTIONS and row.outcome == "passed" for row in self.checks):
            told = any(row.outcome == "passed" and row.ran > 0 for row in convolved) or not convolved
            if told and not any(row.outcome == "failed" for row in convolved):
                ran.add("conv")
        return frozenset(ran)

    def loaded(self, what: Literal["cuda", "cudnn"]) -> list[str]:
        """Versions: as each framework says, else as the mapped libraries do."""
        soname = {"cuda": "libcudart.so", "cudnn": "libcudnn.so"}[what]
        said = [str(row.loaded[what]) for row in self.frameworks if row.loaded and row.loaded.get(what)]
        return said or [row.version for row in self.libraries if row.version and row.name.startswith(soname)]


def printed_report(text: str) -> str:
    """The report in what a container printed: a ``sitecustomize`` of the image may print, too.

    It is the last text from a line ``{`` to the next line ``}``; all of the text if there is none. Read once,
    since a hostile image may print millions of such lines.
    """
    found, start = text, None
    for brace in re.finditer(r"(?m)^[{}]$", text):
        if start is None and brace[0] == "{":
            start = brace.start()
        elif start is not None and brace[0] == "}":
            found, start = text[start : brace.end()], None
    return found


def parse(text: str | bytes) -> ProbeDocument:
    """Read a report. Raises CellError for anything that is no report of this schema."""
    if not text.strip():
        raise CellError("cudnn-verify printed no report")
    try:
        return ProbeDocument.model_validate_json(text)
    except ValidationError as error:
        faults = [
            f"{'.'.join(map(str, fault['loc'])) or 'the document'}: {fault['msg']}"
            for fault in error.errors(include_url=False, include_input=False)
        ]
        more = f", and {len(faults) - 3} more" if len(faults) > 3 else ""
        raise CellError(f"cudnn-verify printed no valid report: {'; '.join(faults[:3])}{more}") from error


@dataclass(frozen=True, kw_only=True)
class Expectation:
    """The versions asked of an image. None: no version was asked for, or it is not known."""

    python: str | None = None
    frameworks: tuple[tuple[str, str], ...] = ()
    cuda: str | None = None
    """``11.8``"""
    cudnn: str | None = None
    """``8.6.0``"""

    @classmethod
    def of(cls, pinned: Pinned) -> Self:
        """From a lock: the content of its image's ``expect.json``."""
        document = json.loads(expectation(pinned))
        frameworks, cuda = tuple(sorted(document["frameworks"].items())), document["cuda"]["version"]
        return cls(python=document["python"], frameworks=frameworks, cuda=cuda, cudnn=document["cudnn"])


def compare(asked: Expectation, found: ProbeDocument) -> tuple[Difference, ...]:
    """All differences, including those that the probe found, each subject once.

    An unmeasured value is a difference only if the probe says ``works``: a machine without a GPU loads less,
    and the verdict says that already.
    """
    rows = [
        Difference(what=row.what, asked=str(row.asked), found=str(row.found)) for row in found.differences
    ]
    rows += _differences(asked, found)
    first = {row.what.casefold(): row for row in reversed(rows)}
    return tuple(row for row in rows if first[row.what.casefold()] is row)


def _differences(asked: Expectation, found: ProbeDocument) -> Iterator[Difference]:
    measured = found.verdict == "works"
    # With any other verdict an import may have failed, and the verdict says so.
    sound = measured or found.verdict == "unverified"
    python = found.python_version()
    if asked.python and python and first_parts(python, asked.python.count(".") + 1) != asked.python:
        yield Difference(what="python", asked=asked.python, found=python)
    installed = {family(row.name): row.version for row in found.frameworks}
    probed = {
        row.name for row in load().registry if row.distribution is not None
    }  # the probe reports them whenever they are installed
    for name, version in asked.frameworks:
        actual = installed.get(family(name))
        if actual is not None and not same_version(version, actual):
            yield Difference(what=f"framework {name}", asked=version, found=actual)
        elif sound and family(name) in probed and family(name) not in installed:
            yield Difference(what=f"framework {name}", asked=version, found="nothing")
    cuda = {first_parts(version, 2) or version for version in found.loaded("cuda")}
    cudnn = {first_parts(version, 3) or version for version in found.loaded("cudnn")}
    for what, wanted, versions in (("cuda", asked.cuda, cuda), ("cudnn", asked.cudnn, cudnn)):
        wrong = ", ".join(sorted(versions - {wanted}))
        if wanted is not None and (wrong or (what == "cudnn" and measured and not versions)):
            yield Difference(what=what, asked=wanted, found=wrong or "nothing")


def family(name: str) -> str:
    """The framework behind a distribution's name: ``tensorflow`` of ``tensorflow-gpu``."""
    plain = _without_flavour(canonicalize_name(name))
    for row in load().registry:
        if plain in {row.name, *row.aliases, _without_flavour(row.distribution or row.name)}:
            return row.name
    return plain


def _without_flavour(name: str) -> str:
    return re.sub(r"-(gpu|cpu|cuda\d+x?|cu\d+)$", "", name)


def same_version(asked: str, found: str) -> bool:
    """Equal as versions; a local part such as ``+cu124`` counts only if it was asked for."""
    try:
        wanted, actual = Version(asked), Version(found)
    except ValueError:
        return asked == found
    return wanted == (actual if wanted.local else Version(actual.public))


# -- sealed reports

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
    """The time at which the probe ended, by the clock of the machine that ran it; UTC."""
    rtbuild: str
    document: Mapping[str, Any]
    """The probe's own JSON, unchanged."""
    text: str
    """The sealed bytes as they were read."""
    signature: str = ""
    """Cosign's bundle that stands beside them, checked by nobody yet."""

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
