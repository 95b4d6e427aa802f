"""Causes, signatures and looks as one document: what this release knows, or another one, out of a file.

A file is data. Its commands are shown and never run; its expressions are bounded in number, length and time;
what it says is printed without control characters. ``docs/knowledge.schema.json`` has the form.
"""

import json
import os
import re
import signal
import stat

from ..common.causes import VERDICT_OF_SIDE, cause_sections, learn_causes
from ..common.tables import Section
from .conditions import CONDITIONS
from .signatures import (
    SIGNATURE_KINDS,
    compiled,
    learn_signatures,
    read_counts,
    read_next_checks,
    signature_sections,
)

KNOWLEDGE_FORM = 1
_MOST_BYTES, _MOST_ROWS, _LONGEST_TEXT, _LONGEST_SEARCH = 8 << 20, 4000, 24000, 30.0
_PLAIN_NAME = re.compile(r"[a-z0-9][\w.-]{0,79}$", re.IGNORECASE)
_UNPRINTED = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069]")
_OTHER_GROUP = re.compile(r"(?<!\\)\(\?(?!:|P<\w+>|P=\w+\)|=|!|<=|<!)")
_NEEDED_TEXTS = {
    "causes": ("side", "title", "remedy", "explanation", "source"),
    "signatures": ("text", "example", "kind", "source"),
    "looks": ("causes", "command", "decides"),
}


def knowledge_here(version):
    """This release's knowledge, as a document."""
    rows = [(row.id, row._asdict()) for row in read_next_checks()]
    looks = {name: {key: row[key] for key in row if row[key] and key != "id"} for name, row in rows}
    document = {"schema": KNOWLEDGE_FORM, "kind": "knowledge", "version": version}
    document.update(
        causes=cause_sections(), signatures=signature_sections(), looks=looks, counts=read_counts()
    )
    return document


def take_knowledge(name):
    """Know what a file knows, in place of this release; its version. ValueError says what is wrong."""
    document = _read_knowledge(name)
    version = document.get("version")
    if (
        document.get("kind") != "knowledge"
        or document.get("schema") != KNOWLEDGE_FORM
        or not _is_text(version, 80)
    ):
        raise ValueError("%s is no knowledge of form %d" % (name, KNOWLEDGE_FORM))
    causes, signatures, looks = (
        _knowledge_sections(document, key) for key in ("causes", "signatures", "looks")
    )
    for cause in causes.values():
        if cause["side"] not in VERDICT_OF_SIDE:
            raise ValueError("cause %s: there is no side %r" % (cause.name, cause["side"]))
    for row in signatures.values():
        _check_taken_signature(row, causes)
    counts = _knowledge_counts(document, signatures)
    learn_causes(causes)
    learn_signatures(list(signatures.values()), list(looks.values()), counts)
    return _UNPRINTED.sub("", version)


def _read_knowledge(name):
    about = os.stat(name)
    if not stat.S_ISREG(about.st_mode) or about.st_size > _MOST_BYTES:
        raise ValueError("%s is no file of at most %d MiB" % (name, _MOST_BYTES >> 20))
    with open(name, "rb") as stream:
        data = stream.read(_MOST_BYTES + 1)
    try:
        document = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError("%s is no JSON in UTF-8: %s" % (name, error))
    if not isinstance(document, dict):
        raise ValueError("%s is no object" % name)
    return document


def _is_text(value, longest=_LONGEST_TEXT):
    return isinstance(value, str) and 0 < len(value) <= longest


def _knowledge_sections(document, key):
    rows = document.get(key)
    if not isinstance(rows, dict) or not 0 < len(rows) <= _MOST_ROWS:
        raise ValueError("%s: there have to be 1 to %d" % (key, _MOST_ROWS))
    found = {}
    for name, row in rows.items():
        texts = isinstance(row, dict) and all(isinstance(value, str) for value in row.values())
        if (
            not _PLAIN_NAME.match(name)
            or not texts
            or not all(_is_text(row.get(field)) for field in _NEEDED_TEXTS[key])
        ):
            needed = ", ".join(_NEEDED_TEXTS[key])
            raise ValueError("%s, %.80r: it needs a plain name and the texts %s" % (key, name, needed))
        if max(map(len, row.values())) > _LONGEST_TEXT:
            raise ValueError("%s, %s: a text is longer than %d" % (key, name, _LONGEST_TEXT))
        found[name] = Section(name, {field: _UNPRINTED.sub("", value) for field, value in row.items()})
    return found


def _check_taken_signature(row, causes):
    """Leave out the conditions that this program does not know; ValueError for what it cannot use."""
    if row["kind"] not in SIGNATURE_KINDS or _OTHER_GROUP.search(row["text"]):
        raise ValueError("signature %s: its kind or a group of its expression is not known" % row.name)
    try:
        compiled(row["text"])
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError("signature %s: %s" % (row.name, error))
    named = set(re.findall(r"[\w-]+", row.get("causes", "")))
    for key in ("when", "first", "unless"):
        pairs = [line.partition(":") for line in row.get(key, "").splitlines() if line.strip()]
        named |= {cause.strip() for _, _, cause in pairs}
        row[key] = "\n".join(":".join(pair[::2]) for pair in pairs if pair[0].strip() in CONDITIONS)
    if not set(re.findall(r"[\w.'-]+", row.get("if", ""))) <= set(CONDITIONS):
        row["text"], row["if"] = "(?!)", ""  # it needs a condition that this program does not know
    if not named <= set(causes):
        raise ValueError("signature %s: there is no cause %s" % (row.name, min(named - set(causes))))


def _knowledge_counts(document, signatures):
    counts = document.get("counts", {})
    rows = counts.values() if isinstance(counts, dict) else [None]
    numbers = [number for row in rows for number in (row.values() if isinstance(row, dict) else [None])]
    if not all(type(number) is int and 0 <= number < 1 << 31 for number in numbers):
        raise ValueError("counts: {signature: {cause: number}} is expected")
    return {name: row for name, row in counts.items() if name in signatures}


def within_time(work, argument):
    """``work(argument)``; ValueError if expressions search for too long, where the system can tell."""
    if not hasattr(signal, "setitimer"):
        return work(argument)

    def end(*_):
        raise ValueError("its expressions searched for more than %d s" % _LONGEST_SEARCH)

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, _LONGEST_SEARCH)
    try:
        return work(argument)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
