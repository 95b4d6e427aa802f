"""Requirements out of Python source and setuptools' settings, which are read and never run: ``setup.py``,
``setup.cfg``, and notebooks, with what their code imports.

The formats: https://setuptools.pypa.io/en/latest/references/keywords.html,
https://setuptools.pypa.io/en/latest/userguide/declarative_config.html, https://nbformat.readthedocs.io/
"""

import ast
import configparser
import contextlib
import itertools
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from packaging.specifiers import SpecifierSet

from builder.core.documents import parse_json
from builder.core.errors import UsageError
from builder.core.module_syntax import called
from builder.core.versions import canonical, requirement
from builder.plan.facts.tables import load
from builder.plan.resolve.environments import CondaPackage, add_conda_line, add_conda_packages
from builder.plan.resolve.evidence import bound_by_sources, used_names
from builder.plan.resolve.project_texts import quoted, read_text
from builder.plan.resolve.requirements import add_extras, files_beside, install_line, nothing
from builder.plan.resolve.wishes import Wishes

# -- setuptools: setup.py and setup.cfg


def from_setup_cfg(path: Path) -> Wishes:
    """``[options]`` of setuptools' settings, and the files that they name. Raises UsageError."""
    settings = configparser.RawConfigParser(strict=False)
    try:
        settings.read_string(read_text(path))
    except (configparser.Error, ValueError) as problem:
        raise UsageError(f"{path} cannot be read: {str(problem).splitlines()[0]}") from problem
    found = Wishes()
    text = settings.get("options", "install_requires", fallback="")
    if text.strip().startswith("file:"):
        for name in text.strip().removeprefix("file:").split(","):
            files_beside(path)(name.strip(), f"{path}, options.install_requires", found)
        text = ""
    for line in re.split(r"\n|(?<=[^,<>=!~])\s*;\s*(?=[A-Za-z][\w.-]*\s*[<>=!~])", text):
        if line.strip() and not line.lstrip().startswith("#"):
            found.add(re.sub(r"\s#.*", "", line).strip(), f"{path}, options.install_requires")
    found.python = settings.get("options", "python_requires", fallback="").strip() or None
    extras = settings["options.extras_require"] if settings.has_section("options.extras_require") else {}
    project = settings.get("metadata", "name", fallback=None)
    add_extras({name: value.split("\n") for name, value in extras.items()}, path, found, project)
    if not found.wishes and found.python is None:
        raise UsageError(
            f"{path} names no dependencies", hint="they stand under [options], as install_requires"
        )
    return found


def from_setup_py(path: Path) -> Wishes:
    """What ``setup()`` is called with: ``install_requires``, ``python_requires``, the frameworks of
    ``extras_require``. The program is read, and not run; what it computes is told.

    Raises UsageError.
    """
    try:
        program = _Program(path=path)
        program.run(ast.parse(read_text(path)).body)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as problem:
        raise UsageError(
            f"{path} cannot be read: {problem}", hint="it is Python 2's, or no program"
        ) from problem
    found = program.found
    if not found.wishes:
        raise UsageError(
            "\n  ".join((f"{path} calls no setup() with packages that can be read", *found.notes)),
            hint="where it is installed: `pip freeze >requirements.txt`; or name frameworks, as in "
            "`rtbuild resolve torch`",
        )
    return found


_NOT_READ = object()
"""The value of an expression that only a run would tell."""


