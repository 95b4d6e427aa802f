"""The page for people, and the streams that it has to fit."""

import html.parser
import io

from builder.verify.cudnn_verify.page import Style, render_html, render_page

REPORT = {
    "verdict": "broken",
    "cause": "cudnn-shadowed",
    "summary": "Another cuDNN took the place of the right one",
    "proof": [{"test": "cleared-path", "outcome": "confirmed", "detail": "passes without LD_LIBRARY_PATH"}],
    "consequences": [{"stage": "torch", "id": "F01", "cause": "crash", "summary": "killed by signal 6"}],
    "checks": [
        {"id": "E01", "stage": "environment", "outcome": "passed", "summary": "Python", "note": "a remark"},
        {"id": "C06", "stage": "cudnn", "outcome": "failed", "summary": "killed", "note": None},
        {"id": "C07", "stage": "convolution", "outcome": "not_run", "summary": "no GPU here", "note": None},
    ],
    "machine": {"python": "3.11.7", "distribution": "Debian", "kernel": "6.1"},
    "gpus": [{"name": "Tesla T4", "compute_capability": "7.5"}],
    "driver": {"version": "550.54.15", "api": "12.4"},
    "copies": [{"major": 9, "folder": "/usr/lib", "kind": "ld.so.cache"}],
    "frameworks": [
        {
            "name": "torch",
            "version": "2.6.0",
            "compiled": {"cuda": "12.4", "cudnn": "9.1.0"},
            "loaded": {"cudnn": "9.0.0"},
            "device": "cuda:0",
        }
    ],
    "test_double": False,
    "probe": {"version": "0.1.0", "sha256": None},
    "seconds": 1.2,
}


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self):
        return True


class Ascii(io.StringIO):
    encoding = "ascii"


def test_verdict_first_then_cause_evidence_remedy_and_details(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    text = render_page(REPORT, Style(Ascii()))
    order = [
        "BROKEN (",
        "Cause: cudnn-shadowed",
        "Evidence",
        "What to do",
        "Consequences",
    ]
    order += [
        "Here",
        "Tesla T4",
        "compiled for CUDA 12.4 and cuDNN 9.1.0, loaded cuDNN 9.0.0",
        "Checks",
        "E01",
    ]
    places = [text.index(part) for part in order]
    assert places == sorted(places)
    assert text.startswith("BROKEN")
    assert "TEST DOUBLE" not in text
    text.encode("ascii")


def test_every_symbol_has_its_word_and_reads_the_same_without_colour(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    coloured = render_page(REPORT, Style(Terminal()))
    monkeypatch.setenv("NO_COLOR", "1")
    plain = render_page(REPORT, Style(Terminal()))
    assert "\033[" in coloured
    assert "\033[" not in plain
    for part in ("\033[32m", "\033[33m", "\033[31m", "\033[1;31m", "\033[2m", "\033[0m"):
        coloured = coloured.replace(part, "")
    assert coloured == plain
    for line in ("\u2713 passed  E01", "\u2717 failed  C06", "\u2298 not run C07"):
        assert line in plain


def test_a_test_double_and_changes_are_announced():
    changes = [{"what": "driver", "before": "535", "now": "550"}]
    text = render_page(dict(REPORT, test_double=True, changes=changes), Style(Ascii()))
    assert "A TEST DOUBLE took part: this is evidence for nothing." in text
    assert "driver: 535 -> 550" in text
    assert "  nothing" in render_page(dict(REPORT, changes=[]), Style(Ascii()))


def test_html_says_the_same_and_escapes_what_the_machine_says():
    hostile = dict(REPORT, summary="<script>alert(1)</script> & more")
    page = render_html(hostile)
    for words in (
        "BROKEN",
        "cudnn-shadowed",
        "Tesla T4",
        "loaded cuDNN 9.0.0",
        "LD_LIBRARY_PATH",
        "a remark",
    ):
        assert words in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; more" in page
    assert "<script" not in page
    assert "<details open><summary>Checks: 1 passed, 1 failed, 1 not run" in page
    parser = Balanced()
    parser.feed(page)
    assert parser.open == []


class Balanced(html.parser.HTMLParser):
    """Every element that is opened is closed, in order."""

    def __init__(self):
        super().__init__()
        self.open = []

    def handle_starttag(self, tag, attrs):
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_a_sound_machine_has_its_checks_folded():
    sound = dict(REPORT, verdict="works", cause=None, checks=REPORT["checks"][:1])
    assert "<details><summary>Checks: 1 passed, 0 failed, 0 not run" in render_html(sound)
