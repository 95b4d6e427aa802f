"""The command: flags in, one report out, and an exit code that says the verdict.

``--fix`` runs the commands that this probe itself made, looks again, and undoes them if they did not help.
Nothing is run that was not shown, and nothing that came out of a text: a command is one of
:mod:`machine_facts`, split into words, without a shell.
"""

import argparse
import hashlib
import json
import os
import shlex
import signal
import subprocess
import sys
import time
import traceback

from ...core.suites import SUITES
from .common.causes import CAUSES, EXIT_CODES, PROBE_FAULT, explain
from .common.distributions import read_distributions, search_folders
from .common.isolation import (
    UNWRITTEN,
    flush_output,
    isolate,
    open_standard_streams,
    say,
    say_fault,
    show_progress,
    write,
)
from .measure.environment import raise_file_limit
from .measure.expectation import read_expectation
from .measure.machine_facts import installer
from .measure.protocol import UsageError, new_check
from .measure.report import compare_reports, exit_code, make_report, printed_report, without_infinities
from .measure.run import Program, child_main
from .measure.schedule import in_order, run_all
from .page import Style, render_diagnosis, render_html, render_page
from .read.diagnosis import diagnose
from .read.knowledge import knowledge_here, take_knowledge, within_time
from .read.reading import read_all, read_text_given


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


VERSION = "0.2.0"


class Parser(argparse.ArgumentParser):
    """argparse, with the probe's own exit code: 2 would be a number without a meaning here."""

    def _print_message(self, message, file=None):
        write(message or "", "stderr" if file is sys.stderr else "stdout")

    def error(self, message):
        raise UsageError("%s\n%s" % (message, self.format_usage().strip()))


def make_parser():
    parser = Parser(
        prog="cudnn-verify",
        description="Says whether cuDNN works here and, if not, which one cause is to blame.",
        epilog="exit codes: 0 works, 10 unverified (no GPU here), 20 broken (the image), 21 unsupported-gpu, "
        "22 host, 23 busy,\n30 the probe itself failed or was called wrongly. CUDNN_VERIFY_EXPECT names an "
        "expectation file.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--json", action="store_true", help="print the report as one JSON document")
    add("--html", action="store_true", help="print the report as a page of HTML")
    add("--expect", metavar="FILE", help="compare with what was asked for (JSON)")
    add("--strict", action="store_true", help="loaded cuDNN must equal the compiled one")
    add("--no-gpu", action="store_true", help="do not look for a GPU (at build time)")
    add("--thorough", action="store_true", help="compare the hash of every library with its package's RECORD")
    add("--suite", metavar="NAMES", help="run these suites, too, on a GPU: all, or of " + ",".join(SUITES))
    add("--suggested", metavar="NAMES", help="run these suites, too; no verdict turns on what they find")
    add("--only", metavar="STAGE", help="run this stage and what it needs")
    add("--compare", metavar="OLD.json", help="say what changed since an older report")
    add("--quiet", "-q", action="store_true", help="one line: verdict, cause, summary")
    add("--timeout", metavar="SECONDS", type=float, help="limit of each stage")
    add("--explain", metavar="CAUSE", help="explain a cause, or a text that a program printed")
    add(
        "--read",
        metavar="FILE",
        nargs="+",
        help="say what a log, a notebook, a list of packages tells of the cause; - for standard input",
    )
    add("--knowledge", metavar="FILE", help="with --read: the causes and signatures of another release")
    add("--print-knowledge", action="store_true", help="print those of this one, for --knowledge")
    add("--fix", action="store_true", help="run the commands that mend it, after asking")
    add("--yes", action="store_true", help="with --fix: do not ask")
    add("--pid", type=int, help="look at this running process, too")
    add("--version", action="store_true", help="print version and sha256 of this file")
    add("--child", help=argparse.SUPPRESS)
    add("--fd", type=int, help=argparse.SUPPRESS)
    return parser


