"""Which build of a framework fits here, by its release, this card, this driver and this Python; and the
commands for driver, card and packages. Arguments as of ``Remedies``.
"""

import re
from collections import namedtuple

from .tables import Releases, driver_floor, read_facts, read_frameworks, read_patterns, told_names
from .versions import dotted, numbers

# where: pip, apt, conda, docker, shell, notebook or rtbuild
Command = namedtuple("Command", "where text note")
CTRANSLATE2 = "ctranslate2>=4.6.3,<5"
ONNXRUNTIME = "onnxruntime-gpu[cuda,cudnn]>=1.21,<1.27"
PRELOAD_DLLS = "then call onnxruntime.preload_dlls() before the first session"
# (bytes of a type as compiled, as it is here): https://github.com/numpy/numpy/issues/26710
_NUMPY_SIZES = {("96", "88"): "numpy>=2", ("88", "96"): "numpy<2", ("88", "80"): "numpy>=1.20,<2"}


class FrameworkRemedies(object):
    """The framework that is here, its builds that the tables know, and the commands for both."""

    def __init__(self, here, detail=None, systems=()):
        self.here, self.detail, self.releases = here, detail or {}, Releases()
        self.framework, self.version = self._framework(systems)
        self.certain = self.version is not None or len(systems) == 1 or self.framework in here.printed_by
        """Whether the framework is the one at hand, or only the first that prints such a text."""
        self.rows = self._rows(self.version) if self.version else []
        self.compiled = numbers(self.detail.get("compiled"))
        self.cuda = self._cuda_major()
        self.capability = numbers(here.capability) or None

    def _framework(self, systems):
        known, alias = told_names(), {"pytorch": "torch"}
        alias.update((name, row["told"]) for name, row in read_frameworks().items())
        wanted = [alias.get(name, name) for name in systems if alias.get(name, name) in known]
        here = [name for name in known if name in self.here.packages]
        if "jaxlib" in self.here.packages and "jax" not in here:
            here.append("jax")
        said = [name for name in known if name in (self.detail.get("printed_by") or ())]
        if len(said) == 1:
            wanted = said  # the line that failed names its framework
        if len(wanted) != 1 and not set(wanted) & (set(here) | set(self.here.printed_by)):
            wanted = here or wanted
        both = [name for name in wanted if name in here]
        printed = [name for name in wanted if name in self.here.printed_by]
        name = next(iter(both or printed or wanted), None)
        other = self.here.packages.get("jaxlib") if name == "jax" else None
        return name, self.here.packages.get(name) or other

    def _rows(self, version=None):
        name = {"onnxruntime": "onnxruntime-gpu"}.get(self.framework, self.framework)
        return self.releases.builds(name, (version or "").partition("+")[0] or None) if name else []

    def _cuda_major(self):
        """The CUDA major version that the packages here are built for; None if that is not certain."""
        majors = set(self.here.cuda_majors)
        if len(majors) == 1:
            return majors.pop()
        rows = self.rows
        if not rows and len(self.compiled) > 1:
            rows = [row for row in self._rows() if numbers(row["cudnn"])[:2] == self.compiled[:2]]
        majors = {numbers(row["cuda"])[0] for row in rows if row["cuda"]}
        return majors.pop() if len(majors) == 1 else None

    def _nearest_torch(self):
        """A PyTorch for this card, driver and Python: another build of the release that is here, else of the
        newest release that has one; None if none is known.
        """
        python = numbers(self.here.python)
        for row in self.rows + self._rows():
            cuda, (first, last) = numbers(row["cuda"]), map(numbers, row["python"])
            here = row["variant"] and row["variant"] == (self.version or "").partition("+")[2]
            fits = cuda and self._driver_serves(cuda) and (not python or first <= python <= last)
            if fits and not here and (self.capability is None or serves(row, self.capability)):
                return row
        return None

    def driver_that_serves(self, major):
        """The driver in words if it is known and serves all of a CUDA major; None otherwise."""
        if not self._driver_known() or not self._driver_serves((major, 0)):
            return None
        return "driver %s serves CUDA %d" % (self.here.driver or "for CUDA " + self.here.driver_cuda, major)

    def _driver_known(self):
        return bool(numbers(self.here.driver) or numbers(self.here.driver_cuda))

    def _driver_serves(self, cuda):
        if not self._driver_known():
            return cuda[0] < 13
        api = numbers(self.here.driver_cuda)
        if api:
            # nothing newer than a driver's CUDA runs on it up to CUDA 10; from 11 on a major is one:
            # https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html
            return api[0] >= cuda[0] if cuda[0] > 10 else api >= cuda[:2]
        floor = driver_floor(cuda[0])
        return bool(floor) and numbers(self.here.driver) >= floor

    def _pip(self, *requirements, flags="", note=None):
        quoted = ['"%s"' % r if re.search(r"[<>\[;,]", r) else r for r in requirements]
        return Command("pip", "pip install " + flags + " ".join(quoted), note)

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
        row = self._nearest_torch() if self.framework == "torch" else None
        text = "without a new driver: a build for CUDA %s, which this driver serves"
        return [self._torch(row, text % row["cuda"])] if row else []

    def _system_library_missing(self):
        package = read_patterns()["system-packages"].get(str(self.detail.get("soname")).lower())
        if package is None or "conda-packages" in self.here.places:
            return []
        instead = "; or instead: pip install opencv-python-headless" if package == "libgl1" else ""
        note = "as root; in a Dockerfile after RUN" + instead
        return [Command("apt", "apt-get update && apt-get install -y %s" % package, note)]

    def _framework_known_bad(self):
        if self.framework != "torch" or numbers(self.version)[:3] != (2, 5, 0):
            return []
        local = self.version.partition("+")[2]
        row = {"latest": "2.5.1", "variant": local, "default": not local, "cuda": "12.4"}
        return [self._torch(row, "does not ask cuDNN for attention first")]

    def _framework_arch_missing(self):
        if self.capability is None:
            return []
        note = "has code for compute capability %d.%d" % self.capability[:2]
        if self.framework == "paddlepaddle-gpu" and self.capability >= (10, 0):
            return [self._paddle("cu129", note)]
        row = self._nearest_torch() if self.framework == "torch" else None
        return [self._torch(row, note)] if row else []

    def _torch(self, row, note):
        variant = None if row["default"] else row["variant"]
        release = self.version.partition("+")[0] if row in self.rows else None
        if row["default"] and {"windows", "aarch64"} & self.here.places:
            variant = "cu" + "".join(str(part) for part in numbers(row["cuda"])[:2])  # PyPI's have no CUDA
        return self._torch_of(release or row["latest"], variant, note)

    def _torch_of(self, version, variant, note=None):
        """PyTorch, with those of its companions that are here, which fit one release of it only."""
        names = ["torch==" + version] + [n for n in ("torchvision", "torchaudio") if n in self.here.packages]
        return Command("pip", "pip install --force-reinstall " + " ".join(names) + torch_index(variant), note)

    def _paddle(self, variant, note):
        text = "pip install --force-reinstall paddlepaddle-gpu -i https://www.paddlepaddle.org.cn/packages/stable/"
        return Command("pip", text + variant + "/", note)

    def _framework_cpu_build(self):
        if self.framework == "torch":
            row = self._nearest_torch()
            return [self._torch(row, "a build with CUDA %s" % row["cuda"])] if row else []
        if self.framework == "jax":
            serves_13 = self._driver_known() and self._driver_serves((13, 0))
            return [self._pip("jax[cuda%d]" % (13 if serves_13 else 12), flags="--upgrade ")]
        if self.framework == "tensorflow" and "windows" in self.here.places:
            # https://github.com/tensorflow/tensorflow/issues/60237
            note = "the last with CUDA on Windows itself; newer ones in WSL 2"
            return [self._pip("tensorflow<2.11", note=note)]
        if self.framework == "tensorflow":
            mend = self._pip("tensorflow[and-cuda]")
            if "tensorflow-cpu" not in self.here.packages:
                return [mend]
            both = [name for name in ("tensorflow", "tensorflow-cpu") if name in self.here.packages]
            text = "pip uninstall -y %s" % " ".join(both)
            return [Command("pip", text, "they own the same files"), mend]
        if self.framework == "onnxruntime":
            extra = "[cuda,cudnn]" if numbers(self.version) >= (1, 21) else ""
            known = numbers(self.version)
            wanted = "onnxruntime-gpu%s==%s" % (extra, self.version) if known else ONNXRUNTIME
            mend = self._pip(wanted, note=PRELOAD_DLLS if "cudnn" in wanted else None)
        elif self.framework == "paddlepaddle-gpu" and self.version:
            mend = self._pip("paddlepaddle-gpu==" + self.version, note="from where it came")
        elif self.framework == "paddlepaddle-gpu":
            mend = self._paddle("cu126", "a build with CUDA 12.6")
        else:
            return []
        names = (
            "paddlepaddle paddlepaddle-gpu" if "paddle" in self.framework else "onnxruntime onnxruntime-gpu"
        )
        return [Command("pip", "pip uninstall -y " + names, "both own the same folder"), mend]

    def _package_overwritten(self):
        if self.framework in ("onnxruntime", "paddlepaddle-gpu"):
            return self._framework_cpu_build()
        stem = "nvidia-%s-cu%%s" % (self.detail.get("stem") or "cudnn")
        stem = "cupy-cuda%sx" if self.framework == "cupy" else stem
        names = sorted(n for n in self.here.packages if re.match(stem % r"\d+" + "$", n))
        names = names or (self.detail.get("names") or "").replace(",", "").split()
        keep, text = stem % self.cuda, "pip uninstall -y %s" % " ".join(names)
        uninstall = Command("pip", text, "all of them: they own the same files")
        if keep in names:
            wanted = (self._cudnn_pin() if "cudnn" in stem else None) or ""
            wanted = wanted if "==" in wanted else "%s==%s" % (keep, self.here.packages[keep])
            return [uninstall, self._pip(wanted, flags="--no-deps ")]
        if names and self.framework == "cupy":
            note = "its CUDA 12 runs on drivers of CUDA 12 and later"
            return [uninstall, self._pip("cupy-cuda12x[ctk]>=14", note=note)]
        if "torch" not in set(self.here.packages) | set(self.here.printed_by):
            return []
        code = "from importlib.metadata import requires; "
        code += "print(*(r.split(';')[0].replace(' ', '') for r in requires('torch') if '%s' in r))"
        text = 'pip install --no-deps $(python3 -c "%s")' % (code % (stem % ""))
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
            # the one that a package was compiled for, by the sizes or the number in its message
            wants = _NUMPY_SIZES.get((self.detail.get("header"), self.detail.get("object")))
            if self.detail.get("wanted"):
                wants = read_patterns()["numpy-api"].get(str(int(self.detail["wanted"], 16)))
            return [self._pip(wants, note="as the package was compiled")] if wants else []
        if wants == "jax's plug-in":
            return self._jax_plugin()
        if wants == "flash-attn":
            text = "FLASH_ATTENTION_FORCE_BUILD=TRUE pip install --force-reinstall --no-deps --no-cache-dir "
            return [Command("pip", text + "--no-build-isolation flash-attn", "compiles it for this PyTorch")]
        return [self._pip(wants)] if wants else []

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


