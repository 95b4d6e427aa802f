"""The notebook that a Colab user opens to find out why cuDNN does not work: ``docs/diagnose-on-colab.ipynb``.

It holds the probe itself, so that it needs nothing from anywhere; a test makes it anew and compares.
"""

from __future__ import annotations

import base64
import hashlib
import json
import lzma
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from builder.release.colab.diff import Listed

_SHOWN = ("tensorflow", "torch", "jax", "nvidia-cudnn-cu12")

_TITLE = """\
# Why does cuDNN not work in this notebook?

Run all cells (*Runtime → Run all*). It takes a minute or two and sends nothing anywhere. It installs nothing
and changes nothing, but for the last cell, which shows its commands and asks before it runs them. The answer
is the coloured line: the verdict, and, where something is wrong, the **one** cause, its evidence, and what to
do about it.

It asks the runtime that this notebook is connected to. With no GPU attached (*Runtime → Change runtime type*)
it says `UNVERIFIED`, and checks all that can be checked without one.
"""
_UNPACK = """\
# @title 1. Put cudnn-verify here: one file, nothing to install {{ display-mode: "form" }}
import base64, hashlib, lzma, pathlib

PACKED = (
{packed}
)
source = lzma.decompress(base64.b85decode(PACKED))
found = hashlib.sha256(source).hexdigest()
if found != "{sha256}":
    raise SystemExit("this notebook is damaged: cudnn-verify has sha256 " + found)
pathlib.Path("cudnn_verify.py").write_bytes(source)
print("cudnn_verify.py,", len(source), "bytes, sha256", found)
"""
_LOOK = """\
# @title 2. Look
%load_ext cudnn_verify
%cudnn_verify
"""
_VERDICTS = """\
| verdict | what it means |
|---|---|
| WORKS | convolutions ran on the GPU here, and their numbers were right |
| UNVERIFIED | no GPU here; all that can be checked without one is sound |
| BROKEN | the software of this runtime is at fault: do what the page says, or take an earlier one |
| UNSUPPORTED GPU | the software is sound and has nothing for this card |
| HOST | driver or devices of the machine: disconnect, delete the runtime, connect again |
| BUSY | the GPU's memory is taken: end the other session, restart this one |
"""
_ONE_LINE = """\
# @title 3. The cause, in full
import subprocess, sys

print(cudnn_report["verdict"], "-", cudnn_report["summary"])
if cudnn_report["cause"]:
    subprocess.run([sys.executable, "cudnn_verify.py", "--explain", cudnn_report["cause"]])
"""
_MEND = """\
# @title 6. Mend it: shows the commands, asks, runs them, looks again, and undoes what did not help
%cudnn_fix
"""
_WHICH = """\
# @title 4. Which of Colab's runtimes is this?
import platform
from importlib import metadata

# From github.com/{repository}, the lists that Google publishes.
RUNTIMES = {{
{rows}
}}


def installed(name):
    try:
        return metadata.version(name).split("+")[0]
    except metadata.PackageNotFoundError:
        return "none"


here = {{"python": ".".join(platform.python_version_tuple()[:2])}}
here.update((name, installed(name)) for name in {names})
same = [name for name, row in RUNTIMES.items() if row == here]
width = max(map(len, here))
for key in here:
    known = ", ".join("%s: %s" % (name, row[key]) for name, row in RUNTIMES.items())
    print("%-*s  here %-12s %s" % (width, key, here[key], known))
if same:
    print("This is Colab's runtime", same[0])
else:
    print("This is none of Colab's past runtimes; Runtime > Change runtime type > Runtime version has them.")
"""
_KEEP = """\
# @title 5. Keep the report; compare with it when the notebook breaks the next time
import json

with open("cudnn-report.json", "w") as stream:
    json.dump(cudnn_report, stream)
print("cudnn-report.json is written; later: %cudnn_verify --compare cudnn-report.json")
"""


def notebook(probe: bytes, runtimes: Iterable[Listed], *, repository: str) -> str:
    """The notebook's text. ``probe`` is cudnn-verify, ``runtimes`` are those to recognize, oldest first."""
    packed = base64.b85encode(lzma.compress(probe, preset=9)).decode()
    lines = "\n".join(f'    "{packed[at : at + 4000]}"' for at in range(0, len(packed), 4000))
    rows = "\n".join(f'    "{runtime.runtime}": {json.dumps(_row(runtime))},' for runtime in runtimes)
    cells = [
        _markdown("title", _TITLE),
        _code("unpack", _UNPACK.format(packed=lines, sha256=hashlib.sha256(probe).hexdigest())),
        _code("look", _LOOK),
        _markdown("verdicts", _VERDICTS),
        _code("cause", _ONE_LINE),
        _code("runtime", _WHICH.format(repository=repository, rows=rows, names=list(_SHOWN))),
        _code("keep", _KEEP),
        _code("mend", _MEND),
    ]
    document = {
        "cells": cells,
        "metadata": {
            "accelerator": "GPU",
            "colab": {"provenance": []},
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def _row(runtime: Listed) -> dict[str, str]:
    versions = {name: (runtime.packages.get(name) or "none").split("+")[0] for name in _SHOWN}
    return {"python": ".".join(runtime.python.split(".")[:2]), **versions}


def _markdown(identifier: str, text: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "id": identifier, "metadata": {}, "source": _lines(text)}


def _code(identifier: str, text: str) -> dict[str, Any]:
    return {
        "cell_type": "code",
        "execution_count": None,
        "id": identifier,
        "metadata": {},
        "outputs": [],
        "source": _lines(text),
    }


def _lines(text: str) -> list[str]:
    return text.rstrip("\n").splitlines(keepends=True)