def read_options(arguments):
    """The options that stages see, out of the command line and the environment."""
    expect = arguments.expect or os.environ.get("CUDNN_VERIFY_EXPECT")
    document = read_expectation(expect) if expect else {}
    stages = [row.name for row in in_order() if row.layer != "suite"]
    if arguments.only and arguments.only not in stages:
        raise UsageError("there is no stage %s; there are: %s" % (arguments.only, ", ".join(stages)))
    if arguments.timeout is not None and not 0 < arguments.timeout < float("inf"):
        raise UsageError("--timeout wants a number of seconds above 0, not %g" % arguments.timeout)
    for flag in ("suite", "suggested"):
        if getattr(arguments, flag) and arguments.only:
            raise UsageError("--only runs one stage, and --%s needs all of them" % flag)
    names = ("no_gpu", "thorough", "only", "timeout", "pid")
    options = {name: getattr(arguments, name) for name in names}
    options["suites"] = suites_named("conv," + arguments.suite if arguments.suite else "conv")
    suggested = suites_named(arguments.suggested) if arguments.suggested else []
    options["suggested"] = [name for name in suggested if name not in options["suites"]]
    return dict(options, expect=document, strict=bool(arguments.strict or document.get("strict")))


def suites_named(text):
    """The suites that a list with commas names, in the order in which they run; ``all``: each of them."""
    asked = {name.strip() for name in text.split(",")}
    asked = set(SUITES) if asked - {"conv"} == {"all"} else asked
    unknown = sorted(asked - set(SUITES))
    if unknown:
        raise UsageError("there is no suite %s; there are: %s" % (unknown[0] or "''", ", ".join(SUITES)))
    return [name for name in SUITES if name in asked]


def read_older(path):
    try:
        with open(path, encoding="utf-8") as stream:
            older = json.load(stream)
    except (OSError, ValueError) as error:
        raise UsageError("cannot read the older report %s: %s" % (path, error))
    if not isinstance(older, dict) or not isinstance(older.get("fingerprint", {}), dict):
        raise UsageError("the older report %s is no report of this probe" % path)
    return older


def own_file():
    """The path of the file that holds this code, or None: it may have come through a pipe."""
    path = globals().get("__file__")
    return os.path.abspath(path) if path and os.path.isfile(path) else None


def identify():
    """{version, sha256} of the probe."""
    digest = None
    if own_file():
        with open(own_file(), "rb") as stream:
            digest = hashlib.sha256(stream.read()).hexdigest()
    return {"version": VERSION, "sha256": digest}


def command_to_start():
    python = sys.executable or os.path.realpath("/proc/self/exe")
    return [python] + (["-m", __package__] if __package__ else [own_file()])


def end_with_children(number, _frame):
    """On SIGTERM or SIGHUP leave by an exception, so that the child under way is stopped, too."""
    raise SystemExit(128 + number)


def leave_own_folder():
    """Keep the user's modules out of the probe; the files beside a downloaded one are not installed.

    By ``python -m`` the current folder is on the path as it is for any program started so, and stays.
    """
    path = None if globals().get("__spec__") else globals().get("__file__")
    if not __package__:
        isolate(os.path.dirname(os.path.abspath(path)) if path else None)


def examine(options):
    start, identity = time.time(), identify()
    program = Program(options, command_to_start())
    limit = raise_file_limit()
    if limit < 16:  # for the pipes to a child
        text = "at most %d files may be open (ulimit -n), with which no framework starts" % limit
        checks = [new_check("environment", "E01", "failed", text, "host-memory", {"limit": limit})]
        libraries = []
    else:
        checks, libraries = run_all(program)
    return make_report(program, checks, libraries, identity, time.time() - start)


def one_line(report):
    cause = " (%s)" % report["cause"] if report["cause"] else ""
    return "%s%s: %s" % (report["verdict"] or "no verdict", cause, report["summary"])


def print_report(report, arguments):
    if arguments.json:
        document = without_infinities(report)
        write(json.dumps(document, indent=1, sort_keys=True, default=str, allow_nan=False) + "\n")
    elif arguments.html:
        write(render_html(report) + "\n")
    elif arguments.quiet:
        write(one_line(report) + "\n")
    else:
        write(render_page(report, Style(sys.stdout)))


def explanation_of(text):
    """One cause by its id, or the causes of a text that a program printed."""
    if text in CAUSES:
        return explain(text)
    document = diagnose(read_text_given(text))
    if document["cause"] is None and not document["harmless"]:
        unknown = "there is no cause %s, and no signature fits it; there are: %s"
        raise UsageError(unknown % (text, ", ".join(CAUSES)))
    return render_diagnosis(document).rstrip("\n")


