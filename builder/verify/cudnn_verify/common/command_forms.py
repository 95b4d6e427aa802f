"""Commands of ``causes.ini`` in the form that the system and the installer of a text have."""

import functools
import re
from collections import namedtuple

from .tables import read_patterns
from .versions import numbers, pins_of, satisfies, two_that_exclude

# where: pip, apt, conda, docker, shell, winget, notebook, link or rtbuild
Command = namedtuple("Command", "where text note")

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
"""Words of a command for the host: no image has these parts in it."""


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
    # a toolkit of conda's is not in /usr/local
    for name in set(re.findall(r"(?<=create -y -p )\$HOME/(cuda(?:-\d\d(?:\.\d)?)?)(?= )", text)):
        folder = re.compile("/usr/local/%s(?![\\w.-])" % re.escape(name))
        commands = [c._replace(text=folder.sub("$HOME/" + name, c.text)) for c in commands]
        lib = "$HOME/%s/lib" % name  # conda has no lib64
        commands = [c._replace(text=c.text.replace(lib + "64", lib)) for c in commands]
    commands = list({command.text: command for command in reversed(commands)}.values())[::-1]
    for tool in _OF_PROJECTS:
        if flag(tool):
            commands = [_in_project(c, tool) if c.where == "pip" else c for c in commands]
    if flag("uv_project") or flag("uv"):  # no pip is there
        commands = [
            c._replace(text=_AS_UV.sub("uv pip", c.text)) if c.where == "pip" else c for c in commands
        ]
    if "compose" in places:
        commands = [_in_compose(c) for c in commands]
    if flag("apptainer"):
        commands = [_as_apptainer(c) if c.where == "docker" else c for c in commands]
    if flag("kubernetes"):  # a pod is not started again by the node's Docker
        commands = [_of_pod(c) if c.text == "docker restart CONTAINER" else c for c in commands]
    if flag("podman"):
        commands = [c._replace(text=_as_podman(c.text)) if c.where == "docker" else c for c in commands]
    if "comfy-portable" in places:  # its own Python, beside its folder
        commands = [_of_python(c, _PORTABLE + " -s") if c.where == "pip" else c for c in commands]
    elif getattr(here, "own_python", None) and not (flag("uv") or flag("uv_project")):
        commands = [_of_python(c, here.own_python) if c.where == "pip" else c for c in commands]
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
    """The packages of a ``pip install`` that says nothing else; None for any other command."""
    found = re.match(r"pip install (?:--upgrade )?([^-&|$].*)$", command.text)
    return found.group(1) if found and not re.search(r" -|[&|$;]", found.group(1)) else None


def _of_an_index(command):
    """(packages, URL, variant) of a command that takes PyTorch from one of its own indexes, else None."""
    text = r"pip install --force-reinstall ([^-&|]+) --index-url (https://\S+/(cu\d+))$"
    found = re.match(text, command.text)
    return found and found.groups()


_OF_PROJECTS = {
    "uv_project": {
        "remove": "uv remove %s",
        "add": "uv add %s",
        "add from an index": "uv add %(names)s --index pytorch-%(variant)s=%(url)s",
    },
    "poetry": {
        "remove": "poetry remove %s",
        "add": "poetry add %s",
        # https://python-poetry.org/docs/repositories/#explicit-package-sources
        "add from an index": (
            "poetry source add --priority=explicit pytorch-%(variant)s %(url)s"
            " && poetry add --source pytorch-%(variant)s %(names)s"
        ),
        "run": "poetry run pip",
    },
    "pixi": {
        # https://pixi.prefix.dev/latest/reference/cli/pixi/add/
        "remove": "pixi remove --pypi %s",
        "add": "pixi add --pypi %s",
        "add from an index": "pixi add --pypi %(names)s --index %(url)s",
        "run": "pixi run pip",
    },
}
"""Commands of the tools that keep a project's packages in its own files, by the fact of a text that names the
tool; ``run``: pip within the project's environment.
"""
_UV_REMOVES = (
    "those of them that pyproject.toml names; for one that another package asks for, in [tool.uv]: "
    "override-dependencies = [\"NAME ; sys_platform == 'never'\"], then uv sync"
)


def _in_project(command, tool):
    """A command of pip's as a project's tool keeps it: a package installed beside the project's files is gone
    after the next ``uv sync``.
    """
    forms, note = _OF_PROJECTS[tool], command.note
    removed = re.match(r"pip uninstall -y ([\w. -]+)$", command.text)
    if removed:
        note = _UV_REMOVES if tool == "uv_project" else note
        return Command("pip", forms["remove"] % removed.group(1), note)
    if _plain(command):
        return Command("pip", forms["add"] % _plain(command), note)
    found = _of_an_index(command)
    if found:
        note = "in the project's own files, so that uv sync keeps it" if tool == "uv_project" else note
        values = dict(zip(("names", "url", "variant"), found))
        return Command("pip", forms["add from an index"] % values, note)
    return command._replace(text=_PIP.sub(forms["run"], command.text)) if "run" in forms else command


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
    return command._replace(text="RUN " + kept)


