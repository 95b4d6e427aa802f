"""The commands that mend a cause here: for this CUDA, these versions, this card, this driver, this place.

``here`` is a :class:`~told.Told`, read out of a text, or what the probe measured in the same form; ``detail``
holds what is known of the fault itself: versions (``loaded``, ``compiled``), a library's name (``library``),
a path. A command is named only where every part of it is known; otherwise there is none.
"""

import re
from collections import namedtuple

from .data import Releases
from .versions import numbers

# where: pip, apt, conda, docker, shell, notebook or rtbuild
Command = namedtuple("Command", "where text note")

_EXTRAS = {"tensorflow": "tensorflow[and-cuda]", "jax": "jax[cuda%d]"}
# The first CUDA with machine code for a compute capability, by NVIDIA's release notes:
# https://docs.nvidia.com/cuda/cuda-toolkit-release-notes/index.html
_FIRST_CUDA = (
    ((12, 0), (12, 8)),
    ((10, 0), (12, 8)),
    ((9, 0), (11, 8)),
    ((8, 9), (11, 8)),
    ((8, 6), (11, 1)),
    ((8, 0), (11, 0)),
    ((7, 5), (10, 0)),
    ((7, 0), (9, 0)),
)
# CUDA's major version by the number in a library's name: each library counts by itself.
_SONAMES = {
    "cublas": {"13": 13, "12": 12, "11": 11, "10": 10, "10.0": 10, "9.0": 9},
    "cudart": {"13": 13, "12": 12, "11.0": 11, "10.0": 10, "10.1": 10, "10.2": 10, "9.0": 9},
    "cufft": {"12": 13, "11": 12, "10": 11, "10.0": 10, "9.0": 9},
    "curand": {"10": None, "10.0": 10, "9.0": 9},
    "cusolver": {"12": 13, "11": None, "10": 11, "10.0": 10, "9.0": 9},
    "cusparse": {"12": None, "11": 11, "10": 10, "10.0": 10, "9.0": 9},
    "nvjitlink": {"13": 13, "12": 12},
}
_LINK_LIBCUDA = (
    "ln -s libcuda.so.1 "
    '"$(dirname "$(ldconfig -p | awk \'/libcuda.so.1 .*x86-64/ {print $NF; exit}\')")/libcuda.so" && ldconfig'
)
_WHEEL_STEMS = {"cudart": "cuda-runtime", "nvrtc": "cuda-nvrtc", "nvjitlink": "nvjitlink"}


