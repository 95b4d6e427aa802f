"""R02: the CUDA libraries that frameworks and cuDNN need are there, and NVRTC can compile. K01: what packages
compile as programs run can be compiled here, by a compiler, Python's headers, nvcc, ptxas.

Where an image does other work without, that it cannot compile is a remark: it is a fault where the
expectation asks for compilers, or somebody for the suite ``compile``, and of packages that can do nothing
without.
"""

import os
import re
import shutil
import subprocess
import sysconfig
import tempfile

from ....core.link import read_cache
from ..common.distributions import (
    cudnn_wheels,
    find_wheel_folders,
    list_folder,
    read_record,
    requirement,
    search_folders,
    wheels_of,
)
from ..common.tables import cuda_family, opened_libraries, read_facts
from ..common.versions import numbers
from .cuda import Library, ctypes, open_library, prototypes_of
from .environment import no_temporary_folder
from .judge import (
    ABSENT_LIBRARY,
    MISSING_SYMBOL,
    absent_cause,
    by_counter_tests,
    by_machine,
    damaged_system_library,
    default_judge,
)
from .library_files import Loader, in_folders, is_cuda_library, names_inside, parts_of
from .protocol import WITHOUT_CUDA, stage

_KERNEL = b'extern "C" __global__ void probe(int *p) { p[threadIdx.x] = __popc(threadIdx.x); }\n'
NVRTC_PROTOTYPES = prototypes_of("nvrtc")


def judge_toolkit(run):
    """A toolkit library that does not load: first whether it does without LD_PRELOAD or LD_LIBRARY_PATH."""
    if run.ending["kind"] != "done":
        default_judge(run)
    for check in run.checks:
        if check["outcome"] == "failed" and not check["evidence"].get("problem"):
            said = check["summary"]
            builtins = check["evidence"].get("builtins") or ""
            if damaged_system_library(said + "\n" + builtins):
                check["summary"] += (": " + builtins) * bool(builtins)
                check["cause"] = "system-library-missing"
                continue
            check["cause"] = ("map segment" in said and by_machine(run, said)) or check["cause"]
            cudnn = check["evidence"].get("by") == "cuDNN"
            found = by_counter_tests(run, check, "cudnn-shadowed" if cudnn else "toolkit-mixed")
            mixed = MISSING_SYMBOL.search(check["summary"])
            absent = ABSENT_LIBRARY.search(builtins)
            if absent:
                check["cause"] = absent_cause(absent.group(1), Loader(), run.facts)
                check["summary"] += ": " + builtins
            otherwise = "toolkit-mixed" if mixed else "toolkit-library-missing"
            check["cause"] = found or check["cause"] or otherwise


@stage("runtime", layer="runtime", timeout=60, judge=judge_toolkit)
def runtime_stage(ctx):
    """Find the libraries that are needed, then load NVRTC and let it compile."""
    loader = Loader()
    wheel_folders = find_wheel_folders()
    absent, answers = [], {}
    for name, requester, who in needed_libraries(ctx.facts, loader):
        path = loader.resolve(name, requester)["path"]
        answers[name] = path or in_folders(name, wheel_folders + [os.path.dirname(requester)])
        if answers[name] is None:
            absent.append({"name": name, "by": who})
    evidence = {"found": answers, "absent": absent}
    if absent:
        name, who = absent[0]["name"], absent[0]["by"]
        cause = "nvrtc-missing" if name.startswith("libnvrtc") else "toolkit-library-missing"
        text = "%s needs %s, which the loader does not find"
        text %= who, ", ".join(row["name"] for row in absent if row["by"] == who)
        if ctx.without_cuda:
            ctx.not_run("R02", "%s; %s" % (text, WITHOUT_CUDA), evidence)
        else:
            ctx.fails("R02", text, cause, dict(evidence, by=who))
    elif _load_blas(ctx, answers, evidence):
        _check_nvrtc(ctx, loader, wheel_folders, evidence)


def _load_blas(ctx, answers, evidence):
    """Load the cuBLAS that would be used, which needs cuBLASLt of the same toolkit; false if that fails.

    Not for PyTorch: its DT_RPATH decides for both, and its import shows the outcome.
    """
    if any(row["framework"] == "torch" for row in ctx.facts.get("consumers", ())):
        return True
    for path in [path for name, path in sorted(answers.items()) if name.startswith("libcublas.so.")]:
        problem = _fault_of(ctx, path)
        if problem:
            text = "%s does not load: %s" % (path, problem)
            return ctx.fails("R02", text, None, dict(evidence, dlerror=problem))
    return True


def _fault_of(ctx, path):
    """The loader's message about a file that it is to open; "" if it opens."""
    try:
        with ctx.call("dlopen %s" % path):
            open_library(path)
    except OSError as error:
        return str(error)
    return ""


def needed_libraries(facts, loader):
    """(name, requester, who) of the CUDA libraries, cuDNN and driver apart, that something in play needs."""
    rows = []
    for consumer in facts.get("consumers", ()):
        if consumer["optional"]:
            continue
        names = loader.header(consumer["requester"])["needed"]
        if consumer["framework"] == "tensorflow":
            names = names + opened_libraries("tensorflow", consumer["cuda"])
        rows += [(name, consumer["requester"], consumer["framework"]) for name in names]
    for candidate in facts.get("candidates", ()):
        for part in parts_of(candidate["path"]):
            path = os.path.join(os.path.dirname(candidate["path"]), part)
            rows += [(name, path, "cuDNN") for name in loader.header(path)["needed"]]
        rows += _opened_by_cudnn(candidate["path"], facts.get("packages", {}))
    rows = [r for r in rows if is_cuda_library(r[0]) and not re.match(r"libcudnn|libcuda\.so", r[0])]
    first = {row[0]: row for row in reversed(rows)}
    return [row for row in rows if first[row[0]] is row]


