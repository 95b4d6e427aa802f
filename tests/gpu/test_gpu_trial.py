"""``make gpu`` on a machine without a card, and with doubles in its place: it says so, and claims nothing."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import run
import trial

HERE = Path(__file__).resolve().parent
GPU = {"name": "Tesla T4", "compute_capability": "7.5", "memory_total": 15 << 30}
DRIVER = {"version": "550.54.15", "api": "12.4"}

pytestmark = pytest.mark.skipif(
    any(Path("/dev").glob("nvidia[0-9]*")), reason="this machine has a card: make gpu is the test"
)


def start(*arguments: str, cwd: Path = HERE, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(HERE / "run.py"), *arguments],
        cwd=cwd,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_without_a_card_it_says_so_and_exits_5() -> None:
    done = start()
    assert done.returncode == 5, done.stderr
    assert "gpu: no GPU here that works: no trace of a GPU: no device node" in done.stdout
    assert not list(run.REPORTS.glob("*.json")) or "is written" not in done.stdout


def test_make_gpu_is_that_command() -> None:
    makefile = (HERE.parents[1] / "Makefile").read_text()
    assert "\ngpu: " in makefile
    assert "tests/gpu/run.py" in makefile.partition("\ngpu: ")[2].partition("\n\n")[0]


def test_a_double_of_the_driver_is_no_card(doubles) -> None:
    done = start(LD_LIBRARY_PATH=str(doubles.driver()))
    assert done.returncode == 5
    assert "test double" in done.stdout


def test_the_script_for_another_machine_needs_nothing_of_the_project(tmp_path: Path) -> None:
    script = tmp_path / "gpu_trial.py"
    script.write_text(run.payload() + run._LAST)
    done = subprocess.run(
        [sys.executable, "-I", script], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 5, done.stderr
    assert "no GPU here that works" in done.stdout
    assert run._BEGIN not in done.stdout
    assert (tmp_path / "gpu-trial" / "cudnn_verify.py").read_bytes() == run.probe()


def test_the_notebook_is_one_and_its_cells_run(tmp_path: Path) -> None:
    import nbformat

    done = start("--notebook", str(tmp_path / "gpu.ipynb"))
    assert done.returncode == 0, done.stderr
    book = nbformat.reads((tmp_path / "gpu.ipynb").read_text(), as_version=4)
    nbformat.validate(book)
    cells = "\n".join(cell["source"] for cell in book.cells if cell["cell_type"] == "code")
    (tmp_path / "cells.py").write_text(cells)
    ran = subprocess.run(
        [sys.executable, "cells.py"], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120
    )
    assert ran.returncode == 0, ran.stderr
    assert "there is no report: see above" in ran.stdout


class FakeBench(trial.Bench):
    """Answers as a sound machine with a T4 would; ``wrong`` names where it does not."""

    def __init__(self, wrong: str = "") -> None:
        super().__init__("cudnn_verify.py", "work", ["uv"])
        self.wrong, self.current = wrong, ""

    def python(self, name):
        self.current = name
        return Path("python")

    def packages(self, name):
        return {"nvidia-cudnn-cu12": "9.10.2.21"}

    def broken(self, fault):
        self.current = fault
        return super().broken("gpu-hidden")

    def library(self, name):
        return Path(name)

    def look(self, python, *arguments, **variables):
        if "--only" in arguments:
            return {
                "gpus": [GPU],
                "driver": DRIVER,
                "test_double": False,
                "probe": {"version": "0.1.0", "sha256": "00"},
            }, 1.0
        verdict, cause = trial.expected(self.current, GPU, DRIVER)
        if self.current == self.wrong:
            verdict, cause = "works", None
        checks = [
            {
                "stage": "convolution",
                "id": "C07",
                "outcome": "passed",
                "cause": None,
                "evidence": {"rows": [1]},
            }
        ]
        return {"verdict": verdict, "cause": cause, "summary": "so it is", "checks": checks}, 2.0


def test_the_table_of_a_sound_machine(tmp_path: Path, capsys) -> None:
    names = [*trial.ENVIRONMENTS, *trial.FAULTS]
    report = trial.examine(FakeBench(), names)
    assert [row["name"] for row in report["rows"]] == names
    assert all(map(trial.as_it_should, report["rows"]))
    run.keep(report, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "tesla-t4-550.54.15.json",
        "tesla-t4-550.54.15.md",
    ]
    page = (tmp_path / "tesla-t4-550.54.15.md").read_text()
    assert f"{len(names)} of {len(names)} as expected" in page
    assert "| environment | torch | works | works | yes | 2.0 |" in page
    assert "| fault | memory-taken | busy (out-of-memory) | busy (out-of-memory) | yes | 2.0 |" in page
    assert json.loads((tmp_path / "tesla-t4-550.54.15.json").read_text())["rows"][0]["convolutions"] == [1]


def test_a_fault_that_passes_as_sound_is_shown(capsys) -> None:
    report = trial.examine(FakeBench("part-missing"), [*trial.FAULTS])
    assert [row["name"] for row in report["rows"] if not trial.as_it_should(row)] == ["part-missing"]
    assert "| works | **no** |" in trial.page(report)
    assert "- part-missing: so it is" in trial.page(report)


@pytest.mark.parametrize(
    ("name", "capability", "api", "wanted"),
    [
        ("torch", "7.5", "12.4", ("works", None)),
        ("cudnn-9.28", "7.0", "12.4", ("unsupported-gpu", "cudnn-arch-dropped")),
        ("cudnn-cuda13", "7.5", "12.4", ("host", "driver-too-old")),
        ("cudnn-cuda13", "9.0", "13.0", ("works", None)),
        ("cudnn-cuda13", "7.0", None, ("host", "driver-too-old")),
        ("gpu-hidden", "9.0", "13.0", ("host", "device-hidden")),
    ],
)
def test_what_a_card_and_a_driver_lead_to(name, capability, api, wanted) -> None:
    assert trial.expected(name, GPU | {"compute_capability": capability}, {"api": api}) == wanted


@pytest.mark.parametrize("fault", ["part-missing", "parts-of-two-versions"])
def test_a_broken_environment_is_whole_again_afterwards(fault, tmp_path: Path) -> None:
    bench = trial.Bench("cudnn_verify.py", tmp_path, ["uv"])
    library = tmp_path / "cudnn-9/lib/python3.11/site-packages/nvidia/cudnn/lib"
    older = tmp_path / "older/nvidia/cudnn/lib"
    for folder, text in ((library, "9.10"), (older, "9.1")):
        folder.mkdir(parents=True)
        (folder / "libcudnn_cnn.so.9").write_text(text)
    part = library / "libcudnn_cnn.so.9"

    def stop_in_the_middle() -> None:
        with bench.broken(fault):
            assert (part.read_text() if part.exists() else None) == {"part-missing": None}.get(fault, "9.1")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        stop_in_the_middle()
    assert part.read_text() == "9.10"


def test_the_memory_is_taken_and_given_back(doubles, monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(doubles.driver()))
    monkeypatch.setenv("RTBUILD_DOUBLE_FREE", str(40 << 20))
    monkeypatch.setenv("RTBUILD_DOUBLE_LOG", str(tmp_path / "log"))
    (tmp_path / "cudnn-9/lib/python3/site-packages/nvidia/cudnn/lib").mkdir(parents=True)
    with trial.Bench("cudnn_verify.py", tmp_path, ["uv"]).broken("memory-taken") as variables:
        assert variables == {}
        log = (tmp_path / "log").read_text().splitlines()
        # 32 and 8 MiB fit, nothing else does
        assert log.count("called cuMemAlloc_v2") == 13
        assert not [line for line in log if line.startswith("refused")]


def fake_colab(folder: Path, body: str) -> str:
    """A stand-in for Google's ``colab run --gpu GPU SCRIPT``; the PATH with it."""
    program = folder / "colab"
    program.write_text(f"#!{sys.executable}\nimport subprocess, sys\n{body}\n")
    program.chmod(program.stat().st_mode | stat.S_IEXEC)
    return f"{folder}:{os.environ['PATH']}"


