"""C06 to C09: a handle, and the three convolutions on the GPU with numbers that must be exactly right."""

import struct
import time

from .cuda import OUT_OF_MEMORY, CudaError, Driver, ctypes
from .cudnn import FLOAT, HALF, CudnnError
from .judge import default_judge
from .library import each_candidate, open_candidate
from .protocol import stage
from .reference import answers, largest_difference
from .versions import cuda_tuple, dotted, numbers

_MEMORY_FLOOR = 128 << 20
_SLOW_FIRST_LAUNCH = 30.0
# Direct and implicit-GEMM algorithms add and multiply the numbers themselves; Winograd and FFT transform
# them first, and round. Numbers: cudnnConvolutionFwdAlgo_t, ...BwdDataAlgo_t, ...BwdFilterAlgo_t.
_EXACT = {"Forward": (0, 1, 2), "BackwardData": (0, 1), "BackwardFilter": (0, 1, 3)}
_DIRECTIONS = ("Forward", "BackwardData", "BackwardFilter")


def when_a_gpu_works(facts):
    """One run per candidate where the driver stage brought a GPU up, else one run that says why not."""
    if facts.get("gpu_state") == "works":
        return each_candidate(facts)
    return [{}]


def judge_convolution(run):
    """Memory first: the smaller run tells; then what the other layers know."""
    for check in run.checks:
        if (
            check["outcome"] == "failed"
            and check["cause"] is None
            and (check["evidence"] or {}).get("memory")
        ):
            again = run.again("small")
            smaller = "the same convolutions without workspace %s" % ("pass" if again.sound else "fail too")
            run.prove("small", "confirmed" if again.sound else "refuted", smaller)
            if again.sound:
                run.decide(check, "out-of-memory")
    default_judge(run)


@stage("convolution", layer="convolution", timeout=180, runs=when_a_gpu_works, judge=judge_convolution)
def convolution_stage(ctx):
    """Create a handle on the GPU, then convolve in FP32 and FP16."""
    if "candidate" not in ctx.params:
        state = ctx.facts.get("gpu_state")
        reason = "the driver layer failed" if state == "faulty" else "no GPU here"
        reason = "no cuDNN here" if state == "works" else reason
        for number in ("C07", "C08", "C09"):
            ctx.not_run(number, reason)
        return
    driver = Driver(ctx)
    driver.call("cuInit", 0)
    driver.use(0)
    gpu = ctx.facts["gpus"][0]
    cudnn = open_candidate(ctx)
    _check_range(ctx, cudnn, gpu)
    handle = _create(ctx, driver, cudnn)
    if handle is None:
        return
    bench = Bench(ctx, driver, cudnn, handle)
    for data_type, name in ((FLOAT, "FP32"), (HALF, "FP16")):
        if not bench.convolve(data_type, name):
            return
    bench.report()


