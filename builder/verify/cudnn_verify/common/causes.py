"""The closed list of causes, one for each failed verdict; the ``.ini`` files say what their fields mean. And
their commands as the system and the installer of a text have them.
"""

import functools
import re
from collections import namedtuple

from .tables import beside, read_patterns, read_sections
from .versions import numbers

CAUSETABLE = beside("common/causes.ini")

Cause = namedtuple("Cause", "id side title remedy explanation proof judged texts without follows source")
# where: pip, apt, conda, docker, shell, winget, notebook, link or rtbuild
Command = namedtuple("Command", "where text note")


VERDICT_OF_SIDE = {"image": "broken", "image-on-gpu": "unsupported-gpu", "host": "host", "busy": "busy"}
EXIT_CODES = {"works": 0, "unverified": 10, "broken": 20, "unsupported-gpu": 21, "host": 22, "busy": 23}
PROBE_FAULT = 30
"""The exit code without a verdict."""


def ini_row(kind, section):
    """A section as a named tuple: its name, then its texts, each on one line; ``""`` for a missing one."""
    texts = {key: " ".join(value.split()) for key, value in section.items()}
    return kind(section.name, *(texts.get(field, "") for field in kind._fields[1:]))


_SECTIONS = {section.name: section for section in read_sections(CAUSETABLE)}
CAUSES = {name: ini_row(Cause, section) for name, section in _SECTIONS.items()}


def cause_sections():
    """{cause: {key: text}} of all causes."""
    return {name: dict(section) for name, section in _SECTIONS.items()}


def learn_causes(sections):
    """Take these causes in place of those known: {cause: :class:`Section`}."""
    for known, rows in (
        (_SECTIONS, sections),
        (CAUSES, {k: ini_row(Cause, row) for k, row in sections.items()}),
    ):
        known.clear()
        known.update(rows)


def command_lines(identifier):
    """[(facts, where, text, note)] of a cause's commands."""
    lines = _SECTIONS[identifier].get("commands", "").splitlines()
    rows = [line.split(": ", 2) for line in lines if line.count(": ") > 1]
    return [(facts, where) + _text_and_note(rest) for facts, where, rest in rows]


def _text_and_note(rest):
    text, bar, note = rest.rpartition(" | ")
    return (text, note) if bar else (rest, "")


def remedy_at(identifier, places):
    """The remedy in words for the place where a text comes from."""
    lines = [line.partition(": ") for line in _SECTIONS[identifier].get("words", "").splitlines() if line]
    return next((text for place, _, text in lines if place in places), CAUSES[identifier].remedy)


def explain(identifier):
    """One cause as text for a terminal."""
    cause = CAUSES[identifier]
    verdict = VERDICT_OF_SIDE[cause.side]
    lines = [cause.id + ": " + cause.title, "", cause.explanation, "", "What to do: " + cause.remedy, ""]
    lines.append("Verdict: %s (exit code %d). Source: %s" % (verdict, EXIT_CODES[verdict], cause.source))
    return "\n".join(lines)


_INSTALLERS_BY_PLACE = {
    "fedora": ("dnf", "dnf install -y "),
    "arch-linux": ("pacman", "pacman -Syu --needed "),
    "suse": ("zypper", "zypper install -y "),
    "void": ("xbps", "xbps-install -Syu "),
    "gentoo": ("emerge", "emerge --update "),
    "alpine": ("apk", "apk add "),
    "nix": ("nix", "nix-shell -p "),
    "windows": ("winget", ""),
    "wsl": ("wsl", ""),
    "colab": ("colab", ""),
}
"""Systems without Debian's packages, or on which some of these have no place, and how they install."""
_OF_UBUNTU = re.compile(r" \(Ubuntu\)|[;,] for Debian: [^;]*|; Debian: [^;]*")
_SUBSTITUTED = r"\$\((?:[^()]|\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\))*\)"
"""What a shell puts in a command's place, with three levels of brackets in it."""
_APT = re.compile(
    r"(?:(?:sudo )?apt-get update && )?(sudo )?apt-get install ((?:-y )?(?:--\S+ )*)"
    r"((?:%s|[^&|;])+?)(?= &&|$)" % _SUBSTITUTED
)
_NAMES = re.compile(r"(?:%s|[^\s$])+" % _SUBSTITUTED)
_PIP = re.compile(r"(?:(?<=^)|(?<=&& ))(?:uv )?pip(?= (?:un)?install)")
_AS_UV = re.compile(r"(?<!uv )\bpip(?= (?:un)?install)")
_PORTABLE = r".\python_embeded\python.exe"
_OF_THE_HOST = re.compile(
    r"systemctl|modprobe|reboot|nvidia-driver|container-toolkit|dkms|docker|fabricmanager|linux-headers"
)
"""What no image has in it."""


