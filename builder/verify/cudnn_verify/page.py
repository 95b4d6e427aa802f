"""The pages for people: a report, the verdict first, then cause, evidence, remedy, and the details last; and
the result of reading texts.

A report is the same on a terminal, as HTML, where styles stand in the elements, since notebooks keep neither
classes nor scripts of an output, and in a notebook: ``%load_ext cudnn_verify``, then ``%cudnn_verify``.
"""

import os
import subprocess
import sys
import textwrap
from html import escape

from .common.causes import CAUSES
from .common.tables import told_names
from .measure.machine_facts import thing_at_fault
from .measure.report import printed_report

# (title, colour on a terminal, colour in HTML)
_VERDICTS = {
    "works": ("WORKS", "32", "#1a7f37"),
    "unverified": ("UNVERIFIED", "33", "#9a6700"),
    "broken": ("BROKEN (%(thing)s is at fault)", "1;31", "#cf222e"),
    "unsupported-gpu": ("UNSUPPORTED GPU (this image on this card)", "1;31", "#cf222e"),
    "host": ("HOST (driver, devices or container set-up of this machine)", "1;31", "#cf222e"),
    "busy": ("BUSY (try again)", "1;31", "#9a6700"),
    None: ("NO VERDICT (a fault of the probe)", "1;31", "#cf222e"),
}
# (symbol, the same in ASCII, colour on a terminal)
_OUTCOMES = {
    "passed": ("\u2713", "+", "32"),
    "failed": ("\u2717", "x", "31"),
    "not_run": ("\u2298", "-", "2"),
}


class Style(object):
    """Colours and symbols that fit a stream; without one all symbols and no colours."""

    def __init__(self, stream=None):
        tty = hasattr(stream, "isatty") and stream.isatty()
        self.colour = tty and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        self.ascii = False
        try:
            "\u2713\u2717\u2298".encode(getattr(stream, "encoding", "utf-8") or "ascii")
        except (UnicodeEncodeError, LookupError):
            self.ascii = True

    def paint(self, text, colour):
        return "\033[%sm%s\033[0m" % (colour, text) if self.colour else text


def wrapped(text, indent="  "):
    """A paragraph within 100 columns."""
    style = {"initial_indent": indent, "subsequent_indent": indent, "break_long_words": False}
    return textwrap.fill(text, 100, break_on_hyphens=False, **style)


def render_page(report, style):
    """The whole page as text with a newline at its end."""
    title, colour, _ = _title(report)
    lines = ["%s: %s" % (style.paint(title, colour), report["summary"])]
    for heading, rows in _sections(report, style):
        lines += ["", heading] + rows
    return "\n".join(lines + ["", _end(report)]) + "\n"


def render_html(report):
    """The page as one ``<div>``; the words of the machine are escaped."""
    title, _, colour = _title(report)
    banner = '<div style="background:%s;color:#fff;padding:8px 12px;border-radius:6px"><b>%s</b>: %s</div>'
    parts = ['<div style="font-family:sans-serif;max-width:60em">']
    parts.append(banner % (colour, escape(title), escape(report["summary"])))
    outcomes = [check["outcome"] for check in report["checks"]]
    counts = tuple(map(outcomes.count, ("passed", "failed", "not_run")))
    folded = "<details%s><summary>Checks: " % (" open" if counts[1] else "")
    folded += "%d passed, %d failed, %d not run</summary>%%s</details>" % counts
    for heading, rows in _sections(report, Style()):
        text = '<pre style="white-space:pre-wrap">%s</pre>' % escape("\n".join(rows)) if rows else ""
        parts.append(folded % text if heading == "Checks" else "<h4>%s</h4>%s" % (escape(heading), text))
    return "\n".join(parts + ["<p><small>%s</small></p></div>" % escape(_end(report))])


def _title(report):
    """(``BROKEN (the image is at fault)``, or the virtual environment, and so on; its two colours)."""
    title, *colours = _VERDICTS[report["verdict"]]
    return [title % {"thing": thing_at_fault(report["machine"] or {})}] + colours


