"""ONNX Runtime: inference only."""

import glob
import os

from .fw_common import Framework, flat, shaped
from .fw_onnx_model import conv_model
from .library_files import read_elf
from .maps import is_cuda_library
from .sublibraries import shim_major

_ORT_CUDA = "CUDAExecutionProvider"


class Onnxruntime(Framework):
    name, title, module = "onnxruntime", "ONNX Runtime", "onnxruntime"
    dtypes = ("float32", "float16")
    answers = ("y",)
    trains = False

    def _provider(self):
        """The library with the CUDA provider, or None."""
        folder = os.path.join(os.path.dirname(self.api.__file__), "capi")
        found = glob.glob(os.path.join(folder, "libonnxruntime_providers_cuda*.so"))
        return found[0] if found else None

    def cuda_build(self):
        providers = list(self.api.get_available_providers())
        return _ORT_CUDA in providers, {"providers": providers, "library": self._provider()}

    def compiled(self):
        """CUDA as the package says it; cuDNN's major version by the name that the provider is linked with."""
        info = getattr(getattr(self.api, "capi", None), "build_and_package_info", None)
        if info is None:
            try:
                from onnxruntime.capi import build_and_package_info as info
            except ImportError:
                info = None
        majors = [shim_major(name) for name in self._needed()]
        cudnn = [str(major) for major in majors if major]
        return {"cuda": getattr(info, "cuda_version", None) or None, "cudnn": cudnn[0] if cudnn else None}

    def _needed(self):
        provider = self._provider()
        return [name for name in read_elf(provider)["needed"] if is_cuda_library(name)] if provider else []

    def wanted(self):
        """Without the driver's library, which 1.31 is linked with: the driver's own checks decide on it."""
        provider = self._provider()
        names = [name for name in self._needed() if name != "libcuda.so.1"]
        return names, [provider] if provider else []

    def rescue(self):
        """ONNX Runtime's own remedy, which a program has to call by itself."""
        if not hasattr(self.api, "preload_dlls"):
            return ""
        self.api.preload_dlls()
        return "onnxruntime.preload_dlls()"

    def _session(self, model, device):
        options = self.api.SessionOptions()
        if device:
            options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
        providers = [_ORT_CUDA] if device else ["CPUExecutionProvider"]
        return self.api.InferenceSession(model, options, providers=providers)

    def devices(self):
        """A session that was asked for CUDA and lacks it has silently gone to the CPU."""
        model = conv_model("float32", [("x", (1, 3, 8, 8)), ("w", (4, 3, 3, 3))], (1, 4, 8, 8))
        session = self.api.InferenceSession(model, providers=[_ORT_CUDA, "CPUExecutionProvider"])
        return [name for name in session.get_providers() if name == _ORT_CUDA]

    def _run(self, device, dtype, relu, case, *more):
        inputs = [("x", case["x_shape"]), ("w", case["w_shape"])] + [(name, shape) for name, shape, _ in more]
        session = self._session(conv_model(dtype, inputs, case["dy_shape"], relu), device)
        values = {"x": case["x"], "w": case["w"]}
        values.update((name, data) for name, _, data in more)
        feed = {name: shaped(values[name], shape).astype(dtype) for name, shape in inputs}
        y = session.run(["y"], feed)[0]
        return {"y": flat(y), "devices": [session.get_providers()[0]]}

    def convolve(self, device, dtype, case):
        return self._run(device, dtype, False, case)

    def fused(self, device, dtype, case, bias):
        return self._run(device, dtype, True, case, ("b", (len(bias),), bias))
