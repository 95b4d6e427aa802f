"""The commands for driver, card and packages of frameworks; arguments as of ``Remedies``."""

import re

from .builds import Builds, Command
from .causes import commands_by_place
from .distributions import cudnn_wheels
from .versions import dotted, numbers

ONNXRUNTIME = "onnxruntime-gpu[cuda,cudnn]>=1.21,<1.27"
PRELOAD_DLLS = "then call onnxruntime.preload_dlls() before the first session"


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

    def _driver_missing(self):
        line, places = str(self.detail.get("matched") or ""), set(self.here.places)
        if "nvidia-container-cli" in line:
            places -= {"container"}
        found = [Command(*row) for row in commands_by_place("driver-missing", places)]
        if "driver not loaded" in line and "colab" not in places:
            found = [row._replace(text="sudo modprobe nvidia && nvidia-smi") for row in found[:1]]
        return found

    def _device_access_denied(self):
        if "Failed to initialize NVML" not in str(self.detail.get("matched")):
            return []
        note = (
            "until the next `systemctl daemon-reload`; --device=/dev/nvidia0 and so on in docker run keeps it"
        )
        return [Command("docker", "docker restart CONTAINER", note)]

    def _driver_error(self):
        if not self.here.slept:
            return []
        text = "sudo modprobe -r nvidia_uvm && sudo modprobe nvidia_uvm"
        return [Command("shell", text, "after programs that use the card have ended")]

    def _out_of_memory(self):
        variable = {
            "tensorflow": "TF_FORCE_GPU_ALLOW_GROWTH=true",
            "jax": "XLA_PYTHON_CLIENT_PREALLOCATE=false",
        }.get(self.framework if self.certain else None)
        note = "shows who holds the memory; end that process, or restart its kernel"
        found = [Command("shell", "nvidia-smi", note)]
        if variable:
            notebook = {"colab", "notebook"} & self.here.places
            where, text = ("notebook", "%env " + variable) if notebook else ("shell", "export " + variable)
            found.insert(0, Command(where, text, "before the framework is imported"))
        return found

    def _framework_arch_missing(self):
        capability = self._capability()
        if self.framework != "torch" or capability is None:
            return []
        row = self._nearest_torch(capability)
        return [self._torch(row, "has code for compute capability %d.%d" % capability[:2])] if row else []

    def _torch(self, row, note):
        variant = None if row["default"] else row["variant"]
        if row["default"] and "windows" in self.here.places:
            variant = "cu" + "".join(str(part) for part in numbers(row["cuda"])[:2])  # PyPI's have no CUDA
        text = "pip install --force-reinstall torch==" + row["latest"]
        return Command("pip", text + torch_index(variant), note)

    def _torch_again(self):
        version, _, local = self.version.partition("+")
        return Command("pip", "pip install --force-reinstall torch==" + version + torch_index(local), None)

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
        return []

    def _package_overwritten(self):
        if self.framework == "onnxruntime":
            return self._framework_cpu_build()
        names = list(cudnn_wheels(self.here.packages))
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
        wants = self.detail.get("requirement")
        if wants == "torchvision":
            return self._torchvision()
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
