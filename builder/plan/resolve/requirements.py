"""Requirements out of lines as pip takes them, each with the place where it stands.

``requirements.txt`` (with its options, hashes, editable lines, URLs, constraints and nested files), and lines
that install by pip. What cannot go into an image by name and version is not dropped in silence: it becomes a
note with its line.

The format: https://pip.pypa.io/en/stable/reference/requirements-file-format/
"""

import contextlib
import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from builder.core.documents import CONTROL, redact
from builder.core.errors import UsageError
from builder.core.versions import (
    canonical,
    requirement,
)
from builder.plan.facts.tables import load
from builder.plan.resolve.project_texts import LONGEST_LINE, is_folder, quoted, read_text
from builder.plan.resolve.wishes import OWN_SOURCE, Wishes

_MOST_FILES = 200
_DEPTH = 8
"""How deep requirements files may name one another."""

_INDEX = ("--extra-index-url", "--index-url", "-i", "--index", "--default-index")
_VALUED = (
    *_INDEX, "-r", "--requirement", "-c", "--constraint", "-e", "--editable", "-f", "--find-links", "-t",
    "--target", "--root", "--prefix", "--platform", "--python-version", "--no-binary", "--only-binary",
    "--progress-bar", "--trusted-host", "--proxy", "--timeout", "--retries", "--cache-dir", "--hash",
    "--config-settings", "-C", "--global-option", "--log", "--upgrade-strategy", "--use-feature", "--python",
)  # fmt: skip
"""Options of ``pip install`` that take a value, which is no requirement."""
_NAMES_FILE, _NAMES_BOUNDS = ("-r", "--requirement"), ("-c", "--constraint")


def from_requirements(path: Path) -> Wishes:
    """A requirements file, with the files that it names. Raises UsageError, with file and line."""
    found = Wishes()
    _requirements(path, found, (), iter(range(_MOST_FILES)))
    return found


def _requirements(path: Path, found: Wishes, above: tuple[Path, ...], left: Iterator[int]) -> None:
    if CONTROL.search(str(path)):
        raise UsageError(f"{quoted(str(path))!r} is the name of no file that is read")
    if is_folder(path):
        raise UsageError(f"{path} is a folder, and no requirements file")
    resolved = Path(os.path.realpath(path))  # Path.resolve() raises for links in a circle
    if next(left, None) is None:
        raise UsageError(f"{path}: more than {_MOST_FILES} requirements files are not read")
    if resolved in above or len(above) >= _DEPTH:
        how = "in a circle" if resolved in above else "too deep"
        raise UsageError(f"{path}: requirements files name one another {how}")
    text = read_text(path)
    if (head := _PIP_LIST.search(text)) is not None:
        _pip_list(path, text, text.count("\n", 0, head.end()) + 1, found)
        return
    for number, line in _logical_lines(text):
        _line(
            line,
            f"{path}:{number}",
            found,
            lambda name, into: _nested(path, name, into, (*above, resolved), left),
        )


def _nested(path: Path, name: str, found: Wishes, above: tuple[Path, ...], left: Iterator[int]) -> None:
    """The file that another one names, from that one's folder. Raises UsageError; _AbsentError without it."""
    file = path.parent / name
    if not CONTROL.search(name) and not os.path.lexists(file):
        raise _AbsentError(f"there is no {file} here, and what it asks for is not known")
    _requirements(file, found, above, left)


class _AbsentError(UsageError):
    """A file that another one names is not there."""


_PIP_LIST = re.compile(r"^Package +Version(?: +[^\n]*)?\r?\n-+ +-+[- ]*$", re.MULTILINE)
_NOT_FROZEN = frozenset(("pip", "setuptools", "wheel", "distribute"))


def _pip_list(path: Path, text: str, after: int, found: Wishes) -> None:
    """The packages of ``pip list``'s table, as ``pip freeze`` has them: less pip and what it builds with.

    https://pip.pypa.io/en/stable/cli/pip_list/, https://pip.pypa.io/en/stable/cli/pip_freeze/
    """
    for number, line in enumerate(text.splitlines(), 1):
        name, version, *more = [*line.split(), "", ""][:3] if number > after else ("", "")
        if not re.fullmatch(r"\w[\w.-]* [\w.+!-]+", f"{name} {version}"):
            continue  # what a console prints beside
        if more[0]:
            found.leave_out(line, f"{path}:{number}")
        elif canonical(name) not in _NOT_FROZEN:
            found.add(f"{name}=={version}", f"{path}:{number}")


