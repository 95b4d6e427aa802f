"""Requirements out of a project's own install scripts, which are read and never run: of the shell, Makefiles
and Apptainer's definitions; and what its jobs of continuous integration install, its author's own set.

The formats: https://pubs.opengroup.org/onlinepubs/9799919799/utilities/V3_chap02.html,
https://www.gnu.org/software/make/manual/html_node/Rules.html,
https://apptainer.org/docs/user/main/definition_files.html
"""

import contextlib
import itertools
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml
from packaging.requirements import Requirement

from builder.core.errors import CellError, UsageError
from builder.core.versions import key, release
from builder.plan.facts.tables import load
from builder.plan.resolve.environments import (
    CondaPackage,
    add_conda_line,
    add_conda_packages,
    base_image,
    substituted,
)
from builder.plan.resolve.project_texts import LONGEST_LINE, is_file, read_text
from builder.plan.resolve.requirements import files_beside, install_line, nothing
from builder.plan.resolve.wishes import NamedRequirement, Wishes

_MOST = 2000
"""Commands that are taken of one script, with those of its loops."""


@dataclass(frozen=True, kw_only=True)
class ScriptCommand:
    """A simple command of a script, with the values of its variables as far as the script tells them."""

    line: int
    text: str
    under: tuple[str, ...] = ()
    """The tests and labels that it stands under: ``[ "$TRAIN" = true ]``, ``$TORCH is 2.1.0``."""


# -- the shell's words

_ARRAY = re.compile(r"(?:(?:local|export|declare(?: -\w+)*)\s+)?(\w+)\+?=\((.*)\)\s*", re.DOTALL)
_ASSIGNED = re.compile(
    r"(?:(?:export|local|readonly|declare(?:\s+-\w+)*)\s+)?(\w+)=(\"[^\"]*\"|'[^']*'|[^\s;]*)"
)
_FUNCTION = re.compile(
    r"(?:function\s+)?([\w.-]+)\s*(?:\(\s*\))\s*\{?(.*)|function\s+([\w.-]+)\s*\{(.*)", re.DOTALL
)
_HEREDOC = re.compile(r"<<-?\s*[\"']?(\w+)[\"']?")


def _logical(text: str) -> Iterator[tuple[int, str]]:
    """Lines without comments, joined where one ends in a backslash or in an open bracket of an array, without
    documents that stand in the script.
    """
    joined, first, ends = "", 0, ""
    for number, raw in enumerate([*text.splitlines(), ""], 1):
        if ends:
            ends = "" if raw.strip() == ends else ends
            continue
        line = re.sub(r"(?:^|(?<=\s))#.*$", "", raw)
        first = first if joined else number
        joined += line
        if joined.rstrip().endswith("\\") and len(joined) < LONGEST_LINE:
            joined = joined.rstrip()[:-1] + " "
            continue
        if re.match(r"\s*(?:\w+\s+)*\w+\+?=\([^)]*$", joined) and len(joined) < LONGEST_LINE:
            joined += " "
            continue
        if (here := _HEREDOC.search(joined)) is not None and "<<<" not in joined:
            ends = here[1]
        if joined.strip():
            yield first, joined.strip()
        joined = ""


def _pieces(line: str) -> Iterator[str]:
    """The simple commands of a line, and its separators ``;;``: quotes and ``$(...)`` are kept whole."""
    start, depth, quote, n = 0, 0, "", 0
    while n < len(line):
        letter = line[n]
        if letter == "\\":
            n += 2
            continue
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'`":
            quote = letter
        elif line.startswith("$(", n) or (depth and letter == "("):
            depth += 1
            n += 1 if letter == "$" else 0
        elif depth and letter == ")":
            depth -= 1
        elif (
            depth == 0
            and letter in ";&|\n"
            and not re.match(r"[0-9]?>&|&>", line[max(n - 2, 0) : n + 1][-2:])
        ):
            if piece := line[start:n].strip():
                yield piece
            twice = line.startswith((";;", "&&", "||"), n)
            if line.startswith(";;", n):
                yield ";;"
            n += 2 if twice else 1
            start = n
            continue
        n += 1
    if piece := line[start:].strip():
        yield piece


