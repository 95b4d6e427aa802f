"""Which build of a framework fits here: by its release, this card, this driver and this Python."""

import re
from collections import namedtuple

from .data import known_releases
from .versions import numbers

# where: pip, apt, conda, docker, shell, notebook or rtbuild
Command = namedtuple("Command", "where text note")
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


class Builds(object):
    """The framework that is here, and its builds that the tables know; arguments as of ``Remedies``."""

    def __init__(self, here, detail=None, systems=()):
        self.here, self.detail, self.releases = here, detail or {}, known_releases()
        self.framework, self.version = self._framework(systems)
        self.certain = self.version is not None or len(systems) == 1 or self.framework in here.printed_by
        """Whether the framework is the one at hand, or only the first that prints such a text."""
        self.cuda = self._cuda_major()

    def _unserved(self):
        """Whether no build of this very release has code for the card."""
        capability = self._capability()
        rows = self._rows(self.version)
        return bool(capability and rows) and not any(serves(row, capability) for row in rows)

    def _framework(self, systems):
        known = ("torch", "tensorflow", "jax", "onnxruntime", "ctranslate2", "cupy", "paddlepaddle-gpu")
        alias = {"pytorch": "torch", "paddle": "paddlepaddle-gpu"}
        wanted = [alias.get(name, name) for name in systems]
        wanted = [name for name in wanted if name in known]
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
        rows = self._rows(self.version) if self.version else []
        compiled = numbers(self.detail.get("compiled"))
        if not rows and len(compiled) > 1:
            rows = [row for row in self._rows() if numbers(row["cudnn"])[:2] == compiled[:2]]
        majors = {numbers(row["cuda"])[0] for row in rows if row["cuda"]}
        return majors.pop() if len(majors) == 1 else None

    def _capability(self):
        return numbers(self.here.capability) or None

    def _nearest_torch(self, capability):
        """Another build of the release that is here; else the newest release that has one."""
        return (self.version and self.torch_row(capability, self.version)) or self.torch_row(capability)

    def torch_row(self, capability=None, version=None):
        """The newest PyTorch with code for a card, for this driver and Python; None if none is known."""
        for row in self._rows(version):
            cuda = numbers(row["cuda"])
            here = row["variant"] and row["variant"] == (self.version or "").partition("+")[2]
            if here or not (cuda and self._driver_serves(cuda) and self._python_serves(row)):
                continue
            if capability is None or serves(row, capability):
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
        floor = numbers((self.releases.families.get(str(cuda[0])) or {}).get("driver"))
        return bool(floor) and numbers(self.here.driver) >= floor

    def _python_serves(self, row):
        python = numbers(self.here.python)
        return not python or numbers(row["python"][0]) <= python <= numbers(row["python"][1])


def serves(row, capability):
    """Whether a build holds code for a compute capability, by its own list or by its CUDA version."""
    wanted = capability[:2]
    if wanted < (5, 0) and (wanted < (3, 7) or numbers(row["latest"]) >= (2,)):
        # PyTorch's wheels hold sm_37 and nothing older, and serve it up to 1.13:
        # https://github.com/AUTOMATIC1111/stable-diffusion-webui/issues/9589
        return False
    if row["archs"]:
        for name in row["archs"]:
            found = re.match(r"(sm|compute)_(\d+)(\d)$", name)
            have = (int(found.group(2)), int(found.group(3))) if found else None
            if have and have <= wanted and (have[0] == wanted[0] or found.group(1) == "compute"):
                return True
        return False
    cuda = numbers(row["cuda"])
    return bool(cuda) and card_within(cuda, wanted)


def card_within(cuda, capability):
    """Whether a CUDA version can make machine code for a compute capability."""
    first = next((first for floor, first in _FIRST_CUDA if capability[:2] >= floor), (0,))
    last = {11: (3, 5), 12: (5, 0), 13: (7, 5)}.get(cuda[0], (3, 0))
    return cuda[:2] >= first and capability[:2] >= last