def add_line(line: str, place: str, path: Path, found: Wishes) -> None:
    """A line as a requirements file has it, which stands in another kind of file. Raises UsageError."""
    left = iter(range(_MOST_FILES))
    _line(line, place, found, lambda name, into: _nested(path, name, into, (), left))


def _line(line: str, place: str, found: Wishes, take_file: Callable[[str, Wishes], None]) -> None:
    _refuse_long(line, place)
    if not line.startswith("-"):
        text, *options = re.split(r"\s(?=--\w)", line)
        if any(option.startswith("--hash") for option in options):
            found.note(place, text, "its hashes are left out: the lock has its own")
        found.add(text.strip(), place)
        return
    try:
        option, value = _option(shlex.split(line))
    except ValueError as problem:
        raise UsageError(f"{place}: {quoted(line)}: {problem}") from problem
    if option in (*_NAMES_FILE, *_NAMES_BOUNDS) and "://" in value:
        found.note(place, line, "it lies on the web, and is not read; download it, and name the copy")
    elif option in _NAMES_FILE:
        try:
            take_file(value, found)
        except _AbsentError as problem:  # it may have come from another repository
            found.note(place, line, f"{problem.message}; the rest is read")
    elif option in _NAMES_BOUNDS:
        bounds = Wishes()
        try:
            take_file(value, bounds)
        except UsageError as problem:
            found.note(place, line, f"constraints that are not read: {problem.message}")
        found.take_bounds(bounds)
    else:
        _note_option(option, value, place, found)


def nothing(message: str, found: Wishes, hint: str) -> UsageError:
    """For a file without a requirement: what was left out of it is told."""
    return UsageError("\n".join((message, *(f"  {note}" for note in found.notes))), hint=hint)


def files_beside(path: Path) -> Callable[[str, str, Wishes], None]:
    """A function that takes over the requirements file that an install line names, once.

    It lies beside the file of the line: ``/app/requirements.txt`` of a Dockerfile was copied from there.
    """
    left, taken = iter(range(_MOST_FILES)), set[Path]()

    def take(name: str, place: str, found: Wishes) -> None:
        with contextlib.suppress(OSError):  # a name that no system has a file of
            for file in (path.parent / name.lstrip("/"), path.parent / Path(name).name):
                if file.is_file():
                    if file not in taken:
                        taken.add(file)
                        _requirements(file, found, (), left)
                    return
        found.note(place, f"-r {name}", "there is no such file here; `rtbuild resolve -r FILE` reads it")

    return take