@dataclass(kw_only=True)
class _Program:
    """A setup.py, read from its first statement to its last: values of names, and what ``setup`` gets.

    Both branches of a test that depends on how it is run are read, one after the other.
    """

    path: Path

    def __post_init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.files: dict[str, list[str]] = {}
        """The files that each function's text names."""
        self.found = Wishes()
        self.perhaps: list[str] = []
        """The tests that the statement under way depends on."""
        self.by_test: dict[str, str] = {}
        """Requirements that a test decides, with the test."""

    def run(self, body: Sequence[ast.stmt]) -> None:
        for node in body:
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                value = self.value(node.value)
                for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    self.assign(target, value)
            elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
                self.extend(node.target.id, self.value(node.value))
            elif isinstance(node, ast.If):
                self.branch(node)
            elif isinstance(node, ast.With | ast.Try | ast.For):
                self.run(node.body)
            elif isinstance(node, ast.FunctionDef):
                self.files[node.name] = _named_files(node)
                if any(isinstance(one, ast.Call) and called(one) == "setup" for one in ast.walk(node)):
                    self.run(node.body)
            elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
                self.call(node.value)

    def branch(self, node: ast.If) -> None:
        told = self.test(node.test)
        text = quoted(ast.unparse(node.test))
        for holds_, body in ((True, node.body), (False, node.orelse)):
            if told is None:
                self.perhaps.append(text if holds_ else f"not ({text})")
                self.run(body)
                self.perhaps.pop()
            elif told is holds_:
                self.run(body)

    def test(self, node: ast.expr) -> bool | None:
        """Whether a test holds on Linux in a Python 3, as far as its text tells."""
        text = ast.unparse(node)
        if text == "__name__ == '__main__'":
            return True
        major = re.search(r"sys\.version_info(?:\[0\]|\.major|\[:\d\])? *(<|<=|==|>=|>|!=) *\(?(\d)", text)
        if major is not None and "3," not in text.partition(major[1])[2]:
            return SpecifierSet(major[1] + major[2]).contains("3")
        if re.search(r"win32|darwin|Darwin|Windows|'nt'|cygwin", text):
            return "!=" in text or text.startswith("not ")
        return None

    def assign(self, target: ast.expr, value: Any) -> None:
        if isinstance(target, ast.Name):
            if self.perhaps and isinstance(value, list):
                self.decide(value)
                before = self.values.get(target.id)
                value = [*before, *value] if isinstance(before, list) else value
            self.values[target.id] = value
        elif isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name):
            table, key = self.values.get(target.value.id), self.value(target.slice)
            if isinstance(table, dict) and isinstance(key, str):
                table[key] = value

    def extend(self, name: str, value: Any) -> None:
        before = self.values.get(name)
        if not isinstance(before, list) or not isinstance(value, list):
            self.values[name] = (
                _NOT_READ if not isinstance(before, str) or not isinstance(value, str) else before + value
            )
            return
        self.decide(value)
        self.values[name] = [*before, *value]

    def decide(self, texts: Iterable[Any]) -> None:
        for text in texts if self.perhaps else ():
            self.by_test.setdefault(str(text), " and ".join(self.perhaps))

    def call(self, node: ast.Call) -> None:
        if called(node) == "setup":
            keywords: dict[str, ast.expr | Any] = {}
            for one in node.keywords:
                spread = self.value(one.value) if one.arg is None else None
                keywords |= spread if isinstance(spread, dict) else {one.arg: one.value} if one.arg else {}
            self.setup(
                {k: self.value(v) if isinstance(v, ast.expr) else v for k, v in keywords.items()}, node
            )
        elif isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name) and node.args:
            value, name = self.value(node.args[0]), node.func.value.id
            if node.func.attr == "append":
                self.extend(name, [value] if isinstance(value, str) else value)
            elif node.func.attr == "extend":
                self.extend(name, value)
            elif (
                node.func.attr == "update"
                and isinstance(self.values.get(name), dict)
                and isinstance(value, dict)
            ):
                self.values[name] = {**self.values[name], **value}

    def value(self, node: ast.expr) -> Any:
        """A text, list or table; what a file of requirements has, as :class:`_OfFile`; else ``_NOT_READ``."""
        value: Any = _NOT_READ
        match node:
            case ast.Constant():
                value = node.value
            case ast.Name():
                value = self.values.get(node.id, _NOT_READ)
            case ast.List() | ast.Tuple() | ast.Set():
                value = self.several(node.elts)
            case ast.Dict():
                pairs = zip(node.keys, node.values, strict=True)
                value = {k.value: self.value(v) for k, v in pairs if isinstance(k, ast.Constant)}
            case ast.BinOp(op=ast.Add()):
                left, right = self.value(node.left), self.value(node.right)
                if type(left) is type(right) and isinstance(left, str | list):
                    value = left + right
            case ast.JoinedStr():
                inner = (one.value if isinstance(one, ast.FormattedValue) else one for one in node.values)
                parts = [self.value(one) for one in inner]
                value = "".join(parts) if all(isinstance(one, str) for one in parts) else value
            case ast.IfExp():
                value = self.value(node.orelse if self.test(node.test) is False else node.body)
            case ast.Subscript():
                table = self.value(node.value)
                value = table.get(str(self.value(node.slice)), value) if isinstance(table, dict) else value
            case ast.Call(args=[ast.expr() as only]) if called(node) in {"list", "sorted", "tuple", "set"}:
                value = self.value(only)
            case _:
                of_function = self.files.get(called(node), []) if isinstance(node, ast.Call) else []
                files = _named_files(node) or of_function
                value = [_OfFile(name) for name in files] or _NOT_READ
        return value

    def several(self, nodes: Sequence[ast.expr]) -> list[Any]:
        found = list[Any]()
        for one in nodes:
            value = self.value(one.value if isinstance(one, ast.Starred) else one)
            found += value if isinstance(one, ast.Starred) and isinstance(value, list) else [value]
        return found

    def setup(self, keywords: Mapping[str, Any], node: ast.Call) -> None:
        place = f"{self.path}:{node.lineno}"
        self.take(keywords.get("install_requires", []), f"{place}, install_requires")
        python = keywords.get("python_requires")
        if isinstance(python, str):
            self.found.python = python
        elif python is not None:
            self.found.note(place, "python_requires", "computed by the program, which is not run")
        extras = keywords.get("extras_require", {})
        if isinstance(extras, dict):
            listed = {
                str(k): [one for one in v if isinstance(one, str)]
                for k, v in extras.items()
                if isinstance(v, list)
            }
            name = keywords.get("name")
            add_extras(listed, self.path, self.found, name if isinstance(name, str) else None)
        elif extras is not None:
            self.found.note(place, "extras_require", "computed by the program, which is not run")
        for name in ("tests_require", "setup_requires"):
            asked = keywords.get(name)
            others = [one for one in (asked if isinstance(asked, list) else [asked]) if isinstance(one, str)]
            if others:
                self.found.note(
                    place, f"{name} ({', '.join(others[:4])})", "not taken over: it is not what runs needs"
                )

    def take(self, listed: Any, place: str) -> None:
        listed = listed.splitlines() if isinstance(listed, str) else listed
        if not isinstance(listed, list):
            self.found.note(place, "its value", "computed by the program, which is not run")
            return
        texts = [one for one in listed if isinstance(one, str) and one.strip()]
        for one in dict.fromkeys(name for name in listed if isinstance(name, _OfFile)):
            files_beside(self.path)(one.name, place, self.found)
        if any(one is _NOT_READ for one in listed):
            self.found.note(place, "a part of install_requires", "computed by the program, which is not run")
        for text in self.for_gpus(texts, place):
            self.found.add(text.strip(), place)

    def for_gpus(self, texts: Sequence[str], place: str) -> Iterator[str]:
        """The texts; of several distributions of one framework under tests the one for GPUs."""
        parsed = {text: requirement(text) for text in texts}
        names = {canonical(one.name) for one in parsed.values() if one is not None}
        for text in dict.fromkeys(texts):
            one = parsed[text]
            name = canonical(one.name) if one is not None else ""
            other = f"{name}-gpu" if f"{name}-gpu" in names else None
            if text in self.by_test:
                why = f"left out: {other} stands for it" if other else "taken, as if the test held"
                self.found.note(place, f"{text} (if {self.by_test[text]})", why)
            if other is None or text not in self.by_test:
                yield text


