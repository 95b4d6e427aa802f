"""The probe's JSON, as far as rtbuild relies on it: what is named here must be there, and more may be."""

import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from builder.errors import CellError

EXIT_CODES = {"works": 0, "unverified": 10, "broken": 20, "unsupported-gpu": 21, "host": 22, "busy": 23}
"""How ``cudnn-verify`` ends for each verdict; 30 is the probe's own failure."""

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
    test_double: bool
    seconds: float

    def python_version(self) -> str | None:
        """``3.9.2``, however the probe wraps it."""
        found = self.python if isinstance(self.python, str) else self.python.get("version")
        match = re.search(r"\d+(\.\d+)+", str(found))
        return match[0] if match else None

    def loaded(self, what: str, soname: str) -> list[str]:
        """Versions of ``cudnn`` or ``cuda``: as each framework says, else as the mapped libraries do."""
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