def _end(report):
    text = "exit code and causes: cudnn-verify --explain CAUSE; cudnn-verify %(version)s" % report["probe"]
    return "%s, %.1f s" % (text, report["seconds"])


def _sections(report, style):
    """Yield (heading, lines)."""
    if report["test_double"]:
        yield "A TEST DOUBLE took part: this is evidence for nothing.", []
    if report["cause"]:
        cause = CAUSES[report["cause"]]
        yield "Cause: " + cause.id, [wrapped(cause.title + ".")]
        yield "Evidence", [wrapped("%(test)s %(outcome)s: %(detail)s" % row) for row in report["proof"][:8]]
        commands = _commands(report.get("commands") or (), "    $ %(text)s", 6)
        why = [wrapped("No command: %(no_command)s." % report)] if report.get("no_command") else []
        yield "What to do", [wrapped(cause.remedy)] + list(commands) + why
        if report["consequences"]:
            rows = [wrapped("%(stage)s %(id)s: %(summary)s" % row) for row in report["consequences"]]
            yield "Consequences of it", rows
    if "changes" in report:
        rows = ["  %(what)s: %(before)s -> %(now)s" % row for row in report["changes"]]
        yield "Changed since the older report", rows or ["  nothing"]
    suites = report.get("suites") or ()  # none in a report from before
    if len({row["suite"] for row in suites}) > 1:
        yield "Suites", [wrapped(_suite_line(row)) for row in suites]
    yield "Here", ["  %-12s%s" % row for row in _facts(report)]
    lines = []
    for check in report["checks"]:
        symbol, plain, colour = _OUTCOMES[check["outcome"]]
        word = "%s %-7s" % (plain if style.ascii else symbol, check["outcome"].replace("_", " "))
        lines.append("  %s %%(id)s %%(stage)-12s %%(summary)s" % style.paint(word, colour) % check)
        lines += [wrapped("note: " + check["note"], " " * 17)] if check["note"] else []
    yield "Checks", lines


def _suite_line(row):
    """``attention (torch): 32 results, worst 0.0139 of 0.0242 (...), 4.1 s``"""
    told = "%s (%s): " % (row["suite"], row["framework"] or "no framework")
    if row["outcome"] != "passed":
        return told + "%s: %s" % (row["outcome"].replace("_", " "), row["reason"])
    told += "%d results" % row["ran"]
    if row["worst"]:
        told += "; nearest to its bound is %(what)s: %(error).3g of %(bound).3g" % row["worst"]
    return told + ("; %.1f s" % row["seconds"] if row["seconds"] is not None else "")


def _commands(rows, form, indent):
    """Yield the lines of commands, each with its note."""
    for row in rows:
        yield form % row
        if row["note"]:
            yield wrapped(row["note"], " " * indent)


def _facts(report):
    """Versions and copies on this machine, as (name, text)."""
    rows = []
    machine, driver = report["machine"] or {}, report["driver"] or {}
    if machine:
        rows.append(("Python", "%s, %s" % (machine["python"], machine["distribution"] or machine["kernel"])))
    gpus = ["%(name)s (compute capability %(compute_capability)s)" % row for row in report["gpus"]]
    rows.append(("GPU", ", ".join(gpus) or "none seen"))
    if driver:
        rows.append(("driver", "%s, CUDA up to %s" % (driver.get("version"), driver.get("api"))))
    rows += [("cuDNN %(major)s" % copy, "%(folder)s (%(kind)s)" % copy) for copy in report["copies"]]
    for row in report["frameworks"]:
        compiled, loaded = row.get("compiled") or {}, (row.get("loaded") or {}).get("cudnn")
        built = row.get("version"), compiled.get("cuda"), compiled.get("cudnn")
        text = "%s, compiled for CUDA %s and cuDNN %s" % built
        text += ", loaded cuDNN %s" % loaded if loaded else ""
        rows.append((row.get("name"), text + (", on %s" % row["device"] if row.get("device") else "")))
    return rows