class Remedies(object):
    """Commands by cause, out of what is known here."""

    def __init__(self, here, detail=None, systems=()):
        self.here, self.detail, self.releases = here, detail or {}, Releases()
        self.framework, self.version = self._framework(systems)
        self.cuda = self._cuda_major()

    def commands(self, cause):
        """The commands for a cause id, the best first; [] where none is known."""
        make = getattr(self, "_" + cause.replace("-", "_"), None)
        found = make() if make else []
        if "windows" in self.here.places:
            found = [c for c in found if c.where in ("pip", "conda", "docker", "rtbuild", "notebook")]
        return found

    def image(self):
        """The command for an image in which release and card fit; None for a release that is unknown."""
        name = {"paddlepaddle-gpu": None, "ctranslate2": None}.get(self.framework, self.framework)
        if name is None or (self.version and not self._rows(self.version)):
            return None
        minor = ".".join(str(part) for part in numbers(self.version)[:2])
        capability = self._capability()
        if capability and capability < (5, 0):
            return None  # no base of rtbuild's has a CUDA that old
        wanted = "'%s==%s.*'" % (name, minor) if minor and not self._unserved() else name
        text = "rtbuild up " + {"onnxruntime": "onnxruntime-gpu"}.get(wanted, wanted)
        text += " --gpu %d.%d" % capability[:2] if capability else ""
        return Command("rtbuild", text, "an image in which they fit, verified")

    def _unserved(self):
        """Whether no build of this very release has code for the card."""
        capability = self._capability()
        rows = self._rows(self.version)
        return bool(capability and rows) and not any(serves(row, capability) for row in rows)

    def _framework(self, systems):
        known = ("torch", "tensorflow", "jax", "onnxruntime", "ctranslate2", "cupy", "paddlepaddle-gpu")
        alias = {"pytorch": "torch", "paddle": "paddlepaddle-gpu"}
        wanted = [alias.get(name, name) for name in systems]
        present = [name for name in known if name in self.here.packages]
        if "jaxlib" in self.here.packages and "jax" not in present:
            present.append("jax")
        both = [name for name in present if name in wanted] or ([] if wanted else present)
        name = both[0] if both else next((name for name in wanted if name in known), None)
        return name, self.here.packages.get(name) or (
            self.here.packages.get("jaxlib") if name == "jax" else None
        )

    def _rows(self, version=None):
        name = {"onnxruntime": "onnxruntime-gpu"}.get(self.framework, self.framework)
        return self.releases.builds(name, (version or "").partition("+")[0] or None) if name else []

    def _cuda_major(self):
        """The CUDA major version that the packages here are built for; None where that is not certain."""
        majors = set(self.here.cuda_majors)
        if len(majors) == 1:
            return majors.pop()
        rows = self._rows(self.version) if self.version else []
        compiled = numbers(self.detail.get("compiled"))
        if not rows and len(compiled) > 1:
            rows = [row for row in self._rows() if numbers(row["cudnn"])[:2] == compiled[:2]]
        majors = {numbers(row["cuda"])[0] for row in rows if row["cuda"]}
        return majors.pop() if len(majors) == 1 else None

    # -- cuDNN

    def _cudnn_pin(self):
        """The requirement on cuDNN of the framework that is here, or of the version it was compiled for."""
        for row in self._rows(self.version) if self.version else []:
            for pin in row["pins"]:
                if self.cuda in (None, int(re.search(r"cu(\d+)", pin).group(1))):
                    return pin
        compiled = self.detail.get("compiled")
        return self.releases.cudnn_wheel(self.cuda, compiled) if self.cuda and compiled else None

    def _pip(self, *requirements, **options):
        text = "pip install " + options.get("flags", "")
        quoted = ['"%s"' % r if re.search(r"[<>\[;,]", r) else r for r in requirements]
        return Command("pip", text + " ".join(quoted), options.get("note"))

    def _cudnn_too_old(self):
        found = []
        pin = self._cudnn_pin()
        if pin:
            found.append(self._pip(pin, note="the version that the framework was built with"))
        compiled = numbers(self.detail.get("compiled"))
        if compiled[:2] == (8, 1) and self.cuda == 11 and self.framework == "tensorflow":
            text = "apt-get install --allow-change-held-packages libcudnn8=8.1.0.77-1+cuda11.2"
            apt = Command("apt", text, "where cuDNN is a package of the system, as on Colab")
            found = [apt] + found if "colab" in self.here.places else found + [apt]
        if len(compiled) > 1 and "conda" in self.here.places and not found:
            found.append(Command("conda", "conda install cudnn=%d.%d" % compiled[:2], None))
        return found

    def _cudnn_not_equal(self):
        compiled = numbers(self.detail.get("compiled"))
        if len(compiled) < 2:
            return []
        return [
            Command("conda", "conda install cudnn=%d.%d" % compiled[:2], "exactly the compiled minor version")
        ]

    def _cudnn_shadowed(self):
        if "container" in self.here.places and "image" in self.here.places:
            return [Command("docker", "ENV LD_LIBRARY_PATH=", "in the Dockerfile")]
        path = self.here.library_path
        note = "it leads to %s" % path if path else "then start the program anew in this shell"
        if "colab" in self.here.places or "notebook" in self.here.places:
            return [Command("notebook", "%env LD_LIBRARY_PATH=", "before the first import; then restart")]
        return [Command("shell", "unset LD_LIBRARY_PATH", note)]

    def _cudnn_missing(self):
        if self.framework == "ctranslate2":
            return self._ctranslate2()
        if self.framework == "onnxruntime":
            return self._onnxruntime()
        if self.framework in _EXTRAS and self.version:
            extra = _EXTRAS[self.framework]
            if "%d" in extra:
                extra = extra % self.cuda if self.cuda else None
            row = next(iter(self._rows(self.version)), {})
            if extra and row.get("brings") in ("extra", "pins"):
                return [self._pip("%s==%s" % (extra, self.version.partition("+")[0]))]
        if self.framework == "torch" and self.version:
            return [self._torch_again()]
        pin = self._cudnn_pin()
        return [self._pip(pin)] if pin else []

    def _cudnn_major_mismatch(self):
        if self.framework == "ctranslate2":
            return self._ctranslate2()
        if self.framework == "onnxruntime":
            return self._onnxruntime()
        return self._cudnn_too_old() or self._cudnn_missing()

    def _cudnn_sublibrary_missing(self):
        if self.framework == "ctranslate2":
            return self._ctranslate2()
        return self._cudnn_again() or self._cudnn_missing()

    def _cudnn_again(self):
        """The cuDNN wheel that is here, installed anew as a whole."""
        for name, version in sorted(self.here.packages.items()):
            if re.match(r"nvidia-cudnn-cu\d+$", name) and self.cuda in (None, int(name.rpartition("cu")[2])):
                return [self._pip("%s==%s" % (name, version), flags="--force-reinstall --no-deps ")]
        pin = self._cudnn_pin()
        return [self._pip(pin, flags="--force-reinstall --no-deps ")] if pin else []

    _cudnn_file_corrupt = _cudnn_again
    _cudnn_cuda_flavour = _cudnn_again

    def _cudnn_sublibrary_mismatch(self):
        found = self._cudnn_again()
        return found + ([] if "windows" in self.here.places else self._cudnn_shadowed())

    def _cudnn_known_bad(self):
        name = "nvidia-cudnn-cu%s" % self.cuda if self.cuda else None
        return [self._pip(name + ">=9.10.1,<10", flags="--no-deps ")] if name else []

    def _cudnn_arch_dropped(self):
        if self.framework == "torch":
            return self._framework_arch_missing()
        if self.cuda in (11, 12) and self._capability() and self._capability() >= (5, 0):
            return [
                self._pip(
                    "nvidia-cudnn-cu%d==9.10.2.21" % self.cuda,
                    flags="--no-deps ",
                    note="the last for compute capability below 7.5",
                )
            ]
        return []

    def _ctranslate2(self):
        """CTranslate2 4.5 and later need cuDNN 9, earlier ones 8: https://github.com/OpenNMT/CTranslate2/blob/master/CHANGELOG.md"""
        wanted = 9 if numbers(self.detail.get("major") or "")[:1] == (9,) else 8
        here = self.here.cudnn_majors() - {wanted}
        nine = 9 in here or numbers(self.here.packages.get("torch", ""))[:2] >= (2, 4)
        if wanted == 8 and (nine or "colab" in self.here.places or not here):
            return [self._pip("ctranslate2>=4.5,<5", note="built for cuDNN 9, which must be here")]
        if nine or wanted in self.here.cudnn_majors():
            code = "import nvidia.cudnn; print(list(nvidia.cudnn.__path__)[0])"
            text = "export LD_LIBRARY_PATH=$(python3 -c '%s')/lib" % code
            return [
                Command("shell", text, "so that the cuDNN 9 in the wheel is found; then start the program")
            ]
        if 8 in here:
            return [self._pip("ctranslate2==4.4.0", note="built for cuDNN 8, which is here")]
        return []

    def _onnxruntime(self):
        """From 1.21 on the extras of onnxruntime-gpu bring CUDA and cuDNN; up to 1.26 those of CUDA 12."""
        if not self.detail.get("major") or not self._driver_serves((12, 0)):
            return []
        note = "then call onnxruntime.preload_dlls() before the first session"
        return [self._pip("onnxruntime-gpu[cuda,cudnn]>=1.21,<1.27", note=note)]

    # -- CUDA's libraries

    def _toolkit_library_missing(self):
        library = str(self.detail.get("library") or "")
        found = re.match(r"lib(\w+?)(?:Lt|Mg|w)?\.so\.?([\d.]*)", library)
        stem = found.group(1).lower() if found else ""
        major = _SONAMES.get(stem, {}).get(found.group(2)) if found else None
        major = major or self.cuda
        note = "%s is of CUDA %s" % (library, major)
        if self.framework == "onnxruntime":
            note += "; it is found once its folder is on LD_LIBRARY_PATH, or after onnxruntime.preload_dlls()"
        if major not in (11, 12, 13) or (stem not in _SONAMES):
            return []
        return [self._pip(cuda_package(_WHEEL_STEMS.get(stem, stem), major), note=note)]

    def _toolkit_mixed(self):
        return self._cudnn_shadowed()

    def _nvrtc_missing(self):
        if re.search(r"undefined symbol", str(self.detail.get("line") or "")):
            return self._cudnn_shadowed()
        if self.cuda not in (11, 12, 13):
            return []
        return [self._pip(cuda_package("cuda-nvrtc", self.cuda), flags="--force-reinstall --no-deps ")]

    def _unversioned_name_missing(self):
        if "libcuda" not in str(self.detail.get("line") or "libcuda"):
            return []
        if "wsl" in self.here.places:
            return [
                Command(
                    "shell",
                    "export LD_LIBRARY_PATH=/usr/lib/wsl/lib:$LD_LIBRARY_PATH",
                    "WSL keeps the driver there",
                )
            ]
        if "colab" in self.here.places:
            return [
                Command(
                    "shell",
                    "echo /usr/lib64-nvidia > /etc/ld.so.conf.d/nvidia.conf && ldconfig",
                    "Colab keeps the driver there",
                )
            ]
        return [
            Command(
                "shell",
                _LINK_LIBCUDA,
                "as root",
            )
        ]

    def _ptxas_missing(self):
        if "conda" in self.here.places:
            return [Command("conda", "conda install -c nvidia cuda-nvcc", None)]
        if self.cuda not in (11, 12, 13):
            return []
        return [
            self._pip(
                cuda_package("cuda-nvcc", self.cuda),
                note="and XLA_FLAGS=--xla_gpu_cuda_data_dir=FOLDER where it is still not found",
            )
        ]

    # -- framework and card

    def _capability(self):
        return numbers(self.here.capability) or None

    def _framework_arch_missing(self):
        capability = self._capability()
        if self.framework != "torch" or capability is None:
            return []
        row = self._nearest_torch(capability)
        return [self._torch(row, "has code for compute capability %d.%d" % capability[:2])] if row else []

    def _nearest_torch(self, capability):
        """Another build of the release that is here; else the newest release that has one."""
        return (self.version and self.torch_row(capability, self.version)) or self.torch_row(capability)

    def torch_row(self, capability=None, version=None):
        """The newest PyTorch with code for a card, for this driver and Python; None where none is known."""
        for row in self._rows(version):
            cuda = numbers(row["cuda"])
            here = row["variant"] and row["variant"] == (self.version or "").partition("+")[2]
            if here or not (cuda and self._driver_serves(cuda) and self._python_serves(row)):
                continue
            if capability is None or serves(row, capability):
                return row
        return None

    def _driver_known(self):
        return bool(numbers(self.here.driver) or numbers(self.here.driver_cuda))

    def _driver_serves(self, cuda):
        if not self._driver_known():
            return cuda[0] < 13
        api = numbers(self.here.driver_cuda)
        if api:
            return api[0] >= cuda[0]
        floor = numbers((self.releases.families.get(str(cuda[0])) or {}).get("driver"))
        return bool(floor) and numbers(self.here.driver) >= floor

    def _python_serves(self, row):
        python = numbers(self.here.python)
        return not python or numbers(row["python"][0]) <= python <= numbers(row["python"][1])

    def _torch(self, row, note):
        index = "" if row["default"] else " --index-url https://download.pytorch.org/whl/%s" % row["variant"]
        return Command("pip", "pip install --force-reinstall torch==%s%s" % (row["latest"], index), note)

    def _torch_again(self):
        version, _, local = self.version.partition("+")
        index = " --index-url https://download.pytorch.org/whl/%s" % local if local.startswith("cu") else ""
        return Command("pip", "pip install --force-reinstall torch==%s%s" % (version, index), None)

    def _framework_cpu_build(self):
        if self.framework == "torch":
            row = self._nearest_torch(self._capability())
            return [self._torch(row, "a build with CUDA %s" % row["cuda"])] if row else []
        if self.framework == "jax":
            serves_13 = self._driver_known() and self._driver_serves((13, 0))
            return [self._pip("jax[cuda%d]" % (13 if serves_13 else 12), flags="--upgrade ")]
        if self.framework == "tensorflow":
            uninstall = Command("pip", "pip uninstall -y tensorflow-cpu", None)
            mend = self._pip("tensorflow[and-cuda]")
            return [uninstall, mend] if "tensorflow-cpu" in self.here.packages else [mend]
        if self.framework == "onnxruntime":
            return [
                Command("pip", "pip uninstall -y onnxruntime onnxruntime-gpu", "both own the same folder"),
                self._pip("onnxruntime-gpu[cuda,cudnn]"),
            ]
        return []

    def _package_overwritten(self):
        if self.framework == "onnxruntime":
            return self._framework_cpu_build()
        names = sorted(n for n in self.here.packages if re.match(r"nvidia-cudnn-cu\d+$", n))
        keep = "nvidia-cudnn-cu%s" % self.cuda if self.cuda else None
        if keep not in names:
            return []
        wanted = self._cudnn_pin()
        if not wanted or "==" not in wanted:
            wanted = "%s==%s" % (keep, self.here.packages[keep])
        return [
            Command("pip", "pip uninstall -y %s" % " ".join(names), "all of them: they own the same files"),
            self._pip(wanted, flags="--no-deps "),
        ]

    def _package_pin_mismatch(self):
        wants = self.detail.get("wants")
        if wants:
            return [self._pip(re.sub(r"[ ()]", "", wants), flags="--no-deps ")]
        pin = self._cudnn_pin()
        return [self._pip(pin)] if pin else []

    # -- the machine

    def _driver_too_old(self):
        if self.framework != "torch" or not self._driver_known():
            return []
        row = self._nearest_torch(self._capability())
        if row is None:
            return []
        text = "without a new driver: a build for CUDA %s, which this driver serves" % row["cuda"]
        return [self._torch(row, text)]

    def _driver_missing(self):
        if "colab" in self.here.places:
            return [Command("notebook", "Runtime > Change runtime type > GPU", "this runtime has no GPU")]
        if "container" in self.here.places:
            return self._container_no_gpu()
        return [
            Command(
                "shell",
                "nvidia-smi",
                "shows whether a driver is there at all; NVIDIA's driver has to be installed on the host",
            )
        ]

    def _container_no_gpu(self):
        return [
            Command("docker", "docker run --rm --gpus all IMAGE nvidia-smi", None),
            Command(
                "shell",
                "sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart docker",
                "where Docker refuses: after nvidia-container-toolkit is installed",
            ),
        ]

    def _no_device(self):
        if "colab" in self.here.places:
            return [Command("notebook", "Runtime > Change runtime type > GPU", "this runtime has no GPU")]
        if "container" in self.here.places:
            return [Command("docker", "docker run --rm --gpus all IMAGE nvidia-smi", None)]
        return [Command("shell", "nvidia-smi -L", "must list a card")]

    def _device_hidden(self):
        return [Command("shell", "unset CUDA_VISIBLE_DEVICES", None)]

    def _driver_library_mismatch(self):
        if "container" in self.here.places:
            return [
                Command(
                    "docker",
                    "docker rm -f CONTAINER, then docker run it anew",
                    "it holds the library of the driver before",
                )
            ]
        return [
            Command(
                "shell",
                "sudo reboot",
                "or: sudo rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia && sudo modprobe nvidia",
            )
        ]

    def _driver_stub(self):
        return self._cudnn_shadowed()

    def _compat_unsupported(self):
        return []

    def _device_node_missing(self):
        return [
            Command("shell", "sudo nvidia-modprobe -u -c=0", "on the host; then start the container anew")
        ]

    def _fabric_not_ready(self):
        return [Command("shell", "sudo systemctl start nvidia-fabricmanager", "on the host")]

    def _device_busy(self):
        return [Command("shell", "sudo nvidia-smi -c 0", "back to the default compute mode")]

    def _out_of_memory(self):
        variables = {
            "tensorflow": "TF_FORCE_GPU_ALLOW_GROWTH=true",
            "jax": "XLA_PYTHON_CLIENT_PREALLOCATE=false",
        }
        found = [
            Command(
                "shell", "nvidia-smi", "shows who holds the memory; end that process, or restart its kernel"
            )
        ]
        variable = variables.get(self.framework)
        if variable:
            notebook = {"colab", "notebook"} & self.here.places
            text = "%env " + variable if notebook else "export " + variable
            found.insert(
                0, Command("notebook" if notebook else "shell", text, "before the framework is imported")
            )
        return found


