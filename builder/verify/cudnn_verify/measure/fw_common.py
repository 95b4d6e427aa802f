"""The checks that every framework goes through, in one order; the ``fw_*`` modules say how it is asked.

A framework is imported once, in a child process of its own. What it was compiled for is read from it, what
it loaded from the process's memory map, and the two are compared by NVIDIA's rule. Where a GPU works, the
framework has to compute known answers on it, and the device of every result is looked at: without usable
CUDA the frameworks compute on the CPU and say so at most in a log line.
"""

import importlib
import os
import time

from ..common.distributions import canonical, packages_of
from ..common.tables import known_bad, known_bad_words
from ..common.versions import numbers
from .environment import no_temporary_folder
from .expectation import asked_for
from .fw_compute import check_cpu, check_gpu
from .fw_libraries import check_loaded, check_wanted, framework_cudnn, loaded_row
from .library_files import mapped_libraries
from .protocol import WITHOUT_CUDA


def flat(array, *order):
    """An array of NumPy's kind as a flat list, its axes in another order if one is given."""
    array = array.astype("float32")
    return [float(value) for value in (array.transpose(*order) if order else array).ravel()]


def shaped(values, shape, *order):
    """A flat list as an array of NumPy's, its axes in another order if one is given."""
    import numpy

    array = numpy.array(values, dtype="float32").reshape(shape)
    return array.transpose(*order) if order else array


def imported(name):
    """A module, or None if it cannot be imported."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


class Framework(object):
    """One framework. A subclass answers these questions; an unknown answer is None or empty.

    ``cuda_build()``: (is it a build for NVIDIA GPUs, the evidence as a dict). ``devices()``: the GPUs that
    the framework itself sees, by its own names. If it ``convolves``:

    ``convolve(device, dtype, case)``: {"y", "dx", "dw": flat NCHW lists, "devices": where each result is};
    ``device`` None: the CPU, and only ``y``, since PyTorch needs seconds to get ready for its first gradient.
    ``fused(device, dtype, case, bias)``: {"y", "devices"} of convolution, bias and ReLU, as training asks.
    ``train(device, data)``: {"losses", "devices"} of a few training steps of a small convolutional net.
    """

    name = ""  # as ``--expect`` calls it
    title = ""
    module = ""
    dtypes = ("float32", "float16", "bfloat16")
    answers = ("y", "dx", "dw")
    trains = True
    compiles = False
    """True if it starts a compiler, which writes temporary files, in the middle of a computation."""
    on_cpu = True
    convolves = True
    """False if the probe has no convolution for it: it is then never said to work."""
    needs_cudnn = True
    """False if cuDNN's convolutions are an extra, and the framework works without them."""

    def __init__(self, ctx):
        self.ctx = ctx

    def load(self):
        """Import the framework as ``api``; nothing is caught here."""
        self.api = importlib.import_module(self.module)

    def version(self):
        return str(self.api.__version__)

    def compiled(self):
        """{"cuda": version text or None, "cudnn": version text or None}: as compiled for."""
        return {"cuda": None, "cudnn": None}

    def archs(self):
        """The GPU architectures in the wheel, as ``sm_80`` and ``compute_90``; [] if it does not say."""
        return []

    def forbidden(self):
        """The variable that keeps the framework from every GPU, as ``JAX_PLATFORMS=cpu``, or ""."""
        return ""

    def wanted(self):
        """(file names that the framework opens by itself, paths of its own libraries that open them)."""
        return [], []

    def load_first(self, names):
        """Load libraries that the framework finds by a search of its own, before it opens them."""

    def rescue(self):
        """Do what the framework's own documents say for libraries that it does not find; the line, or ""."""
        return ""

    def compile_kernel(self):
        """Without a GPU: compile what the framework compiles for each program; nothing is caught here."""

    def touch(self):
        """Make the framework load cuDNN, if that needs no GPU; the version that it reports, or ()."""
        return ()


