"""The next look: the one command that decides between causes that fit equally, or that says more of a text of
which no signature knows a line.
"""

import re
from shlex import quote

from ..common.asking import apart_told
from ..common.causes import CAUSES, command_lines
from ..common.name_changes import plain_release, release_here
from ..common.release_days import releases_around
from ..common.release_skew import of_time
from ..common.remedies import Remedies
from ..common.tables import read_patterns, told_names
from ..common.toolkit_facts import card_here
from .signatures import read_next_checks

OF_RELEASES = ("package-pin-mismatch", "extension-mismatch", "package-overwritten")
"""The causes of packages whose releases do not fit."""


def _told_apart(check, equal, places):
    """(how many of the causes that fit a check tells apart, less is better: those beside them)."""
    wanted, named = set(check.causes.split()), set(re.findall(r"[a-z]+(?:-[a-z]+)+", check.decides))
    if (named & set(CAUSES)) - equal and len(named & equal) < 2:
        return (0,)  # it decides for another one than those that are listed
    fits = wanted & equal if len(equal) > 1 else wanted == equal and wanted
    if fits and len(fits) < min(2, len(wanted)):
        return (0,)  # between one of them and one that is not listed
    here = fits and (not check.place or check.place in places)
    return (len(fits), bool(check.place), -len(wanted - equal)) if here else (0,)


def look_for(equal, causes, facts, silent=None, absent=None):
    """The one command that decides between causes that fit equally; the probe if there is none. For a certain
    cause the one that reads what its commands ask for.

    ``silent``: the explanation of a line that hides its cause; ``absent``: the package that it does not find.
    """
    if causes and not equal:
        return _look_for_facts(causes[0], facts)
    if causes and causes[0].get("cause") in OF_RELEASES and facts.apart:
        look = _look_at_two(facts.apart, causes[0]["because"], facts)
        if look:
            return look
    if causes and causes[0].get("signature") == "class-raised-out":
        return _look_at_releases(facts)
    best = max(read_next_checks(), key=lambda check: _told_apart(check, set(equal), facts.places))
    if _told_apart(best, set(equal), facts.places) > (0,):
        return {"command": best.command, "decides": best.decides}
    if absent and silent and not causes:
        name = re.split("[< ]", absent)[0]
        told = "; not found: python3 -m pip install %s" % " ".join(map(Remedies.quoted, absent.split()))
        return {"command": "python3 -m pip show " + name, "decides": silent + told}
    if facts.raised_in and not causes:
        return _look_at_release(*facts.raised_in, facts=facts)
    if facts.cut_in is not None and not causes and not silent:
        return _look_at_end(facts)
    here = None if causes or silent else _look_by_resolve(facts) or _look_by_system(facts)
    if here:
        return here
    text = "run where it fails, it proves the cause" if causes else "no signature fits this text"
    look = {"command": _PROBE, "decides": silent or text + "; the probe looks at the machine itself"}
    return look if causes or silent else _look_without_failure(facts) or look


def _show_and_check(names, facts):
    """The command that prints the releases of packages, and which of them do not go together."""
    then = " & " if "windows" in facts.places else "; "
    return "python3 -m pip show %s%spython3 -m pip check" % (" ".join(names), then)


def _look_at_two(apart, because, facts):
    """The look at the releases of the two that do not fit; None where no line names one, or another line
    tells the cause.
    """
    if apart_told(apart, facts.python) not in because:
        return None
    names = [name for name in (apart.asker, apart.asked) if name and name != "python" and "lib" != name[:3]]
    if not names or apart.kind in ("itself", "part"):
        return None
    command = _show_and_check(sorted(set(names)), facts)
    if apart.asker and apart.asked and len(names) == 2:
        told = "the releases of the two, and whether %s allows this %s by its own requirements" % tuple(names)
        told += (
            ": if pip check names it, the release that it asks for; if not, the newer of the two goes back, "
        )
        told += "or the older one up"
    else:
        told = "its release, to compare with the one that the program or its requirements were written for"
    return {"command": command, "decides": told}


def _look_at_releases(facts):
    """The look at the releases of the package that raises, of its caller and of those of other times."""
    found = of_time(facts)
    names = {name for name in facts.raised_in if name} | ({found.asked} if found else set())
    names |= {name for name, _ in found.others} if found and found.asks else set()
    told = (
        "their releases: did it begin with a new one of these, that one goes back or its caller up; if pip "
        "check names one, the release that it asks for; none of both: the program's own call"
    )
    return {"command": _show_and_check(sorted(names), facts), "decides": told}


