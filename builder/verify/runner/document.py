"""The probe's JSON, as far as rtbuild relies on it, and its differences from the versions asked of an image.

Everything named here must be there; more may be there, too.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from packaging.utils import canonicalize_name
from packaging.version import Version
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from builder.core.errors import CellError
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
    """Which probe spoke."""

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
    """What one suite did in one framework, or why it did not run."""

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
    """What ``cudnn-verify --json`` prints."""

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
