"""Each option of each command acts: it changes a call out of rtbuild, the output or a file, or is refused.

Commands and options are found in the program. A flag, a choice and a number are tried without being named
here; for a text somebody has to say which, and for an option that acts only beside others, beside which. An
option that nothing on the way of its command reads fails, with or without a row.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_args

import pytest
from doubles.project import CELL
from option_world import Furnished, Observation, World, furnished, open_world

from builder.cli.app import COMMANDS, loaded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

TF, AGAIN = "matrices/tf.yaml", "again/tf.yaml"
OTHERS, OTHERS_UNLOCKED = "others.yaml", "others-unlocked.yaml"


@dataclass(frozen=True)
class Row:
    """How an option is given, and the command that it is added to if that is not the command's usual one."""

    value: str | None = None
    beside: str | None = None
    """All arguments of the run without the option, and those before it in the run with it."""


def _row(text: str) -> Row:
    value, _, beside = text.partition(" | ")
    return Row(value or None, beside or None)


USUAL = {
    "diagnose": "-",
    "resolve": "torch --offline --gpu T4",
    "init": "torch --offline --gpu T4",
    "up": "torch --offline --gpu T4 --dry-run",
    "venv": f"{TF} --output new",
    "list": TF,
    "check": TF,
    "explain": CELL,
    "lock": TF,
    "render": f"{TF} --text-only",
    "build": f"{TF} --no-check",
    "verify": TF,
    "publish": f"{TF} --from REGISTRY/staging --to REGISTRY/public",
    "audit": "REGISTRY/known@DIGEST",
    "run": f"rtbuild/tf:{CELL} --dry-run",
    "devcontainer": f"rtbuild/tf:{CELL}",
    "size": CELL,
    "export": f"{CELL} --format requirements",
    "outdated": TF,
    "dispatch": TF,
    "verify-digest": "REGISTRY/staging@DIGEST --card T4",
    "catalogue": "--from REGISTRY/staging",
    "facts refresh": "--only jax",
    "facts days": "--only jax",
    "facts names": "--only jax",
    "colab diff": f"rtbuild/tf:{CELL} --against 2025.07",
    "colab import": "lists --no-lock",
}
"""The arguments of each command's usual run; none, if it is not here."""

