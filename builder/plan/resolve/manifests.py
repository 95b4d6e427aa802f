"""Requirements out of manifests and locks: ``pyproject.toml`` (PEP 621, Poetry, PDM, uv's indexes),
``Pipfile``, ``pixi.toml``, ``pylock.toml`` (PEP 751), ``Pipfile.lock``, and the locks of uv, Poetry and PDM.

The formats: https://packaging.python.org/en/latest/specifications/pyproject-toml/,
https://packaging.python.org/en/latest/specifications/pylock-toml/,
https://python-poetry.org/docs/dependency-specification/,
https://docs.astral.sh/uv/concepts/projects/dependencies/, https://github.com/pypa/pipfile,
https://pixi.prefix.dev/latest/reference/pixi_manifest/
"""

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from packaging.markers import Marker
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from builder.core.documents import MalformedError, parse_json, parse_toml, shown
from builder.core.errors import UsageError
from builder.core.versions import NO_NUMBER, canonical, holds, requirement
from builder.plan.facts.tables import load
from builder.plan.resolve.environments import (
    CondaPackage,
    add_conda_packages,
    conda_package,
)
from builder.plan.resolve.project_texts import LONGEST, quoted, read_text
from builder.plan.resolve.requirements import add_extras, files_beside
from builder.plan.resolve.wishes import Wishes
from builder.sources.index import MACHINES, environment

# -- pyproject.toml


def from_pyproject(path: Path) -> Wishes:
    """``[project]``'s dependencies and ``requires-python``, or Poetry's, with the indexes that Poetry, PDM
    and uv take them from. Raises UsageError.
    """
    document = _toml(path, read_text(path))
    found = Wishes()
    project, tool = _table(document, "project", path), _table(document, "tool", path)
    poetry, uv = _table(tool, "poetry", path), _table(tool, "uv", path)
    listed, bound = project.get("dependencies", []), project.get("requires-python", "")
    if not isinstance(listed, list) or not isinstance(bound, str):
        text = "project.dependencies has to be a list of texts, and requires-python a text"
        raise UsageError(f"{path}: {text}")
    for text in listed:
        found.add(str(text), f"{path}, project.dependencies")
    found.python = bound or None
    for name, value in _table(poetry, "dependencies", path).items():
        _poetry(name, value, f"{path}, tool.poetry.dependencies", found)
    dynamic = _table(_table(_table(tool, "setuptools", path), "dynamic", path), "dependencies", path)
    for name in _texts(dynamic.get("file")):
        files_beside(path)(name, f"{path}, tool.setuptools.dynamic", found)
    _uv(uv, path, found)
    if "pixi" in tool:  # its manifest may stand here: https://pixi.prefix.dev/latest/python/pyproject_toml/
        _pixi(_table(tool, "pixi", path), path, found)
    for source in (*_tables(poetry.get("source")), *_tables(_table(tool, "pdm", path).get("source"))):
        _source(source, path, found)
    extras = _table(project, "optional-dependencies", path)
    add_extras(extras, path, found, str(project.get("name", "")))
    if not found.wishes and "dependencies" in _texts(project.get("dynamic")):
        raise UsageError(
            f"{path} leaves its dependencies to its build",
            hint=f"`rtbuild resolve -r {path.parent}` reads its other files, too",
        )
    if not found.wishes:
        raise UsageError(f"{path} names no dependencies", hint="they stand under [project], as dependencies")
    return found


def _texts(value: Any) -> list[str]:
    """A text, or a list of them; empty for any other value."""
    listed = value if isinstance(value, list) else [value]
    return [one for one in listed if isinstance(one, str)]


def _tables(value: Any) -> list[dict[str, Any]]:
    """A table, or a list of them; empty for any other value."""
    listed = value if isinstance(value, list) else [value]
    return [one for one in listed if isinstance(one, dict)]


def _source(source: Mapping[str, Any], path: Path, found: Wishes) -> None:
    """An index of Poetry's, PDM's or Pipenv's; the default one is the user's own."""
    name, url = str(source.get("name", "")), source.get("url")
    if isinstance(url, str) and name.lower() != "pypi":
        found.add_index(url, f"{path}, source '{quoted(name)}'")


def _uv(uv: Mapping[str, Any], path: Path, found: Wishes) -> None:
    """The indexes that uv takes packages from on Linux: https://docs.astral.sh/uv/concepts/indexes/"""
    sources = _table(dict(uv), "sources", path)
    linux = environment("3.12.0", machine=MACHINES["linux/amd64"])
    used = set[str]()
    urls = {str(one.get("name", "")): str(one.get("url", "")) for one in _tables(uv.get("index"))}
    for name, value in sources.items():
        mine = set[str]()
        for one in _tables(value):
            marked = requirement(f"x ; {one['marker']}") if "marker" in one else None
            if marked is not None and not holds(marked, linux):
                continue
            if "index" in one:
                mine.add(str(one["index"]))
            elif "extra" not in one and "group" not in one:
                found.leave_out(f"{name} @ {_address(one)}", f"{path}, tool.uv.sources")
                found.wishes = [wish for wish in found.wishes if wish.name != canonical(name)]
        cpu = {one for one in mine if re.search(r"/whl/cpu/?$", urls.get(one, ""))}
        if cpu and cpu != mine:  # extras that exclude one another, of which a card takes that with CUDA
            why = "left out: it is of the extra for the CPU alone"
            for bare in sorted(cpu):
                found.note(f"{path}, [[tool.uv.index]] '{quoted(bare)}'", urls[bare], why)
            mine -= cpu
        used |= mine
    for name, url in urls.items():
        explicit = any(
            one.get("explicit") is True for one in _tables(uv.get("index")) if one.get("name") == name
        )
        if url and name.lower() != "pypi" and (name in used or not explicit):
            found.add_index(url, f"{path}, [[tool.uv.index]] '{quoted(name)}'")
    for url in _texts(uv.get("extra-index-url")):
        found.add_index(url, f"{path}, tool.uv.extra-index-url")


