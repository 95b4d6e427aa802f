"""The signatures of errors, and the checks that tell apart causes that fit equally: ``*.ini`` beside this
file.
"""

import functools
import re
from collections import namedtuple

from ..common.causes import ini_row
from ..common.known_bad import KNOWN_BAD, rows_with_words
from ..common.tables import Section, beside, read_patterns, read_sections
from ..common.versions import cudnn_tuple, dotted

# example: a line as programs print it; text: the expression; causes: ids, the most
# frequent first; needs: conditions; when, first, unless: [(condition, cause)]
_Fields = namedtuple(
    "_Fields", "id example text systems kind causes needs when first unless seems wants says source"
)
NextCheck = namedtuple("NextCheck", "id causes place command decides")

_ATOM = re.compile(
    r"\\(?P<escaped>.)|(?P<set>\[\^?\]?(?:\\.|[^\]\\])*\])|(?P<look>\(\?(?:P=|<?[=!]))|"
    r"(?P<group>\((?:\?:|\?P<\w+>)?)|(?P<run>[^\\()\[\]|.^$ *+?{}]{2,}(?![*+?{]))|(?P<plain>.)",
    re.DOTALL,
)
"""A ``run`` is of letters that stand for themselves, none with a quantifier."""
_LONG, _MOST_PLACES = 64 << 10, 400
"""Characters of a text that is searched around an expression's words alone, if they are in so many places."""
_REACH, _LINES = 4000, 800
"""How far around: of an expression for several lines, and of one whose blanks alone may be ends of lines."""
_WIDE = re.compile(r"\\S\](?:[*+]|\{\d*,(?:\d{5,}|[4-9]\d{3})?\})")
_URL = re.compile(r"https://[^\s;,]+")
_OF_METADATA = "https://packaging.python.org/en/latest/specifications/core-metadata/"
"""What stands in for the thread of a row whose source are files of wheels."""
_SENTENCE_PART = re.compile(r"\{\{([a-z-]+)\}\}")
_QUANTIFIER = re.compile(r"(?P<optional>[*?]|\{0?,\d*\}|\{0\})\??|(?:\+|\{[^}]*\})\??")


class Signature(_Fields):
    """One section of ``signatures.ini``."""

    __slots__ = ()

    @property
    def pattern(self):
        """The compiled expression. To compile all of them takes longer than to read a message."""
        return compiled(self.text)

    def may_fit(self, words):
        """Whether the expression is worth a try on the text of a :class:`Words`."""
        return words.may_fit(self.text)


class Words(dict):
    """{word: whether it is in a text}, by one search for each."""

    def __init__(self, text):
        super(Words, self).__init__()
        self._text, self._places = text.lower(), {}

    def __missing__(self, word):
        self[word] = word in self._text
        return self[word]

    def may_fit(self, expression):
        """Whether the text has the words without which an expression fits nothing."""
        rows = required_parts(expression)
        return not rows or any(all(any(self[word] for word in part) for part in row) for row in rows)

    def _starts(self, word):
        """The places of a word in the text: up to one more place than are looked around."""
        if word not in self._places:
            found, at = [], self._text.find(word) if self[word] else -1
            while at >= 0 and len(found) <= _MOST_PLACES:
                found.append(at)
                at = self._text.find(word, at + 1)
            self._places[word] = found
        return self._places[word]

    def _count(self, word):
        return len(self._starts(word))

    def matches(self, pattern, expression, text):
        """The matches of an expression in the text, in their order: of a long one around its words alone."""
        for start, end in self._windows(expression, text):
            yield from pattern.finditer(text, start, end)

    def _windows(self, expression, text):
        whole, rows = [(0, len(text))], required_parts(expression)
        if len(text) < _LONG or len(text) != len(self._text) or not rows:
            return whole
        rarest = {word for row in rows for word in min(row, key=lambda part: sum(map(self._count, part)))}
        if sum(map(self._count, rarest)) > _MOST_PLACES or _WIDE.search(expression):
            return whole
        places = [at for word in rarest for at in self._starts(word)]
        windows, reach = [], _REACH if "\\S]" in expression else _LINES
        for at in sorted(places):
            if windows and at - reach <= windows[-1][1]:
                windows[-1] = (windows[-1][0], at + reach)
            else:
                windows.append((max(at - reach, 0), at + reach))
        return windows