def _opened_by_cudnn(shim, packages):
    """cuDNN opens cuBLAS by name; its wheel says so by a requirement (``nvidia-cublas-cu12``).

    From CUDA 13 on that name tells no major (``nvidia-cublas``): it is the one of the cuDNN's own name.
    """
    part = os.path.join(os.path.dirname(shim), "libcudnn_ops.so.9")
    requester = part if os.path.exists(part) else shim
    majors = []
    for wheel, cuda in wheels_of(shim, packages).items():
        asked = [cuda_family(need["name"]) for need in map(requirement, packages[wheel]["requires"]) if need]
        majors += [(wheel, major or cuda) for family, major in asked if family == "cublas"]
    return [("lib%s.so.%d" % (n, m), requester, wheel) for wheel, m in majors for n in ("cublas", "cublasLt")]


def find_nvrtc(facts, loader, wheel_folders):
    """The NVRTC of the CUDA of the frameworks and cuDNNs here that a process would load, or None.

    The newest that is sound if no CUDA is known.
    """
    majors = {numbers(row["cuda"])[0] for row in facts.get("consumers", ()) if numbers(row["cuda"])}
    majors = majors or set(cudnn_wheels(facts.get("packages", {})).values())
    names = ["libnvrtc.so.%s" % {11: "11.2"}.get(major, major) for major in sorted(majors) if major > 10]
    for name in names or _nvrtcs_here(loader, wheel_folders):
        path = in_folders(name, wheel_folders) or loader.resolve(name)["path"]
        if path is not None and (names or loader.header(path)["problem"] is None):
            return path
    return None


def _nvrtcs_here(loader, wheel_folders):
    """The file names of every NVRTC, the newest first."""
    names = {name for name, _ in read_cache()}
    for folder in loader.library_path + wheel_folders:
        names.update(list_folder(folder))
    found = [name for name in names if re.match(r"libnvrtc\.so\.\d", name)]
    return sorted(found, key=lambda name: numbers(name[len("libnvrtc.so.") :]), reverse=True)


def _check_nvrtc(ctx, loader, wheel_folders, evidence):
    path = find_nvrtc(ctx.facts, loader, wheel_folders)
    evidence["nvrtc"] = path
    ctx.fact("nvrtc", path)
    count = len(evidence["found"])
    summary = "%d needed CUDA librar%s found" % (count, "y" if count == 1 else "ies")
    if path is None:
        note = "no NVRTC here: cuDNN's runtime-compiled engines cannot be used"
        return ctx.passed("R02", summary, evidence, note=ctx.facts.get("candidates") and note)
    problem = loader.problem(path)
    if problem:
        text = "%s cannot be used: %s" % (path, problem)
        return ctx.fails("R02", text, "nvrtc-missing", dict(evidence, problem=problem))
    try:
        nvrtc = Library(ctx, path, NVRTC_PROTOTYPES)
    except OSError as error:
        text = "%s does not load: %s" % (path, error)
        return ctx.fails("R02", text, "nvrtc-missing", dict(evidence, dlerror=str(error)))
    (status, log), note = _compile(nvrtc), None
    if status != 0:
        evidence["builtins"] = _open_builtins(ctx, path, log)
        if evidence["builtins"] == "":
            status, log = _compile(nvrtc)
            note = "NVRTC finds its builtins only if its program leads it to %s" % os.path.dirname(path)
    evidence.update(status=status, log=log)
    if status == 0:
        return ctx.passed("R02", summary + ", NVRTC compiles", evidence, note=note)
    text = "%s cannot compile (error %d): %s" % (path, status, log.splitlines()[0] if log else "no log")
    return ctx.fails("R02", text, "nvrtc-missing", evidence)


def _compile(nvrtc):
    """(status, log) of a small kernel that NVRTC compiles."""
    program, size = ctypes.c_void_p(), ctypes.c_size_t(0)
    nvrtc.status("nvrtcCreateProgram", ctypes.byref(program), _KERNEL, b"probe.cu", 0, None, None)
    status = nvrtc.status("nvrtcCompileProgram", program, 0, None)
    if nvrtc.status("nvrtcGetProgramLogSize", program, ctypes.byref(size)) != 0 or size.value <= 1:
        return status, ""
    text = ctypes.create_string_buffer(size.value)
    nvrtc.status("nvrtcGetProgramLog", program, text)
    return status, text.value.decode("utf-8", "replace").strip()


def _open_builtins(ctx, path, log):
    """Open the builtins beside NVRTC that its log misses: "" or the loader's message; None without them.

    NVRTC opens them by name. CUDA 12's has a run path to its folder; CUDA 13's has none and finds them
    through the run path of its loader (PyTorch), by LD_LIBRARY_PATH, or if they are loaded already.
    """
    named = re.search(r"libnvrtc-builtins[\w.]+\d", log)
    beside = os.path.join(os.path.dirname(path), named.group(0)) if named else ""
    return _fault_of(ctx, beside) if os.path.exists(beside) else None


# -- K01

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
