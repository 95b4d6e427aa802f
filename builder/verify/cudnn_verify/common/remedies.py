"""The commands that mend a cause here: for this CUDA, these versions, this card, this driver, this place.

``here`` is a :class:`~text_facts.TextFacts`, read out of a text, or what the probe measured in the same form;
``detail`` holds what is known of the fault itself: versions (``loaded``, ``compiled``), a library's name
(``library``), a path. A command is named only if every part of it is known.
"""

import re
from shlex import quote

from .causes import commands_by_place, remedy_at
from .distributions import cudnn_wheels
from .framework_remedies import CTRANSLATE2, ONNXRUNTIME, PRELOAD_DLLS, Command, FrameworkRemedies, serves
from .tables import cuda_package, cudnn_of_torch, read_patterns
from .versions import dotted, numbers

_LINK_LIBCUDA = (
    "ln -s libcuda.so.1 "
    '"$(dirname "$(ldconfig -p | awk \'/libcuda.so.1 .*x86-64/ {print $NF; exit}\')")/libcuda.so" && ldconfig'
)
_VALUE = re.compile(r"\{(\w+)\}")
_MEMORY = {"tensorflow": "TF_FORCE_GPU_ALLOW_GROWTH=true", "jax": "XLA_PYTHON_CLIENT_PREALLOCATE=false"}
_WHEEL_STEMS = {"cudart": "cuda-runtime", "nvrtc": "cuda-nvrtc", "nvjitlink": "nvjitlink"}


