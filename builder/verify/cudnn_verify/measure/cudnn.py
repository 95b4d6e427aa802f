"""C01 to C09: a cuDNN opens, its parts belong together, and it can lay out a convolution, for which no GPU is
needed; a handle, and the three convolutions on the GPU with numbers that must be exactly right.
"""

import os
import re
import struct
import time
from collections import namedtuple
from itertools import product

from ..common.distributions import find_wheel_folders, wheels_of
from ..common.tables import known_bad, known_bad_words
from ..common.versions import cuda_tuple, dotted, numbers
from .cuda import (
    ALGORITHMS,
    FLOAT,
    HALF,
    OUT_OF_MEMORY,
    CudaError,
    Cudnn,
    CudnnError,
    Driver,
    ctypes,
    open_library,
)
from .judge import default_judge, judge_cudnn
from .library_files import Loader, folder_version, in_folders, mapped_libraries, number_in_code, parts_of
from .protocol import stage
from .reference import ROUNDING, case, fresh_answers, largest_difference


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


# -- C06 to C09: on the GPU

_MEMORY_FLOOR = 128 << 20
# The operands of each direction in the order of cuDNN's call, and its answer.
_DIRECTIONS = {
    "Forward": (("x", "w"), "y"),
    "BackwardData": (("w", "dy"), "dx"),
    "BackwardFilter": (("x", "dy"), "dw"),
}
_OPERAND = {"x": "x", "dx": "x", "w": "w", "dw": "w", "y": "dy", "dy": "dy"}
"""The operand of the same shape."""
# descriptors: of both operands, convolution, result
Problem = namedtuple("Problem", "direction data_type format descriptors")


def when_a_gpu_works(facts):
    """One run per candidate if the driver stage brought a GPU up; otherwise one run that says why not."""
    return each_candidate(facts) if facts.get("gpu_state") == "works" else [{}]


def judge_convolution(run):
    """Memory first, by a smaller run; then the causes of the other layers."""
    for check in run.checks:
        if check["outcome"] == "failed" and check["cause"] is None and check["evidence"].get("memory"):
            fits = run.again("small").sound
            smaller = "the same convolutions without workspace %s" % ("pass" if fits else "fail too")
            run.prove("small", "confirmed" if fits else "refuted", smaller)
            check["cause"] = "out-of-memory" if fits else None
    default_judge(run)
    for check in run.checks:
        if check["outcome"] == "failed" and check["cause"] == "execution-failed":
            check["cause"] = check["evidence"].get("by_status") or check["cause"]


@stage("convolution", layer="convolution", timeout=180, runs=when_a_gpu_works, judge=judge_convolution)
def convolution_stage(ctx):
    if "candidate" not in ctx.params:
        reasons = {"faulty": "the driver layer failed", "works": "no cuDNN here"}
        for number in ("C07", "C08", "C09"):
            ctx.not_run(number, reasons.get(ctx.facts.get("gpu_state"), "no GPU here"))
        return
    driver = Driver(ctx)
    driver.call("cuInit", 0)
    driver.use(0)
    cudnn = open_candidate(ctx)
    _check_range(ctx, cudnn, ctx.facts["gpus"][0])
    handle = _create(ctx, driver, cudnn)
    bench = Bench(ctx, driver, cudnn, handle) if handle is not None else None
    formats = ((FLOAT, "FP32"), (HALF, "FP16"))
    if bench and all(bench.convolve(way, *number) for number, way in product(formats, _DIRECTIONS)):
        bench.report()
        for card in ctx.facts["gpus"][1:]:
            _try_other_card(ctx, driver, cudnn, card)


