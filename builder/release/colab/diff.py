"""An image compared with a Colab runtime by its import's record: same, other, missing, extra packages.

What is in an image is by its own word: packages by their metadata, CUDA and cuDNN by the probe.
"""

import enum
import functools
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pydantic
from packaging.utils import canonicalize_name

from builder.core.documents import shown
from builder.core.errors import CellError, CommandError, UsageError
from builder.core.versions import equal
from builder.image.engine import Engine
from builder.image.recipe import first_parts
from builder.plan.facts.tables import load
from builder.release.colab.runtimes import NAMED
from builder.verify.runner import ProbeDocument, parse, printed_report

PRESENT_GOAL = 99.0
"""Percent of the other packages that must be present."""
SAME_GOAL = 97.0
"""Percent of them that must have Colab's version."""


class _Missing(pydantic.BaseModel):
    name: str
    detail: str


class Listed(pydantic.BaseModel, strict=True, frozen=True):
    """The packages of a runtime, and the facts of those that no index has.

    As much of a record as a comparison needs; :func:`builder.release.colab.imports.record` writes it.
    """

    version: Literal[1] = pydantic.Field(default=1, alias="schema")
    runtime: str
    python: str
    cuda: str | None
    cudnn: str | None
    packages: dict[str, str | None]
    """Versions by name as listed; None if the list has none."""
    missing: list[_Missing] = []
    compiled: dict[str, Any] = {}
    unasked: dict[str, str] = {}
    """The index that did not answer, by the name of each package that only it may have."""

    @functools.cached_property
    def reasons(self) -> dict[str, str]:
        """Why a package could not be matched, by name."""
        why = "compiled with the libraries of a Debian release: only the image on its rootfs has it"
        return {row.name: row.detail for row in self.missing} | dict.fromkeys(self.compiled, why)


@dataclass(frozen=True, kw_only=True)
class Inventory:
    """An image's own account."""

    python: str
    packages: Mapping[str, str]
    """Versions by canonical name."""
    inside: Mapping[str, str]
    """Versions of some projects by their own code, label and all."""
    report: ProbeDocument


class ParityStatus(enum.StrEnum):
    """The result for one package of the runtime, or one that only the image has."""

    SAME = "same"
    OTHER = "other"
    MISSING = "missing"
    UNASKED = "unasked"
    """Not there at that version, and only an index that did not answer may have it."""
    EXTRA = "extra"


@dataclass(frozen=True, kw_only=True)
class ParityRow:
    name: str
    asked: str | None
    found: str | None
    status: ParityStatus
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class Parity:
    runtime: str
    core: tuple[ParityRow, ...]
    """Python, CUDA, cuDNN and the frameworks, which must be the same."""
    packages: tuple[ParityRow, ...]
    """The other pip packages by name, including those that only the image has."""

    def count(self, status: ParityStatus) -> int:
        return sum(row.status is status for row in self.packages)

    @property
    def listed(self) -> int:
        """The number of other packages of the runtime, without those that are counted apart."""
        return len(self.packages) - self.count(ParityStatus.EXTRA) - self.count(ParityStatus.UNASKED)

    @property
    def present(self) -> float:
        """Percent of the other packages that are present, at any version."""
        return _percent(self.count(ParityStatus.SAME) + self.count(ParityStatus.OTHER), self.listed)

    @property
    def same(self) -> float:
        """Percent of the other packages that have the runtime's version."""
        return _percent(self.count(ParityStatus.SAME), self.listed)

    @property
    def exact(self) -> bool:
        """Python, CUDA, cuDNN and all frameworks are the runtime's."""
        return all(row.status is ParityStatus.SAME for row in self.core)

    @property
    def reached(self) -> bool:
        """The goals of an imported runtime are met."""
        compared = self.listed > 0 or not self.count(ParityStatus.UNASKED)
        return self.exact and compared and self.present >= PRESENT_GOAL and self.same >= SAME_GOAL

    def as_json(self) -> dict[str, Any]:
        return {
            "schema": 1,
            "runtime": self.runtime,
            "exact": self.exact,
            "present_percent": round(self.present, 2),
            "same_percent": round(self.same, 2),
            "reached": self.reached,
            "counts": {status: self.count(status) for status in ParityStatus},
            "core": list(map(vars, self.core)),
            "packages": [vars(row) for row in self.packages if row.status is not ParityStatus.SAME],
        }


def labelled(runtime: Listed) -> tuple[str, ...]:
    """Packages whose version has a label (``+cu124``), which an image may have only in their code."""
    rows = runtime.packages.items()
    return tuple(canonicalize_name(name) for name, version in rows if "+" in (version or ""))


