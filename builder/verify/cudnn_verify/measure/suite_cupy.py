"""The operations of CuPy for the suites of :mod:`suite_arrays`. CuPy computes on cards alone."""

from .fw_common import imported
from .suite_arrays import ArraySuites
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
        x = self.send(self.np.arange(3000.0) % 1021)
        out = self.send(self.np.full(3000, float("nan")))
        group = nccl.NcclCommunicator(1, nccl.get_unique_id(), 0)
        stream = self.api.cuda.Stream.null
        group.allReduce(x.data.ptr, out.data.ptr, 3000, nccl.NCCL_FLOAT32, nccl.NCCL_SUM, stream.ptr)
        stream.synchronize()
        return [self.row("all_reduce of one card", out, self.np.arange(3000.0) % 1021, EXACT, largest=0.0)]
