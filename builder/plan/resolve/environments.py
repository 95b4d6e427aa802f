"""Requirements out of environments: Dockerfiles (their ``RUN`` commands, and what the image that they stand
on brings), and those of conda with PyTorch told in wheels: ``cudatoolkit=11.3`` becomes
``torch==1.12.1+cu113``.

The formats: https://docs.docker.com/reference/dockerfile/,
https://docs.conda.io/projects/conda/en/stable/user-guide/concepts/pkg-specs.html

rtbuild installs no conda packages. PyTorch's own channel has the same releases for the same CUDA versions as
PyTorch's package indexes, and its build strings tell CUDA and cuDNN (``py3.9_cuda11.3_cudnn8.3.2_0``): so an
environment can be told in wheels, or it can be said why it cannot have used a GPU.
"""

import contextlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from builder.core.documents import CONTROL, shown
from builder.core.errors import CellError, UsageError
from builder.core.versions import NO_NUMBER, agree, canonical, contains, key, release, short
from builder.plan.facts.tables import FrameworkRow, load
from builder.plan.resolve.project_texts import LONGEST_LINE, may_compile, read_text
from builder.plan.resolve.requirements import add_line, files_beside, install_line, nothing
from builder.plan.resolve.solve import pythons
from builder.plan.resolve.wishes import Wishes

_INSTRUCTION = re.compile(r"\s*(?P<word>[A-Za-z]+)\s+(?P<rest>.*)", re.DOTALL)
_FROM = re.compile(r"FROM\s+(?:--\S+\s+)*(?P<image>\S+)(?:\s+AS\s+(?P<name>\S+))?\s*", re.IGNORECASE)
_VARIABLE = re.compile(
    r"\$(?:\{(?P<braced>\w+)(?::?-(?P<default>[^}]*)|(?P<every>//?)(?P<old>[^/}]+)(?:/(?P<new>[^}]*))?"
    r"|(?P<cut>%%?)\.\*)?\}|(?P<plain>\w+))"
)
_WELL_KNOWN = (
    ("torch", r"(?:docker\.io/)?pytorch/pytorch:v?(?P<version>\d+(?:\.\d+)*)(?:-cuda(?P<cuda>\d+\.\d+))?.*"),
    ("tensorflow", r"(?:docker\.io/)?tensorflow/tensorflow:(?P<version>\d+(?:\.\d+)*)(?:-.*)?"),
    (
        "paddlepaddle-gpu",
        r"(?:\S+/)?paddlepaddle/paddle:(?P<version>\d+(?:\.\d+)*)-gpu(?:-cuda(?P<cuda>\d+\.\d+))?.*",
    ),
)
"""Images whose tags name the framework inside: https://hub.docker.com/r/pytorch/pytorch,
https://hub.docker.com/r/tensorflow/tensorflow, https://hub.docker.com/r/paddlepaddle/paddle
"""
_NGC = re.compile(
    r"nvcr\.io/nvidia/(?P<what>pytorch|tensorflow|jax|paddlepaddle):(?:(?P<month>\d\d\.\d\d)\b)?.*"
)
"""NVIDIA's images have the year and the month in the tag: 21.08 is of August 2021."""
_HELD = "https://docs.nvidia.com/deeplearning/frameworks/support-matrix/"
_NAMES = {"pytorch": "torch", "paddlepaddle": "paddlepaddle-gpu"}


@dataclass(frozen=True, kw_only=True)
class BaseImage:
    """The image of a Dockerfile's last stage."""

    line: int
    name: str
    """With the defaults of the ``ARG`` before it in the place of variables."""
    requirement: str | None = None
    """The framework inside, if the tag names it: ``torch==2.1.0``."""
    python: str | None = None
    """``3.10`` of ``python:3.10-slim``."""
    told: str = ""
    """What is taken of it, and what is not."""


def is_dockerfile(name: str, text: str) -> bool:
    """By its name, or by a first instruction that only a Dockerfile has."""
    if re.fullmatch(r"(?:.*\.)?(?:Dockerfile|Containerfile)(?:\..*)?", name, re.IGNORECASE):
        return True
    lines = (line for line in text.splitlines() if line.strip() and line.lstrip()[:1] != "#")
    first = next((line for line in lines if not re.match(r"ARG\s+\w", line)), "")
    return re.match(r"FROM\s+(?:--\S+\s+)*\S+(?:\s+(?i:AS)\s+\S+)?\s*$", first) is not None


