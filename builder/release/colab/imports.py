"""From a Colab runtime to a matrix, and to the record that says what became of each of its packages.

Its image can stand on any base, with a standalone Python, else on one that has its Python.
"""

import json
import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from builder.core.errors import CellError
from builder.core.model import Profile
from builder.core.versions import at_least, canonical, contains, lower_bound, pinned, release, requirement
from builder.core.versions import key as version_key
from builder.image.compose import Pythons
from builder.image.sdist import Workshop
from builder.plan.facts.rules import Combination, Outcome, check, choices
from builder.plan.facts.tables import load
from builder.plan.matrix import DEBIAN_SUITES, PROFILE_PYTHON
from builder.plan.matrix import load as read_matrix
from builder.release.colab.match import Match, Matching, Progress, build_missing, match_packages
from builder.release.colab.runtimes import REPOSITORY, Runtime
from builder.sources.index import Index, Target, offered

PLATFORM = "linux/amd64"
"""Colab's only one."""
# Of the packages that Colab asked apt for, those that notebooks call by '!' or that wheels load, and that
# have the same name in Ubuntu and in Debian.
_APT = (
    "curl", "ffmpeg", "file", "git", "graphviz", "jq", "less", "libegl1", "libgl1", "libglib2.0-0", "libsm6",
    "libsndfile1", "libxext6", "libxrender1", "procps", "rsync", "unzip", "wget", "zip",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class BaseChoice:
    """One base for the runtime. ``note`` says in what it is not Colab's own system."""

    base: str
    system: str
    """Its row in the table of systems."""
    note: str = ""

    @property
    def suite(self) -> str | None:
        """The Debian release, whose CUDA and cuDNN are NVIDIA's wheels; None for NVIDIA's image."""
        return self.base.removeprefix("rootfs:debian/") if self.base.startswith("rootfs:") else None


@dataclass(frozen=True, kw_only=True)
class Imported:
    runtime: Runtime
    choices: tuple[BaseChoice, ...]
    no_base: tuple[str, ...]
    """Why a kind of base is not among :attr:`choices`."""
    matching: Matching
    apt: tuple[str, ...]
    runtime_apt: tuple[str, ...] = ()
    """Debian packages beside :attr:`apt` that what was compiled loads libraries of."""
    profile: Profile = "colab"
    standalone: str | None = None
    """The very Python of the runtime, if there is a standalone one."""
    cpu_only: bool = False
    """None of its frameworks has code for GPUs as it is listed: JAX without its plug-in."""

    @property
    def name(self) -> str:
        """The matrix's: ``colab-2025.07``."""
        plain = re.sub("[^a-z0-9]+", lambda found: "." if found[0] == "." else "-", self.runtime.name.lower())
        return f"colab-{plain.strip('.-') or 'runtime'}"

    def note(self, choice: BaseChoice) -> str:
        """In what the image on a base is not Colab's own system."""
        wheels = choice.suite is not None and _cuda(self) != ["cuda: none"]
        return f"{choice.note}; CUDA and cuDNN are NVIDIA's wheels" if wheels else choice.note

    @property
    def frameworks(self) -> tuple[str, ...]:
        """``tensorflow==2.18.0``, …, as the matrix has them."""
        by_name = {match.package.key: match for match in self.matching.found}
        found = [by_name[name] for name in imported_frameworks() if name in by_name]
        # without its compiled half jax is a package like others, if there are others
        if not any(re.fullmatch(r"jaxlib|jax-cuda\d+-plugin", name) for name in by_name):
            found = [match for match in found if match.package.key != "jax"] or found
        return tuple(_framework(match, by_name) for match in found)


def imported_frameworks() -> list[str]:
    """The entries under ``framework`` of an import; the probe finds the others by itself."""
    return [row.distribution for row in load().registry if row.distribution is not None and row.colab]


def import_runtime(
    runtime: Runtime,
    *,
    index: Index,
    profile: Profile = "colab",
    progress: Progress = lambda _text, _done, _of: None,
    workshop: Workshop | None = None,
) -> Imported:
    """Ask the index about every package of the runtime, and choose what its image can stand on.

    With ``workshop`` it is tried to build what the index has only sources of.

    Raises:
        CellError: no base has its Python, or none of its frameworks is on the index.
        PackageIndexError: the index did not answer.
    """
    oldest = PROFILE_PYTHON.get(profile, 0)
    if not at_least(runtime.python_minor, f"3.{oldest}"):
        needs = f"the profile '{profile}' needs Python 3.{oldest} or later"
        raise CellError(f"{needs}, {runtime.name} has {runtime.python}", hint="--profile plain")
    known = {one.version for one in offered(PLATFORM)}
    standalone = runtime.python if runtime.python in known else None
    choices, no_base = choose_bases(runtime, any_python=standalone is not None)
    if not choices:
        said = "\n  ".join([f"nothing to build {runtime.name} on:", *no_base])
        hint = "neither a base nor uv's catalogue has its Python; import another runtime"
        raise CellError(said, hint=hint)
    glibc = min((load().systems[choice.system].glibc for choice in choices), key=version_key)
    target = Target(python=runtime.python_minor, platform=PLATFORM, glibc=glibc)
    matching = match_packages(runtime.packages, index=index, target=target, progress=progress)
    asked = [name for name in _APT if name in runtime.apt and runtime.apt[name].manual]
    # OpenMP's is loaded by wheels (scikit-learn's, PyTorch's), and part of every Ubuntu with a compiler.
    apt = tuple(sorted({*asked, "libgomp1"}))
    runtime_apt: tuple[str, ...] = ()
    if workshop is not None:
        suite = next((choice.suite for choice in choices if choice.suite is not None), None)
        pythons = Pythons(workshop.cache)
        interpreter = None if standalone is None else pythons.pin(standalone, PLATFORM, glibc=None)
        matching = build_missing(
            matching,
            index=index,
            target=target,
            debian=workshop.debian,
            workshop=workshop,
            interpreter=interpreter,
            suite=suite,
            progress=progress,
        )
        loaded = {name for m in matching.found if m.compiled is not None for name in m.compiled.libraries}
        if suite is not None and loaded:
            small = workshop.debian.resolve(suite, platform=PLATFORM, packages=apt, python=standalone is None)
            runtime_apt = tuple(sorted(loaded - {deb.package for deb in small.debs}))
    imported = Imported(
        runtime=runtime,
        choices=choices,
        no_base=no_base,
        matching=matching,
        apt=apt,
        runtime_apt=runtime_apt,
        profile=profile,
        standalone=standalone,
    )
    if not imported.frameworks:
        reasons = [m for m in matching.missing if m.package.key in imported_frameworks()]
        raise CellError(
            f"none of {', '.join(imported_frameworks())} of {runtime.name} is to be had: "
            + ("; ".join(f"{m.package.name}: {m.detail}" for m in reasons) or "the list names none"),
            hint="another index may have them: UV_INDEX, or pip's extra-index-url",
        )
    return _accepted(imported)


def _accepted(imported: Imported) -> Imported:
    """The import with the bases on which its packages can work; for each other base the reason is said.

    Raises CellError if there is none.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "imported.yaml"
        path.write_text(matrix_text(imported), encoding="utf-8")
        cells = read_matrix(path).cells
    refused, without_code = {}, set()
    for choice, cell in zip(imported.choices, cells, strict=True):
        wrong = [found for found in check(cell, suggest=False) if found.outcome is Outcome.IMPOSSIBLE]
        if wrong:
            refused[choice] = wrong[-1].message
        if wrong and {found.rule for found in wrong} == {"framework-known"}:
            without_code.add(len(wrong) == len(imported.frameworks))
    if without_code == {True} and not imported.cpu_only:
        return _accepted(replace(imported, cpu_only=True))
    left = tuple(choice for choice in imported.choices if choice not in refused)
    said = (*imported.no_base, *(f"{choice.base}: {reason}" for choice, reason in refused.items()))
    if not left:
        lines = "\n  ".join([f"{imported.runtime.name} can work on no base:", *said])
        raise CellError(lines, hint="import another runtime")
    return replace(imported, choices=left, no_base=said)


def choose_bases(runtime: Runtime, *, any_python: bool) -> tuple[tuple[BaseChoice, ...], tuple[str, ...]]:
    """The bases, most faithful first, and for each kind that has none, why.

    Most faithful is NVIDIA's image with the runtime's CUDA and cuDNN; Debian's own packages need no registry.
    ``any_python``: the image gets a standalone one, so the base need not have it.
    """
    # Colab's since August 2023, if the lists do not say.
    own = (runtime.system or "Ubuntu 22.04").removeprefix("Ubuntu ")[:5]
    kinds = [kind(runtime, own, any_python=any_python) for kind in (_nvidia_image, _debian)]
    choices = tuple(found for found in kinds if isinstance(found, BaseChoice))
    return choices, tuple(found for found in kinds if isinstance(found, str))


def _nvidia_image(runtime: Runtime, own: str, *, any_python: bool) -> BaseChoice | str:
    facts = load()
    of_cuda = [row for row in facts.tags if row.cuda == runtime.cuda and row.state == "listed"]
    rows = [
        (row, system.removeprefix("ubuntu"))
        for row in of_cuda
        for system in row.systems
        if row.infix and system.startswith("ubuntu")
    ]
    if runtime.cuda is None or not rows:
        return f"nvidia/cuda has no image of CUDA {runtime.cuda or '(not in the apt list)'} with cuDNN"
    fitting = [
        (row, ubuntu)
        for row, ubuntu in rows
        if (system := facts.systems.get(f"ubuntu{ubuntu}")) is not None
        and (any_python or runtime.python_minor in system.python)
    ]
    if not fitting:
        there = sorted({ubuntu for _, ubuntu in rows})
        return (
            f"no nvidia/cuda image has both CUDA {runtime.cuda} and Python {runtime.python_minor}: "
            f"the tags are of Ubuntu {', '.join(there)}"
        )
    row, ubuntu = min(fitting, key=lambda pair: (own != pair[1], pair[1]))
    whose = "" if any_python else f", whose own Python is {runtime.python_minor}"
    notes = [] if own == ubuntu else [f"Ubuntu {ubuntu}{whose}"]
    if runtime.cudnn is not None and row.cudnn != runtime.cudnn:
        notes.append(f"the image's cuDNN is {row.cudnn or 'not known'}, Colab's {runtime.cudnn}")
    base = f"nvidia/cuda:{row.cuda}-{row.infix}-runtime-ubuntu{ubuntu}"
    return BaseChoice(base=base, system=f"ubuntu{ubuntu}", note="; ".join(notes))


def _debian(runtime: Runtime, own: str, *, any_python: bool) -> BaseChoice | str:
    """The Debian release with that Python; with any, the oldest whose glibc is not older than Ubuntu's."""
    systems = load().systems
    rows = {suite: systems[f"debian/{suite}"] for suite in DEBIAN_SUITES}
    if any_python:
        ubuntu = systems.get(f"ubuntu{own}")
        new = [suite for suite, row in rows.items() if ubuntu is None or at_least(row.glibc, ubuntu.glibc)]
        suite = min(new, key=lambda suite: version_key(rows[suite].glibc), default=None)
    else:
        suite = next((suite for suite, row in rows.items() if runtime.python_minor in row.python), None)
    if suite is None:
        has = ", ".join(f"{suite} {row.python[0]}" for suite, row in rows.items())
        return f"no Debian release has Python {runtime.python_minor} ({has})"
    note = f"Debian {suite} in place of {runtime.system or 'Ubuntu'}"
    return BaseChoice(base=f"rootfs:debian/{suite}", system=f"debian/{suite}", note=note)


def _framework(match: Match, by_name: dict[str, Match]) -> str:
    """jax gets the extra that stands for the plug-in which the list names beside it."""
    text = match.requirement or ""
    if match.package.key != "jax":
        return text
    names = [*by_name, *(text.partition("==")[0] for one in by_name.values() for text in one.beside)]
    plugin = next((f for name in names if (f := re.fullmatch(r"jax-(cuda\d+)-plugin", name))), None)
    library = (by_name["jaxlib"].requirement if "jaxlib" in by_name else None) or ""
    plugin = plugin or re.search(r"\+(cuda\d+)", library)
    return text.replace("jax==", f"jax[{plugin[1]}]==") if plugin else text


def matrix_text(imported: Imported) -> str:
    runtime, matching = imported.runtime, imported.matching
    commit = runtime.commit
    origin = f"https://github.com/{REPOSITORY}/tree/{commit}" if commit else "a list of its own"
    python = f'"{runtime.python_minor}"'
    if imported.standalone is not None:
        python = f'{{version: "{imported.standalone}", from: standalone}}'
    skipped = {canonicalize_name(re.split(r"[\[=]", text)[0]) for text in imported.frameworks}
    plain = [match for match in matching.found if match.compiled is None]
    pins = [m.requirement for m in plain if m.requirement and m.package.key not in skipped]
    pins += [text for match in plain for text in match.beside]
    sources = sorted(match.package.key for match in plain if match.built is not None)
    indexes = sorted({match.index for match in matching.found if match.index})
    lines = [
        "# yaml-language-server: $schema=../docs/matrix.schema.json",
        "# Made by `rtbuild colab import` from the lists that Google publishes of Colab, under Apache-2.0:",
        f"# {origin}.",
        "# Every package at Colab's own version, none resolved: what they contradict one another in, they",
        f"# contradict on Colab. {len(matching.missing)} of {len(runtime.packages)} packages are not here:",
        f"# {imported.name}.runtime.json says which, and why.",
        *(f"# {reason}." for reason in imported.no_base),
        "version: 1",
        f"name: {imported.name}",
        f"description: Google Colab's runtime {runtime.name}",
        "",
        "defaults:",
        "  framework: [" + ", ".join(f'"{text}"' for text in imported.frameworks) + "]",
        f"  python: {python}",
        *([] if imported.profile == "plain" else [f"  profile: {imported.profile}"]),
        "  dependencies: listed",
        *([f"  index: [{', '.join(indexes)}]"] if indexes else []),
        f"  apt: [{', '.join(imported.apt)}]",
        *(["  pip:"] if pins else []),
        *(f"    - {pin}" for pin in sorted(pins, key=str.casefold)),
        *(["  from-source:"] if sources else []),
        *(f"    - {name}" for name in sources),
        "",
        "options:",
        "  slim: false  # Colab's packages are whole, tests and headers too",
        "",
        "include:",
    ]
    for choice in imported.choices:
        cell = ["cuda: base"] if choice.suite is None else [*_cuda(imported), *_compiled(imported)]
        note = imported.note(choice)
        lines += [f"  # {note}"] if note else []
        lines += [f"  - base: {choice.base}", *(f"    {line}" for line in cell)]
    return "\n".join(lines) + "\n"


def _compiled(imported: Imported) -> list[str]:
    """The packages that were compiled in the release that the cell stands on, and the packages that they
    load.
    """
    matches = sorted(imported.matching.found, key=lambda match: match.package.key)
    rows = [(match, match.compiled) for match in matches if match.compiled is not None]
    if not rows:
        return []
    return [
        "# Compiled from sources with this release's libraries, so not for the other bases",
        *([f"apt: [{', '.join(imported.runtime_apt)}]"] if imported.runtime_apt else []),
        "pip:",
        *(f"  - {match.requirement}" for match, _ in rows),
        "from-source:",
        *(f"  - {match.package.key}: [{', '.join(made.needs)}]" for match, made in rows),
    ]


def _cuda(imported: Imported) -> list[str]:
    """The source of CUDA on a base without it: the list's own wheels of NVIDIA, else those of its frameworks.

    Until August 2024 the lists name none: Colab's were Ubuntu's packages.
    """
    if imported.cpu_only:
        return ["cuda: none"]
    found = imported.matching.found
    if any(match.package.key.startswith("nvidia-") for match in found):
        wanted = re.compile(r"nvidia-(cudnn|cuda-runtime)(-cu\d+)?")
        packages = [m.requirement for m in found if m.requirement and wanted.fullmatch(m.package.key)]
        if not packages:
            return ["cuda: wheels"]
    else:
        packages = _asked(imported.frameworks)
        if not packages:
            return ["cuda: none"]
    return ["cuda:", "  from: wheels", f"  packages: [{', '.join(packages)}]"]


def _asked(frameworks: Sequence[str]) -> list[str]:
    """NVIDIA's wheels that the frameworks ask for, each pinned; PyTorch's pins are exact and come first.

    Of a range the oldest version on record is taken: the one that the release was built with, or near it.
    """
    found: dict[str, str] = {}
    ways = [list(choices(parsed)) for text in frameworks if (parsed := requirement(text)) is not None]
    brought = [next((way for way in some if way.brings), None) for some in ways]
    pins = [pin for way in brought if way is not None for pin in map(requirement, way.pins) if pin]
    for pin in sorted(pins, key=lambda pin: pinned(pin) is None):
        name, exact = canonical(pin.name), pinned(pin)
        row = load().wheels.get(name)
        known = [v for v in row.versions if contains(pin.specifier, v)] if row is not None else []
        version = exact or min(known, key=release, default=lower_bound(pin))
        if version is not None:
            found.setdefault(name, f"{name}=={version}")
    alone = Combination(some[0] for some in ways if some and not any(way.brings for way in some))
    wheels = alone.own_wheels if alone else None
    for text in wheels.packages if wheels is not None else ():
        found.setdefault(text.partition("==")[0], text)
    return sorted(found.values())


def record(imported: Imported) -> dict[str, Any]:
    """The record beside the matrix: the list, for ``rtbuild colab diff``, and why a package is missing."""
    runtime, matching = imported.runtime, imported.matching
    compiled = {
        m.package.name: {"needs": list(m.compiled.needs), "libraries": list(m.compiled.libraries)}
        for m in matching.found
        if m.compiled is not None
    }
    return {
        "schema": 1,
        "runtime": runtime.name,
        "source": {"repository": REPOSITORY, "commit": runtime.commit, "license": "Apache-2.0"},
        "system": runtime.system,
        "python": runtime.python,
        "cuda": runtime.cuda,
        "cudnn": runtime.cudnn,
        "bases": [{"base": choice.base, "note": imported.note(choice)} for choice in imported.choices],
        "no_base": list(imported.no_base),
        "packages": {package.name: package.version for package in runtime.packages},
        "missing": [
            {"name": m.package.name, "version": m.package.version, "reason": m.reason, "detail": m.detail}
            for m in matching.missing
        ],
        "unasked": matching.unasked,
        "remarks": {m.package.name: m.detail for m in matching.found if m.detail},
        **({"compiled": compiled} if compiled else {}),
        "apt": {"listed": len(runtime.apt), "taken": list(imported.apt)},
        "unreadable_lines": [str(problem) for problem in runtime.problems],
        "silent_indexes": len(matching.silent),
    }


def record_text(imported: Imported) -> str:
    return json.dumps(record(imported), indent=1, ensure_ascii=False) + "\n"
