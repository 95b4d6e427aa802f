"""What people read as truth is tried: links, the tutorial's matrix and commands, the error it shows."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from pages import diagnose_score
from rtbuild_command import inside, rtbuild

from builder.core.errors import MatrixError
from builder.plan.matrix import load

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
TUTORIAL = (ROOT / "docs/tutorial.md").read_text()
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def block(language: str, containing: str) -> str:
    found = [b for b in re.findall(rf"```{language}\n(.*?)```", TUTORIAL, re.DOTALL) if containing in b]
    assert len(found) == 1, f"{len(found)} blocks of {language} in the tutorial hold {containing!r}"
    return found[0]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_to_files_that_are_there(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\((?!https?://|#)([^)#\s]+)", text):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_tutorials_matrix_is_one(tmp_path: Path) -> None:
    path = tmp_path / "tf28.yaml"
    path.write_text(block("yaml", "version: 1"))
    matrix = load(path)
    real = load(ROOT / "matrices" / "tf28.yaml")
    assert [cell.id for cell in matrix.cells] == [cell.id for cell in real.cells]


def test_the_tutorials_error_is_the_one_that_is_printed(tmp_path: Path) -> None:
    path = tmp_path / "tf28.yaml"
    path.write_text(block("yaml", "version: 1").replace("  python: [3.8", "  pyhton: [3.8"))
    with pytest.raises(MatrixError) as raised:
        load(path)
    shown = block("text", "pyhton").replace("matrices/tf28.yaml", str(path))
    assert str(raised.value).startswith(shown)


def test_nothing_in_the_readme_waits_to_be_filled_in() -> None:
    assert not re.search(r"@[A-Z_]+@|TODO|TBD", README)


CLI = (ROOT / "docs/cli.md").read_text()
LINES = [
    (page.name, words)
    for page in PAGES
    for code in re.findall(r"```(?:console|sh)\n(.*?)```", page.read_text(), re.DOTALL)
    for line in code.splitlines()
    if (words := re.sub(r"\s#.*", "", line.removeprefix("$ ")).split()) and words[0] == "rtbuild"
]


@pytest.mark.parametrize(("page", "words"), LINES, ids=lambda value: " ".join(value)[:60])
def test_every_command_in_the_docs_is_one(page: str, words: list[str]) -> None:
    """The reference is made from the program, so what stands there exists."""
    names = [word for word in words[1:3] if re.fullmatch(r"[a-z-]+", word) and not word.startswith("-")]
    section = next(
        (
            part
            for n in (2, 1)
            for part in CLI.split("\n## ")
            if part.startswith("rtbuild " + " ".join(names[:n]) + "\n")
        ),
        None,
    )
    if section is None and words[1].startswith("--"):
        section = CLI.split("\n## ")[1]
    assert section is not None, f"{page}: there is no command in: {' '.join(words)}"
    for option in (word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)):
        assert re.search(rf"{re.escape(option)}\b", section), f"{page}: {' '.join(words)} has no {option}"


def test_the_readme_is_short() -> None:
    assert len(README.split()) <= 900


SCREEN = README.splitlines()[:24]
"""What a first screen shows."""


def test_the_first_lines_say_what_it_is_for_whom_and_what_to_type() -> None:
    first = "\n".join(README.splitlines()[:12])
    have = ("an error", "a card", "a wish to run", "a team")
    for said in ("command line tool", "Linux", "for people who", *(f"| {one} |" for one in have)):
        assert said in first
    for framework in ("TensorFlow", "PyTorch", "JAX", "PaddlePaddle", "ONNX Runtime", "CuPy", "CTranslate2"):
        assert framework in first
    assert {"diagnose", "resolve", "up", "publish"} <= set(re.findall(r"`rtbuild ([a-z]+)", first))
    text = "\n".join(SCREEN)
    assert "Images are built on your machine" in text
    assert not re.search(r"\b(?:cell|probe|verdict)s?\b", text)


def test_the_first_lines_commands_are_commands() -> None:
    typed = [
        part.split()
        for code in re.findall(r"`(rtbuild [^`]+)`", "\n".join(SCREEN))
        for part in code.split("&&")
    ]
    assert len(typed) >= 6
    for words in typed:
        test_every_command_in_the_docs_is_one("README.md", [word.strip("'\"") for word in words])


def test_the_error_of_the_first_lines_is_recognized() -> None:
    (message,) = re.findall(r'`rtbuild diagnose "([^"]+)"', "\n".join(SCREEN))
    done = rtbuild(ROOT, "diagnose", "--json", message)
    assert json.loads(done.stdout)["cause"] is not None


def test_the_readme_has_the_projects_address() -> None:
    """``ADDRESS`` until ``tool.rtbuild.address`` is set; then nowhere."""
    address = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["rtbuild"]["address"]
    for how in ("git clone {}", "pipx install git+{}", "uvx --from git+{}"):
        assert how.format(address or "ADDRESS") in README
    assert bool(address) is not bool(re.search(r"\bADDRESS\b", README))


def test_the_readme_shows_what_diagnose_prints() -> None:
    ((line, shown),) = re.findall(r'```console\n\$ rtbuild diagnose "([^\n]*)"\n(.*?)```', README, re.DOTALL)
    done = rtbuild(ROOT, "diagnose", line)
    assert done.stdout.startswith(shown)


MET = re.findall(
    r"^\| `(.+?)`[^|]* \| \[([a-z-]+)\]\(causes\.md",
    (ROOT / "docs/mend-on-colab.md").read_text(),
    re.MULTILINE,
)


def test_the_how_to_begins_with_texts_and_their_causes() -> None:
    assert len(MET) >= 3


@pytest.mark.parametrize(("text", "cause"), MET)
def test_a_text_of_the_how_to_leads_to_its_cause(text: str, cause: str) -> None:
    assert cause in [row["cause"] for row in diagnose_score.answer(text)["causes"]]


def test_options_of_the_probe_in_the_docs_are_there() -> None:
    command = [sys.executable, "-m", "builder.verify.cudnn_verify", "--help"]
    known = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True).stdout
    given = {
        option
        for page in PAGES
        for line in re.findall(
            r"^(?:\$ )?(?:cudnn-verify|python3 cudnn_verify.py)(.*)$", page.read_text(), re.MULTILINE
        )
        for option in re.findall(r"--[a-z-]+", line.partition("#")[0])
    }
    assert given
    assert given <= set(re.findall(r"--[a-z-]+", known))


def test_what_the_tutorial_types_before_it_builds_is_run(tmp_path: Path) -> None:
    """In an empty folder, as a reader types it; what follows needs an engine."""
    (tmp_path / "matrices").mkdir()
    (tmp_path / "matrices/tf28.yaml").write_text(block("yaml", "version: 1"))
    typed = [
        shlex.split(line.removeprefix("$ ").partition(" #")[0])
        for line in block("console", "rtbuild explain").splitlines()
    ]
    assert [words[1] for words in typed] == ["list", "check", "explain"]
    for words in typed:
        done = inside(tmp_path, *words[1:])
        assert "tensorflow2.8.4-py3.9-bullseye-cudnn8.6.0.163" in done.stdout
        if words[1] == "check":
            assert done.stdout == block("text", "✓")


def test_the_matrix_of_the_page_on_colab_is_possible(tmp_path: Path) -> None:
    (matrix,) = re.findall(r"```yaml\n(version: 1.*?)```", (ROOT / "docs/colab.md").read_text(), re.DOTALL)
    (tmp_path / "colab.yaml").write_text(matrix)
    inside(tmp_path, "check", "colab.yaml")