def _is_framework(key: str) -> bool:
    """Whether a distribution is a framework's, or the compiled half of JAX."""
    return load().table_name(key) in load().frameworks or key == "jaxlib"


def _rank(key: str) -> tuple[int, str]:
    """The place of a framework in the registry; JAX's compiled half comes behind JAX."""
    name = "jax" if key == "jaxlib" else load().table_name(key)
    return [*load().frameworks].index(name), key


def compare(runtime: Listed, image: Inventory) -> Parity:
    """Every package of the runtime, and every one of the image."""
    asked = {str(canonicalize_name(name)): (name, version) for name, version in runtime.packages.items()}
    rows = {key: _package(name, version, key, runtime, image) for key, (name, version) in asked.items()}
    extra = [
        ParityRow(name=key, asked=None, found=version, status=ParityStatus.EXTRA)
        for key, version in image.packages.items()
        if key not in asked
    ]
    frameworks = [rows.pop(name) for name in sorted(filter(_is_framework, rows), key=_rank)]
    others = sorted((*rows.values(), *extra), key=lambda row: row.name.casefold())
    return Parity(
        runtime=runtime.runtime,
        core=(_python(runtime, image), *_libraries(runtime, image), *frameworks),
        packages=tuple(others),
    )


def _package(name: str, version: str | None, key: str, runtime: Listed, image: Inventory) -> ParityRow:
    why = runtime.reasons.get(name, "")
    found, inside = image.packages.get(key), image.inside.get(key)
    same = found is not None and (
        version is None or equal(version, found) or (inside is not None and equal(version, inside))
    )
    unasked = None if _is_framework(key) else runtime.unasked.get(name)
    if same:
        status = ParityStatus.SAME
        if version is None:
            why = f"the list gives no version to compare with: {why or 'installed from an address'}"
        elif found is None or not equal(version, found):
            why = f"its metadata says {found}, its code {inside}: the same build"
    elif unasked is not None:
        status, why = ParityStatus.UNASKED, f"{unasked}, which has it, did not answer"
    elif found is None:
        status = ParityStatus.MISSING
        why = why or "not in the image, although it could be: the image was made of other packages"
    else:
        status = ParityStatus.OTHER
    return ParityRow(name=name, asked=version, found=found, status=status, why=why)


def _python(runtime: Listed, image: Inventory) -> ParityRow:
    asked, found = runtime.python, image.python
    if first_parts(asked, 2) != first_parts(found, 2):
        status, why = ParityStatus.OTHER, "another minor version"
    else:
        status, why = ParityStatus.SAME, "the same minor version, and another patch" if asked != found else ""
    return ParityRow(name="Python", asked=asked, found=found, status=status, why=why)


def _libraries(runtime: Listed, image: Inventory) -> Iterator[ParityRow]:
    """CUDA and cuDNN as the frameworks load them, by the probe; on Colab the wheels' cuDNN goes first."""
    wheels = [v for name, v in runtime.packages.items() if canonicalize_name(name).startswith("nvidia-cudnn")]
    libraries = (
        ("CUDA", runtime.cuda, image.report.loaded("cuda"), 2),
        ("cuDNN", (wheels and wheels[0]) or runtime.cudnn, image.report.loaded("cudnn"), 3),
    )
    for name, asked, found, parts in libraries:
        if asked is None:
            continue
        status, why = ParityStatus.MISSING, "no framework in the image says what it loads"
        if found:
            same = {first_parts(version, parts) for version in found} == {first_parts(asked, parts)}
            status = ParityStatus.SAME if same else ParityStatus.OTHER
            why = f"compared to {parts} numbers, as the library tells them"
        told = ", ".join(sorted(set(found))) or None
        yield ParityRow(name=name, asked=asked, found=told, status=status, why=why)


def _percent(part: int, whole: int) -> float:
    return 100.0 * part / whole if whole else 100.0


def listed(against: str, *, folder: Path = Path("matrices")) -> Listed:
    """The runtime of that name (``2025.07``), or of a record's path.

    Raises:
        UsageError: there is no such runtime here, or its record is damaged.
    """
    path = Path(against)
    if path.is_file():
        return _of_record(path)
    beside = folder / f"colab-{against}.runtime.json"
    if beside.is_file():
        return _of_record(beside)
    records = folder.glob("colab-*.runtime.json")
    known = sorted(p.name.removeprefix("colab-").removesuffix(".runtime.json") for p in records)
    hint = f"imported here: {', '.join(known)}" if known else "import it first: rtbuild colab import"
    if against in NAMED and against not in known:
        hint = f"{hint}; {against} is commit {NAMED[against]} of Google's lists"
    raise UsageError(f"'{against}' is neither a runtime imported here nor the record of one", hint=hint)