@dataclass(kw_only=True)
class _Shell:
    """A script, read from its first line to its last: of tests, labels and loops every branch is read."""

    values: dict[str, str] = field(default_factory=dict)
    functions: dict[str, list[tuple[int, str]]] = field(default_factory=dict)
    stack: list[tuple[str, str]] = field(default_factory=list)
    """``if``, ``case``, ``label``, ``for``, ``while``, ``function`` or ``{``, each with its text."""

    def read(self, lines: Iterable[tuple[int, str]]) -> Iterator[ScriptCommand]:
        for number, line in lines:
            if (array := _ARRAY.fullmatch(line)) is not None:
                self.assign(array[1], " ".join(_words(substituted(array[2], self.values))))
                continue
            for piece in _pieces(line):
                yield from self.piece(number, piece)

    def piece(self, number: int, text: str) -> Iterator[ScriptCommand]:
        if self.stack and self.stack[-1][0] == "case":
            text = self.label(text)
        text = self.within(text)
        word, _, rest = text.partition(" ")
        if word in {"if", "while", "until"}:
            self.stack.append((word if word == "if" else "while", rest.strip()))
            yield from self.simple(number, rest.strip())
        elif word == "case":
            what, has, after = re.sub(r" in$", " in ", rest.strip()).partition(" in ")
            self.stack.append(("case", what.strip(" \"'")))
            if has and after.strip():
                yield from self.piece(number, after.strip())
        elif (named := _FUNCTION.fullmatch(text)) is not None:
            name = named[1] or named[3]
            self.functions[name] = []
            self.stack.append(("function", name))
            if rest := (named[2] or named[4] or "").strip():
                yield from self.piece(number, rest)
        elif text and not self.turned(word, rest.strip(), text):
            yield from self.simple(number, text)

    def within(self, text: str) -> str:
        """The rest of a piece behind ``then``, ``do``, ``else`` and brackets."""
        while (found := re.match(r"(?:then|do|else|\{|!|\()(?:\s+|$)", text)) is not None:
            word, text = found[0].strip(), text[found.end() :].strip()
            if word == "else":
                self.otherwise("")
            elif word == "{":
                self.stack.append(("{", ""))
        return text

    def turned(self, word: str, rest: str, text: str) -> bool:
        """Whether a word opens or ends a branch or a loop, which is remembered."""
        if word == "elif":
            self.otherwise(rest)
        elif word == ";;":
            if self.stack and self.stack[-1][0] == "label":
                self.stack.pop()
        elif word == "for" and (loop := re.match(r"for\s+(\w+)\s+in\s+(.*)", text)) is not None:
            self.stack.append(("for", loop[1]))
            self.values[loop[1]] = "\0".join(_words(substituted(loop[2], self.values)))
        elif word in {"for", "select"}:
            self.stack.append(("while", text))
        elif word in {"fi", "done", "esac", "}"}:
            self.close(word)
        else:
            return False
        return True

    def label(self, text: str) -> str:
        """The rest of a piece behind a label of ``case``."""
        found = re.match(r"\(?([^()\s][^()]*)\)\s*(.*)", text, re.DOTALL)
        if found is None or text == "esac":
            return text
        self.stack.append(("label", f"{self.stack[-1][1]} is {found[1].strip()}"))
        return found[2]

    def otherwise(self, test: str) -> None:
        for n in range(len(self.stack) - 1, -1, -1):
            if self.stack[n][0] == "if":
                self.stack[n:] = [("if", test)]
                return

    def close(self, word: str) -> None:
        kinds = {"fi": {"if"}, "done": {"for", "while"}, "esac": {"case"}, "}": {"function", "{"}}[word]
        for n in range(len(self.stack) - 1, -1, -1):
            if self.stack[n][0] in kinds:
                if self.stack[n][0] == "for":
                    self.values.pop(self.stack[n][1], None)
                del self.stack[n:]
                return

    def assign(self, name: str, value: str) -> None:
        """Of values that several branches give the first stays."""
        if any(kind in {"if", "label"} for kind, _ in self.stack) and self.values.get(name):
            return
        self.values[name] = value

    def simple(self, number: int, text: str) -> Iterator[ScriptCommand]:
        assigned = [*_ASSIGNED.finditer(text)]
        if assigned and not re.sub(
            r"^(?:export|local|readonly|declare)\b", "", _ASSIGNED.sub("", text)
        ).strip(" )`\"'"):
            for one in assigned:
                value = substituted(one[2].strip("\"'"), self.values)
                if "$" in value or "`" in value:  # what only a run tells
                    self.values.pop(one[1], None)
                else:
                    self.assign(one[1], value)
            return
        inside = next((name for kind, name in reversed(self.stack) if kind == "function"), None)
        if inside is not None and re.search(r"\$\{?(?:[1-9@*])", text):
            self.functions[inside].append((number, text))
            return
        called = text.split(maxsplit=1)
        if called[0] in self.functions:
            words = _words(substituted(called[1] if len(called) > 1 else "", self.values))
            for line, body in self.functions[called[0]]:
                yield from self.said(line, _with_arguments(body, words))
            return
        yield from self.said(number, text)

    def said(self, number: int, text: str) -> Iterator[ScriptCommand]:
        """The command, once for each value of the loops' variables that it has."""
        text = re.sub(r"\"?\$\{(\w+)\[[@*]\]\}\"?", r"${\1}", text)
        under = tuple(said for kind, said in self.stack if kind in {"if", "label"} and said)
        loops = [
            name
            for kind, name in self.stack
            if kind == "for" and re.search(rf"\$\{{?{re.escape(name)}\b", text)
        ]
        every = [self.values.get(name, "").split("\0") for name in loops]
        for chosen in itertools.islice(itertools.product(*every), 64):
            values = {**self.values, **dict(zip(loops, chosen, strict=True))}
            yield ScriptCommand(line=number, text=substituted(text, values), under=under)


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:  # its quotes do not close
        return text.split()


