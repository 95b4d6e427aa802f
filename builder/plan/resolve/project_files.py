"""Requirements out of a project: any of its files, by name or content, or its folder as one project."""

import contextlib
import itertools
import os
import re
from collections.abc import Callable, Set
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement

from builder.core.errors import CellError, UsageError
from builder.core.versions import canonical
from builder.plan.facts.tables import load
from builder.plan.resolve.as_written import note_as_written
from builder.plan.resolve.environments import (
    from_conda,
    from_dockerfile,
    is_conda,
    is_dockerfile,
)
from builder.plan.resolve.evidence import add_told
from builder.plan.resolve.install_scripts import from_script, scripts_of, told_by_jobs
from builder.plan.resolve.manifests import (
    from_lock,
    from_pipfile,
    from_pipfile_lock,
    from_pixi,
    from_pylock,
    from_pyproject,
)
from builder.plan.resolve.native_code import note_builds
from builder.plan.resolve.project_texts import is_file, is_project, read_text
from builder.plan.resolve.readmes import from_readme
from builder.plan.resolve.requirements import from_requirements, take_extras
from builder.plan.resolve.set_aside import lists_in, note_contradictions, take_aside
from builder.plan.resolve.source_files import (
    add_imported,
    bound_by_folder,
    from_notebook,
    from_setup_cfg,
    from_setup_py,
    note_sources,
    sources_below,
)
from builder.plan.resolve.source_language import (
    add_framework_companions,
    is_module_of,
    modules_of,
    note_language,
)
from builder.plan.resolve.wishes import NamedRequirement, Wishes


def from_file(path: Path) -> Wishes:
    """The requirements of a file, by its name, else by its content; of a folder those of its project. Extras
    of the project stand behind either, ``FOLDER[training]``.

    Raises UsageError, with file and line, and CellError as :func:`from_conda` does.
    """
    asked = re.fullmatch(r"(.+)\[([\w.,\s-]+)\]", str(path))
    with contextlib.suppress(OSError, ValueError):  # a name that no file can have
        if asked is not None and not path.exists():
            path = Path(asked[1])
            found = _from_folder(path) if path.is_dir() else _reader(path)(path)
            take_extras(filter(None, re.split(r"[,\s]+", asked[2])), path, found)
            return found
        if path.is_dir():
            return _from_folder(path)
    return _reader(path)(path)


def _reader(path: Path) -> Callable[[Path], Wishes]:
    by_name = next((kind.read for kind in _KINDS if re.fullmatch(kind.names, path.name)), None)
    if by_name is not None:
        return by_name
    text = read_text(path)
    if is_dockerfile(path.name, text):
        return from_dockerfile
    by_text = (k.read for k in _KINDS if k.text and re.search(rf"^(?:{k.text})", text, re.MULTILINE))
    return next(by_text, from_requirements)


_OF_A_PROJECT = (
    "pyproject.toml", "setup.py", "setup.cfg", "Pipfile", "pixi.toml", "requirements.txt",
    "environment.yml", "environment.yaml", "requirements.in", "requirements/requirements.txt",
    "requirements/base.txt", "runtime.txt", ".python-version", "Dockerfile", "docker/Dockerfile",
)  # fmt: skip
"""What a project's people keep requirements in, in the order in which they are read."""
_EITHER = (
    ("requirements.txt", "environment.yml", "environment.yaml", "requirements.in",
     "requirements/requirements.txt", "requirements/base.txt"),
    ("Dockerfile", "docker/Dockerfile"),
)  # fmt: skip
"""Files that say the same in several ways: of each the first that is there is read."""


_TELLS_OF_AN_IMAGE = re.compile(r"Dockerfile$|^runtime\.txt$|^\.python-version$")
"""Files that say how one image was made, and list no requirements of the project's."""
_README = r"(?i)readme(?:\.(?:md|rst|txt))?"
"""Read of a folder that has no requirements elsewhere."""


