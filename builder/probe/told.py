"""Facts of a machine out of a text: card, driver, CUDA, packages, and the place where it ran.

The expressions are in ``patterns.ini``, and compiled at their first use: most runs of the probe read no text.
"""

import re

from .data import read_patterns
from .distributions import canonical
from .versions import cuda_tuple, cudnn_tuple, dotted, numbers


def _told(name, text):
    """The groups of an expression's first match that hold something; {} without a match."""
    found = re.search(read_patterns()["told"][name], text)
    return {key: value for key, value in found.groupdict().items() if value} if found else {}


def _find_all(name, text):
    return re.finditer(read_patterns()["told"][name], text)


def _fitting(section, text):
    """The keys of a section whose expressions are found in a text."""
    return [key for key, pattern in read_patterns()[section].items() if re.search(pattern, text)]


def printed_by(text):
    """The frameworks whose files, modules or names a text has."""
    return set(_fitting("printed-by", text))


class Told(object):
    """Facts out of texts. Versions are texts; memory is in bytes; None or empty if no text says it."""

    def __init__(self, lines):
        self.packages, self.cards = {}, []
        self.memory_free = self.memory_total = None
        self.cudnn_here, self.cuda_majors = set(), set()
        text = "\n".join(line.text for line in lines)
        self._packages(text)
        self._machine(text)
        self._cudnn(text)
        self.printed_by, self.places = printed_by(text), set(_fitting("places", text))

    def _packages(self, text):
        names = read_patterns()["names"]
        for pattern in ("pinned", "asked", "wordy"):
            for found in _find_all(pattern, text):
                name = canonical(found.group("name"))
                self.packages.setdefault(names.get(name, name), found.group("version").rstrip(".,;)"))
        for version in self.packages.values():
            major = _told("plus", version).get("major")
            if major:
                self.cuda_majors.add(int(major) if major != "92" else 9)
        for names in ([n for n in self.packages if "cudnn" not in n], self.packages):
            found = [re.search(r"-cu(?:da)?(\d\d)", name) for name in names]
            self.cuda_majors = self.cuda_majors or {int(match.group(1)) for match in found if match}
        found = re.search(r"(?:jax\S* [\d.]+ |jax\[)cuda(\d\d)", text)
        if found:
            self.cuda_majors.add(int(found.group(1)))
        self.cpu_build = bool(re.search(r"\+cpu\b|tensorflow[-_]cpu", text))

    def _machine(self, text):
        said = [found.group("driver") or found.group("hint") for found in _find_all("driver", text)]
        self.driver = next(iter(said), None)
        said = _told("driver_cuda", text)
        number = dotted(cuda_tuple(said["number"])) if "number" in said else None
        self.driver_cuda = number or said.get("cuda") or said.get("told")
        for found in _find_all("card", text):
            card = found.group("card").strip(" -")
            if card not in self.cards and (re.search(r"\d", card) or "TITAN" in card):
                self.cards.append(card)
        digits = _told("capability", text).get("cc")
        by_card = (capability for card in self.cards for capability in _fitting("cards", card))
        self.capability = re.sub(r"^(\d+)(\d)$", r"\1.\2", digits) if digits else next(by_card, None)
        self.archs = re.findall(r"\w+_\d+a?", _told("archs", text).get("archs", ""))
        self.python = _told("python", text).get("version")
        said = _told("memory", text)
        if said:
            self.memory_total = int(said["total"]) << 20
            self.memory_free = self.memory_total - (int(said["used"]) << 20)
        said = _told("memory_bytes", text)
        if said:
            self.memory_free, self.memory_total = int(said["free"]), int(said["total"])

    def _cudnn(self, text):
        for name, version in self.packages.items():
            if re.match(r"nvidia-cudnn-cu\d+$|libcudnn\d|cudnn$", name):
                self.cudnn_here.add(version)
        for found in _find_all("cudnn", text):
            version = found.group("version")
            as_number = len(version) > 3 and version.isdigit()
            self.cudnn_here.add(dotted(cudnn_tuple(version)) if as_number else version)
        for found in _find_all("debian", text):
            self.cudnn_here.add(found.group("version"))
            self.cuda_majors.add(int(found.group("cuda")))
        for found in _find_all("found", text):
            self.cudnn_here.add(found.group("version"))
        self.library_path = _told("path", text).get("value")
        self._visible(text)
        self.no_kernel_module = "/proc/driver/nvidia/version does not exist" in text
        found = re.search(r" on (/\S*) type \S+ \([^)]*\bnoexec\b", text)
        self.noexec = found.group(1) if found else None
        self.address_limit = bool(re.search(r"RLIMIT_AS|(?:ulimit |kbytes, )-v\)?\s+\d", text))
        self.slept = bool(re.search(r"(?i)\b(?:suspend|hibernat)|\b(?:wak\w+ up|from sleep)\b", text))
        system = r"(?:init:|=>|file=)\s*(?:/usr)?/lib/(?:[\w\s-]{1,40}/)?\s*libcudnn"
        self.system_cudnn = bool(re.search(system, text))

    def _visible(self, text):
        """Whether a variable keeps the cards, or CUDA's part of the driver, away."""
        listed = re.findall(r"(?m)^\s*GPU (\d+): |^\|\s+(\d+)\s+[A-Z][^|]*(?:On|Off|WDDM|TCC|N/A)\s*\|", text)
        listed = [int(number or other) for number, other in listed]
        self.cards_listed = bool(listed)
        found = re.search(r"CUDA_VISIBLE_DEVICES\W{1,6}(\d+)", text)
        beyond = found and listed and int(found.group(1)) > max(listed)
        none = re.search(r"CUDA_VISIBLE_DEVICES\W{1,4}(?:-1|[\"']{2}|\s*$|NoDevFiles)", text, re.M)
        self.hidden = bool(beyond or none)
        lists = " ".join(found.group("list").lower() for found in _find_all("capabilities", text))
        words = set(re.findall(r"\w+", lists))
        self.no_compute = "utility" in words and not words & {"compute", "all"}

    def cudnn_majors(self):
        """The major versions of cuDNN that the text says are here."""
        return {numbers(version)[0] for version in self.cudnn_here if numbers(version)}

    def as_document(self):
        names = "cards capability driver driver_cuda python packages library_path memory_free memory_total"
        found = {name: getattr(self, name) for name in names.split()}
        return dict(found, cudnn=sorted(self.cudnn_here), places=sorted(self.places))
