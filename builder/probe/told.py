"""Facts of a machine out of a text: card, driver, CUDA, packages, and the place where it ran.

The expressions are in ``patterns.ini``, and compiled at their first use: most runs of the probe read no text.
"""

import re

from .data import read_patterns
from .distributions import canonical
from .versions import cuda_tuple, cudnn_tuple, dotted, numbers


def _find(name, text):
    return re.search(read_patterns()["told"][name], text)


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
        self.packages, self.cards, self.archs, self.library_path = {}, [], [], None
        self.driver = self.driver_cuda = self.capability = self.python = None
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
            plus = _find("plus", version)
            if plus:
                self.cuda_majors.add(int(plus.group("major")) if plus.group("major") != "92" else 9)
        for names in ([n for n in self.packages if "cudnn" not in n], self.packages):
            found = [re.search(r"-cu(?:da)?(\d\d)", name) for name in names]
            self.cuda_majors = self.cuda_majors or {int(match.group(1)) for match in found if match}
        found = re.search(r"(?:jax\S* [\d.]+ |jax\[)cuda(\d\d)", text)
        if found:
            self.cuda_majors.add(int(found.group(1)))
        self.cpu_build = bool(re.search(r"\+cpu\b|tensorflow[-_]cpu", text))

    def _machine(self, text):
        for found in _find_all("driver", text):
            self.driver = self.driver or found.group("driver") or found.group("hint")
        found = _find("driver_cuda", text)
        if found:
            number = found.group("number")
            self.driver_cuda = (
                dotted(cuda_tuple(number)) if number else found.group("cuda") or found.group("told")
            )
        for found in _find_all("card", text):
            card = found.group("card").strip(" -")
            if card not in self.cards and (re.search(r"\d", card) or "TITAN" in card):
                self.cards.append(card)
        found = _find("capability", text)
        if found:
            digits = found.group("cc")
            self.capability = digits if "." in digits else "%s.%s" % (digits[:-1], digits[-1])
        by_card = (capability for card in self.cards for capability in _fitting("cards", card))
        self.capability = self.capability or next(by_card, None)
        found = _find("archs", text)
        self.archs = re.findall(r"\w+_\d+a?", found.group("archs")) if found else []
        found = _find("python", text)
        self.python = found.group("version") if found else None
        found = _find("memory", text)
        if found:
            self.memory_total = int(found.group("total")) << 20
            self.memory_free = self.memory_total - (int(found.group("used")) << 20)
        found = _find("memory_bytes", text)
        if found:
            self.memory_free, self.memory_total = int(found.group("free")), int(found.group("total"))

    def _cudnn(self, text):
        for name, version in self.packages.items():
            if re.match(r"nvidia-cudnn-cu\d+$|libcudnn\d|cudnn$", name):
                self.cudnn_here.add(version)
        for found in _find_all("cudnn", text):
            version = found.group("version")
            self.cudnn_here.add(
                dotted(cudnn_tuple(version)) if len(version) > 3 and version.isdigit() else version
            )
        for found in _find_all("debian", text):
            self.cudnn_here.add(found.group("version"))
            self.cuda_majors.add(int(found.group("cuda")))
        for found in _find_all("found", text):
            self.cudnn_here.add(found.group("version"))
        found = _find("path", text)
        self.library_path = found.group("value") if found else None
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
        listed = re.findall(r"(?m)^\s*GPU (\d+): ", text)
        self.cards_listed = bool(listed)
        found = re.search(r"CUDA_VISIBLE_DEVICES\W{1,6}(\d+)", text)
        beyond = found and listed and int(found.group(1)) > max(map(int, listed))
        none = re.search(r"CUDA_VISIBLE_DEVICES\W{1,4}(?:-1|[\"']{2}|\s*$|NoDevFiles)", text, re.M)
        self.hidden = bool(beyond or none)
        lists = " ".join(found.group("list").lower() for found in _find_all("capabilities", text))
        words = set(re.findall(r"\w+", lists))
        self.no_compute = "utility" in words and not words & {"compute", "all"}

    def cudnn_majors(self):
        """The major versions of cuDNN that the text says are here."""
        return {numbers(version)[0] for version in self.cudnn_here if numbers(version)}

    def as_document(self):
        """For the report."""
        names = "cards capability driver driver_cuda python packages library_path memory_free memory_total"
        found = {name: getattr(self, name) for name in names.split()}
        return dict(found, cudnn=sorted(self.cudnn_here), places=sorted(self.places))
