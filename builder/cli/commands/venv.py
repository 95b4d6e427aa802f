"""``rtbuild venv`` and ``export``: a locked cell without Docker, as a virtual environment on this machine,
verified, or as a file that pip, uv or conda installs.
"""

import functools
import json
import os
import shlex
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, get_args

from uv import find_uv_bin

from builder.cli import options as opt
from builder.cli.console import Terminal, print_json, say, show
from builder.cli.walking import finished
from builder.core import resources
from builder.core.errors import CommandError, MissingToolError, PackageIndexError, UsageError
from builder.core.files import write_whole
from builder.core.model import Cell, Matrix, Pinned, Sdist, Wheel
from builder.core.versions import key, short
from builder.image.recipe import expectation, kept_bundle
from builder.pipeline import LockOptions, Locks, lock_cells
from builder.plan.facts.rules import Outcome, check
from builder.plan.lock import Form, Place, lost_by, written
from builder.sources.index import Index, cache_path
from builder.verify.runner import printed_report

_LOST = ("cudnn-missing", "cudnn-major-mismatch", "toolkit-library-missing", "nvrtc-missing")
"""Causes that go away once the loader looks into the folders of NVIDIA's wheels."""


def venv(
    cell: str = opt.of("CELL: A cell's id or glob, or a matrix file.", "*"),
    matrices: list[Path] | None = opt.MATRICES,
    output: Path = opt.of("--output, -o: The environment's folder.", Path(".venv")),
    locked: bool = opt.LOCKED,
    force: bool = opt.of("--force: Replace the environment that is there.", False),
    mirror: list[str] | None = opt.MIRROR,
    json_: bool = opt.JSON,
) -> int:
    """Make the locked cell an environment here: its very wheels by hash, and cudnn-verify run in it."""
    cell, matrices = opt.of_file(cell, matrices)
    if not force:
        opt.refuse_existing(output, hint="--force replaces it; -o names another folder")
    loaded = opt.load_all(matrices)
    chosen = opt.choose_one(loaded, cell)
    interpreter = _interpreter(chosen)
    if not locked and (code := _locked_now(loaded, chosen, opt.mirrors(mirror))):
        return code
    pinned = _pinned(loaded, chosen)
    python = _make(pinned, output, interpreter)
    report = _verified(pinned, python, output)
    if json_:
        print_json({"schema": 1, "cell": chosen.id, "path": str(output), "report": report})
    say(f"{chosen.id}: {report['verdict']}: {report['summary']}")
    for command in report.get("commands") or ():
        say(f"  $ {command['text']}")
    if report["verdict"] == "unverified":
        say("UNVERIFIED: no GPU here, so no convolution ran. Nothing here may be called known to work.")
    say(f"source {shlex.quote(str(output / 'bin' / 'activate'))}")
    codes = {"works": 0, "unverified": 0, "broken": 1, "unsupported-gpu": 1}
    return codes.get(report["verdict"], MissingToolError.exit_code)


def _interpreter(cell: Cell) -> str:
    """The cell's Python as uv is told of it, before a lock that may take minutes: its version, or a path.

    MissingToolError if uv finds no such Python, pyenv has none, and uv fetches none.
    """
    uv = [find_uv_bin(), "python"]
    if subprocess.run([*uv, "find", cell.python], capture_output=True, check=False).returncode == 0:
        return cell.python
    if (path := _of_pyenv(cell.python)) is not None:
        return str(path)
    say(f"+ uv python install {cell.python}")
    if subprocess.run([*uv, "install", cell.python], stdout=sys.stderr, check=False).returncode == 0:
        return cell.python
    listing = [*uv, "list", "--only-installed", "--output-format", "json"]
    done = subprocess.run(listing, capture_output=True, errors="replace", check=False)
    rows = json.loads(done.stdout) if done.returncode == 0 else []
    here = {short(row["version"], 2) for row in rows}
    other = next((python for python in sorted(here, key=key, reverse=True) if _may_have(cell, python)), None)
    words = shlex.join([*cell.frameworks, "--python", other or "3.N"])
    raise MissingToolError(
        f"{cell.id} has Python {cell.python}, which is not on this machine, and uv could not fetch it",
        hint=f"with one that is: rtbuild init {words}" if other else f"install Python {cell.python}",
    )


