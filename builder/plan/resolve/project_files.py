"""Requirements out of a project's own files: ``pyproject.toml`` (PEP 621, Poetry), ``pylock.toml`` (PEP 751),
notebooks, with what their code imports, and conda environments with PyTorch told in wheels:
``cudatoolkit=11.3`` becomes ``torch==1.12.1+cu113``.

The formats: https://packaging.python.org/en/latest/specifications/pyproject-toml/,
https://packaging.python.org/en/latest/specifications/pylock-toml/,
https://docs.conda.io/projects/conda/en/stable/user-guide/concepts/pkg-specs.html

rtbuild installs no conda packages. PyTorch's own channel has the same releases for the same CUDA versions as
PyTorch's package indexes, and its build strings tell CUDA and cuDNN (``py3.9_cuda11.3_cudnn8.3.2_0``): so an
environment can be told in wheels, or it can be said why it cannot have used a GPU.
"""

import ast
import contextlib
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from packaging.markers import Marker
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from builder.core.documents import CONTROL, MalformedError, parse_json, parse_toml, shown
from builder.core.errors import CellError, UsageError
from builder.core.versions import NO_NUMBER, agree, canonical, contains, key, release, requirement, short
from builder.plan.facts.tables import FrameworkRow, load
from builder.plan.resolve.requirements import (
    LONGEST,
    Wishes,
    add_line,
    files_beside,
    install_line,
    nothing,
    quoted,
    read_text,
)
from builder.plan.resolve.solve import pythons


def from_pyproject(path: Path) -> Wishes:
    """``[project]``'s dependencies and ``requires-python``, or Poetry's. Raises UsageError."""
    document = _toml(path, read_text(path))
    found = Wishes()
    project = _table(document, "project", path)
    poetry = _table(_table(document, "tool", path), "poetry", path)
    listed, bound = project.get("dependencies", []), project.get("requires-python", "")
    if not isinstance(listed, list) or not isinstance(bound, str):
        text = "project.dependencies has to be a list of texts, and requires-python a text"
        raise UsageError(f"{path}: {text}")
    for text in listed:
        found.add(str(text), f"{path}, project.dependencies")
    found.python = bound or None
    for name, value in _table(poetry, "dependencies", path).items():
        _poetry(name, value, path, found)
    _extras(_table(project, "optional-dependencies", path), path, found)
    if not found.wishes:
        raise UsageError(f"{path} names no dependencies", hint="they stand under [project], as dependencies")
    return found


def _extras(extras: Mapping[str, Any], path: Path, found: Wishes) -> None:
    """The frameworks that a project's extras alone name, if all extras that name one ask for the same of it;
    notes for the rest. An extra of the CPU's build and one of CUDA's differ in their index alone.
    """
    asked: dict[str, dict[str, list[str]]] = {}
    for group, texts in extras.items():
        for parsed in map(requirement, map(str, texts if isinstance(texts, list) else [])):
            if parsed is not None and parsed.url is None and load().is_framework(canonical(parsed.name)):
                asked.setdefault(canonical(parsed.name), {}).setdefault(str(parsed), []).append(group)
    own = any(load().is_framework(wish.name) for wish in found.wishes)
    taken = {} if own else {name: texts for name, texts in asked.items() if len(texts) == 1}
    for texts in taken.values():
        for text, groups in texts.items():
            found.add(text, f"{path}, the extras {', '.join(map(quoted, groups))}")
    for group in extras:
        but = [text for texts in taken.values() for text, groups in texts.items() if group in groups]
        rest = f" but for {', '.join(but)}" if but else ""
        found.notes.append(
            f"{path}: the extra '{quoted(group)}' is not taken over{rest}; name its packages beside"
        )


def from_pylock(path: Path) -> Wishes:
    """The packages of a ``pylock.toml``, each at its version, and its Python.

    Raises UsageError, with line and column, for a document that the specification does not allow:
    https://packaging.python.org/en/latest/specifications/pylock-toml/
    """
    text = read_text(path)
    document = _toml(path, text)
    packages, version = document.get("packages"), document.get("lock-version")
    if not isinstance(packages, list) or not isinstance(version, str):
        raise UsageError(f"{path} is no lock of PEP 751", hint="it has `lock-version` and [[packages]]")
    top, inner = _places(text)
    if version.partition(".")[0] != "1":
        said = f"{path}{top.get('lock-version', '')}: its lock-version is {shown(version, most=20)}"
        raise UsageError(f"{said}, and 1.0 is read", hint="lock again with a tool that writes 1.0")
    found = Wishes()
    if (bound := document.get("requires-python")) is not None:
        where = f"{path}{top.get('requires-python', '')}"
        found.python = _checked(
            bound, where, SpecifierSet, "a set of Pythons, as in requires-python = '>=3.11'"
        )
    for number, package in enumerate(packages, 1):
        # inline tables have no header of their own, by which they would be found
        places = inner[number - 1] if len(inner) == len(packages) else {}
        _locked(package, partial(_place, path, number, places), found)
    if not found.wishes:
        raise UsageError(
            f"{path} locks no package by version", hint="each has name = 'torch', version = '2.9.1'"
        )
    return found


