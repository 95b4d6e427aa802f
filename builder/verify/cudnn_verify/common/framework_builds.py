"""Which build of a framework fits here, by its release, this card, this driver and this Python."""

import re

from .tables import Releases, driver_floor, read_facts, read_frameworks, read_patterns, told_names
from .versions import numbers

_ARM_CARDS = ((11, 0), (12, 1))
"""Thor and GB10: their processor is an ARM one, their first driver is of CUDA 13."""


class FrameworkBuilds(object):
    """The framework that is here, and its builds that the tables know; arguments as of ``Remedies``."""

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
        self.guessed = not wanted and len(getattr(self.here, "named", ())) == 1
        if self.guessed:
            wanted = [name for name in self.here.named if name in known]  # the only one that a text is about
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

    def torch_release(self):
        """The release of PyTorch that belongs here, without its build: the one that is; None without one."""
        return (self.version or "").partition("+")[0] or None

    def _torch_rows(self):
        """The builds of that release, first those for the CUDA of the packages here, and that the driver is
        known to serve.
        """
        release = self.torch_release() if self.framework == "torch" else None
        rows = self._rows(release) if release else []

        def order(row):
            cuda = numbers(row["cuda"])
            return cuda[:1] != (self.cuda,), not (cuda and self.driver_serves(cuda)), not row["default"]

        return sorted(rows, key=order)

    def nearest_torch(self):
        """A PyTorch for this card, driver and Python: another build of the release that belongs here, else of
        the newest release that has one; None if none is known.
        """
        python, own = numbers(self.here.python), self._torch_rows()
        for row in own + self._rows():
            cuda, (first, last) = numbers(row["cuda"]), map(numbers, row["python"])
            here = row["variant"] and row["variant"] == (self.version or "").partition("+")[2]
            unread = row in own and not self.driver_known()
            fits = cuda and (unread or self.driver_serves(cuda)) and (not python or first <= python <= last)
            # what old builds hold as PTX is no choice for a card of today
            fits = fits and (
                not self.capability or self.capability < (10, 0) or card_within(cuda, self.capability)
            )
            if fits and not here and (self.capability is None or serves(row, self.capability)):
                return row
        return None

    def torch_has_code(self):
        """Whether the build of PyTorch that a text names has code for all cards in it: by the list that
        ``torch.cuda.get_arch_list()`` gave there, else by its variant.
        """
        listed, wanted = getattr(self.here, "arch_list", None), getattr(self.here, "capabilities", ())
        if listed and wanted:
            return all(self._listed(listed, numbers(capability)) for capability in wanted)
        release, _, variant = (self.here.packages.get("torch") or "").partition("+")
        cards = [numbers(capability) for capability in getattr(self.here, "capabilities", ())]
        rows = self.releases.builds("torch", release) if variant and cards else []
        rows = [row for row in rows if row["variant"] == variant]
        return bool(rows) and all(serves(rows[0], capability) for capability in cards)

    @staticmethod
    def _listed(listed, capability):
        """Machine code runs on the same major version with an equal or higher minor one."""
        return any(has[0] == capability[0] and has[1] <= capability[1] for has in listed)

    def driver_that_serves(self, major):
        """The driver in words if it is known and serves all of a CUDA major; None otherwise."""
        if not self.driver_known() or not self.driver_serves((major, 0)):
            return None
        return "driver %s serves CUDA %d" % (self.here.driver or "for CUDA " + self.here.driver_cuda, major)

    def driver_known(self):
        return bool(numbers(self.here.driver) or numbers(self.here.driver_cuda))

    def driver_serves(self, cuda):
        if not self.driver_known():
            return cuda[0] < 13 or self.capability in _ARM_CARDS
        api = numbers(self.here.driver_cuda)
        if api:
            # nothing newer than a driver's CUDA runs on it up to CUDA 10; from 11 on a major is one:
            # https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html
            return api[0] >= cuda[0] if cuda[0] > 10 else api >= cuda[:2]
        floor = driver_floor(cuda[0])
        return bool(floor) and numbers(self.here.driver) >= floor

    def torch_words(self, row):
        """What pip installs for a row of PyTorch's builds."""
        variant = None if row["default"] else row["variant"]
        release = self.torch_release() if row in self._torch_rows() else None
        arm = "aarch64" in self.here.places or self.capability in _ARM_CARDS
        if row["default"] and (arm or "windows" in self.here.places):
            variant = "cu" + "".join(str(part) for part in numbers(row["cuda"])[:2])  # PyPI's have no CUDA
        return self.torch_and_companions(release or row["latest"], variant)

    def torch_and_companions(self, version, variant):
        """PyTorch, with those of its companions that are here, which fit one release of it only."""
        names = [name for name in ("torchvision", "torchaudio") if name in self.here.packages]
        return ["torch==" + version] + names + torch_index(variant)

    def torchvision(self):
        """The release for the PyTorch here, patch for patch: 0.16 for 2.1, 0.14 for 1.13, and so on
        (https://github.com/pytorch/vision#installation).
        """
        parts = numbers(self.version) if self.framework == "torch" else ()
        major, minor = (parts + (0, 0))[:2]
        if major not in (1, 2) or not minor + major - 1:
            return None
        # 0.15.0 and 0.11.0 asked for a PyTorch that was never released; 0.8.1 came after 0.8.0 for the same
        # one, and 0.4.0 is for 1.2
        later = (major, minor) in ((2, 0), (1, 10), (1, 7), (1, 3))
        patch = str(parts[2] + later) if len(parts) > 2 else "*"
        return "0.%d.%s" % (minor + (15 if major == 2 else 1 if minor > 2 else 2), patch)


def torch_index(variant):
    """The option for PyTorch's own index of a build such as ``cu124``; [] for builds of any other name."""
    named = variant and variant.startswith("cu")
    return ["--index-url", "https://download.pytorch.org/whl/%s" % variant] if named else []


def serves(row, capability):
    """Whether a build holds code for a compute capability, by its own list or by its CUDA version."""
    wanted = capability[:2]
    if wanted == (
        11,
        0,
    ):  # Thor: the wheels of CUDA 13 for ARM have it, those for x86, which are listed, do not
        # https://github.com/pytorch/pytorch/blob/main/.ci/manywheel/build_cuda.sh
        return numbers(row["cuda"]) >= (13, 0)
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
