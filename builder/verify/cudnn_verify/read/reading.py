"""Texts that people have: logs, notebooks, lists of packages. Lines that may matter are kept.

A text is evidence and nothing else: no part of it is run, sent anywhere or followed as an instruction.
Memory and time are bounded: lines without one of the words below are passed over as they stream by, those of
a failure alone count after the first four megabytes, a line that recurs is kept a few times only, and of a
file that takes too long the end is read.
"""

import io
import json
import os
import re
import stat
import sys
import time
import zlib
from collections import deque, namedtuple
from functools import lru_cache
from html import unescape

from ..common.tables import read_patterns
from .signatures import read_signatures

# source: the name of the text, or "NAME, cell 3" of a notebook; number: of the line in it
Line = namedtuple("Line", "source number text")

_CHUNK = 4 << 20
_LONGEST = 2000
_MOST_LINES = 2000
"""Lines kept of a text from its start on, and as many of its end."""
_SECONDS = 30.0
_DISTINCT = 1000
"""Lines that differ by more than numbers; further ones have to differ by a word that a signature knows."""
_WORD = re.compile(r"[a-z]{3,}")
_NOTEBOOK = 256 << 20
_PACKED, _UNPACKED = 32 << 20, 64 << 20
"""Bytes of a text in gzip that are read, and that are unpacked: a small file can hold any number of zeros."""
_NO_TEXT = (
    ("a picture: what it shows has to be typed or copied", rb"(?s)\x89PNG|\xff\xd8\xff|GIF8|RIFF....WEBP"),
    ("a PDF: what it shows has to be copied out of it", b"%PDF-"),
    (
        "an archive: its files have to be unpacked first",
        rb"PK\x03\x04|7z\xbc\xaf|\xfd7zXZ|BZh[1-9]|\x28\xb5\x2f\xfd",
    ),
)
"""Files without a line of text, by their first bytes, as file(1) tells them."""
_WRITTEN = (
    (
        "a Dockerfile",
        "-r",
        r"(?i)(.*\.)?(Dockerfile|Containerfile)(\..*)?",
        rb"FROM\s+(--\S+\s+)*\S+\s*(?i:AS\s+\S+\s*)?$",
    ),
    ("a lock of uv's", None, r"uv\.lock", rb"version = \d+\s*$(?s:.{0,4000}?)^\[\[package\]\]\s*$"),
    (
        "a project's own description",
        "--pyproject",
        r"pyproject\.toml",
        rb"\[(project|build-system|tool\.poetry)\]\s*$",
    ),
    ("an environment of conda's", "--conda", r"environment[\w.-]*\.ya?ml", rb"dependencies:\s*$"),
    ("a list of requirements", "-r", r"(.*[-_.])?requirements?([-_.].*)?\.(txt|in)", None),
)
"""Files that are written before anything runs: what each is, the option by which ``rtbuild resolve`` reads
it, its name, and a line near its start.
"""
_LOGGED = re.compile(rb"Error\b|ERROR|Traceback")
_FOLLOWING = 2
"""Lines kept after one with a word: a terminal wraps long messages."""
_ANSI = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]{0,200}(\x07|\x1b\\)|[@-Z\\-_])")
_LISTED = re.compile(r"^\[(?:pip3?|conda)\] ")
"""Before each package in the answer of PyTorch's collect_env."""
_PREFIX = re.compile(
    r"^(?:(?:[>\u2502]\s)+|#\d+ \d+\.\d+ |\d{4}-\d\d-\d\dT[\d:.]+Z (?:std(?:err|out) [FP] )?|"
    r"[A-Za-z][\w.-]*-\d+ +\| |\([\w ]{0,60}\bpid=\d+[^)\n]{0,80}\) |\[rank\d+\]: ?)"
)
"""What quotations, docker's build, a cluster's log, docker compose, vLLM, Ray, torchrun put before lines."""
_TYPESET = str.maketrans("\u2018\u2019\u201a\u201c\u201d\u201e", "'''\"\"\"")
"""Quotation marks as word processors and forums set them, and as programs print them."""
_ENTITY = re.compile(r"&(?:lt|gt|amp|quot|apos|nbsp|#0?3[49]|#x2[27]);")
_PROPERTY = re.compile(r"<property\s+name=\"([^\"<]{1,80})\"\s+value=\"([^\"<]{0,200})\"\s*/?>")
_SKIPPED = re.compile(r"<skipped\b[^<>]*>")
"""In a report of JUnit's form: a fact of the run, and a test that did not run (docs/junit.xsd)."""
_BEYOND_ASCII = re.compile("[^\x00-~]")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069]")
_PREFIXES = r"hf_|gh[pousr]_|github_pat_|sk-|xox[abpr]-|AKIA|ya29\.|glpat-|eyJ[\w-]+\.[\w-]+\."
_SECRET = re.compile(
    r"(?i:(?P<key>[\w-]*(?:token|secret|passw(?:or)?d|api[_-]?key|access[_-]?key|credential|private[_-]?key)"
    r"[\w-]*[\"']?\s*[:=](?!=\s*\d)(?!\s*v?\d+(?:\.\d+)+(?![\w-]))\s*[\"']?|authorization:\s*\w+\s+|bearer\s+))(?P<value>[^\s\"',;]{4,})"
    r"|\b(?P<plain>(?:%s)[\w.+/=-]{8,})|(?P<scheme>\b[a-z][a-z0-9+.-]*://)(?P<user>[^\s/@:]+:[^\s/@]+)@"
    % _PREFIXES
)
_INSTALL = re.compile(
    r"\s*(?:[!%]|\$ |RUN )?\s*(?:sudo\s+)?(?:python[\d.]* -m )?(?:uv )?(?:pip3?|conda|mamba|apt(?:-get)?)\s"
)

