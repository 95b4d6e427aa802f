"""Frameworks that compute a gradient from tensors at once: PyTorch and PaddlePaddle, JAX and CuPy; and the
suites of PaddlePaddle.
"""

import os

from ..common.versions import cudnn_tuple, dotted, numbers
from .fw_common import Framework, gpu_reason
from .suite_arrays import ArraySuites
from .suite_judge import EXACT


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


# -- suites


class CountedArrays(object):
    """Whole numbers; item i is told by its content, and by the number of the process that made it."""

    def __init__(self, numpy, seed):
        self.np, self.seed = numpy, seed

    def __len__(self):
        return 32

    def __getitem__(self, index):
        if index >= len(self):
            raise IndexError(index)
        numbers = self.np.arange(2048) * (index + self.seed) % 251
        return self.np.append(numbers, os.getpid()).astype("float32")


class PaddleSuites(ArraySuites):
    """``device``: ``gpu:0``."""

    def lacks(self):
        if not hasattr(self.api.Tensor, "data_ptr"):
            return "tensors of PaddlePaddle %s do not tell their address" % self.api.__version__
        return None

    def start(self):
        self.api.set_device(self.device)
        if self.device == "cpu":
            self.halves = ("float32",)  # it has no shorter type there

    def send(self, array, dtype="float32"):
        return self.api.to_tensor(array.astype("float64")).cast(dtype)

    def numbers(self, tensor):
        return tensor.detach().cast("float64").numpy()

    def place(self, tensor):
        return [str(tensor.place)], tensor.data_ptr()

    def product(self, a, b, dtype):  # noqa: ARG002
        return self.api.matmul(a, b)

    def svd(self, a):
        return self.api.linalg.svd(a)

    def cholesky(self, a):
        return self.api.linalg.cholesky(a)

    def fourier(self, x):
        return self.api.as_real(self.api.fft.fft(x))

    def uniform(self, count):
        return self.api.rand([count])

    def normal(self, count):
        return self.api.randn([count])

    def leaves(self, *tensors):
        """The tensors with a gradient to come."""
        for tensor in tensors:
            tensor.stop_gradient = False
        return tensors

    def attention(self):
        # its flash attention is compiled for Ampere, Ada and Hopper, and has a switch from 2.5 on
        import paddle.nn.functional.flash_attention as module

        if self.driver and self.capability[0] in (8, 9) and hasattr(module, "sdp_kernel"):
            self.attentions = ("operations", "flash")
        return super(PaddleSuites, self).attention()

    def _flash(self, q, k, v):
        """Its order is (batch, tokens, heads, width)."""
        import paddle.nn.functional.flash_attention as module

        q, k, v = [tensor.transpose([1, 0, 2]).unsqueeze(0) for tensor in (q, k, v)]
        with module.sdp_kernel(enable_math=False, enable_flash=True, enable_mem_efficient=False):
            out = module.flash_attention(q, k, v, causal=True)[0]
        return out.squeeze(0).transpose([1, 0, 2])

    def attend(self, name, operands, seen, what):
        q, k, v, dy = operands
        q, k, v = self.leaves(q, k, v)
        if name == "flash":
            try:
                out = self._flash(q, k, v)
            except (RuntimeError, NotImplementedError) as error:
                if "FlashAttention is unsupported" not in str(error):
                    raise
                self.skipped[what] = str(error).strip().splitlines()[0][:200]
                return None
            self.api.autograd.backward([out], [dy])
            return [out, q.grad, k.grad, v.grad]
        seen = self.np.tril(self.np.ones((q.shape[1], q.shape[1]), bool)) if seen is None else seen
        mask = self.send(self.np.where(seen, 0.0, -3e4), "float32").cast(q.dtype)
        scores = self.api.matmul(q, k, transpose_y=True) * q.shape[-1] ** -0.5
        out = self.api.matmul(self.api.nn.functional.softmax(scores + mask), v)
        self.api.autograd.backward([out], [dy])
        return [out, q.grad, k.grad, v.grad]

    def loader(self):
        import paddle.io

        rows, makers, source = [], set(), CountedArrays(self.np, int(self.random.randint(1, 250)))
        for at, batch in enumerate(paddle.io.DataLoader(source, batch_size=8, num_workers=2, timeout=20)):
            batch = batch[0] if isinstance(batch, list) else batch
            found = self.numbers(batch)
            makers.update(found[:, -1].tolist())
            wanted = self.np.stack([source[8 * at + index] for index in range(8)])
            if wanted.shape == found.shape:
                wanted[:, -1] = found[:, -1]
            rows.append(self.row("batch %d of two workers" % at, batch, wanted, EXACT, largest=0.0))
        if not rows:
            return []
        told = dict(rows[0], what="four batches, made by two other processes")
        found = [float(len(rows)), float(len(makers)), float(os.getpid() in makers)]
        return rows + [dict(told, found=found, wanted=[4.0, 2.0, 0.0])]

    def trained(self, x, targets, weights, steps, rate, dtype):
        scale, losses, first = 1024.0, [], None
        for _ in range(steps):
            weights = self.leaves(*[weight.detach() for weight in weights])
            w1, b1, w2 = [weight.cast(dtype) for weight in weights]
            hidden = self.api.tanh(self.api.matmul(x.cast(dtype), w1) + b1)
            off = self.api.matmul(hidden, w2).cast("float32") - targets
            loss = (off * off).mean()
            (loss * scale).backward()
            losses.append(loss.detach())
            slopes = [weight.grad / scale for weight in weights]
            first = first or slopes
            weights = [weight.detach() - rate * slope for weight, slope in zip(weights, slopes)]
        return self.api.stack(losses), first, weights

    def resize(self, image, side):
        options = {"size": [side, side], "mode": "bilinear", "align_corners": False}
        return self.api.nn.functional.interpolate(image.unsqueeze(0), **options)

    def kept(self, boxes, scores, threshold):
        import paddle.vision.ops

        return boxes[paddle.vision.ops.nms(boxes, threshold, scores)]

    def convolved(self, kind, x, w, dy):
        module = self.api.nn.functional
        back = None
        options = {"stride": kind.stride, "padding": kind.dilation, "dilation": kind.dilation}
        options["groups"] = kind.groups
        if kind.last:
            options["data_format"], back = "NHWC", [0, 3, 1, 2]
            x, dy = [tensor.transpose([0, 2, 3, 1]) for tensor in (x, dy)]
        x, w = self.leaves(x, w)
        name = "conv%dd_transpose" if kind.transposed else "conv%dd"
        y = getattr(module, name % kind.dimensions)(x, w, **options)
        self.api.autograd.backward([y], [dy])
        return [y.transpose(back), x.grad.transpose(back), w.grad] if back else [y, x.grad, w.grad]