def _check_range(ctx, cudnn, gpu):
    """C08: is the GPU within what this cuDNN was built for?

    9.11 dropped everything below compute capability 7.5 (https://github.com/pytorch/pytorch/issues/162574);
    cudnnGetMaxDeviceVersion gives the upper end, which 9.0 and later may exceed on Hopper and newer.
    """
    capability = numbers(gpu["compute_capability"])
    newest = cudnn.number_of("cudnnGetMaxDeviceVersion")
    evidence = {"compute_capability": gpu["compute_capability"], "max_device": newest}
    evidence["cudnn"] = dotted(cudnn.version)
    if cudnn.version >= (9, 11, 0) and capability < (7, 5):
        text = "cuDNN %s serves GPUs from 7.5 on, this is %s" % (dotted(cudnn.version), dotted(capability))
        ctx.fails("C08", text, "cudnn-arch-dropped", evidence)
        return
    note = None
    if newest and capability > (newest // 100, newest % 100 // 10):
        note = "this GPU is newer than cuDNN %s, which may have no kernels for it" % dotted(cudnn.version)
    ctx.passed("C08", "compute capability %s is in range" % gpu["compute_capability"], evidence, note=note)


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
    """cudnnCreate says NOT_INITIALIZED, INTERNAL_ERROR or ALLOC_FAILED for memory: try to get some."""
    if memory_is_short(driver, evidence):
        return "out-of-memory"
    cudart = cudnn.number_of("cudnnGetCudartVersion")
    api = numbers((ctx.facts.get("driver") or {}).get("api"))
    if cudart and api and api[0] < cuda_tuple(cudart)[0]:
        return "driver-too-old"
    if "ARCH_MISMATCH" in error.name:
        return "cudnn-arch-dropped"
    return None


def memory_is_short(driver, evidence):
    """True where 128 MiB cannot be had, or less is free; what was found goes into ``evidence``."""
    try:
        evidence["free"] = driver.memory()[0]
        driver.free(driver.allocate(_MEMORY_FLOOR))
        evidence["allocation"] = "%d MiB could be had" % (_MEMORY_FLOOR >> 20)
    except CudaError as failure:
        evidence["allocation"] = str(failure)
        return failure.result == OUT_OF_MEMORY
    return evidence["free"] < _MEMORY_FLOOR


def allowed(direction, algorithm, data_type, wanted):
    """How far an algorithm may be off: nothing where it adds whole numbers, else less than half of one."""
    if algorithm in _EXACT[direction]:
        return 0.0
    largest = max(abs(value) for value in wanted)
    return max(0.05, 2.0**-9 * largest if data_type == HALF else 0.0)


def encode(values, data_type):
    """Whole numbers as little-endian FP32 or FP16 bytes."""
    return struct.pack("<%d%s" % (len(values), "e" if data_type == HALF else "f"), *values)


def decode(data, data_type):
    size = 2 if data_type == HALF else 4
    return list(struct.unpack("<%d%s" % (len(data) // size, "e" if data_type == HALF else "f"), data))


class Bench(object):
    """The canonical convolution on the GPU, in every direction, by several algorithms."""

    def __init__(self, ctx, driver, cudnn, handle):
        self.ctx = ctx
        self.driver = driver
        self.cudnn = cudnn
        self.handle = handle
        self.data = answers()
        self.rows = []

    def convolve(self, data_type, name):
        """All directions in one number format; false where a check failed."""
        for direction in _DIRECTIONS:
            if not self._direction(direction, data_type, name):
                return False
        return True

    def _direction(self, direction, data_type, name):
        cudnn, data = self.cudnn, self.data
        shapes = {"x": data["x_shape"], "w": data["w_shape"], "y": data["dy_shape"]}
        described = {
            "x": cudnn.tensor(shapes["x"], data_type),
            "w": cudnn.filter(shapes["w"], data_type),
            "y": cudnn.tensor(shapes["y"], data_type),
        }
        convolution = cudnn.convolution()
        parts = {
            "Forward": ("x", "w", "y", data["x"], data["w"], data["y"]),
            "BackwardData": ("w", "y", "x", data["w"], data["dy"], data["dx"]),
            "BackwardFilter": ("x", "y", "w", data["x"], data["dy"], data["dw"]),
        }[direction]
        first, second, out = (described[key] for key in parts[:3])
        algorithms, failures = self._algorithms(direction, (first, second, convolution, out)), []
        ran = 0
        for algorithm in algorithms:
            try:
                found, seconds = self._launch(
                    direction, algorithm, convolution, parts, first, second, out, data_type
                )
            except (CudnnError, CudaError) as error:
                failures.append({"algorithm": algorithm, "error": str(error)})
                continue
            ran += 1
            difference = largest_difference(found, parts[5])
            row = {"direction": direction, "format": name, "algorithm": algorithm, "seconds": seconds}
            row["difference"] = difference if difference != float("inf") else "infinite"
            self.rows.append(row)
            row["allowed"] = allowed(direction, algorithm, data_type, parts[5])
            if difference > row["allowed"]:
                text = "%s %s, algorithm %d: off by %s" % (name, direction, algorithm, row["difference"])
                evidence = dict(row, found=[str(v) for v in found[:8]], wanted=parts[5][:8])
                self.ctx.fails("C07", text, "wrong-result", evidence)
                return False
        if ran:
            return True
        text = "%s %s: %s" % (name, direction, failures[0]["error"] if failures else "no algorithm")
        evidence = {"failures": failures}
        evidence["memory"] = any(word in text for word in ("ALLOC", "OUT_OF_MEMORY", "INTERNAL_ERROR"))
        cause = "cudnn-arch-dropped" if "ARCH_MISMATCH" in text else None
        if evidence["memory"] and memory_is_short(self.driver, evidence):
            cause = "out-of-memory"
        self.ctx.fails("C07", text, cause, evidence)
        return False

    def _algorithms(self, direction, descriptors):
        """Algorithm 0, which needs no workspace, then what the heuristics choose, then algorithm 1."""
        if "small" in self.ctx.counter:
            return [0, 1]
        try:
            chosen = self.cudnn.suggested(direction, self.handle, *descriptors)
        except CudnnError:
            chosen = None
        order = [0, chosen, 1] if chosen is not None else [0, 1]
        return [a for index, a in enumerate(order) if a not in order[:index]]

    def _launch(self, direction, algorithm, convolution, parts, first, second, out, data_type):
        """Run one algorithm twice; (numbers of the second run, seconds of each)."""
        cudnn, driver = self.cudnn, self.driver
        size = cudnn.workspace(direction, self.handle, first, second, convolution, out, algorithm)
        if size and "small" in self.ctx.counter:
            raise CudnnError("workspace", 0, "SKIPPED", "%d bytes of workspace wanted" % size)
        sources = [encode(values, data_type) for values in parts[3:5]]
        length = len(encode(parts[5], data_type))
        addresses = [driver.allocate(len(source)) for source in sources] + [driver.allocate(length)]
        scratch = driver.allocate(size) if size else 0
        for address, source in zip(addresses, sources):
            driver.upload(address, source)
        driver.upload(addresses[2], b"\xff" * length)
        one, zero = ctypes.c_float(1.0), ctypes.c_float(0.0)
        seconds = []
        for _ in range(2):
            start = time.time()
            cudnn.call(
                "cudnnConvolution%s" % direction,
                self.handle,
                ctypes.byref(one),
                first,
                ctypes.c_void_p(addresses[0]),
                second,
                ctypes.c_void_p(addresses[1]),
                convolution,
                algorithm,
                ctypes.c_void_p(scratch),
                ctypes.c_size_t(size),
                ctypes.byref(zero),
                out,
                ctypes.c_void_p(addresses[2]),
            )
            driver.synchronize()
            seconds.append(round(time.time() - start, 6))
        found = decode(driver.download(addresses[2], length), data_type)
        for address in addresses + ([scratch] if scratch else []):
            driver.free(address)
        return found, seconds

    def report(self):
        """C07 passed, and C09 about the times."""
        gpu = self.ctx.facts["gpus"][0]
        count = len(self.rows)
        text = "%d convolutions on %s, forward and both backward, FP32 and FP16: exact" % (count, gpu["name"])
        self.ctx.passed("C07", text, {"rows": self.rows, "path": self.cudnn.path})
        first, second = self.rows[0]["seconds"]
        evidence = {"first": first, "second": second}
        note = None
        if first > _SLOW_FIRST_LAUNCH:
            note = (
                "the first launch took %.0f s: kernels were compiled from PTX; CUDA_CACHE_PATH keeps them"
                % first
            )
        text = "first launch %.1f ms, second %.3f ms" % (first * 1e3, second * 1e3)
        self.ctx.passed("C09", text, evidence, note=note)