def _of_pyenv(python: str) -> Path | None:
    """pyenv's newest patch of a Python; uv finds its shims alone, which fail but for the chosen ones."""
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    found = [path for path in root.glob(f"versions/{python}.*/bin/python") if os.access(path, os.X_OK)]
    versions = {path.parents[1].name: path for path in found}
    return versions[max(versions, key=key)] if versions else None


def _may_have(cell: Cell, python: str) -> bool:
    """Whether a cell's frameworks are known to have wheels for another Python."""
    other = replace(cell, python=python)
    return Outcome.of(check(other, suggest=False, only=("python",))).is_possible


def _locked_now(loaded: list[Matrix], cell: Cell, mirrors: dict[str, str]) -> int:
    """Lock the cell if it is not; the exit code of that."""
    matrix = next(matrix for matrix in loaded if matrix.name == cell.matrix)
    if Locks([matrix]).pinned(cell) is not None:
        return 0
    run = partial(lock_cells, [matrix], [cell], LockOptions(mirrors=mirrors))
    return finished(Terminal.of(), run, json=False)


def _pinned(loaded: list[Matrix], cell: Cell) -> Pinned:
    """The cell as its lock has it.

    Raises StaleLockError, and UsageError if its image holds more than wheels.
    """
    pinned = opt.locked_cell(loaded, cell)
    if pinned.cell.cuda.provider == "base":
        raise UsageError(
            f"{cell.id} takes CUDA from its base image, which an environment does not have",
            hint="take a cell with `cuda: wheels`: `rtbuild init` writes such a one",
        )
    if built := [wheel.name for wheel in pinned.wheels if wheel.source is not None]:
        text = f"{', '.join(built)} is built from source inside the image"
        raise UsageError(text, hint="`rtbuild build` makes the image")
    return pinned


def _make(pinned: Pinned, output: Path, interpreter: str) -> Path:
    """Create the environment and install the lock's wheels into it; its interpreter."""
    cell, python = pinned.cell, output / "bin" / "python"
    _uv("venv", "--quiet", "--clear", "--python", interpreter, str(output))
    wanted = output / "rtbuild-requirements.txt"
    rows = [f"{wheel.name}=={wheel.version} --hash=sha256:{wheel.sha256}\n" for wheel in pinned.wheels]
    wanted.write_text("".join(rows), "utf-8")
    indexes = [word for url in cell.index for word in ("--index", url)]
    _uv(
        *("pip", "install", "--python", str(python), "--no-deps", "--require-hashes"),
        *("--only-binary", ":all:", "--index-strategy", "unsafe-best-match", *indexes, "-r", str(wanted)),
    )
    if pinned.has_cudnn8:
        for library in output.glob("lib/python*/site-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.*"):
            (library.parent / "libnvrtc.so").symlink_to(library.name)
    return python


def _uv(*arguments: str) -> None:
    command = [find_uv_bin(), *arguments]
    say(f"+ uv {shlex.join(arguments)}")
    status = subprocess.run(command, stdout=sys.stderr, check=False).returncode
    if status != 0:
        hint = "the lines above are uv's own; the cell's Python has to be on this machine"
        raise CommandError("uv could not make the environment", command=command, returncode=status, hint=hint)