def commands(text: str) -> Iterator[tuple[int, str]]:
    """The commands of ``RUN`` instructions, in the shell's or the list's form, each with its line; variables
    have the values that ``ARG`` and ``ENV`` give them.
    """
    values: dict[str, str] = {}
    before: dict[str, str] | None = None
    for number, instruction in _instructions(text):
        found = _INSTRUCTION.fullmatch(instruction)
        word, rest = (found["word"].upper(), found["rest"]) if found is not None else ("", "")
        if word == "FROM":
            values, before = ({}, values) if before is None else (values, before)
        elif word in {"ARG", "ENV"}:
            pairs = re.findall(r"(\w+)(?:=(\"[^\"]*\"|'[^']*'|\S*))?", rest)
            if word == "ENV" and (old := re.fullmatch(r"(\w+)\s+([^=]*)", rest.strip())):
                pairs = [(old[1], old[2])]
            for name, value in pairs:
                if value or name in (before or {}):
                    values[name] = substituted(value.strip("\"'"), values) or (before or {}).get(name, "")
        if word != "RUN":
            continue
        rest = re.sub(r"^(?:--\w+=\S+\s+)+", "", rest)
        try:
            words = json.loads(rest)
        except (ValueError, RecursionError):
            words = None
        yield number, substituted(" ".join(map(str, words)) if isinstance(words, list) else rest, values)


def substituted(text: str, values: Mapping[str, str]) -> str:
    """A shell's text with the values of the variables that have one: ``${CUDA/./}`` of 11.1 is 111.

    Values are put in up to :data:`LONGEST_LINE` letters in all, and the variables behind them stay.
    https://www.gnu.org/software/bash/manual/html_node/Shell-Parameter-Expansion.html
    """
    left = LONGEST_LINE

    def value(found: re.Match[str]) -> str:
        nonlocal left
        mine = values.get(found["braced"] or found["plain"])
        if mine is None:
            return found["default"] if found["default"] is not None else found[0]
        if found["old"]:
            new, times = found["new"] or "", mine.count(found["old"]) if found["every"] == "//" else 1
            left -= times * len(new)
            mine = mine.replace(found["old"], new, times) if left >= 0 else ""
        elif found["cut"]:
            parts = mine.split(".")
            mine = ".".join(parts[:-1] if found["cut"] == "%" else parts[:1])
        left -= len(mine)
        return mine if left >= 0 else found[0]

    return _VARIABLE.sub(value, text)


def base_image(text: str) -> BaseImage | None:
    """The image that the last stage stands on, through earlier stages, too; None if nothing is told of it."""
    stages: dict[str, tuple[int, str]] = {}
    arguments: dict[str, str] = {}
    last = None
    for number, instruction in _instructions(text):
        if argument := re.fullmatch(r"ARG\s+(\w+)=[\"']?([^\"'\s]*)[\"']?\s*", instruction, re.IGNORECASE):
            arguments.setdefault(argument[1], argument[2])
        elif found := _FROM.fullmatch(instruction):
            image = substituted(found["image"], arguments)
            last = stages.get(image.lower(), (number, image))
            stages[(found["name"] or f"{len(stages)}").lower()] = last
    return _told(*last) if last is not None else None


def _told(line: int, image: str) -> BaseImage | None:
    plain = image.partition("@")[0]
    for framework, pattern in _WELL_KNOWN:
        if found := re.fullmatch(pattern, plain, re.IGNORECASE):
            cuda = found.groupdict().get("cuda")
            exact = _build(framework, found["version"], cuda)
            own = ": its wheels bring CUDA and cuDNN" * (framework == "torch")
            told = f"taken as {exact}{own}"
            return BaseImage(
                line=line, name=image, requirement=exact, told=f"{told}; its Python is not in the tag"
            )
    if found := re.fullmatch(r"(?:docker\.io/)?(?:(?P<what>pytorch|tensorflow)/(?P=what))(?::\S*)?", plain):
        name = _NAMES.get(found["what"], found["what"])
        title = load().table(name).title
        way = f"`rtbuild resolve {name}==VERSION -r FILE` asks for one"
        told = f"its tag names no release of {title}: any; {way}"
        return BaseImage(line=line, name=image, requirement=name, told=told)
    if found := _NGC.fullmatch(plain):
        name = _NAMES.get(found["what"], found["what"])
        title = load().table(name).title
        month = f"{found['month']} is a month, and no release of {title}; " if found["month"] else ""
        told = (
            f"{month}NVIDIA's own build of {title} is not taken over: no package index has it. "
            f"Name the release that it is made of ({_HELD}), as in `rtbuild resolve {name}==VERSION -r FILE`"
        )
        return BaseImage(line=line, name=image, told=told)
    if found := re.fullmatch(r"(?:docker\.io/)?(?:library/)?python:(?P<python>3\.\d+)\b.*", plain):
        return BaseImage(
            line=line,
            name=image,
            python=found["python"],
            told=f"its Python, {found['python']}, is taken over",
        )
    if found := re.fullmatch(r"\S*cuda\S*?:v?(?P<cuda>\d+\.\d+)\S*", plain, re.IGNORECASE):
        told = (
            f"CUDA {found['cuda']} is not taken over: the framework's build decides, and --driver bounds it"
        )
        return BaseImage(line=line, name=image, told=told)
    return None