def print_diagnosis(arguments):
    """``--read``: the causes that texts tell, as a page or as one JSON document."""
    try:
        version = take_knowledge(arguments.knowledge) if arguments.knowledge else None
        read = read_all(arguments.read)
        document = within_time(diagnose, read) if version else diagnose(read)
    except ValueError as error:
        raise UsageError("the knowledge of %s cannot be used: %s" % (arguments.knowledge, error))
    except OSError as error:
        raise UsageError("cannot read %s: %s" % (error.filename or "it", error.strerror or error))
    if version:
        note = "the knowledge of %s (version %s) was asked, and its commands are as they stand there"
        document["read"]["notes"].append(note % (os.path.basename(arguments.knowledge), version))
    text = json.dumps(document, indent=1, sort_keys=True) + "\n" if arguments.json else None
    write(text or render_diagnosis(document))


def fix_here(arguments):
    """``--fix``: each look is a run of this probe anew, since packages change in between."""
    again = command_to_start()
    for name in ("expect", "timeout", "suite", "suggested"):
        value = getattr(arguments, name)
        again += ["--" + name, str(value)] if value is not None else []
    again += ["--strict"] * arguments.strict + ["--no-gpu"] * arguments.no_gpu
    return repair(again, arguments.yes)


def run_probe(argv):
    arguments = make_parser().parse_args(argv)
    if arguments.child:
        child_main(arguments.child, json.loads(sys.stdin.read()), arguments.fd)
    if arguments.version:
        write("cudnn-verify %s\nsha256 %s\n" % (VERSION, identify()["sha256"] or "unknown: no file"))
    elif arguments.print_knowledge:
        write(json.dumps(knowledge_here(VERSION), indent=1, ensure_ascii=False) + "\n")
    elif arguments.knowledge and not arguments.read:
        raise UsageError("--knowledge goes with --read")
    elif arguments.explain is not None:
        write(explanation_of(arguments.explain) + "\n")
    elif arguments.read:
        print_diagnosis(arguments)
    else:
        return look_here(arguments)
    return 0


def look_here(arguments):
    """Everything that examines this machine; returns the exit code."""
    if not sys.platform.startswith("linux"):
        raise UsageError("cudnn-verify examines Linux; this is %s" % sys.platform)
    if not own_file():
        raise UsageError(
            "counter-tests start this file anew, and there is none: it came through a pipe.\n"
            "Save it first, then run: python3 cudnn_verify.py"
        )
    if arguments.fix:
        return fix_here(arguments)
    options = read_options(arguments)
    older = read_older(arguments.compare) if arguments.compare else None
    try:
        report = examine(options)
    finally:
        show_progress()
    if older is not None:
        report["changes"] = compare_reports(older, report)
    print_report(report, arguments)
    code = exit_code(report)
    if UNWRITTEN or code == PROBE_FAULT:
        say("cudnn-verify: %s\n" % one_line(report))
    return code


def probe():
    """The command, which owns stdout; every way out is an exit code."""
    open_standard_streams()
    try:
        code = answer(sys.argv[1:])
        if UNWRITTEN:
            say("cudnn-verify: the output could not be written: %s\n" % UNWRITTEN[0])
        return PROBE_FAULT if UNWRITTEN else code
    finally:
        flush_output()
        os.dup2(2, 1)  # for what is printed at Python's end


def answer(argv):
    try:  # some libraries end the process in a folder that was removed
        os.getcwd()
    except OSError:
        os.chdir("/")
    signal.signal(signal.SIGTERM, end_with_children)
    if signal.getsignal(signal.SIGHUP) == signal.SIG_DFL:  # nohup ignores it, and means it
        signal.signal(signal.SIGHUP, end_with_children)
    leave_own_folder()
    try:
        return run_probe(argv)
    except UsageError as error:
        say("cudnn-verify: %s\n" % error)
        return PROBE_FAULT
    except KeyboardInterrupt:
        say("cudnn-verify: interrupted\n")
        return 130
    except SystemExit as leaving:
        return int(leaving.code or 0)
    except BaseException as error:
        fall(error, traceback.format_exc())
        return PROBE_FAULT


def fall(error, trace):
    """Say that the probe failed: no verdict, and a text to paste into a report."""
    summary = "this is a fault of the probe, not of the machine: %s: %s" % (type(error).__name__, error)
    identity = {"version": VERSION, "sha256": None}
    document = {"schema": 1, "probe": identity, "verdict": None, "cause": None, "summary": summary}
    document.update(fault=trace, exit_code=PROBE_FAULT)
    where = "```\ncudnn-verify %s, Python %s\n%s```" % (VERSION, sys.version.split()[0], trace)
    text = "%s. Please report what follows.\n\n%s" % (summary, where)
    say_fault(json.dumps(document, sort_keys=True), text)


if __name__ == "__main__":
    sys.exit(probe())
