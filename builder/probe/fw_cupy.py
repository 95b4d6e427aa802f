"""CuPy. Up to version 13 it offers cuDNN as an extra; from 14 on it has none."""

import json
import os

from .fw_common import Framework, flat
from .versions import cudnn_tuple, dotted, numbers

# Opened at the first use of the GPU: cupy_backends/cuda/api/_runtime_softlink.pxi and
# cupy_backends/cuda/libs/_nvrtc_softlink.pxi in https://github.com/cupy/cupy
_CUPY_OPENS = {
    11: ("libcudart.so.11.0", "libnvrtc.so.11.2"),
    12: ("libcudart.so.12", "libnvrtc.so.12"),
    13: ("libcudart.so.13", "libnvrtc.so.13"),
}


class Cupy(Framework):
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
            import cupy.cudnn
        except ImportError:
            return None
        return cupy.cudnn

    def wanted(self):
        compiled = self.compiled()
        cuda, cudnn = numbers(compiled["cuda"]), numbers(compiled["cudnn"])
        names = list(_CUPY_OPENS.get(cuda[0], ())) if cuda else []
        return names + (["libcudnn.so.%d" % cudnn[0]] if cudnn else []), []

    def load_first(self, names):
        """As CuPy from 14 on does: https://github.com/cupy/cupy, cupy_backends/cuda/libs/__init__.py."""
        try:
            from cupy_backends.cuda.libs import _pathfinder
        except ImportError:
            return
        for name in names:
            with self.ctx.call("load_nvidia_dynamic_lib", library=name) as call:
                try:
                    call.result = _pathfinder.load_nvidia_dynamic_lib(name[3:].partition(".so")[0]).abs_path
                except _pathfinder.DynamicLibNotFoundError as error:
                    call.result = str(error)

    def touch(self):
        if self._cudnn() is None:
            return ()
        return cudnn_tuple(self.api.cuda.cudnn.getVersion())

    def devices(self):
        runtime = self.api.cuda.runtime
        try:
            return ["cuda:%d" % index for index in range(runtime.getDeviceCount())]
        except runtime.CUDARuntimeError:
            return []

    def _arrays(self, dtype, *pairs):
        return [
            self.api.asarray(values, dtype="float32").reshape(shape).astype(dtype) for values, shape in pairs
        ]

    def convolve(self, device, dtype, case):  # noqa: ARG002
        """Through ``cupy.cudnn``: CuPy itself has no convolution, and does not compute on the CPU."""
        cudnn = self._cudnn()
        shapes = [(case[name], case[name + "_shape"]) for name in ("x", "w", "dy")]
        x, w, dy = self._arrays(dtype, *shapes)
        y, dx, dw = self.api.empty_like(dy), self.api.empty_like(x), self.api.empty_like(w)
        place = ((1, 1), (1, 1), (1, 1), 1)
        cudnn.convolution_forward(x, w, None, y, *place, auto_tune=False, tensor_core="auto")
        options = {"deterministic": True, "auto_tune": False, "tensor_core": "auto"}
        cudnn.convolution_backward_data(w, dy, None, dx, *place, **options)
        cudnn.convolution_backward_filter(x, dy, dw, *place, **options)
        found = {"y": flat(y.get()), "dx": flat(dx.get()), "dw": flat(dw.get())}
        found["devices"] = ["cuda:%d" % array.device.id for array in (y, dx, dw)]
        return found

    def fused(self, device, dtype, case, bias):  # noqa: ARG002
        shapes = [(case["x"], case["x_shape"]), (case["w"], case["w_shape"]), (bias, (len(bias),))]
        x, w, b = self._arrays(dtype, *shapes)
        y = self.api.empty(case["dy_shape"], dtype=dtype)
        place = ((1, 1), (1, 1), (1, 1), 1)
        self._cudnn().convolution_forward(x, w, b, y, *place, auto_tune=False, tensor_core="auto")
        y = self.api.maximum(y, 0)
        return {"y": flat(y.get()), "devices": ["cuda:%d" % y.device.id]}