def _build(framework: str, version: str, cuda: str | None) -> str:
    """The requirement for a release in its build for a CUDA; without the build if none is on record."""
    rows = load().table(framework).of(version)
    if framework == "tensorflow" and not any(
        set(row.platforms) - set(row.cpu_only) for row in rows if row.distribution == framework
    ):
        framework = (
            "tensorflow-gpu" if any(row.distribution == "tensorflow-gpu" for row in rows) else framework
        )
    mine = [row for row in rows if cuda is not None and row.cuda and short(row.cuda, 2) == cuda]
    local = "" if not mine or any(row.default for row in mine) else f"+{mine[0].variant}"
    return f"{framework}=={version}{local}"


def _instructions(text: str) -> Iterator[tuple[int, str]]:
    """Instructions, joined where a line ends in a backslash, without comments and empty lines."""
    joined, first, lines = "", 0, text.count("\n")
    for number, line in enumerate([*text.splitlines(), ""], 1):
        if line.lstrip().startswith("#") or (joined and not line.strip() and number <= lines):
            continue
        first = first if joined else number
        if line.rstrip().endswith("\\"):
            joined += line.rstrip()[:-1] + " "
            continue
        instruction, joined = (joined + line).strip(), ""
        if instruction:
            yield first, instruction


def from_dockerfile(path: Path, beside: Wishes | None = None) -> Wishes:
    """The packages of a Dockerfile's ``RUN pip install`` and ``RUN conda install`` lines, and the framework
    or the Python that its image brings. ``beside``: those of the project's other files.

    Raises UsageError without any.
    """
    text, found, take_file = read_text(path), Wishes(), files_beside(path)
    packages, copied = dict[str, CondaPackage](), dict[str, str]()
    for number, command in commands(text):
        install_line(command, f"{path}:{number}", found, take_file)
        add_conda_line(command, f"{path}:{number}", packages, found)
    add_conda_packages(packages, path, found)
    for number, instruction in _instructions(text):
        if copy := re.fullmatch(r"(?i:COPY|ADD)\s+(?:--\S+\s+)*(\S+)\s+(/\S+)", instruction):
            copied[copy[2].rstrip("/")] = copy[1]
        # what torch.utils.cpp_extension compiles for: https://pytorch.org/docs/stable/cpp_extension.html
        if listed := re.search(r"\bTORCH_CUDA_ARCH_LIST[= ](\"[^\"]*\"|'[^']*'|\S+)", instruction):
            found.compiling.append(("architectures", listed[1].strip("\"'"), f"{path}:{number}"))
        for version in re.findall(r"nvidia/label/cuda-(\d+\.\d+(?:\.\d+)?)", instruction):
            found.compiling.append(("nvcc", version, f"{path}:{number}"))
    found.by_hand = [_before_copy(one, copied, path) for one in found.by_hand]
    own = {one: folder for one, _, _ in found.sources if (folder := _before_copy(one, copied, path)) != one}
    found.sources = [
        (one, place, here or one in own)
        for one, place, here in found.sources
        if one not in own or may_compile(Path(own[one]))
    ]
    base, others = base_image(text), beside.wishes if beside is not None else []
    if base is not None:
        # a file that brings nothing is refused beside a framework, too
        told = base.told if found.wishes or others else base.told.replace(" -r FILE", "")
        place, told = f"{path}:{base.line}", told.replace("FILE", str(path))
        brought = Requirement(base.requirement) if base.requirement is not None else None
        decided = [wish for wish in others if wish.parsed.specifier or (brought and not brought.specifier)]
        installed = [wish for wish in (*found.wishes, *decided) if load().is_framework(wish.name)]
        brings = load().table_name(brought.name) if brought is not None else None
        again = next((wish for wish in installed if load().table_name(wish.name) == brings), None)
        if again is not None:
            told = f"what it brings is replaced by {again} ({again.place})"
        elif base.requirement is not None:
            found.add(base.requirement, place)
        found.python = found.python or base.python
        found.note(place, f"FROM {base.name}", told)
    if not found.wishes and not others:
        way = (
            re.search(r"`rtbuild resolve [^`]+`", base.told.replace(" -r FILE", ""))
            if base is not None
            else None
        )
        raise nothing(
            f"{path} is a Dockerfile that installs nothing by pip",
            found,
            "lines such as `RUN pip install torch` are read, or frameworks: "
            + (way[0] if way is not None else "`rtbuild resolve torch`"),
        )
    return found


