"""What people read as truth is tried: links, the README's matrix, the error it shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from builder.errors import MatrixError
from builder.matrix import load

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def block(language: str, containing: str) -> str:
    found = [b for b in re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL) if containing in b]
    assert len(found) == 1, f"{len(found)} blocks of {language} in the README hold {containing!r}"
    return found[0]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_to_files_that_are_there(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\((?!https?://|#)([^)#\s]+)", text):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_readmes_matrix_is_one(tmp_path: Path) -> None:
    path = tmp_path / "tf28.yaml"
    path.write_text(block("yaml", "version: 1"))
    matrix = load(path)
    real = load(ROOT / "matrices" / "tf28.yaml")
    assert [cell.id for cell in matrix.cells] == [cell.id for cell in real.cells]


def test_the_readmes_error_is_the_one_that_is_printed(tmp_path: Path) -> None:
    path = tmp_path / "tf28.yaml"
    path.write_text(block("yaml", "version: 1").replace("  python: [3.8", "  pyhton: [3.8"))
    with pytest.raises(MatrixError) as raised:
        load(path)
    shown = block("text", "pyhton").replace("matrices/tf28.yaml", str(path))
    assert str(raised.value).startswith(shown)


def test_nothing_in_the_readme_waits_to_be_filled_in() -> None:
    assert not re.search(r"@[A-Z_]+@|TODO|TBD", README)
