"""What a conda environment with PyTorch is in wheels: ``cudatoolkit=11.3`` becomes ``torch==1.12.1+cu113``.

rtbuild installs no conda packages. PyTorch's own channel has the same releases for the same CUDA versions as
PyTorch's package indexes, and its build strings tell CUDA and cuDNN (``py3.9_cuda11.3_cudnn8.3.2_0``): so an
environment can be told in wheels, or it can be said why it cannot have used a GPU. How packages are named:
https://docs.conda.io/projects/conda/en/stable/user-guide/concepts/pkg-specs.html
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import yaml

from builder.errors import CellError, UsageError
from builder.facts.versions import agree, canonical, contains, key, requirement, short

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from builder.facts.tables import Facts, FrameworkRow

_SPEC = re.compile(
    r"(?:[\w./:-]+::)?(?P<name>[A-Za-z0-9._-]+?)"
    r"(?:\s*(?:==?|\s)\s*(?P<version>\d[\w.+!]*?)(?:\.?\*)?(?:[=\s]\s*(?P<build>[\w.*]+))?)?\s*(?:#.*)?"
)
_FILE = re.compile(r"(?P<name>.+)-(?P<version>[^-]+)-(?P<build>[^-]+?)\.(?:tar\.bz2|conda)(?:#.*)?")
_PYTORCH = {"pytorch", "pytorch-gpu"}
_TOOLKITS = ("cudatoolkit", "pytorch-cuda", "cuda-version")


@dataclass(frozen=True, kw_only=True)
class CondaPackage:
    """A conda package as an environment names it. ``build`` may end in ``*``."""

    name: str
    version: str | None = None
    build: str | None = None

    def __str__(self) -> str:
        return "=".join(part for part in (self.name, self.version, self.build) if part)


@dataclass(frozen=True, kw_only=True)
class Environment:
    """A conda environment told in wheels."""

    requirements: tuple[str, ...]
    python: str | None
    notes: tuple[str, ...]
    """What of the environment is not in them."""


def read(text: str) -> tuple[list[CondaPackage], list[str]]:
    """Packages, and what pip is to install, out of ``environment.yml`` or ``conda list --export|--explicit``.

    Raises:
        UsageError: It is none of these.
    """
    if re.search(r"^dependencies\s*:", text, re.MULTILINE):
        return _from_yaml(text)
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith(("#", "@"))]
    return [_package(line) for line in lines], []


def _from_yaml(text: str) -> tuple[list[CondaPackage], list[str]]:
    try:
        document: Any = yaml.load(text, Loader=yaml.BaseLoader)  # noqa: S506 - it makes texts and nothing else
    except yaml.YAMLError as problem:
        raise UsageError(f"the conda environment is no YAML: {problem}") from problem
    listed = document.get("dependencies") if isinstance(document, dict) else None
    if not isinstance(listed, list):
        raise UsageError("the conda environment has no list of dependencies")
    packages = [_package(entry) for entry in listed if isinstance(entry, str)]
    pip = [line for entry in listed if isinstance(entry, dict) for line in entry.get("pip") or ()]
    return packages, [str(line) for line in pip]


def _package(line: str) -> CondaPackage:
    found = _FILE.fullmatch(line.rsplit("/", 1)[-1]) if "://" in line else _SPEC.fullmatch(line)
    if found is None:
        # a range or a bracket: nothing that says what is installed
        name = re.match(r"(?:[\w./:-]+::)?([A-Za-z0-9._-]+)", line)
        if name is None:
            raise UsageError(f"{line!r} is no conda package", hint="as in 'pytorch==1.12.1'")
        return CondaPackage(name=canonical(name[1]))
    return CondaPackage(name=canonical(found["name"]), version=found["version"], build=found["build"])


def in_wheels(packages: Sequence[CondaPackage], pip: Sequence[str], known: Facts) -> Environment:
    """The wheels of the same PyTorch for the same CUDA.

    Raises:
        UsageError: The environment has no PyTorch, or does not say which.
        CellError: It cannot have used a GPU, or there are no such wheels.
    """
    by_name = {package.name: package for package in packages}
    ours = [
        text for text in pip if (r := requirement(text)) is not None and canonical(r.name) in known.frameworks
    ]
    pytorch = next((by_name[name] for name in sorted(_PYTORCH) if name in by_name), None)
    if pytorch is None and not ours:
        raise UsageError("the conda environment has no PyTorch", hint="it is told from `pytorch` alone")
    python = by_name["python"].version if "python" in by_name else None
    requirements, notes = list(ours), list[str]()
    if pytorch is not None:
        python = _python(pytorch, python)
        wheel, notes = _wheel(pytorch, by_name, known)
        requirements.insert(0, wheel)
        beside = [name for name in ("torchvision", "torchaudio", "cudnn", "nccl") if name in by_name]
        notes += [f"{', '.join(beside)}: not taken over"] if beside else []
    return Environment(
        requirements=tuple(requirements), python=short(python, 2) if python else None, notes=tuple(notes)
    )


def _python(pytorch: CondaPackage, python: str | None) -> str | None:
    """``3.9`` of ``py3.9_cuda11.3_…`` or conda-forge's ``cuda112py39h…``."""
    found = re.search(r"py(?:(\d\.\d+)_|(\d)(\d+))", pytorch.build or "")
    if found is None:
        return python
    built = found[1] or f"{found[2]}.{found[3]}"
    if python is not None and key(python)[:2] != key(built)[:2]:
        raise CellError(f"{pytorch} is built for Python {built}, and the environment names Python {python}")
    return built


