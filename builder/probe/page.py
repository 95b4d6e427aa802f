"""The report as a page for people: the verdict first, then cause, evidence, remedy, and the details last."""

import os
import textwrap

from .causes import CAUSES
from .measured import thing_at_fault

_SYMBOLS = {"passed": "\u2713", "failed": "\u2717", "not_run": "\u2298"}
_ASCII = {"passed": "+", "failed": "x", "not_run": "-"}
_COLOURS = {"works": "32", "unverified": "33", "passed": "32", "failed": "31", "not_run": "2"}
_TITLES = {
    "works": "WORKS",
    "unverified": "UNVERIFIED",
    "broken": "BROKEN (%s is at fault)",
    "unsupported-gpu": "UNSUPPORTED GPU (this image on this card)",
    "host": "HOST (driver, devices or container set-up of this machine)",
    "busy": "BUSY (try again)",
}


def verdict_title(report):
    """``BROKEN (the image is at fault)``, or the virtual environment, and so on."""
    title = _TITLES[report["verdict"]]
    return title % thing_at_fault(report.get("machine") or {}) if "%s" in title else title


class Style(object):
    """Colours and symbols that fit a stream."""

    def __init__(self, stream):
        tty = hasattr(stream, "isatty") and stream.isatty()
        self.colour = tty and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        try:
            "\u2713\u2717\u2298".encode(getattr(stream, "encoding", None) or "ascii")
            self.symbols = _SYMBOLS
        except (UnicodeEncodeError, LookupError):
            self.symbols = _ASCII

    def paint(self, text, kind):
        if not self.colour:
            return text
        return "\033[%sm%s\033[0m" % (_COLOURS.get(kind, "1;31"), text)


def wrapped(text, indent="  ", width=100):
    """A paragraph within so many columns."""
    style = {"initial_indent": indent, "subsequent_indent": indent, "break_long_words": False}
    return textwrap.fill(text, width, break_on_hyphens=False, **style)


def render_page(report, style, changes=None):
    """The whole page as text with a newline at its end."""
    lines = [style.paint(verdict_title(report), report["verdict"]) + ": " + report["summary"]]
    if report["test_double"]:
        lines += ["", "A TEST DOUBLE took part: this is evidence for nothing."]
    if report["cause"]:
        lines += _cause_lines(report)
    if changes is not None:
        lines += ["", "Changed since the older report"]
        lines += ["  %(what)s: %(before)s -> %(now)s" % row for row in changes] or ["  nothing"]
    lines += ["", "Here"] + ["  %-12s%s" % row for row in facts_rows(report)]
    lines += _check_lines(report, style)
    text = "exit code and causes: cudnn-verify --explain CAUSE; cudnn-verify %(version)s" % report["probe"]
    lines += ["", "%s, %.1f s" % (text, report["seconds"])]
    return "\n".join(lines) + "\n"


def _cause_lines(report):
    cause = CAUSES[report["cause"]]
    lines = ["", "Cause: %s" % cause.id, wrapped(cause.title + "."), "", "Evidence"]
    for row in report["proof"][:8]:
        lines.append(wrapped("%s %s: %s" % (row["test"], row["outcome"], row["detail"])))
    lines += ["", "What to do", wrapped(cause.remedy)]
    for command in report.get("commands") or ():
        lines.append("    $ " + command["text"])
        lines += [wrapped(command["note"], " " * 6)] if command["note"] else []
    if report["consequences"]:
        lines += ["", "Consequences of it"]
        lines += [wrapped("%(stage)s %(id)s: %(summary)s" % row) for row in report["consequences"]]
    return lines


def facts_rows(report):
    """Versions and copies on this machine, as (name, text)."""
    rows = []
    machine, driver = report["machine"] or {}, report["driver"] or {}
    if machine:
        rows.append(("Python", "%s, %s" % (machine["python"], machine["distribution"] or machine["kernel"])))
    gpus = ["%(name)s (compute capability %(compute_capability)s)" % row for row in report["gpus"]]
    rows.append(("GPU", ", ".join(gpus) or "none seen"))
    if driver:
        rows.append(("driver", "%s, CUDA up to %s" % (driver.get("version"), driver.get("api"))))
    for copy in report["copies"]:
        rows.append(("cuDNN %s" % copy["major"], "%s (%s)" % (copy["folder"], copy["kind"])))
    return rows + [(row.get("name"), _framework_text(row)) for row in report["frameworks"]]


def _framework_text(row):
    compiled, loaded = row.get("compiled") or {}, row.get("loaded") or {}
    text = "%s, compiled for CUDA %s and cuDNN %s"
    text %= row.get("version"), compiled.get("cuda"), compiled.get("cudnn")
    if loaded.get("cudnn"):
        text += ", loaded cuDNN %s" % loaded["cudnn"]
    if row.get("device"):
        text += ", on %s" % row["device"]
    return text


def _check_lines(report, style):
    lines = ["", "Checks"]
    for check in report["checks"]:
        word = check["outcome"].replace("_", " ")
        symbol = style.paint("%s %-7s" % (style.symbols[check["outcome"]], word), check["outcome"])
        lines.append("  %s %s %-12s %s" % (symbol, check["id"], check["stage"], check["summary"]))
        if check["note"]:
            lines.append(wrapped("note: " + check["note"], indent=" " * 17))
    return lines