# A point of a list starts a line of its own.
_LIST_ITEM = re.compile(r"\s*(?:[-*+]|\d{1,2}\.) ")
_ERROR_LINE = re.compile(r"\w*(?:Error|Exception|Warning): ")


class TextReading(object):
    """The lines kept of some texts, and notes on how they were read."""

    def __init__(self):
        self.lines, self.notes, self.reports, self.sources = [], [], [], []
        texts = {key: text.encode("utf-8") for key, text in read_patterns()["reading"].items()}
        self._words, self._failures = re.compile(texts["words"]), texts["failures"].split(b"|")
        self._vocabulary = None
        self._room, self._last = _MOST_LINES, deque(maxlen=_MOST_LINES)
        self.empty = True
        """Whether no text had a line: all are blank, or files that hold no text."""
        self.places = set()
        """``notebook`` and ``colab``, if a notebook's own metadata says so."""
        self.written = []
        """[(what, option of ``rtbuild resolve``, path)] of files in which no program's words stand."""

    def add(self, name, stream, size=None, path=None):
        """Read one text. ``size`` in bytes, None if unknown; ``path`` of a file, as it was named."""
        head = stream.read(_CHUNK)
        self.sources.append(name)
        if head[:2] == b"\x1f\x8b":
            data = self._unpacked(name, head + stream.read(_PACKED))
            stream, size = io.BytesIO(data), len(data)
            head = stream.read(_CHUNK)
        kind = next((kind for kind, start in _NO_TEXT if re.match(start, head)), None)
        if kind or not head.strip():
            self.notes.append("%s is %s" % (name, kind or "empty"))
            return
        self.empty = False
        if b"\0" in head[:4096] and not head.startswith((b"\xff\xfe", b"\xfe\xff")):
            self.notes.append("%s is a binary file: only the text in it was looked at" % name)
        if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
            head = (head + stream.read(_NOTEBOOK)).decode("utf-16", "replace").encode("utf-8")
        start = head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
        if start == b"{" and (size is None or size <= _NOTEBOOK):
            data = head + stream.read(_NOTEBOOK)
            document = _parsed(data)
            if self._document(name, document):
                if "notebook" in self.places and path is not None:
                    self.written.append(("a notebook", "--notebook", path))
                return
            # half a notebook, or a record a line: the strings, without the escapes of JSON
            if not _has_records(data):
                kind = "JSON, and no notebook or report of a known form"
                if document is None:
                    kind = "JSON that ends early, is nested too deep, or has text after a brace"
                self.notes.append("%s is %s: read as text" % (name, kind))
            for old, new in ((b"\\n", b"\n"), (b'\\"', b'"'), (b"\\u001b", b"\x1b"), (b"\\\\", b"\\")):
                data = data.replace(old, new)
            self._lines(name, [data])
        elif self._is_lock(path, head):
            self.notes.append("%s is a lock: it tells what may be installed, on each kind of machine" % name)
        else:
            self._lines(name, self._pieces(name, head, stream, size), every=len(head) <= 256 << 10)

    def _is_lock(self, path, head):
        """Whether a file is a lock, in which builds for several machines stand side by side; notes down what
        any file is that is written before a program runs.
        """
        name = os.path.basename(path) if path is not None else ""
        start = head[:16384]
        for what, option, names, line in _WRITTEN if path is not None else ():
            by_text = line is not None and re.search(rb"(?m)^" + line, start) and not _LOGGED.search(start)
            if re.match(names + "$", name) or by_text:
                self.written.append((what, option, path))
                return option is None
        return False

    def _unpacked(self, name, packed):
        """The text of a gzip file, of several members, too, as far as it goes (RFC 1952)."""
        parts, room = [], _UNPACKED
        try:
            while packed[:2] == b"\x1f\x8b" and room > 0:
                member = zlib.decompressobj(16 + zlib.MAX_WBITS)
                parts.append(member.decompress(packed, room))
                room -= len(parts[-1])
                packed = member.unused_data
        except zlib.error as error:
            self.notes.append("%s cannot be unpacked: %s" % (name, error))
        else:
            if room <= 0 or not member.eof:
                told = (name, _UNPACKED >> 20)
                self.notes.append("%s ends early, or is longer than the %d MiB that were unpacked" % told)
        return b"".join(parts)

    def _pieces(self, name, piece, stream, size):
        """A stream from its first piece on; its end alone if all of it takes too long."""
        deadline = time.time() + _SECONDS
        while piece:
            yield piece
            if time.time() > deadline:
                self.notes.append("%s is too long to read all of it in %d s" % (name, _SECONDS))
                if size is None or stream.tell() >= size or not stream.seekable():
                    return  # nothing says where a device, a pipe or a file that grows would end
                stream.seek(max(stream.tell(), size - 4 * _CHUNK))
                yield stream.read(4 * _CHUNK)
                return
            piece = stream.read(_CHUNK)

    def _document(self, name, document):
        """True if a JSON document is understood; None is no document."""
        cells = document.get("cells") if isinstance(document, dict) else None
        if isinstance(cells, list):
            metadata = document.get("metadata")
            on_colab = isinstance(metadata, dict) and "colab" in metadata
            self.places |= {"notebook", "colab"} if on_colab else {"notebook"}
            for number, cell in enumerate(cells, 1):
                if isinstance(cell, dict):
                    self._lines("%s, cell %d" % (name, number), [_cell_text(cell)])
            return True
        if not isinstance(document, dict) or not {"verdict", "checks"} <= set(document):
            return False
        self.reports.append(document)
        return True

    def _known_words(self, text):
        """A line as signatures see it: in a log of nothing but failures most lines differ by names."""
        if self._vocabulary is None:
            said = " ".join(row.text for row in read_signatures()) + " ".join(
                pattern for section in read_patterns().values() for pattern in section.values()
            )
            self._vocabulary = set(_WORD.findall(said.lower()))
        return tuple(filter(self._vocabulary.__contains__, _WORD.findall(text[:400].lower())))

    def _lines(self, name, chunks, every=True):
        """Keep lines of a text: all of them, or those with a word and the lines after them."""
        seen = {}
        self._room = len(self.lines) + _MOST_LINES
        number, following, rest = 0, _MOST_LINES if every else 0, b""
        for index, chunk in enumerate(chunks):
            data = rest + chunk
            end = data.rfind(b"\n") + 1
            rest = data[end:][-_CHUNK:]
            if index == 0:
                number, following = self._keep(name, data[:end], number, following, seen)
            else:
                number = self._keep_failures(name, data[:end], number, seen)
        self._keep(name, rest, number, following, seen)
        self.lines += self._last
        self._last.clear()

    def _keep_failures(self, name, data, number, seen):
        """Add the lines that tell of a failure, with those that follow; the number of the last line."""
        starts = set()
        for word in self._failures:
            position = data.find(word)
            while position >= 0:
                starts.add(data.rfind(b"\n", 0, position) + 1)
                position = data.find(word, data.find(b"\n", position))  # the data ends with a line
        done = 0
        for start in sorted(starts):
            if start < done:
                continue
            number += data.count(b"\n", done, start)
            done = start
            for _ in range(_FOLLOWING + 1):
                done = data.find(b"\n", done) + 1 or len(data)
            number, _ = self._keep(name, data[start:done], number, _FOLLOWING + 1, seen)
        return number + data.count(b"\n", done)

    def _keep(self, name, data, number, following, seen):
        """Add the lines of some bytes that may matter; (number of the last line, lines still to follow)."""
        if not following and not self._words.search(data):
            return number + data.count(b"\n"), 0
        for raw in data.split(b"\n"):
            number += 1
            # a progress bar draws over itself: its longest state
            raw = max(raw.split(b"\r"), key=len) if b"\r" in raw[:-1] else raw
            if self._words.search(raw, 0, 4 * _LONGEST):
                following = max(following, _FOLLOWING + 1)
            if not following:
                continue
            following -= 1
            text = clean(raw[: 4 * _LONGEST].decode("utf-8", "replace"))[:_LONGEST]
            key = re.sub(r"\d+", "0", text[:200]) if len(seen) < _DISTINCT else self._known_words(text)
            if len(seen) > 5 * _MOST_LINES:
                seen.clear()  # what recurs after that many others may be kept again
            seen[key] = seen.get(key, 0) + 1
            if seen[key] <= 3 and text.strip():
                kept = self.lines if len(self.lines) < self._room else self._last
                kept.append(Line(name, number, text))
        return number - 1, following