ROWS: dict[str, str] = {
    "--select": "*nothing*",
    "--skip": "*",
    "--registry-mirror": f"docker.io=REGISTRY | {OTHERS} --read",
    "--context": "elsewhere",
    "--progress": "json",
    "--trace": "trace.json",
    "--results": "elsewhere",
    "--output": "elsewhere",
    "--driver": "450.80.02",
    "--gpu": "H100",
    "--name": "another",
    "--knowledge": "elsewhere",
    "--key": "cosign.key",
    "--python": "3.11",
    "--from": "REGISTRY/taken",
    "--built-by": "cosign.pub",
    "--reported-by": "cosign.pub",
    "--max-age": "1h",
    "--locked": " | unlocked.yaml",
    "resolve --requirement": "requirements.txt",
    "resolve --pyproject": "pyproject.toml",
    "resolve --notebook": "notebook.ipynb",
    "resolve --from-pylock": "pylock.toml",
    "export --format": f"conda | {CELL}",
    "export --offline": f" | {CELL} --format pylock",
    "outdated --registry-mirror": f"docker.io=REGISTRY | {OTHERS}",
    "outdated --fail-on": f"any | {TF}",
    "resolve --conda": "environment.yml",
    "resolve --limit": "1",
    "resolve --progress": "json | torch --offline --gpu T4",
    "resolve --uv": "uv/pyproject.toml",
    "resolve --force": " | torch --offline --gpu T4 --output requirements.txt",
    "resolve --nearest": " | torch==0.4.1 --offline --gpu T4",
    "resolve --as-of": "2021-06 | torch --offline --gpu T4",
    "resolve --platform": "linux/arm64",
    "resolve --system": "centos7",
    "resolve --offline": " | torch --gpu T4",
    "init --offline": " | torch --gpu T4",
    "init --force": " | torch --offline --gpu T4 --name tf",
    "up --offline": " | torch --gpu T4 --dry-run",
    "up --dry-run": " | torch --offline --gpu T4",
    "up --shell": " | torch --offline --gpu T4 --driver 535 --from REGISTRY/staging",
    "up --port": "8889 | torch --offline --gpu T4 --driver 535 --from REGISTRY/staging",
    "up --from": "REGISTRY/staging | torch --offline --gpu T4 --driver 535",
    "up --context": "elsewhere | torch --offline --gpu T4",
    "up --progress": "json | torch --offline --gpu T4",
    "venv --force": f" | {TF}",
    "venv --locked": " | unlocked.yaml --output new",
    "venv --registry-mirror": "docker.io | unlocked.yaml --output new",
    "check --fix": f" | {TF}",
    "check --junit": f"junit.xml | {TF}",
    "explain --registry-mirror": f"docker.io=REGISTRY | * {OTHERS} --read",
    "lock --registry-mirror": f"docker.io=REGISTRY | {OTHERS} --upgrade",
    "lock --upgrade-only": "numpy",
    "lock --progress": f"json | {TF} --upgrade",
    "render --text-only": f" | {TF}",
    "render --registry-mirror": f"docker.io=REGISTRY | {OTHERS_UNLOCKED}",
    "build --registry-mirror": f"docker.io=REGISTRY | {OTHERS_UNLOCKED}",
    "build --no-cache": f" | {TF} --no-check --verbose",
    "build --output": f"elsewhere | {TF} --no-check --engine none",
    "build --require-verified": f" | {TF} --no-check --engine none",
    "build --verbose": f" | {TF} --no-check --no-cache",
    "colab diff --gpus": "auto",
    "build --no-check": " | impossible.yaml",
    "build --push": "REGISTRY/elsewhere",
    "build --engine": "none",
    "build --layers-from": "REGISTRY/shared",
    "build --layers-key": "cosign.pub | matrices/tf.yaml --no-check --layers-from REGISTRY/shared",
    "build --cache-from": f"type=registry,ref=x | {OTHERS} --no-check",
    "build --cache-to": f"type=registry,ref=x | {OTHERS} --no-check",
    "build --jobs": "3",
    "build --builder": "elsewhere",
    "verify --from": "REGISTRY/staging",
    "verify --verbose": f" | {TF} --from REGISTRY/staging",
    "verify --built-by": f"cosign.pub | {TF} --from REGISTRY/staging",
    "publish --to": "REGISTRY/taken",
    "publish --overwrite": f" | {AGAIN} --from REGISTRY/staging --to REGISTRY/taken",
    "publish --built-by": f"cosign.pub | {AGAIN} --from REGISTRY/staging --to REGISTRY/public",
    "audit --at-least": "2099-01-01T00:00:00Z",
    "audit --suite": "attention",
    "audit --certificate-identity": "me",
    "audit --certificate-oidc-issuer": "https://issuer.example",
    "audit --registry-mirror": "registry.example=REGISTRY | registry.example/staging@DIGEST",
    "run --port": f"8889 | rtbuild/colab:{CELL} --dry-run",
    "devcontainer --json": f" | rtbuild/tf:{CELL} --force",
    "run --content": "elsewhere",
    "run --volume": "/tmp:/mnt",
    "run --env": "A=B",
    "run --publish": "9000:9000",
    "run --user": "1234:1234",
    "run --dry-run": f" | rtbuild/tf:{CELL}",
    "run --shell": f" | rtbuild/colab:{CELL} --dry-run",
    "dispatch --fleet": "elsewhere.yaml",
    "dispatch --junit": "junit.xml",
    "dispatch --reported-by": f"cosign.pub | {AGAIN}",
    "dispatch --every": f"3 | {TF} --wait",
    "dispatch --format": f"dstack | {TF} --dry-run",
    "verify-digest --card": "A100 | REGISTRY/staging@DIGEST",
    "verify-digest --suite": "linalg",
    "verify-digest --suggested": "linalg",
    "verify-digest --keep-images": "0 | REGISTRY/staging@DIGEST --card T4 --runtime apptainer",
    "catalogue --from": "REGISTRY/taken",
    "catalogue --results": f"elsewhere | {TF}",
    "catalogue --registry-mirror": "registry.example=REGISTRY | --from registry.example/staging",
    "size --against": CELL,
    "cache --prune": "1GB",
    "doctor --fleet": "fleet.yaml",
    "facts days --only": "torch",
    "facts names --only": "torch",
    "facts refresh --only": "torch",
    "facts refresh --registry-mirror": "docker.io=REGISTRY | --only jax",
    "colab diff --against": "2025.10",
    "colab import --at": "2025.07",
    "colab import --freeze": "others/pip-freeze.gpu.txt",
    "colab import --apt": "requirements.txt",
    "colab import --os-info": "requirements.txt",
    "colab import --lock": " | lists",
    "colab import --registry-mirror": "docker.io | lists",
    "colab probe --compare": "report.json",
}
"""By option, for all commands that have it; and by command and option: the value, and after a bar what stands
beside it in both runs."""


