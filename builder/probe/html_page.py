"""The report as a piece of HTML for a notebook: the text's page, with long parts folded.

Styles stand in the elements, because notebooks keep neither classes nor scripts of an output.
"""

from html import escape

from .causes import CAUSES
from .page import facts_rows, verdict_title

_BANNERS = {"works": "#1a7f37", "unverified": "#9a6700", "busy": "#9a6700"}
_MARKS = {"passed": ("\u2713", "#1a7f37"), "failed": ("\u2717", "#cf222e"), "not_run": ("\u2298", "#6e7781")}
_CELL = "padding:2px 10px 2px 0;text-align:left;vertical-align:top;border:none;background:none"


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
    parts = [
        "<h4>Cause: %s</h4><p>%s.</p>" % (_escaped(cause.id), _escaped(cause.title)),
        "<h4>What to do</h4><p>%s</p>%s" % (_escaped(cause.remedy), _html_commands(report)),
        "<h4>Evidence</h4><ul>%s</ul>" % "".join("<li>%s</li>" % _escaped(row) for row in rows),
    ]
    if report["consequences"]:
        items = "".join("<li>%s</li>" % _escaped(row["summary"]) for row in report["consequences"])
        parts.append("<details><summary>Consequences of it</summary><ul>%s</ul></details>" % items)
    return parts


def _html_commands(report):
    rows = [command["text"] for command in report.get("commands") or ()]
    return "<pre>%s</pre>" % _escaped("\n".join(rows)) if rows else ""


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