def render_diagnosis(document):
    """The page for what texts told; every fact in it is in the document, too."""
    causes, equal = document["causes"], document["equal"]
    if document["compared"]:
        return "\n".join(_what_differs(document["compared"]) + ["", _NOT_SENT]) + "\n"
    if document["program"]:
        said = "the program itself is at fault."
        said = "this is none of NVIDIA's software." if document["program"]["elsewhere"] else said
        lines = ["No cause in the environment: " + said]
        lines += sum(_proof(dict(document["program"], because=[])), [])
    elif document["read"]["nothing"] and document["cause"] is None:
        lines = [wrapped("Nothing was read: %s." % "; ".join(document["read"]["notes"]), "")]
    elif document["cause"] is None:
        lines = ["No cause: nothing in this text is a known signature of one."]
    elif equal:
        lines = ["%d causes fit, the likeliest first: %s" % (len(equal), ", ".join(equal))]
    else:
        likely = "" if document["decided"] else "likely "
        lines = [likely + "%(cause)s: %(title)s" % causes[0]]
    proofs = [_proof(row) for row in causes]
    common = len(proofs) > 1 and proofs.count(proofs[0]) == len(proofs)
    lines += sum(proofs[0], []) if common else []
    look = document["look"]
    if look:  # with one cause its commands come first
        told = ["", "One look decides:" if causes else "What to do now:"]
        look = told + ["  $ " + look["command"], wrapped(look["decides"], "    ")]
    lines += look if look and (equal or not causes) else []
    for row, proof in zip(causes, proofs):
        lines += [""] * bool(equal or row["rank"] > 0)
        lines += _one_cause(row, bool(equal), ([], []) if common else proof)
    lines += look if look and causes and not equal else []
    if document["harmless"]:
        lines += ["", "Lines that mean nothing:"]
    for row in document["harmless"]:
        lines += ["  %(source)s, line %(line)s: %(text).80s" % row["line"], wrapped(row["says"], "    ")]
    return "\n".join(lines + [""] + _what_was_read(document["read"])) + "\n"


def _what_differs(compared):
    """Lines on what differs between lists of packages."""
    lists, rows = compared["lists"], compared["rows"]
    lines = ["%s: %s" % (" -> ".join(lists), "what differs for the GPU:" if rows else "alike for the GPU.")]
    for row in rows:
        told = [value or "not told" for value in row["values"]]
        lines.append(
            "  %-18s %s%s" % (row["what"], " -> ".join(told), "  (%(note)s)" % row if row["note"] else "")
        )
    others, more = compared["others"][:_OTHERS], len(compared["others"]) - _OTHERS
    others += ["and %d more, which --json names" % more] if more > 0 else []
    if others:
        lines.append(wrapped("others that differ: %s" % ", ".join(others)))
    lines.append("  %d packages are alike" % compared["alike"])
    for row in compared["faults"]:
        lines += ["", wrapped("%(list)s has a fault of its own, %(cause)s: %(title)s" % row, "")]
        lines += [wrapped(text) for text in row["because"] + [row["says"]] if text]
        lines += ["  What to run:"] * bool(row["commands"])
        lines += list(_commands(row["commands"], "    [%(where)s] %(text)s", 8)) + _afterwards(row)
    return lines


_OTHERS = 8
"""Packages beside those of the GPU that are named."""


def _proof(row):
    """The meaning of the line that proves a cause, what decided first, and the line."""
    said = [wrapped(text) for text in row["because"] + [row["says"]] if text]
    return said, ["  Read in %(source)s, line %(line)s:" % row["line"], "    | %(text).240s" % row["line"]]


def _one_cause(row, equal, proof):
    said, line = proof
    lines = ["%(cause)s (%(how)s)" % row, wrapped(row["title"])] if equal or row["rank"] > 0 else []
    lines += said
    if row["verdict"] == "host" and not equal:
        where = next((place for start, place in _PLACES if row["cause"].startswith(start)), "its set-up")
        lines.append(wrapped("It lies in this machine, in %s, and in no image or package." % where))
    if row["commands"]:
        lines.append("  What to run%s:" % (", if this is it" if equal else ""))
    lines += _commands(row["commands"], "    [%(where)s] %(text)s", 8)
    if row["remedy"] not in [command["note"] for command in row["commands"]]:
        lines.append(wrapped(("In words: " if row["commands"] else "What to do: ") + row["remedy"]))
    lines += _afterwards(row)
    if row["restart"]:
        lines.append("  Then restart the runtime: what is loaded stays loaded.")
    return lines + line + ["  Source: " + row["source"]] + (["  Page: " + row["page"]] if row["page"] else [])


