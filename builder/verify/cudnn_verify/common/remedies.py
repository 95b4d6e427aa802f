"""The commands that mend a cause here: for this CUDA, these versions, this card, this driver, this place.

Which command, and when, stands in ``causes.ini``; here are the facts that its lines ask for. ``here`` is a
:class:`~text_facts.TextFacts`, read out of a text, or what the probe measured in the same form; ``detail``
holds what is known of the fault itself: versions (``loaded``, ``compiled``), a library's name (``library``),
a path. A command is named only if every part of it is known.
"""

import re
from shlex import quote

from .causes import CAUSES, command_lines, word_lines
from .command_forms import Command, as_here, changes_nothing
from .distributions import cudnn_wheels
from .framework_builds import FrameworkBuilds, card_within, index_of, serves
from .held_sets import SET_FACTS, with_held
from .name_changes import releases_with_name
from .package_facts import PACKAGE_FACTS
from .shared_environment import ENVIRONMENT_FACTS, with_others
from .tables import (
    branch_for,
    cuda_family,
    cuda_package,
    cudnn_of_torch,
    driver_floor,
    read_facts,
    read_frameworks,
    read_patterns,
)
from .versions import dotted, numbers

_FACT = re.compile(r"\{([\w.-]+)\}")
# "torch==", "cudnn>=,<10", "export LD_PRELOAD=", "nvidia-cudnn-cuNone"
_CUT_OFF = re.compile(
    r"(^|[\s,'])[\w.\[\]-]*([=!~<>]=|[<>])(?![=\s]*[\dv])|(^|\s)\w+='*(\s|$)|(\b|-cu)None\b"
)
_OF_CUDA = re.compile(r"\bcu1[1-3]\d\b|cuda|nvidia|-gpu\b|--torch-backend")
"""NVIDIA has no driver for a Mac after CUDA 10.2: https://docs.nvidia.com/cuda/archive/10.2/cuda-toolkit-release-notes/"""
_OF_NUMPY_2 = re.compile(r"cupy-cuda[^\n]{0,20}>=14")
"""CuPy 14 asks for NumPy 2: https://docs.cupy.dev/en/stable/upgrade.html"""
_CLOSED_DRIVER = re.compile(r"\bnvidia-driver-\d{3}(?![\w-])")
"""https://developer.nvidia.com/blog/nvidia-transitions-fully-towards-open-source-gpu-kernel-modules/"""
_NEW_DRIVER = re.compile(r"\bnvidia-(?:driver|open)\b|nvidia\.com/[\w-]+/drivers/")
_OF_A_SYSTEM = re.compile(r"\b(?:apt(?:-get)?|dnf|dkms|modprobe|mokutil|update-initramfs|nvidia-ctk)\b")
_OF_NO_INDEX = re.compile(r"numpy|protobuf|nvpl|--no-build-isolation|^pip uninstall -y flash-attn$")
"""Commands of pip that take no wheel with CUDA."""
_FITTING = "an image in which they fit, verified"
_NOT_BY_IMAGE = (
    "no compilation",
    "half",
    "another attention",
    "flash-attn",
    "smaller kernels",
    "the release that works",
    "a later llama.cpp",
    "one UCX",
    "the CUDA 12 part",
    "the other nixl",
    "a later standard",
)
_BROUGHT = (
    "%s %s takes CUDA %s and cuDNN %s, which its packages bring: a toolkit in /usr/local need not be there, "
    "and one with another major version of cuDNN does not serve it."
)
_MEMORY = {"tensorflow": "TF_FORCE_GPU_ALLOW_GROWTH=true", "jax": "XLA_PYTHON_CLIENT_PREALLOCATE=false"}
# (bytes of a type as compiled, as it is here): https://github.com/numpy/numpy/issues/26710
_NUMPY_SIZES = {("96", "88"): "numpy<2", ("88", "96"): "numpy>=2", ("88", "80"): "numpy>=1.20,<2"}
_WHEEL_STEMS = {
    "cudart": "cuda-runtime",
    "cupti": "cuda-cupti",
    "nvjitlink": "nvjitlink",
    "nvrtc": "cuda-nvrtc",
}


