"""What ``docs/ci.md`` says to put into a repository: its keys, commands and options are those there are."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from builder.cli.app import loaded

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/ci.md").read_text()


class Tagged(yaml.SafeLoader):
    """GitLab's ``!reference`` as the list that it has: https://docs.gitlab.com/ci/yaml/yaml_optimization/"""


Tagged.add_constructor("!reference", lambda loader, node: loader.construct_sequence(node))


def yaml_of(heading: str) -> Any:
    """The first block of YAML below a heading."""
    found = re.search(rf"^## {heading}\n.*?^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None
    return yaml.load(found[1], Loader=Tagged)


PIPELINE = yaml_of("GitLab CI")
JOBS = {name: row for name, row in PIPELINE.items() if name not in {"stages", "variables", "default"}}


@pytest.mark.parametrize("name", [name for name in JOBS if not name.startswith(".")])
def test_a_job_of_gitlab_types_what_there_is(name: str) -> None:
    job = JOBS[name]
    assert job["stage"] in PIPELINE["stages"]
    assert {word for line in job["script"] for word in re.findall(r"\$(\w+)", line)} <= {
        *PIPELINE["variables"],
        "CI_REGISTRY_IMAGE",
    }
    for line in job["script"]:
        program, command, *words = shlex.split(line)
        assert program == "rtbuild"
        options = {option for one in loaded(command).params for option in one.opts}
        assert {word for word in words if word.startswith("-")} <= options


def test_what_gitlab_shows_of_a_run_is_what_it_leaves() -> None:
    report = JOBS[".image"]["artifacts"]["reports"]["junit"]
    results = next(one for one in loaded("verify").params if one.name == "results")
    assert report == f"{results.default}/junit.xml"
    assert [JOBS[name]["extends"] for name in ("build", "verify", "publish")] == [".image"] * 3


def test_the_page_has_each_input_of_the_action() -> None:
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", PAGE, re.MULTILINE)
    told = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert action["inputs"].keys() <= told
    for step in yaml_of("GitHub action"):
        assert step["with"].keys() <= action["inputs"].keys()


def test_the_hooks_of_the_page_are_those_that_there_are() -> None:
    there = {row["id"] for row in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())}
    (repository,) = yaml_of("pre-commit")["repos"]
    assert {row["id"] for row in repository["hooks"]} == there


SECTION = PAGE.partition("## A requirements file")[2].partition("\n## ")[0]
FITS = re.findall(r"^```yaml\n(.*?)^```", SECTION, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("block", FITS)
def test_the_jobs_for_a_requirements_file_type_what_there_is(block: str) -> None:
    jobs = yaml.load(block, Loader=Tagged)
    jobs = jobs.get("jobs", jobs)
    lines = [line for job in jobs.values() for line in job.get("script", [])]
    lines += [step["run"] for job in jobs.values() for step in job.get("steps", []) if "run" in step]
    called_ = [words for line in lines for part in line.split("&&") if (words := shlex.split(part))]
    ours = [words for words in called_ if words[0].endswith("rtbuild")]
    assert ours
    for _, command, *words in ours:
        options = {option for one in loaded(command).params for option in one.opts}
        assert {word for word in words if word.startswith("-")} <= options


def test_each_of_the_three_blocks_is_yaml() -> None:
    assert len(FITS) == 3
