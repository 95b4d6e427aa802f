"""CuPy. Up to version 13 it offers cuDNN as an extra; from 14 on it has none."""

import importlib
import json
import os

from .data import opened_libraries
from .fw_common import flat
from .fw_eager import Eager
from .versions import cudnn_tuple, dotted, numbers

_PLACE = ((1, 1), (1, 1), (1, 1), 1)
"""Padding, stride, dilation and groups of a convolution."""


class Cupy(Eager):
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
        try:
            return importlib.import_module("cupy.cudnn")
        except ImportError:
            return None

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