SIGNATURES = beside("read/signatures.ini")
NEXTCHECKS = beside("read/next_checks.ini")
FEWEST = 3
"""Confirmed threads of a signature from which on they decide on the order of its causes."""
COUNTS = beside("read/cause_counts.ini")
SIGNATURE_KINDS = ("proves", "fits", "wrapper", "harmless", "program", "elsewhere", "facts", "apart", "class")
_TAKEN = {}
"""Signatures, looks and counts that were taken in place of this release's."""


@functools.lru_cache(maxsize=1)
def read_next_checks():
    """The commands that tell causes apart, in the order of the file."""
    return [ini_row(NextCheck, section) for section in _TAKEN.get("looks") or read_sections(NEXTCHECKS)]


@functools.lru_cache(maxsize=1)
def read_signatures():
    """Those of releases on record as bad, and then those of the file."""
    rows = [_signature(section) for section in _TAKEN.get("signatures") or signature_sections().values()]
    return [_known_bad_signature(row) for row in rows_with_words()] + rows


def _known_bad_signature(row):
    """A row of ``facts.json``'s ``known_bad`` as a :class:`Signature`."""
    section = {
        "text": row["says"],
        "example": row["example"],
        "in": ", ".join(sorted(row["when"])),
        "kind": "fits",
        "causes": "package-pin-mismatch",
        "if": "known-bad-fits",
        "when": "known-bad-here: package-pin-mismatch",
        "wants": KNOWN_BAD + row["id"],
        "source": (_URL.findall(row["source"]) or [_OF_METADATA])[0],
    }
    return _signature(Section("known-bad-" + row["id"], section))


def signature_sections():
    """{signature: :class:`Section`} of this release, ``{{parts}}`` written out."""
    return {
        section.name: Section(section.name, dict(section, text=_written_out(section["text"])))
        for section in read_sections(SIGNATURES)
    }


def _written_out(text):
    """An expression with the parts of ``[grammar]`` in the places of their ``{{names}}``."""
    parts = read_patterns()["grammar"]
    return _SENTENCE_PART.sub(lambda found: "(?:%s)" % parts[found.group(1)], text)


def learn_signatures(signatures, looks, counts):
    """Take these in place of those known: lists of :class:`Section`, {signature: {cause: number}}."""
    _TAKEN.update(signatures=signatures, looks=looks, counts=counts)
    for read in (read_signatures, read_next_checks, read_counts):
        read.cache_clear()


@functools.lru_cache(maxsize=1)
def read_counts():
    """{signature: {cause: confirmed threads with its line}}, for signatures of several causes."""
    if "counts" in _TAKEN:
        return _TAKEN["counts"]
    rows = [(name, text.split()) for name, text in read_sections(COUNTS)[0].items()]
    pairs = {name: [pair.partition(":") for pair in words] for name, words in rows}
    return {name: {cause: int(number) for cause, _, number in row} for name, row in pairs.items()}


def by_frequency(signature):
    """The causes of a signature, the most frequent first; in its own order if too few threads tell."""
    counts = read_counts().get(signature.id, {})
    known = counts if sum(counts.values()) >= FEWEST else {}
    return sorted(signature.causes, key=lambda cause: -known.get(cause, 0))


def _signature(section):
    def pairs(key):
        lines = [line.partition(":") for line in section.get(key, "").splitlines() if line.strip()]
        return [(condition.strip(), cause.strip()) for condition, _, cause in lines]

    return Signature(
        id=section.name,
        systems=_listed(section.get("in", "")),
        causes=_listed(section.get("causes", "")),
        needs=_listed(section.get("if", "")),
        seems=_listed(section.get("seems", "")),
        when=pairs("when"),
        first=pairs("first"),
        unless=pairs("unless"),
        **{key: section.get(key) for key in ("example", "text", "kind", "wants", "says", "source")},
    )


