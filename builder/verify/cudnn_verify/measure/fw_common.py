"""The checks that every framework goes through, in one order; the ``fw_*`` modules say how it is asked.

A framework is imported once, in a child process of its own. What it was compiled for is read from it, what
it loaded from the process's memory map, and the two are compared by NVIDIA's rule. Where a GPU works, the
framework has to compute known answers on it, and the device of every result is looked at: without usable
CUDA the frameworks compute on the CPU and say so at most in a log line.
"""

import importlib
import math
import os
import re
import time

from ..common.distributions import canonical, packages_of
from ..common.tables import known_bad, known_bad_words, read_patterns
from ..common.versions import dotted, numbers
from .environment import no_temporary_folder
from .expectation import asked_for
from .fw_libraries import (
    cause_of_missing,
    check_loaded,
    check_wanted,
    framework_cudnn,
    loaded_row,
    unloadable,
    without_cudnn,
)
from .library_files import mapped_libraries
from .protocol import WITHOUT_CUDA
from .reference import ROUNDING, bias_relu, fresh_answers, largest_difference


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


# -- known answers on the GPU: convolutions, and a few training steps whose loss has to fall

# A framework chooses its algorithm itself; BF16, too, has every whole number here exactly.
_FRAMEWORK_ROUNDING = ROUNDING["winograd"]


def training_data():
    """{"x": 8 x 3 x 8 x 8, "targets": 8, "w": 4 x 3 x 3 x 3, "v": 4}: flat lists, NCHW; always the same."""
    x = [((13 * i) % 17 - 8) / 8.0 for i in range(8 * 3 * 8 * 8)]
    w = [((5 * i) % 7 - 3) / 16.0 for i in range(4 * 3 * 3 * 3)]
    return {"x": x, "w": w, "v": [0.5, -0.25, 0.75, 0.25], "targets": [1.0 + (i % 4) / 4.0 for i in range(8)]}


def check_gpu(ctx, framework, about):
    """F03 to F07 on a machine whose GPU passed the driver's own checks."""
    gpu = (ctx.facts.get("gpus") or [{}])[0]
    capability = numbers(gpu.get("compute_capability"))
    sound = check_archs(ctx, about["archs"], capability, gpu.get("name"))
    device = _first_device(ctx, framework) if sound else None
    if device is None:
        return
    about["device"] = device
    if not framework.convolves:
        ctx.not_run("F05", "the probe has no convolution for %s" % framework.title)
        return
    if not framework.needs_cudnn and not about["loaded"].get("cudnn"):
        about["linkage"] = "none"
        ctx.not_run("F05", without_cudnn(ctx, framework))
        return
    if not _check_convolutions(ctx, framework, device, capability):
        return
    cudnn = framework_cudnn(ctx, framework)
    if cudnn["version"]:
        about["loaded"] = loaded_row(cudnn)
    if not about["loaded"].get("cudnn") and mapped_libraries() is not None:
        # Built without cuDNN, or told not to use it: right numbers, which prove nothing about cuDNN.
        about["linkage"] = "absent"
        ctx.not_run("F02", "%s convolved on the GPU and has loaded no cuDNN" % framework.title)
    if framework.trains:
        _check_training(ctx, framework, device)


def check_cpu(ctx, framework, reason):
    """Without a GPU: F05 is not run; the same code on the CPU shows that the framework itself is sound."""
    case = fresh_answers()
    if not (framework.on_cpu and framework.convolves):
        return ctx.not_run("F05", reason)
    with ctx.call("%s: convolution on the CPU" % framework.module):
        found = framework.convolve(None, "float32", case)
    off, devices = largest_difference(found["y"], case["y"]), found["devices"]
    if not off <= _FRAMEWORK_ROUNDING:
        summary = "%s computes a convolution wrongly on the CPU already" % framework.title
        return ctx.fails("F05", summary, "wrong-result", {"difference": off, "devices": devices})
    ctx.not_run("F05", reason, {"on the CPU": "the same convolution is right", "devices": devices})
    if not framework.trains:
        return True
    losses, _, seconds = _train(ctx, framework, None, "training steps on the CPU")
    evidence = {"on the CPU": losses, "seconds": seconds}
    if loss_falls(losses):
        return ctx.not_run("F07", reason, evidence)
    summary = "%s cannot train on the CPU already: the loss does not fall" % framework.title
    return ctx.fails("F07", summary, "training-loss", evidence)


