"""CTranslate2, by which faster-whisper runs.

Its wheel holds cuDNN's shim; the sub-libraries and cuBLAS come from elsewhere, and no run path leads there.
"""

import glob
import os
import re

from .fw_common import Framework
from .library_files import names_inside, read_elf, required_sublibraries
from .versions import numbers


class Ctranslate2(Framework):
    name, title, module = "ctranslate2", "CTranslate2", "ctranslate2"
    convolves = trains = False

    def load(self):
        super(Ctranslate2, self).load()
        if not hasattr(self.api, "get_cuda_device_count"):
            import ctranslate2._ext  # noqa: F401 - the package goes on without its compiled part, without a word
        self.built = self._read_libraries()
        return self.api

    def compiled(self):
        return self.built

    def _libraries(self, name):
        root = os.path.dirname(os.path.dirname(self.api.__file__))
        return glob.glob(os.path.join(root, "ctranslate2.libs", "lib%s-*.so*" % name))

    def cuda_build(self):
        libraries = self._libraries("ctranslate2")
        return bool(self.compiled()["cuda"]), {"libraries": libraries, "shim": self._libraries("cudnn")}

    def _read_libraries(self):
        """CUDA by the cuBLAS that it opens, cuDNN by the shim that it is linked with: 60 MB are read once."""
        found = {"cuda": None, "cudnn": None}
        for path in self._libraries("ctranslate2"):
            opened = names_inside(path, rb"libcublas\.so\.\d+", 512 << 20)
            found["cuda"] = opened[0].rpartition(".")[2] if opened else None
            for name in read_elf(path)["needed"]:
                if name.startswith("libcudnn"):
                    found["cudnn"] = name.partition(".so.")[2] or None
        return found

    def wanted(self):
        compiled, shims = self.compiled(), self._libraries("cudnn")
        names = ["libcublas.so.%s" % compiled["cuda"]] if compiled["cuda"] else []
        parts = required_sublibraries(numbers(compiled["cudnn"])[0]) if compiled["cudnn"] else []
        names += [name for name in parts if re.search("graph|_ops|_cnn", name) and "train" not in name]
        return names, (shims + self._libraries("ctranslate2"))[:1]

    def devices(self):
        return ["cuda:%d" % index for index in range(self.api.get_cuda_device_count())]