@dataclass(frozen=True)
class _OfFile:
    """The lines of a requirements file, by its name, in the place of a list."""

    name: str


def _named_files(node: ast.AST) -> list[str]:
    """The names of files in a statement's texts that may hold requirements."""
    texts = (one.value for one in ast.walk(node) if isinstance(one, ast.Constant))
    files = (text for text in texts if isinstance(text, str) and re.fullmatch(r"[\w./-]+\.(?:txt|in)", text))
    return [
        file
        for file in files
        if not re.search(r"(?i)readme|licen[cs]e|version|changes|history|manifest", file)
    ]


# -- notebooks: https://nbformat.readthedocs.io/

_COMMENTED = re.compile(r"^\s*#\s*[!%](?=\s*pip\d?\s+install\b)")
"""A line that readers are asked to take out of its comment, as in the notebooks of transformers: read if no
other line installs anything.
"""


def from_notebook(path: Path) -> Wishes:
    """The packages of ``!pip install``, ``%pip install`` and ``!conda install`` lines, in order, what the
    code imports, and the framework that it imports, if no line installs one.

    Raises UsageError.
    """
    try:
        document = parse_json(read_text(path))
        cells = list(document["cells"] if "cells" in document else document["worksheets"][0]["cells"])
    except (ValueError, KeyError, IndexError, TypeError) as problem:
        raise UsageError(f"{path} is no notebook", hint="a notebook is JSON with cells: .ipynb") from problem
    found, take_file, code = Wishes(), files_beside(path), list[tuple[str, str]]()
    packages, printed = dict[str, CondaPackage](), dict[str, tuple[str, str]]()
    for number, cell in enumerate(cells, 1):
        if not isinstance(cell, dict) or cell.get("cell_type") != "code":
            continue
        source = cell.get("source", cell.get("input", ""))
        lines = source if isinstance(source, list) else []
        text = source if isinstance(source, str) else "".join(map(str, lines))
        found.imports += imports_of_source(re.sub(r"(?m)^[ \t]*[!%].*$", "", text))
        if (version := _version_printed(text, cell.get("outputs"))) is not None:
            printed[version[0]] = (version[1], f"cell {number}")
        shell = text.lstrip().startswith(("%%bash", "%%sh", "%%script"))
        for line_number, line in enumerate(re.sub(r"\\\n", " ", text).splitlines(), 1):
            code.append((line, f"cell {number}, line {line_number}"))
            if shell or line.lstrip().startswith(("!", "%")):
                place = f"{path}, cell {number}, line {line_number}"
                install_line(line, place, found, take_file)
                add_conda_line(line, place, packages, found)
    add_conda_packages(packages, path, found)
    found = found.once()
    for line, place in () if found.wishes else code:
        install_line(_COMMENTED.sub("!", line), f"{path}, {place}", found, take_file)
    if not any(load().is_framework(wish.name) for wish in found.wishes):
        _imported(code, printed, path, found)
    if not found.wishes:
        raise nothing(f"{path} installs nothing by pip", found, "lines such as `!pip install torch` are read")
    bound_by_sources(cells_of(read_text(path), path), found)
    return found


