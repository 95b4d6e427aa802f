"""C06 to C09: a handle, and the three convolutions on the GPU with numbers that must be exactly right."""

import struct
import time
from collections import namedtuple
from itertools import product

from ..common.versions import cuda_tuple, dotted, numbers
from .cuda import ALGORITHMS, FLOAT, HALF, OUT_OF_MEMORY, CudaError, CudnnError, Driver, ctypes
from .judge import default_judge
from .library import each_candidate, open_candidate
from .protocol import stage
from .reference import ROUNDING, case, fresh_answers, largest_difference

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
