"""Commands that mend the cause found here, with the packages, pins and paths of this machine."""

import importlib.machinery
import os
import re
import sys
from shlex import quote

from ..common.causes import CAUSES
from ..common.distributions import cudnn_wheels, list_folder, requirement
from ..common.framework_remedies import Command, torch_index
from ..common.isolation import user_path
from ..common.remedies import Remedies
from ..common.tables import cuda_family, cuda_major_of, cuda_package, read_facts, read_frameworks
from ..common.versions import dotted, numbers
from .library_files import in_folders, read_elf

_NOT_FOUND = ("cudnn-missing", "cudnn-sublibrary-missing", "toolkit-library-missing", "nvrtc-missing")


class MachineFacts(object):
    """The probe's measurements, under the names that :class:`~text_facts.TextFacts` has; facts as in a
    report.
    """

    def __init__(self, facts):
        rows = facts.get("packages") or {}
        self.distributions = rows
        self.packages = {name: row["version"] for name, row in rows.items()}
        if "onnxruntime-gpu" in rows:
            self.packages["onnxruntime"] = self.packages["onnxruntime-gpu"]
        gpus, driver = facts.get("gpus") or [{}], facts.get("driver") or {}
        self.capability = gpus[0].get("compute_capability")
        self.driver, self.driver_cuda = driver.get("version"), driver.get("api")
        self.python = (facts.get("python") or {}).get("version")
        self.library_path = os.environ.get("LD_LIBRARY_PATH") or None
        self.printed_by, self.noexec = set(), None
        self.slept = self.system_cudnn = False
        self.cudnn_here = {str(copy["major"]) for copy in facts.get("copies") or ()}
        self.places = places_here(facts.get("machine") or {})
        self.cuda_majors = self._majors(facts)

    def cudnn_majors(self):
        return {int(text) for text in self.cudnn_here}

    def _majors(self, facts):
        """CUDA's major version: of frameworks' builds, of their requirements, or of NVIDIA's other wheels."""
        built = [(row.get("compiled") or {}).get("cuda") for row in facts.get("frameworks") or ()]
        others = [row for name, row in self.distributions.items() if not name.startswith("nvidia-")]
        wanted = [requirement(text) for row in others for text in row["requires"]]
        pins = [row["name"] for row in wanted if row and not row["optional"]]
        return (
            {numbers(version)[0] for version in built if numbers(version)}
            or _numbered(r".*-cu(\d\d)$", pins)
            or self._brought()
            or _numbered(r"nvidia-cudnn-cu(\d\d)$", self.packages)
        )

    def _brought(self):
        """CUDA's majors by NVIDIA's wheels but cuDNN's, which others ask for in any combination."""
        rows = [(name, version) for name, version in self.packages.items() if "cudnn" not in name]
        return {cuda_major_of(name, version) for name, version in rows} - {None}


def _numbered(pattern, names):
    return {int(match.group(1)) for match in (re.match(pattern, name) for name in names) if match}


def places_here(machine):
    """Where this runs: some of container, wsl, colab, conda, venv, bare."""
    found = {place for place in ("container", "wsl", "colab") if machine.get(place)}
    if os.path.isdir(os.path.join(sys.prefix, "conda-meta")):
        found.add("conda")
    elif sys.prefix != getattr(sys, "base_prefix", sys.prefix):
        found.add("venv")
    return found or {"bare"}


def thing_at_fault(machine):
    """The thing that the verdict ``broken`` is about here, in words."""
    places = places_here(machine)
    names = (("colab", "the software of this runtime"), ("container", "the image"))
    names += (("conda", "this conda environment"), ("venv", "this virtual environment"))
    return next((words for place, words in names if place in places), "the software on this machine")


def installer():
    """The words before a requirement that install into this very interpreter: pip's, or uv's without pip."""
    python = quote(sys.executable or "python3")
    if not _has_pip():
        for folder in os.environ.get("PATH", "").split(os.pathsep):
            if os.access(os.path.join(folder, "uv"), os.X_OK):
                return "uv pip %s --python " + python
    return python + " -m pip %s"


def _has_pip():
    """Whether this interpreter, with the user's own search path, has pip."""
    return importlib.machinery.PathFinder.find_spec("pip", list(user_path())) is not None


