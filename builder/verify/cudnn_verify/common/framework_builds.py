"""The build of a framework that fits here, by its release, this card, this driver and this Python."""

import re

from .tables import (
    Releases,
    branch_for,
    cuda_of_driver,
    driver_floor,
    read_facts,
    read_frameworks,
    read_patterns,
    told_names,
)
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
        here = here or [name for name in known if name in getattr(self.here, "floors", ())]
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
        """The release of PyTorch that belongs here, without its build: the one that is; of a
        nightly build, which is kept for some weeks alone, the one that it became; None without one.
        """
        return re.sub(r"\.dev\d+$", "", (self.version or "").partition("+")[0]) or None

    def _torch_rows(self):
        """The builds of that release, first those for the CUDA of the packages here, and that the driver is
        known to serve.
        """
        release = self.torch_release() if self.framework == "torch" else None
        rows = self._rows(release) if release else []

        def order(row):
            cuda = numbers(row["cuda"])
            early = self.capability in _ARM_CARDS and cuda < (13,)
            return (
                cuda[:1] != (self.cuda,),
                early,
                not (cuda and self.driver_serves(cuda)),
                not row["default"],
            )

        return sorted(rows, key=order)

    def nearest_torch(self):
        """A PyTorch for this card, driver and Python: another build of the release that belongs here, else of
        the next release that has one, of the newest where no text tells a release; None if none is known.
        """
        python, own = numbers(self.here.python), self._torch_rows()
        for row in own + self._rows_from(self.torch_release() if self.framework == "torch" else None):
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

    def _rows_from(self, release):
        """All builds, the newest release first; before these the later ones than ``release``, the next first,
        because what was made for one release goes on with the next.
        """
        rows = self._rows()
        later = [row for row in rows if () < numbers(release) < numbers(row["latest"])]
        return sorted(later, key=lambda row: numbers(row["latest"])[:2]) + rows

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

    def newest_for_card(self):
        """The newest PyTorch on record with code for the card, which the driver serves: ``2.14.1+cu126``;
        None without a card.
        """
        rows = self.releases.builds("torch", None) if self.capability else []
        fit = [row for row in rows if row["variant"] and serves(row, self.capability)]
        fit = [row for row in fit if not self.driver_known() or self.driver_serves(numbers(row["cuda"]))]
        newest = max(fit, key=lambda row: (numbers(row["latest"]), numbers(row["cuda"])), default=None)
        return newest and "%(latest)s+%(variant)s" % newest

    @staticmethod
    def _listed(listed, capability):
        """Machine code runs on the same major version with an equal or higher minor one."""
        return any(has[0] == capability[0] and has[1] <= capability[1] for has in listed)

    def driver_that_serves(self, major):
        """The driver in words if it is known and serves all of a CUDA major; None otherwise."""
        if not self.driver_known() or not self.driver_serves((major, 0)):
            return None
        return "driver %s serves CUDA %d" % (self.here.driver or "for CUDA " + self.here.driver_cuda, major)

    def driver_cuda(self):
        """The newest CUDA (numbers) that the driver in the text came with; () if no text tells."""
        return numbers(self.here.driver_cuda) or cuda_of_driver(numbers(self.here.driver))

    def cuda_wanted(self):
        """The CUDA (numbers) that a driver is asked for: by the message itself, by the framework's build, by
        the compiler of code that the driver translates, else by the packages; () if no text tells.
        """
        told = numbers(self.detail.get("wanted_cuda"))[:2]
        build = self.cuda_of_build()
        compiler = numbers(getattr(self.here, "nvcc", None)) if getattr(self.here, "ptx_told", False) else ()
        return told or max(build, compiler) or ((self.cuda, 0) if self.cuda else ())

    def cuda_of_build(self):
        """The CUDA (numbers) that the framework here is built with: as it says itself, by its variant, else
        by the default build of its release; () if that is not known.
        """
        told = numbers(getattr(self.here, "built_cuda", None))
        if told:
            return told
        variant = re.search(r"\+cu(\d\d)(\d)", self.version or "")
        default = [numbers(row["cuda"])[:2] for row in self.rows if row["default"] and row["cuda"]]
        return tuple(map(int, variant.groups())) if variant else default[0] if default else ()

    def driver_branch(self):
        """The branch of drivers to install for the CUDA that is asked for; None if the driver in the text is
        as new, or no branch has both that CUDA and the card.
        """
        wanted, newest = self.cuda_wanted(), (13, 0)
        branch = branch_for(
            max(wanted, newest)
        )  # within a long-lived branch the newest is as easy as an older one
        old = self.capability and self.capability < (7, 5)
        if branch is None or old and (branch > 580 or self.capability < (5, 0)):
            return None
        here = self.driver_cuda()
        return branch if not here or here < (wanted or newest) else None

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
        """pip's words for a row of PyTorch's builds."""
        variant = None if row["default"] else row["variant"]
        release = self.torch_release() if row in self._torch_rows() else None
        arm = "aarch64" in self.here.places or self.capability in _ARM_CARDS
        if row["default"] and (arm or "windows" in self.here.places):
            variant = "cu" + "".join(str(part) for part in numbers(row["cuda"])[:2])  # PyPI's have no CUDA
        return self.torch_and_companions(release or row["latest"], variant)

    def index_named(self, release):
        """The variant (``cu128``) that a text names, if it names one that PyTorch's release has, and driver
        and card are served by it; None otherwise.
        """
        named, rows = getattr(self.here, "variants", ()), self.releases.builds("torch", release)
        rows = [row for row in rows if row["variant"] in named and len(named) == 1]
        fits = rows and (self.capability is None or serves(rows[0], self.capability))
        served = not self.driver_known() or (rows and self.driver_serves(numbers(rows[0]["cuda"])))
        return rows[0]["variant"] if fits and served else None

    def pin_below(self, wanted):
        """(title, release, its pin) of another framework here whose builds all pin a cuDNN below the one that
        is wanted; None without one.
        """
        for name, row in read_frameworks().items():
            release, _, variant = (self.here.packages.get(name) or "").partition("+")
            builds = self.releases.builds(name, release) if release and name != self.framework else []
            builds = [row for row in builds if (row["variant"] == variant if variant else row["default"])]
            pins = [pin for build in builds for pin in build["pins"]]
            of_cuda = "nvidia-cudnn-cu%s==" % (self.cuda or "")
            pins = [pin for pin in pins if pin.startswith(of_cuda)]
            if pins and all(numbers(pin.partition("==")[2])[:2] < wanted[:2] for pin in pins):
                return row["title"], release, pins[0]
        return None

    def torch_and_companions(self, version, variant, names=("torchvision", "torchaudio")):
        """PyTorch, with those of its companions that are here, in the releases that are compiled for it."""
        named = getattr(self.here, "companions", ())
        names = [name for name in names if name in self.here.packages or name in named]
        return self.torch_and(names, version, variant)

    def torch_and(self, names, version, variant):
        """PyTorch of a release ("" for any) with other packages, from the index of a build ("" for the one
        that belongs here).
        """
        known = self.releases.builds("torch", version) if version and self.capability else []
        variant = variant or self.variant_here(version)
        here = [row for row in known if (row["variant"] == variant if variant else row["default"])]
        if here and not serves(here[0], self.capability):
            own, newer = self._for_card(known), self._for_card(self.releases.builds("torch", None))
            version, variant = version if own or not newer else "", own or newer or variant
        pairs = [self.releases.paired(name, version) or name for name in names]
        return ["torch==" + version if version else "torch"] + pairs + torch_index(variant, bool(version))

    def _for_card(self, rows):
        """The variant of the newest CUDA among builds of the newest release that serve card and driver."""
        fit = [row for row in rows if row["variant"] and serves(row, self.capability)]
        fit = [row for row in fit if self.driver_serves(numbers(row["cuda"]))]
        newest = [row for row in fit if row["latest"] == fit[0]["latest"]]
        return max(newest, key=lambda row: numbers(row["cuda"]))["variant"] if newest else None

    def has_wheels(self, row):
        """Whether a row of ``pairs`` has wheels for the Python and the processor here."""
        python = numbers(self.here.python)[:2]
        arm = row[-1] or "aarch64" not in self.here.places
        return arm and (not python or numbers(row[4]) <= python <= numbers(row[5]))

    def variant_here(self, version):
        """The variant of a release to ask PyTorch's own index for, where the default index's wheel has no
        CUDA: on Windows, and up to 2.10 on ARM; None elsewhere.
        """
        arm = "aarch64" in self.here.places and (not version or numbers(version) < (2, 11))
        if "windows" not in self.here.places and not arm:
            return None
        rows = self.releases.builds("torch", version or None)
        for row in sorted(rows, key=lambda row: not row["default"]) if version else rows:
            cuda = numbers(row["cuda"])
            card = self.capability is None or serves(row, self.capability)
            if row["variant"] and self.driver_serves(cuda) and card and (self.cuda in (None, cuda[0])):
                return row["variant"]
        return None


def torch_index(variant, pinned=True):
    """The option for PyTorch's own index of a build such as ``cu124``; [] for builds of any other name.

    Indexes before CUDA 11.7 have nothing but PyTorch's own packages: for a pinned release the default index
    is asked beside, as PyTorch's page has it.
    """
    if not variant or not variant.startswith("cu"):
        return []
    old = pinned and numbers(variant[2:]) < (117,)
    return ["--extra-index-url" if old else "--index-url", "https://download.pytorch.org/whl/%s" % variant]


def index_of(local):
    """:func:`torch_index` of a local version such as ``cu128``; of ``cpu`` its own index."""
    cpu = ["--index-url", "https://download.pytorch.org/whl/cpu"]
    return cpu if local == "cpu" else torch_index(local)


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
