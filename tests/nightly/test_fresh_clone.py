"""What somebody else's repository gets of a fresh clone: the action's steps, the hooks, the completion."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

pytestmark = [pytest.mark.nightly, pytest.mark.long]

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(sys.executable).parent
CELL = (
    'version: 1\nname: x\ninclude: [{{framework: "{}", python: "3.12", '
    "base: rootfs:debian/bookworm, cuda: wheels}}]\n"
)
EXPRESSION = re.compile(r"\$\{\{ ([\w.]+) \}\}")
POSSIBLE, IMPOSSIBLE = CELL.format("torch==2.6.0"), CELL.format("tensorflow==2.8.4")


def done(*command: str, cwd: Path, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=cwd, env=os.environ | more, capture_output=True, text=True, check=False, timeout=600
    )


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clone") / "rtbuild"
    cloned = done("git", "clone", "-q", str(ROOT), str(folder), cwd=ROOT)
    assert cloned.returncode == 0, cloned.stderr
    return folder


@pytest.fixture
def user(tmp_path: Path) -> Path:
    """A repository of somebody's with one matrix."""
    folder = tmp_path / "user"
    (folder / "matrices").mkdir(parents=True)
    done("git", "init", "-q", cwd=folder)
    return folder


@pytest.fixture(scope="module")
def temp(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runner's folder for a job, in which the first step leaves its environment."""
    return tmp_path_factory.mktemp("runner")


def act(clone: Path, user: Path, temp: Path, **inputs: str) -> tuple[int, str, str]:
    """The steps of ``action.yml`` as GitHub's runner takes them: exit code, log, and the job's page."""
    action: dict[str, Any] = yaml.safe_load((clone / "action.yml").read_text())
    given = {name: str(row.get("default", "")) for name, row in action["inputs"].items()} | inputs
    known = {f"inputs.{name}": text for name, text in given.items()}
    known |= {"github.action_path": str(clone), "runner.temp": str(temp)}
    page, log = user / "page.md", ""
    told = {"GITHUB_STEP_SUMMARY": str(page), "GITHUB_OUTPUT": str(user / "output")}
    for step in action["runs"]["steps"]:
        env = {name: EXPRESSION.sub(lambda one: known[one[1]], text) for name, text in step["env"].items()}
        shell = ("bash", "-e", "-o", "pipefail", "-c", step["run"])
        ran = done(*shell, cwd=user, **told, RUNNER_TEMP=str(temp), **env)
        log += ran.stdout + ran.stderr
        if ran.returncode:
            break
    return ran.returncode, log, page.read_text() if page.exists() else ""


def test_the_action_says_on_its_page_why_it_fails(clone: Path, user: Path, temp: Path) -> None:
    inputs = {"matrix": "matrices/x.yaml", "python": str(HERE / "python")}
    (user / "matrices/x.yaml").write_text(POSSIBLE)
    code, log, page = act(clone, user, temp, **inputs)
    assert code == 0, log
    (user / "matrices/x.yaml").write_text(IMPOSSIBLE)
    code, log, page = act(clone, user, temp, **inputs)
    assert code == 1
    for told in (log, page):
        assert "TensorFlow 2.8.4 has no wheel for Python 3.12" in told
    (user / "page.md").unlink()
    (user / "matrices/x.yaml").write_text("version: 1\nname: [\n")
    code, log, page = act(clone, user, temp, command="build", **inputs)
    assert code == 2
    assert "matrices/x.yaml" in page


def test_the_hooks_refuse_what_cannot_work(clone: Path, user: Path) -> None:
    """By pre-commit itself, which installs the clone into an environment of its own."""
    seen = []
    for text in (POSSIBLE, IMPOSSIBLE):
        (user / "matrices/x.yaml").write_text(text)
        done("git", "add", "-A", cwd=user)
        hook = ("pre-commit", "try-repo", str(clone), "rtbuild-check", "--all-files")
        store = str(user.parent / "pre-commit")
        ran = done(str(HERE / "uv"), "tool", "run", *hook, cwd=user, PRE_COMMIT_HOME=store)
        seen.append(ran.returncode)
        told = ran.stdout + ran.stderr
    assert seen == [0, 1], told
    assert "TensorFlow 2.8.4 has no wheel for Python 3.12" in told


def block(heading: str) -> str:
    """The first block of YAML below a heading of ``docs/ci.md``."""
    page = (ROOT / "docs/ci.md").read_text()
    found = re.search(rf"^## {heading}\n.*?^```yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


def test_the_pages_hooks_are_installed_whether_there_is_a_tag_or_not(clone: Path, user: Path) -> None:
    (user / "matrices/x.yaml").write_text(IMPOSSIBLE)
    text = block("pre-commit").replace("https://github.com/OWNER/rtbuild", str(clone))
    (user / ".pre-commit-config.yaml").write_text(text)
    done("git", "add", "-A", cwd=user)
    told = ""
    for words in (("autoupdate", "--bleeding-edge"), ("run", "--all-files")):
        store = str(user.parent / "pre-commit")
        ran = done(str(HERE / "uv"), "tool", "run", "pre-commit", *words, cwd=user, PRE_COMMIT_HOME=store)
        told += ran.stdout + ran.stderr
    assert "TensorFlow 2.8.4 has no wheel for Python 3.12" in told
    assert "is not in the lock" in told or "there is no lock" in told, told


@pytest.mark.parametrize(("text", "code"), [(POSSIBLE, 4), (IMPOSSIBLE, 1)])
def test_gitlabs_first_job_says_why_it_fails(clone: Path, user: Path, text: str, code: int) -> None:
    """Its lines as a runner takes them, in one shell that ends at the first that fails."""
    (user / "matrices/torch.yaml").write_text(text)
    pipeline = yaml.safe_load(re.sub(r"!reference \[[^]]*\]", "echo", block("GitLab CI")))
    lines = [*pipeline["default"]["before_script"], *pipeline["check"]["script"]]
    script = "\n".join(lines).replace("git+ADDRESS", str(clone)).replace("python3 ", f"{HERE}/python ")
    variables = {name: value for name, value in pipeline["variables"].items() if name == "MATRIX"}
    ran = done("bash", "-e", "-o", "pipefail", "-c", script, cwd=user, **variables)
    assert ran.returncode == code, ran.stdout + ran.stderr


def test_bash_completes_what_is_typed(user: Path) -> None:
    """The script of ``rtbuild --show-completion bash``, in a real bash."""
    (user / "matrices/x.yaml").write_text(POSSIBLE)
    script = (
        'eval "$(rtbuild --show-completion bash)"\n'
        "COMP_WORDS=(rtbuild cat) COMP_CWORD=1\n"
        'declared=$(complete -p rtbuild); function=${declared#*-F }; "${function%% *}" rtbuild cat rtbuild\n'
        'echo "${COMPREPLY[@]}"\n'
    )
    ran = done("bash", "-c", script, cwd=user, PATH=f"{HERE}:{os.environ['PATH']}", SHELL="/bin/bash")
    assert ran.stdout.split() == ["catalogue"], ran.stderr