def _of_record(path: Path) -> Listed:
    try:
        return Listed.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        first, *said = str(error).splitlines()
        why = f"{path} is no record of an import: {' '.join(said[:2]) or first}"
        raise UsageError(why, hint="write it again: rtbuild colab import") from error


_SECONDS, _PROBE_SECONDS = 120.0, 900.0
_PYTHONS = (
    'for p in /opt/runtime/bin/python python3; do command -v $p >/dev/null && exec $p "$@"; done; exit 127'
)
# Runs in the image, on Python 3.6 and later. What a project calls itself inside tells PyTorch's builds apart:
# its wheels on the index have no label, and version.py says 2.6.0+cu124.
_SCRIPT = r"""
import json, os, platform, re, sys
try:
    from importlib.metadata import distributions
except ImportError:
    import pkg_resources
    rows = [(d.project_name, d.version, d.location) for d in pkg_resources.working_set]
else:
    rows = [(d.metadata["Name"], d.version, str(d.locate_file(""))) for d in distributions()]
packages, inside = {}, {}
for name, version, folder in rows:
    if not name or not version or name in packages:
        continue
    packages[name] = version
    canonical = re.sub(r"[-_.]+", "-", name).lower()
    path = os.path.join(folder, canonical.replace("-", "_"), "version.py")
    if canonical in sys.argv[1:] and os.path.isfile(path):
        with open(path, encoding="utf-8") as stream:
            found = re.search(r"^__version__\s*=\s*['\"]([^'\"]+)", stream.read(), re.M)
        if found:
            inside[name] = found.group(1)
print(json.dumps({"python": platform.python_version(), "packages": packages, "inside": inside}))
"""


class _Inside(pydantic.BaseModel):
    python: str
    packages: dict[str, str]
    inside: dict[str, str]


def measure(
    engine: Engine, reference: str, *, probe: bytes, labelled: Sequence[str] = (), gpus: bool = False
) -> Inventory:
    """Look into an image; it need not be rtbuild's. ``probe`` is cudnn-verify, run on the image's Python.

    ``labelled`` are the packages to ask for the version in their code.

    Raises:
        CellError: the image is not there, has no Python, or the probe failed in it.
    """
    if engine.inspect(reference) is None:
        hint = f"rtbuild build, or docker pull {reference}"
        raise CellError(f"the engine has no image {reference}", hint=hint)
    with tempfile.TemporaryDirectory(prefix="rtbuild-colab-") as folder:
        script, verify = Path(folder, "packages.py"), Path(folder, "cudnn_verify.py")
        script.write_text(_SCRIPT, encoding="utf-8")
        verify.write_bytes(probe)
        for path in (Path(folder), script, verify):
            path.chmod(0o755)  # the container's user is nobody
        mounts = {script: "/mnt/packages.py", verify: "/mnt/cudnn_verify.py"}

        def run(arguments: Sequence[str], seconds: float) -> str:
            argv = ["/bin/sh", "-c", _PYTHONS, "sh", *arguments]
            done = engine.run_probe(reference, argv, gpus=gpus, timeout=seconds, mounts=mounts)
            if not done.started or done.timed_out or not done.stdout.strip():
                late = "it did not end in time" if done.timed_out else ""
                why = done.daemon_error or late or done.stderr.strip() or "it has no Python"
                raise CommandError(
                    f"{reference} does not say what is in it: {why}",
                    command=["docker", "run", reference, *argv],
                    returncode=done.returncode,
                    tail=done.stderr.splitlines()[-10:],
                )
            return done.stdout

        # a sitecustomize of the image may print, too
        said = run(["-I", "/mnt/packages.py", *labelled], _SECONDS).splitlines()[-1]
        try:
            found = _Inside.model_validate_json(said)
        except ValueError as problem:
            raise CellError(f"{reference} does not say what is in it: {shown(said)}") from problem
        report = parse(printed_report(run(["/mnt/cudnn_verify.py", "--json"], _PROBE_SECONDS)))
    return Inventory(
        python=found.python,
        packages={canonicalize_name(name): version for name, version in found.packages.items()},
        inside={canonicalize_name(name): version for name, version in found.inside.items()},
        report=report,
    )
