"""The documentation as a site, by Sphinx, MyST and Furo: ``make docs``. No request leaves its pages.

README and its neighbours are pages, too. The repository has no public address yet, so a link from a page to a
source file has nowhere to lead, and becomes plain text.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent
ROOT = {"index": "README.md", "contributing": "CONTRIBUTING.md", "security": "SECURITY.md"} | {
    "changes": "CHANGELOG.md"
}
"""Pages that stand in the root of the repository: their text replaces that of a stub here."""
_CODE = re.compile(r"(^```.*?^```)", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?!https?:|#)([^)#\s]*)(#[^)\s]*)?\)")

project = "rtbuild"
author = "the rtbuild project"
extensions = ["myst_parser"]
exclude_patterns = ["conf.py"]
myst_heading_anchors = 4
nitpicky = True
suppress_warnings = ["misc.highlighting_failure"]  # blocks of console output and of cut files
html_theme = "furo"
html_title = "rtbuild"
html_theme_options = {
    "announcement": '<a href="../index.html">To the catalogue</a>',
}
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_extra_path = sorted(path.name for path in DOCS.glob("*.schema.json"))


def _page(docname: str, text: str) -> str:
    names = {f"{source}": f"{name}.md" for name, source in ROOT.items()}

    def linked(found: re.Match[str]) -> str:
        label, target, anchor = found[1], found[2].removeprefix("../").removeprefix("docs/"), found[3] or ""
        if target in names:
            return f"[{label}]({names[target]}{anchor})"
        outside = found[2].startswith("../") or (docname in ROOT and not found[2].startswith("docs/"))
        return label if outside else f"[{label}]({target}{anchor})"

    parts = _CODE.split(text)
    return "".join(part if part.startswith("```") else _LINK.sub(linked, part) for part in parts)


def _read(_app: Any, docname: str, source: list[str]) -> None:
    text = source[0]
    if docname in ROOT:
        own = (DOCS.parent / ROOT[docname]).read_text("utf-8").replace("](docs/picker", "](picker")
        text = f"{own}\n\n{text}"
    source[0] = _page(docname, text)


_FOR_EVERYBODY = (
    (r'(<p class="caption" role="heading")>', r'\1 aria-level="2">'),
    (r"<pre>", '<pre tabindex="0">'),
    (r'<aside class="announcement-content">', '<aside class="announcement-content" aria-label="Catalogue">'),
    (r'<aside class="sidebar-drawer">', '<aside class="sidebar-drawer" aria-label="All pages">'),
    (r'<aside class="toc-drawer( no-toc)?">', r'<aside class="toc-drawer\1" aria-label="This page">'),
    (r'<table class="docutils', '<table tabindex="0" class="docutils'),
    (r'<th class="head"><p></p></th>', '<td class="head"></td>'),
)
"""What Furo's and docutils' HTML lacks for a screen reader or a keyboard, as axe finds it, and its mend."""


def _finish(app: Any, problem: Exception | None) -> None:
    for page in Path(app.outdir).glob("*.html") if problem is None else ():
        text = made = page.read_text("utf-8")
        for pattern, mend in _FOR_EVERYBODY:
            made = re.sub(pattern, mend, made)
        if "<h1" not in made:  # the search page's is for those without JavaScript
            made = re.sub(r'(<article role="main"[^>]*>)', r'\1<h1 class="sr">Search</h1>', made)
        if made != text:
            page.write_text(made, "utf-8")


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("source-read", _read)
    app.connect("build-finished", _finish)