def as_here(commands, here):
    """Commands of ``causes.ini`` in the form that the system and the installer of a text have; those are left
    out that have none. ``here``: a :class:`~text_facts.TextFacts`, or what the probe measured in its form.
    """
    places, flag = here.places, lambda name: getattr(here, name, False)
    for place, (manager, install) in _INSTALLERS_BY_PLACE.items():
        if place in places:
            commands = [
                one for c in commands for one in _of_other_installer(c, manager, install, here.capability)
            ]
    text = " ".join(command.text for command in commands)
    for name in set(
        re.findall(r"(?<=create -y -p )\$HOME/(cuda(?:-\d\d(?:\.\d)?)?)(?= )", text)
    ):  # not in /usr/local then
        folder = re.compile("/usr/local/%s(?![\\w.-])" % re.escape(name))
        commands = [c._replace(text=folder.sub("$HOME/" + name, c.text)) for c in commands]
    commands = list({command.text: command for command in reversed(commands)}.values())[::-1]
    for project, form in (("uv_project", _in_uv), ("poetry", _in_poetry), ("pixi", _in_pixi)):
        if flag(project):
            commands = [form(c) or c if c.where == "pip" else c for c in commands]
    if flag("uv_project") or flag("uv"):  # no pip is there
        commands = [
            c._replace(text=_AS_UV.sub("uv pip", c.text)) if c.where == "pip" else c for c in commands
        ]
    if flag("podman"):
        commands = [c._replace(text=_as_podman(c.text)) if c.where == "docker" else c for c in commands]
    if "comfy-portable" in places:  # its own Python, beside its folder
        commands = [_as_portable(c) if c.where == "pip" else c for c in commands]
    return [_in_dockerfile(c) for c in commands] if flag("dockerfile") else commands


@functools.lru_cache(maxsize=1)
def _names_elsewhere():
    """[(expression for a package's name in Debian, {installer: names there})]."""
    rows = read_patterns()["elsewhere"].items()
    tables = ((name, (pair.partition(": ")[::2] for pair in value.split(" | "))) for name, value in rows)
    return [(re.compile(name + "$"), {k.strip(): v.strip() for k, v in pairs}) for name, pairs in tables]


def _of_other_installer(command, manager, install, capability):
    """[A command of apt's as another installer has it, or in Windows' own way]; [] where a name is not known
    there. Other commands stay.
    """
    if command.where != "apt":
        return [] if "dnf install" in command.text and manager not in ("dnf", "colab") else [command]
    found = _APT.search(command.text)
    of_driver = re.search(r"nvidia-(?:driver|open)", command.text)
    if manager in ("wsl", "colab") and (not of_driver or found is None):
        return [command]
    if found is None or "apt-get" in command.text[: found.start()] + command.text[found.end() :]:
        return []
    names, note = [], _OF_UBUNTU.sub("", command.note or "") or None
    # the last branch that serves a card before Turing has a name of its own where the newest is one package
    old = "--purge" in found.group(2) or () < numbers(capability) < (7, 5)
    packages = (
        re.sub(r"nvidia-driver-(\d+)(?!\S)", r"nvidia-legacy-\1", found.group(3)) if old else found.group(3)
    )
    for name in _NAMES.findall(packages):
        rows = [(key.match(name), row) for key, row in _names_elsewhere()]
        match, there = next(
            ((match, row[manager]) for match, row in rows if match and manager in row), (None, None)
        )
        if match is None:
            return []
        names += [one for one in [match.expand(there)] if one not in names]
    if names != found.group(3).split() and note:
        note = re.sub(r"(?:as root, )?from NVIDIA's repository[:,;]?\s?", "", note).strip(" ,;:") or None
    rest = command.text[found.end() :]
    if names[0].startswith("!"):  # a whole command, with its note
        text, _, told = names[0][1:].partition(" # ")
        note = "; ".join(filter(None, [note, told[2:]])) if told.startswith("+ ") else told
        where = (
            "winget"
            if text.startswith(("winget", "start"))
            else "conda"
            if text.startswith("conda")
            else "shell"
        )
        return [Command(where, _with_versions(text) + ("" if where == "winget" else rest), note)]
    if manager == "nix":  # in that shell its own compilers are found
        return [Command("shell", install + " ".join(names), note)]
    start, sudo = command.text[: found.start()], found.group(1) or ""
    return [Command("shell", start + sudo + install + " ".join(names) + rest, note)]


