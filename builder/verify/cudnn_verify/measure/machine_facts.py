"""Commands that mend the cause found here, with the packages, pins and paths of this machine."""

import importlib.machinery
import os
import re
import shlex
import sys
import sysconfig
from shlex import quote

from ..common.causes import CAUSES
from ..common.command_forms import Command
from ..common.distributions import cudnn_wheels, list_folder, requirement
from ..common.framework_builds import torch_index
from ..common.isolation import user_path
from ..common.remedies import Remedies
from ..common.tables import cuda_family, cuda_major_of, cuda_package, read_facts, read_frameworks
from ..common.versions import dotted, numbers, satisfies
from .library_files import in_folders, read_elf

_NOT_FOUND = ("cudnn-missing", "cudnn-sublibrary-missing", "toolkit-library-missing", "nvrtc-missing")
_CUDA_LIBRARIES = r"lib(cublas|cudart|cusparse|cusolver|cufft|curand|nvJitLink)"


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
            or self.brought()
            or _numbered(r"nvidia-cudnn-cu(\d\d)$", self.packages)
        )

    def brought(self, without=()):
        """CUDA's majors by NVIDIA's wheels but cuDNN's, which others ask for in any combination."""
        rows = [(k, v) for k, v in self.packages.items() if "cudnn" not in k and k not in without]
        return {cuda_major_of(name, version) for name, version in rows} - {None}


def _numbered(pattern, names):
    return {int(match.group(1)) for match in (re.match(pattern, name) for name in names) if match}