IMPORT = re.compile(r"(?m)^[ \t]*(?:import|from(?=[ \t]+[\w.]+[ \t]+import\b))[ \t]+(\w+)")
_RUNS_ON = {
    "keras": "tensorflow",  # which it ran on before Keras 3, and runs on by default
    "diffusers": "torch", "fastai": "torch", "timm": "torch", "torchaudio": "torch", "torchvision": "torch",
    "transformers": "torch", "ultralytics": "torch",
}  # fmt: skip
"""The framework that a package computes with, if the code imports none itself."""
_USUAL = (
    "easydict", "einops", "emoji", "flask", "ftfy", "gym", "imageio", "inflect", "jieba", "kornia", "librosa",
    "lmdb", "lpips", "moviepy", "nibabel", "nltk", "numpy", "omegaconf", "plyfile", "pydicom", "pydub",
    "requests", "sacrebleu", "seaborn", "sentencepiece", "six", "soundfile", "sympy", "tabulate",
    "tensorboardx", "termcolor", "tqdm", "trimesh", "unidecode", "visdom", "wandb", "yacs",
)  # fmt: skip
"""Packages that have the name of their module, beside those on record."""
OF_MODULES = {"absl": "absl-py", "bs4": "beautifulsoup4", "hydra": "hydra-core", "yaml": "pyyaml"}


