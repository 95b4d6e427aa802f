"""The closed list of causes: every failed verdict names exactly one of these.

The ``.ini`` files say what their fields mean.
"""

from collections import namedtuple

from .data import beside, read_sections, read_signatures

CAUSETABLE = beside("causes.ini")
CHECKTABLE = beside("checks.ini")
LOOKTABLE = beside("looks.ini")

Cause = namedtuple("Cause", "id side title remedy explanation proof judged source")
CheckRow = namedtuple("CheckRow", "id title needs decides loads causes")
Look = namedtuple("Look", "id causes place command decides")


def _ini_row(kind, section):
    texts = {key: " ".join(value.split()) for key, value in section.items()}
    return kind(section.name, *(texts.get(field, "") for field in kind._fields[1:]))


def commands_by_place(identifier, places):
    """[(where, text, note)] of a cause's commands that need no facts but the place."""
    lines = [line.split(": ", 2) for line in _COMMANDS[identifier].splitlines() if line]
    here = [place for place, _, _ in lines if place in places] + ["any"]
    chosen = [(where, text.partition(" | ")) for place, where, text in lines if place == here[0]]
    return [(where, text, note or None) for where, (text, _, note) in chosen]


def remedy_at(identifier, places):
    """The remedy in words for the place where a text comes from."""
    lines = [line.partition(": ") for line in _WORDS[identifier].splitlines() if line]
    return next((text for place, _, text in lines if place in places), CAUSES[identifier].remedy)


def read_checks():
    """All checks, in the order of the file."""
    return [_ini_row(CheckRow, section) for section in read_sections(CHECKTABLE)]


def read_looks():
    """The commands that tell causes apart, in the order of the file."""
    return [_ini_row(Look, section) for section in read_sections(LOOKTABLE)]


_SECTIONS = read_sections(CAUSETABLE)
_COMMANDS, _WORDS = ({row.name: row.get(key, "") for row in _SECTIONS} for key in ("commands", "words"))
CAUSES = {section.name: _ini_row(Cause, section) for section in _SECTIONS}

VERDICT_OF_SIDE = {"image": "broken", "image-on-gpu": "unsupported-gpu", "host": "host", "busy": "busy"}
EXIT_CODES = {"works": 0, "unverified": 10, "broken": 20, "unsupported-gpu": 21, "host": 22, "busy": 23}
PROBE_FAULT = 30

_SIDES = {
    "image": "The image is at fault",
    "image-on-gpu": "This image on this GPU",
    "host": "The machine: driver, devices, container set-up",
    "busy": "The session: try again",
}


def explain(identifier):
    """One cause as text for a terminal."""
    cause = CAUSES[identifier]
    verdict = VERDICT_OF_SIDE[cause.side]
    lines = [cause.id + ": " + cause.title, "", cause.explanation, "", "What to do: " + cause.remedy, ""]
    lines.append("Verdict: %s (exit code %d). Source: %s" % (verdict, EXIT_CODES[verdict], cause.source))
    return "\n".join(lines)


def _texts(cause):
    """The texts that people meet for a cause, as Markdown: those that prove it, and those that it fits."""
    proving, fitting = [], []
    for signature in read_signatures():
        row = "- `%s` ([%s](%s))" % (signature.example, ", ".join(signature.systems), signature.source)
        if signature.kind == "proves" and signature.causes == [cause]:
            proving.append(row)
        elif cause in signature.causes + [outcome for _, outcome in signature.when]:
            fitting.append(row)
    lines = ["", "Texts that say so:", ""] + proving if proving else []
    return lines + (["", "Texts that it fits, among other causes:", ""] + fitting if fitting else [])


def causes_page():
    """The whole list as Markdown: ``docs/causes.md`` is this text."""
    lines = [
        "# Causes",
        "",
        "Generated from `builder/probe/causes.ini` by `cudnn-verify --explain all`; a test compares.",
        "",
        "A failed verdict names one of these %d causes. The first layer that fails is the cause; what"
        % len(CAUSES),
        "follows from it is listed as a consequence.",
    ]
    rows = read_checks()
    for side, title in _SIDES.items():
        verdict = VERDICT_OF_SIDE[side]
        lines += ["", "## " + title, "", "Verdict `%s`, exit code %d." % (verdict, EXIT_CODES[verdict])]
        for cause in [cause for cause in CAUSES.values() if cause.side == side]:
            lines += ["", "### " + cause.id, "", "**%s.** %s" % (cause.title, cause.explanation), ""]
            checks = [row.id for row in rows if cause.id in row.causes.split()]
            checks += ["whatever loads something"] if cause.judged else []
            lines += ["Known by: %s." % cause.proof, ""]
            lines += ["Named by [checks](checks.md): %s." % ", ".join(checks)]
            lines += ["", "What to do: " + cause.remedy, "", "Source: <%s>" % cause.source]
            lines += _texts(cause.id)
    return "\n".join(lines) + "\n"
