"""Frameworks with arrays of NumPy's kind: JAX and CuPy, and their suites."""

import importlib
import importlib.util
import json
import os
import re

from ..common.tables import opened_libraries
from ..common.versions import cuda_tuple, cudnn_tuple, dotted, numbers
from .fw_common import flat, gpu_reason, imported, shaped
from .fw_eager import Eager
from .library_files import in_folders
from .suite_arrays import ArraySuites
from .suite_judge import EXACT, version_of_nccl

_PLACE = ((1, 1), (1, 1), (1, 1), 1)
"""Padding, stride, dilation and groups of a convolution."""
_JAX_VERSIONS = ("jax_cuda13_plugin._versions", "jax_cuda12_plugin._versions", "jaxlib.cuda._versions")
# Messages of its plugin without a GPU; up to 0.4.30 and in some later releases an error of JAX, too.
_NO_GPU = ("No visible GPU devices", "no supported devices found")


_CUPY_KERNEL = (
    '#include <cupy/complex.cuh>\n#include <cupy/carray.cuh>\nextern "C" __global__ void probe() {}\n'
)
_PLATFORM_SETTINGS = {"JAX_PLATFORMS": "jax_platforms", "JAX_PLATFORM_NAME": "jax_platform_name"}


class Jax(Eager):
    name, title, module = "jax", "JAX", "jax"
    compiles = True

    def load(self):
        if "small" in self.ctx.counter:
            os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
        super(Jax, self).load()
        self.jaxlib = importlib.import_module("jaxlib")
        self.built = next(filter(None, map(imported, _JAX_VERSIONS)), None)

    def _tag(self):
        """("11", "86") out of jaxlib ``0.4.7+cuda11.cudnn86``: its wheels before the plugins came."""
        text = str(getattr(self.jaxlib, "__version__", "")) + " " + self._package("jaxlib")
        found = re.search(r"\+cuda(\d+)(?:\.cudnn(\d+))?", text)
        return found.groups() if found else (None, None)

    def _package(self, name):
        return str(((self.ctx.facts.get("packages") or {}).get(name) or {}).get("version") or "")

    def cuda_build(self):
        plugins = {name: self._package(name) for name in ("jax-cuda13-plugin", "jax-cuda12-plugin")}
        evidence = {"jaxlib": str(self.jaxlib.__version__), "plugins": dict(filter(all, plugins.items()))}
        evidence["versions read from"] = self.built.__name__ if self.built else None
        return bool(self.built or self._tag()[0]), evidence

    def compiled(self):
        if self.built:
            cuda = dotted(cuda_tuple(self.built.cuda_runtime_build_version()))
            return {"cuda": cuda, "cudnn": dotted(cudnn_tuple(self.built.cudnn_build_version()))}
        cuda, cudnn = self._tag()
        return {"cuda": cuda, "cudnn": ".".join(cudnn) if cudnn else None}

    def forbidden(self):
        for name in _PLATFORM_SETTINGS:
            value = os.environ.get(name, "")
            if value and not re.search("cuda|gpu", value.lower()):
                return "%s=%s" % (name, value)
        return ""

    def wanted(self):
        names = opened_libraries("jax", self.compiled()["cuda"]) if self.built else []
        return (names + ["libcudnn.so.9"], self._openers()) if names else ([], [])

    def _openers(self):
        """The plugin, whose run path counts where JAX does not load its libraries beforehand, as 0.5.2."""
        for major in ("13", "12"):
            try:
                spec = importlib.util.find_spec("jax_plugins.xla_cuda%s" % major)
            except ImportError:
                continue
            found = in_folders("xla_cuda_plugin.so", (spec and spec.submodule_search_locations) or ())
            if found:
                return [found]
        return []

    def touch(self):
        """Loads the CUDA libraries. Without a GPU, JAX falls back to the CPU with a log line, or raises."""
        if gpu_reason(self.ctx) is not None and hasattr(self.api.config, "jax_disable_most_optimizations"):
            # code for the CPU runs for microseconds here: this halves the time to compile it
            self.api.config.update("jax_disable_most_optimizations", True)
        if gpu_reason(self.ctx) is not None:
            # JAX_PLATFORMS=cuda asks for what is not here: as without it, JAX goes on to the CPU
            for variable, setting in _PLATFORM_SETTINGS.items():
                if os.environ.get(variable):
                    self.api.config.update(setting, "")
        try:
            self.api.local_devices()
        except RuntimeError as error:
            if gpu_reason(self.ctx) is None or not any(text in str(error) for text in _NO_GPU):
                raise
            self.api.config.update("jax_platforms", "cpu")
        return ()

    def devices(self):
        return [device for device in self.api.local_devices() if device.platform in ("gpu", "cuda")]

    def _device(self, name):
        """JAX's own object for a device; ``None`` means the CPU."""
        return self.devices()[0] if name else self.api.local_devices(backend="cpu")[0]

    def tensor(self, values, shape, device, dtype):
        return self.api.device_put(shaped(values, shape), self._device(device)).astype(dtype)

    def listed(self, tensor):
        return flat(self.api.device_get(tensor.astype("float32")))

    def place(self, tensor):
        """``device()`` was a method before it became a property."""
        if hasattr(tensor, "devices"):
            return str(sorted(tensor.devices(), key=str)[0])
        return str(tensor.device() if callable(tensor.device) else tensor.device)

    def conv(self, x, w):
        # The default precision of a GPU: TF32 where it has it.
        return self.api.lax.conv_general_dilated(x, w, (1, 1), [(1, 1), (1, 1)])

    def gradients(self, x, w, dy):
        y, pull = self.api.vjp(self.conv, x, w)
        return (y,) + pull(dy)

    def _relu(self, x, w, bias):
        return self.api.nn.relu(self.conv(x, w) + bias.reshape((1, -1, 1, 1)))

    def layer(self, x, w, bias):
        return self.api.jit(self._relu)(x, w, bias)

    def stepper(self, x, targets):
        def loss_of(weights):
            w, b, v = weights
            return ((self._relu(x, w, b).mean((2, 3)) @ v - targets) ** 2).mean()

        @self.api.jit  # the whole step, since each operation outside of it is compiled by itself
        def step(weights):
            loss, gradients = self.api.value_and_grad(loss_of)(weights)
            return loss, [weight - 0.1 * gradient for weight, gradient in zip(weights, gradients)]

        return step


