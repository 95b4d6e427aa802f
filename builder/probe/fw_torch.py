"""PyTorch."""

from .fw_common import Framework, check_framework
from .fw_judge import judge_framework
from .protocol import stage
from .versions import dotted


class Torch(Framework):
    name, title, module = "torch", "PyTorch", "torch"

    def load(self):
        import torch

        self.torch = torch
        return torch

    def version(self):
        return str(self.torch.__version__)

    def cuda_build(self):
        evidence = {"torch.version.cuda": self.torch.version.cuda, "version": self.version()}
        hip = getattr(self.torch.version, "hip", None)
        if hip:
            evidence["torch.version.hip"] = hip
        return self.torch.version.cuda is not None, evidence

    def compiled(self):
        library = getattr(self.torch._C, "_cudnn", None)
        cudnn = library.getCompileVersion() if library else None
        return {"cuda": self.torch.version.cuda, "cudnn": dotted(cudnn)}

    def archs(self):
        flags = getattr(self.torch._C, "_cuda_getArchFlags", None)  # get_arch_list() is empty without a GPU
        return (flags() or "").split() if flags else []

    def touch(self):
        library = getattr(self.torch._C, "_cudnn", None)
        if library is None:
            return ()
        return tuple(library.getRuntimeVersion())

    def devices(self):
        cuda = self.torch.cuda
        if not cuda.is_available():
            return []
        return ["cuda:%d" % index for index in range(cuda.device_count())]

    def _tensor(self, values, shape, device, dtype, gradient=False):
        tensor = self.torch.tensor(values, dtype=self.torch.float32).reshape(shape)
        tensor = tensor.to(device=device or "cpu", dtype=getattr(self.torch, dtype))
        return tensor.requires_grad_() if gradient else tensor

    def _list(self, tensor):
        return tensor.detach().float().cpu().reshape(-1).tolist()

    def convolve(self, device, dtype, case):
        if device:
            self.torch.backends.cudnn.version()  # PyTorch's own version rule; raises where it is broken
        else:
            self.torch.set_num_threads(1)  # threads that wait for each other take a second on a busy machine
        x = self._tensor(case["x"], case["x_shape"], device, dtype, gradient=True)
        w = self._tensor(case["w"], case["w_shape"], device, dtype, gradient=True)
        y = self.torch.nn.functional.conv2d(x, w, padding=1)
        if not device:
            return {"y": self._list(y), "devices": [str(y.device)]}
        y.backward(self._tensor(case["dy"], case["dy_shape"], device, dtype))
        found = {"y": self._list(y), "dx": self._list(x.grad), "dw": self._list(w.grad)}
        found["devices"] = [str(tensor.device) for tensor in (y, x.grad, w.grad)]
        return found

    def fused(self, device, dtype, case, bias):
        functional = self.torch.nn.functional
        x = self._tensor(case["x"], case["x_shape"], device, dtype)
        w = self._tensor(case["w"], case["w_shape"], device, dtype)
        b = self._tensor(bias, (len(bias),), device, dtype)
        y = functional.relu(functional.conv2d(x, w, b, padding=1))
        return {"y": self._list(y), "devices": [str(y.device)]}

    def train(self, device, data):
        torch = self.torch
        net = torch.nn.Sequential(
            torch.nn.Conv2d(3, 4, 3, padding=1),
            torch.nn.ReLU(),
            torch.nn.AdaptiveAvgPool2d(1),
            torch.nn.Flatten(),
            torch.nn.Linear(4, 1),
        )
        with torch.no_grad():
            net[0].weight.copy_(self._tensor(data["w"], (4, 3, 3, 3), None, "float32"))
            net[0].bias.zero_()
            net[4].weight.copy_(self._tensor(data["v"], (1, 4), None, "float32"))
            net[4].bias.zero_()
        net = net.to(device or "cpu")
        x = self._tensor(data["x"], (8, 3, 8, 8), device, "float32")
        targets = self._tensor(data["targets"], (8, 1), device, "float32")
        weights = [net[0].weight, net[0].bias, net[4].weight, net[4].bias]
        losses = []
        for _ in range(8):
            loss = torch.nn.functional.mse_loss(net(x), targets)
            loss.backward()
            with torch.no_grad():  # torch.optim would import PyTorch's compiler, which takes seconds
                for weight in weights:
                    weight -= 0.1 * weight.grad
                    weight.grad = None
            losses.append(loss.item())
        return {"losses": losses, "devices": [str(net[0].weight.device)]}


@stage("torch", layer="framework", timeout=300, modules=("torch",), judge=judge_framework)
def torch_stage(ctx):
    check_framework(ctx, Torch(ctx))