class Remedies(FrameworkBuilds):
    """Commands by cause, for the facts that are known here."""

    def commands(self, cause):
        """The commands for a cause id, the best first; [] if none is known."""
        found = [command for command in self._written(cause) if self._is_of_the_text(command)]
        # what no index has is not here, although the text has its version
        if cause != "build-not-published" and not any("uninstall" in command.text for command in found):
            found = [command for command in found if not self._done(command)]
        found = [command for command in found if self._is_published(command) and self._is_served(command)]
        if self.numpy_of_1():
            found = [command for command in found if not _OF_NUMPY_2.search(command.text)]
        apps = {"ollama", "lm-studio", "llama-cpp", "packaged-app"} & self.here.places
        if "native" in self.here.places or apps and not getattr(self.here, "python_here", True):
            found = [command for command in found if command.where not in ("pip", "conda")]
        if "macos" in self.here.places:
            found = [c for c in found if c.where != "apt" and not _OF_CUDA.search(c.text)]
        if "appliance" in self.here.places:  # what it is made of is not changed from a shell
            found = [c for c in found if not _OF_A_SYSTEM.search(c.text)]
        if "cluster" in self.here.places:  # nobody but its administrators installs a driver there
            found = [c for c in found if not _NEW_DRIVER.search(c.text)]
        if "nix" in self.here.places:
            found = [c for c in found if "/usr/local" not in c.text or c.where == "apt"]
        of_cpu = cause == "framework-known-bad" and self._of_cpu_here()
        if of_cpu or self.without_card() and cause != "framework-cpu-build":
            # a build with CUDA has nothing to run on, or is not the one that is here
            found = [c._replace(text=re.sub(r"(?<=/whl/)cu\d{2,3}\b", "cpu", c.text)) for c in found]
        found = [self._told_driver(self._told_companions(self._at_its_release(command))) for command in found]
        if getattr(self.here, "driver_fixed", False):
            found = [c for c in found if not _NEW_DRIVER.search(c.text)] or found
        if self.cards_apart():
            found = [c for c in found if not _NEW_DRIVER.search(c.text)]
        elif self.capability and self.capability >= (10, 0):
            # the open kernel modules alone serve these cards
            found = [c._replace(text=_CLOSED_DRIVER.sub(r"\g<0>-open", c.text)) for c in found]
        found = as_here(with_held(self, cause, with_others(self, found)), self.here)
        if "enterprise-linux" in self.here.places:  # RPM Fusion's akmod is Fedora's way
            found = [c for c in found if "akmod" not in c.text]
        if "windows" in self.here.places:
            kinds = ("pip", "conda", "docker", "rtbuild", "notebook", "winget")
            found = [c for c in found if c.where in kinds or c.text.startswith(("nvidia-smi", "uv "))]
        # no index has wheels with CUDA for it; those for ARM servers have code for Thor from CUDA 13 on
        if "jetson" in self.here.places and self.capability != (11, 0):
            own = self.jetpack_index()
            found = [
                c for c in found if c.where != "pip" or _OF_NO_INDEX.search(c.text) or own and own in c.text
            ]
        elif "aarch64" in self.here.places and any("onnxruntime-gpu" in c.text for c in found):
            found = []  # it is there for x86 alone: https://github.com/microsoft/onnxruntime/issues/21232
        return found

    def cards_apart(self):
        """Whether no one driver serves all cards of the text: the open kernel modules alone serve Blackwell
        and later, and a card before Turing the proprietary ones alone; a machine loads one of them.
        """
        cards = [numbers(cc) for cc in getattr(self.here, "capabilities", None) or ()]
        return any(cc >= (10, 0) for cc in cards) and any(() < cc < (7, 5) for cc in cards)

    def jetpack_index(self):
        """The index of wheels for the JetPack of the text's L4T; None if it has none, or is not told."""
        return self._jetpack()[0]

    def _jetpack(self):
        """(index, packages that it has) for the JetPack of the text's L4T."""
        return read_facts()["jetpacks"].get("R%s" % getattr(self.here, "l4t", None), (None, ()))

    def _jetson_wheel(self):
        """The package to take from that index: the one that no index has, else the framework."""
        name = self.detail.get("name") or self.framework
        return name if name in self._jetpack()[1] else None

    def _at_its_release(self, command):
        """A command that compiles a package anew, for the release of it that is here."""
        found = re.search(r"--no-build-isolation(?: --no-binary \S+)? ([a-z][\w.-]*)$", command.text)
        release = self.here.packages.get(found.group(1)) if found and command.where == "pip" else None
        known = release and re.match(r"\d[\w.]*$", release)
        return command._replace(text="%s==%s" % (command.text, release)) if known else command

    def _told_companions(self, command):
        """A command that replaces PyTorch alone, with a note on its companions for that release."""
        found = re.match(r"pip install --force-reinstall torch==(\d[\d.]*)(?= --|$)", command.text)
        pairs = [
            self.releases.paired(name, found.group(1)) for name in ("torchvision", "torchaudio") if found
        ]
        if command.where != "pip" or not pairs or None in pairs:
            return command
        told = "%s; with %s in the same line where they are installed, too"
        return command._replace(note=told % (command.note, " ".join(map(self.quoted, pairs))))

    def _told_driver(self, command):
        """A command for a PyTorch of a CUDA, with a note on the branch of drivers that it asks for, where the
        text tells of no driver: that of the CUDA's major, and for a card of today that of the CUDA itself.
        """
        found = re.search(r"\btorch\b[^&|]*/whl/cu(1\d)(\d)", command.text)
        if not found or command.where != "pip" or self.driver_known() or "jetson" in self.here.places:
            return command
        cuda = tuple(map(int, found.groups()))
        young = self.capability and self.capability >= (10, 0) and cuda < (13,)
        branch = branch_for(cuda) if young else next(iter(driver_floor(cuda[0])), None)
        if branch is None:
            return command
        told = "needs a driver of branch %s or later, as nvidia-smi prints it" % branch
        return command._replace(note="%s; %s" % (command.note, told) if command.note else told)

    def _is_published(self, command):
        """Whether each release in a command has wheels for the Python and the processor of the text."""
        if command.where != "pip" or "uv venv" in command.text or "--no-binary" in command.text:
            return True
        python = numbers(self.here.python)[:2]
        for name, release in re.findall(
            r"(?<![\w.-])([a-z][\w-]*)(?:\[[\w,-]*\])?==(\d[\w.]*)(?![\w.*])", command.text
        ):
            row = self.releases.wheels_of(name, release)
            if row is not None and not self.has_wheels(row):
                return False
            ranges = [tuple(map(numbers, row["python"])) for row in self.releases.builds(name, release)]
            if ranges and python and not any(first <= python <= last for first, last in ranges):
                return False
        return True

    def _is_served(self, command):
        """Whether no fact of the text refuses a command's PyTorch: the card its code, the driver its CUDA."""
        found = re.search(r"(?:^|\s)torch(?:==(\d[\d.]*))?\s[^&|]*/whl/(cu\d+)", command.text)
        if not found or command.where != "pip":
            return True
        release, variant = found.groups()
        rows = [row for row in self.releases.builds("torch", release) if row["variant"] == variant]
        if not rows:
            return True
        code = not self.capability or self.capability < (3, 7) or serves(rows[0], self.capability)
        return code and (not self.driver_known() or self.driver_serves(numbers(rows[0]["cuda"])))

    def _is_of_the_text(self, command):
        """Whether a command installs nothing of another framework than those that the text is about."""
        if command.where not in ("pip", "conda"):
            return True
        if getattr(self.here, "rust", False) and not self.here.python_here:
            return False
        patterns = read_patterns()["named"].items()
        installed = {name for name, pattern in patterns if re.search(pattern, command.text)}
        named = set(getattr(self.here, "named", ()))
        if (
            named and self.certain and self.framework != "torch"
        ):  # messages that PyTorch prints, others do, too
            named.add(self.framework)
        return not installed or not named or bool(installed & named)

    def without_card(self):
        """Whether a text says that its machine has no card, and names neither one nor a driver."""
        said = getattr(self.here, "no_card", False)
        return bool(said and not self.capability and not self.driver_known())

    def _of_cpu_here(self):
        """Whether pip took PyTorch from PyPI on Windows, whose build there is for the CPU."""
        plain = getattr(self.here, "plain_torch", False) and "windows" in self.here.places
        return plain and not (self.capability or self.driver_known() or self.here.variants)

    def _written(self, cause):
        """The commands of the lines in ``causes.ini`` that apply here."""
        lines = [line for line in command_lines(cause) if all(map(self._holds, line[0].split()))]
        found = []
        for _, where, text, note in [line for line in lines if line[0] == lines[0][0]]:
            if where == "see":
                found += next(filter(None, map(self._written, text.split())), [])
            else:
                found += self._filled(where, text, note)
        return found

    def _holds(self, fact):
        return self.known(fact[1:]) is None if fact.startswith("!") else self.known(fact) is not None

    def known(self, fact):
        """What is known under a name in ``causes.ini``: True, a text or a number, a list of several words, a
        tuple for a command for each of its items; None if it is not so, or nothing is known. A value that is
        empty, or empty in a part, is not known.
        """
        if fact in self.FACTS:
            value = self.FACTS[fact](self)
            return value if _is_whole(value) else None
        return True if fact in self._tags() else None

    def _tags(self):
        """The places here, the framework, and what the line that failed says."""
        line, wants = str(self.detail.get("matched")), self.detail.get("requirement")
        whole = line + " " + str(self.detail.get("line"))
        tags = {
            tag
            for tag, words in read_patterns()["tags"].items()
            if words in (whole if tag.startswith("says-") else line)
        } | self.here.places
        chosen = {"sure"} if self.detail.get("sure", True) else set()
        return tags | chosen | {"any", self.framework, "wants-%s" % (wants or "").replace(" ", "-")}

    def _filled(self, where, text, note):
        """[Command] of a line; [] if a fact in braces is not known, or holds without being a value."""
        values = {name: self.known(name) for name in _FACT.findall(text + note)}
        if any(value is None or value is True for value in values.values()):
            return []
        each = [name for name, value in values.items() if isinstance(value, tuple)]
        rows = [dict(values, **{name: item}) for name in each for item in values[name]] or [values]
        return [self._command(where, _fill(text, row), _fill(note, row) or None) for row in rows]

    def _command(self, where, text, note):
        if where == "pip" and "pip " not in text:
            text = "pip install " + " ".join(map(self.quoted, text.split()))
        if re.search(r"==\d[\d.]*\.dev20\d{6}", text):  # a nightly build is on its own index alone
            text = re.sub(r"(download\.pytorch\.org/whl/)(?!nightly)", r"\1nightly/", text)
        return Command(where, text, note)

    @staticmethod
    def quoted(word):
        """A word for any shell, Windows' too."""
        return '"%s"' % word if re.search(r"[<>\[;,*]", word) else word

    def _done(self, command):
        return changes_nothing(command, self.here)

    def words(self, cause, commands):
        """The remedy in words: the narrowest that the facts have, with the version of cuDNN that is wanted if
        it is known. A command that the line which failed asks for brings its own, and not the general one,
        which names what mends other variants of the cause.
        """
        wanted, own = self.wanted(), self._own_words(cause, commands)
        for facts, sentence in word_lines(cause):
            if all(map(self._holds, facts.split())) and not (own and facts in self.here.places):
                return self._filled("words", sentence, "")[0].text
        if own:
            return own
        if cause == "toolkit-library-missing" and self.framework_with_cudnn() and self.rows[0]["cudnn"]:
            cuda, cudnn = (dotted(numbers(self.rows[0][key])[:2]) for key in ("cuda", "cudnn"))
            title = read_frameworks()[self.framework]["title"]
            told = _BROUGHT % (title, self.version.partition("+")[0], cuda, cudnn)
            enough = self.driver_known() and self.driver_serves(numbers(cuda))
            return told + (" Driver %s is enough for it." % self.here.driver if enough else "")
        if wanted is None or cause not in ("cudnn-too-old", "cudnn-not-equal", "cudnn-major-mismatch"):
            return CAUSES[cause].remedy
        later = " or a later %d.x" % wanted[0] if cause != "cudnn-not-equal" and wanted >= (7,) else ""
        told = dotted(wanted[:3])
        range_ = '"cudnn>=%s,<%d"' % (told, wanted[0] + 1) if later else "cudnn=" + told
        text = "Install cuDNN %s%s for the CUDA that is here" % (told, later)
        return text + ": NVIDIA's package libcudnn%d, or conda's %s." % (wanted[0], range_)

    def _own_words(self, cause, commands):
        """The note of the first command, where its line in ``causes.ini`` is for what the signature wants."""
        lines = [line[0] for line in command_lines(cause) if all(map(self._holds, line[0].split()))]
        narrow = lines and commands and re.search(r"(?:^|\s)wants-", lines[0])
        return commands[0].note if narrow and commands[0].where != "rtbuild" else None

    def image(self, cause=None):
        """The command for an image in which release and card fit; None for a release that is unknown."""
        unknown = self.guessed or not self.certain or (self.version and not self.rows)
        old = self.capability and self.capability < (5, 0)  # no base of rtbuild's has a CUDA that old
        if self.framework in (None, "paddlepaddle-gpu", "ctranslate2") or unknown or old:
            return None
        if (
            {"jetson", "aarch64", "macos"} & self.here.places
            or self._holds("no-image")
            and self.torch_has_code()
            or self.detail.get("requirement") in _NOT_BY_IMAGE
            or cause == "build-not-published"
            and self._holds("left-behind")
        ):
            return None
        known = self._rows()
        fitting = [row for row in known if self._fits_in_image(row)]
        if known and not fitting or self.rows and not any(map(_has_base, self.rows)):
            return None
        if re.match("(?:torch|tensorflow|jax)<", releases_with_name(self) or ""):
            return None  # the newest release is the one without the name that is asked for
        minor = None if self._holds("newer-torch-told") else dotted(numbers(self.version)[:2])
        name = {"onnxruntime": "onnxruntime-gpu"}.get(self.framework, self.framework)
        if cause == "framework-arch-missing" and not self.capability:
            return None  # this very release is the one without code for the card
        served = not self.rows or any(row in fitting for row in self.rows)
        text = "rtbuild up " + ("'%s==%s.*'" % (name, minor) if minor and served else name)
        text += " --gpu %d.%d" % self.capability[:2] if self.capability else ""
        alone = cause == "extension-mismatch"  # the package that failed is not in it
        note = "an image of it alone, verified: other packages go into its matrix" if alone else _FITTING
        return Command("rtbuild", text, note)

    def _fits_in_image(self, row):
        """Whether ``rtbuild resolve`` has a base for a build, and the card that is known is served by it."""
        card, cuda = self.capability, read_facts()["cuda"].get(str(row["cuda"]).partition(".")[0])
        if card is None or not _has_base(row):
            return _has_base(row)
        within = cuda is not None and card[:2] <= numbers(cuda[2]) and row["archs"] is not None
        board = dotted(card[:2]) in read_facts()["boards"]
        return within and not board and serves(row, card) and not self.releases.refused(row, card)

    # -- what the lines of causes.ini ask for

    @staticmethod
    def right_name(stub):
        """NVIDIA's name of a package today by the one that it had; None if it is the same."""
        family, major = cuda_family(stub or "")
        right = cuda_package(family, major) if major else stub
        return right if right != stub else None

    def cudnn_pin(self):
        """The requirement on cuDNN of a message that asks for a newer one than was compiled for; else of the
        framework that is here, or of the version it was compiled for.
        """
        wanted = self.wanted()
        if wanted and wanted > self.compiled and self.compiled:
            name = self.cuda and "nvidia-cudnn-cu%d>=%s,<%d"
            return name and name % (self.cuda, dotted(wanted[:2]), wanted[0] + 1)
        for row in self.rows:
            for pin in row["pins"]:
                if self.cuda in (None, int(re.search(r"cu(\d+)", pin).group(1))):
                    major = numbers(row["cudnn"])[:1]
                    pin = pin if "<" in pin or "==" in pin or not major else "%s,<%d" % (pin, major[0] + 1)
                    return self._from_compiled(pin)
        compiled = self.detail.get("compiled")
        of_12 = "jax" in getattr(self.here, "named", ()) and (9, 0) <= self.compiled < (9, 8)
        cuda = self.cuda or (12 if of_12 else None)  # no JAX for CUDA 11 or 13 was compiled for one of these
        return self.releases.cudnn_wheel(cuda, compiled) if cuda and compiled else None

    def _from_compiled(self, pin):
        """A framework's range of cuDNN from the version on that a message says it was compiled for."""
        found = re.match(r"([\w-]+)>=([\d.]+)", pin)
        floor = numbers(found.group(2)) if found else ()
        if not floor or floor[0] != next(iter(self.compiled), None) or floor >= self.compiled:
            return pin
        return "%s>=%s,<%d" % (found.group(1), dotted(self.compiled), floor[0] + 1)

    def minimum_of_later_major(self):
        """Whether a message asks for a later major version of cuDNN than the framework's binary opens: JAX's
        Python part is then newer than its jaxlib.
        """
        wanted = self.wanted()
        return bool(wanted and self.compiled and wanted[0] > self.compiled[0])

    def cudnn_again(self):
        """The cuDNN wheel that is here, to be installed anew as a whole."""
        wheels = cudnn_wheels(self.here.packages).items()
        wheels = [name for name, cuda in wheels if self.cuda in (None, cuda)]
        return "%s==%s" % (wheels[0], self.here.packages[wheels[0]]) if wheels else self.cudnn_pin()

    def wanted(self):
        """The cuDNN that is asked for at least, (major, minor) and more."""
        wanted = numbers(self.detail.get("minimum")) or self.compiled
        return wanted if len(wanted) > 1 else None

    def framework_with_cudnn(self):
        """A framework's requirement with the extra that brings its cuDNN."""
        extra = {"tensorflow": "and-cuda", "jax": self.cuda and "cuda%d" % self.cuda}.get(self.framework)
        brought = extra and self.rows and self.rows[0].get("brings") in ("extra", "pins")
        return "%s[%s]==%s" % (self.framework, extra, self.version.partition("+")[0]) if brought else None

    def library_cudnn(self):
        """The major version of cuDNN that a message of CTranslate2 asks for."""
        return 9 if numbers(self.detail.get("major") or "")[:1] == (9,) else 8

    def ctranslate2(self, way):
        """Whether CTranslate2 gets a cuDNN in this way; 4.5 and later need cuDNN 9, earlier ones 8:
        https://github.com/OpenNMT/CTranslate2/blob/master/CHANGELOG.md
        """
        if self.framework != "ctranslate2" or not self.certain:
            return False
        wanted = self.library_cudnn()
        brought = cudnn_of_torch(self.here.packages)
        here = (self.here.cudnn_majors() | ({8} if brought == 8 else set())) - {wanted}
        nine = 9 in here or brought == 9
        nothing = not here and not nine and wanted not in self.here.cudnn_majors()
        if "colab" in self.here.places or nothing or wanted == 8 and (nine or not here):
            return way == "without"
        if nine or wanted in self.here.cudnn_majors():
            return way == "path"
        return way == "of 8" and 8 in here

    def numpy_of_1(self):
        """Whether a package of the text is built for NumPy 1 alone, which a command may not raise."""
        rows, here = read_patterns()["numpy-two"].items(), self.here.packages
        return any(() < numbers(here.get(name)) < numbers(since) for name, since in rows)

    def library_major(self, library=None):
        """The CUDA major of a library, else of the one that was not found; None if its name does not tell."""
        stem, number = _stem_and_number(library or self.detail.get("library"))
        known = dict(pair.split(":") for pair in read_patterns()["sonames"].get(stem, "").split())
        return int(known[number]) if number in known else None

    def _toolkit_major(self, library=None):
        return self.library_major(library) or self.cuda

    def _toolkit_wheel(self, library=None):
        """NVIDIA's wheel with a library, else with the one that was not found."""
        library = library or str(self.detail.get("library"))
        major, (stem, _) = self._toolkit_major(library), _stem_and_number(library)
        other = re.match(r"lib(cusparseLt|cudss|nvshmem|cufile|cupti)", library)
        known = major in (11, 12, 13) and (other or stem in read_patterns()["sonames"])
        stem = other.group(1).lower() if other else stem
        return cuda_package(_WHEEL_STEMS.get(stem, stem), major) if known else None

    def _cupy(self, major):
        """From 14 on CuPy finds the CUDA of NVIDIA's wheels; before, only the one on the loader's path."""
        served = major in (12, 13) and (numbers(self.here.python) or (3, 10)) >= (3, 10)
        return major if served else None

    def _cupy_for_card(self):
        """The newest CUDA whose CuPy compiles for the card, other than the one here."""
        for major in (13, 12, 11):
            fits = self.capability and card_within((major, 9), self.capability)
            if fits and major != self.cuda and self.driver_serves((major, 0)):
                return major
        return None

    def _nvrtc_major(self):
        stem, number = _stem_and_number(self.detail.get("library"))
        return next(iter(numbers(number)), None) if stem == "nvrtc" else None

    def _cupy_of_other_cuda(self):
        names, major = list(self.here.packages) + list(self.here.printed_by), self.library_major()
        named = any(name.startswith("cupy") for name in names)
        return bool(named and major and self.cuda and major != self.cuda)

    def _nvcc_of_13(self):
        """Whether the nvcc of CUDA 13 is asked for, or the newest, by a package that starts nvcc itself."""
        if self.detail.get("requirement"):
            return self.known("wants-nvcc") and numbers(self.detail.get("number"))[:1] == (13,)
        by_triton = getattr(self.here, "compiled_by_triton", False)
        return getattr(self.here, "compiled_by_nvcc", False) and not by_triton

    def _owned_stem(self):
        stem = "nvidia-%s-cu" % (self.detail.get("stem") or "cudnn")
        return "cupy-cuda" if self.framework == "cupy" else stem

    def owners(self):
        """The packages that own the same files: those here, or else those that the text names."""
        end = "x" if self.framework == "cupy" else ""
        pattern = re.compile(self._owned_stem() + r"\d+" + end + "$")
        here = sorted(filter(pattern.match, self.here.packages))
        return here or (self.detail.get("names") or "").replace(",", "").split() or None

    def kept(self):
        """The requirement of the owner for the CUDA here."""
        stem = self._owned_stem()
        keep = "%s%s%s" % (stem, self.cuda, "x" if self.framework == "cupy" else "")
        if keep not in (self.owners() or ()):
            return None
        pin, here = (self.cudnn_pin() if "cudnn" in stem else None) or "", self.here.packages.get(keep)
        return pin if "==" in pin else "%s==%s" % (keep, here) if here else None

    def _numpy_compiled(self):
        """The NumPy that a package was compiled for, by the sizes or the number in its message."""
        if self.detail.get("wanted"):
            return read_patterns()["numpy-api"].get(str(int(self.detail["wanted"], 16)))
        sizes = self.detail.get("header"), self.detail.get("object")
        return _NUMPY_SIZES.get(sizes[::-1] if self.detail.get("own") else sizes)

    def _jax_of_jaxlib(self):
        """The release of both; before 0.3 they had different numbers."""
        version = self.detail.get("jaxlib")
        return version if numbers(version) >= (0, 3) else None

    def _plugin_halves(self):
        """Both halves of JAX's plug-in at jaxlib's own version."""
        version = (self.here.packages.get("jaxlib") or "").partition("+")[0]
        found = re.search(r"jax_cuda(\d+)_plugin", str(self.detail.get("line")))
        major = found.group(1) if found else self.cuda
        if not version or not major:
            return None
        return ["jax-cuda%s-%s==%s" % (major, half, version) for half in ("plugin", "pjrt")]

    def _nearest(self):
        row = self.nearest_torch() if self.framework == "torch" else None
        return self.torch_words(row) if row else None

    def _nearest_indexed(self):
        """As ``nearest``, always from an index that has builds with CUDA: that of a text whose PyTorch is the
        one for the CPU may be another than PyPI's.
        """
        row = self.nearest_torch() if self.framework == "torch" else None
        if row is None:
            return None
        release = self.torch_release() if row in self._torch_rows() else None
        named = self.index_named(release)
        variant = named or row["variant"] or "cu" + "".join(map(str, numbers(row["cuda"])[:2]))
        if not self.torch_release():
            return self.torch_and(("torchvision", "torchaudio"), "", variant)
        return self.torch_and_companions(release or row["latest"], variant)

    def _torch_again(self):
        version, _, local = (self.version or "").partition("+")
        return self.torch_and_companions(version, local) if version and self.framework == "torch" else None

    def _torchvision(self):
        """The torchvision for the PyTorch here, from the same index."""
        release, _, local = (self.version or "").partition("+")
        pair = self.releases.paired("torchvision", release) if self.framework == "torch" else None
        return pair and [pair] + index_of(local)

    def _torch_251(self):
        """PyTorch 2.5.1 in place of 2.5.0."""
        if self.framework != "torch" or numbers(self.version)[:3] != (2, 5, 0):
            return None
        local = self.version.partition("+")[2]
        return self.torch_words({"latest": "2.5.1", "variant": local, "default": not local, "cuda": "12.4"})

    def _onnxruntime_gpu(self):
        known = numbers(self.version)
        return "onnxruntime-gpu[cuda,cudnn]" + ("==" + self.version if known else ">=1.21,<1.27")

    FACTS = {
        # the machine and what is installed
        "set-at-start": lambda _: False,
        "slept": lambda r: r.here.slept,
        "system-cudnn": lambda r: r.here.system_cudnn,
        "library-path": lambda r: r.here.library_path or None,
        "noexec": lambda r: r.here.noexec and quote(r.here.noexec),
        "capability": lambda r: dotted(r.capability[:2]) if r.capability else None,
        "blackwell": lambda r: bool(r.capability) and r.capability >= (10, 0),
        "driver-known": lambda r: r.driver_known(),
        "driver-of-13": lambda r: r.here.driver if r.here.driver and r.driver_serves((13, 0)) else None,
        "branch-told": lambda r: r.detail.get("branch"),
        "ptx-told": lambda r: getattr(r.here, "ptx_told", False),
        # a cuda-compat is for a driver that is older than it
        "driver-past-compat": lambda r: (
            r.here.driver if () < numbers(getattr(r.here, "compat", None)) < numbers(r.here.driver) else None
        ),
        "compat": lambda r: getattr(r.here, "compat", None),
        "serves-11": lambda r: r.driver_serves((11, 0)),
        "serves-12": lambda r: r.driver_serves((12, 0)),
        "cuda": lambda r: r.cuda,
        "cuda-11": lambda r: r.cuda == 11,
        "cuda-12": lambda r: r.cuda == 12,
        "right-name": lambda r: r.right_name(r.detail.get("old")),
        "nvcc-wheel": lambda r: cuda_package("cuda-nvcc", r.cuda) if r.cuda in (11, 12, 13) else None,
        "headers-wheel": lambda r: cuda_package("cuda-runtime", r.cuda) if r.cuda in (11, 12, 13) else None,
        "old-cards-cuda": lambda r: r.cuda if r.cuda in (11, 12) and (r.capability or ()) >= (5, 0) else None,
        # the framework
        "release": lambda r: r.version,
        "own-memory": lambda r: (
            (getattr(r.here, "memory_own", None) or 0) * 2
            >= (getattr(r.here, "memory_whole", None) or 1 << 40)
        ),
        # the old wording is of releases before 2.1, which do not know the later option
        "allocator": lambda r: (
            "max_split_size_mb:128"
            if "already allocated" in str(r.detail.get("line"))
            else "expandable_segments:True"
        ),
        "memory": lambda r: _MEMORY.get(r.framework) if r.certain else None,
        "nearest": _nearest,
        "nearest-indexed": _nearest_indexed,
        "nearest-cuda": lambda r: (r.nearest_torch() or {}).get("cuda"),
        "torch-again": _torch_again,
        "torch-2.5.1": _torch_251,
        "torch-used": lambda r: (
            "torch" in set(r.here.packages) | set(r.here.printed_by) or getattr(r.here, "says_torch", False)
        ),
        "torch-of-cuda": lambda r: "+cu" in (r.here.packages.get("torch") or ""),
        "torch-serves-card": lambda r: r.torch_has_code(),
        "torch-numbers": lambda r: dotted(numbers(r.version)),
        "torchvision": _torchvision,
        "jax-cuda": lambda r: 13 if r.driver_known() and r.driver_serves((13, 0)) else 12,
        "tensorflow-cpu": lambda r: "tensorflow-cpu" in r.here.packages,
        "tensorflows": lambda r: sorted({"tensorflow", "tensorflow-cpu"} & set(r.here.packages)),
        "onnxruntime-gpu": _onnxruntime_gpu,
        "before-1.21": lambda r: () < numbers(r.version) < (1, 21),
        "framework-with-cudnn": framework_with_cudnn,
        "ctranslate2-here": lambda r: r.framework == "ctranslate2" and r.certain,
        "ctranslate2-without-cudnn": lambda r: r.ctranslate2("without"),
        "ctranslate2-by-path": lambda r: r.ctranslate2("path"),
        "library-cudnn": lambda r: r.library_cudnn(),
        "cards-apart": lambda r: r.cards_apart(),
        "jetpack-index": lambda r: r.jetpack_index(),
        "jetson-wheel": lambda r: r._jetson_wheel(),
        "off-the-mac": lambda r: getattr(r.here, "off_the_mac", False),
        "asks-triton": lambda r: r.detail.get("name") == "triton",
        "asks-cuda-build": lambda r: _OF_CUDA.search(str(r.detail.get("line"))) is not None,
        "gpu-build-told": lambda r: getattr(r.here, "gpu_build", False),
        "without-card": lambda r: r.without_card(),
        "uv-project": lambda r: getattr(r.here, "uv_project", False),
        "asks-nvidia's-wheel": lambda r: str(r.detail.get("name")).startswith("nvidia-"),
        "ctranslate2-of-8": lambda r: r.ctranslate2("of 8"),
        "cupy-printed": lambda r: "cupy" in r.here.printed_by,
        "ctranslate2-of-12": lambda r: (
            sorted({"faster-whisper", "whisper-ctranslate2"} & set(r.here.printed_by))
            + ["ctranslate2>=4.6.3,<5"]
        ),
        # cuDNN
        "compiled": lambda r: dotted(r.compiled[:2]) if len(r.compiled) > 1 else None,
        "wanted": lambda r: r.wanted() and dotted(r.wanted()[:2]),
        "after-wanted": lambda r: r.wanted() and r.wanted()[0] + 1,
        "cudnn-pin": lambda r: r.cudnn_pin(),
        "minimum-of-later-major": minimum_of_later_major,
        "cudnn-again": cudnn_again,
        "tensorflow-of-8.1": lambda r: (r.compiled[:2], r.cuda, r.framework) == ((8, 1), 11, "tensorflow"),
        # the fault
        "variable": lambda r: r.detail.get("variable"),
        "flag": lambda r: r.detail.get("flag") or "the unknown flag",
        "path": lambda r: r.detail.get("path") and quote(r.detail["path"]),
        "library": lambda r: r.detail.get("library"),
        "library-major": library_major,
        "library-told": lambda r: bool(r.library_major() or "dlerror" in str(r.detail.get("matched"))),
        "toolkit-major": _toolkit_major,
        "toolkit-11-or-12": lambda r: r._toolkit_major() in (11, 12),
        "toolkit-wheel": _toolkit_wheel,
        "asks-cuda-11": lambda r: r.library_major() == 11,
        "asks-cuda-12": lambda r: r.library_major() == 12,
        "asks-cuda-13": lambda r: r.library_major() == 13,
        "paddle-build": lambda r: "cu126" if r.driver_serves((12, 0)) else "cu118",
        "tensorflow-brings": lambda r: not r.version or numbers(r.version) >= (2, 14),
        "number": lambda r: r.detail.get("number"),
        "asks-11": lambda r: numbers(r.detail.get("number"))[:1] == (11,),
        "asks-12": lambda r: numbers(r.detail.get("number"))[:1] == (12,),
        "nvcc-of-13": _nvcc_of_13,
        "system-toolkit": lambda r: "/usr/local/cuda" in str(r.detail.get("line")),
        "cupy-for-library": lambda r: r._cupy(r._toolkit_major()),
        "cupy-for-card": _cupy_for_card,
        "cupy-for-nvrtc": lambda r: r._cupy(r._nvrtc_major()),
        "cupy-of-other-cuda": _cupy_of_other_cuda,
        "cupy-of-toolkit": lambda r: "cupy" in r.here.printed_by and getattr(r.here, "toolkit", None),
        "undefined-symbol": lambda r: "undefined symbol" in str(r.detail.get("line") or ""),
        "libcuda": lambda r: "libcuda" in str(r.detail.get("line") or "libcuda"),
        "owners": lambda r: r.owners(),
        "owned-stem": _owned_stem,
        "kept": lambda r: r.kept(),
        "requirement": lambda r: r.detail.get("requirement") if _is_requirement(r.detail) else None,
        "jax-of-jaxlib": lambda r: r.detail["jaxlib"] if numbers(r.detail.get("jaxlib")) >= (0, 3) else None,
        "numpy-of-1": numpy_of_1,
        "numpy-compiled": _numpy_compiled,
        "plugin-halves": _plugin_halves,
        "system-package": lambda r: read_patterns()["system-packages"].get(
            str(r.detail.get("soname")).lower()
        ),
        "opencv": lambda r: r.known("system-package") == "libgl1",
        **PACKAGE_FACTS,
        **ENVIRONMENT_FACTS,
        **SET_FACTS,
    }
    """By the names in ``causes.ini``: functions of a :class:`Remedies`."""


