"""Frameworks whose tensors keep the gradients that are worked out for them: PyTorch and PaddlePaddle."""

from .fw_common import Framework


class Eager(Framework):
    """The framework's own are ``tensor``, ``leaf``, ``listed`` and ``place``; the computation is the same."""

    def prepare(self, device):
        """Prepare for the first tensor."""

    def tensor(self, values, shape, device, dtype):
        raise NotImplementedError

    def leaf(self, tensor):
        """The tensor without its history, and with a gradient to come."""
        raise NotImplementedError

    def listed(self, tensor):
        """A flat list of numbers."""
        raise NotImplementedError

    def place(self, tensor):
        """The name of the device that holds a tensor."""
        raise NotImplementedError

    def backward(self, tensor, gradient):
        tensor.backward(gradient)

    def convolve(self, device, dtype, case):
        self.prepare(device)
        names = ("x", "w", "dy")
        x, w, dy = [self.tensor(case[name], case[name + "_shape"], device, dtype) for name in names]
        x, w = self.leaf(x), self.leaf(w)
        y = self.api.nn.functional.conv2d(x, w, padding=1)
        if not device:
            return {"y": self.listed(y), "devices": [self.place(y)]}
        self.backward(y, dy)
        found = {"y": self.listed(y), "dx": self.listed(x.grad), "dw": self.listed(w.grad)}
        return dict(found, devices=[self.place(tensor) for tensor in (y, x.grad, w.grad)])

    def fused(self, device, dtype, case, bias):
        self.prepare(device)
        x, w = [self.tensor(case[name], case[name + "_shape"], device, dtype) for name in ("x", "w")]
        b = self.tensor(bias, (len(bias),), device, dtype)
        y = self.api.nn.functional.relu(self.api.nn.functional.conv2d(x, w, b, padding=1))
        return {"y": self.listed(y), "devices": [self.place(y)]}

    def train(self, device, data):
        """Gradient descent by hand: torch.optim would import PyTorch's compiler, which takes seconds."""
        self.prepare(device)
        functional, zeros = self.api.nn.functional, [0.0] * 4
        x = self.tensor(data["x"], (8, 3, 8, 8), device, "float32")
        targets = self.tensor(data["targets"], (8, 1), device, "float32")
        first = ((data["w"], (4, 3, 3, 3)), (zeros, (4,)), (data["v"], (4, 1)))
        weights = [self.leaf(self.tensor(values, shape, device, "float32")) for values, shape in first]
        losses = []
        for _ in range(8):
            w, b, v = weights
            hidden = functional.relu(functional.conv2d(x, w, b, padding=1)).mean([2, 3])
            loss = functional.mse_loss(hidden @ v, targets)
            loss.backward()
            losses.append(float(loss))
            weights = [self.leaf(weight - 0.1 * weight.grad) for weight in weights]
        return {"losses": losses, "devices": [self.place(weights[0])]}
