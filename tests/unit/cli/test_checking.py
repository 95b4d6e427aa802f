"""What was read before decides from then on: for check, for explain and for build, without any network."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest
import rtbuild_command
from rtbuild_command import called

from builder.cli import options
from builder.cli.app import app
from builder.cli.commands import dispatch
from builder.cli.commands.check import check, explain
from builder.cli.commands.dispatch import doctor
from builder.core.errors import CellError, UsageError
from builder.image.engine.doctor import DoctorCheck
from builder.pipeline.events import CellRun
from builder.pipeline.run_context import Locks, RunContext, Stores
from builder.pipeline.stages import check_cell
from builder.plan.facts.reading.cache import ReadingCache
from builder.plan.facts.reading.observed import BaseTruth
from builder.plan.matrix import load

if TYPE_CHECKING:
    from builder.core.model import Matrix

TAG = "nvidia/cuda:12.8.1-base-ubuntu24.04"


@pytest.fixture
def matrix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Matrix:
    monkeypatch.setenv("RTBUILD_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("RTBUILD_REGISTRY_MIRROR", raising=False)
    path = tmp_path / "m.yaml"
    path.write_text(
        "version: 1\nname: m\ninclude:\n"
        f"  - {{framework: 'torch==2.9.1', python: '3.12', base: '{TAG}', cuda: wheels}}\n"
    )
    return load(path)


def said(base: BaseTruth) -> None:
    """A registry's answer, as an earlier reading kept it."""
    ReadingCache().keep_base(TAG, "linux/amd64", base)


@pytest.mark.parametrize("word", ["torch", "torch==1.12", "tf==2.10", "jax[cuda12]"])
def test_a_requirement_in_a_matrix_files_place_leads_to_resolve(word: str, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="is a requirement, and this command reads matrix files") as caught:
        called(check, [Path(word)])
    assert f"`rtbuild resolve '{word}'`" in str(caught.value.hint)
    with pytest.raises(UsageError, match="no matrix file"):
        called(check, [Path("nothing")])


