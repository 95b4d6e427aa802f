"""A Dockerfile's text: its ``RUN`` commands, and what the image that it stands on brings.

https://docs.docker.com/reference/dockerfile/
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from builder.core.versions import short
from builder.plan.facts.tables import load

_INSTRUCTION = re.compile(r"\s*(?P<word>[A-Za-z]+)\s+(?P<rest>.*)", re.DOTALL)
_FROM = re.compile(r"FROM\s+(?:--\S+\s+)*(?P<image>\S+)(?:\s+AS\s+(?P<name>\S+))?\s*", re.IGNORECASE)
_VARIABLE = re.compile(r"\$(?:\{(?P<braced>\w+)(?::-(?P<default>[^}]*))?\}|(?P<plain>\w+))")
_WELL_KNOWN = (
    ("torch", r"(?:docker\.io/)?pytorch/pytorch:v?(?P<version>\d[\d.]*)(?:-cuda(?P<cuda>\d+\.\d+))?.*"),
    ("tensorflow", r"(?:docker\.io/)?tensorflow/tensorflow:(?P<version>\d[\d.]*)(?:-.*)?"),
    (
        "paddlepaddle-gpu",
        r"(?:\S+/)?paddlepaddle/paddle:(?P<version>\d[\d.]*)-gpu(?:-cuda(?P<cuda>\d+\.\d+))?.*",
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


def base_image(text: str) -> BaseImage | None:
    """The image that the last stage stands on, through earlier stages, too; None if nothing is told of it."""
    stages: dict[str, tuple[int, str]] = {}
    arguments: dict[str, str] = {}
    last = None
    for number, instruction in _instructions(text):
        if argument := re.fullmatch(r"ARG\s+(\w+)=[\"']?([^\"'\s]*)[\"']?\s*", instruction, re.IGNORECASE):
            arguments.setdefault(argument[1], argument[2])
        elif found := _FROM.fullmatch(instruction):
            image = _VARIABLE.sub(
                lambda one: arguments.get(one["braced"] or one["plain"], one["default"] or one[0]),
                found["image"],
            )
            last = stages.get(image.lower(), (number, image))
            stages[(found["name"] or f"{len(stages)}").lower()] = last
    return _told(*last) if last is not None else None


def _told(line: int, image: str) -> BaseImage | None:
    plain = image.partition("@")[0]
    for framework, pattern in _WELL_KNOWN:
        if found := re.fullmatch(pattern, plain, re.IGNORECASE):
            cuda = found.groupdict().get("cuda")
            exact = _build(framework, found["version"].rstrip("."), cuda)
            own = ": its wheels bring CUDA and cuDNN" * (framework == "torch")
            told = f"taken as {exact}{own}"
            return BaseImage(
                line=line, name=image, requirement=exact, told=f"{told}; its Python is not in the tag"
            )
    if found := re.fullmatch(r"(?:docker\.io/)?(?:(?P<what>pytorch|tensorflow)/(?P=what))(?::\S*)?", plain):
        name = _NAMES.get(found["what"], found["what"])
        title = load().table(name).title
        told = f"its tag names no release of {title}: `rtbuild resolve {name} -r FILE` takes one"
        return BaseImage(line=line, name=image, told=told)
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
