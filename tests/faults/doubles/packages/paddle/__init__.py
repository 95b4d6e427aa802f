"""A fake PaddlePaddle for frameworks imported together: loads its library, convolves on the CPU."""

from types import SimpleNamespace

from rtbuild_double import behaviour, convolve, open_own_library, stumble

rtbuild_test_double = True
__version__ = "3.0.0+double"
_settings = behaviour("paddle")
open_own_library(__file__, "libs/libdouble.so")
stumble(_settings, "import")
version = SimpleNamespace(cuda=lambda: "12.4", cudnn=lambda: "False")
device = SimpleNamespace(cuda=SimpleNamespace(device_count=lambda: 0))


def is_compiled_with_cuda():
    return True


def set_device(name):
    assert name == "cpu"


class Tensor:
    def __init__(self, values, shape):
        self.values, self.shape, self.place, self.grad = values, shape, "Place(cpu)", 0.0

    def reshape(self, shape):
        return Tensor(self.values, tuple(shape) if shape != [-1] else None)

    def cast(self, _):
        return self

    def detach(self):
        return self

    def numpy(self):
        return self.values

    def mean(self, axes):
        assert axes == [2, 3]
        return self

    def __sub__(self, change):
        assert change == 0.0
        return self

    def __matmul__(self, _):
        return self


def to_tensor(values, dtype):
    return Tensor([float(value) for value in values], (len(values), dtype))


def _conv2d(x, w, bias=None, padding=0):
    assert padding == 1
    if x.shape[0] > 1:
        return x  # of training the losses alone are looked at
    return Tensor(convolve(x.values, x.shape, w.values, w.shape), None)


class _Loss(float):
    def backward(self):
        pass

    def detach(self):
        return self


_losses = (_Loss(2.0 * 0.5**step) for step in range(100))
nn = SimpleNamespace(
    functional=SimpleNamespace(conv2d=_conv2d, relu=lambda y: y, mse_loss=lambda found, wanted: next(_losses))
)
