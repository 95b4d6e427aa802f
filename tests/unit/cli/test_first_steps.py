"""A way in without YAML: init writes a matrix, venv makes it an environment, up starts it."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import rtbuild_command
import yaml
from rtbuild_command import inside

from builder.cli.app import app
from builder.cli.commands import up, venv
from builder.cli.first_matrix import MatrixWish, matrix_text
from builder.core import resources
from builder.core.errors import MissingToolError, StaleLockError, UsageError
from builder.core.model import Base, Pinned, RootfsBase, Wheel
from builder.image.engine.facts import Gpu
from builder.plan.matrix import load


@pytest.mark.parametrize("command", ["list", "check", "lock", "render", "build", "verify", "venv"])
def test_in_an_empty_folder_a_command_says_what_the_first_step_is(command: str, tmp_path: Path) -> None:
    done = inside(tmp_path, command, check=2)
    assert "rtbuild init torch" in done.stderr
    assert not list(tmp_path.iterdir())


def test_init_writes_a_matrix_that_checks_with_its_schema_beside_it(tmp_path: Path) -> None:
    done = inside(tmp_path, "init", "torch", "--offline", "--gpu", "T4", "--jupyter")
    assert done.stdout.splitlines()[1].startswith("rtbuild build matrices/torch.yaml ")
    path = tmp_path / "matrices" / "torch.yaml"
    text = path.read_text()
    assert text.startswith("# yaml-language-server: $schema=matrix.schema.json\n")
    assert json.loads((path.parent / "matrix.schema.json").read_text())["title"] == "rtbuild matrix"
    (cell,) = load(path).cells
    assert cell.frameworks[0].startswith("torch==")
    assert cell.profile == "colab"
    inside(tmp_path, "check")
    again = inside(tmp_path, "init", "torch", "--offline")
    assert "matrices/torch.yaml is there and stays (--force replaces it): this one is torch-2" in again.stderr
    assert again.stdout.splitlines()[2].startswith("rtbuild venv matrices/torch-2.yaml ")
    assert load(path.with_stem("torch-2")).name == "torch-2"
    assert path.read_text() == text
    named = inside(tmp_path, "init", "torch", "--offline", "--name", "torch", check=2)
    assert "without --name the next free one is taken" in named.stderr
    assert "# how much is to be downloaded is not known: the index was not asked" in text


def test_init_takes_a_base_without_a_registry_where_an_environment_can_be_made(tmp_path: Path) -> None:
    inside(tmp_path, "init", "torch==2.3.*", "--offline", "--gpu", "T4", "--driver", "535")
    (cell,) = load(tmp_path / "matrices" / "torch.yaml").cells
    assert cell.frameworks == ("torch==2.3.1",)
    assert (cell.base.kind, cell.cuda.provider) == ("rootfs", "wheels")


def test_init_names_the_command_that_takes_what_would_do(tmp_path: Path) -> None:
    """It named an option that it has not."""
    done = inside(tmp_path, "init", "tensorflow==1.15", "--offline", "--gpu", "A100", check=1)
    line = "rtbuild resolve tensorflow==1.15 --gpu A100 --nearest -o tensorflow.yaml"
    assert done.stderr.splitlines()[-1] == f"hint: `{line}` takes these, and writes the matrix"
    inside(tmp_path, *line.split()[1:], "--offline")
    assert (tmp_path / "tensorflow.yaml").is_file()


def test_init_without_words_asks_and_says_so_where_nobody_is(tmp_path: Path) -> None:
    assert "no framework is named" in inside(tmp_path, "init", check=2).stderr
    assert "no requirement" in inside(tmp_path, "init", "==", check=2).stderr


def test_up_goes_by_this_machines_card_and_driver_and_starts_what_it_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = Gpu(name="Tesla T4", compute_capability="7.5")
    monkeypatch.setattr(up, "nvidia_smi", lambda: ((card,), "535.104.05"))
    monkeypatch.setattr(resources, "cache", lambda: tmp_path / "cache")
    monkeypatch.chdir(tmp_path)
    started = []

    def build(_terminal, run, *_: object, **__: object) -> int:
        assert run.func is up.build_cells
        (cell,) = run.args[0][0].cells
        started.append(cell)
        return 0

    def start(image, paths, *, mode, **_: object) -> int:
        started.append((image, mode, paths))
        return 0

    monkeypatch.setattr(up.Engine, "connect", lambda **_: contextlib.nullcontext())
    monkeypatch.setattr(up, "would_start", lambda *_, **__: None)
    monkeypatch.setattr(up, "finished", build)
    monkeypatch.setattr(up, "start", start)
    assert app(["up", "torch", "--offline", "--save"], standalone_mode=False) == 0
    cell, (image, mode, paths) = started
    assert image == cell.id
    assert mode == "jupyter"
    assert cell.profile == "colab"
    assert not cell.frameworks[0].startswith("torch==2.15")  # CUDA 13 needs a newer driver than 535
    assert paths == [Path("matrices/torch.yaml")]
    assert yaml.safe_load(paths[0].read_text())["name"] == "torch"
    with pytest.raises(UsageError, match="is there already") as refused:
        app(["up", "torch", "--offline", "--save"], standalone_mode=False)
    assert "--force" not in str(refused.value)  # up has none
    kept = next((tmp_path / "cache" / "up").glob("*/torch.yaml"))
    monkeypatch.setattr(up, "matrix_text", lambda *_: pytest.fail("it was resolved before"))
    assert app(["up", "torch", "--offline"], standalone_mode=False) == 0
    assert started[-1][-1] == [kept]

    published = {f"here.test/runtimes:{cell.id}": "sha256:" + "a" * 64}
    monkeypatch.setattr(up.Registry, "digest_of", lambda _, tag: published.get(tag))
    assert app(["up", "torch", "--offline", "--from", "here.test/runtimes"], standalone_mode=False) == 0
    assert started[-2][0] == cell.id  # run before, and nothing built in between
    assert started[-1][0] == f"here.test/runtimes@sha256:{'a' * 64}"
    assert app(["up", "torch", "--offline", "--from", "here.test/others"], standalone_mode=False) == 0
    assert [type(one).__name__ for one in started[-2:]] == ["Cell", "tuple"]


def test_a_registry_that_was_away_once_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resources, "cache", lambda: tmp_path)
    base, answers = Base(kind="registry", name="python:3.11"), ["it is away", None]
    monkeypatch.setattr(up, "_lacks", lambda _, asked: answers.pop(0) if asked == base else None)
    monkeypatch.setattr(up, "matrix_text", lambda _, lacks: f"\nbase: {'other' if lacks(base) else base}\n")
    wish = MatrixWish(words=("torch",))
    assert "other" in up._matrix(wish, save=False).read_text()
    first = up._matrix(wish, save=False)
    assert str(base) in first.read_text()
    assert up._matrix(wish, save=False) == first
    assert answers == []


def test_up_without_an_engine_says_what_goes_without_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    done = inside(tmp_path, "up", "torch==2.6.*", check=5)
    assert "no Docker Engine answers" in done.stderr
    assert "rtbuild init 'torch==2.6.*'; then the `rtbuild venv` line" in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_dry_run_of_up_tells_each_step_and_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        words = ("up", "torch", "--offline", "--gpu", "T4", "--port", port, "--dry-run")
        done = inside(tmp_path, *words)
    assert 'gpus: ["T4"]' in done.stdout
    assert "! no Docker Engine answers" in done.stderr
    assert f"! port {port} on 127.0.0.1 is taken: --port " in done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("3. docker run ")]
    assert f"--publish 127.0.0.1:{port}:{port} " in line
    assert "the image rtbuild/torch:torch" in done.stderr
    assert f"4. Jupyter listens on 127.0.0.1:{port}, for this machine alone" in done.stderr
    shell = inside(tmp_path, *words, "--shell")
    assert shell.stderr.splitlines()[-1].startswith("next:")
    assert "4. Jupyter" not in shell.stderr
    assert not list(tmp_path.iterdir())


def test_a_base_that_this_machine_cannot_have_gives_way_and_both_are_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    wish = MatrixWish(words=("tensorflow==2.8.4",), offline=True)
    first = yaml.safe_load(matrix_text(wish))["include"][0]
    assert first["base"].startswith("nvidia/cuda:")

    def shut(base: Base) -> str | None:
        return "its registry is shut" if base.kind == "registry" else None

    (other,) = yaml.safe_load(matrix_text(wish, shut))["include"]
    assert (other["framework"], other["base"]) == (first["framework"], "rootfs:debian/bullseye")
    assert f"{first['base']} cannot be had here: its registry is shut" in capsys.readouterr().err
    (none,) = yaml.safe_load(matrix_text(wish, lambda _: "gone"))["include"]
    assert none["base"] == first["base"]
    assert "nor can another base" in capsys.readouterr().err


interpreter = venv._interpreter


@pytest.fixture(autouse=True)
def _has_each_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test fetches one."""
    monkeypatch.setattr(venv, "_interpreter", lambda cell: cell.python)