def _with_arguments(body: str, words: Sequence[str]) -> str:
    """A function's command with its arguments; of one that is not given nothing."""
    text = re.sub(r"\"?\$\{?[@*]\}?\"?", lambda _: shlex.join(words), body)
    return re.sub(
        r"\$\{?([1-9])\}?", lambda one: words[int(one[1]) - 1] if int(one[1]) <= len(words) else "", text
    )


def script_commands(text: str) -> Iterator[ScriptCommand]:
    """The simple commands of a shell script, those of its functions, tests, labels and loops among them."""
    yield from itertools.islice(_Shell().read(_logical(text)), _MOST)


_RULE = re.compile(r"(?P<targets>[\w./ -]+?)\s*:(?!=)")
_MAKES_OWN = re.compile(r"\s*(?:export\s+)?(\w+)\s*[:?+]?=\s*(.*)")


def make_commands(text: str) -> Iterator[ScriptCommand]:
    """The commands of a Makefile's rules, each under the targets of its rule."""
    shell, targets = _Shell(), ""
    for number, line in _logical(text.replace("\n\t", "\n\v")):
        if line.startswith("\v") or (targets and line.startswith("@")):
            command = re.sub(r"\$\((\w+)\)", r"${\1}", line.lstrip("\v @-+"))
            for one in shell.read([(number, command)]):
                yield replace(one, under=(f"make {targets}", *one.under))
            shell.stack.clear()
        elif (own := _MAKES_OWN.fullmatch(line)) is not None:
            value = substituted(re.sub(r"\$\((\w+)\)", r"${\1}", own[2]), shell.values)
            shell.values[own[1]] = value if "$" not in value else ""
        elif (rule := _RULE.match(line)) is not None:
            targets = rule["targets"]


def definition_commands(text: str) -> Iterator[ScriptCommand]:
    """The commands of the ``%post`` of an Apptainer or Singularity definition."""
    lines, inside = list[str](), False
    for line in text.splitlines():
        if line.startswith("%"):
            inside = line.split()[0] == "%post"
            line = ""  # noqa: PLW2901 - lines keep their numbers
        lines.append(line if inside else "")
    yield from script_commands("\n".join(lines))


# -- what a script installs

_SCRIPTS = re.compile(
    r"(?i)(?:[\w.-]*(?:install|set_?up|env(?:ironment)?|bootstrap|prepare|requirements?|dependenc\w+|conda|deps)"
    r"[\w.-]*\.(?:sh|bash)|(?:gnu)?makefile|[\w.-]+\.def|singularity(?:\..*)?)"
)
_FOLDERS = (
    "scripts",
    "script",
    "install",
    "installation",
    "setup",
    "env",
    "envs",
    "docker",
    "tools",
    "singularity",
)
_OTHER_MACHINE = re.compile(
    r"(?i)rocm|\bhip\b|\bcpu(?:[-_]?only)?\b|darwin|mac_?os|\bmac\b|windows|win32|msys|cygwin|aarch64|arm64|\bmps\b"
    r"|\bxpu\b|\bnpu\b|jetson"
)
"""Words of tests and labels under which another machine is served."""
_OTHER_USE = re.compile(
    r"(?i)(?<![a-z])(?:train(?:ing)?|tests?|dev(?:elop)?|docs?|lint|debug|bench\w*|jupyter|format|clean|publish|release"
    r"|check|style|quality|coverage)(?![a-z])"
)
"""Those of what not every user of the project does."""
_INSTALLS = re.compile(
    r"(?:^|\s)(?:(?:uv\s+)?pip[\d.]*\s+(?:-\S+\s+)*install|(?:conda|mamba|micromamba)\s+(?:install|create))\b"
)
_APT = re.compile(
    r"(?:sudo\s+(?:-\S+\s+)*)?(?:\w+=\S+\s+)*(?:apt-get|apt|aptitude)\s+(?:-\S+\s+)*install\s+(?P<rest>.*)"
)