def _of_python(command, python):
    """A command of pip's, or of uv's, for a program's own Python: that in ComfyUI's folder, for one."""
    if "uv venv" in command.text:
        return command
    if "--torch-backend" not in command.text:
        return command._replace(text=_PIP.sub(lambda _: python + " -m pip", command.text))
    own = "%s -m uv pip install --python %s" % (python, python.split(" ")[0])
    text = command.text.replace("uv pip install", own)
    note = "after %s -m pip install uv; %s" % (python, command.note or "")
    return command._replace(text=text, note=note)


_WITH_VALUE = "--gpus|-v|-w|-e|-p|-u|--name|--device|--shm-size|--entrypoint|--network"
"""Options of ``docker run`` with a value behind a space."""


def _as_apptainer(command):
    """A ``docker run`` as Apptainer has it: the host's files are there, ``--nv`` hands over the cards.
    https://apptainer.org/docs/user/main/gpu.html
    """
    found = re.match(
        r"(?:sudo )?docker run ((?:(?:%s) \S+ |-\S+ )*)(\S+)(?: (.*))?$" % _WITH_VALUE, command.text
    )
    if found is None:
        return command
    verb, rest = ("shell", "") if found.group(3) in (None, "bash") else ("exec", " " + found.group(3))
    cards = "--nv " if "--gpus" in found.group(1) else ""
    text = "apptainer %s %sdocker://%s%s" % (verb, cards, found.group(2), rest)
    return command._replace(where="shell", text=text)


def _of_pod(command):
    note = "what owns it makes a new one, with the cards; no restart of the node"
    return command._replace(where="shell", text="kubectl delete pod POD", note=note)


def _as_podman(text):
    """A command of Docker's as podman has it, which hands cards over by CDI."""
    text = re.sub(
        r"--gpus all|--runtime=nvidia -e NVIDIA_VISIBLE_DEVICES=all", "--device nvidia.com/gpu=all", text
    )
    return text.replace("docker ", "podman ")


def _in_compose(command):
    """A `docker run` with the same in a service of the compose file that a text starts, told beside it."""
    words = command.text.split()
    rows, pairs = [], zip(words, words[1:])
    if command.where != "docker" or words[:2] != ["docker", "run"] or "Compose" in (command.note or ""):
        return command
    for word, after in pairs:
        flag, _, value = word.partition("=")
        if word == "-e":
            rows.append("environment: [%s]" % after)
        elif word == "--device":
            rows.append("devices: [%s]" % after)
        elif word == "--tmpfs":
            rows.append("tmpfs: [%s]" % after)
        elif flag in ("--shm-size", "--ipc", "--runtime"):
            rows.append("%s: %s" % (flag[2:].replace("-", "_"), value or after))
    told = rows and "in Compose, in the service: " + ", ".join(rows)
    return command._replace(note="; ".join(filter(None, [told, command.note])))


_ONE_RANGE = re.compile(r'pip install (?:--upgrade )?"?([a-z][\w-]*)((?:[<>=!~]=?[\d.*]+,?)+)"?$')
_ASKS = re.compile(r"(?i)needs?|requir\w+|wants?|asks?|for|with|than|using|against|by|supports?")


def changes_nothing(command, here):
    """Whether an installation would change nothing: these very versions are here, or one of the range."""
    excluding = two_that_exclude(getattr(here, "requirements", ()))
    if getattr(here, "missed_pins", ()) or excluding:
        return False  # the versions in the text are also those that are not here
    one = _ONE_RANGE.match(command.text)
    if one:
        told = _told_releases(here, one.group(1))
        return bool(told) and all(satisfies(release, pins_of(one.group(2))) for release in told)
    pins = re.findall(r"([\w.-]+)==([\w.+-]+)", command.text)
    plain = command.where == "pip" and not re.search(
        r"reinstall|uninstall|isolation|--upgrade|/whl/cpu|<|>", command.text
    )
    return plain and bool(pins) and all(here.packages.get(name) == version for name, version in pins)


def _told_releases(here, package):
    """The releases of a package that the text tells as those that are here, and not as asked for."""
    text = getattr(getattr(here, "trace", None), "text", "")
    named = r"(?i)(\w+ )?\b%s(?:[ \t]{1,40}|==|: ?|-)v?(\d[\w.]*\w)(?!\w|\.\w| or |[,.]? but)"
    rows = re.findall(named % re.escape(package), text)
    return [release for before, release in rows if not _ASKS.match(before)]