class MachineRemedies(Remedies):
    """Commands by cause for this machine; ``check`` is the failed check that was laid to the cause."""

    def __init__(self, facts, check):
        self.facts, self.check = facts, check
        self.evidence = check.get("evidence") or {}
        self.said = "%s %s" % (check["summary"], self.evidence.get("stderr") or "")
        detail = {key: self.evidence.get(key) for key in ("compiled", "loaded") if self.evidence.get(key)}
        library = re.search(r"lib[\w+]+\.so[\w.]*", check["summary"])
        major = re.search(r"opens libcudnn\.so\.(\d)", check["summary"])
        detail.update(line=check["summary"], library=library and library.group(0))
        detail["major"] = major and major.group(1)
        detail["variable"] = self.evidence.get("variable")
        systems = [check["stage"]] if check["stage"] in read_frameworks() else []
        super(MachineRemedies, self).__init__(MachineFacts(facts), detail, systems)

    def commands(self, cause):
        """Those that change this environment or its variables; the remedy of a host is said in words."""
        pins = self._pinned() if self.check["id"] == "P01" else []
        found = (
            pins or (cause in _NOT_FOUND and self._by_path()) or super(MachineRemedies, self).commands(cause)
        )
        kept = ("unset ", "export ", "mv /etc/ld.so.preload ")
        found = [_for_this_python(c) for c in found if c.where in ("pip", "link") or c.text.startswith(kept)]
        if _has_pip():
            return found
        first = "this Python has no pip: first %s -m ensurepip" % quote(sys.executable or "python3")
        return [
            c._replace(note="; ".join(filter(None, (c.note, first)))) if " -m pip " in c.text else c
            for c in found
        ]

    def _by_path(self):
        """LD_LIBRARY_PATH with the wheels' folders, if all that cannot be opened lies there; [] otherwise."""
        names = sorted(self.evidence.get("cannot be opened") or ())
        found = [in_folders(name, self.facts.get("wheel_folders") or ()) for name in names]
        if not found or not all(found) or any(read_elf(path)["problem"] for path in found):
            return []
        folders = list(dict.fromkeys(map(os.path.dirname, found)))
        entries = folders + [e for e in (self.here.library_path or "").split(":") if e and e not in folders]
        note = "they are installed, and not where the loader looks"
        return [Command("shell", "export LD_LIBRARY_PATH=" + quote(":".join(entries)), note)]

    def _preload_interference(self):
        if self.evidence.get("cured_by") == "no-preload-file":
            text = "mv /etc/ld.so.preload /etc/ld.so.preload.off"
            return [Command("shell", text, "as root; every program here loads what that file names")]
        return self._written("preload-interference")

    def _ptxas_missing(self):
        hurt = [name for name in self.evidence.get("packages") or () if name in self.here.packages]
        return [self._again(name) for name in hurt] or self._written("ptxas-missing")

    def _cudnn_not_equal(self):
        pin = self.releases.cudnn_wheel(self.cuda, self.detail.get("compiled")) if self.cuda else None
        return [self._pip(pin, flags="--no-deps ")] if pin else []

    def _pip(self, *requirements, **options):
        words, flags = installer() % "install", options.get("flags", "")
        if words.startswith("uv"):
            flags = flags.replace("--force-reinstall", "--reinstall")
        return Command("pip", words + " " + flags + " ".join(map(quote, requirements)), options.get("note"))

    def _again(self, name):
        """A package once more, as it is; PyTorch's builds for one CUDA come from its own index."""
        version, _, local = self.here.packages[name].partition("+")
        flags = "--force-reinstall --no-deps%s " % torch_index(local)
        return self._pip("%s==%s" % (name, version), flags=flags)

    def _torch(self, row, note):
        flags = "--force-reinstall%s " % torch_index(None if row["default"] else row["variant"])
        return self._pip("torch==%s" % row["latest"], flags=flags, note=note)

    # -- variables

    def _without(self, bad, note):
        """LD_LIBRARY_PATH without the folders that are bad; [] if none of them is."""
        entries = [entry for entry in (self.here.library_path or "").split(":") if entry]
        own = [os.path.join(row["location"], "nvidia", "") for row in self.here.distributions.values()]
        rest = [entry for entry in entries if not bad(entry) or entry.startswith(tuple(own) or ("\0",))]
        if len(rest) == len(entries):
            return []
        text = "export LD_LIBRARY_PATH=" + quote(":".join(rest)) if rest else "unset LD_LIBRARY_PATH"
        return [Command("shell", text, note)]

    def _cudnn_shadowed(self):
        return self._without(lambda f: _first(f, r"libcudnn"), "without the folder of the other cuDNN")

    def _toolkit_mixed(self):
        pattern = r"lib(cublas|cudart|cusparse|cusolver|cufft|curand|nvJitLink)"
        return self._without(lambda folder: _first(folder, pattern), "without the folder of the other CUDA")

    def _libc_too_old(self):
        old = re.findall(r"(/[^:]*)/[^/:]+: version `", self.check["summary"])
        # a missing symbol is told of the library that asks for it
        asked = re.search(r"undefined symbol: \S+, version (GLIBCXX|CXXABI|GLIBC)_", self.check["summary"])
        name = r"libc\.so\.6" if asked and asked.group(1) == "GLIBC" else r"libstdc\+\+\.so\.6"
        return self._without(
            lambda folder: folder.rstrip("/") in old or (asked and _first(folder, name)),
            "without the older library's folder",
        )

    def _driver_stub(self):
        return self._without(lambda folder: "stubs" in folder.split("/"), "without the folder of stubs")

    def _check_disabled(self):
        return [Command("shell", "unset " + name, None) for name in self.evidence.get("off") or ()]

    # -- cuDNN

    def _required_pin(self):
        """The requirement on cuDNN of an installed distribution, ``nvidia-cudnn-cu12==9.3.0.75``, or None."""
        name = "nvidia-cudnn-cu%s" % self.cuda
        rows = sorted(self.here.distributions.values(), key=lambda row: row["name"])
        for wanted in filter(None, (requirement(text) for row in rows for text in row["requires"])):
            if wanted["name"] == name and wanted["pins"] and not wanted["optional"]:
                return name + ",".join(operator + version for operator, version in wanted["pins"])
        return None

    def _cudnn_pin(self):
        return self._required_pin() or super(MachineRemedies, self)._cudnn_pin()

    def _cudnn_missing(self):
        if cudnn_wheels(self.here.packages) and not self.here.cudnn_here:
            return self._cudnn_again()
        wanted = numbers(self.detail.get("major"))[:1]
        copies = [row["folder"] for row in self.facts.get("copies") or () if (row["major"],) == wanted]
        if copies and self.check["id"] == "E06":
            wheels = self.facts.get("wheel_folders") or []
            # a framework that does not find cuDNN in NVIDIA's wheels does not find their other libraries
            folders = wheels if copies[0] in wheels else copies[:1]
            path = ":".join(folders + [self.here.library_path or ""]).rstrip(":")
            text = "export LD_LIBRARY_PATH=" + quote(path)
            return [Command("shell", text, "it is installed, and not where the loader looks")]
        return super(MachineRemedies, self)._cudnn_missing()

    def _cudnn_too_old(self):
        pin, compiled = self._cudnn_pin(), numbers(self.detail.get("compiled"))
        note = "the version that the framework was built with"
        asked = numbers((pin or "").partition("==")[2])
        if asked and self.cuda and asked[:2] < compiled[:2]:
            # the pin of another framework made it too old
            pin = self.releases.cudnn_wheel(self.cuda, dotted(compiled[:2]))
            note = "newer than the %s that another package pins, which NVIDIA's rule allows" % dotted(asked)
        if pin and cudnn_wheels(self.here.packages):
            return [self._pip(pin, flags="--no-deps ", note=note)]
        return super(MachineRemedies, self)._cudnn_too_old()

    _cudnn_sublibrary_mismatch = Remedies._cudnn_again

    def _cudnn_sublibrary_missing(self):
        """The whole set again, and no other folder that would fill its gaps or stand before it."""
        return self._cudnn_again() + self._cudnn_shadowed()

    def _package_overwritten(self):
        names = list(cudnn_wheels(self.here.packages))
        keep = "nvidia-cudnn-cu%s" % self.cuda if self.cuda else None
        hurt = [name for name in self.evidence.get("packages") or () if name in self.here.packages]
        rows = [row for row in self.evidence.get("changed") or () if row["as_in"]]
        both = {name for row in rows for name in row["not_as_in"] + row["as_in"]}
        if len(both) > 1 and both <= set(self.here.distributions) and not both <= set(names):
            return self._keep_one(sorted(both), rows[0]["as_in"][0])
        if len(names) < 2 or not set(hurt) & set(names):
            return [self._again(name) for name in hurt]
        if keep not in names:
            return []
        wanted = self._cudnn_pin() or "%s==%s" % (keep, self.here.packages[keep])
        return [_uninstall(names), self._pip(wanted, flags="--no-deps ")]

    def _keep_one(self, names, last):
        """Uninstall packages that own the same files, then install the one to keep: the build with CUDA, of
        the CUDA here; else ``last``, the one whose files are there.
        """
        with_cuda = [name for name in names if name.endswith("-gpu") or name + "-cpu" in names]
        of_cuda = [name for name in names if self.cuda and re.search(r"cuda%dx$" % self.cuda, name)]
        keep = (with_cuda + of_cuda + [last])[0]
        version, _, local = self.here.distributions[keep]["version"].partition("+")
        wanted, flags = "%s==%s" % (keep, version), "--no-deps%s " % torch_index(local)
        return [_uninstall(names), self._pip(wanted, flags=flags)]

    def _pinned(self, name=None):
        """The requirements that are missed: those of the check itself, or of all packages here.

        With ``name``, a library's file name, that of the package which is not installed and holds it.
        """
        missed = self.evidence.get("missed") or self.evidence.get("lost") or self.facts.get("unmet") or ()
        if name is not None:
            missed = [
                row for row in self.facts.get("not_installed") or () if _package_holds(row["name"], name)
            ]
        wanted = [text for entry in missed for text in self._both_halves(entry)]
        wanted = list(dict.fromkeys(wanted))
        return [self._pip(*wanted[:5], flags="--no-deps ")] if wanted else []

    _package_pin_mismatch = _pinned

    def _both_halves(self, entry):
        """The requirement that is missed; for JAX's plug-in its two halves, which are of one release."""
        half = re.match(r"(jax-cuda\d+)-(plugin|pjrt)$", entry.get("name") or "")
        version = (self.here.packages.get("jaxlib") or "").partition("+")[0]
        if not half or not version:
            return [entry["wants"]]
        return ["%s-%s==%s" % (half.group(1), part, version) for part in ("plugin", "pjrt")]

    # -- CUDA's libraries

    def _toolkit_library_missing(self):
        if self.evidence.get("absent"):
            self.detail["library"] = self.evidence["absent"][0]["name"]
        pinned = self._pinned(self.detail["library"] or "")
        return pinned or super(MachineRemedies, self)._toolkit_library_missing()

    def _nvrtc_missing(self):
        places = [row["location"] for row in self.here.distributions.values()]
        folder = in_folders("nvidia/cuda_nvrtc/lib", places)
        versioned = _first(folder, r"libnvrtc\.so\.\d[\d.]*$")
        if versioned and re.search(r"\blibnvrtc\.so\b(?!\.)", self.said):
            note = "cuDNN 8 opens the name without a number"
            return [_link(versioned, os.path.join(folder, "libnvrtc.so"), note)]
        if self.cuda not in (11, 12, 13):
            return []
        name = cuda_package("cuda-nvrtc", self.cuda)
        return [self._again(name) if name in self.here.packages else self._pip(name)]

    def _unversioned_name_missing(self):
        found = re.search(r"\b(libcudnn|libnvrtc|libcuda)\.so\b(?!\.)", self.said)
        for row in self.facts.get("libraries_found") or () if found else ():
            folder, name = os.path.dirname(row["path"]), found.group(1)
            if re.match(name + r"\.so\.\d", row["name"]) and os.access(folder, os.W_OK):
                return [_link(row["path"], os.path.join(folder, name + ".so"), None)]
        return []


