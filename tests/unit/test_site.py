"""The documentation as a site: every link leads somewhere, nothing is fetched from elsewhere, four kinds."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pages import architecture, drawing, reference
from test_house import BUILDER, WINGS

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"


def build(source: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", str(source), str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )


class Loads(HTMLParser):
    """What a page loads; a link that is only followed by a click is none of it."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag in {"script", "img", "iframe", "source", "link"}:
            self.found.append(given.get("src") or given.get("href") or "")


@pytest.mark.slow
def test_the_site_is_sound_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    done = build(DOCS, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    pages = list(tmp_path.glob("*.html"))
    assert len(pages) > 30
    for page in pages:
        loads = Loads()
        loads.feed(page.read_text())
        assert not [load for load in loads.found if re.match(r"(https?:)?//", load)], page.name
    home = (tmp_path / "index.html").read_text()
    assert all(kind in home for kind in ("Learn", "Do", "Look up", "Understand"))
    for schema in DOCS.glob("*.schema.json"):
        assert (tmp_path / schema.name).read_bytes() == schema.read_bytes()


@pytest.mark.slow
def test_a_link_that_leads_nowhere_fails(tmp_path: Path) -> None:
    """The check above can fail."""
    (tmp_path / "docs/_static").mkdir(parents=True)
    (tmp_path / "docs/_static/site.css").write_text("")
    (tmp_path / "docs/conf.py").write_text((DOCS / "conf.py").read_text())
    (tmp_path / "README.md").write_text("# x\n\n[a](docs/nowhere.md)\n")
    (tmp_path / "docs/index.md").write_text("")
    done = build(tmp_path / "docs", tmp_path / "site")
    assert done.returncode != 0
    assert "nowhere.md" in done.stderr


def test_pages_that_are_made_from_the_code(generated: Callable[[str, str | bytes], None]) -> None:
    generated("docs/exit-codes.md", reference.exit_codes())
    generated("docs/schemas.md", reference.schemas(DOCS))
    generated("docs/architecture.md", architecture.page(BUILDER, WINGS))
    generated("docs/house.svg", drawing.drawing(BUILDER, WINGS))


def test_the_drawing_notices_a_function_that_returns_something_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawing, "STEPS", (("Report", "plan.matrix.expand", "load", "list"),))
    with pytest.raises(AssertionError, match="returns Matrix, not a Report"):
        drawing.drawing(BUILDER, WINGS)


def test_the_site_goes_to_its_branch_as_one_commit(tmp_path: Path) -> None:
    for place in ("site/docs/_static", "site/docs/.doctrees"):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "file").write_text("x")
    for name in ("site/index.html", "site/docs/index.html"):
        (tmp_path / name).write_text("x")
    remote = tmp_path / "remote.git"
    subprocess.run(["git", "init", "--quiet", "--bare", str(remote)], check=True)
    for command in (
        ["git", "init", "-q"],
        ["git", "-c", "user.name=x", "-c", "user.email=x@x", "commit", "-qm", "x", "--allow-empty"],
    ):
        subprocess.run(command, cwd=tmp_path, check=True)
    for _ in range(2):
        subprocess.run(
            [str(ROOT / "scripts/publish-site")],
            cwd=tmp_path,
            check=True,
            env=os.environ | {"REMOTE": str(remote)},
        )
    shown = subprocess.run(
        ["git", "-C", str(remote), "ls-tree", "-r", "--name-only", "gh-pages"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stdout.split() == [".nojekyll", "docs/_static/file", "docs/index.html", "index.html"]
    count = subprocess.run(
        ["git", "-C", str(remote), "rev-list", "--count", "gh-pages"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert count.stdout.strip() == "1"