def _cell_text(cell):
    """A notebook's cell as text: of its code the lines that install something, and all of its outputs."""
    parts = []
    if cell.get("cell_type") == "code":
        parts += [line for line in _joined(cell.get("source")).splitlines() if _INSTALL.match(line)]
    outputs = cell.get("outputs")
    for output in outputs if isinstance(outputs, list) else ():
        if isinstance(output, dict):
            data = output.get("data") if isinstance(output.get("data"), dict) else {}
            parts += [_joined(output.get("text")), _joined(data.get("text/plain"))]
            parts += [_joined(output.get("traceback"), "\n"), _joined(output.get("evalue"))]
    return "\n".join(parts).encode("utf-8", "replace")


def _joined(value, between=""):
    if isinstance(value, list):
        return between.join(part for part in value if isinstance(part, str))
    return value if isinstance(value, str) else ""


def clean(text):
    """A line without colours, control characters, characters that change the direction of writing, what
    stands before each line of a quotation or a container's log, and the tests that a report says were
    skipped; the loader's own messages in English.
    """
    if not text.isprintable():  # none of these is
        text = _CONTROL.sub("", _ANSI.sub("", text))
    if "<" in text:
        text = _SKIPPED.sub("", _PROPERTY.sub(r" \1: \2; ", text))
    if "&" in text:
        text = _ENTITY.sub(lambda found: unescape(found.group(0)), text)
    text = _LISTED.sub("", _PREFIX.sub("", text)).rstrip()
    if _BEYOND_ASCII.search(text):
        text = text.translate(_TYPESET)
        for here, abroad in read_patterns()["abroad"].items():
            text = re.sub(abroad, here, text)
    return text


