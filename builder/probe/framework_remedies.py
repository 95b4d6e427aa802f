"""The commands for driver, card and packages of frameworks; arguments as of ``Remedies``."""

import re

from .builds import Builds, Command
from .data import read_patterns
from .versions import dotted, numbers

CTRANSLATE2 = "ctranslate2>=4.6.3,<5"
ONNXRUNTIME = "onnxruntime-gpu[cuda,cudnn]>=1.21,<1.27"
PRELOAD_DLLS = "then call onnxruntime.preload_dlls() before the first session"


# (bytes of a type as compiled, as it is here): https://github.com/numpy/numpy/issues/26710
_NUMPY_SIZES = {("96", "88"): "numpy>=2", ("88", "96"): "numpy<2", ("88", "80"): "numpy>=1.20,<2"}


class FrameworkRemedies(Builds):
    """Commands by cause, for the causes of the host and of frameworks."""

    def _pip(self, *requirements, **options):
        text = "pip install " + options.get("flags", "")
        quoted = ['"%s"' % r if re.search(r"[<>\[;,]", r) else r for r in requirements]
        return Command("pip", text + " ".join(quoted), options.get("note"))

    def _driver_too_old(self):
        note = "brings back the packages that fit Colab's driver; then leave out the line that replaced them"
        if "colab" in self.here.places:
            return [Command("notebook", "Runtime > Disconnect and delete runtime", note)]
        if not self._driver_known():
            return []
        only_11 = not self._driver_serves((12, 0)) and self._driver_serves((11, 0))
        if self.framework == "ctranslate2" and only_11:
            # https://github.com/SYSTRAN/faster-whisper/issues/734
            return [Command("pip", "pip install ctranslate2==3.24.0", "the last for CUDA 11")]
        if self.framework != "torch":
            return []
        row = self._nearest_torch(self._capability())
        if row is None:
            return []
        text = "without a new driver: a build for CUDA %s, which this driver serves" % row["cuda"]
        return [self._torch(row, text)]

    def _system_library_missing(self):
        package = read_patterns()["system-packages"].get(str(self.detail.get("soname")).lower())
        if package is None or "conda-packages" in self.here.places:
            return []
        note = "as root; in a Dockerfile after RUN"
        if package == "libgl1":
            note += "; or instead: pip install opencv-python-headless"
        return [Command("apt", "apt-get update && apt-get install -y %s" % package, note)]

    def _framework_known_bad(self):
        if self.framework != "torch" or numbers(self.version)[:3] != (2, 5, 0):
            return []
        local = self.version.partition("+")[2]
        row = {"latest": "2.5.1", "variant": local, "default": not local, "cuda": "12.4"}
        return [self._torch(row, "does not ask cuDNN for attention first")]

    def _framework_arch_missing(self):
        capability = self._capability()
        if self.framework == "paddlepaddle-gpu" and capability and capability >= (10, 0):
            return [self._paddle("cu129", "has code for compute capability %d.%d" % capability[:2])]
        if self.framework != "torch" or capability is None:
            return []
        row = self._nearest_torch(capability)
        return [self._torch(row, "has code for compute capability %d.%d" % capability[:2])] if row else []

    def _torch(self, row, note):
        variant = None if row["default"] else row["variant"]
        release = self.version.partition("+")[0] if self.version and row in self._rows(self.version) else None
        if row["default"] and {"windows", "aarch64"} & self.here.places:
            variant = "cu" + "".join(str(part) for part in numbers(row["cuda"])[:2])  # PyPI's have no CUDA
        return self._torch_of(release or row["latest"], variant, note)

    def _torch_of(self, version, variant, note=None):
        """PyTorch, with those of its companions that are here, which fit one release of it only."""
        names = ["torch==" + version] + [n for n in ("torchvision", "torchaudio") if n in self.here.packages]
        return Command("pip", "pip install --force-reinstall " + " ".join(names) + torch_index(variant), note)

    def _torch_again(self):
        version, _, local = self.version.partition("+")
        return self._torch_of(version, local)

    def _paddle(self, variant, note):
        text = "pip install --force-reinstall paddlepaddle-gpu -i https://www.paddlepaddle.org.cn/packages/stable/"
        return Command("pip", text + variant + "/", note)

    def _framework_cpu_build(self):
        if self.framework == "torch":
            row = self._nearest_torch(self._capability())
            return [self._torch(row, "a build with CUDA %s" % row["cuda"])] if row else []
        if self.framework == "jax":
            serves_13 = self._driver_known() and self._driver_serves((13, 0))
            return [self._pip("jax[cuda%d]" % (13 if serves_13 else 12), flags="--upgrade ")]
        if self.framework == "tensorflow" and "windows" in self.here.places:
            # https://github.com/tensorflow/tensorflow/issues/60237
            note = "the last with CUDA on Windows itself; newer ones in WSL 2"
            return [self._pip("tensorflow<2.11", note=note)]
        if self.framework == "tensorflow":
            uninstall = Command("pip", "pip uninstall -y tensorflow-cpu", None)
            mend = self._pip("tensorflow[and-cuda]")
            return [uninstall, mend] if "tensorflow-cpu" in self.here.packages else [mend]
        if self.framework == "onnxruntime":
            version = numbers(self.version)
            wanted = ONNXRUNTIME
            if version:
                extra = "[cuda,cudnn]" if version >= (1, 21) else ""
                wanted = "onnxruntime-gpu%s==%s" % (extra, self.version)
            return [
                Command("pip", "pip uninstall -y onnxruntime onnxruntime-gpu", "both own the same folder"),
                self._pip(wanted, note=PRELOAD_DLLS if "cudnn" in wanted else None),
            ]
        if self.framework == "paddlepaddle-gpu":
            uninstall = "pip uninstall -y paddlepaddle paddlepaddle-gpu"
            if self.version:
                mend = self._pip("paddlepaddle-gpu==" + self.version, note="from where it came")
            else:
                mend = self._paddle("cu126", "a build with CUDA 12.6")
            return [Command("pip", uninstall, "both own the same folder"), mend]
        return []

    def _package_overwritten(self):
        if self.framework in ("onnxruntime", "paddlepaddle-gpu"):
            return self._framework_cpu_build()
        stem = "nvidia-%s-cu%%s" % (self.detail.get("stem") or "cudnn")
        stem = "cupy-cuda%sx" if self.framework == "cupy" else stem
        names = sorted(n for n in self.here.packages if re.match(stem % r"\d+" + "$", n))
        names = names or (self.detail.get("names") or "").replace(",", "").split()
        keep = stem % self.cuda
        note = "all of them: they own the same files"
        uninstall = Command("pip", "pip uninstall -y %s" % " ".join(names), note)
        if keep in names:
            wanted = self._cudnn_pin() if "cudnn" in stem else None
            if not wanted or "==" not in wanted:
                wanted = "%s==%s" % (keep, self.here.packages[keep])
            return [uninstall, self._pip(wanted, flags="--no-deps ")]
        if names and self.framework == "cupy":
            note = "its CUDA 12 runs on drivers of CUDA 12 and later"
            return [uninstall, self._pip("cupy-cuda12x[ctk]>=14", note=note)]
        if "torch" not in set(self.here.packages) | set(self.here.printed_by):
            return []
        code = "print(*(r.split(';')[0].replace(' ', '') for r in requires('torch') if '%s' in r))" % (
            stem % ""
        )
        text = "from importlib.metadata import requires; " + code
        text = 'pip install --no-deps $(python3 -c "%s")' % text
        return [uninstall, Command("pip", text, "the one that the installed PyTorch asks for")]

    def _package_pin_mismatch(self):
        wants = self.detail.get("requirement")
        if wants == "torchvision":
            return self._torchvision()
        if wants == "jax":
            version = self.detail.get("jaxlib")  # before 0.3 the two had different numbers
            note = "the release of the jaxlib that is here"
            return [self._pip("jax==" + version, note=note)] if numbers(version) >= (0, 3) else []
        if wants == "numpy":
            return self._numpy()
        if wants == "jax's plug-in":
            return self._jax_plugin()
        if wants == "flash-attn":
            text = "FLASH_ATTENTION_FORCE_BUILD=TRUE pip install --force-reinstall --no-deps --no-cache-dir "
            return [Command("pip", text + "--no-build-isolation flash-attn", "compiles it for this PyTorch")]
        return [self._pip(wants)] if wants else []

    def _numpy(self):
        """The NumPy that a package was compiled for, by the sizes or the number in its message."""
        sizes = (self.detail.get("header"), self.detail.get("object"))
        wanted = _NUMPY_SIZES.get(sizes)
        if self.detail.get("wanted"):
            wanted = read_patterns()["numpy-api"].get(str(int(self.detail["wanted"], 16)))
        return [self._pip(wanted, note="as the package was compiled")] if wanted else []

    def _jax_plugin(self):
        """Both halves of the plug-in at jaxlib's own version."""
        version = (self.here.packages.get("jaxlib") or "").partition("+")[0]
        found = re.search(r"jax_cuda(\d+)_plugin", str(self.detail.get("line")))
        major = found.group(1) if found else self.cuda
        if not version or not major:
            return []
        names = ["jax-cuda%s-%s==%s" % (major, half, version) for half in ("plugin", "pjrt")]
        return [self._pip(*names, note="the release of the jaxlib that is here")]

    def _torchvision(self):
        """The release for the PyTorch here, patch for patch: 0.16 for 2.1, 0.14 for 1.13, and so on
        (https://github.com/pytorch/vision#installation).
        """
        parts = numbers(self.version) if self.framework == "torch" else ()
        major, minor = (parts + (0, 0))[:2]
        if major not in (1, 2) or not minor + major - 1:
            return []
        # 0.15.0 and 0.11.0 asked for a PyTorch that was never released so
        patch = str(parts[2] + ((major, minor) in ((2, 0), (1, 10)))) if len(parts) > 2 else "*"
        text = "pip install --force-reinstall --no-deps 'torchvision==0.%d.%s'"
        text = text % (minor + (15 if major == 2 else 1), patch) + torch_index(self.version.partition("+")[2])
        return [Command("pip", text, "compiled for PyTorch %s" % dotted(parts))]


def torch_index(variant):
    """The option for PyTorch's own index of a build such as ``cu124``; "" for builds of any other name."""
    index = " --index-url https://download.pytorch.org/whl/%s"
    return index % variant if variant and variant.startswith("cu") else ""
