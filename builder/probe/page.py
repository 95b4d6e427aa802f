"""The pages for people: a report, the verdict first, then cause, evidence, remedy, and the details last; and
the result of reading texts.

A report is shown on a terminal, and as HTML in a notebook. There styles stand in the elements, because
notebooks keep neither classes nor scripts of an output.
"""

import os
import textwrap
from html import escape

from .causes import CAUSES
from .measured import thing_at_fault

# (title, colour on a terminal, colour in HTML)
_VERDICTS = {
    "works": ("WORKS", "32", "#1a7f37"),
    "unverified": ("UNVERIFIED", "33", "#9a6700"),
    "broken": ("BROKEN (%s is at fault)", "1;31", "#cf222e"),
    "unsupported-gpu": ("UNSUPPORTED GPU (this image on this card)", "1;31", "#cf222e"),
    "host": ("HOST (driver, devices or container set-up of this machine)", "1;31", "#cf222e"),
    "busy": ("BUSY (try again)", "1;31", "#9a6700"),
}
# (symbol, the same in ASCII, colour on a terminal, colour in HTML)
_OUTCOMES = {
    "passed": ("\u2713", "+", "32", "#1a7f37"),
    "failed": ("\u2717", "x", "31", "#cf222e"),
    "not_run": ("\u2298", "-", "2", "#6e7781"),
}
_CELL = "padding:2px 10px 2px 0;text-align:left;vertical-align:top;border:none;background:none"


def verdict_title(report):
    """``BROKEN (the image is at fault)``, or the virtual environment, and so on."""
    title = _VERDICTS[report["verdict"]][0]
    return title % thing_at_fault(report.get("machine") or {}) if "%s" in title else title


class Style(object):
    """Colours and symbols that fit a stream."""

    def __init__(self, stream):
        tty = hasattr(stream, "isatty") and stream.isatty()
        self.colour = tty and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        self.ascii = False
        try:
            "\u2713\u2717\u2298".encode(getattr(stream, "encoding", None) or "ascii")
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
    title = style.paint(verdict_title(report), _VERDICTS[report["verdict"]][1])
    lines = ["%s: %s" % (title, report["summary"])]
    if report["test_double"]:
        lines += ["", "A TEST DOUBLE took part: this is evidence for nothing."]
    if report["cause"]:
        lines += _cause_lines(report)
    if "changes" in report:
        lines += ["", "Changed since the older report"]
        lines += ["  %(what)s: %(before)s -> %(now)s" % row for row in report["changes"]] or ["  nothing"]
    lines += ["", "Here"] + ["  %-12s%s" % row for row in _facts(report)] + ["", "Checks"]
    for check in report["checks"]:
        symbol, plain, colour, _ = _OUTCOMES[check["outcome"]]
        word = "%s %-7s" % (plain if style.ascii else symbol, check["outcome"].replace("_", " "))
        row = dict(check, symbol=style.paint(word, colour))
        lines.append("  %(symbol)s %(id)s %(stage)-12s %(summary)s" % row)
        lines += [wrapped("note: " + check["note"], " " * 17)] if check["note"] else []
    text = "exit code and causes: cudnn-verify --explain CAUSE; cudnn-verify %(version)s" % report["probe"]
    return "\n".join(lines + ["", "%s, %.1f s" % (text, report["seconds"])]) + "\n"


def _cause_lines(report):
    cause = CAUSES[report["cause"]]
    lines = ["", "Cause: %s" % cause.id, wrapped(cause.title + "."), "", "Evidence"]
    lines += [wrapped("%(test)s %(outcome)s: %(detail)s" % row) for row in report["proof"][:8]]
    lines += ["", "What to do", wrapped(cause.remedy)]
    for command in report.get("commands") or ():
        lines.append("    $ " + command["text"])
        lines += [wrapped(command["note"], " " * 6)] if command["note"] else []
    if report["consequences"]:
        lines += ["", "Consequences of it"]
        lines += [wrapped("%(stage)s %(id)s: %(summary)s" % row) for row in report["consequences"]]
    return lines


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


def _html(template, **values):
    """A text with values in it, escaped: they are from the machine."""
    return template % {key: escape("" if value is None else str(value)) for key, value in values.items()}


def render_html(report):
    """The page as one ``<div>``."""
    colour = _VERDICTS[report["verdict"]][2]
    banner = (
        '<div style="background:%(colour)s;color:#fff;padding:8px 12px;border-radius:6px"><b>%(title)s</b>'
    )
    banner = _html(banner + ": %(summary)s</div>", colour=colour, title=verdict_title(report), **report)
    parts = ['<div style="font-family:sans-serif;max-width:60em">', banner]
    if report["test_double"]:
        parts.append("<p><b>A TEST DOUBLE took part: this is evidence for nothing.</b></p>")
    if report["cause"]:
        parts += _html_cause(report, CAUSES[report["cause"]])
    row = '<tr><td style="%(cell)s"><b>%(name)s</b></td><td style="%(cell)s">%(text)s</td></tr>'
    cells = "".join(_html(row, cell=_CELL, name=name, text=text) for name, text in _facts(report))
    parts += ['<h4>Here</h4><table style="border:none">%s</table>' % cells, _html_checks(report)]
    end = "<p><small>cudnn-verify %(version)s, %(time)s s</small></p></div>"
    return "\n".join(parts + [_html(end, time="%.1f" % report["seconds"], **report["probe"])])