def _locked(package: Any, place: Callable[[str], str], found: Wishes) -> None:
    if not isinstance(package, dict) or "name" not in package:
        raise UsageError(
            f"{place('')} has no name", hint="each of [[packages]] has one, as in name = 'torch'"
        )
    a_name, a_version, a_marker = (
        "the name of a package, as in name = 'torch'",
        "one version, as in version = '2.9.1'",
        "an environment marker, as in marker = 'sys_platform == \"linux\"'",
    )
    name = _checked(package["name"], place("name"), partial(canonicalize_name, validate=True), a_name)
    if "version" not in package:
        found.leave_out(name, place(""))  # a folder, an archive or a repository
        return
    text = f"{name}=={_checked(package['version'], place('version'), Version, a_version)}"
    if "marker" in package:
        marker = _checked(package["marker"], place("marker"), Marker, a_marker)
        if re.search(r"\b(?:extras|dependency_groups)\b", re.sub(r"'[^']*'|\"[^\"]*\"", "", marker)):
            found.note(place("marker"), name, "not taken over: it is of an extra or a group; name it beside")
            return
        text += f" ; {marker}"
    found.add(text, place("version"))


def _checked(value: Any, place: str, read: Callable[[str], Any], wanted: str) -> str:
    """The value, if it is a text that ``read`` takes; else UsageError, which says what was ``wanted``."""
    if isinstance(value, str) and len(value) <= LONGEST and not NO_NUMBER.search(value):
        with contextlib.suppress(ValueError, RecursionError):
            read(value)
            return value
    raise UsageError(f"{place}: {quoted(str(value))!r} is not {wanted.partition(',')[0]}", hint=wanted)


def _place(path: Path, number: int, places: Mapping[str, str], key: str) -> str:
    found = places.get(key) or places.get("")
    return f"{path}{found}" if found else f"{path}, package {number}"


def _places(text: str) -> tuple[dict[str, str], list[dict[str, str]]]:
    """The places of values, as ``:12:11``: the document's own keys, and those of each of its
    ``[[packages]]``.

    A package's header is at ``""``. Python's reader of TOML tells no places.
    """
    top: dict[str, str] = {}
    inner: list[dict[str, str]] = []
    now: dict[str, str] | None = top
    for number, line in enumerate(text.split("\n"), 1):
        key = re.match(r"[ \t]*([\w-]+)[ \t]*=[ \t]*", line[:LONGEST])
        if re.match(r"[ \t]*\[\[[ \t]*packages[ \t]*\]\]", line[:LONGEST]):
            now = {"": f":{number}:{line.index('[') + 1}"}
            inner.append(now)
        elif line.lstrip(" \t").startswith("["):
            now = None
        elif key and now is not None:
            now.setdefault(key[1], f":{number}:{key.end() + 1}")
    return top, inner


def _toml(path: Path, text: str) -> dict[str, Any]:
    try:
        return parse_toml(text.encode())
    except MalformedError as problem:
        raise UsageError(f"{path}{problem.place}: {problem}", hint="its syntax: https://toml.io") from problem


def _table(document: dict[str, Any], name: str, path: Path) -> dict[str, Any]:
    found = document.get(name, {})
    if not isinstance(found, dict):
        raise UsageError(f"{path}: '{name}' is no table")
    return found


def _poetry(name: str, value: Any, path: Path, found: Wishes) -> None:
    place = f"{path}, tool.poetry.dependencies"
    table = value if isinstance(value, dict) else {"version": value}
    version = table.get("version")
    if not isinstance(version, str):
        found.leave_out(name, place)
        return
    bounds = ",".join(_poetry_bound(part.strip()) for part in version.split(","))
    if name == "python":
        found.python = bounds
        return
    extras = table.get("extras")
    brackets = f"[{','.join(map(str, extras))}]" if isinstance(extras, list) and extras else ""
    marker = f" ; {table['markers']}" if table.get("markers") else ""
    found.add(f"{name}{brackets}{bounds}{marker}", place)


def _poetry_bound(text: str) -> str:
    """``^2.1`` and ``~2.1`` as Python's own specifiers; ``*`` is every version."""
    sign = re.fullmatch(r"([\^~])\s*([0-9]{1,9}(?:\.[0-9]{1,9})*)", text)
    if sign is None:
        return "" if text == "*" else f"=={text}" if re.match(r"\d", text) else text
    parts = [int(part) for part in sign[2].split(".")]
    keep = next((n for n, part in enumerate(parts) if part), len(parts) - 1) if sign[1] == "^" else 1
    keep = min(keep, len(parts) - 1)
    upper = [*parts[:keep], parts[keep] + 1]
    return f">={sign[2]},<{'.'.join(map(str, upper))}"