def places_here(machine):
    """The kinds of place that this is: some of container, wsl, colab, conda, venv, bare."""
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

    quoted = staticmethod(quote)

    def __init__(self, facts, check):
        self.facts, self.check = facts, check
        self.evidence = check.get("evidence") or {}
        self.said = "%s %s" % (check["summary"], self.evidence.get("stderr") or "")
        detail = {key: self.evidence.get(key) for key in ("compiled", "loaded") if self.evidence.get(key)}
        library = re.search(r"lib[\w+]+\.so[\w.]*", check["summary"])
        major = re.search(r"opens libcudnn\.so\.(\d)", check["summary"])
        absent = self.evidence.get("absent") or [{"name": library and library.group(0)}]
        detail.update(line=check["summary"], library=absent[0]["name"])
        detail["major"] = major and major.group(1)
        detail["variable"] = self.evidence.get("variable")
        systems = [check["stage"]] if check["stage"] in read_frameworks() else []
        super(MachineRemedies, self).__init__(MachineFacts(facts), detail, systems)

    def commands(self, cause):
        """Commands that change this environment or its variables; the remedy of a host is said in words."""
        found = self._written("package-pin-mismatch") if self.check["id"] == "P01" else []
        found = self._not_found(cause, found) if cause in _NOT_FOUND else found
        found = found or super(MachineRemedies, self).commands(cause)
        kept = ("unset ", "export ", "chmod a+x ", "mv /etc/ld.so.preload ")
        found = [_for_this_python(c) for c in found if c.where in ("pip", "link") or c.text.startswith(kept)]
        if _has_pip():
            return found
        first = "this Python has no pip: first %s -m ensurepip" % quote(sys.executable or "python3")
        return [
            c._replace(note="; ".join(filter(None, (c.note, first)))) if " -m pip " in c.text else c
            for c in found
        ]

    def _done(self, command):
        """Whether all that a command installs is here, in versions that it admits: pip changes nothing."""
        words = shlex.split(command.text)
        if command.where != "pip" or words[:2] != ["pip", "install"] or len(words) < 3:
            return super(MachineRemedies, self)._done(command)
        rows = [requirement(word) for word in words[2:] if word != "--no-deps"]
        return all(
            row is not None
            and not row["extras"]
            and row["name"] in self.here.packages
            and satisfies(self.here.packages[row["name"]], row["pins"])
            for row in rows
        )

    def _lying(self):
        """(paths of the libraries that cannot be opened and lie in wheels, names of those that do not)."""
        names = sorted(self.evidence.get("cannot be opened") or ())
        found = {name: in_folders(name, self.facts.get("wheel_folders") or ()) for name in names}
        sound = {name: path for name, path in found.items() if path and not read_elf(path)["problem"]}
        return list(sound.values()), [name for name in names if name not in sound]

    def _not_found(self, cause, first):
        """Commands that install libraries that are nowhere (``first``, else the lines of the cause), and
        LD_LIBRARY_PATH with their folders to be and those of what lies in wheels, if it is needed; [].
        """
        found, absent = self._lying()
        if found and not absent:
            first = []
        else:
            first = first or super(MachineRemedies, self).commands(cause)
        folders = list(dict.fromkeys(map(os.path.dirname, found)))
        entries = list(filter(None, (self.here.library_path or "").split(":")))
        new = _folders_to_be(first, ".*" if found else self._opened_by_name())
        if not folders and not set(new) - set(entries):
            return first
        folders += new
        # whoever does not find one of NVIDIA's wheels does not find the others, which are opened later
        root = os.path.dirname(os.path.dirname(folders[0]))
        wheels = [
            folder for folder in self.facts.get("wheel_folders") or () if folder.startswith(root + os.sep)
        ]
        dead = [entry for entry in entries if not os.path.isdir(entry) and entry not in new]
        rest = [entry for entry in entries if entry not in dead]
        note = "they are installed, and not where the loader looks"
        if not found:
            note = "no framework of those here that open it by its name looks in wheels"
        note += "; left out, since it is not there: %s" % ", ".join(dead) if dead else ""
        path = ":".join(dict.fromkeys(folders + wheels + rest))
        return first + [Command("shell", "export LD_LIBRARY_PATH=" + quote(path), note)]

    def _companions_here(self):
        """PyTorch with those of its companions that are installed."""
        words = Remedies.FACTS["companions"](self) or []
        names = {word: re.split("[=<>]", word)[0] for word in words}
        return [
            w
            for w in words
            if names[w] not in ("torchvision", "torchaudio") or names[w] in self.here.packages
        ] or None

    def _opened_by_name(self):
        """A pattern for the families whose libraries a framework here opens by their names, and in no wheel:
        CTranslate2 (https://github.com/SYSTRAN/faster-whisper#gpu), and CuPy before 14.
        """
        old = [
            v for k, v in self.here.packages.items() if re.match("cupy(-cuda|$)", k) and numbers(v) < (14,)
        ]
        opened = ["cublas|cudnn"] * ("ctranslate2" in self.here.packages) + ["cu.*|nvjitlink"] * bool(old)
        return "|".join(opened) or None

    def _toolkit_wheels(self):
        """NVIDIA's wheels with all the libraries that are nowhere."""
        names = [row["name"] for row in self.evidence.get("absent") or ()] or self._lying()[1]
        found = map(self._toolkit_wheel, names or [self.detail.get("library")])
        return list(dict.fromkeys(filter(None, found))) or None

    def _again(self, name):
        """A package once more, as it is; PyTorch's builds for one CUDA come from its own index."""
        version, _, local = self.here.packages[name].partition("+")
        return torch_index(local) + ["%s==%s" % (name, version)]

    def torch_release(self):
        """The release that most packages here are compiled for, which they pin; else the one that is here."""
        rows = [requirement(text) for row in self.here.distributions.values() for text in row["requires"]]
        pins = [row["pins"][0][1] for row in rows if row and row["name"] == "torch" and _is_exact(row)]
        here = super(MachineRemedies, self).torch_release()
        return max(pins, key=lambda pin: (pins.count(pin), pin == here), default=here)

    # -- what the lines of causes.ini ask for

    def _path_without(self, bad):
        """LD_LIBRARY_PATH without the folders that are bad, as a command; None if none of them is."""
        entries = [entry for entry in (self.here.library_path or "").split(":") if entry]
        own = [os.path.join(row["location"], "nvidia", "") for row in self.here.distributions.values()]
        rest = [entry for entry in entries if not bad(entry) or entry.startswith(tuple(own) or ("\0",))]
        if len(rest) == len(entries):
            return None
        return "export LD_LIBRARY_PATH=" + quote(":".join(rest)) if rest else "unset LD_LIBRARY_PATH"

    def _path_without_old_library(self):
        old = re.findall(r"(/[^:]*)/[^/:]+: version `", self.check["summary"])
        # a missing symbol is told of the library that asks for it
        asked = re.search(r"undefined symbol: \S+, version (GLIBCXX|CXXABI|GLIBC)_", self.check["summary"])
        name = r"libc\.so\.6" if asked and asked.group(1) == "GLIBC" else r"libstdc\+\+\.so\.6"
        return self._path_without(lambda f: f.rstrip("/") in old or (asked and _first(f, name)))

    def _path_to_cudnn(self):
        """LD_LIBRARY_PATH with the folder of a cuDNN that a framework opens, and does not find."""
        wanted = numbers(self.detail.get("major"))[:1]
        copies = [row["folder"] for row in self.facts.get("copies") or () if (row["major"],) == wanted]
        if not copies or self.check["id"] != "E06":
            return None
        wheels = self.facts.get("wheel_folders") or []
        # a framework that does not find cuDNN in NVIDIA's wheels does not find their other libraries
        folders = wheels if copies[0] in wheels else copies[:1]
        path = ":".join(folders + [self.here.library_path or ""]).rstrip(":")
        return "export LD_LIBRARY_PATH=" + quote(path)

    def cudnn_pin(self):
        """The requirement on cuDNN of an installed distribution, ``nvidia-cudnn-cu12==9.3.0.75``, first."""
        found = self._asked("nvidia-cudnn-cu%s" % self.cuda)
        if found:
            return found
        return super(MachineRemedies, self).cudnn_pin()

    def _asked(self, name, extras=False):
        """The first requirement with a version on a package, of an installed one; ``extras``: theirs, too."""
        rows = sorted(self.here.distributions.values(), key=lambda row: row["name"])
        for wanted in filter(None, (requirement(text) for row in rows for text in row["requires"])):
            if wanted["name"] == name and wanted["pins"] and (extras or not wanted["optional"]):
                return name + ",".join(operator + version for operator, version in wanted["pins"])
        return None

    def _older_pin(self):
        """The version that another framework pins, if it is what made cuDNN too old."""
        asked = numbers((self.cudnn_pin() or "").partition("==")[2])
        return dotted(asked) if asked and self.cuda and asked[:2] < self.compiled[:2] else None

    def _hurt(self):
        """The packages in the evidence that are here."""
        return [name for name in self.evidence.get("packages") or () if name in self.here.packages]

    def owners(self):
        return list(cudnn_wheels(self.here.packages)) or None

    def kept(self):
        """The requirement of the cuDNN for the CUDA here."""
        keep = "nvidia-cudnn-cu%s" % self.cuda
        here = self.here.packages.get(keep)
        return (self.cudnn_pin() or "%s==%s" % (keep, here)) if here else None

    def _both(self):
        """Packages, not cuDNN's alone, that own the same files; None if there are no two."""
        rows = [row for row in self.evidence.get("changed") or () if row["as_in"]]
        both = {name for row in rows for name in row["not_as_in"] + row["as_in"]}
        owned = len(both) > 1 and both <= set(self.here.distributions)
        return sorted(both) if owned and not both <= set(self.owners() or ()) else None

    def _one_to_keep(self):
        """Of :meth:`_both` the build with CUDA, the one that others ask for, that of the CUDA of NVIDIA's
        other wheels; else the one whose files are there. The version is the one that is asked for.
        """
        both = self._both()
        if both is None:
            return None
        with_cuda = [name for name in both if name.endswith("-gpu") or name + "-cpu" in both]
        asked = [name for extras in (False, True) for name in both if self._asked(name, extras)]
        majors = self.here.brought(both) or {self.cuda}
        of_cuda = [name for name in both if _numbered(r".*-cu(?:da)?(\d\d)x?$", [name]) & majors]
        last = next(row["as_in"][0] for row in self.evidence["changed"] if row["as_in"])
        keep = (with_cuda + asked + of_cuda + [last])[0]
        pin = self._asked(keep, True) or ""
        return [pin] if "==" in pin else self._again(keep)

    def _missed(self):
        """The requirements that are missed: those of the check itself, or of all packages here."""
        own = self.evidence.get("missed") or self.evidence.get("lost")
        return self._requirements(own or self.facts.get("unmet"))

    def _not_installed(self):
        """The requirement of the package that is not installed and holds the library which is missed."""
        rows, name = self.facts.get("not_installed") or (), self.detail.get("library") or ""
        return self._requirements(row for row in rows if _package_holds(row["name"], name))

    def _requirements(self, missed):
        wanted = {}
        for text in (text for entry in missed or () for text in self._both_halves(entry)):
            name = re.match(r"[\w.-]*", text).group(0)
            wanted.setdefault(name, []).append(text[len(name) :])
        return [name + ",".join(dict.fromkeys(pins)) for name, pins in wanted.items()][:5] or None

    def _both_halves(self, entry):
        """The requirement that is missed; for JAX's plug-in its two halves, which are of one release."""
        half = re.match(r"(jax-cuda\d+)-(plugin|pjrt)$", entry.get("name") or "")
        version = (self.here.packages.get("jaxlib") or "").partition("+")[0]
        if not half or not version:
            return [entry["wants"]]
        return ["%s-%s==%s" % (half.group(1), part, version) for part in ("plugin", "pjrt")]

    def _triton_ptxas(self):
        """The ptxas of CUDA 13's wheel, once it is installed beside Triton."""
        triton = self.here.distributions.get("triton")
        return quote(os.path.join(triton["location"], "nvidia", "cu13", "bin", "ptxas")) if triton else None

    def _headers_here(self):
        """The folder with CUDA's headers in a wheel: CuPy takes the one of an nvcc on PATH before it."""
        row = self.here.distributions.get(self.known("headers-wheel"))
        for name in ("cuda_runtime", "cu%s" % self.cuda) if row else ():
            folder = os.path.join(row["location"], "nvidia", name)
            if os.path.exists(os.path.join(folder, "include", "cuda_fp16.h")):
                return quote(folder)
        return None

    def _nvrtc_link(self):
        places = [row["location"] for row in self.here.distributions.values()]
        folder = in_folders("nvidia/cuda_nvrtc/lib", places)
        versioned = _first(folder, r"libnvrtc\.so\.\d[\d.]*$")
        asked = re.search(r"\blibnvrtc\.so\b(?!\.)", self.said)
        return _link(versioned, os.path.join(folder, "libnvrtc.so")) if versioned and asked else None

    def _nvrtc_here(self):
        name = self.known("nvrtc")
        if name in self.here.packages:
            return ["--force-reinstall", "--no-deps"] + self._again(name)
        # of the minor version of the toolkit that is here
        family, major = cuda_family(name or "")
        beside = self.here.packages.get(cuda_package("cuda-runtime", major)) if major else None
        return "%s==%s.*" % (name, dotted(numbers(beside)[:2])) if beside else name

    def _bare_link(self):
        found = re.search(r"\b(libcudnn|libnvrtc|libcuda)\.so\b(?!\.)", self.said)
        for row in self.facts.get("libraries_found") or () if found else ():
            folder, name = os.path.dirname(row["path"]), found.group(1)
            if re.match(name + r"\.so\.\d", row["name"]) and os.access(folder, os.W_OK):
                return _link(row["path"], os.path.join(folder, name + ".so"))
        return None

    FACTS = dict(
        Remedies.FACTS,
        **{
            "measured": lambda _: True,
            "unseen-wheels": lambda r: bool(r.owners()) and not r.here.cudnn_here,
            "exact-pin": lambda r: r.releases.cudnn_wheel(r.cuda, r.detail.get("compiled")),
            "older-pin": _older_pin,
            "newer-pin": lambda r: r.releases.cudnn_wheel(r.cuda, dotted(r.compiled[:2])),
            "path-to-cudnn": _path_to_cudnn,
            "path-without-cudnn": lambda r: r._path_without(lambda f: _first(f, r"libcudnn")),
            "path-without-cuda": lambda r: r._path_without(lambda f: _first(f, _CUDA_LIBRARIES)),
            "path-without-stubs": lambda r: r._path_without(lambda f: "stubs" in f.split("/")),
            "path-without-old-library": _path_without_old_library,
            "no-preload-file": lambda r: r.evidence.get("cured_by") == "no-preload-file",
            "cudnns-overwritten": lambda r: (
                len(r.owners() or ()) > 1 and bool(set(r._hurt()) & set(r.owners()))
            ),
            "each-hurt": lambda r: tuple(map(r._again, r._hurt())),
            "set-at-start": lambda r: bool(r.evidence.get("set_by")),
            "cuda-headers": lambda r: bool(r.evidence.get("header")),
            "headers-here": _headers_here,
            "closed-program": lambda r: " ".join(map(quote, r.evidence.get("closed") or ())) or None,
            "each-right-name": lambda r: tuple(filter(None, map(r.right_name, r._hurt()))),
            "each-switch": lambda r: tuple(r.evidence.get("off") or ()),
            "both": _both,
            "one-to-keep": _one_to_keep,
            "missed": _missed,
            "not-installed": _not_installed,
            "toolkit-wheel": _toolkit_wheels,
            "companions": _companions_here,
            "triton-ptxas": _triton_ptxas,
            "nvrtc-link": _nvrtc_link,
            "nvrtc-here": _nvrtc_here,
            "bare-link": _bare_link,
        },
    )