def _train(ctx, framework, device, what):
    """(losses, devices, seconds) of a few training steps."""
    started = time.time()
    with ctx.call("%s: %s" % (framework.module, what)):
        result = framework.train(device, training_data())
    return [float(loss) for loss in result["losses"]], result["devices"], round(time.time() - started, 2)


def check_archs(ctx, archs, capability, gpu):
    """F03: the wheel holds kernels for this GPU, as machine code or as PTX that the driver can translate."""
    archs = [arch for arch in archs if re.match(r"(sm|compute)_\d\d", str(arch).lower())]
    if not archs or not capability:
        unsaid = "it does not say for which GPUs it was built"
        return ctx.not_run("F03", unsaid if capability else "compute capability not known")
    how = arch_support(archs, capability)
    evidence = {"archs": archs, "compute_capability": dotted(capability), "how": how}
    if how is None:
        summary = "no kernels for %s (compute capability %s) in it" % (gpu or "this GPU", dotted(capability))
        return ctx.fails("F03", summary, cause="framework-arch-missing", evidence=evidence)
    # TensorFlow 2.8 took up to half an hour: https://github.com/tensorflow/tensorflow/issues/62320
    slow = "it holds PTX alone for this GPU: the driver compiles it at first use, for up to half an hour"
    if how == "PTX":
        ctx.extend(2400)
    text = "it holds %s for compute capability %s" % (how, dotted(capability))
    return ctx.passed("F03", text, evidence, note=how == "PTX" and slow)


def arch_support(archs, capability):
    """``machine code``, ``PTX`` or None: how a list such as sm_80, sm_90a, compute_90 serves a GPU of (9, 0).

    Machine code serves its own major version from its minor on; with the suffix ``a`` only the very GPU it
    names, and with ``f`` its family. PTX serves every later GPU.
    https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#binary-compatibility
    """
    capability, ptx = (tuple(capability) + (0,))[:2], None
    for arch in archs:
        parts = re.match(r"(sm|compute)_(\d+)(\d)([af]?)$", str(arch).lower())
        if not parts:
            continue
        version, suffix = (int(parts.group(2)), int(parts.group(3))), parts.group(4)
        if parts.group(1) == "sm":
            same_major = version[0] == capability[0] and version <= capability
            if version == capability or (same_major and suffix != "a"):
                return "machine code"
        elif suffix != "a" and version <= capability:
            ptx = "PTX"
    return ptx


def _first_device(ctx, framework):
    """F04, first half: the framework sees the driver's GPU; its own name for it, or None."""
    with ctx.call("%s: list the GPUs" % framework.module):
        devices = [str(device) for device in framework.devices()]
    if devices:
        return devices[0]
    if ctx.without_cuda:
        ctx.not_run("F04", "%s sees no GPU; %s" % (framework.title, WITHOUT_CUDA))
        return None
    missing = unloadable(ctx, *framework.wanted())
    summary = "the driver has a GPU and %s sees none: it would compute on the CPU" % framework.title
    cause = cause_of_missing(missing, ctx.facts.get("copies") or ()) if missing else None
    ctx.fails("F04", summary, cause=cause, evidence={"cannot be opened": missing})
    return None


def compare_convolutions(ctx, framework, device, capability, dtypes):
    """({type: {differences, seconds}}, {type: why not}, the devices of the results) of some types."""
    done, skipped, on = {}, {}, set()
    for dtype in dtypes:
        if capability and capability < {"float16": (6, 0), "bfloat16": (8, 0)}.get(dtype, (0, 0)):
            skipped[dtype] = "not on this GPU"
            continue
        found = _ask(ctx, framework, device, dtype)
        if "refused" in found:
            skipped[dtype] = found["refused"]
            continue
        on.update(found.pop("devices"))
        done[dtype] = found
    return done, skipped, on