def _refuse_long(line: str, place: str) -> None:
    if len(line) > LONGEST_LINE:
        raise UsageError(f"{place}: a line of {len(line)} letters is not read")


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines without comments, each with its number; lines that end in a backslash are joined."""
    joined, first = "", 0
    for number, raw in enumerate([*text.splitlines(), ""], 1):
        first = first if joined else number
        line = re.sub(r"(?:^|\s)#.*$", "", raw)
        if line.rstrip().endswith("\\"):
            joined += line.rstrip()[:-1] + " "
            continue
        line, joined = (joined + line).strip(), ""
        if line:
            yield first, line


def _option(words: list[str]) -> tuple[str, str]:
    option, equals, value = words[0].partition("=")
    if not equals and re.match("-[^-].", option):  # -rfile
        return option[:2], option[2:]
    return option, value if equals else " ".join(words[1:2])


def _note_option(option: str, value: str, place: str, found: Wishes) -> None:
    pytorch = re.match(r"https://download\.pytorch\.org/whl/(?:(cu\d+)/)?", value)
    if option in _INDEX and re.match(r"https?://", value):
        found.add_index(value, place)
    elif option in ("-e", "--editable"):
        found.add_source(value, place)
        found.note(place, f"{option} {value}", OWN_SOURCE)
    elif option in ("-f", "--find-links") and pytorch is not None:
        found.note(
            place, f"{option} {value}", "PyTorch's page of wheels: a build is named by its version, +cu113"
        )
        if pytorch[1] is not None:
            found.add_index(pytorch[0].rstrip("/"), place)
    elif option in ("-f", "--find-links"):
        why = "a page of wheels, and no package index: what is there alone is not found here; "
        if re.match(r"https?://", value) and CONTROL.search(value) is None and redact(value) == value:
            found.pages.setdefault(value, place)
            why += "the line for pip has it, if it is of the same CUDA"
        found.note(place, f"{option} {value}", why.removesuffix("; "))
    else:
        found.note(place, f"{option} {value}", "an option of pip, left out")


_INSTALL = re.compile(
    r"^\s*(?:[!%]\s*)?(?:(?:sudo|\w+=\S*)\s+)*(?:\S+\s+-m\s+)?(?:uv\s+)?pip[\d.]*\s+(?:-\S+\s+)*install\s+(?P<rest>.*)$"
)


def install_line(line: str, place: str, found: Wishes, take_file: Callable[[str, str, Wishes], None]) -> None:
    """Take over what a shell's line installs by pip."""
    _refuse_long(line, place)
    for command in re.split(r"&&|;(?=\s*!?\s*pip)|\|\|?", line):
        match = _INSTALL.match(command)
        if match is None:
            continue
        try:
            # a comment begins at a word of its own: shlex would end `git+https://host/x#egg=x y` at x
            words = shlex.split(re.sub(r"(?:^|(?<=\s))#.*", "", match["rest"]))
        except ValueError:
            found.note(place, line, "its quotes do not close, so it was not read")
            continue
        _install_words(words, place, found, take_file)


def _install_words(
    words: list[str], place: str, found: Wishes, take_file: Callable[[str, str, Wishes], None]
) -> None:
    queue = iter(words)
    for word in queue:
        if word in (">", ">>", "2>", "&>") or word.startswith((">", "2>")):
            return
        if word.startswith("-"):
            option, equals, value = word.partition("=")
            if option in _VALUED and not equals:
                value = next(queue, "")
            if option in _NAMES_FILE:
                take_file(value, place, found)
            elif option in _NAMES_BOUNDS:
                bounds = Wishes()
                take_file(value, place, bounds)
                found.take_bounds(bounds)
            elif option in _VALUED:
                _note_option(option, value, place, found)
        elif "{" in word or "$" in word:
            found.note(place, word, "a variable, whose value is not known here")
        else:
            found.add(word, place)


def add_extras(extras: Mapping[str, Any], path: Path, found: Wishes, project: str | None = None) -> None:
    """Offer a project's extras, and take the frameworks that they alone name, if all that name one ask for
    the same of it. An extra of the CPU's build and one of CUDA's differ in their index alone.
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
    names = {wish.name for wish in found.wishes}
    for group, listed in extras.items():
        texts_ = [str(one) for one in listed if str(one).strip()] if isinstance(listed, list) else []
        own_names = [requirement(text) for text in texts_] if isinstance(listed, list) else [None]
        if all(one is not None and canonical(one.name) in names for one in own_names):
            continue  # alternatives of what is asked for anyway: builds for the CPU, and for CUDA
        found.extras[canonical(str(group))] = texts_, f"{path}, the extra {quoted(str(group))}", project or ""


def take_extras(asked: Iterable[str], path: Path, found: Wishes) -> None:
    """Take over extras of the project that was read, ``FOLDER[training]`` as pip has it, with those that they
    name. Raises UsageError for one that it has not.
    """
    queue, left = [canonical(one) for one in asked], dict(found.extras)
    for name in queue:  # it grows
        if name not in left:
            known = (
                ", ".join(sorted(left)) or "none that are read, or all their packages are asked for anyway"
            )
            raise UsageError(f"{path} has no extra '{quoted(name)}'", hint=f"its extras: {known}")
        texts, place, project = left[name]
        found.extras.pop(name, None)
        for text in texts:
            parsed = requirement(text)
            if parsed is not None and project and canonical(parsed.name) == canonical(project):
                queue += [one for one in map(canonical, sorted(parsed.extras)) if one not in queue]
            else:
                found.add(text, place)