def _folders_to_be(commands, families):
    """The folders that the wheels of these families (a pattern, or None) will have, once installed."""
    words = " ".join(command.text for command in commands if command.where == "pip")
    found = []
    for name in re.findall(r"\bnvidia(?:-[a-z]+)+?(?:-cu\d\d)?(?![\w-])", words) if families else ():
        family, major = cuda_family(name)
        if family and re.match("(%s)$" % families, family):
            folder = family.replace("-", "_") if major else "cu13"
            found.append(os.path.join(sysconfig.get_path("purelib"), "nvidia", folder, "lib"))
    return list(dict.fromkeys(found))


def _is_exact(row):
    """Whether a requirement, which is no extra's, names one release."""
    pins = [] if row["optional"] else row["pins"]
    return [operator for operator, _ in pins] == ["=="] and re.match(r"[\d.]+$", pins[0][1]) is not None


def _for_this_python(command):
    """A command whose ``pip`` is that of this interpreter, or uv's for it."""
    if command.where != "pip":
        return command
    words = installer()
    text = re.sub(
        r"(^|&& )pip (install|uninstall -y) ", lambda f: f.group(1) + words % f.group(2) + " ", command.text
    )
    if words.startswith("uv"):
        text = text.replace("--force-reinstall", "--reinstall").replace("uninstall -y", "uninstall")
    return command._replace(text=text)


def _package_holds(package, library):
    """Whether one of NVIDIA's packages is known to hold a library of this name."""
    known = read_facts()["families"].get(cuda_family(package)[0]) or {}
    return any(library.startswith(name.partition(".so")[0] + ".so") for name in known.get("libraries", ()))


def _link(path, name):
    return "%s %s" % (quote(os.path.basename(path)), quote(name))


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