def wrong_numbers(done):
    """(type, answer, how far it is off) of the results that rounding does not explain, sorted."""
    offs = [(dtype, key, off) for dtype in done for key, off in done[dtype]["differences"].items()]
    return sorted(row for row in offs if not row[2] <= _FRAMEWORK_ROUNDING)


def _check_convolutions(ctx, framework, device, capability):
    """F04, second half, and F05: every result on the GPU and right, in each type that the GPU has."""
    done, skipped, on = compare_convolutions(ctx, framework, device, capability, framework.dtypes)
    elsewhere = sorted(name for name in on if not is_gpu_name(name))
    if elsewhere:
        summary = "%s put a result on %s although it was given %s"
        summary = summary % (framework.title, ", ".join(elsewhere), device)
        return ctx.fails("F04", summary, "framework-silent-cpu", {"devices": sorted(on)})
    ctx.passed("F04", "every result is on %s" % ", ".join(sorted(on)), {"devices": sorted(on)})
    evidence = {"types": done, "skipped": skipped, "answers": list(framework.answers) + ["bias+relu"]}
    wrong = wrong_numbers(done)
    if not wrong:
        text = "convolutions of %s are right in %s" % (framework.title, ", ".join(sorted(done)))
        return ctx.passed("F05", text, evidence)
    dtype, key, off = wrong[0]
    summary = "%s gives wrong numbers on %s: %s in %s is off by %g"
    return ctx.fails("F05", summary % (framework.title, device, key, dtype, off), "wrong-result", evidence)


def _ask(ctx, framework, device, dtype):
    """One type's convolutions: {differences, seconds, devices}; {"refused": why} if the type is not offered.

    Each launch has its own numbers, so that what an earlier one left in memory is no answer, and each is
    compared.
    """
    off, times, devices, bias = {}, [], [], [3, -2, 5, -7]
    try:
        for _ in range(2):
            case, started = fresh_answers(), time.time()
            with ctx.call("%s: convolution and its gradients" % framework.module):
                found = framework.convolve(device, dtype, case)
            times.append(round(time.time() - started, 4))
            devices += list(found["devices"])
            for key in framework.answers:
                off[key] = max(off.get(key, 0.0), largest_difference(found[key], case[key]))
        case = fresh_answers()
        with ctx.call("%s: convolution with bias and ReLU" % framework.module):
            tail = framework.fused(device, dtype, case, bias)
        off["bias+relu"] = largest_difference(tail["y"], bias_relu(case["y"], bias, len(bias)))
    except Exception as error:
        # bfloat16 came to each framework's GPU convolutions at another time; everything else has to work.
        refusal = read_patterns()["said-by-frameworks"]["not-offered"]
        if dtype == "bfloat16" and re.search(refusal, str(error)):
            return {"refused": str(error).splitlines()[0][:200]}
        raise
    return {"differences": off, "seconds": times, "devices": devices + list(tail["devices"])}


def _check_training(ctx, framework, device):
    """F07: the loss of a few training steps is a number and falls, and the weights stay on the GPU."""
    losses, devices, seconds = _train(ctx, framework, device, "training steps")
    evidence = {"losses": losses, "devices": devices, "seconds": seconds}
    elsewhere = [name for name in devices if not is_gpu_name(name)]
    if elsewhere:
        summary = "%s trained on %s although it was given %s" % (framework.title, elsewhere[0], device)
        ctx.fails("F07", summary, "framework-silent-cpu", evidence)
    elif not loss_falls(losses):
        shown = "from %g to %g" % (losses[0], losses[-1]) if losses else "(no step was made)"
        ctx.fails("F07", "the loss does not fall: %s" % shown, "training-loss", evidence)
    else:
        summary = "%d training steps: the loss falls from %g to %g" % (len(losses), losses[0], losses[-1])
        ctx.passed("F07", summary, evidence)


def loss_falls(losses):
    """True for two losses at least, all of them numbers, the last clearly below the first."""
    return len(losses) > 1 and all(map(math.isfinite, losses)) and losses[-1] < 0.9 * losses[0]


def is_gpu_name(name):
    """True for the frameworks' names of a GPU: cuda:0, /GPU:0, Place(gpu:0), CUDAExecutionProvider."""
    text = name.lower()
    return "cuda" in text or "gpu:" in text
