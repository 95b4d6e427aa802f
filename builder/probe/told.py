"""What a text tells of the machine: card, driver, CUDA, packages, and where it ran.

Patterns are texts, compiled at their first use: most runs of the probe read no text.
"""

import re

from .distributions import canonical
from .versions import cuda_tuple, cudnn_tuple, dotted, numbers

_PINNED = (
    r"(?i)(?:^|[\s'\"(,\[])(?P<name>torch|pytorch|tensorflow(?:[_-](?:gpu|cpu))?|tf-nightly|jax|jaxlib|"
    r"jax-cuda\d+-p\w+|onnxruntime(?:-gpu)?|ctranslate2|faster-whisper|cupy-cuda\w+|cupy|paddlepaddle(?:-gpu)?|keras|"
    r"nvidia-[a-z][\w-]*?|cudatoolkit|cudnn|pytorch-cuda|cuda-\w+|libcudnn\d(?:-\w+)?|numpy|protobuf)"
    r"(?:\[[\w,-]+\])?(?:\s*(?:===?|~=|>=|@|/)\s*v?|\s+(?:Version:?|version:?)?\s*v?|:\s+)"
    r"(?P<version>\d+(?:\.\d+)+[\w.+-]*|\d+\.\d+)"
)
_WORDY = (
    r"(?i)\b(?P<name>TF|TensorFlow|PyTorch|torch|JAX|ONNX ?Runtime|onnxruntime|CTranslate2)"
    r"(?:[ -](?:gpu|version))?\s*(?:is|:|=|v|<)?\s*v?(?P<version>\d+\.\d+(?:\.\d+)*(?:\+\w+)?)"
)
_ASKED = (
    r"(?P<name>torch|tensorflow|tf|jax|jaxlib)\.__version__\W{1,12}(?P<version>\d+\.\d+(?:\.\d+)*(?:\+\w+)?)"
)
_NAMES = {
    "pytorch": "torch",
    "tf": "tensorflow",
    "tensorflow-gpu": "tensorflow",
    "tf-nightly": "tensorflow",
    "onnx runtime": "onnxruntime",
    "onnxruntime-gpu": "onnxruntime",
    "jaxlib": "jaxlib",
}
_DRIVER = (
    r"(?i)(?:Driver Version:?|Nvidia driver version:?|Kernel Module(?: for x86_64)?|"
    r"NVRM version:.{0,60}Module|driver[- ](?:version )?)\s*(?P<driver>\d{3}\.\d+(?:\.\d+)*)|"
    r"insufficient driver version:\s*(?P<hint>\d{3}\.[\d.]*\d)"
)
_DRIVER_CUDA = (
    r"(?i)Driver Version.{0,40}CUDA Version:\s*(?P<cuda>\d+\.\d+)|found version (?P<number>\d{4,5})\b"
    r"|NVIDIA driver's CUDA version is (?P<told>\d+\.\d+)"
)
_CARD = (
    r"\b(?P<card>(?:NVIDIA )?(?:Tesla|GeForce|Quadro|TITAN|RTX|GTX|A100|A10G?|A30|A40|A800|H100|H200|H800|"
    r"L40S?|L4|T4|V100|P100|P40|K80|K40c?|B200|GB10|GB200)\b[ -]?(?:(?:RTX|GTX|PRO|Ada|Xp?|V|PCIE|PCIe|SXM\d|"
    r"\d+GB|[A-Z]?\d{1,4}[a-zA-Z]{0,2}|Ti|SUPER|Laptop|Blackwell|Generation)\b[ -]?){0,6})"
)
_CAPABILITY = (
    r"(?i)(?:compute ?capability:?|cuda capability|with CUDA capability)\s*"
    r"(?:sm_|SM )?(?P<cc>\d+\.\d|\d{2,3})\b"
)
_ARCHS = r"(?i)supports CUDA capabilities (?P<archs>(?:\w+_\d+a?[ ,]*)+)"
_MEMORY = r"(?P<used>\d+)MiB\s*/\s*(?P<total>\d+)MiB"
_MEMORY_BYTES = r"(?P<free>\d+)\s+bytes\s+free,\s+(?P<total>\d+)\s+bytes\s+total"
_CUDNN = (
    r"(?i)(?<![\w./-])cu-?dnn\s*(?:version)?[ :=]*v?"
    r"(?P<version>[5-9]\.\d+(?:\.\d+)*|(?:[5-8]\d{3}|9\d{4})(?![\w.])|[5-9](?![\w.]))"
)
_PATH = r"LD_LIBRARY_PATH\s*[=:]\s*[\"']?(?P<value>/[^\s\"';,]+)"
_PLUS = r"\+(?:cu|cuda)(?P<major>\d\d)(?P<minor>\d)?"
_PYTHON = r"(?i)\bpython[ /-]?(?:version:?)?\s*=*\s*v?(?P<version>3\.\d+)"
_FOUND = r"(?P<path>/\S*?/libcudnn\w*\.so\.(?P<version>\d[\d.]*\d|\d))"
_DEBIAN = r"libcudnn\d\S*\s+\S*?(?P<version>\d+\.\d+\.\d+[\d.]*)-\d+\+cuda(?P<cuda>\d+)"
# ``conda list``: name, version, build and channel
_CONDA_LIST = r"(?m)^(?:cudnn|cuda-version|jaxlib|pytorch|tensorflow(?:-base)?)\s+\d\S*\s+\w+_\d+\b"
# Whose source files or modules a message names
_PRINTED_BY = (
    ("jax", r"external/xla/|\bjaxlib[./]|xla_extension"),
    (
        "tensorflow",
        r"tensorflow/(?:core|stream_executor|compiler|python)|external/local_(?:xla|tsl)/|tensorflow\.python",
    ),
    ("torch", r"aten/src|\btorch/(?:csrc|nn|cuda|lib|_C)|\bc10::|\btorch\.\w+Error"),
    ("ctranslate2", r"\bctranslate2\b|faster[_-]whisper|whisperx"),
    ("onnxruntime", r"\bonnxruntime(?:::|/|\.|_)"),
    ("cupy", r"\bcupy(?:_backends)?[/.]|\bCuPy failed|\bimport cupy"),
)
_FAMILIES = (
    # NVIDIA's lists of GPUs by compute capability: https://developer.nvidia.com/cuda-gpus
    (r"RTX ?50\d\d|RTX PRO \d{4}|RTX 5000 Blackwell", "12.0"),
    (r"RTX ?40\d\d|\bL40S?\b|\bL4\b|Ada\b", "8.9"),
    (r"RTX ?30\d\d|RTX ?A\d{4}|\bA(?:10G?|16|40|2)\b", "8.6"),
    (r"\bA(?:100|30|800)\b", "8.0"),
    (r"\bH(?:100|200|800|20)\b|GH200", "9.0"),
    (r"\bG?B200\b", "10.0"),
    (r"GB10\b", "12.1"),
    (r"RTX ?20\d\d|GTX ?16\d\d|\bT4\b|Quadro RTX|TITAN RTX", "7.5"),
    (r"\bV100\b|TITAN V\b", "7.0"),
    (r"\bP100\b", "6.0"),
    (r"GTX ?10\d\d|TITAN X ?p|\bP4\b|\bP40\b|Quadro P\d", "6.1"),
    (r"GTX ?9\d\d|\bM60\b|\bM40\b", "5.2"),
    (r"GTX ?75\d|M1000M|GTX ?9[456]0M", "5.0"),
    (r"\bK80\b", "3.7"),
    (r"\bK40", "3.5"),
)