def _framework_of(modules: Sequence[str]) -> tuple[str, str] | None:
    """The module of the first framework among these, and its distribution; else of what runs on one."""
    own = {row.module: row.distribution for row in load().registry if row.module and row.distribution}
    for wanted in (own, _RUNS_ON):
        found = next((module for module in modules if module in wanted), None)
        if found is not None:
            return found, wanted[found]
    return None


def _imported(
    code: Sequence[tuple[str, str]], printed: Mapping[str, tuple[str, str]], path: Path, found: Wishes
) -> None:
    """Take over the first framework that a notebook's lines import, in any release: Colab and Kaggle have it.
    Where no line installs anything, what else they import of packages on record, as of a folder's sources.

    ``code``: each line and its place; ``printed``: the versions that it printed of modules, with the cell.
    """
    places = dict[str, str]()
    for line, place in code:
        if (said := IMPORT.match(line)) is not None:
            places.setdefault(said[1], place)
    if (taken := _framework_of(list(places))) is None:
        return
    module, name = taken
    text = "\n".join(line for line, _ in code)
    if module == "transformers" and re.search(r"\bTF[A-Z]\w+", text):
        name = "tensorflow"  # its classes for TensorFlow
    version, cell = printed.get(module, ("", ""))
    asked = f"{name}=={version}" if version and name == module else f"{name}==VERSION"
    why = f"no line installs it: {name}, in any release; `rtbuild resolve {asked}` asks for one"
    old = next((one for one in code if re.match(r"\s*%tensorflow_version 1", one[0])), None)
    if name == "tensorflow" and old is not None:
        name, why = "tensorflow<2", f"{old[1]} has `{quoted(old[0].strip())}`: tensorflow<2"
    elif module == "keras" and version.startswith("2."):
        # https://keras.io/getting_started/ (2.15 is the last TensorFlow with Keras 2)
        name = "tensorflow>=2,<2.16"
        why = (
            f"{cell} printed Keras {version}, and no TensorFlow 1 of that time has code for a card of CUDA "
            "11 or later: taken is a TensorFlow 2 with Keras 2. To change: `from tensorflow import keras` in "
            "place of `import keras`, `from tensorflow.keras` of `from keras`, `learning_rate=` of `lr=`"
        )
    bare = not found.wishes
    found.add(name, f"{path}, {places[module]}")
    found.note(f"{path}, {places[module]}", f"import of {module}", why)
    if bare:
        _add_companions(path, places, found)
    names = {wish.name for wish in found.wishes}
    if (
        name == "torch"
        and "accelerate" not in names
        and re.search(r"\bTrainer\b", text)
        and "transformers" in names
    ):
        # https://huggingface.co/docs/transformers/main_classes/trainer
        found.add("accelerate", str(path))
        found.note(
            str(path), "accelerate", "added: transformers' Trainer runs by it, and does not install it"
        )


_PRINTED = re.compile(r"(?m)^[ \t]*(?:print\()?(\w+)\.__version__\)?\s*\Z")


def _version_printed(text: str, outputs: Any) -> tuple[str, str] | None:
    """The module whose version a cell prints in the end, and that version by its output."""
    asks = _PRINTED.search(text)
    if asks is None or not isinstance(outputs, list):
        return None
    for one in outputs:
        data = one.get("data", {}) if isinstance(one, dict) else {}
        told = data.get("text/plain") or one.get("text") if isinstance(data, dict) and data else None
        told = told or (one.get("text") if isinstance(one, dict) else None)
        said = told if isinstance(told, str) else "".join(map(str, told or ()))
        version = re.fullmatch(r"'?(\d+\.\d[\w.+]*)'?", said.strip())
        if version is not None:
            return asks[1], version[1]
    return None