def _before_copy(text: str, copied: Mapping[str, str], path: Path) -> str:
    """The folder of the project that a Dockerfile copies to a path of its image; the text for any other."""
    for target, source in copied.items():
        rest = text.removeprefix(target)
        for context in (path.parent, path.parent.parent) if rest != text and rest[:1] in {"", "/"} else ():
            folder = Path(os.path.normpath(context / source.lstrip("/") / rest.lstrip("/")))
            with contextlib.suppress(ValueError):  # a name that no folder can have
                if (folder / "setup.py").is_file() or (folder / "pyproject.toml").is_file():
                    return str(folder) if folder.is_absolute() else f".{os.sep}{folder}"
    return text


# -- conda

_LARGEST = 256 << 10
"""Letters of an environment.yml."""
_LARGEST_LOCK = 2 << 20
"""Letters of a conda-lock.yml, which has a row for each package and platform."""
_LONGEST = 1000
"""Letters of a package's line."""
_AS_IN = "as in 'pytorch==1.12.1'"
_SPEC = re.compile(
    r"(?:[\w./:-]+::)?(?P<name>[A-Za-z0-9._-]+?)"
    r"(?:\s*(?:==?|\s)\s*(?P<version>\d[\w.+!]*?)(?:\.?\*)?(?:[=\s]\s*(?P<build>[\w.*]+))?)?\s*(?:#.*)?",
    re.ASCII,
)
_FILE = re.compile(r"(?P<name>.+)-(?P<version>[^-]+)-(?P<build>[^-]+?)\.(?:tar\.bz2|conda)(?:#.*)?", re.ASCII)
_PYTORCH = {"pytorch", "pytorch-gpu", "pytorch-cpu", "pytorch-nightly"}
_NOT_PYTHON = re.compile(
    r"cuda.*|cudnn|nccl|pytorch-(?:cuda|mutex)|mkl.*|lib.*|ld-impl.*|gcc.*|gxx.*|.*-(?:linux-64|compat)|-.*|blas"
    r"|openblas|tensorflow-(?:base|mkl|eigen)|_?tflow.*|intel-openmp|openssl|sqlite|zlib|xz|tk|readline|ncurses"
    r"|ca-certificates|ffmpeg|cmake|make|git"
    r"|hdf5|boost(?:-cpp)?|yaml|eigen|fftw|glib|gst.*|qt(?:-main)?|cairo|pcre2?|expat|fontconfig|dbus|pango|gmp|mpfr|mpc"
    r"|harfbuzz|pixman|giflib|krb5|nettle|gnutls|openh264|x264|x265|lame|snappy|brotli-(?:bin|c)|python_abi|python-abi"
    r"|numpy-base|nodejs|bzip2|freetype|jpeg|icu|zstd|lz4-c|pip|setuptools|wheel|_?(?:ana|mini)?conda(?:[-_].*)?|(?:micro)?mamba|boa|cxx-compiler|compilers"
)
"""Conda packages that are no Python packages, or that every image has."""
_NAMES_CUDA = re.compile(r"(.+?)-cuda-?(\d+)-(\d+)")
"""Names of conda packages that tell their CUDA: dgl-cuda11.1."""
_IN_WHEELS = {
    "matplotlib-base": "matplotlib",
    "msgpack-python": "msgpack",
    "opencv": "opencv-python-headless",
    "py-opencv": "opencv-python-headless",
    "py-xgboost": "xgboost",
    "python-graphviz": "graphviz",
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
        return f"=={self.version}" + (".*" if re.fullmatch(r"\d+(?:\.\d+)?", self.version) else "")

    @property
    def requirement(self) -> str:
        return _IN_WHEELS.get(self.name, self.name) + (self.range or "")

    @property
    def is_of_python(self) -> bool:
        """Whether its build says that it is a package of Python: ``py39h…``, ``pyhd8…`` for any, or pip's own
        ``pypi_0``.
        """
        return bool(re.match(r"pypi|py\d|pyh", self.build or ""))

    def __str__(self) -> str:
        return "=".join(part for part in (self.name, self.version, self.build) if part)


def from_conda(path: Path) -> Wishes:
    """The requirements of ``environment.yml``, ``conda-lock.yml`` or ``conda list --export|--explicit``, told
    in wheels.

    Raises UsageError and CellError, as :func:`read` and :func:`in_wheels` do.
    """
    text = read_text(path)
    try:
        packages, pip = read_conda(text)
    except UsageError as problem:
        raise UsageError(f"{path}: {problem.message}", hint=problem.hint) from problem
    return in_wheels(packages, pip, path, text)


def is_conda(text: str) -> bool:
    """Whether YAML has the keys of an environment of conda's: a list of dependencies beside channels, or
    beside a name. Settings of continuous integration, of services and of documentation have not.
    """
    keys = {*re.findall(r"(?m)^(\w+)\s*:", text)}
    return "dependencies" in keys and bool(keys & {"channels", "name", "prefix"})


def read_conda(text: str) -> tuple[list[CondaPackage], list[str]]:
    """Packages, and pip's requirements, out of ``environment.yml``, ``conda-lock.yml`` (for linux-64) or
    ``conda list --export|--explicit``.

    Raises:
        UsageError: It is none of these.
    """
    if re.search(r"^package\s*:", text, re.MULTILINE):
        document = _yaml(text, _LARGEST_LOCK)
        return _from_lock(document.get("package") if isinstance(document, dict) else None)
    if re.search(r"^dependencies\s*:", text, re.MULTILINE):
        return _from_environment(_yaml(text, _LARGEST))
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith(("#", "@"))]
    return [conda_package(line) for line in lines], []


