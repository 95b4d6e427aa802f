"""The closed list of causes, one for each failed verdict; the ``.ini`` files say what their fields mean."""

from collections import namedtuple

from .tables import beside, read_sections

CAUSETABLE = beside("common/causes.ini")

Cause = namedtuple("Cause", "id side title remedy explanation proof judged texts without follows source")


VERDICT_OF_SIDE = {"image": "broken", "image-on-gpu": "unsupported-gpu", "host": "host", "busy": "busy"}
EXIT_CODES = {"works": 0, "unverified": 10, "broken": 20, "unsupported-gpu": 21, "host": 22, "busy": 23}
PROBE_FAULT = 30
"""The exit code without a verdict."""


def ini_row(kind, section):
    """A section as a named tuple: its name, then its texts, each on one line; ``""`` for a missing one."""
    texts = {key: " ".join(value.split()) for key, value in section.items()}
    return kind(section.name, *(texts.get(field, "") for field in kind._fields[1:]))


_SECTIONS = {section.name: section for section in read_sections(CAUSETABLE)}
CAUSES = {name: ini_row(Cause, section) for name, section in _SECTIONS.items()}


def cause_sections():
    """{cause: {key: text}} of all causes."""
    return {name: dict(section) for name, section in _SECTIONS.items()}


def learn_causes(sections):
    """Take these causes in place of those known: {cause: :class:`Section`}."""
    for known, rows in (
        (_SECTIONS, sections),
        (CAUSES, {k: ini_row(Cause, row) for k, row in sections.items()}),
    ):
        known.clear()
        known.update(rows)


def command_lines(identifier):
    """[(facts, where, text, note)] of a cause's commands."""
    lines = _SECTIONS[identifier].get("commands", "").splitlines()
    rows = [line.split(": ", 2) for line in lines if line.count(": ") > 1]
    return [(facts, where) + _text_and_note(rest) for facts, where, rest in rows]


def _text_and_note(rest):
    text, bar, note = rest.rpartition(" | ")
    return (text, note) if bar else (rest, "")


def word_lines(identifier):
    """[(facts, sentence)] of a cause's remedies in words that are narrower than its general one."""
    lines = _SECTIONS[identifier].get("words", "").splitlines()
    return [line.partition(": ")[::2] for line in lines if line]


def explain(identifier):
    """One cause as text for a terminal."""
    cause = CAUSES[identifier]
    verdict = VERDICT_OF_SIDE[cause.side]
    lines = [cause.id + ": " + cause.title, "", cause.explanation, "", "What to do: " + cause.remedy, ""]
    lines.append("Verdict: %s (exit code %d). Source: %s" % (verdict, EXIT_CODES[verdict], cause.source))
    return "\n".join(lines)
