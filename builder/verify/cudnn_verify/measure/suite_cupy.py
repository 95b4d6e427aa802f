"""The operations of CuPy for the suites of :mod:`suite_arrays`. CuPy computes on cards alone."""

from .fw_common import imported
from .suite_arrays import ArraySuites
from .suite_judge import version_of_nccl
from .suite_reference import EXACT

_SOURCE = r"""
extern "C" __global__
void fused(const float* x, const float* w, const float* b, float* y, float* dx, int width)
{
    float sum = 0.0f;
    for (int at = threadIdx.x; at < width; at += 32) {
        int place = blockIdx.x * width + at;
        float z = x[place] * w[at] + b[at];
        float gate = 1.0f / (1.0f + expf(-z));
        sum += z * gate;
        dx[place] = gate * (1.0f + z * (1.0f - gate)) * w[at];
    }
    for (int other = 16; other; other >>= 1)
        sum += __shfl_down_sync(0xffffffffu, sum, other);
    if (threadIdx.x == 0)
        y[blockIdx.x] = sum;
}
// %d
"""
"""One warp for each row."""


class CupySuites(ArraySuites):
    products = ("float64", "float32", "float16")

    def send(self, array, dtype="float32"):
        return self.api.asarray(array.astype(dtype))

    def numbers(self, tensor):
        return tensor.get().astype("float64")

    def place(self, tensor):
        return ["cuda:%d" % tensor.device.id], tensor.data.ptr

    def product(self, a, b, dtype):  # noqa: ARG002
        return self.api.matmul(a, b)

    def svd(self, a):
        return self.api.linalg.svd(a)

    def cholesky(self, a):
        return self.api.linalg.cholesky(a)

    def fourier(self, x):
        found = self.api.fft.fft(x)
        return self.api.stack([found.real, found.imag], -1)

    def uniform(self, count):
        return self.api.random.random(count).astype("float32")

    def normal(self, count):
        return self.api.random.standard_normal(count).astype("float32")

    def fused(self, how, w, b):
        """NVRTC compiles the kernel anew: a comment with a fresh number is in it, so no cache has it."""
        kernel = self.api.RawKernel(_SOURCE % self.random.randint(1 << 30), "fused")

        def eager(x):
            z = x * w + b
            gate = 1.0 / (1.0 + self.api.exp(-z))
            return (z * gate).sum(-1), gate * (1.0 + z * (1.0 - gate)) * w

        def compiled(x):
            rows, width = x.shape
            y, dx = [self.send(self.np.full(shape, float("nan"))) for shape in ((rows,), x.shape)]
            kernel((rows,), (32,), (x, w, b, y, dx, self.np.int32(width)))
            return y, dx

        return compiled if how == "compiled" else eager

    def comm(self):
        nccl = imported("cupy.cuda.nccl")
        if nccl is None or not getattr(nccl, "available", False):
            self.skipped["comm"] = "this CuPy finds no NCCL"
            return []
        count = self.api.cuda.runtime.getDeviceCount()
        groups, parts = nccl.NcclCommunicator.initAll(list(range(count))), []
        for at in range(count):
            with self.api.cuda.Device(at):
                given = self.send(self.np.arange(3000.0) % 1021 + at)
                parts.append((given, self.send(self.np.full(3000, float("nan")))))
        nccl.groupStart()
        for at, (given, out) in enumerate(parts):
            with self.api.cuda.Device(at):
                stream = self.api.cuda.Stream.null.ptr
                groups[at].allReduce(
                    given.data.ptr, out.data.ptr, 3000, nccl.NCCL_FLOAT32, nccl.NCCL_SUM, stream
                )
        nccl.groupEnd()
        wanted = self.np.arange(3000.0) % 1021 * count + count * (count - 1) / 2
        rows = []
        for at, (_, out) in enumerate(parts):
            with self.api.cuda.Device(at):
                self.api.cuda.Stream.null.synchronize()
            what = "all_reduce over %d, card %d" % (count, at)
            rows.append(self.row(what, out, wanted, EXACT, largest=0.0))
        told, reason = version_of_nccl(self.ctx.facts.get("packages") or {}, rows[0])
        if reason:
            self.skipped["version of NCCL"] = reason
        return rows + told
