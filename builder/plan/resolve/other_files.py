"""Files of other tools in a requirements file's place: what they are, and what to type."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from builder.core.errors import UsageError

_INSTRUCTION = re.compile(r"\s*(?P<word>[A-Za-z]+)\s+(?P<rest>.*)", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class OtherFile:
    """A file of another tool: by its name, or by a text at the start of one of its lines."""

    names: str
    what: str
    hint: str
    text: str | None = None


_FREEZE = "where it is installed: `pip freeze >requirements.txt`; or name frameworks: `rtbuild resolve torch`"
_OTHERS = (
    OtherFile(
        names=r"setup\.py",
        what="a program of setuptools, which is not run",
        hint=_FREEZE,
        text=r"(?:from setuptools|import setuptools|from distutils)\b",
    ),
    OtherFile(names=r"setup\.cfg", what="a file of setuptools' settings", hint=_FREEZE),
    OtherFile(
        names=r"Pipfile(?:\.lock)?",
        what="a file of Pipenv's",
        hint="`pipenv requirements >requirements.txt` writes one",
    ),
    OtherFile(
        names=r"poetry\.lock",
        what="a lock of Poetry's",
        hint="`poetry export -o requirements.txt` writes one; its pyproject.toml is read by --pyproject",
    ),
    OtherFile(
        names=r"uv\.lock",
        what="a lock of uv's",
        hint="`uv export --format pylock.toml -o pylock.toml` writes one that --from-pylock reads",
    ),
    OtherFile(
        names=r"pdm\.lock",
        what="a lock of PDM's",
        hint="`pdm export -o requirements.txt` writes one; its pyproject.toml is read by --pyproject",
    ),
    OtherFile(
        names=r"pylock(?:\.[^.]+)?\.toml", what="a lock of PEP 751", hint="--from-pylock FILE reads it"
    ),
    OtherFile(names=r"pyproject\.toml", what="a project's own description", hint="--pyproject FILE reads it"),
    OtherFile(names=r".*\.ipynb", what="a notebook", hint="--notebook FILE reads it"),
    OtherFile(
        names=r"(?:.*[-_.])?(?:environment|conda|env)(?:[-_.].*)?\.ya?ml",
        what="an environment of conda's",
        hint="--conda FILE reads it",
        text=r"dependencies:\s*$",
    ),
)
"""The first that fits counts. Their formats: https://packaging.python.org/en/latest/specifications/,
https://python-poetry.org/docs/cli/#export, https://pipenv.pypa.io/en/latest/commands.html#requirements,
https://docs.astral.sh/uv/reference/cli/#uv-export, https://pdm-project.org/en/latest/reference/cli/#export
"""


def refuse_other(path: Path, text: str) -> None:
    """UsageError for a file of another tool, with what to type."""
    by_name = (one for one in _OTHERS if re.fullmatch(one.names, path.name))
    by_text = (one for one in _OTHERS if one.text and re.search(rf"^{one.text}", text, re.MULTILINE))
    found = next(by_name, None) or next(by_text, None)
    if found is not None:
        hint = found.hint.replace("FILE", str(path))
        raise UsageError(f"{path} is no requirements file: it is {found.what}", hint=hint)


def is_dockerfile(name: str, text: str) -> bool:
    """By its name, or by a first instruction that only a Dockerfile has.

    https://docs.docker.com/reference/dockerfile/
    """
    if re.fullmatch(r"(?:.*\.)?(?:Dockerfile|Containerfile)(?:\..*)?", name, re.IGNORECASE):
        return True
    first = next((line for line in text.splitlines() if line.strip() and line.lstrip()[:1] != "#"), "")
    return re.match(r"FROM\s+\S+(?:\s+AS\s+\S+)?\s*$", first) is not None


def commands(text: str) -> Iterator[tuple[int, str]]:
    """The commands of ``RUN`` instructions, in the shell's or the list's form, each with its line."""
    for number, instruction in _instructions(text):
        found = _INSTRUCTION.fullmatch(instruction)
        if found is None or found["word"].upper() != "RUN":
            continue
        rest = re.sub(r"^(?:--\w+=\S+\s+)+", "", found["rest"])
        try:
            words = json.loads(rest)
        except ValueError:
            words = None
        yield number, " ".join(map(str, words)) if isinstance(words, list) else rest


def cuda_bases(text: str) -> Iterator[tuple[int, str, str]]:
    """The images that a Dockerfile's stages stand on whose tag names a CUDA: line, image and CUDA."""
    for number, instruction in _instructions(text):
        found = re.match(
            r"FROM\s+(?:--\S+\s+)*(?P<image>\S*cuda\S*?:v?(?P<cuda>\d+\.\d+)\S*)", instruction, re.IGNORECASE
        )
        if found is not None:
            yield number, found["image"], found["cuda"]


def _instructions(text: str) -> Iterator[tuple[int, str]]:
    """Instructions, joined where a line ends in a backslash, without comments and empty lines."""
    joined, first = "", 0
    for number, line in enumerate([*text.splitlines(), ""], 1):
        if line.lstrip().startswith("#") or (joined and not line.strip() and number <= text.count("\n")):
            continue
        first = first if joined else number
        if line.rstrip().endswith("\\"):
            joined += line.rstrip()[:-1] + " "
            continue
        instruction, joined = (joined + line).strip(), ""
        if instruction:
            yield first, instruction
