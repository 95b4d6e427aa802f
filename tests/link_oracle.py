"""The real loader as judge of :mod:`builder.core.link`: what a Python of this machine loads, call by call.

A child opens each library by ``dlopen`` and says after each call what is loaded, as ``dl_iterate_phdr`` lists
it: the paths as the loader has them. Nothing is imported, so that no code but the libraries' own start runs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from builder.core.elf import INTERP_SEGMENT, elf_segments, file_reader
from builder.core.link import DiskView, LinkProcess, Opened, Search, search_here, split_path

_CHILD = r"""
import ctypes, json, os, sys
class Info(ctypes.Structure):
    _fields_ = [("address", ctypes.c_void_p), ("name", ctypes.c_char_p)]
KIND = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Info), ctypes.c_size_t, ctypes.c_void_p)
walk = ctypes.CDLL(None).dl_iterate_phdr
opener = ctypes.CDLL(None).dlopen
opener.restype, opener.argtypes = ctypes.c_void_p, [ctypes.c_char_p, ctypes.c_int]
why = ctypes.CDLL(None).dlerror
why.restype = ctypes.c_char_p
def loaded():
    names = []
    call = KIND(lambda info, size, data: names.append((info[0].name or b"").decode()) or 0)
    walk(call, None)
    return names
calls = json.load(sys.stdin)
out = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)
import _ctypes
print(json.dumps({"caller": _ctypes.__file__, "loaded": loaded()}), file=out)
for call in calls:
    print(json.dumps({"opening": call["name"]}), file=out)
    mode = (0x100 if call["everywhere"] else 0) | (1 if call["lazy"] else 2)
    handle, error = None, None
    if call["lazy"]:
        handle = opener(os.fsencode(call["name"]), mode)
        error = None if handle else why().decode()
    else:
        try:
            handle = _ctypes.dlopen(call["name"], mode)
        except OSError as problem:
            error = str(problem)
    print(json.dumps({"loads": bool(handle), "error": error, "loaded": loaded()}), file=out)
out.flush()
os._exit(0)
"""


@dataclass(frozen=True)
class Call:
    """One ``dlopen``: a name or a path, with RTLD_GLOBAL and RTLD_LAZY if so."""

    name: str
    everywhere: bool = False
    lazy: bool = False


@dataclass(frozen=True, kw_only=True)
class Told:
    """What the loader did for one call."""

    loads: bool | None
    """None if the process died in a library's own start: the loader had done its part. False if before."""
    error: str | None
    new: tuple[str, ...]
    """The files that the call has loaded, in the loader's order."""


@dataclass(kw_only=True)
class Run:
    """One process: what it had loaded before the first call, and the answers."""

    before: list[str]
    caller: str
    answers: list[Told] = field(default_factory=list)
    died: str | None = None
    """The end of what it said; before the first call if ``caller`` is empty."""


def ask_loader(python: str, calls: list[Call], variables: dict[str, str], timeout: float = 120) -> Run:
    """Run the calls in one process of ``python``."""
    env = {"PATH": os.environ["PATH"], "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", **variables}

    def run_child(**more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [python, "-S", "-c", _CHILD],
            input=json.dumps([vars(call) for call in calls]), env={**env, **more},
            capture_output=True, text=True, timeout=timeout, check=False, errors="replace",
        )  # fmt: skip

    done = run_child()
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    if not lines:
        return Run(before=[], caller="", died=done.stderr.strip()[-300:])
    run = Run(before=lines[0]["loaded"], caller=lines[0]["caller"])
    seen = run.before
    for line in lines[1:]:
        if "opening" in line:
            opening = True
            continue
        opening = False
        run.answers.append(
            Told(
                loads=line["loads"],
                error=line["error"],
                new=tuple(p for p in line["loaded"] if p not in seen),
            )
        )
        seen = line["loaded"]
    if done.returncode:
        run.died = f"{done.returncode}: {done.stderr.strip()[-300:]}"
        if len(lines) > 1 and opening:
            said = run_child(LD_DEBUG="files").stderr
            own = said.rfind("calling init:") > said.rfind("generating link map")
            ended = f"in a library's own start: {run.died}" if own else run.died
            run.answers.append(Told(loads=None if own else False, error=ended, new=()))
    return run


def interpreter_of(python: str) -> str:
    read = file_reader(python)
    (span,) = [one for one in elf_segments(read) if one.kind == INTERP_SEGMENT]
    return read(span.offset, span.length).rstrip(b"\0").decode()


def work_out(
    python: str, run: Run, calls: list[Call], variables: dict[str, str], view: DiskView | None = None
) -> tuple[Opened, list[Opened]]:
    """(start, answers) as they are worked out; what else Python had loaded at its start is taken as given."""
    search: Search = search_here(variables.get("LD_LIBRARY_PATH", ""))
    process = LinkProcess(view or DiskView(), search)
    real = os.path.realpath(python)
    started = process.start(
        real, interpreter_of(real), split_path(variables.get("LD_PRELOAD", "").replace(" ", ":"))
    )
    known = {os.path.realpath(one.path) for one in process.loaded if one.path}
    rest = [p for p in run.before if p.startswith("/") and os.path.realpath(p) not in known]
    process.adopt(rest)
    return started, [
        process.open(call.name, run.caller, call.everywhere, call.lazy) for call in calls[: len(run.answers)]
    ]


def differences(calls: list[Call], run: Run, answers: list[Opened]) -> list[str]:
    """What the loader did otherwise, in words; a process that died in a call is left out."""
    found = []
    for call, told, mine in zip(calls, run.answers, answers, strict=False):
        name = Path(call.name).name
        if told.loads is None or mine.loads is None:
            continue
        if told.loads != mine.loads:
            found.append(
                f"{name}: loader {told.loads} ({told.error}), here {mine.loads} ({mine.kind}: {mine.text})"
            )
        elif told.loads and list(told.new) != [row.path for row in mine.rows]:
            others = [row.path for row in mine.rows]
            only = [p for p in told.new if p not in others], [p for p in others if p not in told.new]
            found.append(f"{name}: files {only}" if any(only) else f"{name}: order {told.new} {others}")
    return found


if __name__ == "__main__":
    asked = [Call(name) for name in sys.argv[1:]]
    here = ask_loader(sys.executable, asked, {k: v for k, v in os.environ.items() if k.startswith("LD_")})
    start, worked = work_out(sys.executable, here, asked, dict(os.environ))
    print(start.loads, here.died, *differences(asked, here, worked) or ["agrees"], sep="\n")
    for told, mine in zip(here.answers, worked, strict=True):
        print(told.loads, told.error, len(told.new), "|", mine.loads, mine.text, len(mine.rows))