def _uninstall(names):
    words = installer() % "uninstall"
    words += " " if words.startswith("uv") else " -y "
    return Command("pip", words + " ".join(names), "all of them: they own the same files")


def _for_this_python(command):
    """A command whose ``pip`` is that of this interpreter, or uv's for it."""
    if command.where != "pip":
        return command
    verbs = (("pip install ", "install", ""), ("pip uninstall -y ", "uninstall", " -y"))
    text = command.text
    for plain, verb, yes in verbs:
        words = installer() % verb
        words += "" if words.startswith("uv") else yes
        text = re.sub(r"(^|&& )" + plain, lambda found, words=words: found.group(1) + words + " ", text)
    if text.startswith("uv"):
        text = text.replace("--force-reinstall", "--reinstall")
    return command._replace(text=text)


def _package_holds(package, library):
    """Whether one of NVIDIA's packages is known to hold a library of this name."""
    known = read_facts()["families"].get(cuda_family(package)[0]) or {}
    return any(library.startswith(name.partition(".so")[0] + ".so") for name in known.get("libraries", ()))


def _link(path, name, note):
    return Command("link", "ln -s %s %s" % (quote(os.path.basename(path)), quote(name)), note)


def _first(folder, pattern):
    """The path of the first file in a folder whose name begins so; None."""
    names = list_folder(folder) if folder else []
    return next((os.path.join(folder, name) for name in names if re.match(pattern, name)), None)


def why_no_command(identifier, side):
    """Why nothing that could be typed here mends a cause; ``side`` as in :func:`report.side_of`."""
    if CAUSES[identifier].without:
        return CAUSES[identifier].without
    if side == "host":
        return (
            "no command in this environment changes the machine, its driver or how the container was started"
        )
    return "the versions, packages or folders that a command would name could not be read here"


def commands_here(facts, check):
    """[{where, text, note}] for a failed check, as the report holds them."""
    return [dict(command._asdict()) for command in MachineRemedies(facts, check).commands(check["cause"])]
