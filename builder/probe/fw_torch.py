"""PyTorch."""

from .fw_eager import Autograd
from .versions import dotted


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

    def tensor(self, values, shape, device, dtype):
        tensor = self.api.tensor(values, dtype=self.api.float32).reshape(shape)
        return tensor.to(device=device or "cpu", dtype=getattr(self.api, dtype))

    def leaf(self, tensor):
        return tensor.detach().requires_grad_()

    def listed(self, tensor):
        return tensor.detach().float().cpu().reshape(-1).tolist()

    def place(self, tensor):
        return str(tensor.device)