def _try_other_card(ctx, driver, cudnn, card):
    """D06: the same convolutions in FP32 on a further card. One that others use is named, and left alone."""
    name = "card %(index)d, %(name)s" % card
    if card["compute_mode"] == 2:
        return ctx.not_run("D06", "%s is in compute mode PROHIBITED" % name)
    if cudnn.version >= (9, 11, 0) and numbers(card["compute_capability"]) < (7, 5):
        return ctx.not_run("D06", "cuDNN %s does not serve %s" % (dotted(cudnn.version), name))
    evidence = {"card": card["index"]}
    try:
        driver.use(card["index"])
        if memory_is_short(driver, evidence):
            return ctx.not_run("D06", "%s has too little free memory" % name, evidence)
        handle = cudnn.create()
    except CudaError as error:
        if error.cause == "device-busy":
            return ctx.not_run("D06", "%s is in use: %s" % (name, error))
        return ctx.fails("D06", "%s: %s" % (name, error), "driver-error", evidence)
    except CudnnError as error:
        return ctx.fails("D06", "%s: %s" % (name, error), "driver-error", evidence)
    bench = Bench(ctx, driver, cudnn, handle, card)
    if not all(bench.convolve(way, FLOAT, "FP32") for way in _DIRECTIONS):
        return False
    text = "%s: %d convolutions are right" % (name, len(bench.rows))
    return ctx.passed("D06", text, dict(evidence, rows=bench.rows), "; ".join(bench.notes))


