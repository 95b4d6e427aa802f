"""What a command of pip's would move beside what it names, and the same command with that held.

pip takes the newest release of a package without a bound, and with it whatever that release asks for: a plain
``pip install tf-keras`` beside TensorFlow 2.16 brings TensorFlow 2.21. Here such a package gets the release
line of the framework that is here, and that framework stands in the same line, so that no command of a remedy
changes more than it says. The requirements are those by which ``rtbuild resolve`` judges a set:
``followers`` and ``pairs`` of ``facts.json``, and what packages ask for in ``release_days.json``.
"""

import re

from .distributions import distribution_named
from .framework_builds import serves
from .name_changes import release_here
from .tables import Releases, read_days, read_facts, read_frameworks, told_names
from .toolkit_facts import failing_words, text_of, torch_told
from .versions import dotted, numbers, pins_of, satisfies

_PIP_INSTALL = re.compile(r"(?P<start>(?:[A-Z]\w*=\S+ )*(?:uv )?pip3? install )(?P<rest>[^&|;$]+)$")
_INDEX_OPTIONS = ("--index-url", "--extra-index-url", "-i", "-f", "--find-links", "-r", "-c", "--index")
_AS_IT_IS = re.compile(
    r"--(?:no-deps|force-reinstall|target|reinstall|torch-backend|python|no-binary)\b| -e "
)
"""Options with which a line changes nothing else, or the framework itself."""
_REQUIREMENT_WORD = re.compile(r"(?P<name>[A-Za-z][\w.-]*)(?P<extra>\[[\w,-]*\])?(?P<spec>[<>=!~].*)?$")
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
    """The commands of a cause, where pip would move a framework of the text: with its followers in its
    release line, and with the framework held in the same line. Left out are those that no release fits.
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
    found = _PIP_INSTALL.match(command.text) if command.where == "pip" else None
    if found is None or _AS_IT_IS.search(command.text):
        return command
    packages, words, named, moved = remedies.here.packages, [], set(), set()
    before = ""
    for word in found.group("rest").split():
        bare = _REQUIREMENT_WORD.match(word.strip("\"'"))
        if bare is None or before in _INDEX_OPTIONS:
            words.append(word)
            before = word
            continue
        before, name = "", bare.group("name").lower().replace("_", "-")
        named.add(_name_told(name))
        if name in _BRING:
            return command
        line = follower_of(name, packages) if not bare.group("spec") else None
        if line == "":
            return None
        moved |= asked_by(name) | _asked_in(remedies.here, name)
        words.append(remedies.quoted(line) if line else word)
    kept = [] if cause in _MOVES or _of_a_lock(remedies.here) else _kept(remedies, moved - named)
    if kept and "--upgrade" in words:
        raised = [_above(remedies, word) for word in words if word != "--upgrade"]
        bounded = all(re.search("[<>=-]", word) for word in raised)
        words = raised if bounded else ["--upgrade"] + raised
    text = found.group("start") + " ".join(words + [remedies.quoted(word) for word in kept])
    told = " and ".join(word.partition("==")[0] for word in kept)
    note = "; ".join(filter(None, [command.note, kept and "%s stays as it is" % told]))
    return command._replace(text=text, note=note or None)


def _asked_in(here, package):
    """The framework that a package of the text asks for what is not there."""
    apart = getattr(here, "apart", None)
    asks = apart and apart.asker and distribution_named(apart.asker) == package
    return {apart.asked} & set(told_names()) if asks else set()


def _name_told(name):
    """A framework's name in a text by one of its distributions: ``tensorflow`` for ``tf-nightly``."""
    names = {alias: row["told"] for row in read_frameworks().values() for alias in row.get("aliases", ())}
    return names.get(name, name)


def _of_a_lock(here):
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
    """The name of a package that is to be raised with the release that is here as its lower bound: with what
    is held pip may else find that the old one is the newest.
    """
    bare = _REQUIREMENT_WORD.match(word.strip("\"'"))
    if bare is None or bare.group("spec") or bare.group("name").startswith("-"):
        return word
    name = bare.group("name").lower().replace("_", "-")
    release = (release_here(remedies.here, name) or "").partition("+")[0]
    plain = re.match(r"\d+(?:\.\d+)+$", release)
    return remedies.quoted(bare.group(0) + ">" + release) if plain else word


_TAGGED = (
    r"(?<![\w./-])([A-Za-z][\w-]*\w)(?:==|[ \t]{1,40}|-)v?\d+(?:\.\d+)+(?:\.post\d+)?(?:\+|%%2[Bb])%s(?!\w)"
)
_BUILD_TAG = r"(?:pt\d+(?:cu\d+|cpu)|cu\d+torch[\d.]+\w*)"
"""What wheels built for one PyTorch have in their versions: ``2.1.2+pt24cu121``, ``2.5.8+cu122torch2.3``."""


def _with_a_page(remedies):
    """The package with a page of its maker's whose compiled part fails; None without one."""
    words = failing_words(remedies).lower().replace("_", "-")
    return next((name for name in sorted(read_facts()["pages"]) if re.search(r"\b%s\b" % name, words)), None)


def page_of(remedies):
    """The address of the page with its wheels for PyTorch and CUDA of the text; None if none is known."""
    page, builds, _ = read_facts()["pages"].get(_with_a_page(remedies), (None, (), ()))
    minor = dotted(numbers(remedies.detail.get("for") or torch_told(remedies)[0])[:2])
    cuda = "cu%d%d" % remedies.cuda_of_build()[:2] if len(remedies.cuda_of_build()) > 1 else None
    if not page or not minor or not cuda or builds and "%s+%s" % (minor, cuda) not in builds:
        return None
    return page.format(cuda=cuda, torch=minor, release=minor + ".0")