def _from_folder(folder: Path) -> Wishes:
    """The requirements of a folder's files, as of one project; notes name what is read, and what is not."""
    there = [name for name in _OF_A_PROJECT if (folder / name).is_file()]
    again = {name for group in _EITHER for name in [one for one in group if one in there][1:]}
    found = Wishes()
    empty = _take_each(folder, there, again, found)
    read = [name for name in there if name not in again]
    others = sorted(
        one.name
        for one in folder.iterdir()
        if one.is_file()
        and one.name not in there
        and _by_its_name(one) not in (None, from_readme, from_script)
    )
    below = _requirements_below(folder)
    if len(below) == 1 and not {*read} & {*_EITHER[0]}:
        with contextlib.suppress(UsageError, CellError):  # it stands among those left aside
            of_file = _reader(below[0])(below[0])
            found.take_over(of_file)
            read.append(str(below.pop().relative_to(folder)))
    lists = lists_in(folder, (*sorted(again), *(name for name in others if _by_its_name(folder / name))))
    others += [str(one.relative_to(folder)) for one in below]
    if not there and len(others) == 1:
        return from_file(folder / others[0])
    read += (taken := take_aside(lists, lambda path: (_by_its_name(path) or from_requirements)(path), found))
    again, others = again - {*taken}, [name for name in others if name not in taken]
    bare = not found.wishes or not [name for name in read if not _TELLS_OF_AN_IMAGE.search(name)]
    readme = next((one for one in sorted(folder.iterdir()) if re.fullmatch(_README, one.name)), None)
    if readme is not None:
        add_told(readme, found)
    note_language(folder, found)
    told_by_jobs(folder, found)
    contrary, bare = _take_lines(folder, readme, found, read, bare=bare)
    note_contradictions((*contrary, *found.told.values()), found)
    if bare or not any(load().is_framework(wish.name) for wish in found.wishes):
        add_imported(folder, found, rest=bare)
    _from_its_own_folders(folder, found)
    add_framework_companions(folder, found)
    bound_by_folder(folder, found)
    note_sources(folder, found)
    _install_itself(folder, found)
    note_builds(sources_below(folder, ("", ".sh", ".mk", ".cmake", ".txt", ".py")), found)
    note_as_written(sources_below(folder, (".cpp", ".cu", ".h", ".cuh", ".cc", ".py")), found)
    for message in empty:
        found.notes.append(message)
    if not found.wishes:
        told = f": of {', '.join(there)} nothing could be taken" if there else ""
        hint = (
            f"`rtbuild resolve -r {folder / others[0]}` reads it" if others else "name a file that has them"
        )
        raise UsageError("\n  ".join((f"{folder} has no requirements{told}", *found.notes)), hint=hint)
    aside = [*(name for name in there if name in again), *others[:6]]
    bind = "; what they bound of these packages counts, if it goes together" * bool(found.aside)
    left = f"; left aside: {', '.join(aside)} (`-r FILE` reads one){bind}" if aside else ""
    found.notes.insert(
        0, f"{folder}: read as one project: {', '.join(read) or 'its Python files alone'}{left}"
    )
    return found


def _take_lines(
    folder: Path, readme: Path | None, found: Wishes, read: list[str], *, bare: bool
) -> tuple[list[NamedRequirement], bool]:
    """Take over what a project's install scripts and its README install, whole where no list of it has
    anything; return all that they name, and whether there is no list still.
    """
    named, modules = list[NamedRequirement](), modules_of(folder)
    lines = [(path, from_script) for path in scripts_of(folder)]
    lines += [(readme, from_readme)] if readme is not None else []
    for path, take in lines:
        with contextlib.suppress(UsageError, CellError):  # one that installs nothing is none
            of_lines = take(path)
            named += of_lines.wishes
            if not bare:
                _of_lines_alone(of_lines, found, modules)
            if of_lines.wishes or of_lines.by_hand:
                of_lines.wishes = [wish.as_told() for wish in of_lines.wishes]
                found.take_over(of_lines)
                read.append(str(path.relative_to(folder)))
                bare = bare and not (take is from_script and found.wishes)
    return named, bare


def _take_each(folder: Path, there: list[str], again: set[str], found: Wishes) -> list[str]:
    """Take over a project's files but those of ``again``, which gets what has nothing; return why it has."""
    empty = list[str]()
    cpu = [name for name in there if name not in again and _is_for_cpu(folder / name)]
    for name in sorted(there, key=cpu.__contains__):
        if name in again:
            continue
        path = folder / name
        if name in cpu and any(load().is_framework(wish.name) for wish in found.wishes):
            again.add(name)
            empty.append(f"{path} is the way to PyTorch's build for the CPU: left aside beside the others")
            continue
        try:
            is_image = name.endswith("Dockerfile")
            of_file = from_dockerfile(path, found) if is_image else _reader(path)(path)
            if is_image:
                of_file.wishes = [wish.as_told() for wish in of_file.wishes]
            found.take_over(of_file)
        except (UsageError, CellError) as problem:
            if isinstance(problem, CellError) and len({*there} - again) == 1:
                raise  # nothing else tells of the project
            again.add(name)
            empty.append(problem.message)
    return empty


def _is_for_cpu(path: Path) -> bool:
    """Whether an environment of conda's or pixi's asks for PyTorch's build for the CPU."""
    if path.suffix not in {".yml", ".yaml"} and path.name != "pixi.toml":
        return False
    with contextlib.suppress(UsageError):  # no text, which its reader says
        return re.search(r"(?m)^[\s-]*[\"']?(?:pytorch-cpu|cpuonly)\b", read_text(path)) is not None
    return False


