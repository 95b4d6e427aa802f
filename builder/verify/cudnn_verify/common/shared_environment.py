"""What else is in the environment of a text: frameworks whose wheels of NVIDIA a command would replace,
packages that pin the framework, folders on the loader's path that are no toolkit's; and the question to
``rtbuild resolve`` about all of that together.

Each function takes a :class:`~remedies.Remedies`; None is for what is not known.
"""

import re
from shlex import quote

from .command_forms import Command
from .tables import read_facts, read_frameworks
from .toolkit_facts import card_here
from .versions import numbers

_SPEC = r"(?:[=<>!~]=?\d[\w.]*,?)+"
_CUDNN = re.compile(r"(nvidia-cudnn-cu\d+)(%s)" % _SPEC)
_NUMBER = re.compile(r"\d[\d.]*")
OF_BOTH = "releases of both that share one"
_TOOLKIT_FOLDER = re.compile(r"(?i)cuda|cudnn|tensorrt|nvidia|/nccl|/hpc[-_]?sdk")


def with_others(remedies, commands):
    """The commands; before one that replaces a wheel of NVIDIA's which another framework of the text does not
    load in that version, the question for releases of both that share one.
    """
    broken = {command: list(broken_by(remedies, command)) for command in commands}
    rows = next(filter(None, broken.values()), None)
    if not rows or not remedies.framework:
        return commands
    other, release, pin = rows[0]
    told = "%s %s" % (read_frameworks()[other]["title"], release)
    whole = any(broken[command] and not _CUDNN.search(command.text) for command in commands)
    own, others = _question(remedies, rows, whole)
    note = "%s, which is here, too, %s %s: this asks for " + OF_BOTH
    verb = "pins" if re.search(r"==\d", pin) else "asks for"
    text = "rtbuild resolve %s %s%s" % (own, others, _machine(remedies.here))
    ask = Command("rtbuild", text, note % (told, verb, pin))
    return [ask] + [_alone(remedies, command, told) if broken[command] else command for command in commands]


def _question(remedies, rows, whole):
    """(the framework at hand, the others) as words for ``rtbuild resolve``. Where a command replaces the
    ``whole`` framework, its release is what may change, and that of one that works stays.
    """
    version = remedies.version.partition("+")[0] if remedies.version else ""
    if whole:
        pairs = ("%s==%s" % (name, release.partition("+")[0]) for name, release, _ in rows)
        return remedies.framework, " ".join(map(quote, pairs))
    own = remedies.framework + ("==" + version if version else "")
    return quote(own), " ".join(row[0] for row in rows)


def _alone(remedies, command, told):
    """A command that breaks what else is here: that for a whole framework in an environment of its own, with
    the same installer; any other with a word of warning.
    """
    alone = "breaks %s: in an environment of its own, without it" % told
    found = re.match(r"(uv )?pip install (?!-)(?!.*nvidia-cudnn)(.+)$", command.text)
    if found and "&" not in command.text and "windows" not in remedies.here.places:
        folder = remedies.framework + "-alone"
        text = (
            "uv venv %s && uv pip install --python %s %s" % (folder, folder, found.group(2))
            if found.group(1)
            else "python3 -m venv %s && %s/bin/pip install %s" % (folder, folder, found.group(2))
        )
        alone = "in an environment of its own: beside %s it would break that" % told
        command = command._replace(text=text)
    return command._replace(note="; ".join(filter(None, [command.note, alone])))


def broken_by(remedies, command):
    """(framework, release, its requirement) of those beside the one at hand that do not load the cuDNN which
    a command installs: one of another major version, or older than what they were compiled with.
    """
    if command.where != "pip" or "--target" in command.text:
        return
    wanted = list(_installed_by(remedies, command))
    for name in read_frameworks():
        release, _, variant = (remedies.here.packages.get(name) or "").partition("+")
        if name == remedies.framework or not release or _names(command, name):
            continue
        rows = [r for r in remedies.releases.builds(name, release) if r["variant"] == variant or not variant]
        for package, spec in wanted:
            pins = [pin for row in rows for pin in row["pins"] if pin.startswith(package)]
            if pins and not any(_agree(spec, pin[len(package) :]) for pin in pins):
                yield name, release, pins[0]
                break


