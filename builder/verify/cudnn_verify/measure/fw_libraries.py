"""The cuDNN that a framework loads, whether it serves the build, and whether other libraries are found."""

import os
import re

from ..common.distributions import find_wheel_folders
from ..common.tables import cuda_package
from ..common.versions import cuda_tuple, cudnn_rule, dotted, numbers
from .cuda import VERSION_MISMATCH, Cudnn, ctypes, open_library
from .environment import NO_MEMORY, start_environment
from .expectation import asked_for
from .library_files import Loader, in_folders, mapped_libraries, shim_name
from .protocol import WITHOUT_CUDA


def unloadable(ctx, names, requesters=()):
    """{name: why} of those libraries that cannot be opened here, each tried by itself as the framework would.

    A library that is in the process already counts as opened.
    """
    # the loader goes by the variable as it was when the process was started
    loader = Loader(library_path=(start_environment() or os.environ).get("LD_LIBRARY_PATH", ""))
    present = {row["name"] for row in mapped_libraries() or []}
    missing = {}
    for name in [name for name in names if name not in present]:
        paths = [loader.resolve(name, requester)["path"] for requester in requesters or [None]]
        try:
            with ctx.call("dlopen %s" % name):
                open_library(next(filter(None, paths), name))
        except OSError as error:
            missing[name] = str(error)
    return missing


def cause_of_missing(names, copies=()):
    """The cause id for libraries that are not there: cuDNN's absence explains more than the toolkit's.

    ``copies``: the cuDNNs that were found, as in the facts.
    """
    majors = {name.rpartition(".")[2] for name in names if re.match(r"libcudnn\w*\.so\.\d+$", name)}
    here = {str(copy["major"]) for copy in copies}
    if majors and here and not majors & here:
        return "cudnn-major-mismatch"
    if any(name.startswith("libcudnn.so") for name in names):
        return "cudnn-missing"
    if any(name.startswith("libcudnn_") for name in names):
        return "cudnn-sublibrary-missing"
    if all(name.startswith("libnvrtc") for name in names):
        return "nvrtc-missing"
    return "toolkit-library-missing"


def check_wanted(ctx, framework):
    """R02: every library that the framework opens by itself, later and silently, can be opened."""
    names, requesters = framework.wanted()
    if not names:
        return True
    framework.load_first(names)
    missing = unloadable(ctx, names, requesters)
    named = ", ".join(sorted(missing))
    if not missing:
        return ctx.passed("R02", "%s can open all %d libraries it asks for" % (framework.title, len(names)))
    if ctx.without_cuda:
        return ctx.not_run("R02", "%s finds no %s; %s" % (framework.title, named, WITHOUT_CUDA), missing)
    with ctx.call("%s: its own remedy" % framework.module):
        remedy = framework.rescue()
    if remedy and not unloadable(ctx, missing, requesters):
        note = "%s finds %s only after the line %s, before its first session: without it, it uses the CPU"
        summary = "%s can open all %d libraries it asks for, after %s" % (framework.title, len(names), remedy)
        return ctx.passed("R02", summary, missing, note=note % (framework.title, named, remedy))
    missing.update(_refused(ctx, missing))
    optional = not framework.needs_cudnn and not asked_for(framework.name, ctx.expect)
    needed = {name: why for name, why in missing.items() if not (optional and name.startswith("libcudnn"))}
    if not needed:
        summary = "%s asks for %s, which cannot be opened" % (framework.title, named)
        return ctx.passed("R02", summary, missing, note=without_cudnn(ctx, framework))
    lying = {name: in_folders(name, find_wheel_folders()) for name in sorted(needed)}
    absent = [name for name, path in lying.items() if path is None]
    shadow = "cudnn-shadowed" if any(name.startswith("libcudnn") for name in needed) else "toolkit-mixed"
    cause = cause_of_missing(absent or needed, ctx.facts.get("copies") or ())
    if not absent and cause == "cudnn-sublibrary-missing":
        cause = "cudnn-missing"  # all of it is installed, and none of it found
    evidence = {"cannot be opened": needed, "otherwise": cause, "shadow": shadow}
    return ctx.fails("R02", _asks_for(framework, absent, lying), None, evidence)