class Cupy(Eager):
    """Up to version 13 it offers cuDNN as an extra; from 14 on it has none."""

    name, title, module = "cupy", "CuPy", "cupy"
    dtypes = ("float32", "float16")
    trains = False
    on_cpu = False
    needs_cudnn = False

    def _wheel(self):
        """``cupy/.data/_wheel.json``: the versions that it was made for; {} for a build from source."""
        path = os.path.join(os.path.dirname(self.api.__file__), ".data", "_wheel.json")
        try:
            with open(path) as stream:
                return json.load(stream)
        except (OSError, ValueError):
            return {}

    def cuda_build(self):
        runtime = self.api.cuda.runtime
        evidence = {"wheel": self._wheel(), "is_hip": bool(getattr(runtime, "is_hip", False))}
        return not evidence["is_hip"], evidence

    def compiled(self):
        wheel = self._wheel()
        cudnn = (wheel.get("cudnn") or {}).get("version")
        said = numbers(str(wheel.get("cuda") or "").replace(".x", ""))
        return {"cuda": dotted(said) if said else None, "cudnn": cudnn}

    def _cudnn(self):
        """The module with cuDNN's calls, or None: CuPy warns and goes on if it finds no library."""
        return imported("cupy.cudnn")

    def wanted(self):
        compiled = self.compiled()
        shims = ["libcudnn.so.%d" % major for major in numbers(compiled["cudnn"])[:1]]
        return opened_libraries("cupy", compiled["cuda"]) + shims, []

    def load_first(self, names):
        """Load them as CuPy from 14 on does: https://github.com/cupy/cupy,
        cupy_backends/cuda/libs/__init__.py.
        """
        try:
            from cupy_backends.cuda.libs import _pathfinder
        except ImportError:
            return
        for name in names:
            with self.ctx.call("load_nvidia_dynamic_lib"):
                try:
                    _pathfinder.load_nvidia_dynamic_lib(name[3:].partition(".so")[0])
                except _pathfinder.DynamicLibNotFoundError:
                    continue  # it is opened by its name alone

    def compile_kernel(self):
        """Compile as for CuPy's first array: NVRTC with CuPy's options, and CUDA's headers, which CuPy's
        include.
        """
        core, compiler = imported("cupy._core.core"), imported("cupy.cuda.compiler")
        options = getattr(core, "assemble_cupy_compiler_options", None)
        program = getattr(compiler, "_NVRTCProgram", None)
        if options and program:
            program(_CUPY_KERNEL, "probe.cu").compile(options(()))

    def touch(self):
        return cudnn_tuple(self.api.cuda.cudnn.getVersion()) if self._cudnn() is not None else ()

    def devices(self):
        runtime = self.api.cuda.runtime
        try:
            return ["cuda:%d" % index for index in range(runtime.getDeviceCount())]
        except runtime.CUDARuntimeError:
            return []

    def tensor(self, values, shape, device, dtype):  # noqa: ARG002
        return self.api.asarray(values, dtype="float32").reshape(shape).astype(dtype)

    def listed(self, tensor):
        return flat(tensor.get())

    def place(self, tensor):
        return "cuda:%d" % tensor.device.id

    def gradients(self, x, w, dy):
        """Through ``cupy.cudnn``: CuPy itself has no convolution, and does not compute on the CPU."""
        cudnn = self._cudnn()
        y, dx, dw = self.api.empty_like(dy), self.api.empty_like(x), self.api.empty_like(w)
        options = {"auto_tune": False, "tensor_core": "auto"}
        cudnn.convolution_forward(x, w, None, y, *_PLACE, **options)
        options["deterministic"] = True
        cudnn.convolution_backward_data(w, dy, None, dx, *_PLACE, **options)
        cudnn.convolution_backward_filter(x, dy, dw, *_PLACE, **options)
        return y, dx, dw

    def layer(self, x, w, bias):
        y = self.api.empty(x.shape[:1] + w.shape[:1] + x.shape[2:], dtype=x.dtype)
        self._cudnn().convolution_forward(x, w, bias, y, *_PLACE, auto_tune=False, tensor_core="auto")
        return self.api.maximum(y, 0)


