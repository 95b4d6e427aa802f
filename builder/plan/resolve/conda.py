"""Conda environments with PyTorch told in wheels: ``cudatoolkit=11.3`` becomes ``torch==1.12.1+cu113``.

rtbuild installs no conda packages. PyTorch's own channel has the same releases for the same CUDA versions as
PyTorch's package indexes, and its build strings tell CUDA and cuDNN (``py3.9_cuda11.3_cudnn8.3.2_0``): so an
environment can be told in wheels, or it can be said why it cannot have used a GPU. How packages are named:
https://docs.conda.io/projects/conda/en/stable/user-guide/concepts/pkg-specs.html
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from packaging.specifiers import SpecifierSet

from builder.core.documents import CONTROL, shown
from builder.core.errors import CellError, UsageError
from builder.core.versions import NO_NUMBER, agree, canonical, contains, key, release, short
from builder.plan.facts.tables import FrameworkRow, load
from builder.plan.resolve.requirements import Wishes, add_line, read_text
from builder.plan.resolve.solve import pythons

_LARGEST = 256 << 10
"""Letters of an environment.yml."""
_LONGEST = 1000
"""Letters of a package's line."""
_AS_IN = "as in 'pytorch==1.12.1'"
_SPEC = re.compile(
    r"(?:[\w./:-]+::)?(?P<name>[A-Za-z0-9._-]+?)"
    r"(?:\s*(?:==?|\s)\s*(?P<version>\d[\w.+!]*?)(?:\.?\*)?(?:[=\s]\s*(?P<build>[\w.*]+))?)?\s*(?:#.*)?",
    re.ASCII,
)
_FILE = re.compile(r"(?P<name>.+)-(?P<version>[^-]+)-(?P<build>[^-]+?)\.(?:tar\.bz2|conda)(?:#.*)?", re.ASCII)
_PYTORCH = {"pytorch", "pytorch-gpu"}
_NOT_PYTHON = re.compile(
    r"cuda.*|cudnn|nccl|pytorch-(?:cuda|mutex)|mkl.*|lib.*|ld-impl.*|gcc.*|gxx.*|.*-(?:linux-64|compat)|-.*|blas"
    r"|openblas|intel-openmp|openssl|sqlite|zlib|xz|tk|readline|ncurses|ca-certificates|ffmpeg|cmake|make|git"
    r"|numpy-base|nodejs|bzip2|freetype|jpeg|icu|zstd|lz4-c|pip|setuptools|wheel|conda|mamba|cxx-compiler|compilers"
)
"""Conda packages that are no Python packages, or that every image has."""
_IN_WHEELS = {
    "matplotlib-base": "matplotlib",
    "msgpack-python": "msgpack",
    "opencv": "opencv-python-headless",
    "py-opencv": "opencv-python-headless",
    "pytables": "tables",
}
"""Names on package indexes that differ from conda's."""


@dataclass(frozen=True, kw_only=True)
class CondaPackage:
    """A conda package as an environment names it. ``build`` may end in ``*``."""

    name: str
    version: str | None = None
    build: str | None = None
    bounds: str | None = None
    """A range in place of a version: ``>=1.19,<2``."""

    @property
    def range(self) -> str | None:
        """Versions as Python writes them: conda's ``1.19`` is every 1.19.x."""
        if self.version is None or self.name == "python":
            return self.version or self.bounds
        return f"=={self.version}" + (".*" if len(key(self.version)) < 3 else "")

    @property
    def requirement(self) -> str:
        return _IN_WHEELS.get(self.name, self.name) + (self.range or "")

    def __str__(self) -> str:
        return "=".join(part for part in (self.name, self.version, self.build) if part)


def from_conda(path: Path) -> Wishes:
    """The requirements of ``environment.yml`` or ``conda list --export|--explicit``, told in wheels.

    Raises UsageError and CellError, as :func:`read` and :func:`in_wheels` do.
    """
    text = read_text(path)
    try:
        packages, pip = read(text)
    except UsageError as problem:
        raise UsageError(f"{path}: {problem.message}", hint=problem.hint) from problem
    return in_wheels(packages, pip, path, text)


def read(text: str) -> tuple[list[CondaPackage], list[str]]:
    """Packages, and pip's requirements, out of ``environment.yml`` or ``conda list --export|--explicit``.

    Raises:
        UsageError: It is none of these.
    """
    if re.search(r"^dependencies\s*:", text, re.MULTILINE):
        return _from_yaml(text)
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith(("#", "@"))]
    return [_package(line) for line in lines], []