_CONDA_INSTALL = re.compile(
    r"^\s*(?:[!%]\s*)?(?:(?:sudo|\w+=\S*)\s+)*(?:\S*/)?(?:conda|mamba|micromamba)\s+"
    r"(?P<verb>install|create|env\s+(?:create|update))\b(?P<rest>.*)$"
)


def add_conda_line(line: str, place: str, packages: dict[str, CondaPackage], found: Wishes) -> None:
    """Add the packages that a shell's line installs by conda to ``packages``, the last of each name."""
    for command in re.split(r"&&|;|\|\|?", line):
        match = _CONDA_INSTALL.match(command)
        if match is None:
            continue
        if match["verb"].startswith("env"):
            found.note(place, command.strip(), "`rtbuild resolve -r FILE` reads its file, too")
            continue
        words = iter(re.sub(r"[\"']", "", match["rest"]).split())
        for word in words:
            if word.startswith("-"):
                if re.fullmatch(r"-[cnp]|--(?:channel|name|prefix|file)", word):
                    next(words, None)
            elif "$" in word or "{" in word:
                found.note(place, word, "a variable, whose value is not known here")
            else:
                with contextlib.suppress(UsageError):  # a word of the shell
                    package = conda_package(word)
                    packages[package.name] = package


def add_conda_packages(packages: Mapping[str, CondaPackage], path: Path, found: Wishes) -> None:
    """Take over what lines install by conda, as an environment's packages; the rest becomes a note."""
    if not packages:
        return
    try:
        found.take_over(in_wheels(list(packages.values()), [], path, ""))
    except UsageError:  # none of them comes in wheels
        python = packages.get("python")
        found.python = found.python or (python.range if python is not None else None)
        found.note(str(path), ", ".join(map(str, packages.values())), "installed by conda: not taken over")