def _names(command, name):
    return re.search(r"(?<![\w.-])%s(?:\[[\w,-]*\])?(?:[=<>!~ ]|$)" % re.escape(name), command.text)


def _installed_by(remedies, command):
    """(NVIDIA's wheel of cuDNN, in which versions) that a command of pip's names, or that a framework in it
    asks for by its release, its extra and its index.
    """
    yield from _CUDNN.findall(command.text)
    index = re.search(r"/whl/(cu\d+)", command.text)
    for name, row in read_frameworks().items():
        words = "|".join(map(re.escape, [name, row["told"]]))
        found = re.search(
            r"(?<![\w.-])(?:%s)(?:\[(?P<extra>[\w,-]+)\])?(?:==(?P<release>\d[\w.]*))?(?=[\"'\s]|$)" % words,
            command.text,
        )
        extras = set((found.group("extra") or "").split(",")) if found else set()
        builds = remedies.releases.builds(name, found.group("release")) if found else []
        for build in builds:
            of_index = build["variant"] == index.group(1) if index else build["default"]
            if of_index and (build["brings"] == "pins" or build["extra"] in extras):
                yield from (pair for pin in build["pins"] for pair in _CUDNN.findall(pin))
                break


def _agree(spec, pin):
    """Whether the oldest version that a requirement admits is of the major version of a pin, and, where it
    admits that one alone, no older.
    """
    here, there = (numbers(_NUMBER.search(text).group(0)) for text in (spec, pin))
    return here[:1] == there[:1] and (here >= there or not spec.startswith("=="))


def question(remedies):
    """The words for ``rtbuild resolve`` about what pins the framework here, or the framework, on this card
    and driver.
    """
    here, names = remedies.here, set(remedies.here.packages) | set(remedies.here.printed_by)
    machine, pairs = _machine(here), read_facts()["pairs"]
    pinning = [name for name in pairs if name in names and name not in ("triton", "sgl-kernel")]
    asked = pinning or ([remedies.framework] if remedies.framework else [])
    bring = [name for name in asked if name in ("vllm", "sglang", "lmdeploy")]
    asked = [*bring, *(name for name in asked if name not in bring)]
    asked = asked if bring or not pinning else [remedies.framework or "torch"] + asked
    return " ".join(asked) + machine if asked and machine else None


def _machine(here):
    """The options of ``rtbuild resolve`` for the card and the driver of a text; "" without both."""
    card = card_here(here)
    if not card or card.startswith("a card") or len(numbers(here.driver)) < 2:
        return ""
    return " --gpu %s --driver %s" % (quote(card), here.driver)


def path_without_toolkits(remedies):
    """The command that leaves out of the loader's path of a text the folders of CUDA's toolkits, and keeps
    the others.
    """
    folders = [folder for folder in (remedies.here.library_path or "").split(":") if folder]
    kept = [folder for folder in folders if not _TOOLKIT_FOLDER.search(folder)]
    if not kept or kept == folders:
        return None
    return "export LD_LIBRARY_PATH=%s" % quote(":".join(kept))


def folders_left_out(remedies):
    """The folders of CUDA's toolkits on the loader's path of a text, in words."""
    folders = (remedies.here.library_path or "").split(":")
    return " and ".join(folder for folder in folders if _TOOLKIT_FOLDER.search(folder)) or None


def _older_tensorflow(remedies):
    """A release of TensorFlow that takes CUDA and cuDNN from outside of pip, beside a PyTorch with both."""
    outside = [row for row in remedies.rows if row["brings"] == "outside"]
    if remedies.framework != "tensorflow" or not outside or "torch" not in remedies.here.packages:
        return None
    return remedies.version.partition("+")[0]


def _torch_pinned(remedies):
    release = remedies.here.packages.get("torch", "").partition("+")[0]
    return "torch==" + release + _machine(remedies.here) if release else None


ENVIRONMENT_FACTS = {
    "of-older-tensorflow": _older_tensorflow,
    "torch-pinned": _torch_pinned,
    "question": question,
    "driver-fixed": lambda r: getattr(r.here, "driver_fixed", False),
    "path-without-toolkits": path_without_toolkits,
    "toolkit-folders": folders_left_out,
}
"""By the names in ``causes.ini``."""