def _with_versions(text):
    """Versions of CUDA as people write them: ``12.9`` for the ``12-9`` of a package's name."""
    text = re.sub(r"(\$\(.*\))@", lambda found: found.group(1)[:-1] + " | tr - .)", text)
    return re.sub(r"(\d+)-(\d+)@", r"\1.\2", text).replace("@", "")


def _plain(command):
    """What ``pip install`` installs, where it says nothing else; None for any other command."""
    found = re.match(r"pip install (?:--upgrade )?([^-&|$].*)$", command.text)
    return found.group(1) if found and not re.search(r" -|[&|$;]", found.group(1)) else None


def _of_an_index(command):
    """(packages, URL, variant) of a command that takes PyTorch from one of its own indexes, else None."""
    text = r"pip install --force-reinstall ([^-&|]+) --index-url (https://\S+/(cu\d+))$"
    found = re.match(text, command.text)
    return found and found.groups()


def _removed(command):
    found = re.match(r"pip uninstall -y ([\w. -]+)$", command.text)
    return found and found.group(1)


def _in_uv(command):
    """A command as a project of uv's keeps it: what is installed beside the project's files is gone after the
    next ``uv sync``.
    """
    if _removed(command):
        note = (
            "those of them that pyproject.toml names; for one that another package asks for, in [tool.uv]: "
        )
        note += "override-dependencies = [\"NAME ; sys_platform == 'never'\"], then uv sync"
        return Command("pip", "uv remove " + _removed(command), note)
    if _plain(command):
        return Command("pip", "uv add " + _plain(command), command.note)
    if not _of_an_index(command):
        return None
    names, url, variant = _of_an_index(command)
    text = "uv add %s --index pytorch-%s=%s" % (names, variant, url)
    return Command("pip", text, "in the project's own files, so that uv sync keeps it")


def _in_poetry(command):
    """A command as Poetry's project keeps it: https://python-poetry.org/docs/repositories/#explicit-package-sources"""
    if _removed(command):
        return Command("pip", "poetry remove " + _removed(command), command.note)
    if _plain(command):
        return Command("pip", "poetry add " + _plain(command), command.note)
    if not _of_an_index(command):
        return command._replace(text=_PIP.sub("poetry run pip", command.text))
    names, url, variant = _of_an_index(command)
    name = "pytorch-" + variant
    text = "poetry source add --priority=explicit %s %s && poetry add --source %s %s" % (
        name,
        url,
        name,
        names,
    )
    return Command("pip", text, command.note)


def _in_pixi(command):
    """A command as Pixi's workspace keeps it: https://pixi.prefix.dev/latest/reference/cli/pixi/add/"""
    if _removed(command):
        return Command("pip", "pixi remove --pypi " + _removed(command), command.note)
    if _plain(command):
        return Command("pip", "pixi add --pypi " + _plain(command), command.note)
    if not _of_an_index(command):
        return command._replace(text=_PIP.sub("pixi run pip", command.text), note=command.note)
    names, url, _ = _of_an_index(command)
    return Command("pip", "pixi add --pypi %s --index %s" % (names, url), command.note)


def _in_dockerfile(command):
    """A command as a line of the Dockerfile that the text shows; what is the host's stays as it is."""
    text = re.sub(r"\bsudo ", "", command.text)
    exported = re.match(r"export ((?:\w+=[^\s$]*(?:\$\w+[^\s$]*)*\s?)+)$", text)
    if command.where == "shell" and exported:
        return Command(
            "docker", "ENV " + exported.group(1).strip(), "in the Dockerfile, before what needs it"
        )
    if command.where not in ("pip", "conda", "apt") or _OF_THE_HOST.search(text):
        return command
    kept = re.sub(r" && export .*$", "", text)
    return command._replace(text="RUN " + kept, note=command.note)


def _as_portable(command):
    """A command of pip's, or of uv's, for the Python in ComfyUI's own folder."""
    if "--torch-backend" not in command.text:
        return command._replace(text=_PIP.sub(lambda _: _PORTABLE + " -s -m pip", command.text))
    own = "%s -s -m uv pip install --python %s" % (_PORTABLE, _PORTABLE)
    text = command.text.replace("uv pip install", own)
    note = "after %s -s -m pip install uv; %s" % (_PORTABLE, command.note or "")
    return command._replace(text=text, note=note)


def _as_podman(text):
    """A command of Docker's as podman has it, which hands cards over by CDI."""
    text = re.sub(
        r"--gpus all|--runtime=nvidia -e NVIDIA_VISIBLE_DEVICES=all", "--device nvidia.com/gpu=all", text
    )
    return text.replace("docker ", "podman ")