class Remedies(FrameworkRemedies):
    """Commands by cause, for the facts that are known here."""

    def commands(self, cause):
        """The commands for a cause id, the best first; [] if none is known."""
        make = getattr(self, "_" + cause.replace("-", "_"), None)
        found = make() if make else self._written(cause)
        if not any("uninstall" in command.text for command in found):
            found = [command for command in found if not self._done(command)]
        if "windows" in self.here.places:
            kinds = ("pip", "conda", "docker", "rtbuild", "notebook")
            found = [c for c in found if c.where in kinds or c.text.startswith("nvidia-smi")]
        if "jetson" in self.here.places:  # no index has wheels with CUDA for it
            found = [c for c in found if c.where != "pip" or re.search(r"numpy|protobuf", c.text)]
        elif "aarch64" in self.here.places and any("onnxruntime-gpu" in c.text for c in found):
            found = []  # it is there for x86 alone: https://github.com/microsoft/onnxruntime/issues/21232
        return found

    def _written(self, cause):
        """The commands in ``causes.ini`` for what is here, but for those with a value that is not known."""
        rows, values = commands_by_place(cause, self._tags()), self._values()
        return [self._filled(row, values) for row in rows if set(_VALUE.findall(row[1])) <= set(values)]

    def _filled(self, row, values):
        where, text, note = [_VALUE.sub(lambda found: values[found.group(1)], part or "") for part in row]
        if where != "pip":
            return Command(where, text, note or None)
        options = [word + " " for word in text.split() if word.startswith("-")]
        wanted = [word for word in text.split() if not word.startswith("-")]
        return self._pip(*wanted, flags="".join(options), note=note or None)

    def _values(self):
        """The values in braces of ``causes.ini``, as far as they are known."""
        path, noexec = self.detail.get("path"), self.here.noexec
        values = {
            "variable": self.detail.get("variable"),
            "flag": self.detail.get("flag") or "the unknown flag",
            "cuda": self.cuda,
            "of_cuda": {11: "-cu11", 12: "-cu12", 13: ""}.get(self.cuda),
            "compiled": "%d.%d" % self.compiled[:2] if len(self.compiled) > 1 else None,
            "memory": _MEMORY.get(self.framework) if self.certain else None,
            "path": quote(path) if path else None,
            "noexec": quote(noexec) if noexec else None,
        }
        return {name: str(value) for name, value in values.items() if value is not None}

    def _tags(self):
        """The places here, and what else decides between the lines of ``causes.ini``."""
        line = str(self.detail.get("matched"))
        tags = {tag for tag, words in read_patterns()["tags"].items() if words in line} | self.here.places
        tags |= {"slept"} if self.here.slept else set()
        return tags | ({"shared-memory"} if self.detail.get("requirement") == "shared memory" else set())

    def _done(self, command):
        """Whether an installation would change nothing: these very versions are here."""
        pins = re.findall(r"([\w.-]+)==([\w.+-]+)", command.text)
        plain = command.where == "pip" and not re.search(r"reinstall|uninstall|<|>", command.text)
        return plain and bool(pins) and all(self.here.packages.get(name) == here for name, here in pins)

    def words(self, cause):
        """The remedy in words, with the version of cuDNN that is wanted if it is known."""
        wanted = numbers(self.detail.get("minimum")) or self.compiled
        if len(wanted) < 2 or cause not in ("cudnn-too-old", "cudnn-not-equal", "cudnn-major-mismatch"):
            return remedy_at(cause, self.here.places)
        later = " or a later %d.x" % wanted[0] if cause != "cudnn-not-equal" and wanted >= (7,) else ""
        text = "Install cuDNN %d.%d%s for the CUDA that is here" % (wanted[0], wanted[1], later)
        return text + ": NVIDIA's package libcudnn%d, or conda's cudnn=%d.%d." % (wanted[:1] + wanted[:2])

    def image(self):
        """The command for an image in which release and card fit; None for a release that is unknown."""
        unknown = not self.certain or (self.version and not self.rows)
        old = self.capability and self.capability < (5, 0)  # no base of rtbuild's has a CUDA that old
        if self.framework in (None, "paddlepaddle-gpu", "ctranslate2") or unknown or old:
            return None
        if {"jetson", "aarch64"} & self.here.places:
            return None
        minor = dotted(numbers(self.version)[:2])
        name = {"onnxruntime": "onnxruntime-gpu"}.get(self.framework, self.framework)
        served = not (self.capability and self.rows) or any(serves(row, self.capability) for row in self.rows)
        text = "rtbuild up " + ("'%s==%s.*'" % (name, minor) if minor and served else name)
        text += " --gpu %d.%d" % self.capability[:2] if self.capability else ""
        return Command("rtbuild", text, "an image in which they fit, verified")

    # -- cuDNN

    def _cudnn_pin(self):
        """The requirement on cuDNN of the framework that is here, or of the version it was compiled for."""
        for row in self.rows:
            for pin in row["pins"]:
                if self.cuda in (None, int(re.search(r"cu(\d+)", pin).group(1))):
                    major = numbers(row["cudnn"])[:1]
                    return pin if "<" in pin or "==" in pin or not major else "%s,<%d" % (pin, major[0] + 1)
        compiled = self.detail.get("compiled")
        return self.releases.cudnn_wheel(self.cuda, compiled) if self.cuda and compiled else None

    def _cudnn_too_old(self):
        wanted = numbers(self.detail.get("minimum")) or self.compiled
        if len(wanted) > 1 and "conda-packages" in self.here.places:
            text = 'conda install -c conda-forge "cudnn>=%d.%d,<%d"' % (wanted[0], wanted[1], wanted[0] + 1)
            return [Command("conda", text, "these packages are conda's")]
        pin, note = self._cudnn_pin(), "the version that the framework was built with"
        found = [self._pip(pin, note=note)] if pin else []
        if self.compiled[:2] == (8, 1) and self.cuda == 11 and self.framework == "tensorflow":
            text = "apt-get install --allow-change-held-packages libcudnn8=8.1.0.77-1+cuda11.2"
            apt = Command("apt", text, "where cuDNN is a package of the system, as on Colab")
            found = [apt] + found if "colab" in self.here.places else found + [apt]
        if len(self.compiled) > 1 and "conda" in self.here.places and not found:
            found.append(Command("conda", "conda install cudnn=%d.%d" % self.compiled[:2], None))
        return found

    def _cudnn_shadowed(self):
        if {"colab", "notebook"} & self.here.places:
            return [Command("notebook", "%env LD_LIBRARY_PATH=", "before the first import; then restart")]
        path = self.here.library_path
        note = "it leads to %s" % path if path else "then start the program anew in this shell"
        return [Command("shell", "unset LD_LIBRARY_PATH", note)]

    _driver_stub = _cudnn_shadowed

    def _cudnn_missing(self):
        if self.framework in ("ctranslate2", "onnxruntime"):
            return getattr(self, "_" + self.framework)()
        extra = {"tensorflow": "and-cuda", "jax": self.cuda and "cuda%d" % self.cuda}.get(self.framework)
        version, _, local = (self.version or "").partition("+")
        if extra and self.rows and self.rows[0].get("brings") in ("extra", "pins"):
            return [self._pip("%s[%s]==%s" % (self.framework, extra, version))]
        if self.framework == "torch" and version:
            return [self._torch_of(version, local)]
        pin = self._cudnn_pin()
        return [self._pip(pin)] if pin else []

    def _cudnn_major_mismatch(self):
        if self.framework in ("ctranslate2", "onnxruntime"):
            return getattr(self, "_" + self.framework)()
        return self._cudnn_too_old() or self._cudnn_missing()

    def _cudnn_sublibrary_missing(self):
        if self.framework == "ctranslate2":
            return self._ctranslate2()
        return self._cudnn_again() or self._cudnn_missing()

    def _cudnn_again(self):
        """The cuDNN wheel that is here, installed anew as a whole."""
        wheels = cudnn_wheels(self.here.packages).items()
        wheels = [name for name, cuda in wheels if self.cuda in (None, cuda)]
        pin = "%s==%s" % (wheels[0], self.here.packages[wheels[0]]) if wheels else self._cudnn_pin()
        return [self._pip(pin, flags="--force-reinstall --no-deps ")] if pin else []

    _cudnn_file_corrupt = _cudnn_again
    _cudnn_cuda_flavour = _cudnn_again

    def _cudnn_sublibrary_mismatch(self):
        if self.here.system_cudnn:
            text = "sudo apt-get remove 'libcudnn*'"
            return [Command("apt", text, "parts are taken from the system's cuDNN")]
        return self._cudnn_again() + ([] if "windows" in self.here.places else self._cudnn_shadowed())

    def _cudnn_arch_dropped(self):
        if self.framework == "torch":
            return self._framework_arch_missing()
        if self.cuda in (11, 12) and (self.capability or (0,)) >= (5, 0):
            note = "the last for compute capability below 7.5"
            return [self._pip("nvidia-cudnn-cu%d==9.10.2.21" % self.cuda, flags="--no-deps ", note=note)]
        return []

    def _ctranslate2(self):
        """CTranslate2 4.5 and later need cuDNN 9, earlier ones 8: https://github.com/OpenNMT/CTranslate2/blob/master/CHANGELOG.md"""
        if not self.certain:
            return []
        wanted = 9 if numbers(self.detail.get("major") or "")[:1] == (9,) else 8
        brought = cudnn_of_torch(self.here.packages)
        here = (self.here.cudnn_majors() | ({8} if brought == 8 else set())) - {wanted}
        nine = 9 in here or brought == 9
        if "colab" in self.here.places or wanted == 8 and (nine or not here):
            return [self._pip(CTRANSLATE2, note="uses no cuDNN from 4.6.3 on")]
        if nine or wanted in self.here.cudnn_majors():
            code = "import nvidia.cudnn; print(list(nvidia.cudnn.__path__)[0])"
            note = "so that the cuDNN 9 in the wheel is found; then start the program"
            return [Command("shell", "export LD_LIBRARY_PATH=$(python3 -c '%s')/lib" % code, note)]
        if 8 in here:
            return [self._pip("ctranslate2==4.4.0", note="built for cuDNN 8, which is here")]
        return []

    def _onnxruntime(self):
        """From 1.21 on the extras of onnxruntime-gpu bring CUDA and cuDNN; up to 1.26 those of CUDA 12."""
        return [self._pip(ONNXRUNTIME, note=PRELOAD_DLLS)] if self._driver_serves((12, 0)) else []

    # -- CUDA's libraries

    def _library(self):
        """("cublas", "12") for a ``libcublasLt.so.12`` that was not found."""
        found = re.match(r"lib(\w+?)(?:Lt|Mg|w)?\.so\.?([\d.]*)", str(self.detail.get("library") or ""))
        return (found.group(1).lower(), found.group(2)) if found else ("", "")

    def library_major(self):
        """The CUDA major of the library that was not found; None if its name does not tell."""
        stem, number = self._library()
        known = dict(pair.split(":") for pair in read_patterns()["sonames"].get(stem, "").split())
        return int(known[number]) if number in known else None

    def _toolkit_library_missing(self):
        major = self.library_major() or self.cuda
        if "cupy" in self.here.printed_by:
            return self._cupy(major)
        if self.framework == "onnxruntime" and self.version and major in (11, 12):
            return self._onnxruntime()
        if self.framework == "ctranslate2" and self.certain:
            return self._ctranslate2_cuda(numbers(self.detail.get("number"))[:1])
        note, stem = "%s is of CUDA %s" % (self.detail.get("library"), major), self._library()[0]
        if major not in (11, 12, 13) or stem not in read_patterns()["sonames"]:
            return []
        if self.framework == "onnxruntime":
            note += "; it is found once its folder is on LD_LIBRARY_PATH"
        return [self._pip(cuda_package(_WHEEL_STEMS.get(stem, stem), major), note=note)]

    def _ctranslate2_cuda(self, wanted):
        """CTranslate2 3 is built for CUDA 11 and 4 for CUDA 12; neither looks into NVIDIA's wheels:
        https://github.com/SYSTRAN/faster-whisper#gpu
        """
        if wanted == (11,) and self.cuda != 11 and self._driver_serves((12, 0)):
            users = sorted({"faster-whisper", "whisper-ctranslate2"} & set(self.here.printed_by))
            return [self._pip(*users + [CTRANSLATE2], flags="--upgrade ", note="built for CUDA 12")]
        if wanted == (12,) and self.cuda == 11:
            return [self._pip("ctranslate2==3.24.0", note="the last for CUDA 11, as the other packages are")]
        if wanted != (12,) or {"windows", "notebook", "colab"} & self.here.places:
            return []
        code = "import nvidia.cublas; print(list(nvidia.cublas.__path__)[0])"
        text = "export LD_LIBRARY_PATH=$(python3 -c '%s')/lib:$LD_LIBRARY_PATH" % code
        there = Command("shell", text, "then start the program in this shell")
        return [self._pip("nvidia-cublas-cu12"), there]

    def _toolkit_mixed(self):
        major = self.library_major()
        cupy = any(name.startswith("cupy") for name in list(self.here.packages) + list(self.here.printed_by))
        if cupy and major and self.cuda and major != self.cuda:
            text = "pip uninstall -y cupy-cuda%dx && pip install cupy-cuda%dx" % (self.cuda, major)
            return [Command("pip", text, "the build for the CUDA that is found here")]
        named = major or "dlerror" in str(self.detail.get("matched"))
        return [] if named and not self.here.library_path else self._cudnn_shadowed()

    def _cupy(self, major):
        """From 14 on CuPy finds the CUDA of NVIDIA's wheels; before, only the one on the loader's path."""
        if major not in (12, 13) or (numbers(self.here.python) or (3, 10)) < (3, 10):
            return []
        return [self._pip("cupy-cuda%dx[ctk]>=14" % major, note="CuPy with all of CUDA that it needs")]

    def _nvrtc_missing(self):
        if re.search(r"undefined symbol", str(self.detail.get("line") or "")):
            return self._cudnn_shadowed()
        named = re.match(r"libnvrtc\.so\.(\d+)", str(self.detail.get("library") or ""))
        if "cupy" in self.here.printed_by:
            return self._cupy(int(named.group(1))) if named else []
        name = cuda_package("cuda-nvrtc", self.cuda or 0)
        return [self._pip(name, flags="--force-reinstall --no-deps ")] if self.cuda in (11, 12, 13) else []

    def _unversioned_name_missing(self):
        if "libcuda" not in str(self.detail.get("line") or "libcuda"):
            return []
        text, note = _LINK_LIBCUDA, "as root"
        if "wsl" in self.here.places:
            text = "export LD_LIBRARY_PATH=/usr/lib/wsl/lib:$LD_LIBRARY_PATH"
            note = "WSL keeps the driver there"
        elif "colab" in self.here.places:
            text = "echo /usr/lib64-nvidia > /etc/ld.so.conf.d/nvidia.conf && ldconfig"
            note = "Colab keeps the driver there"
        return [Command("shell", text, note)]