TYPED_WORD = re.compile(r"[A-Za-z][A-Za-z0-9]{3,}")
_ALIKE = {ord("0"): "o", ord("1"): "l"}
"""Letters by the digits of their shape."""


def respelt(lines):
    """Lines that somebody typed, as ({(source, number): the line}, the lines with each word as a known
    message has it that differs by one letter, the keys of those that a hyphen divided into two).
    """
    whole, joined = [], set()
    for line in lines:
        if whole and re.search("[a-z]-$", whole[-1].text) and re.match("[a-z]", line.text):
            whole[-1] = whole[-1]._replace(text=whole[-1].text[:-1] + line.text)
            joined.add(whole[-1][:2])
        else:
            whole.append(line)
    spelt = [line._replace(text=TYPED_WORD.sub(_spelt, line.text)) for line in whole]
    return {line[:2]: line for line in whole}, spelt, joined


@lru_cache(maxsize=1)
def _spellings():
    """{a word of known messages, or that word without one of its letters: the word}."""
    words = {word.lower() for row in read_signatures() for word in TYPED_WORD.findall(row.example or "")}
    shorter = {word[:at] + word[at + 1 :]: word for word in sorted(words) for at in range(len(word))}
    return dict(shorter, **{word: word for word in words})


def _spelt(found):
    """The word of known messages that a typed one is, or that differs from it by a letter; else the same."""
    typed, known = found.group(0).lower(), _spellings()
    plain = typed.translate(_ALIKE)
    near = [typed, plain] + [plain[:at] + plain[at + 1 :] for at in range(len(plain))]
    return next((known[word] for word in near if word in known), typed)