def _from_yaml(text: str) -> tuple[list[CondaPackage], list[str]]:
    if len(text) > _LARGEST:
        raise UsageError(f"an environment of more than {_LARGEST >> 10} KiB is not read")
    try:
        document: Any = yaml.load(text, Loader=yaml.BaseLoader)  # noqa: S506 - it makes texts and nothing else
    except RecursionError as problem:
        raise UsageError("the conda environment is nested too deep") from problem
    except yaml.YAMLError as problem:
        raise UsageError(f"the conda environment is no YAML: {problem}") from problem
    listed = document.get("dependencies") if isinstance(document, dict) else None
    if not isinstance(listed, list):
        raise UsageError("the conda environment has no list of dependencies")
    packages = [_package(entry) for entry in listed if isinstance(entry, str)]
    pips = [entry.get("pip") for entry in listed if isinstance(entry, dict)]
    return packages, [
        line for lines in pips if isinstance(lines, list) for line in lines if isinstance(line, str)
    ]


def _package(line: str) -> CondaPackage:
    if len(line) > _LONGEST or NO_NUMBER.search(re.sub(r"[0-9a-f]{32,}", "", line)) or CONTROL.search(line):
        raise UsageError(f"{shown(line, most=80)!r} is no conda package", hint=_AS_IN)
    found = _FILE.fullmatch(line.rsplit("/", 1)[-1]) if "://" in line else _SPEC.fullmatch(line)
    if found is not None:
        return CondaPackage(name=canonical(found["name"]), version=found["version"], build=found["build"])
    # a range or a bracket: nothing that says what is installed
    name = re.match(r"(?:[\w./:-]+::)?([A-Za-z0-9._-]+)\s*([<>=!~][<>=!~\d.,*\s]*)?", line)
    if name is None:
        raise UsageError(f"{shown(line, most=80)!r} is no conda package", hint=_AS_IN)
    bounds: str | None = (name[2] or "").strip().rstrip(",")
    try:
        SpecifierSet(bounds or "")
    except ValueError:
        bounds = None
    return CondaPackage(name=canonical(name[1]), bounds=bounds or None)


def in_wheels(packages: Sequence[CondaPackage], pip: Sequence[str], path: Path, text: str) -> Wishes:
    """The same frameworks for the same CUDA in wheels, and the other Python packages beside them.

    ``text`` is that of the file, where the places of pip's lines are looked up.
    A name without a version stays open: the newest that fits.

    Raises:
        UsageError: The environment names no framework that the tables have.
        CellError: It cannot have used a GPU, or there are no such wheels.
    """
    by_name = {package.name: package for package in packages}
    if "cpuonly" in by_name:
        raise CellError(
            "the conda environment asks for cpuonly: PyTorch's build for the CPU",
            hint="leave cpuonly out for a build with CUDA",
        )
    python = by_name["python"].range if "python" in by_name else None
    pytorch = next((by_name[name] for name in sorted(_PYTORCH) if name in by_name), None)
    found, notes, left = list[str](), list[str](), list[str]()
    if pytorch is not None:
        python = _python(pytorch, python)
        wheel, notes = _wheel(pytorch, by_name, python)
        found.append(wheel)
    exported = any(package.build is not None for package in packages)
    for package in packages:
        framework = load().is_framework(package.name)
        if package.name in _PYTORCH or package.name == "python":
            continue
        if framework and package.build and re.match(r"(?:mkl|eigen|cpu)", package.build):
            raise CellError(
                f"{package} is a build for the CPU",
                hint="conda's builds for a GPU are named gpu_… or cuda…; name no build for the newest",
            )
        if not framework and (exported or _NOT_PYTHON.fullmatch(package.name)):
            left.append(package.name)
        else:
            found.append(package.requirement)
    if left:
        shown = ", ".join(left[:6]) + (f" and {len(left) - 6} more" if len(left) > 6 else "")
        notes.append(f"{shown}: not taken over")
    if not found and not pip:
        raise UsageError("the conda environment names no package that comes in wheels")
    wishes = Wishes(python=python, notes=[f"{path}: {note}" for note in notes])
    for requirement in found:
        wishes.add(requirement, str(path))
    lines = text.splitlines()
    for line in map(str.strip, pip):
        number = next((number for number, raw in enumerate(lines, 1) if line in raw), None)
        if line:
            add_line(line, f"{path}:{number}" if number else str(path), path, wishes)
    return wishes


