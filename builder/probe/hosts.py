"""Commands for what lies in the machine: driver, devices, container set-up, memory."""

from .builds import Builds, Command

_COLABS_OWN = "brings back the packages that fit Colab's driver; then leave out the line that replaced them"


class HostRemedies(Builds):
    """Commands by cause, for the causes of the host and the session."""

    def _driver_too_old(self):
        if "colab" in self.here.places:
            return [Command("notebook", "Runtime > Disconnect and delete runtime", _COLABS_OWN)]
        if not self._driver_known():
            return []
        if (
            self.framework == "ctranslate2"
            and not self._driver_serves((12, 0))
            and self._driver_serves((11, 0))
        ):
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
        if "colab" in self.here.places:
            return [Command("notebook", "Runtime > Change runtime type > GPU", "this runtime has no GPU")]
        line = str(self.detail.get("matched") or "")
        if "container" in self.here.places and "nvidia-container-cli" not in line:
            return self._container_no_gpu()
        return [
            Command(
                "shell",
                "sudo modprobe nvidia && nvidia-smi" if "driver not loaded" in line else "nvidia-smi",
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

    def _device_access_denied(self):
        if "Failed to initialize NVML" not in str(self.detail.get("matched")):
            return []
        note = (
            "until the next `systemctl daemon-reload`; --device=/dev/nvidia0 and so on in docker run keeps it"
        )
        return [Command("docker", "docker restart CONTAINER", note)]

    def _driver_error(self):
        if not getattr(self.here, "slept", False):
            return []
        text = "sudo modprobe -r nvidia_uvm && sudo modprobe nvidia_uvm"
        return [Command("shell", text, "after programs that use the card have ended")]

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
        variable = variables.get(self.framework) if self.certain else None
        if variable:
            notebook = {"colab", "notebook"} & self.here.places
            text = "%env " + variable if notebook else "export " + variable
            found.insert(
                0, Command("notebook" if notebook else "shell", text, "before the framework is imported")
            )
        return found
