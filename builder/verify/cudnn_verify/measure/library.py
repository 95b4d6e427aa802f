"""C01 to C05: a cuDNN opens, its parts belong together, and it can lay out a convolution. No GPU needed."""

import os
import re

from ..common.distributions import find_wheel_folders, wheels_of
from ..common.tables import known_bad, known_bad_words
from ..common.versions import cuda_tuple, dotted, numbers
from .cuda import FLOAT, Cudnn, CudnnError, ctypes, open_library
from .judge import judge_cudnn
from .library_files import Loader, folder_version, in_folders, mapped_libraries, number_in_code, parts_of
from .protocol import stage
from .reference import case


def each_candidate(facts):
    """One run per shim that programs here would load; one empty run if there is none."""
    return [{"candidate": row} for row in facts.get("candidates", ())[:4]] or [{}]


def preload_toolkit(ctx, shim):
    """Load CUDA libraries that the sub-libraries need and the loader would not find, as frameworks do."""
    loader, wheel_folders, done = Loader(), find_wheel_folders(), set()
    parts = [os.path.join(os.path.dirname(shim), part) for part in parts_of(shim)]
    for path, name in [(part, name) for part in parts for name in loader.header(part)["needed"]]:
        if not re.match(r"libcublas|libnvrtc|libcudart", name) or loader.resolve(name, path)["path"]:
            continue
        found = in_folders(name, wheel_folders)
        if found is not None and found not in done:
            with ctx.call("dlopen %s" % found):
                open_library(found, mode=ctypes.RTLD_GLOBAL)
            done.add(found)


def open_candidate(ctx):
    """The candidate's cuDNN, loaded with the libraries that it needs."""
    path = ctx.params["candidate"]["path"]
    preload_toolkit(ctx, path)
    return Cudnn(ctx, path)


@stage("cudnn", layer="cudnn", timeout=60, runs=each_candidate, judge=judge_cudnn)
def library_stage(ctx):
    if "candidate" not in ctx.params:
        return _no_candidate(ctx)
    cudnn = open_candidate(ctx)
    if cudnn.test_double:
        ctx.fact("test_double", True)
    cudart = cudnn.number_of("cudnnGetCudartVersion")
    newest = cudnn.number_of("cudnnGetMaxDeviceVersion")
    raw = {"path": cudnn.path, "version": dotted(cudnn.version), "cudart": cudart, "max_device": newest}
    ctx.fact("raw", raw)
    built = dotted(cuda_tuple(cudart)) if cudart else "unknown"
    ctx.passed("C01", "cuDNN %s, built with CUDA %s: %s" % (raw["version"], built, cudnn.path), raw)
    _check_cuda_flavour(ctx, cudnn, cudart)
    _check_versions(ctx, cudnn)
    try:
        _check_layout(ctx, cudnn)
    except CudnnError as error:
        evidence = {"status": error.status, "otherwise": error.cause or "execution-failed"}
        return ctx.fails("C04", str(error), None, evidence)
    if ctx.facts.get("gpu_state") != "works":
        # cudnnCreate must come back, with an error: a shim that does not fit its parts aborts here
        status = cudnn.status("cudnnCreate", ctypes.byref(ctypes.c_void_p()))
        evidence = {"status": status, "name": cudnn.status_name(status), "reason": cudnn.last_error()}
        ctx.not_run("C06", "no GPU; cudnnCreate comes back with %s" % evidence["name"], evidence)
    return _check_mapped(ctx, cudnn)


def _no_candidate(ctx):
    installed = sorted(ctx.facts.get("installed", ()))
    if ctx.facts.get("gpu_state") == "works" and not installed and not ctx.without_cuda:
        return ctx.fails("C01", "there is a working GPU, but no cuDNN on this machine", "cudnn-missing")
    reason = "no cuDNN here"
    if installed:
        # PyTorch's wheels for CUDA 10.2 and older are linked with cuDNN statically
        reason = "no libcudnn here; whether %s has one inside shows there" % " or ".join(installed)
    for number in ("C01", "C02", "C03", "C04", "C05"):
        ctx.not_run(number, reason)
    return True


def _check_cuda_flavour(ctx, cudnn, cudart):
    """C02: cuDNN carries a CUDA runtime of its own; it must be of the major version of the program's CUDA."""
    if not cudart:
        return ctx.not_run("C02", "this cuDNN does not say which CUDA it was built with")
    users = (ctx.params["candidate"]["for"] or "").split("/")
    rows = [row for row in ctx.facts.get("consumers", ()) if row["framework"] in users and row["cuda"]]
    packages = ctx.facts.get("packages", {})
    wheels = [(major, name) for name, major in wheels_of(cudnn.path, packages).items()][:1]
    wanted = [(numbers(row["cuda"])[0], row["framework"]) for row in rows]
    wanted = wanted or [(major, "%(name)s %(version)s" % packages[name]) for major, name in wheels]
    evidence, built = {"cudart": cudart, "wanted": wanted}, cuda_tuple(cudart)
    evidence["wanted_majors"] = sorted({major for major, _ in wanted})
    wrong = [(major, who) for major, who in wanted if major != built[0]]
    if not wrong:
        return ctx.passed("C02", "built for CUDA %s, as its users are" % dotted(built), evidence)
    text = "this cuDNN is built for CUDA %s, %s for CUDA %d" % (dotted(built), wrong[0][1], wrong[0][0])
    return ctx.fails("C02", text, None, dict(evidence, otherwise="cudnn-cuda-flavour"))