def add_imported(folder: Path, found: Wishes, *, rest: bool = True) -> None:
    """Take over the framework that most of a folder's Python files and notebooks import, in any release, if
    none of the requirements is on it; with ``rest`` what else they import of packages on record.
    """
    files = list[tuple[Path, list[str]]]()
    for path in itertools.islice(sources_below(folder, (".py", ".ipynb")), MOST_SOURCES):
        with contextlib.suppress(UsageError):  # no text, or too long: another file tells
            text = read_text(path)
            if path.suffix == ".ipynb":
                text = "".join(code for _, code, _ in cells_of(text, path))
            others = (module.partition(".")[0] for module in used_names(text, str)[1])
            files.append((path, [*dict.fromkeys((*IMPORT.findall(text), *others))]))
    times = Counter(module for _, names in files for module in {*names})
    taken = _framework_of(sorted(times, key=lambda one: (-times[one], one)))
    if taken is None:
        return
    module, name = taken
    if all(load().table_name(wish.name) != load().table_name(canonical(name)) for wish in found.wishes):
        place = next(path for path, names in files if module in names)
        why = f"{times[module]} of its files import it: {name}, in any release"
        found.add(name, str(place))
        found.note(str(folder), f"import of {module}", why)
    own = {part for path, _ in files for part in (path.stem, path.parent.name)} | {folder.absolute().name}
    if rest:
        _add_companions(folder, {*times} - own, found)


def _add_companions(path: Path, modules: Iterable[str], found: Wishes) -> None:
    """Take over the packages on record of the modules that sources import, in any release."""
    known = {one: one for one in load().packages if not load().packages[one].name.startswith("nvidia-")}
    known |= {module: row.instead for module, row in load().mistaken_names.items()}
    known |= {one: one for one in (*_RUNS_ON, *_USUAL)} | OF_MODULES
    framed = {load().table_name(wish.name) for wish in found.wishes if load().is_framework(wish.name)}
    own = {row.module: row.distribution for row in load().registry if row.module and row.distribution}
    there = {load().table_name(wish.name) for wish in found.wishes}
    brought = {module for module, name in own.items() if load().table_name(name) in there}
    brought |= {"keras"} if "tensorflow" in there else set()
    named = {wish.name for wish in found.wishes}
    taken_too = [
        one
        for one in sorted(
            {known[one.lower()] for one in {*modules} - brought if one.lower() in known}, key=str.lower
        )
        if canonical(one) not in named and not (load().is_framework(canonical(one)) and framed)
    ]
    for companion in taken_too:
        found.add(companion, f"imported in {path}")
    if taken_too:
        found.note(str(path), ", ".join(taken_too), "taken: its sources import it, and no file lists it")


def bound_by_folder(folder: Path, found: Wishes) -> None:
    """As :func:`bound_by_sources`, by a project's own sources, its notebooks among them."""
    own, sources = {folder.absolute().name}, list[tuple[str, str, Callable[[int], str]]]()
    for path in itertools.islice(sources_below(folder, (".py", ".ipynb")), MOST_SOURCES):
        own |= {path.stem, path.parent.name}
        with contextlib.suppress(UsageError):  # no text, or too long: another file tells
            text = read_text(path)
            if path.suffix == ".ipynb":
                sources += cells_of(text, path)
            elif path.name != "setup.py":
                sources.append((str(path), text, partial("{}:{}".format, path)))
    bound_by_sources(sources, found, own)


def cells_of(text: str, path: Path) -> Iterator[tuple[str, str, Callable[[int], str]]]:
    """The code of a notebook as one source, for :func:`bound_by_sources`; nothing of what is none."""
    code, cells = list[str](), list[int]()
    for number, source in enumerate(_code_cells(text), 1):
        lines = re.sub(r"(?m)^[ \t]*[!%].*$", "", source).splitlines()
        code += lines
        cells += [number] * len(lines)
    yield str(path), "\n".join(code) + "\n", lambda line: f"{path}, code cell {cells[line - 1]}"


