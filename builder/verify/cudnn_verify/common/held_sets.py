"""What a command of pip's would move beside what it names, and the same command with that held.

pip takes the newest release of a package without a bound, and with it whatever that release asks for: a plain
``pip install tf-keras`` beside TensorFlow 2.16 brings TensorFlow 2.21. Here such a package gets the release line
of the framework that is here, and that framework stands in the same line, so that no command of a remedy changes
more than it says. The requirements are those by which ``rtbuild resolve`` judges a set: ``followers`` and
``pairs`` of ``facts.json``, and what packages ask for in ``release_days.json``.
"""

import re

from .name_changes import release_here
from .tables import read_days, read_facts, read_frameworks, told_names
from .versions import dotted, numbers, pins_of, satisfies

_INSTALL = re.compile(r"(?P<start>(?:[A-Z]\w*=\S+ )*(?:uv )?pip3? install )(?P<rest>[^&|;$]+)$")
_WITH_VALUE = ("--index-url", "--extra-index-url", "-i", "-f", "--find-links", "-r", "-c", "--index")
_AS_IT_IS = re.compile(
    r"--(?:no-deps|force-reinstall|target|reinstall|torch-backend|python|no-binary)\b| -e "
)
"""Options with which a line changes nothing else, or the framework itself."""
_WORD = re.compile(r"(?P<name>[A-Za-z][\w.-]*)(?P<extra>\[[\w,-]*\])?(?P<spec>[<>=!~].*)?$")
_BRING = ("vllm", "lmdeploy", "sglang", "tensorflow-addons")
"""Those whose requirements pin a framework that comes with them."""
_MOVES = frozenset(
    (
        "framework-arch-missing",
        "framework-cpu-build",
        "framework-known-bad",
        "build-not-published",
        "build-toolkit-mismatch",
        "driver-too-old",
    )
)
"""Causes of which another build or release of the framework is the remedy."""


def with_held(remedies, cause, commands):
    """The commands of a cause, where pip would move a framework of the text: with its followers in its release
    line, and with the framework held in the same line. Left out are those that no release fits.
    """
    held = (_held(remedies, cause, command) for command in commands)
    return [command for command in held if command is not None]


def follower_of(package, packages):
    """The requirement on a package that goes with one minor release of a framework, for the one that is among
    packages: ``tf-keras==2.16.*``; "" if no release of it goes with that, None for any other package.
    """
    rows = [row for row in read_facts()["followers"].get(package, ()) if numbers(packages.get(row[1]))]
    if not rows:
        return None
    fit = [row[0] for row in rows if satisfies(packages[row[1]], pins_of(row[2]))]
    return "%s==%s.*" % (package, dotted(numbers(fit[-1])[:2])) if fit else ""


def asked_by(package):
    """The frameworks that some release of a package asks for by its own requirements."""
    asks = set(read_days().get(package, {}).get("asks", "").split())
    asks |= {row[1] for row in read_facts()["followers"].get(package, ())}
    asks |= {"torch"} if any(row[2] for row in read_facts()["pairs"].get(package, ())) else set()
    return {name for name in told_names() if name in asks}


def _held(remedies, cause, command):
    found = _INSTALL.match(command.text) if command.where == "pip" else None
    if found is None or _AS_IT_IS.search(command.text):
        return command
    packages, words, named, moved = remedies.here.packages, [], set(), set()
    before = ""
    for word in found.group("rest").split():
        bare = _WORD.match(word.strip("\"'"))
        if bare is None or before in _WITH_VALUE:
            words.append(word)
            before = word
            continue
        before, name = "", bare.group("name").lower().replace("_", "-")
        named.add(_told(name))
        if name in _BRING:
            return command
        line = follower_of(name, packages) if not bare.group("spec") else None
        if line == "":
            return None
        moved |= asked_by(name)
        words.append(remedies.quoted(line) if line else word)
    kept = [] if cause in _MOVES or _in_project(remedies.here) else _kept(remedies, moved - named)
    if kept and "--upgrade" in words:
        raised = [_above(remedies, word) for word in words if word != "--upgrade"]
        bounded = all(re.search("[<>=-]", word) for word in raised)
        words = raised if bounded else ["--upgrade"] + raised
    text = found.group("start") + " ".join(words + [remedies.quoted(word) for word in kept])
    told = " and ".join(word.partition("==")[0] for word in kept)
    note = "; ".join(filter(None, [command.note, kept and "%s stays as it is" % told]))
    return command._replace(text=text, note=note or None)


def _told(name):
    """A framework's name in a text by one of its distributions: ``tensorflow`` for ``tf-nightly``."""
    names = {alias: row["told"] for row in read_frameworks().values() for alias in row.get("aliases", ())}
    return names.get(name, name)


def _in_project(here):
    """Whether a lock of the project's own holds the rest."""
    return any(getattr(here, tool, False) for tool in ("uv_project", "poetry", "pixi"))


def _kept(remedies, moved):
    """The requirements that hold the frameworks which a line would move; none of one that the text says is
    wanted in another release.
    """
    here, words = remedies.here, []
    unmet = {name for name, _ in getattr(here, "missed_pins", ())}
    unmet |= {row[1] for row in getattr(here, "requirements", ())} | set(getattr(here, "floors", ()))
    for name in told_names():
        release = here.packages.get(name) or ""
        if name in moved and name not in unmet and re.match(r"\d+(?:\.\d+)+(?:\+\w+)?$", release):
            exact = len(numbers(release)) > 2
            words.append("%s==%s" % (name, release if exact else release.partition("+")[0] + ".*"))
    return words


def _above(remedies, word):
    """The name of a package that is to be raised with the release that is here as its lower bound: with what is
    held pip may else find that the old one is the newest.
    """
    bare = _WORD.match(word.strip("\"'"))
    if bare is None or bare.group("spec") or bare.group("name").startswith("-"):
        return word
    name = bare.group("name").lower().replace("_", "-")
    release = (release_here(remedies.here, name) or "").partition("+")[0]
    plain = re.match(r"\d+(?:\.\d+)+$", release)
    return remedies.quoted(bare.group(0) + ">" + release) if plain else word


SET_FACTS = {
    "newest-for-card": lambda r: r.newest_for_card(),
    "nnunet": lambda r: getattr(r.here, "nnunet", False),
}
"""By the names in ``causes.ini``."""