def _requirements_below(folder: Path) -> list[Path]:
    """The first requirements file or environment of each subfolder."""
    found = list[Path]()
    with contextlib.suppress(OSError):  # a folder that nobody may read
        below = [one for one in sorted(folder.iterdir())[:200] if one.is_dir() and not one.is_symlink()]
        for one in below:
            if not re.match(r"\.|(?:docs?|tests?|docker|requirements|node_modules)$", one.name):
                found += itertools.islice((one / n for n in _EITHER[0] if (one / n).is_file()), 1)
    return found


def _of_lines_alone(lines: Wishes, found: Wishes, modules: Set[str]) -> None:
    """Leave of a README's or a script's lines what many leave out of their requirements: the framework, if
    they name none, what is built after it, as flash-attn, what is compiled out of repositories, and what the
    sources import that no list has.
    """
    names, late = {wish.name for wish in found.wishes}, {row.name for row in load().builds if row.against}
    framed = any(load().is_framework(name) for name in names)
    kept = [
        wish
        for wish in lines.wishes
        if wish.name not in names
        and (
            (not framed and _is_of_a_framework(wish.name))
            or wish.name in late
            or (not load().is_framework(wish.name) and is_module_of(wish.name, modules))
        )
    ]
    lines.wishes = kept
    if framed:
        exact = re.fullmatch(r"(?:==)?(3\.\d+)(?:\.\*)?", lines.python or "")
        if exact is not None:
            told = Requirement(f"python=={exact[1]}")
            found.told.setdefault("python", NamedRequirement(parsed=told, place="its install lines"))
        lines.index, lines.places, lines.python = [], {}, None
    lines.notes = [note for note in lines.notes if ": on the system: " in note]
    own = [one for one in lines.by_hand if _names_repository(one, names, modules)]
    lines.sources = [one for one in lines.sources if one[0] in own]
    lines.by_hand, lines.itself = own, lines.itself


def _names_repository(text: str, names: Set[str], modules: Set[str]) -> bool:
    """Whether a repository that a line installs is named like what the sources import, and no list has."""
    word = re.search(r"([\w.-]+?)(?:\.git)?(?:@[\w./-]+)?(?:#.*)?$", text)
    name = canonical(word[1]) if word is not None else ""
    return "git+" in text and name not in names and is_module_of(name, modules)


def _from_its_own_folders(folder: Path, found: Wishes) -> None:
    """Take what a project's own folders are the source of out of the requirements: an index has another
    package of that name, or none.
    """
    own = dict[str, Path]()
    for path in (*folder.glob("*/setup.py"), *folder.glob("*/*/setup.py")):
        with contextlib.suppress(UsageError):  # no text
            said = re.search(r"(?m)^\s*(?:name|NAME)\s*=\s*['\"]([\w.-]+)['\"]", read_text(path))
            if said is not None and not load().is_framework(canonical(said[1])):
                own.setdefault(canonical(said[1]), path.parent)
    for wish in [one for one in found.wishes if one.name in own]:
        found.wishes.remove(wish)
        found.add_source(str(own[wish.name].relative_to(folder)), str(folder / "setup.py"))
        found.note(
            wish.place, str(wish), f"it is the project's own folder {own[wish.name]}, installed by hand"
        )
    if (name := _own_name(folder)) is not None:
        for wish in [one for one in found.wishes if one.name == name]:
            found.wishes.remove(wish)
            found.itself = found.itself or _as_typed(folder)
            found.note(wish.place, str(wish), "it is the project itself: its folder is installed, no release")


def _own_name(folder: Path) -> str | None:
    """The name that a folder's own metadata give its distribution; None if nothing tells it, or if it is that
    of a framework, whose folder may be a fork that nobody compiles, or if pip installs no such folder.
    """
    for file, pattern in _NAMES if is_project(folder) else ():
        with contextlib.suppress(UsageError):  # no text, or no such file
            text = read_text(folder / file) if is_file(folder / file) else ""
            said = re.search(pattern, text)
            if said is not None:
                name = canonical(said[1])
                return None if load().is_framework(name) else name
    return None


_NAMES = (
    ("pyproject.toml", r"(?m)^\[(?:project|tool\.poetry)\][^\[]*?^\s*name\s*=\s*['\"]([\w.-]+)['\"]"),
    ("setup.cfg", r"(?m)^\[metadata\][^\[]*?^name\s*=\s*([\w.-]+)\s*$"),
    ("setup.py", r"(?m)^\s*(?:name|NAME|PACKAGE_NAME|_NAME)\s*=\s*['\"]([\w.-]+)['\"]"),
)
"""Where a distribution's name stands: https://packaging.python.org/en/latest/specifications/pyproject-toml/,
https://setuptools.pypa.io/en/latest/userguide/declarative_config.html
"""


