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
        self.values, self.shape, self.place = values, shape, "Place(cpu)"

    def reshape(self, shape):
        return Tensor(self.values, tuple(shape) if shape != [-1] else None)

    def cast(self, _):
        return self

    def detach(self):
        return self

    def numpy(self):
        return self.values


def to_tensor(values, dtype):
    return Tensor([float(value) for value in values], (len(values), dtype))


def _conv2d(x, w, padding):
    assert padding == 1
    return Tensor(convolve(x.values, x.shape, w.values, w.shape), None)


class _Layer:
    def __init__(self, *_, **__):
        self.weight = self.bias = SimpleNamespace(set_value=lambda value: None, place="Place(cpu)")


class _Net(list):
    def __init__(self, *layers):
        super().__init__(layers)

    def __call__(self, x):
        return x

    def parameters(self):
        return []


class _Loss(float):
    def backward(self):
        pass


_losses = (_Loss(2.0 * 0.5**step) for step in range(100))
nn = SimpleNamespace(
    functional=SimpleNamespace(conv2d=_conv2d, mse_loss=lambda found, wanted: next(_losses)),
    Sequential=_Net,
    Conv2D=_Layer,
    ReLU=_Layer,
    AdaptiveAvgPool2D=_Layer,
    Flatten=_Layer,
    Linear=_Layer,
)
optimizer = SimpleNamespace(
    SGD=lambda learning_rate, parameters: SimpleNamespace(step=lambda: None, clear_grad=lambda: None)
)
