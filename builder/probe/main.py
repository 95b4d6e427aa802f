"""The command: flags in, one report out, and an exit code that says the verdict."""

import hashlib
import json
import os
import signal
import sys
import tempfile
import time
import traceback

from .causes import CAUSES, EXIT_CODES, PROBE_FAULT, causes_page, explain
from .command_line import UsageError, make_parser, read_older, read_options
from .diagnosis import diagnose
from .diagnosis_page import render_diagnosis
from .expectation import ExpectationError
from .fix import FixError, repair
from .isolation import isolate, say_fault
from .machine_limits import raise_file_limit
from .page import Style, render_html, render_page
from .protocol import new_check
from .reading import read_all, read_text_given
from .report import compare_reports, make_report, without_infinities
from .run import Program
from .runner import child_main, flush_output
from .schedule import run_all
from .stages import REGISTERED
from .streams import divert_stdout, open_standard_streams, say, show_progress, write

VERSION = "0.1.0"
_FEWEST_FILES = 16  # for the pipes to a child


def own_source():
    """The bytes of the file that holds this code, or None: it may have come through a pipe."""
    path = globals().get("__file__")
    try:
        if path and os.path.isfile(path):
            with open(path, "rb") as stream:
                return stream.read()
        # python3 - < file: a regular file as standard input can be read once more from its start
        size = os.fstat(0).st_size
        data = os.pread(0, size, 0) if size else b""
        return data if data.startswith(b"#!/usr/bin/env python3\n# cudnn-verify") else None
    except OSError:
        return None


def identify(source):
    """{version, sha256} of the probe."""
    return {"version": VERSION, "sha256": hashlib.sha256(source).hexdigest() if source else None}


def command_to_start(source):
    """The command that starts the probe anew, or None if it has no file and can write none."""
    if not sys.executable or source is None:
        return None
    path = globals().get("__file__")
    if path and __package__:
        root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(path))))
        code = "import sys; sys.path.insert(0, %r); from %s.main import probe; sys.exit(probe())"
        return [sys.executable, "-c", code % (root, __package__)]
    if path and os.path.isfile(path):
        return [sys.executable, os.path.abspath(path)]
    try:
        handle, name = tempfile.mkstemp(prefix="cudnn_verify_", suffix=".py")
    except OSError:
        return None
    with os.fdopen(handle, "wb") as stream:
        stream.write(source)
    return [sys.executable, name]


def is_own_copy(command):
    """True if :func:`command_to_start` wrote the file itself; a user's file may have any name."""
    path = globals().get("__file__")
    return command is not None and "-c" not in command and not (path and os.path.isfile(path))


def leave_lost_folder():
    """Go to / if the current folder was removed: some libraries end the process there."""
    try:
        os.getcwd()
    except OSError:
        os.chdir("/")


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


def examine(options, source, progress):
    """Run everything and make the report."""
    start = time.time()
    command = command_to_start(source)
    program = Program(options, command)
    limit = raise_file_limit()
    if limit < _FEWEST_FILES:
        text = "at most %d files may be open (ulimit -n), with which no framework starts" % limit
        check = new_check("environment", "E01", "failed", text, "host-memory", {"limit": limit})
        return make_report(program, [check], [], identify(source), time.time() - start)
    try:
        checks, libraries = run_all(program, options["only"], progress)
    finally:
        if is_own_copy(command):
            os.unlink(command[-1])
    return make_report(program, checks, libraries, identify(source), time.time() - start)


def print_report(report, arguments, changes):
    if arguments.json:
        if changes is not None:
            report["changes"] = changes
        document = without_infinities(report)
        write(json.dumps(document, indent=1, sort_keys=True, default=str, allow_nan=False) + "\n")
    elif arguments.html:
        write(render_html(report) + "\n")
    elif arguments.quiet:
        cause = " (%s)" % report["cause"] if report["cause"] else ""
        write("%s%s: %s\n" % (report["verdict"], cause, report["summary"]))
    else:
        write(render_page(report, Style(sys.stdout), changes))