def cuda_package(stem, major):
    """NVIDIA's name of a wheel: from CUDA 13 on without ``-cuNN``."""
    return "nvidia-%s" % stem if major >= 13 else "nvidia-%s-cu%d" % (stem, major)


def serves(row, capability):
    """Whether a build holds code for a compute capability, by its own list or by its CUDA version."""
    wanted = capability[:2]
    if row["archs"]:
        for name in row["archs"]:
            found = re.match(r"(sm|compute)_(\d+)(\d)$", name)
            have = (int(found.group(2)), int(found.group(3))) if found else None
            if have and have <= wanted and (have[0] == wanted[0] or found.group(1) == "compute"):
                return True
        return False
    cuda = numbers(row["cuda"])
    if wanted < (5, 0) and (wanted < (3, 7) or numbers(row["latest"]) >= (2,)):
        return False  # PyTorch's wheels hold sm_37 up to 1.13, and nothing older
    return bool(cuda) and card_within(cuda, wanted)


def card_within(cuda, capability):
    """Whether a CUDA version can make machine code for a compute capability."""
    first = next((first for floor, first in _FIRST_CUDA if capability[:2] >= floor), (0,))
    last = {11: (3, 5), 12: (5, 0), 13: (7, 5)}.get(cuda[0], (3, 0))
    return cuda[:2] >= first and capability[:2] >= last
