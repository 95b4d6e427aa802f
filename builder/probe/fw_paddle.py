"""PaddlePaddle."""

from .fw_common import Framework, check_framework
from .fw_judge import judge_framework
from .protocol import stage
from .versions import cudnn_tuple, numbers


class Paddle(Framework):
    name, title, module = "paddle", "PaddlePaddle", "paddle"

    def load(self):
        import paddle

        self.paddle = paddle
        return paddle

    def version(self):
        return str(self.paddle.__version__)

    def _said(self, name):
        """``paddle.version.cuda()`` and the like: the text ``False`` stands for a build without it."""
        function = getattr(getattr(self.paddle, "version", None), name, None)
        text = str(function()) if callable(function) else ""
        return text if numbers(text) else None

    def cuda_build(self):
        built = bool(self.paddle.is_compiled_with_cuda())
        return built, {
            "is_compiled_with_cuda": built,
            "cuda": self._said("cuda"),
            "cudnn": self._said("cudnn"),
        }

    def compiled(self):
        return {"cuda": self._said("cuda"), "cudnn": self._said("cudnn")}

    def wanted(self):
        """Paddle opens the unversioned name, out of ``FLAGS_cudnn_dir`` or by the loader's search."""
        return (["libcudnn.so"] if self._said("cudnn") else []), None

    def touch(self):
        function = getattr(self.paddle, "get_cudnn_version", None)
        number = function() if function else None
        return cudnn_tuple(number) if number else ()

    def devices(self):
        return ["gpu:%d" % index for index in range(self.paddle.device.cuda.device_count())]

    def _tensor(self, values, shape, dtype, gradient=False):
        tensor = self.paddle.to_tensor(values, dtype="float32").reshape(list(shape)).cast(dtype)
        tensor = tensor.detach()
        tensor.stop_gradient = not gradient
        return tensor

    def _list(self, tensor):
        return [float(value) for value in tensor.cast("float32").reshape([-1]).numpy()]

    def convolve(self, device, dtype, case):
        self.paddle.set_device(device or "cpu")
        x = self._tensor(case["x"], case["x_shape"], dtype, gradient=True)
        w = self._tensor(case["w"], case["w_shape"], dtype, gradient=True)
        dy = self._tensor(case["dy"], case["dy_shape"], dtype)
        y = self.paddle.nn.functional.conv2d(x, w, padding=1)
        if not device:
            return {"y": self._list(y), "devices": [str(y.place)]}
        self.paddle.autograd.backward([y], [dy])
        found = {"y": self._list(y), "dx": self._list(x.grad), "dw": self._list(w.grad)}
        found["devices"] = [str(tensor.place) for tensor in (y, x.grad, w.grad)]
        return found

    def fused(self, device, dtype, case, bias):
        self.paddle.set_device(device or "cpu")
        functional = self.paddle.nn.functional
        x = self._tensor(case["x"], case["x_shape"], dtype)
        w = self._tensor(case["w"], case["w_shape"], dtype)
        y = functional.relu(functional.conv2d(x, w, bias=self._tensor(bias, (len(bias),), dtype), padding=1))
        return {"y": self._list(y), "devices": [str(y.place)]}

    def train(self, device, data):
        paddle = self.paddle
        paddle.set_device(device or "cpu")
        net = paddle.nn.Sequential(
            paddle.nn.Conv2D(3, 4, 3, padding=1),
            paddle.nn.ReLU(),
            paddle.nn.AdaptiveAvgPool2D(1),
            paddle.nn.Flatten(),
            paddle.nn.Linear(4, 1),
        )
        net[0].weight.set_value(self._tensor(data["w"], (4, 3, 3, 3), "float32"))
        net[0].bias.set_value(self._tensor([0.0] * 4, (4,), "float32"))
        net[4].weight.set_value(self._tensor(data["v"], (4, 1), "float32"))
        net[4].bias.set_value(self._tensor([0.0], (1,), "float32"))
        x = self._tensor(data["x"], (8, 3, 8, 8), "float32")
        targets = self._tensor(data["targets"], (8, 1), "float32")
        optimizer = paddle.optimizer.SGD(learning_rate=0.1, parameters=net.parameters())
        losses = []
        for _ in range(8):
            loss = paddle.nn.functional.mse_loss(net(x), targets)
            loss.backward()
            optimizer.step()
            optimizer.clear_grad()
            losses.append(float(loss))
        return {"losses": losses, "devices": [str(net[0].weight.place)]}


@stage("paddle", layer="framework", timeout=300, modules=("paddle",), judge=judge_framework)
def paddle_stage(ctx):
    check_framework(ctx, Paddle(ctx))