def of_one_tag(remedies):
    """The package whose compiled part fails, with all that the text shows with the same tag of a build: they
    were installed together, for a PyTorch that is here no longer.
    """
    own, text = _with_a_page(remedies), text_of(remedies.here)
    tags = re.findall(_TAGGED % ("(%s)" % _BUILD_TAG), text)
    tag = next((tag for name, tag in tags if name.lower().replace("_", "-") == own), None)
    names = {name.lower().replace("_", "-") for name, other in tags if other == tag} if tag else set()
    return sorted(names | {own}) if own else None


def _beside_page(remedies):
    return read_facts()["pages"].get(_with_a_page(remedies), (None, (), ()))[2]


def torch_with_cudnn(remedies):
    """[The next PyTorch of the same CUDA major version whose own cuDNN serves the framework at hand, which
    stays, with the companions that are here]; None where the PyTorch of the text pins no older one, or none
    is known.
    """
    wanted, here = remedies.wanted(), remedies.here.packages
    title, release, pin = remedies.pin_below(wanted) or (None, None, None) if wanted else (None, None, None)
    if title != read_frameworks()["torch"]["title"] or not remedies.version:
        return None
    name, python = pin.partition("==")[0], numbers(remedies.here.python)[:2]
    variant = (here["torch"] + "+").split("+")[1]
    for row in reversed(remedies.releases.builds("torch", None)):
        own = [other for other in row["pins"] if other.startswith(name + "==")]
        of_index = row["variant"] == variant if variant else row["default"]
        later = numbers(row["latest"]) > numbers(release) and of_index and own
        if not later or not (
            wanted <= numbers(own[0].partition("==")[2]) and remedies.driver_serves(numbers(row["cuda"]))
        ):
            continue
        first, last = map(numbers, row["python"])
        card = remedies.capability is None or serves(row, remedies.capability)
        if card and (not python or first <= python <= last):
            stays = "%s==%s" % (remedies.framework, remedies.version.partition("+")[0])
            words = " ".join(remedies.torch_and_companions(row["latest"], variant))
            return [stays] + words.replace("--index-url", "--extra-index-url").split()
    return None


def _tensorflow_line(remedies):
    """The TensorFlow of the text's own minor release with its libraries; None before 2.14, which has no such
    extra, and without a release.
    """
    own = remedies.version if remedies.framework == "tensorflow" else None
    version = remedies.here.packages.get("tensorflow") or own
    minor = numbers(version)[:2]
    return "tensorflow[and-cuda]==%s.*" % dotted(minor) if minor >= (2, 14) else None


_APPTAINER = re.compile(
    r"(?m)^[ \t]*((?:srun [^\n]{0,80})?(?:apptainer|singularity) (?:exec|run|shell))"
    r" ((?![^\n]*--nv)[^\n]{3,160})$"
)


def _apptainer_line(remedies):
    """The line of a text that starts a container by Apptainer without its cards, with them."""
    found = _APPTAINER.search(text_of(remedies.here))
    return "%s --nv %s" % found.groups() if found else None


def doubles_of(listed):
    """[(packages of a list that write the same files, the one to keep, why)]."""
    rows = read_facts()["same_files"].values()
    found = (([name for name in names if name in listed], reason) for names, reason in rows)
    return [(names, names[0], reason) for names, reason in found if len(names) > 1]


def _doubles(remedies):
    return sorted(
        {name for names, _, _ in doubles_of(getattr(remedies.here, "listed", {})) for name in names}
    )


def _doubles_kept(remedies):
    listed = getattr(remedies.here, "listed", {})
    return ["%s==%s" % (kept, listed[kept]) for _, kept, _ in doubles_of(listed)]


def past_pin(listed):
    """(the PyTorch of a list, its pin on cuDNN, the cuDNN of the list) where that is a later one of the same
    major version: it serves, and a resolver refuses the two; None otherwise.
    """
    release, _, variant = (listed.get("torch") or "").partition("+")
    rows = Releases().builds("torch", release) if release else []
    for row in rows:
        own = row["variant"] == variant if variant else row["default"]
        for pin in row["pins"] if own else ():
            name, _, wanted = pin.partition("==")
            here = numbers(listed.get(name))
            if wanted and here and here[:1] == numbers(wanted)[:1] and here > numbers(wanted):
                return "torch " + listed["torch"], pin, "%s %s" % (name, listed[name])
    return None


SET_FACTS = {
    "doubles": lambda r: _doubles(r) or None,
    "doubles-kept": lambda r: _doubles_kept(r) or None,
    "pin-of-cudnn": lambda r: (past_pin(getattr(r.here, "listed", {})) or (None, None))[1],
    "tensorflow-line": _tensorflow_line,
    "apptainer": lambda r: getattr(r.here, "apptainer", False),
    "apptainer-line": _apptainer_line,
    "torch-with-cudnn": torch_with_cudnn,
    "maker-page": page_of,
    "of-one-tag": of_one_tag,
    "of-one-tag-joined": lambda r: ",".join(of_one_tag(r) or ()) or None,
    "beside-page": lambda r: " ".join(map(r.quoted, _beside_page(r))) or None,
    "newest-for-card": lambda r: r.newest_for_card(),
    "nnunet": lambda r: getattr(r.here, "nnunet", False),
}
"""By the names in ``causes.ini``."""