def _afterwards(row):
    """The lines on what shows that a remedy helped, and on what keeps it."""
    lines = []
    if row["check"]:
        lines += ["  Then this shows whether it helped:", "    $ " + row["check"]]
    if row["keep"]:
        lines += ["  To keep it so, in the file of requirements:"] + ["    " + line for line in row["keep"]]
    return lines


_PLACES = (
    ("driver-", "its driver"),
    ("fabric-", "the service of its switches"),
    ("device-", "how its cards reach the program"),
    ("container-", "how its cards reach the container"),
    ("toolkit-", "how its cards reach the container"),
)
"""(start of a cause's name, the part of a machine that it is about)"""


def _what_was_read(read):
    known = [("card", ", ".join(read["cards"][:3])), ("compute capability", read["capability"])]
    known += [("driver", read["driver"]), ("driver's CUDA", read["driver_cuda"]), ("Python", read["python"])]
    known += [("cuDNN", ", ".join(read["cudnn"][:4])), ("where", ", ".join(read["places"]))]
    known += [(name, read["packages"].get(name)) for name in told_names() + ["jaxlib"]]
    if read["nothing"]:
        return ["Nothing was sent anywhere."]
    lines = ["Read out of %s:" % ", ".join(read["sources"][:6])]
    lines += ["  %-18s %s" % (name, value) for name, value in known if value]
    if len(lines) == 1:
        lines.append("  neither card, driver nor versions are named in it")
    lines += [wrapped("note: " + note) for note in read["notes"]]
    return lines + [_NOT_SENT]


_NOT_SENT = "Nothing was sent anywhere, and nothing out of the text was run."


# -- in a notebook: ``%load_ext cudnn_verify``, then ``%cudnn_verify``, which runs beside the kernel


class Page(object):
    """A report that a notebook shows as HTML, and everything else as text."""

    def __init__(self, report):
        self.report = report

    def _repr_html_(self):
        return render_html(self.report)

    def __repr__(self):
        return render_page(self.report, Style(sys.stdout))


def verify(*arguments):
    """Run the probe in a process of its own, with the options of the command line.

    Shows its page, or prints its answer if that is no report. Returns the report, or None.
    """
    # these answer by a line or two, and no page
    answered = ("-q", "--quiet", "-h", "--help", "--version", "--read", "--fix")
    as_text = any(word in answered or word.startswith("--explain") for word in arguments)
    command = [sys.executable, os.path.abspath(__file__), "--pid", str(os.getpid())] + list(arguments)
    process = subprocess.Popen(
        command + ["--json"] * (not as_text),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
    )
    text, said = process.communicate()
    try:
        report = printed_report(text)
    except ValueError:
        print((text + said).rstrip())
        return None
    try:
        from IPython.display import display
    except ImportError:
        display = print
    display(Page(report))
    return report


def load_ipython_extension(ipython):

    def cudnn_verify(line):
        """Show whether cuDNN works here; the report itself is left in the variable ``cudnn_report``."""
        report = verify(*line.split())
        if report is not None:
            ipython.user_ns["cudnn_report"] = report

    def cudnn_fix(line):
        """Show the commands that mend the cause, ask, run them; undo them if they did not help."""
        report = verify()
        commands = [row["text"] for row in (report or {}).get("commands") or ()]
        if commands and (line.strip() == "--yes" or _agreed("Run this? [y/N] ")):
            verify("--fix", "--yes")

    ipython.register_magic_function(cudnn_verify, "line", "cudnn_verify")
    ipython.register_magic_function(cudnn_fix, "line", "cudnn_fix")


def _agreed(question):
    """Whether the person before the notebook says yes; no if there is nobody to ask."""
    try:
        return input(question).strip().lower() in ("y", "yes")
    except (EOFError, NotImplementedError, RuntimeError):
        return False
