"""PaddlePaddle."""

from .fw_eager import Autograd
from .versions import cudnn_tuple, numbers


class Paddle(Autograd):
    name, title, module = "paddle", "PaddlePaddle", "paddle"

    def _said(self, name):
        """``paddle.version.cuda()`` and the like: the text ``False`` stands for a build without it."""
        function = getattr(getattr(self.api, "version", None), name, None)
        text = str(function()) if callable(function) else ""
        return text if numbers(text) else None

    def cuda_build(self):
        built = bool(self.api.is_compiled_with_cuda())
        return built, dict(self.compiled(), is_compiled_with_cuda=built)

    def compiled(self):
        return {"cuda": self._said("cuda"), "cudnn": self._said("cudnn")}

    def wanted(self):
        """Paddle opens the unversioned name, out of ``FLAGS_cudnn_dir`` or by the loader's search."""
        return (["libcudnn.so"] if self._said("cudnn") else []), None

    def touch(self):
        function = getattr(self.api, "get_cudnn_version", None)
        number = function() if function else None
        return cudnn_tuple(number) if number else ()

    def devices(self):
        return ["gpu:%d" % index for index in range(self.api.device.cuda.device_count())]

    def prepare(self, device):
        self.api.set_device(device or "cpu")

    def tensor(self, values, shape, device, dtype):  # noqa: ARG002
        return self.api.to_tensor(values, dtype="float32").reshape(list(shape)).cast(dtype)

    def leaf(self, tensor):
        tensor = tensor.detach()
        tensor.stop_gradient = False
        return tensor

    def listed(self, tensor):
        return [float(value) for value in tensor.cast("float32").reshape([-1]).numpy()]

    def place(self, tensor):
        return str(tensor.place)

    def backward(self, tensor, gradient):
        self.api.autograd.backward([tensor], [gradient])