def test_the_colab_command_gets_the_script(tmp_path: Path) -> None:
    asked = 'assert sys.argv[1:4] == ["run", "--gpu", "T4"], sys.argv\n'
    path = fake_colab(tmp_path, asked + "sys.exit(subprocess.call([sys.executable, sys.argv[4]]))")
    done = start("--colab", "T4", cwd=tmp_path, PATH=path)
    assert done.returncode == 5, done.stderr
    assert "no GPU here that works" in done.stdout


def test_a_report_that_comes_back_is_kept(tmp_path: Path, monkeypatch, capsys) -> None:
    report = trial.examine(FakeBench(), ["cudnn-9"], lambda _line: None)
    sent = f"{run._BEGIN}\\n{json.dumps(report)}\\n{run._END}"
    monkeypatch.setenv("PATH", fake_colab(tmp_path, f"print({sent!r}.replace(chr(92) + 'n', chr(10)))"))
    kept = []
    monkeypatch.setattr(run, "keep", kept.append)
    assert run.on_colab("T4", None) == 0
    assert kept == [json.loads(json.dumps(report))]


def test_without_the_colab_command(tmp_path: Path) -> None:
    done = start("--colab", "T4", PATH=f"{tmp_path}:/usr/bin:/bin")
    assert done.returncode == 5
    assert "uv tool install google-colab-cli" in done.stdout


@pytest.mark.wheels
@pytest.mark.parametrize("name", trial.ENVIRONMENTS)
def test_every_environment_can_be_had(name: str) -> None:
    command = [*trial.find_uv(), "pip", "compile", "-q", "--no-header", "--python-version", "3.12", "-"]
    done = subprocess.run(
        [*command, "--python-platform", "x86_64-manylinux_2_28", "--only-binary", ":all:"],
        input="\n".join(trial.ENVIRONMENTS[name]),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "nvidia-cudnn-cu1" in done.stdout