def serves(row, capability):
    """Whether a build holds code for a compute capability, by its own list or by its CUDA version."""
    wanted = capability[:2]
    if wanted < (5, 0) and (wanted < (3, 7) or numbers(row["latest"]) >= (2,)):
        # PyTorch's wheels hold sm_37 and nothing older, and serve it up to 1.13:
        # https://github.com/AUTOMATIC1111/stable-diffusion-webui/issues/9589
        return False
    if row["archs"]:
        found = re.findall(r"\b(sm|compute)_(\d+)(\d)\b", " ".join(row["archs"]))
        have = [(kind, (int(major), int(minor))) for kind, major, minor in found]
        return any(h <= wanted and (h[0] == wanted[0] or kind == "compute") for kind, h in have)
    cuda = numbers(row["cuda"])
    return bool(cuda) and card_within(cuda, wanted)


def card_within(cuda, capability):
    """Whether a CUDA version can make machine code for a compute capability."""
    rows = read_patterns()["first-cuda"].items()
    first = next((numbers(first) for floor, first in rows if capability[:2] >= numbers(floor)), (0,))
    _, oldest, _ = read_facts()["cuda"].get(str(cuda[0]), (None, "3.0", None))
    return cuda[:2] >= first and capability[:2] >= numbers(oldest or "3.0")