def _yaml(text: str, most: int) -> Any:
    if len(text) > most:
        raise UsageError(f"an environment of more than {most >> 10} KiB is not read")
    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)  # libyaml's, where PyYAML has it
    try:
        return yaml.load(text, Loader=loader)  # noqa: S506 - it makes texts and nothing else
    except RecursionError as problem:
        raise UsageError("the conda environment is nested too deep") from problem
    except yaml.YAMLError as problem:
        raise UsageError(f"the conda environment is no YAML: {problem}") from problem


def _from_environment(document: Any) -> tuple[list[CondaPackage], list[str]]:
    """Those of ``environment.yml``."""
    listed = document.get("dependencies") if isinstance(document, dict) else None
    if not isinstance(listed, list):
        raise UsageError("the conda environment has no list of dependencies")
    packages = [conda_package(entry) for entry in listed if isinstance(entry, str)]
    pips = [entry.get("pip") for entry in listed if isinstance(entry, dict)]
    return packages, [
        line for lines in pips if isinstance(lines, list) for line in lines if isinstance(line, str)
    ]


def _from_lock(listed: Any) -> tuple[list[CondaPackage], list[str]]:
    """Those of ``conda-lock.yml`` for linux-64: https://conda.github.io/conda-lock/output/"""
    rows = [row for row in listed if isinstance(row, dict)] if isinstance(listed, list) else []
    mine = [row for row in rows if row.get("platform") == "linux-64"]
    fields = [[str(row.get(name, "")) for name in ("manager", "name", "version", "url")] for row in mine]
    if not fields:
        read = sorted({str(row["platform"]) for row in rows if "platform" in row})
        raise UsageError(
            "conda-lock.yml has no package for linux-64", hint=f"it has {', '.join(read) or 'no platform'}"
        )
    pip = [f"{name}=={version}" for manager, name, version, _ in fields if manager == "pip"]
    return [conda_package(url) for manager, _, _, url in fields if manager != "pip" and url], pip


def conda_package(line: str) -> CondaPackage:
    """A package as a line of conda's has it, or the address of its file. Raises UsageError."""
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
    """The environment's frameworks for the same CUDA in wheels, and the other Python packages beside them.

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
    of_cuda = {one: named for one in packages if (named := _NAMES_CUDA.fullmatch(one.name)) is not None}
    notes += (
        f"{one}: {named[1]} built for CUDA {named[2]}.{named[3]}, by conda's own name: not taken over; its "
        f"maker's page has wheels with CUDA, and {named[1]} of an index may be for the CPU"
        for one, named in of_cuda.items()
    )
    for package in packages:
        framework = load().is_framework(package.name)
        if package.name in _PYTORCH or package.name == "python" or package in of_cuda:
            continue
        if framework and package.build and re.match(r"(?:mkl|eigen|cpu)", package.build):
            raise CellError(
                f"{package} is a build for the CPU",
                hint="conda's builds for a GPU are named gpu_… or cuda…; name no build for the newest",
            )
        unfit = _NOT_PYTHON.fullmatch(package.name) or (exported and not package.is_of_python)
        if not framework and unfit:
            left.append(package.name)
        else:
            found.append(package.requirement)
    if left:
        left.sort(key=lambda name: _NOT_PYTHON.fullmatch(name) is not None)
        shown = ", ".join(left[:6]) + (f" and {len(left) - 6} more" if len(left) > 6 else "")
        listed = "a list of `conda list --export`, which pip does not read; " * (path.suffix == ".txt")
        notes.append(f"{listed}{shown}: not taken over")
    if not found and not pip:
        raise UsageError("the conda environment names no package that comes in wheels")
    wishes = Wishes(python=python, notes=[f"{path}: {note}" for note in notes])
    for wish in found:
        wishes.add(wish, str(path))
    wishes.wishes = [replace(wish, of_conda=True) for wish in wishes.wishes]
    lines = text.splitlines()
    for line in map(str.strip, pip):
        number = next((number for number, raw in enumerate(lines, 1) if line in raw), None)
        place = f"{path}:{number}" if number else str(path)
        if line:
            add_line(_as_pip(line, place, wishes), place, path, wishes)
    return wishes


def _as_pip(line: str, place: str, wishes: Wishes) -> str:
    """A line of a pip section: conda's own ``name=1.2``, which pip refuses, is taken as pinned."""
    if re.fullmatch(r"[A-Za-z][\w.-]*=\d[\w.]*", line) is None:
        return line
    exact = line.replace("=", "==")
    wishes.note(place, line, f"taken as {exact}")
    return exact


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
    rows = [
        row
        for row in reversed(load().frameworks["torch"].rows)
        if contains(row.versions, asked) or short(row.version, 2) == asked  # conda's 1.12 is every 1.12.x
    ]
    offered = ", ".join(sorted({row.cuda or "?" for row in rows}, key=key))
    offered = f"PyTorch {asked} was built for CUDA {offered}"
    if pytorch.build and re.search(r"(?:^|_)cpu", pytorch.build):
        raise CellError(
            f"{pytorch} is the build for the CPU, whichever cudatoolkit lies beside it",
            hint=f"{offered}; conda takes the CPU's where no other fits the rest of the environment",
        )
    cuda = _cuda(pytorch, by_name)
    if cuda is None:
        return f"torch{pytorch.range}", [f"nothing says which CUDA {pytorch} is built for: any; {offered}"]
    notes = list[str]()
    row = max((row for row in rows if _is_of(row, cuda)), key=lambda one: key(one.cuda or ""), default=None)
    near = [one for one in rows if one.cuda is not None and _minor_compatible(one.cuda, cuda)]
    if row is None and near:
        row = min(near, key=lambda one: (key(one.cuda or "") < key(cuda), key(one.cuda or "")))
        notes.append(
            f"the wheel for CUDA {row.cuda} in place of conda's build for {cuda}: one driver serves all of "
            f"CUDA {key(cuda)[0]}, and no cuda-version of it asks for a newer one"
        )
    if row is None and rows:
        told = f"no wheel of {pytorch} is for CUDA {cuda}: {offered}, and its driver serves those, too"
        return f"torch{pytorch.range}", [
            f"{told}; where conda has no build for a cudatoolkit, it may take the CPU's"
        ]
    if row is None:
        raise CellError(
            f"{pytorch} with CUDA {cuda} has no wheel of its kind: there are no facts about PyTorch {asked}",
            hint="where PyTorch has no build for a cudatoolkit, conda may take the one for the CPU",
        )
    built = re.search(r"cudnn(\d+(?:\.\d+)+)", pytorch.build or "")
    if built is not None and row.cudnn is not None and not agree(short(built[1], 2), short(row.cudnn, 2)):
        notes.append(f"cuDNN {row.cudnn} in place of conda's {built[1]}")
    return _torch(row, row.version if len(key(asked)) < 3 else asked), notes