@pytest.mark.parametrize(
    ("here", "hint"),
    [
        (["3.12.3", "3.10.12", "3.8.1"], "rtbuild init tensorflow==2.10.0 --python 3.10"),
        (["3.13.1"], "install Python 3.9"),
    ],
)
def test_venv_looks_for_the_python_before_it_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, here: list[str], hint: str
) -> None:
    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        listed = json.dumps([{"version": version} for version in here])
        return subprocess.CompletedProcess(command, int("list" not in command), listed, "")

    cell = dataclasses.replace(pinned_cell(tmp_path).cell, frameworks=("tensorflow==2.10.0",), python="3.9")
    venv._may_have(cell, "3.9")  # what the rules ask of this machine, they ask before there is a double
    monkeypatch.setattr(venv.subprocess, "run", run)
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    with pytest.raises(MissingToolError, match=r"has Python 3\.9, which is not on this machine") as refused:
        interpreter(cell)
    assert str(refused.value.hint).endswith(hint)


def test_venv_takes_pyenvs_newest_patch_of_a_python_that_uv_does_not_find(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("3.9.9", "3.9.18", "3.9.20", "3.10.13"):
        python = tmp_path / "versions" / name / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.touch(0o644 if name == "3.9.20" else 0o755)
    failed = subprocess.CompletedProcess([], 2, "", "")
    monkeypatch.setattr(venv.subprocess, "run", lambda command, **_: failed)
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    cell = dataclasses.replace(pinned_cell(tmp_path).cell, python="3.9")
    assert interpreter(cell) == str(tmp_path / "versions/3.9.18/bin/python")
    with pytest.raises(MissingToolError, match=r"has Python 3\.1, which"):
        interpreter(dataclasses.replace(cell, python="3.1"))


def pinned_cell(folder: Path, provider: str = "none") -> Pinned:
    (folder / "m.yaml").write_text(
        "version: 1\nname: m\ninclude:\n"
        "  - {framework: six==1.17.0, python: '3.11', base: 'rootfs:debian/bookworm', cuda: none}\n"
    )
    (cell,) = load(folder / "m.yaml").cells
    cell = dataclasses.replace(cell, cuda=dataclasses.replace(cell.cuda, provider=provider))
    wheel = Wheel(name="six", version="1.17.0", file="six-1.17.0-py3-none-any.whl", sha256="a" * 64, size=1)
    return Pinned(cell=cell, base=RootfsBase(suite="bookworm", debs=(), epoch=1), wheels=(wheel,), epoch=1)


def test_venv_installs_the_locks_wheels_by_hash_and_verifies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pinned = pinned_cell(tmp_path)
    monkeypatch.setattr(venv.Locks, "pinned", lambda *_: pinned)
    monkeypatch.setattr(resources, "cache", lambda: tmp_path / "cache")
    calls = []

    def uv(*arguments: str) -> None:
        calls.append(arguments)
        if arguments[0] == "venv":
            subprocess.run([sys.executable, "-m", "venv", "--without-pip", arguments[-1]], check=True)
            (installed,) = Path(arguments[-1]).glob("lib/python*/site-packages")
            (installed / "six.py").write_text("")
            (installed / "six-1.17.0.dist-info").mkdir()
            (installed / "six-1.17.0.dist-info/METADATA").write_text("Name: six\nVersion: 1.17.0\n")

    monkeypatch.setattr(venv, "_uv", uv)
    target = tmp_path / "env"
    code = app(["venv", str(tmp_path / "m.yaml"), "-o", str(target), "--json"], standalone_mode=False)
    assert code in (0, 5)  # a machine with half a driver says host
    document = json.loads(capsys.readouterr().out)
    assert document["report"]["verdict"] in ("unverified", "works", "host")
    assert (target / "rtbuild-requirements.txt").read_text() == f"six==1.17.0 --hash=sha256:{'a' * 64}\n"
    assert {"--require-hashes", "--no-deps", ":all:"} <= set(calls[1])
    assert os.access(target / "bin" / "cudnn-verify", os.X_OK)
    asked = json.loads((target / "rtbuild-expect.json").read_text())
    assert (asked["python"], asked["frameworks"]) == ("3.11", {"six": "1.17.0"})
    assert document["report"]["expectation"] == pinned.cell.id
    with pytest.raises(UsageError, match="is there already"):
        app(["venv", str(tmp_path / "m.yaml"), "-o", str(target)], standalone_mode=False)


def test_venv_lays_out_what_an_image_has_for_cudnn_8_and_the_loader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loader's path is kept where the probe then finds something else, or nothing."""
    plain = pinned_cell(tmp_path, provider="wheels")
    cudnn = dataclasses.replace(plain.wheels[0], name="nvidia-cudnn-cu11", version="8.6.0.163")
    pinned = dataclasses.replace(plain, wheels=(*plain.wheels, cudnn))
    monkeypatch.setattr(venv.Locks, "pinned", lambda *_: pinned)
    monkeypatch.setattr(resources, "cache", lambda: tmp_path / "cache")
    target = tmp_path / "env"
    nvrtc = target / "lib/python3.11/site-packages/nvidia/cuda_nvrtc/lib"

    def uv(*arguments: str) -> None:
        if arguments[0] == "venv":
            (target / "bin").mkdir(parents=True)
            (target / "bin" / "python").symlink_to(Path(sys.executable).resolve())
        else:
            nvrtc.mkdir(parents=True)
            (nvrtc / "libnvrtc.so.11.2").touch()

    monkeypatch.setattr(venv, "_uv", uv)
    for second in ("cudnn-missing", "cudnn-sublibrary-missing", None):
        causes = iter(["cudnn-missing", second])
        monkeypatch.setattr(
            venv,
            "_ask",
            lambda *_, causes=causes: {"cause": next(causes), "verdict": "unverified", "summary": ""},
        )
        shutil.rmtree(target, ignore_errors=True)
        assert app(["venv", str(tmp_path / "m.yaml"), "-o", str(target)], standalone_mode=False) == 0
        assert (nvrtc / "libnvrtc.so").resolve().name == "libnvrtc.so.11.2"
        activate = target / "bin" / "activate"
        kept = activate.read_text() if activate.exists() else ""
        assert (f"LD_LIBRARY_PATH={nvrtc}" in kept) == (second != "cudnn-missing")


def test_venv_refuses_a_cell_whose_cuda_is_the_bases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pinned = pinned_cell(tmp_path, provider="base")
    monkeypatch.setattr(venv.Locks, "pinned", lambda *_: pinned)
    with pytest.raises(UsageError, match="takes CUDA from its base image"):
        app(["venv", str(tmp_path / "m.yaml"), "-o", str(tmp_path / "env")], standalone_mode=False)


def test_venv_ends_with_the_locks_failure_and_says_it_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pinned_cell(tmp_path)
    monkeypatch.setattr(venv, "finished", lambda *_, **__: 1)
    target = tmp_path / "env"
    assert app(["venv", str(tmp_path / "m.yaml"), "-o", str(target)], standalone_mode=False) == 1
    with pytest.raises(StaleLockError, match="there is no lock ") as raised:
        app(["venv", str(tmp_path / "m.yaml"), "-o", str(target), "--locked"], standalone_mode=False)
    assert "does not belong" not in raised.value.message


@pytest.mark.wheels
def test_from_a_word_to_a_verified_environment(tmp_path: Path) -> None:
    rtbuild_command.rtbuild(tmp_path, "init", "jax", "--python", "3.11", timeout=300)
    done = rtbuild_command.rtbuild(tmp_path, "venv", timeout=900)
    assert "unverified: no GPU here; all that can be checked without one is sound" in done.stderr


def test_explain_takes_a_cause_and_an_error_message_anywhere(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    inside(tmp_path, "explain", "cudnn-shadowed")
    assert capfd.readouterr().out.startswith("cudnn-shadowed: Another cuDNN")
    inside(tmp_path, "explain", "CUDNN_STATUS_NOT_INITIALIZED")
    fitting = capfd.readouterr().out
    assert "3 causes fit, the likeliest first" in fitting
    assert fitting.count("cudnnCreate could not start") == 1
    assert "no cause nothing" in inside(tmp_path, "explain", "nothing", check=2).stderr


def test_diagnose_reads_files_and_stdin_and_names_what_it_cannot_read(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "log").write_text("no kernel image is available for execution on the device\n")
    inside(tmp_path, "diagnose", "log", "--json")
    assert json.loads(capfd.readouterr().out)["cause"] == "framework-arch-missing"
    piped = subprocess.run(
        [*rtbuild_command.RTBUILD, "diagnose"],
        cwd=tmp_path,
        input="CUDNN_STATUS_ARCH_MISMATCH",
        capture_output=True,
        text=True,
        check=True,
    )
    assert piped.stdout.startswith("cudnn-arch-dropped: ")
    assert "No such file" in inside(tmp_path, "diagnose", "none", check=2).stderr


def test_a_card_of_another_maker_is_said_so(tmp_path: Path) -> None:
    said = inside(tmp_path, "resolve", "torch", "--gpu", "MI300X", "--offline", check=2).stderr
    assert "--gpu MI300X is AMD's, and CUDA runs on NVIDIA's GPUs alone" in said


def test_where_the_system_brings_cuda_pip_has_a_line_that_says_so(tmp_path: Path) -> None:
    done = inside(tmp_path, "resolve", "paddlepaddle-gpu", "--gpu", "T4", "--offline", "--limit", "1")
    lines = done.stderr.splitlines()
    number = next(n for n, line in enumerate(lines) if ": pip install paddlepaddle-gpu==" in line)
    where = lines[number + 1]
    assert "where the system has CUDA and cuDNN, as nvidia/cuda:" in where
    assert "PaddlePaddle from 2.6.3 on, which lies on an index of its maker's, https://" in done.stderr


def test_init_takes_packages_beside_the_framework_as_resolve_does(tmp_path: Path) -> None:
    inside(tmp_path, "init", "torch==2.1.2", "torchvision", "lightning==2.1.3", "--offline", "--gpu", "T4")
    (cell,) = load(tmp_path / "matrices" / "torch.yaml").cells
    assert cell.frameworks == ("torch==2.1.2",)
    assert {"torchvision==0.16.2", "lightning==2.1.3"} <= {*cell.pip}