def _address(table: Mapping[str, Any]) -> str:
    """A source archive's, a folder's or a repository's place, as pip writes it."""
    if "git" in table:
        return f"git+{table['git']}"
    return str(table.get("url") or f"file:{table.get('path', '.')}")


def _poetry(name: str, value: Any, place: str, found: Wishes) -> None:
    """One package as Poetry, Pipenv and pixi write it: a version, a table, or a table for each marker."""
    if isinstance(value, list):
        for one in value:
            _poetry(name, one, place, found)
        return
    table = value if isinstance(value, dict) else {"version": value}
    version = table.get("version")
    if not isinstance(version, str):
        url = table.get("url", table.get("file"))
        if isinstance(url, str) and "://" in url:
            found.add(f"{name} @ {url}", place)
        else:
            found.leave_out(f"{name} @ {_address(table)}" if isinstance(value, dict) else name, place)
        return
    if "||" in version or re.search(r"\d\s+[<>=~^]", version):
        found.note(place, f"{name} = {version}", "not read: a set of alternatives; taken in any release")
        version = "*"
    bounds = ",".join(filter(None, (_poetry_bound(part.strip()) for part in version.split(","))))
    if name == "python":
        found.python = bounds or None
        return
    if table.get("optional") is True and not load().is_framework(canonical(name)):
        found.note(place, f"{name} = {version}", "not taken over: it is of an extra; name it beside")
        return
    extras = table.get("extras")
    brackets = f"[{','.join(map(str, extras))}]" if isinstance(extras, list) and extras else ""
    markers = [f"({table['markers']})"] if isinstance(table.get("markers"), str) else []
    markers += [f"{key} {table[key]}" for key in _MARKERS if isinstance(table.get(key), str)]
    if isinstance(table.get("python"), str):
        parts = (_poetry_bound(part.strip()) for part in table["python"].split(","))
        clauses = (re.fullmatch(r"([<>=!~]+)(.*)", one) for part in parts for one in part.split(","))
        markers += [f"python_version {one[1]} '{one[2]}'" for one in clauses if one is not None]
    marker = f" ; {' and '.join(markers)}" if markers else ""
    found.add(f"{name}{brackets}{bounds}{marker}", place)


_MARKERS = ("sys_platform", "os_name", "platform_machine", "platform_system", "python_version")
"""Markers that are keys of their own: https://pipenv.pypa.io/en/latest/specifiers.html"""


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


# -- pylock.toml


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


# -- Pipenv


def from_pipfile(path: Path) -> Wishes:
    """``[packages]`` and ``[requires]`` of a Pipfile. Raises UsageError."""
    document, found = _toml(path, read_text(path)), Wishes()
    for name, value in _table(document, "packages", path).items():
        _poetry(name, value, f"{path}, packages", found)
    requires = _table(document, "requires", path)
    python = requires.get("python_version", requires.get("python_full_version"))
    found.python = python if isinstance(python, str) else None
    for source in _tables(document.get("source"))[1:]:  # the first is the default index
        _source(source, path, found)
    if not found.wishes:
        raise UsageError(f"{path} names no packages", hint="they stand under [packages]")
    return found


def from_pipfile_lock(path: Path) -> Wishes:
    """The packages of a Pipfile.lock's ``default``, each at its version. Raises UsageError."""
    try:
        document = parse_json(read_text(path))
        packages, meta = dict(document["default"]), document.get("_meta", {})
        python = meta.get("requires", {}).get("python_version")
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        raise UsageError(f"{path} is no lock of Pipenv's", hint="it is JSON with `default`") from problem
    found = Wishes(python=python if isinstance(python, str) else None)
    for name, value in packages.items():
        _poetry(name, value, f"{path}, default", found)
    return found


# -- pixi.toml


def from_pixi(path: Path) -> Wishes:
    """The packages of ``pixi.toml`` that each environment has, and those for linux-64: conda's told in
    wheels, PyPI's beside them. Those of a feature become a note. Raises UsageError and CellError.
    """
    document, found = _toml(path, read_text(path)), Wishes()
    _pixi(document, path, found)
    if not found.wishes:
        raise UsageError(f"{path} names no packages", hint="they stand under [dependencies]")
    return found