def _code_cells(text: str) -> Iterator[str]:
    """The sources of a notebook's cells of code; none if it is no notebook."""
    with contextlib.suppress(ValueError, KeyError, IndexError, TypeError):
        document = parse_json(text)
        for cell in document["cells"] if "cells" in document else document["worksheets"][0]["cells"]:
            if isinstance(cell, dict) and cell.get("cell_type") == "code":
                source = cell.get("source", cell.get("input", ""))
                lines = source if isinstance(source, list) else [source]
                yield "".join(map(str, lines))


def note_sources(folder: Path, found: Wishes) -> None:
    """Note the modules that a folder's sources import and no requirement is named like, and those that
    compile CUDA code as they run or are installed: https://docs.pytorch.org/docs/stable/cpp_extension.html
    """
    own, places = {folder.name, folder.absolute().name}, dict[str, Path]()
    for path in itertools.islice(sources_below(folder, (".py", ".ipynb")), MOST_SOURCES):
        own |= {path.stem, path.parent.name}
        with contextlib.suppress(UsageError):  # no text, or too long: another file tells
            text = read_text(path)
            if re.search(r"\bcpp_extension\.load(?:_inline)?\(", text) and path.suffix == ".py":
                found.compiling.append(("run", "torch.utils.cpp_extension.load", str(path)))
            elif path.name == "setup.py" and re.search(r"\bCUDAExtension\b", text):
                found.compiling.append(("install", "CUDAExtension", str(path)))
            at_start = IMPORT if path.suffix == ".py" else re.compile(r'"(?:import|from) (\w+)')
            for module in at_start.findall(text):
                places.setdefault(module, path)
    named = (name for wish in found.wishes for name in (wish.name, *wish.parsed.extras))
    asked = {re.sub(r"[\W_]", "", name) for name in named}  # transformers[torch] brings torch
    for module in places:
        row = load().mistaken_names.get(module.lower())  # PIL is of Pillow
        if row is not None and any(canonical(wish.name).startswith(row.instead) for wish in found.wishes):
            own.add(module)
    absent = [
        module
        for module in sorted({*places} - own - sys.stdlib_module_names - _BROUGHT, key=str.lower)
        if not any(plain in name or name in plain for name in asked for plain in [_plain(module)])
    ]
    if absent:
        told = ", ".join(f"{module} ({places[module]})" for module in absent[:_MOST_TOLD])
        more = f" and {len(absent) - _MOST_TOLD} more" if len(absent) > _MOST_TOLD else ""
        why = "imported, and in no list by that name: name beside what no other package brings"
        found.notes.append(f"{told}{more}: {why}")


def _plain(module: str) -> str:
    return module.lower().replace("_", "")


_BROUGHT = {"setuptools", "pkg_resources", "google", "mpl_toolkits"}
"""Modules of packages that hardly a list names: setuptools, protobuf and others, Matplotlib."""
MOST_SOURCES, _MOST_FOLDERS, _MOST_TOLD = 300, 200, 12


def sources_below(folder: Path, kinds: tuple[str, ...] = (".py",)) -> Iterator[Path]:
    """Python files of a project, those of its own folder first; none of an environment, nor of its tests."""
    folders = [folder]
    for one in folders:  # it grows
        try:
            there = sorted(itertools.islice(one.iterdir(), 1000))
        except PermissionError:
            continue
        for path in there:
            if path.suffix in kinds and path.is_file():
                yield path
            elif (
                len(folders) < _MOST_FOLDERS
                and _SOURCES.fullmatch(path.name)
                and path.is_dir()
                and not path.is_symlink()
            ):
                folders.append(path)


_SOURCES = re.compile(r"(?!(?:v?env|tests?|docs|build|dist|node_modules|site-packages)$)[A-Za-z0-9][\w-]*")
"""Folders in which a project's own sources are."""


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
