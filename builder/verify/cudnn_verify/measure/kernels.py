"""K01: what packages compile as programs run can be compiled here: a compiler, Python's headers, nvcc, ptxas.

Where an image does other work without, that it cannot compile is a remark: it is a fault where the
expectation asks for compilers, or somebody for the suite ``compile``, and of packages that can do nothing
without.
"""

import os
import shutil
import subprocess
import sysconfig
import tempfile

from ..common.distributions import read_record, search_folders
from ..common.tables import read_facts
from ..common.versions import numbers
from .environment import no_temporary_folder
from .library_files import in_folders, names_inside
from .protocol import stage

_SOURCES = {
    "cc": ("CC", ("gcc", "clang"), ".c", "#include <stdlib.h>\nint probe(void) { return abs(-1); }\n"),
    "cxx": (
        "CXX",
        ("g++", "clang++"),
        ".cpp",
        "#include <vector>\nint probe() { return std::vector<int>(1).size(); }\n",
    ),
    "python-headers": (
        "CC",
        ("gcc", "clang"),
        ".c",
        "#include <Python.h>\nvoid probe(void) { Py_INCREF(Py_None); }\n",
    ),
}
_NOWHERE = {
    "ptxas": "it lies neither in Triton nor where TRITON_PTXAS_PATH leads",
    "nvcc": "it is not in CUDA_HOME, or, where that is not set, neither on PATH nor in /usr/local/cuda",
}
_WORDS = {"cc": "a C compiler", "cxx": "a C++ compiler", "python-headers": "Python's headers"}
_PTXAS = "triton/backends/nvidia/bin"
_COMPILER_SECONDS = 60


@stage("kernels", layer="runtime", timeout=200)
def kernels_stage(ctx):
    """Compile as the packages do, and look for the programs that they start."""
    packages = ctx.facts.get("packages") or {}
    rows = [
        row for row in read_facts()["kernels"] if row["name"] in packages and row["unless"] not in packages
    ]
    asked = bool(ctx.expect.get("compilers"))
    needs = sorted({need for row in rows for need in row["needs"]} | (set(_SOURCES) if asked else set()))
    if not needs:
        return
    nowhere = no_temporary_folder()
    if nowhere:
        ctx.not_run("K01", nowhere)
        return
    problems = {need: _problem(ctx, need) for need in needs}
    missing = {need: text for need, text in problems.items() if text}
    evidence = {"missing": missing, "compiles": {row["uses"]: row["needs"] for row in rows}}
    without = [row["uses"] for row in rows if set(row["needs"]) & set(missing)]
    unusable = {path for need in missing for path in _programs(need)}
    if unusable:
        evidence["closed"] = sorted(path for path in unusable if not os.access(path, os.X_OK))
        evidence["packages"] = [
            name for name, row in sorted(packages.items()) if unusable & _programs_of(row)
        ]
    suite = without and "compile" in (ctx.facts.get("suites_asked") or ())
    fault = (
        asked
        or suite
        or unusable
        or any(row["when"] == "always" and set(row["needs"]) & set(missing) for row in rows)
    )
    if not missing:
        _check_card(ctx, [row for row in rows if "ptxas" in row["needs"]], asked, evidence)
        return
    if missing.get("cc") == missing.get("python-headers"):
        missing.pop("python-headers", None)  # it is the compiler that is missed
    text = "; ".join("%s: %s" % (_WORDS.get(need, need), missing[need]) for need in sorted(missing))
    if fault:
        who = ", ".join(without) or "the image is to have compilers, which"
        ctx.fails("K01", "%s cannot compile here: %s" % (who, text), "kernel-compiler-missing", evidence)
        return
    note = "%s cannot compile here: %s" % (", ".join(without), text)
    ctx.passed("K01", "nothing here is useless without a compiler", evidence, note=note)