def _python(pytorch: CondaPackage, python: str | None) -> str | None:
    """``3.9`` of ``py3.9_cuda11.3_…`` or conda-forge's ``cuda112py39h…``."""
    found = re.search(r"py(?:(\d\.\d+)_|(\d)(\d+))", pytorch.build or "")
    if found is None:
        return python
    built = found[1] or f"{found[2]}.{found[3]}"
    asked = None if python is None else pythons(python)
    if asked is not None and not contains(asked, f"{built}.99"):
        raise CellError(f"{pytorch} is built for Python {built}, and the environment names Python {python}")
    return built


def _wheel(
    pytorch: CondaPackage, by_name: dict[str, CondaPackage], python: str | None
) -> tuple[str, list[str]]:
    """The requirement, and notes on differences."""
    if pytorch.version is None:
        return _newest(pytorch, by_name, python), []
    asked = pytorch.version
    # conda's ``1.12`` is every 1.12.x
    minor = asked if len(key(asked)) == 2 else None
    rows = [
        row
        for row in reversed(load().frameworks["torch"].rows)
        if contains(row.versions, asked) or short(row.version, 2) == minor
    ]
    offered = (
        f"PyTorch {asked} was built for CUDA {', '.join(sorted({row.cuda or '?' for row in rows}, key=key))}"
    )
    if pytorch.build and re.search(r"(?:^|_)cpu", pytorch.build):
        raise CellError(
            f"{pytorch} is the build for the CPU, whichever cudatoolkit lies beside it",
            hint=f"{offered}; conda takes the CPU's where no other fits the rest of the environment",
        )
    cuda = _cuda(pytorch, by_name)
    if cuda is None:
        return f"torch{pytorch.range}", [f"nothing says which CUDA {pytorch} is built for: any; {offered}"]
    row = next((row for row in rows if row.cuda == short(cuda, 2)), None)
    if row is None:
        why = f"{offered}, not {cuda}" if rows else f"there are no facts about PyTorch {asked}"
        raise CellError(
            f"{pytorch} with CUDA {cuda} has no wheel of its kind: {why}",
            hint="where PyTorch has no build for a cudatoolkit, conda may take the one for the CPU",
        )
    version = row.version if len(key(asked)) < 3 else asked
    built = re.search(r"cudnn(\d+(?:\.\d+)+)", pytorch.build or "")
    notes = []
    if built is not None and row.cudnn is not None and not agree(short(built[1], 2), short(row.cudnn, 2)):
        notes = [f"cuDNN {row.cudnn} in place of conda's {built[1]}"]
    return _torch(row, version), notes


def _torch(row: FrameworkRow, version: str) -> str:
    return f"torch=={version}" if row.default else f"torch=={version}+{row.variant}"


def _newest(pytorch: CondaPackage, by_name: dict[str, CondaPackage], python: str | None) -> str:
    """An open requirement, or the newest build for the CUDA and the Python that stand beside it."""
    cuda = _cuda(pytorch, by_name)
    if cuda is None:
        return f"torch{pytorch.bounds or ''}"
    rows = [
        row
        for row in load().frameworks["torch"].rows
        if row.cuda == short(cuda, 2)
        and (python is None or any(contains(pythons(python), f"{p}.99") for p in row.python))
        and (pytorch.bounds is None or contains(SpecifierSet(pytorch.bounds), row.version))
    ]
    if not rows:
        beside = f" and Python {python}" if python else ""
        raise CellError(f"there is no PyTorch on record for CUDA {cuda}{beside}")
    row = max(rows, key=lambda row: release(row.version))
    return _torch(row, row.version)


def _cuda(pytorch: CondaPackage, by_name: dict[str, CondaPackage]) -> str | None:
    """The CUDA of the build, else of the toolkit beside it; two that differ are refused."""
    found = re.search(r"cuda_?(\d+\.\d+|\d{3})", pytorch.build or "")
    built = None
    if found is not None:  # conda-forge writes cuda112
        built = found[1] if "." in found[1] else f"{found[1][:2]}.{found[1][2:]}"
    for name in ("cudatoolkit", "pytorch-cuda", "cuda-version"):
        if name not in by_name or by_name[name].version is None:
            continue
        version = short(by_name[name].version or "", 2)
        if built is None:
            return version
        if not agree(built, version):
            raise CellError(
                f"{pytorch} is built for CUDA {built}, and the environment holds {name}={version}",
                hint="libraries of another CUDA are loaded by chance; install the toolkit of the build",
            )
    return built
