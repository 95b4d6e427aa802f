"""The report as a page for people: the verdict first, then cause, evidence, remedy, and the details last.

For a terminal, and as HTML for a notebook. There styles stand in the elements, because notebooks keep neither
classes nor scripts of an output.
"""

import os
import textwrap
from html import escape

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
_BANNERS = {"works": "#1a7f37", "unverified": "#9a6700", "busy": "#9a6700"}
_MARKS = {"passed": ("\u2713", "#1a7f37"), "failed": ("\u2717", "#cf222e"), "not_run": ("\u2298", "#6e7781")}
_CELL = "padding:2px 10px 2px 0;text-align:left;vertical-align:top;border:none;background:none"


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


def wrapped(text, indent="  "):
    """A paragraph within 100 columns."""
    style = {"initial_indent": indent, "subsequent_indent": indent, "break_long_words": False}
    return textwrap.fill(text, 100, break_on_hyphens=False, **style)


def render_page(report, style):
    """The whole page as text with a newline at its end."""
    lines = [style.paint(verdict_title(report), report["verdict"]) + ": " + report["summary"]]
    if report["test_double"]:
        lines += ["", "A TEST DOUBLE took part: this is evidence for nothing."]
    if report["cause"]:
        lines += _cause_lines(report)
    if "changes" in report:
        lines += ["", "Changed since the older report"]
        lines += ["  %(what)s: %(before)s -> %(now)s" % row for row in report["changes"]] or ["  nothing"]
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


def render_html(report):
    """The page as one ``<div>``. All texts from the machine are escaped."""
    colour = _BANNERS.get(report["verdict"], "#cf222e")
    banner = "background:%s;color:#fff;padding:8px 12px;border-radius:6px" % colour
    parts = [
        '<div style="font-family:sans-serif;max-width:60em">',
        '<div style="%s"><b>%s</b>: %s</div>'
        % (banner, _escaped(verdict_title(report)), _escaped(report["summary"])),
    ]
    if report["test_double"]:
        parts.append("<p><b>A TEST DOUBLE took part: this is evidence for nothing.</b></p>")
    if report["cause"]:
        parts += _html_cause(report)
    parts += _html_facts(report)
    parts += _html_checks(report)
    parts.append(
        "<p><small>cudnn-verify %s, %.1f s</small></p></div>"
        % (_escaped(report["probe"]["version"]), report["seconds"])
    )
    return "\n".join(parts)


def _escaped(value):
    return escape("" if value is None else str(value))


def _html_cause(report):
    cause = CAUSES[report["cause"]]
    rows = ["%s %s: %s" % (row["test"], row["outcome"], row["detail"]) for row in report["proof"]]
    commands = "\n".join(command["text"] for command in report.get("commands") or ())
    listing = "<pre>%s</pre>" % _escaped(commands) if commands else ""
    parts = [
        "<h4>Cause: %s</h4><p>%s.</p>" % (_escaped(cause.id), _escaped(cause.title)),
        "<h4>What to do</h4><p>%s</p>%s" % (_escaped(cause.remedy), listing),
        "<h4>Evidence</h4><ul>%s</ul>" % "".join("<li>%s</li>" % _escaped(row) for row in rows),
    ]
    if report["consequences"]:
        items = "".join("<li>%s</li>" % _escaped(row["summary"]) for row in report["consequences"])
        parts.append("<details><summary>Consequences of it</summary><ul>%s</ul></details>" % items)
    return parts


def _html_facts(report):
    row = '<tr><td style="%s"><b>%s</b></td><td style="%s">%s</td></tr>'
    rows = facts_rows(report)
    cells = "".join(row % (_CELL, _escaped(name), _CELL, _escaped(text)) for name, text in rows)
    return ['<h4>Here</h4><table style="border:none">%s</table>' % cells]


def _html_checks(report):
    count = {"passed": 0, "failed": 0, "not_run": 0}
    cells = []
    for check in report["checks"]:
        count[check["outcome"]] += 1
        symbol, colour = _MARKS[check["outcome"]]
        note = "<br><small>note: %s</small>" % _escaped(check["note"]) if check["note"] else ""
        outcome = "%s %s" % (symbol, check["outcome"].replace("_", " "))
        cells.append('<tr><td style="%s;color:%s;white-space:nowrap">%s</td>' % (_CELL, colour, outcome))
        name = "%s %s" % (_escaped(check["id"]), _escaped(check["stage"]))
        cells.append('<td style="%s;white-space:nowrap">%s</td>' % (_CELL, name))
        cells.append('<td style="%s">%s%s</td></tr>' % (_CELL, _escaped(check["summary"]), note))
    title = "Checks: %(passed)d passed, %(failed)d failed, %(not_run)d not run" % count
    table = '<table style="border:none">%s</table>' % "".join(cells)
    folded = " open" if count["failed"] else ""
    return ["<details%s><summary>%s</summary>%s</details>" % (folded, title, table)]