def _leaves(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    commands = getattr(command, "commands", None)
    if commands is None:
        yield name, command
    for inner, found in (commands or {}).items():
        yield from _leaves(f"{name} {inner}", found)


OPTIONS = {
    (name, max(option.opts, key=len)): option
    for first in COMMANDS
    for name, command in _leaves(first, loaded(first))
    for option in command.params
    if option.param_type_name == "option" and option.name != "help"
}


def test_every_number_has_an_end() -> None:
    """Four hundred digits are no time that a machine can wait for, and no size that it can count."""
    numbers = {
        where: option.type_descriptor.parameter_info
        for where, option in OPTIONS.items()
        if option.type_descriptor.annotation in (int, float) and not option.count
    }
    assert len(numbers) > 5
    assert [where for where, info in numbers.items() if info.min is None or info.max is None] == []


@pytest.fixture(scope="session")
def begin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Furnished]:
    with furnished(tmp_path_factory.mktemp("world")) as made:
        yield made


@pytest.fixture
def world(begin: Furnished, tmp_path: Path) -> Iterator[World]:
    """One for each command, so that what a command leaves is met by no other, in whatever order tests run."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        yield open_world(tmp_path, begin, monkeypatch)


@pytest.fixture
def usual(world: World) -> Callable[[str, tuple[str, ...]], Observation]:
    """What a run without the option does; it has to be the same each time, or a difference shows nothing."""

    @functools.cache
    def ran(command: str, arguments: tuple[str, ...]) -> Observation:
        first, second = world.run(command, arguments), world.run(command, arguments)
        for _ in range(3):  # the first filled what a process keeps; threads of two cells meet in one of many
            if first.differences(second):
                first, second = second, world.run(command, arguments)
        for name in first.differences(second):
            assert getattr(first, name) == getattr(second, name), f"two runs of {command} {arguments} differ"
        return second

    return ran


@pytest.mark.slow
@pytest.mark.parametrize("command", sorted({command for command, _ in OPTIONS}))
def test_each_option_acts(
    world: World, usual: Callable[[str, tuple[str, ...]], Observation], command: str
) -> None:
    silent = []
    for name in [name for first, name in OPTIONS if first == command]:
        row = _row(ROWS.get(f"{command} {name}", ROWS.get(name, "")))
        beside = (row.beside if row.beside is not None else USUAL.get(command, "")).split()
        without = usual(command, tuple(beside))
        given = world.run(command, [*beside, *_given(OPTIONS[command, name], name, row)])
        if not without.differences(given):
            silent.append(name)
    assert not silent, f"these options of {command} change no call, no output and no file"


def _given(option: Any, name: str, row: Row) -> list[str]:
    if option.is_flag or option.count:
        return [(option.secondary_opts or [name])[0]]
    if row.value is not None:
        return [name, row.value]
    choices = [one for one in get_args(option.type_descriptor.annotation) if isinstance(one, str)]
    if len(choices) > 1:
        return [name, next(one for one in reversed(choices) if one != option.default)]
    if isinstance(option.default, (int, float)):
        return [name, str(option.default + 1)]
    pytest.fail(f"ROWS has no value for {name}: say one that should act")