@functools.lru_cache(maxsize=None)
def compiled(text):
    return re.compile(text.replace(" ", r"\s+"), re.IGNORECASE | re.MULTILINE)


@functools.lru_cache(maxsize=None)
def required_parts(text):
    """Of each alternative of an expression the parts that it needs, of each part the words of which one is in
    whatever fits, in lower case; () if an alternative needs none of three letters.
    """
    text = re.sub(r"\(\?[aimsux]+:", "(?:", re.sub(r"\(\?[aimsux]+\)", "", text))
    rows = [[part for part in row if min(map(len, part)) >= 3] for row in _needed(text, 0)[0]]
    return tuple(rows) if all(rows) else ()


def _needed(text, at):
    """(the parts that each alternative needs, as lists of words; the end) of a group from its inside on."""
    alternatives, found, word = [], [], ""
    while at < len(text):
        token = _ATOM.match(text, at)
        kind, value, at = token.lastgroup, token.group(token.lastgroup), token.end()
        if kind == "run":
            word += value.lower()
            continue
        if kind == "plain" and value in "|)":
            alternatives.append(found + [[word]] * bool(word))
            found, word = [], ""
            if value == ")":
                return alternatives, at
            continue
        inner = None
        if kind in ("look", "group"):
            inner, at = _needed(text, at)
            inner = _best(inner)
        literal = value.lower() if kind in ("plain", "escaped") and _is_literal(kind, value) else ""
        quantifier = _QUANTIFIER.match(text, at)
        at = quantifier.end() if quantifier else at
        optional = bool(quantifier and quantifier.group("optional"))
        word += "" if optional else literal
        if literal and not quantifier:
            continue
        found += [[word]] * bool(word) + [inner] * bool(inner and kind == "group" and not optional)
        word = ""
    return alternatives + [found + [[word]] * bool(word)], at


def _is_literal(kind, value):
    return not value.isalnum() if kind == "escaped" else value not in ".^$ "


def _best(alternatives):
    """The list of each alternative whose shortest word is the longest, all together; None if one has none."""
    best = [max(lists, key=lambda words: min(map(len, words))) if lists else None for lists in alternatives]
    return None if None in best else [word for words in best for word in words]


def _listed(text):
    return [part.strip() for part in text.split(",") if part.strip()]


def match_detail(match, line):
    """The groups of a match, with the library, its major version and the forms of versions that they tell."""
    detail = dict(match.groupdict())
    for key in ("loaded", "compiled", "minimum"):
        if detail.get(key):
            detail[key] = _cudnn_text(detail[key])
    if detail.get("found"):
        detail["found_cuda"] = "%d.%d" % (int(detail["found"]) // 1000, int(detail["found"]) % 1000 // 10)
    matched = " ".join(match.group(0).split())  # a terminal wraps long lines
    text = matched + line.text
    library = re.search(r"lib[\w+]+\.so[\w.]*(?=: cannot|'; dlerror|' | is not found)", text)
    windows = re.search(r"\b(cublas(?:Lt)?|cudart|cufft|cusparse|cusolver)64_(\d\d)\b", text)
    named = "lib%s.so.%s" % windows.groups() if windows else None
    asked = next((detail[key] for key in ("library", "soname", "file") if detail.get(key)), None)
    detail["library"] = library.group(0) if library else named or asked
    found = re.match(r"libcudnn\w*\.so\.(\d+)", detail["library"] or "")
    if not found and "libcudnn_" in match.re.pattern:
        found = re.search(r"\.so\.(\d)", match.group(0))
    detail["major"] = detail.get("major") or (found.group(1) if found else None)
    return dict(detail, line=line.text, matched=matched)


def _cudnn_text(text):
    """``8.0.5`` out of a framework's form of it: 8.0.5, 7301, 90100, or (8, 7, 0)."""
    parts = [part for part in re.split(r"[,. ]+", text) if part]
    return dotted(cudnn_tuple(parts[0])) if len(parts) == 1 and len(parts[0]) >= 4 else ".".join(parts)