def _verified(pinned: Pinned, python: Path, output: Path) -> dict[str, Any]:
    """The probe's report, held against the lock; ``activate`` sets the loader's path if a framework needs it.

    This machine's Python may have another patch than an image's, and what compiles is not the lock's here.
    """
    probe = output / "bin" / "cudnn-verify"
    text = kept_bundle(resources.cache()).partition(b"\n")[2]
    probe.write_bytes(b"#!" + os.fsencode(python.absolute()) + b"\n" + text)
    probe.chmod(0o755)
    asked = json.loads(expectation(pinned)) | {"python": pinned.cell.python}
    asked.pop("compilers", None)
    wanted = output / "rtbuild-expect.json"
    wanted.write_text(json.dumps(asked, indent=2) + "\n", "utf-8")
    command = [str(python.absolute()), str(probe), "--expect", str(wanted), "--json"]
    report = _ask(command, {})
    folders = sorted(str(path) for path in output.absolute().glob("lib/python*/site-packages/nvidia/*/lib"))
    if report["cause"] in _LOST and folders:
        path = ":".join(folders)
        again = _ask(command, {"LD_LIBRARY_PATH": path})
        if again["cause"] != report["cause"]:
            with (output / "bin" / "activate").open("a", encoding="utf-8") as stream:
                stream.write("\n# NVIDIA's wheels, which this framework looks for by name only\n")
                stream.write(f"export LD_LIBRARY_PATH={shlex.quote(path)}\n")
            return again
    return report


def _ask(command: list[str], variables: dict[str, str]) -> dict[str, Any]:
    ours = ("LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH")
    environment = {name: value for name, value in os.environ.items() if name not in ours} | variables
    done = subprocess.run(command, env=environment, capture_output=True, errors="replace", check=False)
    try:
        report: dict[str, Any] = json.loads(printed_report(done.stdout))
    except ValueError:
        tail, status = done.stderr.splitlines()[-20:], done.returncode
        raise CommandError(
            "cudnn-verify gave no report", command=command, returncode=status, tail=tail
        ) from None
    return report


_FORMS = "|".join(get_args(Form))
_WITH_FILES = ("pylock", "uv")
"""The forms that name where a file is."""


def export(
    cell: str = opt.of("CELL: A cell's id, or a glob that matches one, or a matrix file with one.", ...),
    matrices: list[Path] | None = opt.MATRICES,
    form: Form = opt.of(
        f"--format {_FORMS}: "
        "pylock.toml, hashed requirements, versions alone, a pyproject.toml for uv, an environment.yml, a "
        "definition file of Apptainer with its Slurm job.",
        "pylock",
    ),
    offline: bool = opt.of("--offline: Name the cache's files in place of addresses; ask no index.", False),
    output: Path | None = opt.of("--output, -o FILE: Where it goes; without it, standard output."),
) -> int:
    """Write the cell's packages as its lock has them, and say what the form does not carry.

    pylock and uv name addresses: they are those of your own index, without a login.
    """
    cell, matrices = opt.of_file(cell, matrices)
    loaded = opt.load_all(matrices)
    one = opt.choose_one(loaded, cell)
    pinned = opt.locked_cell(loaded, one)
    text = written(pinned, form, _kept(pinned) if offline and form in _WITH_FILES else _asking(one.index))
    if output is None:
        show(*text.splitlines())
    else:
        with opt.writing(output):
            write_whole(output, text.encode())
    for lost in lost_by(pinned, form):
        say(f"not carried: {lost}")
    return 0


def _asking(extra: tuple[str, ...]) -> Place:
    """A function that gives the place of a file on the user's indexes and a cell's own."""
    index = functools.cache(lambda: Index.from_user().with_extra(extra))

    def place(file: Wheel | Sdist) -> tuple[str, str]:
        try:
            return index().place(file)
        except PackageIndexError as problem:
            hint = f"{problem.hint}; without a network: --offline, or --format requirements"
            raise type(problem)(problem.message, hint=hint) from problem

    return place


def _kept(pinned: Pinned) -> dict[str, Path]:
    """The files that the cache has of each package. Raises PackageIndexError with those that it lacks."""
    files = [wheel if wheel.source is None else wheel.source.sdist for wheel in pinned.wheels]
    paths = {file.sha256: cache_path(file, resources.cache()).absolute() for file in files}
    lacking = [path for path in paths.values() if not path.is_file()]
    if lacking:
        rows = "".join(f"\n  missing here: {path}" for path in lacking)
        raise PackageIndexError(
            f"{len(lacking)} of {len(paths)} files are not in the cache{rows}",
            hint="`rtbuild build` fetches them where a network is; --format requirements needs no file",
        )
    return paths