def _look_at_release(package, caller, facts):
    """For an exception out of a package's own code of which no signature knows more: the release before it
    if the text has this one, else the releases of that package and its caller.
    """
    here = release_here(facts, package).partition("+")[0]
    told = "the error comes out of the own code of %s" % " ".join(filter(None, (package, here)))
    told += releases_around(package, here) + (", which %s calls" % caller if caller else "")
    if facts.value_raised:
        told += ", which does not find a value: most often one of the program's own data, or of a file that "
        told += "another release wrote"
    if not here or facts.value_raised:
        told += "; if it began with a new release of one, the one before"
        return {"command": _show_and_check(filter(None, (package, caller)), facts), "decides": told}
    told += ": gone with the release before it, that bound until a later one mends it; not gone, "
    told += "`python3 -m pip install --upgrade %s`" % (caller or package)
    return {
        "command": "python3 -m pip install %s" % Remedies.quoted("%s<%s" % (package, plain_release(here))),
        "decides": told,
    }


def _look_at_end(facts):
    """For a traceback that is cut before its exception: the lines that are missing."""
    told = "the text ends before the exception itself, which is the last line of a traceback"
    told += ": the last frame is of %s" % facts.cut_in if facts.cut_in else ""
    told += "; with its last 40 lines, and the releases that `python3 -m pip list` prints, ask again"
    return {"command": "PROGRAM 2>&1 | tail -n 40 | rtbuild diagnose -", "decides": told}


def _look_by_system(facts):
    """For a text about a card of which no signature knows a line: what tells of the part for CUDA there."""
    if facts.empty or not facts.gpu_named or not (facts.fails or facts.starts_not):
        return None
    if facts.starts_not and facts.container_told:  # the probe cannot run in a container that does not start
        told = "on the host: a card is listed, and `nvidia` is among the runtimes; the log has the error"
        return {"command": _ON_THE_HOST, "decides": told}
    told = "the card, and the driver with the newest CUDA that it serves; not found: no driver is installed"
    return {"command": "nvidia-smi", "decides": told} if "windows" in facts.places else None


def _look_by_resolve(facts):
    """For files that are written before a program runs: the command that says what of them can work, on the
    card and the driver of the text where it names them; None if none was given, or a log is beside it.
    """
    if not facts.written or facts.fails and not all(row[1] == "--notebook" for row in facts.written):
        return None
    what, option, path = facts.written[0]
    card = card_here(facts)
    machine = " --gpu %s --driver %s" % (quote(card) if card else "CARD", facts.driver or "DRIVER")
    if option is None:
        command = "uv export --format pylock.toml -o pylock.toml && rtbuild resolve --from-pylock pylock.toml"
    else:
        command = "rtbuild resolve %s %s" % (option, quote(path))
    told = "it is %s, in which no error stands: this reads it, and says what of it can work" % what
    told += "; with --extra NAME for what the project brings by an extra" * (option is None)
    if "CARD" in machine or "DRIVER" in machine:
        told += "; CARD and DRIVER as nvidia-smi prints them, none for those of this machine"
    return {"command": command + machine, "decides": told}


def _look_without_failure(facts):
    """For a text that is empty, or that names card and driver alone; None for any other."""
    if facts.empty:
        told = (
            "this hands over all that a program prints, its errors, too; or the error itself, in quotes: "
            "all of its lines, from `Traceback` on if there is one"
        )
        return {"command": "PROGRAM 2>&1 | rtbuild diagnose -", "decides": told}
    if facts.fails or not facts.cards or not facts.driver:
        return None
    framework = next((name for name in told_names() if name in facts.packages), "torch")
    card = facts.capability if facts.cards[0].startswith("a card") else "'%s'" % card_here(facts)
    told = "no failure is in this text, but a card and a driver: this says which releases fit the two"
    command = "rtbuild resolve %s --gpu %s --driver %s" % (framework, card, facts.driver)
    return {"command": command, "decides": told + ", of another framework by its name"}


def _look_for_facts(row, facts):
    """For a cause whose commands ask for facts of which the text has none: what prints them."""
    known = facts.cards or facts.driver_cuda_known or facts.packages
    told = any(command["where"] != "rtbuild" for command in row["commands"])
    nowhere = set(read_patterns()["no-command"]) & facts.places  # a reason is told there
    if told or row["rank"] < 0 or not command_lines(row["cause"]):
        return None
    if nowhere or known and row["commands"]:
        return None
    return {
        "command": _FACTS_ON_WINDOWS if "windows" in facts.places else _FACTS_HERE,
        "decides": "what it prints, put below the message, decides on the command",
    }


_PROBE = "rtbuild probe -o cudnn_verify.py && python3 cudnn_verify.py"
_ON_THE_HOST = "nvidia-smi; docker info | grep -i runtimes; docker logs CONTAINER 2>&1 | tail -n 30"
_FACTS_HERE = (
    "nvidia-smi --query-gpu=name,compute_cap --format=csv; nvidia-smi | grep Version; python3 --version; "
    "python3 -m pip list | grep -iE 'torch|tensorflow|jax|onnx|paddle|cupy|ctranslate2|nvidia'"
)
_FACTS_ON_WINDOWS = (
    "nvidia-smi --query-gpu=name,compute_cap --format=csv & nvidia-smi | findstr Version & "
    "python --version & python -m pip list | "
    'findstr /i "torch tensorflow jax onnx paddle cupy ctranslate2 nvidia"'
)
"""Card, driver, Python and packages, as text_facts.py reads them."""