# -- their suites


class JaxSuites(ArraySuites):
    """``device``: JAX's own object."""

    masks = ("causal", "mask")

    def lacks(self):
        return None if hasattr(self.api, "Array") else "JAX %s has no jax.Array" % self.api.__version__

    def start(self):
        import jax.numpy

        self.jax, self.jnp = self.api, jax.numpy
        self.jax.config.update("jax_enable_x64", True)
        self.attentions = ("xla", "cudnn") if self.device.platform in ("gpu", "cuda") else ("xla",)

    def send(self, array, dtype="float32"):
        return self.jax.device_put(array.astype(self.jnp.dtype(dtype)), self.device)

    def numbers(self, tensor):
        return self.np.asarray(tensor).astype("float64")

    def place(self, tensor):
        tensor.block_until_ready()
        address = tensor.addressable_data(0).unsafe_buffer_pointer()
        return [str(device) for device in tensor.devices()], address

    def poison(self, dtype, *shapes):
        held = [self.send(self.np.full(shape, float("nan")), dtype) for shape in shapes for _ in "xx"]
        for array in held:
            array.block_until_ready()
            array.delete()

    def product(self, a, b, dtype):
        # the default precision of a card is TF32 where it has it, and may be float32
        return self.jnp.matmul(a, b, precision=None if dtype == "tf32" else self.jax.lax.Precision.HIGHEST)

    def svd(self, a):
        return self.jnp.linalg.svd(a)

    def cholesky(self, a):
        return self.jnp.linalg.cholesky(a)

    def fourier(self, x):
        found = self.jnp.fft.fft(x)
        return self.jnp.stack([found.real, found.imag], -1)

    def attention(self):
        if not hasattr(self.jax.nn, "dot_product_attention"):
            self.skipped["attention"] = "JAX %s has no jax.nn.dot_product_attention" % self.jax.__version__
            return []
        return super(JaxSuites, self).attention()

    def attend(self, name, operands, seen, what):
        # its order is (batch, tokens, heads, width)
        q, k, v, dy = [array.swapaxes(0, 1)[None] for array in operands]

        options = {"is_causal": True} if seen is None else {"mask": self.jnp.asarray(seen)[None, None]}

        def masked(q, k, v):
            return self.jax.nn.dot_product_attention(q, k, v, implementation=name, **options)

        try:
            out, pull = self.jax.vjp(masked, q, k, v)
        except (NotImplementedError, ValueError, RuntimeError) as error:
            if name != "cudnn" or ("Unsupported" not in str(error) and "requires" not in str(error)):
                raise
            self.skipped[what] = str(error).splitlines()[0][:200]
            return None
        return [array[0].swapaxes(0, 1) for array in (out,) + pull(dy)]

    def fused(self, how, w, b):
        """XLA compiles the function anew: its constants come from the seed, so no cache has it."""
        w, b = self.np.asarray(w), self.np.asarray(b)

        def sums(x):
            z = x * w + b
            return (z * self.jax.nn.sigmoid(z)).sum(-1)

        def both(x):
            y, pull = self.jax.vjp(sums, x)
            return y, pull(self.jnp.ones_like(y))[0]

        return self.jax.jit(both) if how == "compiled" else both

    def trained(self, x, targets, weights, steps, rate, dtype):
        scale, losses, first = 1024.0, [], None

        def loss_of(weights):
            w1, w2 = weights[0].astype(dtype), weights[2].astype(dtype)
            # XLA may sum the gradient of a bias in its own type, term by term: so it stays in float32
            hidden = self.jnp.tanh((x.astype(dtype) @ w1).astype("float32") + weights[1])
            off = (hidden.astype(dtype) @ w2).astype("float32") - targets
            return scale * (off * off).mean()

        step = self.jax.jit(self.jax.value_and_grad(loss_of))
        for _ in range(steps):
            loss, slopes = step(weights)
            slopes = [slope / scale for slope in slopes]
            losses.append(loss / scale)
            first = first or slopes
            weights = [weight - rate * slope for weight, slope in zip(weights, slopes)]
        return self.jnp.stack(losses), first, weights

    def resize(self, image, side):
        return self.jax.image.resize(image, (len(image), side, side), method="linear")

    def convolved(self, kind, x, w, dy):
        space = "DHW"[3 - kind.dimensions :]
        names = ("NC" + space, "OI" + space, "NC" + space)
        back = None
        if kind.last:
            names, back = ("N%sC" % space, "OI" + space, "N%sC" % space), (0, 3, 1, 2)
            x, dy = [array.transpose((0, 2, 3, 1)) for array in (x, dy)]
        same = [(kind.dilation, kind.dilation)] * kind.dimensions

        def convolve(x, w):
            options = {"rhs_dilation": (kind.dilation,) * kind.dimensions, "dimension_numbers": names}
            options.update(feature_group_count=kind.groups)
            return self.jax.lax.conv_general_dilated(x, w, (kind.stride,) * kind.dimensions, same, **options)

        def transposed(x, w):
            turned = self.jnp.flip(w, tuple(range(2, 2 + kind.dimensions))).swapaxes(0, 1)
            options = {"lhs_dilation": (kind.stride,) * kind.dimensions, "dimension_numbers": names}
            return self.jax.lax.conv_general_dilated(x, turned, (1,) * kind.dimensions, same, **options)

        def both(x, w, dy):
            y, pull = self.jax.vjp(transposed if kind.transposed else convolve, x, w)
            return (y,) + pull(dy)

        y, dx, dw = self.jax.jit(both)(x, w, dy)  # one compilation and not five
        return [y.transpose(back), dx.transpose(back), dw] if back else [y, dx, dw]


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