def _torch(row: FrameworkRow, version: str) -> str:
    return f"torch=={version}" if row.default else f"torch=={version}+{row.variant}"


def _newest(pytorch: CondaPackage, by_name: dict[str, CondaPackage], python: str | None) -> str:
    """An open requirement, or the newest build for the CUDA and the Python that stand beside it."""
    cuda = _cuda(pytorch, by_name)
    if cuda is None or pytorch.name == "pytorch-nightly":  # which is of no release
        return f"torch{pytorch.bounds or ''}"
    rows = [
        row
        for row in load().frameworks["torch"].rows
        if _is_of(row, cuda)
        and (python is None or any(contains(pythons(python), f"{p}.99") for p in row.python))
        and (pytorch.bounds is None or contains(SpecifierSet(pytorch.bounds), row.version))
    ]
    if not rows:
        raise CellError(f"there is no PyTorch on record for CUDA {cuda} and Python {python or 'any'}")
    row = max(rows, key=lambda row: (release(row.version), key(row.cuda or "")))
    return _torch(row, row.version)


def _is_of(row: FrameworkRow, cuda: str) -> bool:
    """Whether a build is for a CUDA as conda writes it: ``11`` is every 11.x."""
    return row.cuda is not None and short(row.cuda, 2 if "." in cuda else 1) == short(cuda, 2)


def _minor_compatible(one: str, other: str) -> bool:
    """Whether one driver serves both: the same major version, from CUDA 12 on all of it alike
    (https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html).
    """
    return key(one)[0] == key(other)[0] >= 12


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
        # conda-forge's builds for CUDA 12 run with all of its later minor versions
        later = name == "cuda-version" and key(version) >= key(built) and _minor_compatible(built, version)
        if not agree(built, version) and not later:
            raise CellError(
                f"{pytorch} is built for CUDA {built}, and the environment holds {name}={version}",
                hint="libraries of another CUDA are loaded by chance; install the toolkit of the build",
            )
    return built