# -- notebooks: https://nbformat.readthedocs.io/


def from_notebook(path: Path) -> Wishes:
    """The packages of ``!pip install`` and ``%pip install`` lines, in order, and what the code imports.

    Raises UsageError.
    """
    try:
        document = parse_json(read_text(path))
        cells = list(document["cells"] if "cells" in document else document["worksheets"][0]["cells"])
    except (ValueError, KeyError, IndexError, TypeError) as problem:
        raise UsageError(f"{path} is no notebook", hint="a notebook is JSON with cells: .ipynb") from problem
    found = Wishes()
    take_file, code = files_beside(path, found), list[tuple[str, str]]()
    for number, cell in enumerate(cells, 1):
        if not isinstance(cell, dict) or cell.get("cell_type") != "code":
            continue
        source = cell.get("source", cell.get("input", ""))
        lines = source if isinstance(source, list) else []
        text = source if isinstance(source, str) else "".join(map(str, lines))
        found.imports += imports_of_source(re.sub(r"(?m)^[ \t]*[!%].*$", "", text))
        shell = text.lstrip().startswith(("%%bash", "%%sh", "%%script"))
        for line_number, line in enumerate(re.sub(r"\\\n", " ", text).splitlines(), 1):
            code.append((line, f"cell {number}, line {line_number}"))
            if shell or line.lstrip().startswith(("!", "%")):
                install_line(line, f"{path}, cell {number}, line {line_number}", found, take_file)
    if not found.wishes:
        way = _imported(code) or "lines such as `!pip install torch` are read"
        raise nothing(f"{path} installs nothing by pip", found, way)
    return found.once()


def _imported(code: Sequence[tuple[str, str]]) -> str | None:
    """The hint for the first framework that a notebook's lines import, with the lines that say it.

    ``code``: each line and its place.
    """
    wanted = {row.module: row.distribution for row in load().registry if row.distribution}
    for line, place in code:
        found = re.match(r"\s*(?:import|from)\s+(\w+)", line)
        if found is None or (name := wanted.get(found[1])) is None:
            continue
        old = (one for one in code if re.match(r"\s*%tensorflow_version 1", one[0]))
        if name == "tensorflow" and (first := next(old, None)) is not None:
            said = f"; {first[1]} has `{quoted(first[0].strip())}`"
            return f"it imports {name} ({place}){said}: `rtbuild resolve 'tensorflow<2'`"
        return f"it imports {name} ({place}): `rtbuild resolve {shlex.quote(name)}`"
    return None


def imports_of_source(text: str) -> list[str]:
    """What a source certainly imports, as a cell's ``imports`` has it: ``a.b`` and ``a:name``.

    Statements of its own level alone, since a ``try`` or an ``if`` may leave one out; nothing of a relative
    import, nor of source that this Python cannot read.
    """
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    found = list[str]()
    for node in body:
        if isinstance(node, ast.Import):
            found += (one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module is not None:
            found += (node.module if one.name == "*" else f"{node.module}:{one.name}" for one in node.names)
    return found


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
    return [_package(line) for line in lines], []


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
    packages = [_package(entry) for entry in listed if isinstance(entry, str)]
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
    return [_package(url) for manager, _, _, url in fields if manager != "pip" and url], pip


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
    for wish in found:
        wishes.add(wish, str(path))
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
    notes = list[str]()
    row = next((row for row in rows if row.cuda == short(cuda, 2)), None)
    near = [one for one in rows if one.cuda is not None and _minor_compatible(one.cuda, cuda)]
    if row is None and near:
        row = min(near, key=lambda one: (key(one.cuda or "") < key(cuda), key(one.cuda or "")))
        notes.append(
            f"the wheel for CUDA {row.cuda} in place of conda's build for {cuda}: one driver serves all of "
            f"CUDA {key(cuda)[0]}, and no cuda-version of it asks for a newer one"
        )
    if row is None:
        why = f"{offered}, not {cuda}" if rows else f"there are no facts about PyTorch {asked}"
        raise CellError(
            f"{pytorch} with CUDA {cuda} has no wheel of its kind: {why}",
            hint="where PyTorch has no build for a cudatoolkit, conda may take the one for the CPU",
        )
    version = row.version if len(key(asked)) < 3 else asked
    built = re.search(r"cudnn(\d+(?:\.\d+)+)", pytorch.build or "")
    if built is not None and row.cudnn is not None and not agree(short(built[1], 2), short(row.cudnn, 2)):
        notes.append(f"cuDNN {row.cudnn} in place of conda's {built[1]}")
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
