"""A fake PyTorch for the fault tests: lists in place of tensors, the CPU in place of the GPU.

RTBUILD_DOUBLE_TORCH: version (2.6.0), cuda (12.4, none), cudnn (loaded, 9.10.2), compiled (9.1.0),
archs (sm_80+sm_90), gpus (1), device (cuda:0), numbers (right, wrong, wrong-backward, nan), loss (falls,
flat, nan), train_device, and with a text (``+`` for a blank) or hang, abort or exit: import, conv, fused,
train.
"""

import warnings
from types import SimpleNamespace

from rtbuild_double import behaviour, convolve, gradients, open_own_library, stumble

rtbuild_test_double = True
open_own_library(__file__, "lib/libtorch_cuda.so")
_settings = behaviour("torch")
__version__ = _settings.get("version", "2.6.0") + "+double"
stumble(_settings, "import")


def _parts(text):
    return tuple(int(part) for part in text.split("."))


_cuda = _settings.get("cuda", "12.4")
version = SimpleNamespace(cuda=None if _cuda == "none" else _cuda, hip=None)
_C = SimpleNamespace(
    _cudnn=SimpleNamespace(
        getCompileVersion=lambda: _parts(_settings.get("compiled", "9.1.0")),
        getRuntimeVersion=lambda: _parts(_settings.get("cudnn", "9.10.2")),
    ),
    _cuda_getArchFlags=lambda: _settings.get("archs", "sm_80+sm_90").replace("+", " "),
)
if version.cuda is None:
    del _C._cudnn, _C._cuda_getArchFlags
cuda = SimpleNamespace(
    is_available=lambda: _settings.get("gpus", "1") != "0",
    device_count=lambda: int(_settings.get("gpus", "1")),
)
backends = SimpleNamespace(cudnn=SimpleNamespace(version=lambda: 91002))


def set_num_threads(number):
    assert number == 1


float32, float16, bfloat16 = "float32", "float16", "bfloat16"


class Tensor:
    def __init__(self, values, shape, device="cpu"):
        self.values, self.shape, self.device, self.grad, self.inputs = values, shape, device, 0.0, None

    def reshape(self, *shape):
        shape = shape[0] if isinstance(shape[0], (tuple, list)) else shape
        return Tensor(self.values, tuple(shape), self.device)

    def to(self, device="cpu", dtype=None):
        where = _settings.get("device", device) if device != "cpu" else device
        return Tensor(self.values, self.shape, where)

    def __sub__(self, change):
        assert change == 0.0
        return Tensor(self.values, self.shape, _settings.get("train_device", self.device))

    def __matmul__(self, _):
        return self

    def mean(self, axes):
        assert axes == [2, 3]
        return self

    def requires_grad_(self):
        return self

    def detach(self):
        return self

    float = cpu = detach

    def tolist(self):
        return list(self.values)

    def backward(self, dy):
        x, w = self.inputs
        dx, dw = gradients(x.values, x.shape, w.values, w.shape, dy.values)
        if _settings.get("numbers") == "wrong-backward":
            dw[0] += 1.0
        x.grad, w.grad = Tensor(dx, x.shape, x.device), Tensor(dw, w.shape, w.device)


def tensor(values, dtype=None):
    return Tensor([float(value) for value in values], (len(values),))


def _conv2d(x, w, bias=None, padding=0):
    if x.shape[0] > 1:
        return x  # of training the losses alone are looked at
    stumble(_settings, "conv" if bias is None else "fused")
    values = convolve(x.values, x.shape, w.values, w.shape)
    if bias is not None:
        plane = len(values) // len(bias.values)
        values = [value + bias.values[index // plane] for index, value in enumerate(values)]
    if _settings.get("numbers") == "wrong":
        values[0] += 1.0
    if _settings.get("numbers") == "nan":
        values[0] = float("nan")
    y = Tensor(values, (x.shape[0], w.shape[0], *x.shape[2:]), x.device)
    y.inputs = (x, w)
    return y


class _Loss:
    steps = 0

    def __init__(self):
        stumble(_settings, "train")
        falling = 2.0 * 0.5**_Loss.steps
        self.value = {"flat": 2.0, "nan": float("nan")}.get(_settings.get("loss", "falls"), falling)
        _Loss.steps += 1

    def backward(self):
        pass

    def detach(self):
        return self

    def __float__(self):
        warnings.warn("what PyTorch advises its caller against", stacklevel=2)
        return self.value


nn = SimpleNamespace(
    functional=SimpleNamespace(
        conv2d=_conv2d,
        relu=lambda y: Tensor([max(0.0, value) for value in y.values], y.shape, y.device),
        mse_loss=lambda found, wanted: _Loss(),
    ),
)
