"""Frameworks that compute a gradient from tensors at once: PyTorch and PaddlePaddle, JAX and CuPy."""

import os

from ..common.versions import cudnn_tuple, dotted, numbers
from .fw_common import Framework, gpu_reason


class Eager(Framework):
    """A subclass has these of its own; the rest is the same.

    ``tensor(values, shape, device, dtype)``; ``listed(tensor)``: a flat list of numbers; ``place(tensor)``:
    the name of the device that holds it; ``conv(x, w)``: the convolution with padding 1; ``gradients(x, w,
    dy)``: (y, dx, dw); ``layer(x, w, bias)``: ReLU of convolution and bias; ``stepper(x, targets)``: a
    function from weights to (loss, the weights after a step of gradient descent).
    """

    def prepare(self, device):
        """Called before the first tensor."""

    def tensors(self, case, names, device, dtype):
        return [self.tensor(case[name], case[name + "_shape"], device, dtype) for name in names]

    def convolve(self, device, dtype, case):
        self.prepare(device)
        x, w, dy = self.tensors(case, ("x", "w", "dy"), device, dtype)
        results = self.gradients(x, w, dy) if device else [self.conv(x, w)]
        found = dict(zip(("y", "dx", "dw"), map(self.listed, results)))
        return dict(found, devices=[self.place(tensor) for tensor in results])

    def fused(self, device, dtype, case, bias):
        self.prepare(device)
        x, w = self.tensors(case, ("x", "w"), device, dtype)
        y = self.layer(x, w, self.tensor(bias, (len(bias),), device, dtype))
        return {"y": self.listed(y), "devices": [self.place(y)]}

    def train(self, device, data):
        self.prepare(device)
        pairs = [(data["x"], (8, 3, 8, 8)), (data["targets"], (8, 1))]
        pairs += [(data["w"], (4, 3, 3, 3)), ([0.0] * 4, (4,)), (data["v"], (4, 1))]
        x, targets, *weights = [self.tensor(values, shape, device, "float32") for values, shape in pairs]
        step, losses = self.stepper(x, targets), []
        for _ in range(8):
            loss, weights = step(weights)
            losses.append(float(loss))
        return {"losses": losses, "devices": [self.place(weights[0])]}


class Autograd(Eager):
    """Frameworks whose tensors keep the gradients that are worked out for them: PyTorch and PaddlePaddle.

    ``leaf(tensor)``: the tensor without its history, and with a gradient to come.
    """

    def backward(self, tensor, gradient):
        tensor.backward(gradient)

    def conv(self, x, w, *bias):
        return self.api.nn.functional.conv2d(x, w, *bias, padding=1)

    def gradients(self, x, w, dy):
        x, w = self.leaf(x), self.leaf(w)
        y = self.conv(x, w)
        self.backward(y, dy)
        return y, x.grad, w.grad

    def layer(self, x, w, bias):
        return self.api.nn.functional.relu(self.conv(x, w, bias))

    def stepper(self, x, targets):
        """By hand: torch.optim would import PyTorch's compiler, which takes seconds."""

        def step(weights):
            w, b, v = weights = [self.leaf(weight) for weight in weights]
            loss = self.api.nn.functional.mse_loss(self.layer(x, w, b).mean([2, 3]) @ v, targets)
            loss.backward()
            return loss.detach(), [weight - 0.1 * weight.grad for weight in weights]

        return step


class Torch(Autograd):
    name, title, module = "torch", "PyTorch", "torch"

    def cuda_build(self):
        said = self.api.version
        evidence = {"torch.version.cuda": said.cuda, "version": self.version()}
        if getattr(said, "hip", None):
            evidence["torch.version.hip"] = said.hip
        return said.cuda is not None, evidence

    def compiled(self):
        library = getattr(self.api._C, "_cudnn", None)
        return {"cuda": self.api.version.cuda, "cudnn": dotted(library and library.getCompileVersion())}

    def archs(self):
        flags = getattr(self.api._C, "_cuda_getArchFlags", None)  # get_arch_list() is empty without a GPU
        return (flags() or "").split() if flags else []

    def touch(self):
        library = getattr(self.api._C, "_cudnn", None)
        return tuple(library.getRuntimeVersion()) if library else ()

    def devices(self):
        cuda = self.api.cuda
        return ["cuda:%d" % index for index in range(cuda.device_count() if cuda.is_available() else 0)]

    def prepare(self, device):
        if device:
            self.api.backends.cudnn.version()  # PyTorch's own version rule; raises where it is broken
        else:
            self.api.set_num_threads(1)  # threads that wait for each other take a second on a busy machine
            if gpu_reason(self.ctx) is not None:
                self._read_allocator_settings()

    def _read_allocator_settings(self):
        """RuntimeError or ValueError of PyTorch's own for a PYTORCH_CUDA_ALLOC_CONF that it refuses.

        It reads the variable with the first memory of a card, and as any setting is made: here none is.
        https://github.com/pytorch/pytorch, c10/core/AllocatorConfig.h and c10/cuda/CUDAAllocatorConfig.cpp
        """
        names = ("_accelerator_setAllocatorSettings", "_cuda_cudaCachingAllocator_set_allocator_settings")
        setter = next(filter(None, (getattr(self.api._C, name, None) for name in names)), None)
        if setter is None or not any(os.environ.get("PYTORCH_%sALLOC_CONF" % kind) for kind in ("", "CUDA_")):
            return
        try:
            setter("")
        except (RuntimeError, ValueError) as error:
            if "CUDA error" not in str(error):  # backend:cudaMallocAsync asks the driver, which is not here
                raise

    def tensor(self, values, shape, device, dtype):
        tensor = self.api.tensor(values, dtype=self.api.float32).reshape(shape)
        return tensor.to(device=device or "cpu", dtype=getattr(self.api, dtype))

    def leaf(self, tensor):
        return tensor.detach().requires_grad_()

    def listed(self, tensor):
        return tensor.detach().float().cpu().reshape(-1).tolist()

    def place(self, tensor):
        return str(tensor.device)


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