def check_framework(ctx, framework):
    started = time.time()
    with ctx.call("import %s" % framework.module):
        framework.load()
        module, version = framework.api, framework.version()
    seconds, compiled = round(time.time() - started, 2), framework.compiled()
    evidence = {"version": version, "file": getattr(module, "__file__", None), "seconds": seconds}
    faulty = known_bad({framework.name: version, "cuda": compiled["cuda"]})
    text = "%s %s imported in %.1f s" % (framework.title, version, seconds)
    others = of_another_release(framework, evidence["file"] or "", ctx.facts.get("packages") or {})
    if others:
        text += ", and its package is of another release"
        ctx.fails("F01", text, "package-overwritten", dict(evidence, weak=True, packages=others))
    else:
        ctx.passed("F01", text, evidence, note=faulty and known_bad_words(faulty))
    if getattr(module, "rtbuild_test_double", False):
        ctx.fact("test_double", True)
    about = {"name": framework.name, "version": version, "import_seconds": seconds, "device": None}
    about.update(compiled=compiled, archs=framework.archs(), loaded={}, linkage=None)
    ctx.fact("framework", about)
    if _check_build(ctx, framework) and _check_cudnn(ctx, framework, about):
        compute(ctx, framework, about)


def of_another_release(framework, path, packages):
    """Names of a framework's packages whose METADATA says another release than the framework itself.

    RECORD shows other files unless it was written anew for them.
    """
    rows = [row for row in packages_of(framework.name, packages) if path.startswith(row["location"] + os.sep)]
    mine = numbers(framework.version())[:3]
    same = [row for row in rows if all(a == b for a, b in zip(mine, numbers(row["version"])))]
    return [] if same else [canonical(row["name"]) for row in rows]


def compute(ctx, framework, about):
    """The checks that need a GPU, or the reason why they were not run."""
    forbidden = framework.forbidden()
    told = "%s tells %s to do without a GPU" % (forbidden, framework.title) if forbidden else None
    reason = gpu_reason(ctx) or told
    if told and not ctx.without_cuda:
        ctx.fails("F04", told, "framework-silent-cpu", {"variable": forbidden.partition("=")[0]})
    elif not reason:
        check_gpu(ctx, framework, about)
    else:
        ctx.not_run("F03", reason)
        with ctx.call("%s: compile a kernel" % framework.module):
            framework.compile_kernel()
        ctx.not_run("F04", reason)
        check_cpu(ctx, framework, reason)
    ctx.fact("libraries", mapped_libraries() or [])
    ctx.fact("framework", about)


def gpu_reason(ctx):
    """The reason why nothing can be run on a GPU here; None if one works."""
    if ctx.no_gpu:
        return "asked not to use a GPU"
    reasons = {"none": "no GPU here", "works": None}
    return reasons.get(ctx.facts.get("gpu_state", "none"), "the driver or the GPU does not work, see above")


def _check_build(ctx, framework):
    built, evidence = framework.cuda_build()
    if built:
        cuda = framework.compiled()["cuda"] or "(version not said)"
        return ctx.passed("P03", "%s is built for CUDA %s" % (framework.title, cuda), evidence)
    summary = "%s %s is a build for the CPU: it can use no GPU" % (framework.title, framework.version())
    if ctx.without_cuda:
        ctx.passed("P03", summary, evidence, note=WITHOUT_CUDA)
    elif ctx.expect.get("frameworks") and not asked_for(framework.name, ctx.expect):
        ctx.passed("P03", summary, evidence, note="not asked for by --expect, so not held against the image")
    else:
        ctx.fails("P03", summary, cause="framework-cpu-build", evidence=evidence)
    return False


def _check_cudnn(ctx, framework, about):
    """F02, C02, C03 and C05 for the cuDNN that this framework loads; False if nothing more can be run."""
    with ctx.call("%s: load cuDNN" % framework.module):
        reported = framework.touch()
    full = no_temporary_folder() if framework.compiles else None
    if full:
        return ctx.fails("R02", "%s compiles by XLA, and %s" % (framework.title, full), "no-temporary-space")
    if not check_wanted(ctx, framework):
        return False
    cudnn = framework_cudnn(ctx, framework, reported)
    about.update(loaded=loaded_row(cudnn), linkage=cudnn["linkage"])
    ctx.fact("framework", about)
    return check_loaded(ctx, framework, cudnn, numbers(about["compiled"]["cudnn"]))