def scripts_of(folder: Path) -> list[Path]:
    """The scripts of a project that install it, those of its own folder first."""
    found = list[Path]()
    for one in (folder, *(folder / name for name in _FOLDERS)):
        with contextlib.suppress(OSError):  # no such folder, or one that nobody may read
            found += sorted(path for path in one.iterdir() if _SCRIPTS.fullmatch(path.name) and is_file(path))
    return found


def from_script(path: Path) -> Wishes:
    """What a script installs by pip, conda and mamba, out of repositories that it clones, and on the system,
    as its own author's set: of several releases of a package, by tests or labels, any. Raises UsageError
    without any.
    """
    text = read_text(path)
    found = Wishes()
    if re.fullmatch(r"(?i)(?:gnu)?makefile", path.name):
        commands = make_commands(text)
    elif re.fullmatch(r"(?i)[\w.-]+\.def|singularity(?:\..*)?", path.name):
        commands = definition_commands(text)
        image = re.search(r"(?im)^from:\s*(\S+)", text)
        base = base_image(f"FROM {image[1]}\n") if image is not None else None
        if base is not None and base.requirement is not None:
            found.add(base.requirement, str(path))
            found.note(str(path), f"From: {base.name}", base.told)
    else:
        commands = script_commands(text)
    reader = _Installer(path=path, found=found)
    for command in commands:
        reader.take(command)
    reader.end()
    if not found.wishes and not found.sources and not found.by_hand:
        raise nothing(f"{path} installs nothing by pip", found, "lines such as `pip install torch` are read")
    found.wishes = [wish.as_told() for wish in found.wishes]
    return found


