"""Frameworks that compute a gradient from tensors at once: PyTorch, PaddlePaddle, JAX and CuPy."""

from .fw_common import Framework


def operands(case, *names):
    """[(flat list, shape)] of a case's operands, as x, w and dy."""
    return [(case[name], case[name + "_shape"]) for name in names]


class Eager(Framework):
    """The framework's own are ``tensor``, ``gradients``, ``listed`` and ``place``; the rest is the same."""

    def prepare(self, device):
        """Called before the first tensor."""

    def tensor(self, values, shape, device, dtype):
        raise NotImplementedError

    def tensors(self, pairs, device, dtype):
        return [self.tensor(values, shape, device, dtype) for values, shape in pairs]

    def conv(self, x, w, *bias):
        """The convolution, with padding 1."""
        raise NotImplementedError

    def gradients(self, x, w, dy):
        """(y, dx, dw)."""
        raise NotImplementedError

    def listed(self, tensor):
        """A flat list of numbers."""
        raise NotImplementedError

    def place(self, tensor):
        """The name of the device that holds a tensor."""
        raise NotImplementedError

    def convolve(self, device, dtype, case):
        self.prepare(device)
        x, w, dy = self.tensors(operands(case, "x", "w", "dy"), device, dtype)
        results = self.gradients(x, w, dy) if device else [self.conv(x, w)]
        found = dict(zip(("y", "dx", "dw"), map(self.listed, results)))
        return dict(found, devices=[self.place(tensor) for tensor in results])


class Autograd(Eager):
    """Frameworks whose tensors keep the gradients that are worked out for them: PyTorch and PaddlePaddle."""

    def leaf(self, tensor):
        """The tensor without its history, and with a gradient to come."""
        raise NotImplementedError

    def backward(self, tensor, gradient):
        tensor.backward(gradient)

    def conv(self, x, w, *bias):
        return self.api.nn.functional.conv2d(x, w, *bias, padding=1)

    def gradients(self, x, w, dy):
        x, w = self.leaf(x), self.leaf(w)
        y = self.conv(x, w)
        self.backward(y, dy)
        return y, x.grad, w.grad

    def fused(self, device, dtype, case, bias):
        self.prepare(device)
        pairs = operands(case, "x", "w") + [(bias, (len(bias),))]
        y = self.api.nn.functional.relu(self.conv(*self.tensors(pairs, device, dtype)))
        return {"y": self.listed(y), "devices": [self.place(y)]}

    def train(self, device, data):
        """Gradient descent by hand: torch.optim would import PyTorch's compiler, which takes seconds."""
        self.prepare(device)
        functional = self.api.nn.functional
        pairs = [(data["x"], (8, 3, 8, 8)), (data["targets"], (8, 1))]
        pairs += [(data["w"], (4, 3, 3, 3)), ([0.0] * 4, (4,)), (data["v"], (4, 1))]
        x, targets, *weights = self.tensors(pairs, device, "float32")
        losses = []
        for _ in range(8):
            w, b, v = weights = [self.leaf(weight) for weight in weights]
            loss = functional.mse_loss(functional.relu(self.conv(x, w, b)).mean([2, 3]) @ v, targets)
            loss.backward()
            losses.append(float(loss))
            weights = [weight - 0.1 * weight.grad for weight in weights]
        return {"losses": losses, "devices": [self.place(weights[0])]}