def _check_range(ctx, cudnn, gpu):
    """C08: is the GPU within the range of this cuDNN?

    9.11 dropped everything below compute capability 7.5 (https://github.com/pytorch/pytorch/issues/162574);
    cudnnGetMaxDeviceVersion gives the upper end, which 9.0 and later may exceed on Hopper and newer.
    """
    capability = numbers(gpu["compute_capability"])
    newest = cudnn.number_of("cudnnGetMaxDeviceVersion")
    evidence = {"compute_capability": gpu["compute_capability"], "max_device": newest}
    evidence["cudnn"] = dotted(cudnn.version)
    if cudnn.version >= (9, 11, 0) and capability < (7, 5):
        text = "cuDNN %s serves GPUs from 7.5 on, this is %s" % (dotted(cudnn.version), dotted(capability))
        return ctx.fails("C08", text, "cudnn-arch-dropped", evidence)
    newer = "this GPU is newer than cuDNN %s, which may have no kernels for it" % dotted(cudnn.version)
    note = newest and capability > (newest // 100, newest % 100 // 10) and newer
    text = "compute capability %s is in range" % gpu["compute_capability"]
    return ctx.passed("C08", text, evidence, note=note)


def _create(ctx, driver, cudnn):
    free, total = driver.memory()
    evidence = {"free": free, "total": total}
    try:
        handle = cudnn.create()
    except CudnnError as error:
        evidence.update(status=error.status, name=error.name, reason=error.reason)
        ctx.fails("C06", str(error), _why_no_handle(ctx, driver, cudnn, error, evidence), evidence)
        return None
    ctx.passed("C06", "cudnnCreate; %d MiB of %d were free" % (free >> 20, total >> 20), evidence)
    return handle


def _why_no_handle(ctx, driver, cudnn, error, evidence):
    """The cause of a failed cudnnCreate, which may stand for short memory: try to allocate."""
    if error.cause != "host-memory" and memory_is_short(driver, evidence):
        return "out-of-memory"
    cudart = cudnn.number_of("cudnnGetCudartVersion")
    api = numbers((ctx.facts.get("driver") or {}).get("api"))
    if cudart and api and api[0] < cuda_tuple(cudart)[0]:
        return "driver-too-old"
    evidence["by_status"] = error.cause
    return None


def memory_is_short(driver, evidence):
    """True if 128 MiB cannot be had, or less is free; the numbers go into ``evidence``."""
    try:
        evidence["free"] = driver.memory()[0]
        driver.call("cuMemFree_v2", driver.allocate(_MEMORY_FLOOR))
        evidence["allocation"] = "%d MiB could be had" % (_MEMORY_FLOOR >> 20)
    except CudaError as failure:
        evidence["allocation"] = str(failure)
        return failure.result == OUT_OF_MEMORY
    return evidence["free"] < _MEMORY_FLOOR


def allowed(direction, algorithm):
    """How far a result of this algorithm may be off; one that the table does not know may be any."""
    kinds = ALGORITHMS[direction]
    return ROUNDING[kinds[algorithm] if 0 <= algorithm < len(kinds) else "winograd"]


def encode(values, data_type):
    """Whole numbers as little-endian FP32 or FP16 bytes."""
    return struct.pack("<%d%s" % (len(values), "e" if data_type == HALF else "f"), *values)


def decode(data, data_type):
    return [value for (value,) in struct.iter_unpack("<e" if data_type == HALF else "<f", data)]


class Bench(object):
    """Variants of the canonical convolution on the GPU, in every direction, by several algorithms.

    ``card``: a row of the fact ``gpus`` for another card than the first, which has passed all of it.
    """

    def __init__(self, ctx, driver, cudnn, handle, card=None):
        self.ctx, self.driver, self.cudnn, self.handle = ctx, driver, cudnn, handle
        self.rows, self.notes, self.card = [], [], card

    def convolve(self, direction, data_type, name):
        """One direction in one number format; false if a check failed.

        Every algorithm that is tried has to be right; only NOT_SUPPORTED excuses one, if another ran.
        """
        ran, skipped = 0, []
        try:
            problem = self._describe(direction, data_type, name)
            for algorithm in self._algorithms(problem):
                try:
                    runs = self._launch(problem, algorithm)
                except CudnnError as error:
                    if not error.unsupported:
                        raise
                    skipped.append(error)
                    continue
                ran += 1
                if not self._is_right(problem, algorithm, runs):
                    return False
            if not ran:
                raise skipped[0]
        except (CudnnError, CudaError) as error:
            self._failed("%s %s" % (name, direction), error, skipped)
            return False
        self.notes += ["%s %s: %s" % (name, direction, error) for error in skipped if error.cause]
        return True

    def _describe(self, direction, data_type, name):
        cudnn, data = self.cudnn, case()
        described = {"x": cudnn.tensor(data["x_shape"], data_type)}
        described["w"] = cudnn.filter(data["w_shape"], data_type)
        described["dy"] = described["y"] = cudnn.tensor(data["dy_shape"], data_type)
        sources, answer = _DIRECTIONS[direction]
        first, second = [described[key] for key in sources]
        descriptors = [first, second, cudnn.convolution(), described[answer.lstrip("d")]]
        return Problem(direction, data_type, name, descriptors)

    def _algorithms(self, problem):
        """Algorithm 0, which needs no workspace, then the choice of the heuristics, then algorithm 1."""
        order = [0, 1]
        if "small" not in self.ctx.counter:
            try:
                order = [0, self.cudnn.suggested(problem.direction, self.handle, *problem.descriptors), 1]
            except CudnnError as error:
                if not error.unsupported:
                    raise
        return [algorithm for algorithm in dict.fromkeys(order) if algorithm is not None]

    def _launch(self, problem, algorithm):
        """Run one algorithm twice: [(numbers found, the right ones, seconds)].

        Each run has other operands than the one before, and not-a-number in every element of its output.
        """
        first, second, convolution, result = problem.descriptors
        size = self.cudnn.workspace(problem.direction, self.handle, *problem.descriptors, algorithm)
        if size and "small" in self.ctx.counter:
            wanted = "%d bytes of workspace wanted" % size
            raise CudnnError("workspace", 0, "CUDNN_STATUS_NOT_SUPPORTED", wanted)
        sources, answer = _DIRECTIONS[problem.direction]
        one, zero = ctypes.byref(ctypes.c_float(1.0)), ctypes.byref(ctypes.c_float(0.0))
        taken, runs = [], []
        try:
            for name in sources + (answer,):
                taken.append(self.driver.allocate(len(encode(case()[_OPERAND[name]], problem.data_type))))
            taken.append(self.driver.allocate(size) if size else 0)
            values = (one, first, taken[0], second, taken[1], convolution, algorithm)
            values += (taken[3], size, zero, result, taken[2])  # 1 * result + 0 * the output before
            for _ in range(2):
                data = fresh_answers()
                arrays = [encode(data[key], problem.data_type) for key in sources]
                arrays.append(b"\xff" * len(encode(data[answer], problem.data_type)))
                for address, array in zip(taken, arrays):
                    self.driver.call("cuMemcpyHtoD_v2", address, array, len(array))
                start = time.time()
                self.cudnn.call("cudnnConvolution" + problem.direction, self.handle, *values)
                self.driver.call("cuCtxSynchronize")
                seconds = round(time.time() - start, 6)
                found = decode(self.driver.download(taken[2], len(arrays[2])), problem.data_type)
                runs.append((found, data[answer], seconds))
            return runs
        finally:
            for address in filter(None, taken):
                self.driver.call("cuMemFree_v2", address)

    def _is_right(self, problem, algorithm, runs):
        """C07 fails if the numbers of any run are further off than this algorithm may be."""
        difference, worst = max(
            (largest_difference(found, wanted), at) for at, (found, wanted, _) in enumerate(runs)
        )
        row = {"direction": problem.direction, "format": problem.format, "algorithm": algorithm}
        row["seconds"] = [seconds for _, _, seconds in runs]
        row["difference"] = difference if difference != float("inf") else "infinite"
        row["allowed"] = allowed(problem.direction, algorithm)
        self.rows.append(row)
        if difference <= row["allowed"]:
            return True
        row["run"] = worst + 1
        text = "%(format)s %(direction)s, algorithm %(algorithm)d, run %(run)d: off by %(difference)s" % row
        evidence = dict(row, found=[str(v) for v in runs[worst][0][:8]], wanted=runs[worst][1][:8])
        return self._fails(text, "wrong-result", evidence)

    def _fails(self, text, cause, evidence):
        """C07 fails; on another card D06, and that card is at fault: the same ran right on the first.

        One whose memory others hold is left alone.
        """
        if self.card is None:
            return self.ctx.fails("C07", text, cause, evidence)
        text = "card %d, %s: %s" % (self.card["index"], self.card["name"], text)
        evidence = dict(evidence, card=self.card["index"])
        if cause == "out-of-memory":
            return self.ctx.not_run("D06", text, evidence)
        return self.ctx.fails("D06", text, "driver-error", evidence)

    def _failed(self, what, error, skipped):
        """C07 fails by an error of a call; the cause is left to the judge unless memory is short."""
        text = str(error)
        evidence = {"ran": self.rows, "not supported": list(map(str, skipped)), "by_status": error.cause}
        if "COMPILATION_FAILED" in text and not self.ctx.facts.get("nvrtc"):
            evidence["by_status"] = "nvrtc-missing"
        evidence["memory"] = "OUT_OF_MEMORY" in text or ("ALLOC" in text and "HOST_ALLOC" not in text)
        asked = evidence["memory"] or "INTERNAL_ERROR" in text
        cause = "out-of-memory" if asked and memory_is_short(self.driver, evidence) else None
        self._fails("%s: %s" % (what, text), cause, evidence)

    def report(self):
        told = (len(self.rows), self.ctx.facts["gpus"][0]["name"])
        text = "%d convolutions on %s, forward and both backward, FP32 and FP16: right" % told
        self.ctx.passed("C07", text, {"rows": self.rows, "path": self.cudnn.path}, "; ".join(self.notes))
        first, second = self.rows[0]["seconds"]
        slow = "the first launch took %.0f s: kernels were compiled from PTX; CUDA_CACHE_PATH keeps them"
        text = "first launch %.1f ms, second %.3f ms" % (first * 1e3, second * 1e3)
        note = first > 30.0 and slow % first
        self.ctx.passed("C09", text, {"first": first, "second": second}, note)