def redact(text):
    """A line without tokens, passwords and the like: lines in a report can be shown around."""

    def hidden(found):
        if found.group("scheme"):
            return found.group("scheme") + "[redacted]@"
        return (found.group("key") or "") + "[redacted]"

    return _SECRET.sub(hidden, text)


def read_all(names):
    """A :class:`TextReading` of files, and of those in a folder; ``-`` is the standard input. OSError if one
    cannot be read.
    """
    reading = TextReading()
    for name in [file for given in names for file in _files_of(reading, given)]:
        if name == "-":
            reading.add("standard input", getattr(sys.stdin, "buffer", sys.stdin))
        else:
            with open(name, "rb") as stream:
                about = os.fstat(stream.fileno())
                size = about.st_size if stat.S_ISREG(about.st_mode) else None
                reading.add(os.path.basename(name), stream, size, name)
    return reading


_MOST_IN_FOLDER = 40
"""Files of a folder that are read: what stands beside a log is a few."""


def _files_of(reading, name):
    """The files of a folder, without those below it; a name that is no folder's is its own."""
    if not os.path.isdir(name):
        return [name]
    found = sorted(entry.path for entry in os.scandir(name) if entry.is_file() and entry.name[0] != ".")
    if len(found) > _MOST_IN_FOLDER:
        told = (name, len(found), _MOST_IN_FOLDER)
        reading.notes.append("%s has %d files: the first %d by name were read" % told)
    return found[:_MOST_IN_FOLDER]


def read_text_given(text):
    """A :class:`TextReading` of one text, as an argument gives it."""
    reading = TextReading()
    reading.add("the text", io.BytesIO(text.encode("utf-8", "replace")))
    return reading


def _parsed(data):
    """The JSON document that a text is; None if it is none, or nested too deep."""
    try:
        return json.loads(data.decode("utf-8-sig", "replace"))
    except (ValueError, RecursionError):
        return None


def _has_records(data):
    """Whether each of the first lines is a JSON document of its own, as in the log that Docker keeps."""
    lines = data.splitlines()[:3]
    return len(lines) > 1 and None not in map(_parsed, lines)


def unwrapped(lines):
    """The lines with those put together that a narrow window broke, in the middle of words, too: each but the
    last is as long as the window is wide.
    """
    width = max([len(line.text) for line in lines if len(line.text) <= 250] or [0])
    whole, before = [], ""
    for line in lines:
        apart = _LIST_ITEM.match(line.text) or _ERROR_LINE.match(line.text) or line.text == before
        if before and width >= 40 and width - 1 <= len(before) <= width and not apart:
            blank = " " * (width - len(before))  # at the window's edge it was lost
            whole[-1] = whole[-1]._replace(text=whole[-1].text + blank + line.text)
        else:
            whole.append(line)
        before = line.text
    return whole
