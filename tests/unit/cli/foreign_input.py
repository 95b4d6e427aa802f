"""Texts that people or attackers may hand in, in each place of each file that commands read."""

from __future__ import annotations

import json
import re
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from builder.cli.app import _program
from builder.cli.boundary import guarded

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pytest

CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""C0 but tab and line feed, C1, and what turns the direction of writing."""

TEXTS = {
    "nul": "a\0b",
    "escape": "\x1b[2J\x1b]0;x\x07",
    "c1": "\x9b31m",
    "bidi": "\u202eabc\u2066",
    "digits": "1" * 4400,
    "long number": "9" * 30,
    "bracket": "[",
    "host": "http://[",
    "host after a name": "a @ http://[::1/x",
    "parentheses": "(" * 3000,
    "brackets": "[" * 900,
    "braces": "{" * 900,
    "long": "x" * 70_000,
    "path": "a/" * 3000,
    "dots": "../" * 40 + "x",
    "escaped": "%00%5b",
    "digit of another script": "\uff11.²",
    "empty": "",
    "quotes": "'\"",
    "operator": ">=",
    "epoch": "1!2",
    "markers": "a; " + "(" * 900 + "python_version",
    "folder": ".",
    "device": "/dev/zero",
}
VALUES: dict[str, Any] = {
    "float": 1e300,
    "number": -1,
    "large": 10**25,
    "null": None,
    "true": True,
    "list": [],
    "object": {},
    "text": "x",
    "list of numbers": [1, 1e300, None],
    "list of lists": [[["x"]]],
    "object of objects": {"text": {"x": 1}},
}
_LINES = (
    "{}", "torch=={}", "torch{}", "torch[{}]", "torch==2.1.0; python_version < '{}'", "torch; {}", "{}==1",
    "torch @ {}", "-r {}", "-c {}", "-e {}", "-i {}", "--index-url {}", "--extra-index-url=https://{}/x",
    "torch --hash={}", "{}/torch-2.1.0+cu118-cp310-cp310-linux_x86_64.whl", "https://x.invalid/a-{}.whl",
)  # fmt: skip
_TABLES = (
    "[project]\ndependencies = [{}]", "[project]\ndependencies = {}",
    "[project]\ndependencies = ['torch']\nrequires-python = {}",
    "[project]\ndependencies = ['torch']\n[project.optional-dependencies]\n{} = []",
    "[tool.poetry.dependencies]\ntorch = {}", "[tool.poetry.dependencies]\n{} = '1'",
    "[tool.poetry.dependencies]\ntorch = '1'\npython = {}",
    "[tool.poetry.dependencies]\ntorch = {{version = '1', extras = [{}]}}",
    "[tool.poetry.dependencies]\ntorch = {{version = '1', markers = {}}}", "{}",
)  # fmt: skip
_CONDA = (
    "dependencies: {}", "dependencies:\n- {}", "dependencies:\n- pytorch={}",
    "dependencies:\n- python={}\n- torch", "dependencies:\n- pip:\n  - {}", "dependencies:\n- pip: {}",
    "dependencies:\n- pytorch=1.12=py3.{}_cuda11",
    "dependencies:\n- pytorch\n- cudatoolkit={}", "pytorch={}=py39", "{}", "dependencies: [pytorch{}]",
)  # fmt: skip
_FREEZE = ("{}", "{}==1", "a=={}", "a @ {}", "a @ https://{}/a.whl", "a @ https://x/{}.whl", "-e {}",
           "-e git+https://x#egg={}")  # fmt: skip
_NOTEBOOK = (("cells",), ("cells", 0), ("cells", 0, "source"), ("cells", 0, "source", 0),
             ("cells", 0, "outputs"), ("cells", 0, "outputs", 0), ("cells", 0, "outputs", 0, "text"),
             ("cells", 0, "outputs", 0, "data"), ("cells", 0, "outputs", 0, "traceback"),
             ("cells", 0, "cell_type"), ("metadata",))  # fmt: skip
_LOG = ("{}", "cuDNN {}", "torch=={}", "NVIDIA-SMI {}  Driver Version: {}  CUDA Version: {}",
        "Loaded runtime CuDNN library: {} but source was compiled with: {}",
        "CUDNN_STATUS_NOT_INITIALIZED {}")  # fmt: skip


WHOLE = {
    "json": b'{"a":' * 5000,
    "list": b"[" * 5000,
    "not utf-8": b"\xff\xfe\x00torch",
    "surrogate": b'{"cells": "\\ud800"}',
    "flow yaml": b"dependencies: " + b"[" * 900 + b"]" * 900,
    "block yaml": b"dependencies:\n" + b"".join(b" " * n + b"-\n" for n in range(900)),
    "aliases": b"dependencies:\n- pip: &a [x, x]\n"
    + b"".join(b"- pip: &%c [%s]\n" % (98 + n, b", ".join([b"*%c" % (97 + n)] * 9)) for n in range(9)),
    "toml": b"a = " + b"[" * 900 + b"]" * 900,
}
_RESOLVE = ("resolve", "--offline")


class Case(NamedTuple):
    """A file with one hostile place, and the command that reads it."""

    name: str
    content: bytes
    words: tuple[str, ...]
    """``FILE`` stands for the file."""


def _filled(template: str, text: str) -> bytes:
    return template.format(*[text] * template.count("{}")).encode()


def cases() -> Iterator[Case]:
    """Each text in each place of each file that ``resolve`` and ``colab import`` read; odd whole files."""
    for kind, text in TEXTS.items():
        yield from _with_text(kind, text)
    for kind, value in VALUES.items():
        for path in _NOTEBOOK:
            content = json.dumps(_notebook(path, value)).encode()
            yield Case(f"notebook {path} {kind}", content, (*_RESOLVE, "--notebook", "FILE"))
    for name, content in WHOLE.items():
        for option in ("-r", "--pyproject", "--conda", "--notebook"):
            yield Case(f"{option} {name}", content, (*_RESOLVE, option, "FILE"))


def _with_text(kind: str, text: str) -> Iterator[Case]:
    for number, line in enumerate(_LINES):
        yield Case(f"requirements {number} {kind}", _filled(line, text), (*_RESOLVE, "-r", "FILE"))
    for option, lines in (("pyproject", _TABLES), ("conda", _CONDA)):
        for number, line in enumerate(lines):
            for how in ("bare", "quoted"):
                content = _filled(line, json.dumps(text) if how == "quoted" else text)
                yield Case(f"{option} {number} {kind} {how}", content, (*_RESOLVE, f"--{option}", "FILE"))
    notebook = {"cells": [{"cell_type": "code", "source": [f"!pip install torch=={text}\n"]}]}
    yield Case(f"notebook {kind}", json.dumps(notebook).encode(), (*_RESOLVE, "--notebook", "FILE"))
    words = ("colab", "import", "--no-lock", "--python", "3.11", "--freeze", "FILE")
    for number, line in enumerate(_FREEZE):
        yield Case(f"freeze {number} {kind}", _filled(line, text), words)


def _notebook(path: tuple[str | int, ...], value: object) -> object:
    """A notebook with the value at that place."""
    cell = {"cell_type": "code", "source": ["!pip install torch"], "outputs": [{"text": "x"}]}
    document: Any = {"metadata": {}, "cells": [cell]}
    at = document
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return document


def logs() -> Iterator[Case]:
    """Logs and notebooks for ``diagnose``."""
    for kind, text in TEXTS.items():
        lines = b"\n".join(_filled(line, text) for line in _LOG)
        yield Case(f"log {kind}", lines, ("diagnose", "FILE"))
    for case in cases():
        if case.name.startswith(("notebook", "--notebook")):
            yield case._replace(words=("diagnose", "FILE"))


def typed(*words: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """The exit code of rtbuild with these words, in this process."""
    monkeypatch.setattr(sys, "argv", ["rtbuild", *words])
    return guarded(_program)


def written(case: Case, folder: Path) -> tuple[str, ...]:
    """The words of the command, with the file as the case has it."""
    path = folder / "given.txt"
    path.write_bytes(case.content)
    return tuple(str(path) if word == "FILE" else word for word in case.words)