# Parts without a version check of their own. Each compares the version in its code. Looked into were, of the
# wheels for CUDA 12: 9.0.0, 9.1.0, 9.2.1, 9.4.0, 9.6.0, 9.8.0, 9.10.2, 9.12.0, 9.14.0, 9.16.0, 9.18.1,
# 9.20.0, 9.24.1 and 9.28.0; of later ones nothing is known.
_SILENT_PARTS = ("heuristic", "engines_precompiled", "engines_runtime_compiled")
_READ_UP_TO = (9, 28)


def _of_another_release(cudnn):
    """The paths of the parts of cuDNN 9 that this shim gets and whose code does not know its version.

    On x86-64, where an instruction holds a number in one piece, up to the last release that was read.
    """
    if not (9,) <= cudnn.version[:2] <= _READ_UP_TO or os.uname()[4] != "x86_64":
        return []
    major, minor, patch = cudnn.version
    number = major * 10000 + minor * 100 + patch
    loader, names = Loader(), ["libcudnn_%s.so.9" % part for part in _SILENT_PARTS]
    paths = filter(None, (loader.resolve(name, cudnn.path)["path"] for name in names))
    return [path for path in paths if number_in_code(path, number) is False]


def _check_versions(ctx, cudnn):
    """C03: each sub-library compares its own version with the shim's."""
    statuses = cudnn.version_checks()
    wrong = {name: status for name, status in statuses.items() if status != 0}
    evidence = {"statuses": statuses, "version": dotted(cudnn.version)}
    faulty = known_bad({"cudnn": dotted(cudnn.version)})
    if wrong:
        name = min(wrong)
        return ctx.fails("C03", "%s: %s" % (name, cudnn.status_name(wrong[name])), None, evidence)
    if faulty:
        return ctx.fails("C03", known_bad_words(faulty), "cudnn-known-bad", evidence)
    strange = _of_another_release(cudnn)
    if strange:
        text = "%s is of another release than cuDNN %s: its code does not hold that number"
        text %= strange[0], dotted(cudnn.version)
        ctx.fails("C03", text, "cudnn-sublibrary-mismatch", dict(evidence, strange=strange))
    elif statuses:
        ctx.passed("C03", "%d sub-libraries are of one version" % len(statuses), evidence)
    else:
        ctx.passed("C03", "cuDNN %d is one file" % cudnn.major, evidence)
    return None


def _check_layout(ctx, cudnn):
    data = case()
    x, w = cudnn.tensor(data["x_shape"], FLOAT), cudnn.filter(data["w_shape"], FLOAT)
    shape = cudnn.output_shape(cudnn.convolution(), x, w)
    if shape == data["dy_shape"]:
        ctx.passed("C04", "descriptors work, the output would be %dx%dx%dx%d" % shape, {"shape": list(shape)})
    else:
        text = "the output would be %r, not %r" % (shape, data["dy_shape"])
        ctx.fails("C04", text, "wrong-result", {"shape": list(shape)})


def _check_mapped(ctx, cudnn):
    """C05: the files that were really mapped."""
    rows = mapped_libraries()
    if rows is None:
        return ctx.not_run("C05", "no /proc here, so nobody says what is mapped")
    version = dotted(cudnn.version)
    mine = [dict(r, version=version) for r in rows if r["name"].startswith("libcudnn")]
    ctx.fact("libraries", mine + [r for r in rows if not r["name"].startswith("libcudnn")])
    folders = sorted({os.path.dirname(r["path"]) for r in mine})
    evidence = {"mapped": mine, "folders": folders}
    package, own = _own_version(ctx, cudnn)
    if any(row["deleted"] for row in mine):
        text = "a mapped cuDNN file was replaced on disk meanwhile"
        return ctx.fails("C05", text, "stale-process", evidence)
    if len(folders) > 1 and own and own != cudnn.version:
        # PyTorch with parts of two releases crashed: https://github.com/pytorch/pytorch/issues/104808
        text = "the shim of cuDNN %s has got parts of %s from %s" % (dotted(own), version, folders[0])
        return ctx.fails("C05", text, None, dict(evidence, weak=True, otherwise="cudnn-sublibrary-mismatch"))
    if len(folders) == 1 and own and own != cudnn.version:
        text = "%s is cuDNN %s, by its package or folder it is %s" % (cudnn.path, version, dotted(own))
        return ctx.fails("C05", text, "package-overwritten", dict(evidence, weak=True, packages=package))
    if len(folders) < 2:
        return ctx.passed("C05", "all mapped parts come from %s" % (folders or ["nowhere"])[0], evidence)
    text = "parts of cuDNN come from %s" % " and ".join(folders)
    if ctx.strict:
        return ctx.fails("C05", text, "cudnn-shadowed", evidence)
    note = text + "; they fit, by cuDNN's own check"
    return ctx.passed("C05", "mapped parts are of one version", evidence, note=note)


def _own_version(ctx, cudnn):
    """([package], version) of the shim's own file, by its package or folder; it reports that of its parts."""
    packages = ctx.facts.get("packages") or {}
    for name in wheels_of(cudnn.path, packages):
        return [name], numbers(packages[name]["version"])[:3]
    folder = os.path.dirname(os.path.realpath(cudnn.path))
    return [], numbers(folder_version(folder, cudnn.major))[:3]
