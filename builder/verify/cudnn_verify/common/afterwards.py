"""What shows that a remedy helped, and what keeps it: a line that checks a cause, and the lines for a file of
requirements that the next installation takes.
"""

import re

from .tables import read_patterns
from .versions import numbers

_OF_MACHINE = ("driver-", "device-", "fabric-", "toolkit-known", "container-", "no-device")
_FLOATS = ("package-pin-mismatch", "extension-mismatch", "cudnn-too-old", "cudnn-major-mismatch")
"""Causes that come of a release which nothing pins."""
_WITH_FILES = re.compile(
    r"(?i)\brequirements?[\w.-]*\.(?:txt|in)\b|\bpyproject\.toml\b|\bconstraints?\.txt\b"
)
_INSTALLS = re.compile(r"^(?:uv )?pip install (?P<rest>[^&|;$]+)$")
_MODULES = {
    "pillow": "PIL",
    "opencv-python": "cv2",
    "opencv-python-headless": "cv2",
    "flash-attn": "flash_attn",
}


def check_after(remedies, cause, commands):
    """The command that shows whether a cause is gone, by the cause, else by the framework of the text; None
    where there is no such command.
    """
    here, rows = remedies.here, read_patterns()["after"]
    if "macos" in here.places or not commands and not cause.startswith(_OF_MACHINE):
        return None
    extension = _imports(commands) if cause == "extension-mismatch" else None
    text = rows.get(cause) or extension or rows.get(remedies.framework or "")
    if text is None:
        installed = any(command["where"] == "pip" for command in commands)
        text = rows["pip"] if installed else rows["machine"] if cause.startswith(_OF_MACHINE) else None
    return text and _run_here(text, here)


def _run_here(text, here):
    """A check as it is started in the place of a text."""
    if "windows" in here.places:
        text = text.replace("python3 ", "python ")
    if getattr(here, "uv_project", False):
        text = re.sub(r"^python3? ", "uv run python ", text)
    if getattr(here, "apptainer", False) and not text.startswith("apptainer"):
        text = "apptainer exec --nv IMAGE.sif " + text
    return text


def _imports(commands):
    """The import of the compiled packages that the first command installs anew."""
    found = next((_INSTALLS.match(row["text"]) for row in commands if row["where"] == "pip"), None)
    if found is None:
        return None
    names = [word for word in _requirements(found.group("rest")) if not word.startswith("-")]
    names = [re.split(r"[\[<>=!~]", word)[0].lower() for word in names]
    own = read_patterns()["after"]
    names = [name for name in names if name != "torch"]
    alone = own.get(names[0]) if len(names) == 1 else None
    modules = [_MODULES.get(name, name.replace("-", "_")) for name in names]
    return alone or ('python3 -c "import torch, %s"' % ", ".join(modules) if modules else None)


def _requirements(rest):
    """The words of a line of pip's without its options, but with where it looks for packages."""
    words, kept = rest.split(), []
    for before, word in zip([""] + words, words):
        if before in ("-f", "--find-links"):
            kept.append("-f " + word)
        elif before in ("--index-url", "--extra-index-url"):
            kept.append("--extra-index-url " + word)
        elif before not in ("--no-binary", "--target", "-i") and not word.startswith("-"):
            kept.append(word.strip("\"'"))
    return kept


def pins_after(remedies, cause, commands):
    """[Lines for a file of requirements] that keep what the first command of pip's installs, beside the
    framework that is here; [] where no file is in the texts, and no release floats.
    """
    here, wanted = remedies.here, remedies.wanted()
    if wanted and remedies.pin_below(wanted) and not remedies.known("torch-with-cudnn"):
        return []  # a resolver refuses what the two pin
    file = getattr(here, "written", ()) or _WITH_FILES.search(
        getattr(getattr(here, "trace", None), "text", "")
    )
    found = [_INSTALLS.match(row["text"]) for row in commands if row["where"] == "pip"]
    found = next(filter(None, found), None)
    if found is None or not (file or cause in _FLOATS):
        return []
    lines = _requirements(found.group("rest"))
    names = {re.split(r"[\[<>=!~ ]", line)[0].lower() for line in lines}
    release = remedies.here.packages.get(remedies.framework or "")
    told = {"onnxruntime": "onnxruntime-gpu"}.get(remedies.framework, remedies.framework)
    if (
        release
        and told not in names
        and len(numbers(release)) > 1
        and re.match(r"\d[\w.]*(?:\+\w+)?$", release)
    ):
        lines.append("%s==%s" % (told, release))
    pinned = [line for line in lines if re.search(r"[<>=~]=?\d", line)]
    return sorted(lines, key=lambda line: not line.startswith("-")) if pinned else []