def _has_base(row):
    """Whether there is an image with the CUDA of a build: NVIDIA deleted those of CUDA 10 and before."""
    return row["brings"] != "outside" or numbers(row["cuda"]) >= (11,)


def _is_requirement(detail):
    """Whether what a signature wants can be handed to pip: others are words by which a command is chosen."""
    return re.match(r"[a-z][\w.-]*(\[[\w,-]+\])?[<>=!~]", detail.get("requirement") or "") is not None


def _stem_and_number(library):
    """("cublas", "12") for ``libcublasLt.so.12``."""
    found = re.match(r"lib(?:(npp)[a-z]+|(\w+?)(?:Lt|Mg|w)?)\.so\.?([\d.]*)", str(library or ""))
    return ((found.group(1) or found.group(2)).lower(), found.group(3)) if found else ("", "")


def _is_whole(value):
    """Whether a value can stand in a command: no part is empty, no version and no variable has no value."""
    if isinstance(value, (list, tuple)):
        return bool(value) and all(map(_is_whole, value))
    if isinstance(value, bool) or value is None:
        return value is True
    return bool(str(value).strip("'\" ")) and _CUT_OFF.search(str(value)) is None


def _fill(text, values):
    texts = {name: value if isinstance(value, list) else [str(value)] for name, value in values.items()}
    return _FACT.sub(lambda found: " ".join(texts[found.group(1)]), text).strip()