def _pixi(document: dict[str, Any], path: Path, found: Wishes) -> None:
    """Add what a manifest of pixi's names for all environments."""
    conda = dict[str, CondaPackage]()
    linux = _table(_table(document, "target", path), "linux-64", path)
    for table in (document, linux):
        for name, value in _table(table, "dependencies", path).items():
            if isinstance(value, dict) and {"git", "path", "url"} & value.keys():
                found.leave_out(f"{name} @ {_address(value)}", f"{path}, dependencies")
                continue
            version = value.get("version") if isinstance(value, dict) else value
            told = version.strip() if isinstance(version, str) else "*"
            exact = re.fullmatch(r"(\d[\w.]*?)(?:\.\*)?", told)
            try:
                package = conda_package(f"{name}={exact[1]}" if exact else name + told.strip("*"))
            except UsageError as problem:
                raise UsageError(f"{path}: {problem.message}", hint=problem.hint) from problem
            conda[package.name] = package
        for name, value in _table(table, "pypi-dependencies", path).items():
            _poetry(name, value, f"{path}, pypi-dependencies", found)
    features = [
        f"[feature.{quoted(name)}]{_frameworks_of(table)}"
        for name, table in _table(document, "feature", path).items()
    ]
    if features:
        way = "an environment has some of them: name its packages beside"
        found.notes.append(f"{path}: {', '.join(features)}: not taken over: {way}")
    add_conda_packages(conda, path, found)


def _frameworks_of(feature: Any) -> str:
    """`` (pytorch 2.3.0)``: the frameworks of a feature of pixi's, with their versions."""
    told = []
    for key in ("dependencies", "pypi-dependencies"):
        listed = feature.get(key) if isinstance(feature, dict) else None
        for name, value in listed.items() if isinstance(listed, dict) else ():
            version = value.get("version") if isinstance(value, dict) else value
            if load().is_framework(canonical(name)) or canonical(name) == "pytorch":
                told.append(quoted(f"{name} {version}" if isinstance(version, str) else name))
    return f" ({', '.join(told)})" if told else ""


# -- locks of uv, Poetry and PDM


def from_lock(path: Path) -> Wishes:
    """What no other package of a lock of uv's, Poetry's or PDM's brings, and frameworks, each at its version.

    The rest follows from these: it differs by platform, and the lock does not say of each package for which.
    Raises UsageError.
    """
    document, found = _toml(path, read_text(path)), Wishes()
    packages = _tables(document.get("package"))
    if not packages:
        raise UsageError(f"{path} has no package")
    own = {p.get("name") for p in packages if {"virtual", "editable"} & {*_table(p, "source", path)}}
    brought = {
        canonical(name)
        for package in packages
        if package.get("name") not in own
        for name in _dependencies(package)
        if canonical(name) != canonical(str(package.get("name")))
    }
    if own:  # of uv's lock the project's own row says what is asked for
        asked = {canonical(n) for p in packages if p.get("name") in own for n in _dependencies(p)}
    else:
        asked = {canonical(str(p.get("name"))) for p in packages} - brought
    left = 0
    for package in packages:
        name, version = str(package.get("name")), package.get("version")
        group = {*_texts(package.get("groups")), *_texts(package.get("category"))}
        known = canonical(name) in asked or load().is_framework(canonical(name))
        if (
            package.get("name") in own
            or (group and not group & {"main", "default"})
            or package.get("optional") is True
        ):
            continue
        if not known:
            left += 1
            continue
        source = _table(package, "source", path)
        if not isinstance(version, str) or {"git", "directory", "path", "url"} & {
            *source,
            source.get("type"),
        }:
            found.leave_out(f"{name} @ {_address(source)}", str(path))
            continue
        markers = _texts(package.get("markers")) or _texts(package.get("marker"))
        forks = [f"({one})" for one in _texts(package.get("resolution-markers"))]
        marker = " or ".join(forks) if forks else markers[0] if markers else ""
        found.add(f"{name}=={version}" + (f" ; {marker}" if marker else ""), str(path))
        url = source.get("registry") or (source.get("url") if source.get("type") == "legacy" else None)
        if isinstance(url, str) and re.search(r"/whl/cu\d+", url) and load().is_framework(canonical(name)):
            found.add_index(url, str(path))
    metadata = _table(document, "metadata", path)
    python = document.get("requires-python", metadata.get("python-versions", metadata.get("requires_python")))
    if isinstance(python, str) and python.strip() not in {"", "*"}:
        found.python = ",".join(_poetry_bound(part.strip()) for part in python.split(","))
    if left:
        found.notes.append(f"{path}: {left} packages that others of it bring are not pinned")
    if not found.wishes:
        raise UsageError(f"{path} locks no package by version")
    return found


def _dependencies(package: Mapping[str, Any]) -> Iterator[str]:
    """The names of what a locked package asks for: tables of uv's, keys of Poetry's, texts of PDM's."""
    listed = package.get("dependencies", [])
    for one in listed if isinstance(listed, list | dict) else []:
        if isinstance(one, dict):
            yield str(one.get("name", ""))
        elif (found := re.match(r"[\w.-]+", str(one))) is not None:
            yield found[0]