def answer_questions(arguments, source):
    """--version, --explain and --read; true if there was one."""
    if arguments.version:
        write("cudnn-verify %s\nsha256 %s\n" % (VERSION, identify(source)["sha256"] or "unknown: no file"))
    elif arguments.explain == "all":
        write(causes_page())
    elif arguments.explain is not None:
        write(explanation_of(arguments.explain) + "\n")
    elif arguments.read:
        print_diagnosis(arguments)
    return bool(arguments.version or arguments.explain is not None or arguments.read)


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
        document = diagnose(read_all(arguments.read))
    except OSError as error:
        raise UsageError("cannot read %s: %s" % (error.filename or "it", error.strerror or error))
    if arguments.json:
        write(json.dumps(document, indent=1, sort_keys=True) + "\n")
    else:
        write(render_diagnosis(document))


def fix_here(arguments, source):
    """``--fix``: each look is a run of this probe anew, since packages change in between."""
    start = command_to_start(source)
    if start is None:
        raise UsageError("--fix starts this probe anew, and it has no file here")
    again = list(start)
    for name in ("expect", "timeout"):
        value = getattr(arguments, name)
        again += ["--" + name, str(value)] if value is not None else []
    again += ["--strict"] * arguments.strict + ["--no-gpu"] * arguments.no_gpu
    try:
        return repair(again, arguments.yes, ask_person, lambda text: write(text + "\n"))
    except FixError as error:
        raise UsageError(str(error))
    finally:
        if is_own_copy(start):
            os.unlink(start[-1])


def ask_person(question):
    """True if somebody sits before this terminal and says yes."""
    if sys.stdin is None or not sys.stdin.isatty():
        write("Nobody is here to be asked; --yes runs them.\n")
        return False
    write(question)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def run_probe(argv):
    """The command; returns the exit code, raises on a fault of the probe."""
    arguments = make_parser().parse_args(argv)
    if arguments.child:
        params = json.loads(sys.stdin.read())
        child_main(arguments.child, params, arguments.fd)
    older = read_older(arguments.compare) if arguments.compare else None  # which may be the file of --output
    if arguments.output:
        try:
            sys.stdout = open(arguments.output, "w", encoding="utf-8")
        except OSError as error:
            raise UsageError("cannot write %s: %s" % (arguments.output, error.strerror))
    source = own_source()
    if answer_questions(arguments, source):
        return 0
    if not sys.platform.startswith("linux"):
        raise UsageError("cudnn-verify examines Linux; this is %s" % sys.platform)
    if source is None:
        raise UsageError(
            "counter-tests start this file anew, and there is none: it came through a pipe.\n"
            "Save it first, then run: python3 cudnn_verify.py"
        )
    if arguments.fix:
        return fix_here(arguments, source)
    options = read_options(arguments)
    try:
        report = examine(options, source, show_progress)
    finally:
        show_progress()
    changes = compare_reports(older, report) if older is not None else None
    print_report(report, arguments, changes)
    return EXIT_CODES[report["verdict"]]


def probe(argv=None):
    """Run the probe; every way out is an exit code. Without ``argv`` it is the command, and owns stdout."""
    open_standard_streams()
    before = sys.stdout
    if argv is None:
        divert_stdout()
    try:
        return answer(sys.argv[1:] if argv is None else argv)
    finally:
        flush_output()
        if sys.stdout not in (before, None):  # --output
            try:
                sys.stdout.close()
            except OSError:
                pass  # the disk is full, and write() has said so
            sys.stdout = before
        if argv is None:
            os.dup2(2, 1)  # for what is printed at Python's end


def answer(argv):
    leave_lost_folder()
    signal.signal(signal.SIGTERM, end_with_children)
    if signal.getsignal(signal.SIGHUP) == signal.SIG_DFL:  # nohup ignores it, and means it
        signal.signal(signal.SIGHUP, end_with_children)
    leave_own_folder()
    if not REGISTERED:
        return PROBE_FAULT
    try:
        return run_probe(argv)
    except (ExpectationError, UsageError) as error:
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
    trace = "\n".join([trace] + list(getattr(error, "trace", ())))
    summary = "this is a fault of the probe, not of the machine: %s: %s" % (type(error).__name__, error)
    identity = {"version": VERSION, "sha256": None}
    document = {"schema": 1, "probe": identity, "verdict": None, "cause": None, "summary": summary}
    document.update(fault=trace, exit_code=PROBE_FAULT)
    where = "```\ncudnn-verify %s, Python %s\n%s```" % (VERSION, sys.version.split()[0], trace)
    text = "%s. Please report what follows.\n\n%s" % (summary, where)
    say_fault(json.dumps(document, sort_keys=True), text)