def _asks_for(framework, absent, lying):
    """The libraries that a framework does not find, in words: those that are nowhere, and those in a folder
    that it does not search.
    """
    places = sorted({os.path.dirname(path) for path in lying.values() if path})
    found = ", ".join(name for name in lying if name not in absent)
    texts = (
        absent and "%s, which cannot be opened" % ", ".join(absent),
        places and "%s, installed in %s, where the loader does not look" % (found, ", ".join(places)),
    )
    path = (start_environment() or os.environ).get("LD_LIBRARY_PATH", "")
    dead = [entry for entry in path.split(":") if entry and not os.path.isdir(entry)]
    leads = "; LD_LIBRARY_PATH leads to %s, which is not there" % ", ".join(dead) if places and dead else ""
    return "%s asks for %s" % (framework.title, "; and for ".join(filter(None, texts))) + leads


def without_cudnn(ctx, framework):
    """Why a framework that can do without cuDNN has none: absent, of another major version, or not found."""
    major = next(iter(numbers(framework.compiled()["cudnn"])), None)
    if major is None:
        return "%s has no cuDNN here" % framework.title
    copies = ctx.facts.get("copies") or ()
    same = [copy["folder"] for copy in copies if copy["major"] == major]
    others = ", ".join("%d" % number for number in sorted({copy["major"] for copy in copies}))
    here = (
        "of cuDNN there is %s alone, which cannot take its place" % others if others else "there is none here"
    )
    here = "the one in %s is not where it looks" % same[0] if same else here
    return "%s works without cuDNN %d, which it would use; %s" % (framework.title, major, here)


def _refused(ctx, names):
    """{name: the loader's message} of libraries that the machine has no memory for, though a wheel has them.

    A framework that opens them by their paths keeps that message to itself.
    """
    found = {name: in_folders(name, find_wheel_folders()) for name in names}
    answers = {}
    for name, path in sorted(found.items()):
        try:
            with ctx.call("dlopen %s" % path):
                open_library(path or name)
        except OSError as error:
            answers[name] = str(error)
    return {name: text for name, text in answers.items() if NO_MEMORY.search(text)}


def loaded_row(cudnn):
    """The report's row about the cuDNN that a framework has loaded."""
    return {"cudnn": dotted(cudnn["version"]), "cudnn_path": cudnn["path"], "cuda": cudnn["cuda"]}


def framework_cudnn(ctx, framework, reported=()):
    """{"path", "version", "cudart", "cuda", "linkage", "opened"} of the cuDNN in this process.

    ``reported`` is the version that the framework itself gave; the library's own answer is preferred, since
    that is the sub-library which got loaded.
    """
    compiled = numbers(framework.compiled()["cudnn"])
    rows = mapped_libraries()
    found = {"path": None, "version": reported or None, "cudart": None, "linkage": None, "opened": None}
    found["cuda"] = _cudart(rows or [], ctx.facts.get("packages") or {})
    if rows is None:
        return found
    shims = [row for row in rows if row["name"].startswith("libcudnn.so")]
    if compiled:
        shims = [row for row in shims if row["name"].startswith(shim_name(compiled[0]))] or shims
    if not shims:
        found["linkage"] = "static" if reported else None
        return found
    opened = Cudnn(ctx, shims[-1]["path"])
    found.update(path=opened.path, linkage="dynamic", version=opened.version, opened=opened)
    return dict(found, cudart=cuda_tuple(opened.status("cudnnGetCudartVersion")))