class Told(object):
    """Facts out of texts. Versions are texts; memory is in bytes; None or empty where nothing says it."""

    def __init__(self, lines):
        self.packages, self.cards, self.archs, self.library_path = {}, [], [], None
        self.driver = self.driver_cuda = self.capability = self.python = None
        self.memory_free = self.memory_total = None
        self.cudnn_here, self.places, self.cuda_majors = set(), set(), set()
        self.hidden = self.no_kernel_module = self.slept = self.system_cudnn = False
        self.printed_by = set()
        text = "\n".join(line.text for line in lines)
        self._packages(text)
        self._machine(text)
        self._cudnn(text)
        self._places(text)

    def _packages(self, text):
        for pattern in (_PINNED, _ASKED, _WORDY):
            for found in re.finditer(pattern, text):
                name = canonical(found.group("name"))
                self.packages.setdefault(_NAMES.get(name, name), found.group("version").rstrip(".,;)"))
        for version in self.packages.values():
            plus = re.search(_PLUS, version)
            if plus:
                self.cuda_majors.add(int(plus.group("major")) if plus.group("major") != "92" else 9)
        for names in ([n for n in self.packages if "cudnn" not in n], self.packages):
            found = [re.search(r"-cu(?:da)?(\d\d)", name) for name in names]
            self.cuda_majors |= (
                {int(match.group(1)) for match in found if match} if not self.cuda_majors else set()
            )
        found = re.search(r"(?:jax\S* [\d.]+ |jax\[)cuda(\d\d)", text)
        if found:
            self.cuda_majors.add(int(found.group(1)))
        self.cpu_build = bool(re.search(r"\+cpu\b|tensorflow[-_]cpu", text))

    def _machine(self, text):
        for found in re.finditer(_DRIVER, text):
            self.driver = self.driver or found.group("driver") or found.group("hint")
        found = re.search(_DRIVER_CUDA, text)
        if found:
            number = found.group("number")
            self.driver_cuda = (
                dotted(cuda_tuple(number)) if number else found.group("cuda") or found.group("told")
            )
        for found in re.finditer(_CARD, text):
            card = found.group("card").strip(" -")
            if card not in self.cards and (re.search(r"\d", card) or "TITAN" in card):
                self.cards.append(card)
        found = re.search(_CAPABILITY, text)
        if found:
            digits = found.group("cc")
            self.capability = digits if "." in digits else "%s.%s" % (digits[:-1], digits[-1])
        self.capability = self.capability or next(filter(None, map(capability_of, self.cards)), None)
        found = re.search(_ARCHS, text)
        self.archs = re.findall(r"\w+_\d+a?", found.group("archs")) if found else []
        found = re.search(_PYTHON, text)
        self.python = found.group("version") if found else None
        found = re.search(_MEMORY, text)
        if found:
            self.memory_total = int(found.group("total")) << 20
            self.memory_free = self.memory_total - (int(found.group("used")) << 20)
        found = re.search(_MEMORY_BYTES, text)
        if found:
            self.memory_free, self.memory_total = int(found.group("free")), int(found.group("total"))

    def _cudnn(self, text):
        for name, version in self.packages.items():
            if re.match(r"nvidia-cudnn-cu\d+$|libcudnn\d|cudnn$", name):
                self.cudnn_here.add(version)
        for found in re.finditer(_CUDNN, text):
            version = found.group("version")
            self.cudnn_here.add(
                dotted(cudnn_tuple(version)) if len(version) > 3 and version.isdigit() else version
            )
        for found in re.finditer(_DEBIAN, text):
            self.cudnn_here.add(found.group("version"))
            self.cuda_majors.add(int(found.group("cuda")))
        for found in re.finditer(_FOUND, text):
            self.cudnn_here.add(found.group("version"))
        found = re.search(_PATH, text)
        self.library_path = found.group("value") if found else None
        self.hidden = bool(
            re.search(r"CUDA_VISIBLE_DEVICES\W{1,4}(?:-1|[\"']{2}|\s*$|NoDevFiles)", text, re.M)
        )
        self.no_kernel_module = "/proc/driver/nvidia/version does not exist" in text
        self.slept = bool(re.search(r"(?i)\b(?:suspend|hibernat)|\b(?:wak\w+ up|from sleep)\b", text))
        self.system_cudnn = bool(
            re.search(r"(?:init:|=>|file=)\s*(?:/usr)?/lib/(?:[\w\s-]{1,40}/)?\s*libcudnn", text)
        )

    def _places(self, text):
        self.printed_by = {name for name, pattern in _PRINTED_BY if re.search(pattern, text)}
        for place, pattern in (
            ("windows", r"\.dll\b|[A-Z]:\\|win_amd64"),
            ("wsl", r"/usr/lib/wsl|\bWSL\b|microsoft-standard"),
            ("colab", r"(?i)\bcolab|/content/|lib64-nvidia"),
            ("conda", r"/envs/|conda"),
            ("conda-packages", _CONDA_LIST),
            ("container", r"(?i)docker|nvidia-container|/\.dockerenv|kubernetes"),
            ("notebook", r"(?m)^\s*[!%](?:pip|apt|conda)|ipython-input|Cell In\["),
        ):
            if re.search(pattern, text):
                self.places.add(place)

    def cudnn_majors(self):
        """The major versions of cuDNN that the text says are here."""
        return {numbers(version)[0] for version in self.cudnn_here if numbers(version)}

    def as_document(self):
        """For the report."""
        return {
            "cards": self.cards,
            "capability": self.capability,
            "driver": self.driver,
            "driver_cuda": self.driver_cuda,
            "python": self.python,
            "packages": self.packages,
            "cudnn": sorted(self.cudnn_here),
            "places": sorted(self.places),
            "library_path": self.library_path,
            "memory_free": self.memory_free,
            "memory_total": self.memory_total,
        }


def capability_of(card):
    """The compute capability of a card by its name, None for one that is not known."""
    return next((capability for pattern, capability in _FAMILIES if re.search(pattern, card)), None)
