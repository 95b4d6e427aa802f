"""``--fix``: run the commands that this probe itself made, look again, and undo them if they did not help.

Nothing is run that was not shown, and nothing that came out of a text: a command is one of
:mod:`machine_facts`, split into words, without a shell.
"""

import os
import shlex
import subprocess
import sys

from .common.causes import EXIT_CODES
from .common.distributions import read_distributions, search_folders
from .common.isolation import write
from .measure.machine_facts import installer
from .measure.protocol import UsageError
from .measure.report import printed_report


class Repair(object):
    """One attempt: ``start`` is the command that starts the probe."""

    def __init__(self, start):
        self.start, self.links = start, []
        self.before = installed_now()

    def look(self, environment=None):
        """The probe's report of this machine as it is now."""
        pipes = {"stdout": subprocess.PIPE, "stdin": subprocess.DEVNULL}
        process = subprocess.Popen(self.start + ["--json"], env=environment, **pipes)
        text = process.communicate()[0]
        try:
            report = printed_report(text.decode("utf-8", "replace"))
        except ValueError:
            raise UsageError("the probe gave no report (exit status %s)" % process.returncode)
        if report["verdict"] is None:
            raise UsageError("the probe gave no verdict: %s" % report["summary"])
        return report

    def run(self, command):
        """Run one command; True if it succeeded."""
        words = shlex.split(command["text"])
        tell("+ " + command["text"])
        if command["where"] == "link":
            self.links.append(words[-1])
        pipes = {"stdout": sys.stderr, "stdin": subprocess.DEVNULL}
        try:
            return subprocess.call(words, timeout=3600, **pipes) == 0
        except (OSError, subprocess.TimeoutExpired) as error:
            tell("it could not be run: %s" % error)
            return False

    def undo(self):
        """Bring back the packages that were here before, and take away the links that were made."""
        for path in self.links:
            if os.path.islink(path):
                os.unlink(path)
        now = installed_now()
        added = sorted(set(now) - set(self.before))
        changed = sorted(name for name in self.before if now.get(name) != self.before[name])
        by_uv = installer().startswith("uv")
        if added:
            words = [installer() % "uninstall"] + ([] if by_uv else ["-y"])
            self.run({"where": "pip", "text": " ".join(words + added)})
        if changed:
            words = [installer() % "install", "--reinstall" if by_uv else "--force-reinstall", "--no-deps"]
            wanted = ["%s==%s" % (name, self.before[name]) for name in changed]
            self.run({"where": "pip", "text": " ".join(words + wanted)})
        return added + changed


def tell(text):
    write(text + "\n")


def installed_now():
    """{name: version} of the packages installed for this interpreter."""
    return {name: row["version"] for name, row in read_distributions(search_folders()).items()}


def environment_after(commands):
    """The environment that ``unset NAME`` and ``export NAME=VALUE`` among commands lead to; None for none."""
    environment, found = dict(os.environ), False
    for text in (command["text"] for command in commands):
        verb, name, *rest = shlex.split(text) + ["", ""]
        variable, equals, value = name.partition("=")
        if len(rest) == 2 and "$" not in text and (verb, equals) in (("unset", ""), ("export", "=")):
            environment.pop(variable, None)
            environment.update({variable: value} if equals else {})
            found = True
    return environment if found else None


def repair(start, yes):
    """The whole of ``--fix``, which asks unless ``yes``; returns the exit code of the last look."""
    work = Repair(start)
    report = work.look()
    tell("%(verdict)s: %(summary)s" % report)
    commands = report.get("commands") or []
    runnable = [command for command in commands if command["where"] in ("pip", "link")]
    environment = environment_after(commands)
    for command in commands:
        tried = "for you to run: it is tried here in a child" if environment is not None else "for you to run"
        note = command["note"] if command in runnable else tried
        tell("  $ " + command["text"] + ("   # " + note if note else ""))
    if report["cause"] is None:
        tell("There is nothing to mend.")
    elif not commands:
        tell("There is no command for this: %s." % (report.get("no_command") or "none is known"))
        tell("What to do: %s" % report["remedy"])
    elif not runnable:
        if environment is not None:
            helped = work.look(environment)["cause"] != report["cause"]
            tell("Tried: with it, this cause is %s." % ("gone" if helped else "still there"))
        tell("It is for you to run: no program can change the shell, or the host, that started it.")
    elif yes or _asked("Run %s? [y/N] " % ("this" if len(runnable) == 1 else "these")):
        report = _mend(work, runnable, report, environment)
    else:
        tell("Nothing was run.")
    return EXIT_CODES[report["verdict"]]


def _asked(question):
    """True if somebody sits before this terminal and says yes."""
    if sys.stdin is None or not sys.stdin.isatty():
        tell("Nobody is here to be asked; --yes runs them.")
        return False
    write(question)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _mend(work, commands, report, environment):
    done = all(work.run(command) for command in commands)
    try:
        after = work.look(environment)
    except UsageError:
        after = report  # no verdict: nothing is known to be mended
    if done and after["cause"] != report["cause"]:
        tell("%(verdict)s: %(summary)s" % after)
        tell("%(cause)s is mended. In a notebook, restart the runtime: what is loaded stays loaded." % report)
        return after
    tell("That did not help (%s), so it is undone." % (after["cause"] if done else "a command failed"))
    undone = work.undo()
    tell("As before: %s" % (", ".join(undone) if undone else "nothing had changed"))
    return work.look()