@dataclass(kw_only=True)
class _Installer:
    """What the commands of a script install, one after the other."""

    path: Path
    found: Wishes
    folder: str = ""
    """That in which the commands run, as the script writes it; empty for the project's own."""
    clones: dict[str, str] = field(default_factory=dict)
    """By folder: the repository that it is a clone of, as ``git+https://...@at``."""
    copies: dict[str, str] = field(default_factory=dict)
    taken: list[tuple[ScriptCommand, Wishes]] = field(default_factory=list)
    left: dict[str, list[str]] = field(default_factory=dict)
    """By the test that it stands under: what is left out since it is for another use."""
    apt: dict[str, None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.take_file = files_beside(self.path)

    def take(self, command: ScriptCommand) -> None:
        if any(map(_OTHER_MACHINE.search, command.under)):
            return
        text = command.text.strip()
        words = _words(text)
        if not words:
            return
        if words[0] in {"cd", "pushd"}:
            self.enter(words[1] if len(words) > 1 else "")
        elif words[0] == "popd":
            self.folder = ""
        elif words[0] == "git":
            self.git(words)
        elif words[0] == "cp" and len(words) >= 3:
            plain = [word for word in words[1:] if not word.startswith("-")]
            self.copies[plain[-1].rstrip("/")] = plain[0].rstrip("/")
        elif (apt := _APT.match(text)) is not None:
            self.apt |= dict.fromkeys(
                w for w in _words(apt["rest"]) if re.fullmatch(r"[a-z0-9][a-z0-9.+-]+", w)
            )
        elif re.match(r"\S*python[\d.]*$", words[0]) and (by := self.by_setup(words)) is not None:
            self.install(command, by)
        elif _INSTALLS.search(text):
            self.install(command, text)

    def enter(self, where: str) -> None:
        if where in {"", "-", ".."} or where.startswith(("..", "$", "~")):
            self.folder = ""
        else:
            self.folder = (
                where.rstrip("/") if where.startswith("/") or not self.folder else f"{self.folder}/{where}"
            )

    def git(self, words: Sequence[str]) -> None:
        plain = [word for word in words[2:] if not word.startswith("-")]
        if words[1:2] == ["clone"]:
            url = next((word for word in plain if "://" in word or word.startswith("git@")), None)
            branch = next(
                (words[n + 1] for n, word in enumerate(words[:-1]) if word in {"-b", "--branch"}), None
            )
            if url is None:
                return
            url = re.sub(r"^git@([\w.-]+):", r"https://\1/", url)
            others = [word for word in plain if word not in {url, branch} and not word.isdigit()]
            target = others[-1] if others and others[-1] != url else url.rstrip("/").rpartition("/")[2]
            target = target.removesuffix(".git").rstrip("/").removeprefix("./")
            self.clones[target] = f"git+{url}" + (f"@{branch}" if branch else "")
        elif (
            words[1:2] in (["checkout"], ["reset"])
            and plain
            and (clone := self.clone(self.folder)) is not None
        ):
            self.clones[clone] = f"{self.clones[clone].partition('@')[0]}@{plain[-1].removeprefix('tags/')}"

    def clone(self, folder: str) -> str | None:
        """The clone that a folder is, or is in."""
        plain = folder.rstrip("/").removeprefix("./")
        return next((one for one in self.clones if plain == one or plain.startswith(f"{one}/")), None)

    def by_setup(self, words: Sequence[str]) -> str | None:
        """pip's command in place of ``python setup.py install`` and ``python -m pip``."""
        if len(words) > 2 and words[1:3] == ["-m", "pip"]:
            return shlex.join(["pip", *words[3:]]) if "install" in words else None
        if (
            len(words) < 3
            or not words[1].endswith("setup.py")
            or words[2] not in {"install", "develop", "build_ext"}
        ):
            return None
        return shlex.join(["pip", "install", words[1].rpartition("setup.py")[0] or "."])

    def install(self, command: ScriptCommand, text: str) -> None:
        if (other := next((one for one in command.under if _OTHER_USE.search(one)), None)) is not None:
            named = re.split(r"\binstall\b", text)[-1].split()
            self.left.setdefault(other, []).extend(w for w in named if not w.startswith("-"))
            return
        part, packages = Wishes(), dict[str, CondaPackage]()
        place = f"{self.path}:{command.line}"
        with contextlib.suppress(UsageError):  # a word that no requirement is: the rest of the script tells
            install_line(self.by_repository(text), place, part, self.take_file)
            add_conda_line(text, place, packages, part)
        try:
            add_conda_packages(packages, self.path, part)
        except (CellError, UsageError) as problem:
            part.notes.append(f"{place}: {problem.message}")
        part.wishes = [replace(wish, place=place) if wish.of_conda else wish for wish in part.wishes]
        self.taken.append((command, part))

    def by_repository(self, text: str) -> str:
        """A command of pip's with the repositories in the place of their clones."""
        words = _words(text)
        for n, word in enumerate(words):
            if n == 0 or word.startswith("-") or "://" in word:
                continue
            path = word.partition("[")[0]
            path = self.copies.get(path.rstrip("/"), path)
            inner = path.startswith("/") or not self.folder
            whole = path if inner else f"{self.folder}/{path}".removesuffix("/.")
            clone = self.clone(whole)
            if clone is not None and ("/" in path or path == "." or path in self.clones):
                below = whole.rstrip("/").removeprefix("./").removeprefix(clone).strip("/")
                words[n] = self.clones[clone] + (f"#subdirectory={below}" if below else "")
            elif path != word and path != word.partition("[")[0]:
                words[n] = f"./{path}"
            elif self.folder and path == ".":
                words[n] = whole if whole.startswith("/") else f"./{whole}"
        return shlex.join(words)

    def end(self) -> None:
        """Take over what was installed: where several releases of a package are, by tests, any of them."""
        texts, by_name = dict[str, dict[str, NamedRequirement]](), dict[str, NamedRequirement]()
        for _, part in self.taken:
            for wish in part.wishes:
                where = " ".join((str(wish), *part.index, *part.pages))
                texts.setdefault(wish.name, {})[where] = wish
                by_name.setdefault(wish.name, wish)
        several = {name for name, each in texts.items() if len(each) > 1}
        gone = set(_for_other_cudas(texts))
        for _, part in self.taken:
            if {wish.name for wish in part.wishes} & several:  # the index and the page of one of these
                part.index, part.places, part.pages, part.notes = [], {}, {}, []
            part.wishes = [w for w in part.wishes if w.name not in several | gone]
            self.found.take_over(part)
        for name in sorted(several - gone):
            self.found.wishes.append(self.of_several(name, [*texts[name].values()]))
        for name in sorted(gone):
            self.found.note(
                by_name[name].place, name, "left out: another of its names, for another CUDA, stays"
            )
        if self.apt:
            self.found.notes.append(
                f"{self.path}: on the system: `sudo apt-get install -y {' '.join(self.apt)}`"
            )
        for test, named in self.left.items():
            why = "left out: not for every use; name beside what is needed"
            self.found.note(str(self.path), f"under {test}: {' '.join(dict.fromkeys(named))}", why)

    def of_several(self, name: str, each: Sequence[NamedRequirement]) -> NamedRequirement:
        """A package of which a script has several releases, by tests or labels, in any."""
        last = max(
            each,
            key=lambda one: max(
                (release(s.version.removesuffix(".*")) for s in one.parsed.specifier), default=release("0")
            ),
        )
        newest = f", {last} the newest" * bool(last.parsed.specifier)
        why = f"one of {len(each)} lines, by the script's tests{newest}: taken in any release"
        self.found.note(each[0].place, name, why)
        extras = f"[{','.join(sorted(each[0].parsed.extras))}]" if each[0].parsed.extras else ""
        return replace(each[0], parsed=Requirement(f"{each[0].parsed.name}{extras}"))


def _for_other_cudas(names: Iterable[str]) -> Iterator[str]:
    """Of names of one package for several CUDAs, spconv-cu118 and spconv-cu120, all but the newest."""
    there = {*names}
    for row in load().same_files:
        mine = [name for name in row.names if name in there and re.search(r"-cu(?:da)?\d+x?$", name)]
        mine.sort(key=lambda name: int((re.search(r"(\d+)x?$", name) or ["", "0"])[1].ljust(3, "0")))
        yield from mine[:-1]


# -- continuous integration: https://docs.github.com/actions, https://docs.travis-ci.com,
# https://learn.microsoft.com/azure/devops/pipelines, https://docs.gitlab.com/ci, https://circleci.com/docs

_JOBS = (".travis.yml", "azure-pipelines.yml", ".gitlab-ci.yml", ".circleci/config.yml", "appveyor.yml")
_LARGEST = 256 << 10


def told_by_jobs(folder: Path, found: Wishes) -> None:
    """Take over, as told, the releases that a project's jobs of continuous integration install, and the
    newest Python that they name: what its author ran. They count less than any requirement.
    """
    paths = [folder / name for name in _JOBS]
    with contextlib.suppress(OSError):  # no such folder
        paths += sorted((folder / ".github" / "workflows").glob("*.y*ml"))
    for path in filter(is_file, paths):
        with contextlib.suppress(
            UsageError, yaml.YAMLError, RecursionError
        ):  # no text, or no YAML: nothing is told
            text = read_text(path)
            if len(text) <= _LARGEST:
                loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
                document = yaml.load(text, Loader=loader)  # noqa: S506 - it makes texts and nothing else
                _told_by_job(document, path, found)


def _told_by_job(document: Any, path: Path, found: Wishes) -> None:
    pythons, part, take_file = set[str](), Wishes(), lambda *_: None
    for name, text in _texts_of(document, ""):
        if re.fullmatch(r"(?i)python(?:[-_.]?version)?s?|versionspec", name):
            pythons |= {*re.findall(r"(?<![\d.])3\.\d{1,2}(?![\d.]*\.\d)", text)}
        for command in script_commands(text) if _INSTALLS.search(text) else ():
            with contextlib.suppress(UsageError):
                install_line(command.text, str(path), part, take_file)
    if pythons:
        newest = max(pythons, key=key)
        parsed = Requirement(f"python=={newest}")
        found.told.setdefault("python", NamedRequirement(parsed=parsed, place=str(path)))
    for wish in part.wishes:
        if len({*wish.parsed.specifier}) == 1 and wish.parsed.marker is None:
            found.told.setdefault(wish.name, wish)


def _texts_of(document: Any, name: str, depth: int = 0) -> Iterator[tuple[str, str]]:
    """Every text of a document with the nearest key above it."""
    if depth > 20:
        return
    if isinstance(document, Mapping):
        for one, value in document.items():
            yield from _texts_of(value, str(one), depth + 1)
    elif isinstance(document, list):
        for value in document:
            yield from _texts_of(value, name, depth + 1)
    elif isinstance(document, str):
        yield name, document