def _problem(ctx, need):
    """Why something cannot be had here; "" if it can."""
    if need in _NOWHERE:
        files = _programs(need)
        with ctx.call("%s --version" % need):
            return next(filter(None, map(_refusal, files)), "") if files else _NOWHERE[need]
    variable, names, ending, source = _SOURCES[need]
    # as Triton and PyTorch look for it: CC and CXX, then these names on PATH
    wanted = (os.environ.get(variable) or "").split()
    found = shutil.which(wanted[0]) if wanted else next(filter(None, map(shutil.which, names)), None)
    if found is None:
        return "%s is not there" % wanted[0] if wanted else "neither %s is on PATH" % " nor ".join(names)
    include = sysconfig.get_paths("posix_prefix")["include"]
    folder = tempfile.mkdtemp(prefix="cudnn-verify-")
    try:
        path = os.path.join(folder, "probe" + ending)
        with open(path, "w") as stream:
            stream.write(source)
        command = [found] + wanted[1:] + ["-shared", "-fPIC", "-I", include, "-o", path + ".so", path]
        with ctx.call(" ".join(command[:1])):
            return _run(command).replace(folder + os.sep, "")
    except OSError as error:
        return str(error)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _programs(need):
    """The files of a program that kernels are compiled with; [] for a compiler of C."""
    return ptxas_here() if need == "ptxas" else list(filter(None, [nvcc_here()])) if need == "nvcc" else []


def _programs_of(distribution):
    """The paths of the programs that a package installed."""
    names = ("ptxas", "ptxas-blackwell", "nvcc")
    return {row["path"] for row in read_record(distribution, lambda path: path.rpartition("/")[2] in names)}


def _refusal(path):
    """Why a program does not start; "" if it does."""
    try:
        said = _run([path, "--version"])
    except OSError as error:
        said = error.strerror
    return "%s cannot be run: %s" % (path, said) if said else ""


def _run(command):
    """The first line of what a compiler says against it; "" if it compiles."""
    started = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        said = started.communicate(timeout=_COMPILER_SECONDS)[0].decode("utf-8", "replace")
    except subprocess.TimeoutExpired:
        started.kill()
        started.communicate()
        return "%s does not end within %d s" % (command[0], _COMPILER_SECONDS)
    if started.returncode == 0:
        return ""
    lines = [line for line in said.splitlines() if "error" in line.lower()] or said.splitlines()
    return lines[0].strip()[:300] if lines else "%s ends with %d" % (command[0], started.returncode)


def nvcc_here():
    """nvcc where FlashInfer and PyTorch's extensions look for it; None if it is nowhere.

    That is in CUDA_HOME if it is set, else on PATH and in /usr/local/cuda.
    """
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    if home:
        return in_folders("nvcc", [os.path.join(home, "bin")])
    return shutil.which("nvcc") or in_folders("nvcc", ["/usr/local/cuda/bin"])


def ptxas_here():
    """Triton's assemblers: those that a variable names, else those in its wheel."""
    named = [os.environ.get(name) for name in ("TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH")]
    named = [path for path in named if path and os.path.isfile(path)]
    own = [
        os.path.join(folder, _PTXAS, name)
        for folder in search_folders()
        for name in ("ptxas", "ptxas-blackwell")
    ]
    return named or list(filter(os.path.isfile, own))


def _check_card(ctx, rows, asked, evidence):
    """Whether Triton's ptxas knows the cards here: their names stand in the program."""
    files = ptxas_here() if rows else []
    known = {name for path in files for name in names_inside(path, rb"\bsm_\d{2,3}a?\b")}
    wanted = []
    for gpu in ctx.facts.get("gpus") or ():
        capability = numbers(gpu["compute_capability"])[:2]
        # third_party/nvidia/backend/compiler.py, sm_arch_from_capability: https://github.com/triton-lang/triton
        wanted += (
            ["sm_%d%d%s" % (capability + ("a" if capability >= (9, 0) else "",))]
            if len(capability) == 2
            else []
        )
    lacking = sorted(set(wanted) - known) if known else []
    evidence.update(ptxas=files, cards=sorted(set(wanted)))
    if not lacking:
        unread = files and wanted and not known
        note = "which cards %s knows could not be read" % files[0] if unread else None
        ctx.passed("K01", "what is compiled as programs run can be compiled", evidence, note=note)
        return
    newest = max(known, key=lambda name: numbers(name[3:].rstrip("a")))
    text = "%s does not know %s, only cards up to %s" % (files[0], ", ".join(lacking), newest)
    if asked:
        ctx.fails("K01", text, "kernel-compiler-too-old", evidence)
    else:
        uses = ", ".join(row["uses"] for row in rows)
        ctx.passed(
            "K01", "nothing here is useless without a compiler", evidence, note="%s: %s" % (uses, text)
        )
