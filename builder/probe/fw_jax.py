"""JAX."""

import importlib
import importlib.util
import os
import re

from .fw_common import Framework, flat, gpu_reason, shaped
from .versions import cuda_tuple, cudnn_tuple, dotted, numbers

_JAX_VERSIONS = ("jax_cuda13_plugin._versions", "jax_cuda12_plugin._versions", "jaxlib.cuda._versions")
# Messages of its plugin without a GPU; up to 0.4.30 and in some later releases an error of JAX, too.
_NO_GPU = ("No visible GPU devices", "no supported devices found")
# Libraries that jax_plugins/cuda/__init__.py in https://github.com/jax-ml/jax loads before its plugin.
_JAX_OPENS = {
    12: "cudart.so.12 cublas.so.12 cublasLt.so.12 cupti.so.12 cusparse.so.12 cusolver.so.11 cufft.so.11",
    13: "cudart.so.13 cublas.so.13 cublasLt.so.13 cupti.so.13 cusparse.so.12 cusolver.so.12 cufft.so.12",
}


class Jax(Framework):
    name, title, module = "jax", "JAX", "jax"
    compiles = True

    def load(self):
        if "small" in self.ctx.counter:
            os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
        super(Jax, self).load()
        self.jaxlib = importlib.import_module("jaxlib")
        self.built = None
        for name in _JAX_VERSIONS:
            try:
                self.built = importlib.import_module(name)
            except ImportError:
                continue
            break
        return self.api

    def _tag(self):
        """("11", "86") out of jaxlib ``0.4.7+cuda11.cudnn86``: its wheels before the plugins came."""
        text = str(getattr(self.jaxlib, "__version__", "")) + " " + self._package("jaxlib")
        found = re.search(r"\+cuda(\d+)(?:\.cudnn(\d+))?", text)
        return found.groups() if found else (None, None)

    def _package(self, name):
        return str(((self.ctx.facts.get("packages") or {}).get(name) or {}).get("version") or "")

    def cuda_build(self):
        plugins = {}
        for major in ("13", "12"):
            found = self._package("jax-cuda%s-plugin" % major)
            if found:
                plugins["jax-cuda%s-plugin" % major] = found
        evidence = {"jaxlib": str(self.jaxlib.__version__), "plugins": plugins}
        evidence["versions read from"] = self.built.__name__ if self.built else None
        return bool(self.built or self._tag()[0]), evidence

    def compiled(self):
        if self.built:
            cuda = dotted(cuda_tuple(self.built.cuda_runtime_build_version()))
            return {"cuda": cuda, "cudnn": dotted(cudnn_tuple(self.built.cudnn_build_version()))}
        cuda, cudnn = self._tag()
        return {"cuda": cuda, "cudnn": ".".join(cudnn) if cudnn else None}

    def forbidden(self):
        for name in ("JAX_PLATFORMS", "JAX_PLATFORM_NAME"):
            value = os.environ.get(name, "")
            if value and not re.search("cuda|gpu", value.lower()):
                return "%s=%s" % (name, value)
        return ""

    def wanted(self):
        cuda = numbers(self.compiled()["cuda"])
        opened = _JAX_OPENS.get(cuda[0]) if cuda and self.built else None
        if not opened:
            return [], []
        return ["lib%s" % name for name in opened.split() + ["cudnn.so.9"]], self._openers()

    def _openers(self):
        """The plugin, whose run path counts where JAX does not load its libraries beforehand, as 0.5.2."""
        for major in ("13", "12"):
            try:
                spec = importlib.util.find_spec("jax_plugins.xla_cuda%s" % major)
            except ImportError:
                continue
            for folder in (spec and spec.submodule_search_locations) or ():
                path = os.path.join(folder, "xla_cuda_plugin.so")
                if os.path.exists(path):
                    return [path]
        return []

    def touch(self):
        """Loads the CUDA libraries. Without a GPU, JAX falls back to the CPU with a log line, or raises."""
        if gpu_reason(self.ctx) is not None and hasattr(self.api.config, "jax_disable_most_optimizations"):
            # code for the CPU runs for microseconds here: this halves the time to compile it
            self.api.config.update("jax_disable_most_optimizations", True)
        try:
            self.api.local_devices()
        except RuntimeError as error:
            if gpu_reason(self.ctx) is None or not any(text in str(error) for text in _NO_GPU):
                raise
            self.api.config.update("jax_platforms", "cpu")
        return ()

    def devices(self):
        return [device for device in self.api.local_devices() if device.platform in ("gpu", "cuda")]

    def _place(self, device):
        """JAX's own object for a device; ``None`` means the CPU."""
        if device is None:
            return self.api.local_devices(backend="cpu")[0]
        return self.devices()[0]

    def _arrays(self, device, dtype, *pairs):
        place = self._place(device)
        for values, shape in pairs:
            yield self.api.device_put(shaped(values, shape), place).astype(dtype)

    def _listed(self, array):
        return flat(self.api.device_get(array.astype("float32")))

    def _conv(self, x, w):
        # The default precision of a GPU: TF32 where it has it.
        return self.api.lax.conv_general_dilated(x, w, (1, 1), [(1, 1), (1, 1)])

    def convolve(self, device, dtype, case):
        shapes = [(case[name], case[name + "_shape"]) for name in ("x", "w", "dy")]
        x, w, dy = self._arrays(device, dtype, *shapes)
        if not device:
            y = self._conv(x, w)
            return {"y": self._listed(y), "devices": [jax_device(y)]}
        y, pull = self.api.vjp(self._conv, x, w)
        dx, dw = pull(dy)
        found = {"y": self._listed(y), "dx": self._listed(dx), "dw": self._listed(dw)}
        found["devices"] = [jax_device(array) for array in (y, dx, dw)]
        return found

    def fused(self, device, dtype, case, bias):
        shapes = [(case["x"], case["x_shape"]), (case["w"], case["w_shape"]), (bias, (1, len(bias), 1, 1))]
        x, w, b = self._arrays(device, dtype, *shapes)
        y = self.api.jit(lambda x, w, b: self.api.nn.relu(self._conv(x, w) + b))(x, w, b)
        return {"y": self._listed(y), "devices": [jax_device(y)]}

    def train(self, device, data):
        jax = self.api
        shapes = [(8, 3, 8, 8), (4, 3, 3, 3), (4, 1), (8, 1), (1, 4, 1, 1)]
        values = [data["x"], data["w"], data["v"], data["targets"], [0.0] * 4]
        x, w, v, targets, b = self._arrays(device, "float32", *zip(values, shapes))

        def loss_of(weights):
            hidden = jax.nn.relu(self._conv(x, weights[0]) + weights[1])
            return ((hidden.mean((2, 3)) @ weights[2] - targets) ** 2).mean()

        @jax.jit  # the whole step, since each operation outside of it is compiled by itself
        def step(weights):
            loss, gradients = jax.value_and_grad(loss_of)(weights)
            return loss, tuple(weight - 0.1 * gradient for weight, gradient in zip(weights, gradients))

        weights, losses = (w, b, v), []
        for _ in range(8):
            loss, weights = step(weights)
            losses.append(float(loss))
        return {"losses": losses, "devices": [jax_device(weights[0])]}


def jax_device(array):
    """The name of the device that holds an array; ``device()`` was a method before it became a property."""
    if hasattr(array, "devices"):
        return str(sorted(array.devices(), key=str)[0])
    place = array.device() if callable(array.device) else array.device
    return str(place)
