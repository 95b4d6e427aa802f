"""Frameworks with arrays of NumPy's kind: JAX and CuPy."""

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
        """As CuPy from 14 on does: https://github.com/cupy/cupy, cupy_backends/cuda/libs/__init__.py."""
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
        """As for its first array: NVRTC with CuPy's options, and CUDA's headers, which CuPy's include."""
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