def test_check_writes_its_answers_as_junit(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("RTBUILD_CACHE", str(tmp_path / "cache"))
    path, junit = tmp_path / "m.yaml", tmp_path / "check.xml"
    rows = [
        "{framework: 'torch==2.9.1', python: '3.12', base: 'rootfs:debian/trixie', cuda: wheels}",
        "{framework: 'torch==2.9.1', python: '3.13', base: 'rootfs:debian/trixie', cuda: wheels}",
    ]
    path.write_text("version: 1\nname: m\ninclude:\n" + "".join(f"  - {row}\n" for row in rows))
    assert called(check, [path], gpu=["Tesla K80"], junit=junit) == 1
    suite = ElementTree.fromstring(junit.read_bytes())[0]
    assert suite.get("name") == "m"
    assert suite.get("tests") == suite.get("failures") == "2"
    failure = suite[0][0]
    assert failure.tag == "failure"
    assert failure.get("message") in capsys.readouterr().out
    rows = ["{framework: 'torch==99.1', python: '3.12', base: 'rootfs:debian/trixie', cuda: wheels}"]
    path.write_text("version: 1\nname: m\ninclude:\n" + "".join(f"  - {row}\n" for row in rows))
    assert called(check, [path], junit=junit) == 0
    assert ElementTree.fromstring(junit.read_bytes())[0][0][0].tag == "skipped"


def test_check_says_where_nobody_asked_whether_the_packages_load(matrix: Matrix, capsys) -> None:
    assert called(check, [matrix.path], driver=["590"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    unasked = "whether all packages load and import was not asked: no lock names their wheels"
    assert f"in 1 cell: {unasked}; next: `rtbuild lock`" in shown
    assert called(explain, matrix.cells[0].id, [matrix.path], driver=["590"]) == 0
    assert unasked in capsys.readouterr().out
    assert called(check, [matrix.path], driver=["590"], json_=True) == 0
    (row,) = json.loads(capsys.readouterr().out)["cells"]
    assert row["files_read"] is False
    assert row["files_unread"].startswith("no lock names")
    assert called(check, [matrix.path], driver=["450"]) == 1
    assert unasked not in capsys.readouterr().out, "what is refused needs no proof"


def test_check_names_the_table_until_something_was_read(matrix: Matrix, capsys) -> None:
    options = {"driver": ["590"], "json_": True}
    assert called(check, [matrix.path], **options) == 0
    before = json.loads(capsys.readouterr().out)
    assert before["cells"][0]["answer"] == "possible"
    assert before["cells"][0]["outcome"] == "possible"  # works is said of what ran
    assert "read" not in before
    # a tag that was rebuilt with another release inside
    said(BaseTruth(reference=TAG, digest="sha256:1", env=(("CUDA_VERSION", "12.9.1"),)))
    assert called(check, [matrix.path], **options) == 0
    findings = json.loads(capsys.readouterr().out)["cells"][0]["findings"]
    message = next(finding["message"] for finding in findings if finding["rule"] == "disagreement")
    assert "CUDA in the base: 12.9.1 was read from the registry, the tables say 12.8.1" in message
    said(BaseTruth(reference=TAG, exists=False))
    assert called(check, [matrix.path], **options) == 1
    assert json.loads(capsys.readouterr().out)["cells"][0]["answer"] == "impossible"


def test_explain_tells_what_the_registry_said(matrix: Matrix, capsys) -> None:
    said(BaseTruth(reference=TAG, exists=False))
    assert called(explain, "*", [matrix.path]) == 1
    text = capsys.readouterr().out
    assert f"the registry has no {TAG}" in text
    assert "[registry: " in text


def test_build_stops_a_cell_whose_base_is_gone(matrix: Matrix) -> None:
    said(BaseTruth(reference=TAG, exists=False))
    site = RunContext(lambda _event: None, stores=Stores(Locks([matrix])))
    walk = CellRun(matrix.cells[0], lambda _event: None, threading.Event())
    with pytest.raises(CellError, match=f"the registry has no {TAG}"):
        check_cell(walk, site)


def test_reading_without_anybody_there_is_unknown_and_says_what_it_cost(
    matrix: Matrix, capsys, monkeypatch
) -> None:
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1:9/simple")
    assert called(check, [matrix.path], read=True, mirror=["docker.io=http://127.0.0.1:9"], json_=True) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["cells"][0]["outcome"] == "unknown"
    assert next(f["message"] for f in document["cells"][0]["findings"] if f["rule"] == "unread").endswith(
        "connection refused"
    )
    assert document["read"]["bases"] == 1
    assert document["read"]["bytes"] == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("13.0", "is a CUDA version, not a driver"),
        ("12.2", "like --driver 535"),
        ("wsl", "is no driver version"),
        ("5350", "no driver version"),
    ],
)
def test_a_driver_that_is_none_is_named_with_what_one_is_like(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        options.driver(text)
    assert "535.104.05" in (caught.value.hint or "")
    for good in (None, "535", "535.104.05", "590.44"):
        assert options.driver(good) == good


def test_of_several_drivers_each_is_asked_and_a_finding_of_one_names_it(matrix: Matrix, capsys) -> None:
    assert called(check, [matrix.path], driver=["450", "590"], json_=True) == 1
    (row,) = json.loads(capsys.readouterr().out)["cells"]
    refused = [f["message"] for f in row["findings"] if f["outcome"] == "impossible"]
    assert refused
    assert all("driver 450" in text for text in refused)
    assert called(check, [matrix.path], driver=["590,580"], json_=True) == 0
    assert options.drivers(["590", "470, 535.54.3"]) == ["470", "535.54.3", "590"]
    with pytest.raises(UsageError, match="no driver version"):
        called(check, [matrix.path], driver=["590", "new"])


def test_a_card_that_nobody_knows_is_named_with_its_neighbours() -> None:
    assert options.card("NVIDIA GeForce RTX 4090 Laptop GPU") == "RTX4090"
    assert options.card("7.5") == "sm_75"
    with pytest.raises(UsageError, match="RTX 9999 is no GPU") as caught:
        options.card("RTX 9999")
    assert "RTX" in (caught.value.hint or "")
    with pytest.raises(UsageError):  # no report about the desktop card speaks for a laptop's
        options.card("NVIDIA GeForce RTX 4090 Laptop GPU", alike=False)


def test_a_card_is_asked_about_beside_those_of_the_matrix(matrix: Matrix, capsys) -> None:
    text = matrix.path.read_text().replace("cuda: wheels", "cuda: wheels, gpus: [T4]")
    matrix.path.write_text(text)
    assert called(check, [matrix.path], json_=True) == 0
    capsys.readouterr()
    assert called(check, [matrix.path], gpu=["Tesla K80"], json_=True) == 1
    rules = {f["rule"] for f in json.loads(capsys.readouterr().out)["cells"][0]["findings"]}
    assert "gpu" in rules
    assert called(explain, "*", [matrix.path], gpu=["K80"]) == 1
    assert "K80" in capsys.readouterr().out
    with pytest.raises(UsageError, match="is no GPU that rtbuild knows"):
        called(check, [matrix.path], gpu=["RTX 9999"])


def test_cells_of_one_id_in_two_files_are_judged_apart(tmp_path: Path) -> None:
    for name, card in (("sound", "T4"), ("broken", "RTX5090")):
        row = f"{{framework: torch==2.1.2, gpus: [{card}]}}"
        (tmp_path / f"{name}.yaml").write_text(
            f"version: 1\nname: {name}\n"
            "defaults: {python: '3.11', base: 'rootfs:debian/bookworm', cuda: wheels}\n"
            f"include: [{row}]\n"
        )
    files = [str(tmp_path / f"{name}.yaml") for name in ("sound", "broken")]
    done = rtbuild_command.inside(tmp_path, "check", "--json", *files, check=None)
    rows = json.loads(done.stdout)["cells"]
    assert len({row["id"] for row in rows}) == 1
    assert [(row["matrix"], row["answer"]) for row in rows] == [
        ("sound", "possible"),
        ("broken", "impossible"),
    ]
    lines = rtbuild_command.inside(tmp_path, "check", *files, check=None).stdout.splitlines()
    assert [line.split()[0] for line in lines if not line.startswith(("    ", "in "))][:2] == ["✓", "✗"]
    assert "1 of 2 impossible" in lines[-1]


def _two_files_of_one_id(folder: Path, *, other: str) -> list[Path]:
    rows = {"one": "", "other": other}
    for name, more in rows.items():
        (folder / f"{name}.yaml").write_text(
            f"version: 1\nname: {name}\ninclude:\n"
            f"  - {{framework: 'torch==2.9.1', python: '3.12', base: '{TAG}', cuda: wheels{more}}}\n"
        )
    return [folder / "one.yaml", folder / "other.yaml"]


def test_one_id_of_different_cells_is_not_written(tmp_path: Path) -> None:
    both = _two_files_of_one_id(tmp_path, other=", pip: [numpy]")
    with pytest.raises(
        UsageError, match=r"two cells have the id torch2\.9\.1.* in .*one\.yaml and in .*other"
    ) as no:
        options.choose_to_write(both, None, None)
    assert "one file at a time" in str(no.value.hint)
    assert len(options.choose(both, None, None)[1]) == 2
    assert len(options.choose_to_write(both[:1], None, None)[1]) == 1


def test_a_cell_that_two_files_have_alike_is_written_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    both = _two_files_of_one_id(tmp_path, other="")
    matrices, cells = options.choose_to_write(both, None, None)
    assert [matrix.name for matrix in matrices] == ["one", "other"]
    assert [cell.matrix for cell in cells] == ["one"]
    assert [cell.matrix for cell in options.choose_to_write(both[::-1], None, None)[1]] == ["other"]
    assert "the same cell in" in capsys.readouterr().err


def test_the_repositorys_own_matrices_can_be_written_together(capsys: pytest.CaptureFixture[str]) -> None:
    own = sorted((Path(__file__).parents[3] / "matrices").glob("*.yaml"))
    every = options.choose(own, None, None)[1]
    written = options.choose_to_write(own, None, None)[1]
    assert sorted(cell.id for cell in written) == sorted({cell.id for cell in every})
    told = capsys.readouterr().err.splitlines()
    assert len(told) == len(every) - len(written)


def test_doctor_begins_with_what_the_machine_is_ready_for(monkeypatch, capsys) -> None:
    def seen(**outcomes: str) -> list[DoctorCheck]:
        found = {"engine": "passed", "uv": "passed", "GPU": "passed"} | outcomes
        return [DoctorCheck(name, one, "x", required=name == "engine") for name, one in found.items()]

    monkeypatch.setattr(dispatch.Engine, "connect", lambda **_: object())
    checks = seen()
    monkeypatch.setattr(dispatch, "diagnose", lambda *_, **__: checks)
    assert called(doctor, json_=True) == 0
    assert json.loads(capsys.readouterr().out)["ready_for"] == {"plan": True, "build": True, "verify": True}
    checks[:] = seen(engine="failed", GPU="not_run")
    assert called(doctor, json_=True) == 5
    ready = json.loads(capsys.readouterr().out)["ready_for"]
    assert ready == {"plan": True, "build": False, "verify": False}
    assert called(doctor) == 5
    plan, build, tried, *_ = capsys.readouterr().out.splitlines()
    assert plan.startswith("✓ ready to plan (resolve, check, diagnose")
    assert "not ready to build" in build
    assert "--engine none" in build
    assert "it lacks engine and GPU" in tried
    checks[:] = seen(GPU="failed")
    assert called(doctor) == 0
    assert "it lacks GPU" in capsys.readouterr().out


def test_a_cell_that_cannot_be_judged_is_no_success(
    matrix: Matrix, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise CellError("its reading is damaged")

    monkeypatch.setattr(ReadingCache, "truth", broken)
    for command in (("check", str(matrix.path)), ("explain", "*", str(matrix.path))):
        assert app(command, standalone_mode=False) == 1
        assert "its reading is damaged" in capsys.readouterr().out
