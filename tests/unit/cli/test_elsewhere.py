"""Words of pip, conda, docker and of people: each error has a next step, and that step is one."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from rtbuild_command import inside

from builder.cli.app import COMMANDS, OTHER_COMMANDS, OTHER_OPTIONS, OTHER_VALUES, loaded

ROOT = Path(__file__).parents[3]
HINTS = {*OTHER_OPTIONS.values(), *OTHER_COMMANDS.values(), *OTHER_VALUES.values()}
OF_DOCKER = {"--device", "--rm", "-i", "-it", "-t"}


@pytest.mark.parametrize("hint", sorted(HINTS))
def test_a_next_step_has_a_command_and_options_that_there_are(hint: str) -> None:
    steps = [shlex.split(step) for step in re.findall(r"`(rtbuild [^`]+)`", hint)]
    for _, name, *words in steps:
        assert name in COMMANDS
        taken = {option for one in loaded(name).params for option in one.opts} | {"--help"}
        assert {word for word in words if word.startswith("-")} <= taken
    assert steps or "--" in hint or "cuda:" in hint


def test_what_there_is_has_no_hint_that_it_is_elsewhere() -> None:
    assert not {*OTHER_COMMANDS} & {*COMMANDS}
    resolving = {option for one in loaded("resolve").params for option in one.opts}
    assert not ({*OTHER_OPTIONS} - OF_DOCKER) & resolving


@pytest.mark.parametrize(
    ("words", "way"),
    [
        (("install", "torch"), "rtbuild venv"),
        (("Pull", "torch"), "rtbuild run IMAGE"),
        (("resolve", "torch", "--index-url", "x"), "UV_DEFAULT_INDEX"),
        (("resolve", "-c", "pytorch", "torch"), "--conda environment.yml"),
        (("up", "torch", "--gpus", "all"), "--gpu T4"),
        (("run", "-it", "torch", "bash"), "is interactive"),
        (("resolve", "--offline", "torch", "2.1"), "did you mean torch==2.1?"),
        (("resolve", "--offline", "torch 2.1"), "did you mean torch==2.1?"),
        (("resolve", "--offline", "torch=2.1"), "did you mean torch==2.1?"),
        (("resolve", "--offline", "torch@2.1.*"), "did you mean torch==2.1.*?"),
        (("resolve", "--offline", "torch=2.1=py3.10_cuda12.1_cudnn8"), "did you mean torch==2.1?"),
        (("resolve", "--offline", "torch==2.1,numpy"), "did you mean torch==2.1 numpy?"),
        (("completion",), "--install-completion"),
        (("resolve", "--offline", "torch:2.1"), "did you mean torch==2.1?"),
        (("resolve", "--offline", "pytorch==2.1"), "did you mean torch==2.1?"),
        (("resolve", "--offline", "cudatoolkit=11.8", "torch"), "torch==2.1.0+cu121"),
        (("resolve", "requirements.txt"), "`rtbuild resolve -r requirements.txt` reads it"),
        (("resolve", "app/Dockerfile"), "`rtbuild resolve -r app/Dockerfile` reads it"),
        (("resolve", "environment.yml"), "`rtbuild resolve -r environment.yml` reads it"),
        (("resolve", "a b.ipynb"), "`rtbuild resolve -r 'a b.ipynb'` reads it"),
        (("export", "torch", "--format", "compose"), "devcontainer.json"),
        (("export", "--format=docker-compose.yml", "torch"), "devcontainer.json"),
        (("cache", "--prune", "20", "GB"), "--prune 20GB"),
        (("resolve", "-r", "require.txt"), "has requirements-gpu.txt"),
    ],
)
def test_a_word_of_another_tool_leads_on(words: tuple[str, ...], way: str, tmp_path: Path) -> None:
    (tmp_path / "requirements-gpu.txt").write_text("torch")
    done = inside(tmp_path, *words, check=2)
    assert "hint: " in done.stderr
    assert way in done.stderr.partition("hint: ")[2]


def test_a_value_that_is_elsewhere_is_one_of_a_parameter_that_there_is() -> None:
    for command, parameter in OTHER_VALUES:
        assert parameter in {one.name for one in loaded(command).params}


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_an_option_that_is_none_names_the_help_of_its_command(command: str, tmp_path: Path) -> None:
    done = inside(tmp_path, command, "--json", "--frobnicate", check=2)
    hint = json.loads(done.stdout)["hint"]
    assert f"`rtbuild {command} --help`" in hint


@pytest.mark.parametrize(
    "words", [("resolve", "torch"), ("check",), ("up", "torch"), ("init", "torch"), ("audit", "x/y:z")]
)
def test_a_card_and_a_driver_that_are_none_are_told_at_once(words: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "matrices").symlink_to(ROOT / "matrices")
    said = inside(tmp_path, *words, "--gpu", "RTX 3009", "--driver", "53x", check=2).stderr
    assert "--driver 53x is no driver" in said
    assert "--gpu RTX 3009 is no GPU" in said


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        (("version",), "rtbuild 0."),
        (("-V",), "rtbuild 0."),
        (("help",), "Usage: rtbuild [OPTIONS]"),
        (("help", "facts", "export"), "Usage: rtbuild facts export"),
    ],
)
def test_what_people_type_first_is_answered(typed: tuple[str, ...], answer: str, tmp_path: Path) -> None:
    assert answer in inside(tmp_path, *typed, check=0).stdout


def test_a_matrix_in_the_place_of_a_cell_is_told_with_its_cells(tmp_path: Path) -> None:
    (tmp_path / "matrices").symlink_to(ROOT / "matrices")
    for word in ("tf28", "matrices/tf28.yaml"):
        assert "that is a matrix, with tensorflow2.8.4-" in inside(tmp_path, "size", word, check=3).stderr