def check_loaded(ctx, framework, cudnn, compiled):
    """F02, C02, C03 and C05; True if none of them failed."""
    if not cudnn["version"]:
        later = "%s loads cuDNN only once it has a GPU" % framework.title
        return ctx.not_run("F02", later if framework.needs_cudnn else without_cudnn(ctx, framework))
    evidence = {"path": cudnn["path"], "linkage": cudnn["linkage"]}
    evidence.update(compiled=dotted(compiled) or None, loaded=dotted(cudnn["version"]))
    cause = cudnn_rule(compiled, cudnn["version"], ctx.strict)
    pair = (framework.title, evidence["compiled"] or "(not said)", evidence["loaded"])
    pair = "%s compiled for cuDNN %s, cuDNN %s loaded" % pair
    if cause:
        known = None if cause == "cudnn-too-old" else cause
        return ctx.fails("F02", pair, known, dict(evidence, rule=cause))
    shared = min(len(compiled), 3)
    other = compiled[:shared] != cudnn["version"][:shared]
    note = other and "not the version that it was compiled for, which NVIDIA's rule allows"
    ctx.passed("F02", pair, evidence, note=note)
    return _check_flavour(ctx, framework, cudnn) and _check_one_cudnn(ctx, cudnn)


def _check_flavour(ctx, framework, cudnn):
    wanted = numbers(framework.compiled()["cuda"])
    if not wanted or not cudnn["cudart"]:
        return True
    evidence = {"cudnn_built_with": dotted(cudnn["cudart"]), "framework_built_with": dotted(wanted)}
    if wanted[0] == cudnn["cudart"][0]:
        return ctx.passed("C02", "cuDNN and %s are both of CUDA %d" % (framework.title, wanted[0]), evidence)
    summary = "cuDNN is the one for CUDA %d and %s is built for CUDA %d"
    summary = summary % (cudnn["cudart"][0], framework.title, wanted[0])
    return ctx.fails("C02", summary, None, dict(evidence, otherwise="cudnn-cuda-flavour"))


def _check_one_cudnn(ctx, cudnn):
    """C03 and C05: the sub-libraries that this process gets are of one version and out of one folder."""
    major = cudnn["version"][0]
    if major == 8 and ctx.facts.get("gpu_state") != "works":
        # up to 8.8 the parts that convolve abort the process where there is no libcuda.so
        return ctx.not_run("C03", "cuDNN 8's sub-libraries need the driver to load")
    answers = cudnn["opened"].version_checks() if cudnn["opened"] else {}
    paths = [row["path"] for row in mapped_libraries() or [] if row["name"].startswith("libcudnn")]
    wrong = sorted(name for name, status in answers.items() if status == VERSION_MISMATCH.get(major, 1002))
    evidence = {"files": paths, "checks": answers}
    if wrong:
        text = "cuDNN's sub-libraries differ in version: %s" % ", ".join(wrong)
        return ctx.fails("C03", text, None, evidence)
    if answers:
        ctx.passed("C03", "cuDNN's own version checks agree", {"checks": answers})
    folders = sorted({os.path.dirname(p) for p in paths if ".so.%d" % major in os.path.basename(p)})
    note = "files of one version out of several folders" if len(folders) > 1 else None
    return ctx.passed("C05", "cuDNN is mapped from %s" % " and ".join(folders), evidence, note=note)


def _cudart(rows, packages):
    """The version of the CUDA runtime in this process as text; None if it is linked statically."""
    path = next((row["path"] for row in rows if row["name"].startswith("libcudart.so")), None)
    number = ctypes.c_int()
    if path and open_library(path).cudaRuntimeGetVersion(ctypes.byref(number)) == 0:
        return dotted(cuda_tuple(number.value))
    return _cudart_without_driver(path, packages) if path else None


def _cudart_without_driver(path, packages):
    """Without a driver, the runtime up to CUDA 11 reports that alone (status 35).

    NVIDIA's installers name the file ``libcudart.so.11.8.89``; in its wheels it is ``libcudart.so.11.0`` for
    all of CUDA 11, and the wheel knows.
    """
    told = numbers(os.path.basename(os.path.realpath(path)).partition(".so.")[2])
    if len(told) < 3 and "/nvidia/" in path and told:
        told = numbers((packages.get(cuda_package("cuda-runtime", told[0])) or {}).get("version"))
    return dotted(told[:2]) if len(told) > 2 else None