def _wheel(pytorch: CondaPackage, by_name: dict[str, CondaPackage], known: Facts) -> tuple[str, list[str]]:
    """The requirement, and what is different with it."""
    if pytorch.version is None:
        raise UsageError(
            "the conda environment does not say which PyTorch",
            hint="`conda list --export` of the environment does, with its build",
        )
    asked = pytorch.version
    rows = [row for row in known.frameworks["torch"].rows if _serves(row, asked)]
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
        raise CellError(
            f"nothing in the conda environment says which CUDA {pytorch} is built for",
            hint=f"{offered}; name cudatoolkit or pytorch-cuda, or the build, as `conda list --export` does",
        )
    row = next((row for row in rows if row.cuda == short(cuda, 2)), None)
    if row is None:
        why = f"{offered}, not {cuda}" if rows else f"there are no facts about PyTorch {asked}"
        raise CellError(
            f"{pytorch} with CUDA {cuda} has no wheel of its kind: {why}",
            hint="where PyTorch has no build for a cudatoolkit, conda may take the one for the CPU",
        )
    version = row.latest if len(key(asked)) < 3 else asked
    built = re.search(r"cudnn(\d+(?:\.\d+)+)", pytorch.build or "")
    other = built is not None and row.cudnn is not None and not agree(short(built[1], 2), short(row.cudnn, 2))
    notes = [f"cuDNN {row.cudnn} in place of conda's {built[1]}"] if other and built is not None else []
    return f"torch=={version}" if row.default else f"torch=={version}+{row.variant}", notes


def _serves(row: FrameworkRow, version: str) -> bool:
    """conda's ``1.12`` is every 1.12.x."""
    return contains(row.versions, version) or (len(key(version)) == 2 and short(row.latest, 2) == version)


def _cuda(pytorch: CondaPackage, by_name: dict[str, CondaPackage]) -> str | None:
    """The CUDA of the build, else of the toolkit beside it; two that differ are refused."""
    found = re.search(r"cuda_?(\d+\.\d+|\d{3})", pytorch.build or "")
    built = None
    if found is not None:  # conda-forge writes cuda112
        built = found[1] if "." in found[1] else f"{found[1][:2]}.{found[1][2:]}"
    for name, version in _toolkits(by_name):
        if built is None:
            return version
        if not agree(built, version):
            raise CellError(
                f"{pytorch} is built for CUDA {built}, and the environment holds {name}={version}",
                hint="libraries of another CUDA are loaded by chance; install the toolkit of the build",
            )
    return built


def _toolkits(by_name: dict[str, CondaPackage]) -> Iterator[tuple[str, str]]:
    for name in _TOOLKITS:
        package = by_name.get(name)
        if package is not None and package.version is not None:
            yield name, short(package.version, 2)