def _install_itself(folder: Path, found: Wishes) -> None:
    """Remember the project's own folder, if pip installs it, and its folders whose installation compiles
    CUDA code, as words of pip's command line.
    """
    setup, manifest = folder / "setup.py", folder / "pyproject.toml"
    with contextlib.suppress(UsageError):  # no text
        own = is_file(setup) and re.search(r"\bsetup\(", read_text(setup)) is not None
        own = own or (
            is_file(manifest)
            and re.search(r"(?m)^\[(?:build-system|tool\.poetry)\]", read_text(manifest)) is not None
        )
        found.itself = found.itself or (_as_typed(folder) if own else None)
    if found.itself in found.by_hand:  # a Dockerfile's line, whose requirements are those that are resolved
        found.by_hand.remove(found.itself)
    for kind, _, place in list(found.compiling):
        below = Path(place).parent
        if kind == "install" and below != folder and _as_typed(below) not in found.by_hand:
            found.by_hand.append(_as_typed(below))


def _as_typed(folder: Path) -> str:
    plain = os.path.normpath(folder)
    return plain if folder.is_absolute() or plain == "." else f".{os.sep}{plain}"


def _is_of_a_framework(name: str) -> bool:
    return load().is_framework(name) or name in {"torchvision", "torchaudio"}


def _by_its_name(path: Path) -> Callable[[Path], Wishes] | None:
    """What reads a file beside others, if its name says that it has requirements; of YAML, which the settings
    of other tools are in, too, the content has to say it, unless the name is conda's own.
    """
    named = next((kind.read for kind in _KINDS if re.fullmatch(kind.names, path.name)), None)
    if named is from_conda and not _CONDAS_OWN.match(path.name):
        with contextlib.suppress(UsageError):  # no text: none of conda's
            return from_conda if is_conda(read_text(path)) else None
        return None
    plain = re.fullmatch(r"(?i).*require.*\.(?:txt|in)", path.name)
    return from_requirements if named is None and plain else named


_CONDAS_OWN = re.compile(r"(?i)environment.*\.ya?ml$|conda-.*\.lock$|conda-lock\.ya?ml$")
"""Names of an environment's files: https://docs.conda.io/projects/conda/en/stable/commands/env/create.html,
https://conda.github.io/conda-lock/
"""


def _from_python(path: Path) -> Wishes:
    """The Python of ``.python-version`` or Heroku's and Binder's ``runtime.txt``."""
    found = re.search(r"(?m)^\s*(?:python-)?(3\.\d+)", read_text(path))
    if found is None:
        raise UsageError(f"{path} names no Python 3")
    return Wishes(python=found[1], notes=[f"{path}: its Python, {found[1]}, is taken over"])


@dataclass(frozen=True, kw_only=True)
class _Kind:
    """A kind of file: by its name, or by a text at the start of one of its lines."""

    names: str
    read: Callable[[Path], Wishes]
    text: str | None = None


_KINDS = (
    _Kind(names=r"setup\.cfg", read=from_setup_cfg),
    _Kind(names=r"Pipfile", read=from_pipfile, text=r"\[\[source\]\]\s*$"),
    _Kind(names=r"Pipfile\.lock", read=from_pipfile_lock),
    _Kind(
        names=r"(?:poetry|uv|pdm)\.lock", read=from_lock,
        text=r"# This file is (?:automatically )?@generated by (?:Poetry|PDM)\b"
        r"|version = \d+[ \t]*\r?\n(?s:.*)^\[\[package\]\][ \t]*\r?$",
    ),
    _Kind(names=r"pylock(?:\.[^.]+)?\.toml", read=from_pylock, text=r"\[\[packages\]\]\s*$"),
    _Kind(
        names=r"pyproject\.toml", read=from_pyproject, text=r"\[(?:project|build-system|tool\.[\w.-]+)\]\s*$",
    ),
    _Kind(names=r"pixi\.toml", read=from_pixi),
    _Kind(names=r".*\.ipynb", read=from_notebook, text=r'\s*"(?:cells|nbformat)": '),
    _Kind(
        names=r".*\.ya?ml|conda-.*\.lock", read=from_conda,
        text=r"dependencies:\s*$|@EXPLICIT\s*$|# \$ conda create --name ",
    ),
    _Kind(names=_README, read=from_readme),
    _Kind(names=r"runtime\.txt|\.python-version", read=_from_python),
    _Kind(
        names=r"(?i).*\.(?:sh|bash|def)|(?:gnu)?makefile|singularity(?:\..*)?", read=from_script,
        text=r"#!.*\b(?:ba|da|z)?sh\b",
    ),
    _Kind(
        names=r"setup\.py", read=from_setup_py,
        text=r"(?:from setuptools|import setuptools|from distutils)\b",
    ),
)  # fmt: skip
"""The first that fits counts."""