def _html_cause(report, cause):
    commands = "\n".join(command["text"] for command in report.get("commands") or ())
    listing = _html("<pre>%(commands)s</pre>", commands=commands) if commands else ""
    rows = [_html("<li>%(test)s %(outcome)s: %(detail)s</li>", **row) for row in report["proof"]]
    parts = [
        _html("<h4>Cause: %(id)s</h4><p>%(title)s.</p>", **cause._asdict()),
        _html("<h4>What to do</h4><p>%(remedy)s</p>", **cause._asdict()) + listing,
        "<h4>Evidence</h4><ul>%s</ul>" % "".join(rows),
    ]
    if report["consequences"]:
        items = "".join(_html("<li>%(summary)s</li>", **row) for row in report["consequences"])
        parts.append("<details><summary>Consequences of it</summary><ul>%s</ul></details>" % items)
    return parts


def _html_checks(report):
    row = '<tr><td style="%(cell)s;color:%(colour)s;white-space:nowrap">%(symbol)s %(word)s</td>'
    row += '<td style="%(cell)s;white-space:nowrap">%(id)s %(stage)s</td><td style="%(cell)s">%(summary)s'
    count, cells = dict.fromkeys(_OUTCOMES, 0), []
    for check in report["checks"]:
        count[check["outcome"]] += 1
        symbol, _, _, colour = _OUTCOMES[check["outcome"]]
        word = check["outcome"].replace("_", " ")
        cells.append(_html(row, cell=_CELL, colour=colour, symbol=symbol, word=word, **check))
        cells.append(_html("<br><small>note: %(note)s</small>", **check) if check["note"] else "")
        cells.append("</td></tr>")
    title = "Checks: %(passed)d passed, %(failed)d failed, %(not_run)d not run" % count
    table = '<table style="border:none">%s</table>' % "".join(cells)
    folded = " open" if count["failed"] else ""
    return "<details%s><summary>%s</summary>%s</details>" % (folded, title, table)


def render_diagnosis(document):
    """The page for what texts told; every fact in it is in the document, too."""
    causes, equal = document["causes"], document["equal"]
    if document["program"]:
        lines = ["No cause in the environment: the program itself is at fault."]
        lines += _proof(dict(document["program"], because=[]))
    elif document["cause"] is None:
        lines = ["No cause: nothing in this text is a known signature of one."]
    elif equal:
        lines = ["%d causes fit equally: %s" % (len(equal), ", ".join(equal))]
    else:
        lines = ["%(cause)s: %(title)s" % causes[0]]
    proofs = [_proof(row) for row in causes]
    common = proofs[0] if len(proofs) > 1 and proofs.count(proofs[0]) == len(proofs) else []
    lines += common
    for row, proof in zip(causes, proofs):
        lines += [""] + _one_cause(row, bool(equal), [] if common else proof)
    if document["look"]:
        lines += ["", "One look decides:" if causes else "What to do now:"]
        lines += ["  $ " + document["look"]["command"], wrapped(document["look"]["decides"], "    ")]
    if document["harmless"]:
        lines += ["", "Lines that mean nothing:"]
    for row in document["harmless"]:
        lines += ["  %(source)s, line %(line)s: %(text).80s" % row["line"], wrapped(row["says"], "    ")]
    return "\n".join(lines + [""] + _what_was_read(document["read"])) + "\n"


def _proof(row):
    """The line that proves a cause, and the meaning of it."""
    lines = ["  %(source)s, line %(line)s:" % row["line"], "    | %(text).240s" % row["line"]]
    return lines + [wrapped(text) for text in [row["says"]] + row["because"] if text]


def _one_cause(row, equal, proof):
    lines = ["%(cause)s (%(how)s)" % row, wrapped(row["title"])] if equal or row["rank"] > 0 else []
    lines += proof
    if row["commands"]:
        lines.append("  What to run%s:" % (", if this is it" if equal else ""))
    for command in row["commands"]:
        lines.append("    [%(where)s] %(text)s" % command)
        lines += [wrapped(command["note"], "        ")] if command["note"] else []
    if all(command["where"] == "rtbuild" for command in row["commands"]):
        lines.append(wrapped(("Or: " if row["commands"] else "What to do: ") + row["remedy"]))
    if row["restart"]:
        lines.append("  Then restart the runtime: what is loaded stays loaded.")
    return lines + ["  Source: " + row["source"]]


def _what_was_read(read):
    known = [("card", ", ".join(read["cards"][:3])), ("compute capability", read["capability"])]
    known += [("driver", read["driver"]), ("driver's CUDA", read["driver_cuda"]), ("Python", read["python"])]
    known += [("cuDNN", ", ".join(read["cudnn"][:4])), ("where", ", ".join(read["places"]))]
    names = ("torch", "tensorflow", "jax", "jaxlib", "onnxruntime", "ctranslate2", "cupy")
    known += [(name, read["packages"].get(name)) for name in names]
    lines = ["Read out of %s:" % ", ".join(read["sources"][:6])]
    lines += ["  %-18s %s" % (name, value) for name, value in known if value]
    if len(lines) == 1:
        lines.append("  neither card, driver nor versions are named in it")
    lines += [wrapped("note: " + note) for note in read["notes"]]
    lines.append("Nothing was sent anywhere, and nothing out of the text was run.")
    return lines
