"""How near an image is to a runtime, and what is said of each exception."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from doubles.engine import EngineDouble, stored

from builder.core.errors import CellError, CommandError, UsageError
from builder.image.engine.container import ProbeRun
from builder.release.colab.diff import (
    _SCRIPT,
    Inventory,
    Listed,
    Parity,
    ParityRow,
    ParityStatus,
    compare,
    labelled,
    listed,
    measure,
)
from builder.verify.runner.reports import parse

REPORT = {
    "schema": 1,
    "probe": {"version": "0.1.0", "sha256": "0" * 64},
    "verdict": "unverified",
    "cause": None,
    "side": None,
    "summary": "no GPU here",
    "remedy": None,
    "proof": [],
    "consequences": [],
    "checks": [],
    "python": "3.11.2",
    "gpus": [],
    "driver": None,
    "libraries": [],
    "frameworks": [
        {"name": "torch", "version": "2.6.0+cu124", "loaded": {"cuda": "12.5", "cudnn": "9.3.0"}},
        {"name": "jax", "version": "0.5.2", "loaded": None},
    ],
    "differences": [],
    "test_double": False,
    "seconds": 1.0,
}
RUNTIME = Listed(
    runtime="2025.07",
    python="3.11.13",
    cuda="12.5.1",
    cudnn="9.2.1.18",
    packages={
        "torch": "2.6.0+cu124",
        "jax": "0.5.2",
        "nvidia-cudnn-cu12": "9.3.0.75",
        "Pillow": "11.2.1",
        "numpy": "2.0.2",
        "gym": "0.25.2",
        "lost": "1",
        "gateway": None,
    },
    missing=[
        {"name": "gym", "detail": "only sources"},
        {"name": "gateway", "detail": "from a repository"},
    ],
)
PACKAGES = {
    "torch": "2.6.0",
    "jax": "0.5.2",
    "nvidia-cudnn-cu12": "9.3.0.75",
    "pillow": "11.2.1",
    "numpy": "2.1.0",
    "gateway": "3.0",
    "jupyterlab": "4.0",
}


def measured(packages=PACKAGES, inside=(("torch", "2.6.0+cu124"),), report=REPORT):
    return Inventory(
        python="3.11.2", packages=packages, inside=dict(inside), report=parse(json.dumps(report))
    )


def test_the_figures_and_each_exception():
    parity = compare(RUNTIME, measured())
    assert [(row.name, row.status.value) for row in parity.core] == [
        ("Python", "same"),
        ("CUDA", "same"),
        ("cuDNN", "same"),
        ("torch", "same"),
        ("jax", "same"),
    ]
    assert {row.name: (row.status, row.found) for row in parity.packages} == {
        "gateway": (ParityStatus.SAME, "3.0"),
        "gym": (ParityStatus.MISSING, None),
        "jupyterlab": (ParityStatus.EXTRA, "4.0"),
        "lost": (ParityStatus.MISSING, None),
        "numpy": (ParityStatus.OTHER, "2.1.0"),
        "nvidia-cudnn-cu12": (ParityStatus.SAME, "9.3.0.75"),
        "Pillow": (ParityStatus.SAME, "11.2.1"),
    }
    why = {row.name: row.why for row in parity.packages}
    assert why["gym"] == "only sources"
    assert why["lost"].startswith("not in the image, although it could be")
    assert why["gateway"].startswith("the list gives no version")
    assert (parity.listed, round(parity.present, 1), round(parity.same, 1)) == (6, 66.7, 50.0)
    assert parity.exact
    assert not parity.reached
    document = parity.as_json()
    assert document["counts"] == {"same": 3, "other": 1, "missing": 2, "unasked": 0, "extra": 1}
    assert "Pillow" not in {row["name"] for row in document["packages"]}


def test_what_only_a_silent_index_has_is_counted_apart_but_for_frameworks():
    index = "NVIDIA's own index"
    silent = RUNTIME.model_copy(
        update={"unasked": dict.fromkeys(("lost", "numpy", "Pillow", "torch"), index)}
    )
    parity = compare(silent, measured(inside=()))
    rows = {row.name: (row.status.value, row.found) for row in parity.packages}
    assert rows["lost"] == ("unasked", None)
    assert rows["numpy"] == ("unasked", "2.1.0")
    assert rows["Pillow"] == ("same", "11.2.1")
    assert [row.status.value for row in parity.core if row.name == "torch"] == ["other"]
    assert compare(RUNTIME, measured()).listed - parity.listed == 2
    assert parity.as_json()["counts"]["unasked"] == 2


def test_another_build_of_the_same_version_is_another_version():
    parity = compare(RUNTIME, measured(inside=(("torch", "2.6.0+cu126"),)))
    torch = next(row for row in parity.core if row.name == "torch")
    assert (torch.status, torch.found) == (ParityStatus.OTHER, "2.6.0")
    assert not parity.exact


@pytest.mark.parametrize(
    ("loaded", "status"),
    [({"cuda": "12.4", "cudnn": "9.3.0"}, "other"), ({}, "missing"), ({"cuda": "12.5"}, "same")],
)
def test_cuda_is_what_is_loaded(loaded, status):
    frameworks = [{"name": "torch", "version": "2.6.0", "loaded": loaded}]
    core = compare(RUNTIME, measured(report=REPORT | {"frameworks": frameworks})).core
    assert next(row for row in core if row.name == "CUDA").status.value == status


def test_a_runtime_that_is_all_there_reaches_the_goals():
    whole = {name.lower(): version or "1" for name, version in RUNTIME.packages.items()}
    parity = compare(RUNTIME, measured(packages=whole))
    assert (parity.present, parity.same, parity.reached) == (100.0, 100.0, True)


def test_only_labels_are_asked_for():
    assert labelled(RUNTIME) == ("torch",)


def test_a_runtime_by_name_or_record(tmp_path):
    record = {
        "schema": 1,
        "runtime": "2025.07",
        "python": "3.11.13",
        "cuda": None,
        "cudnn": None,
        "packages": {"a": "1", "b": None},
        "missing": [{"name": "b", "detail": "gone", "version": None, "reason": "absent"}],
    }
    path = tmp_path / "colab-2025.07.runtime.json"
    path.write_text(json.dumps(record))
    found = listed("2025.07", folder=tmp_path)
    assert found == listed(str(path))
    assert found.reasons == {"b": "gone"}
    with pytest.raises(UsageError) as caught:
        listed("2025.10", folder=tmp_path)
    assert "imported here: 2025.07; 2025.10 is commit 7a0599e" in (caught.value.hint or "")
    path.write_text('{"schema": 1}')
    with pytest.raises(UsageError, match="is no record of an import"):
        listed(str(path))


THERE = {"image": stored("image")}


def test_an_image_is_asked_twice():
    said = json.dumps({"python": "3.11.2", "packages": {"Pillow": "1"}, "inside": {"Torch": "2+cu1"}})
    engine = EngineDouble(run=[ProbeRun(stdout=said), ProbeRun(stdout=json.dumps(REPORT))], images=THERE)
    found = measure(engine, "image", probe=b"#", labelled=["torch"])
    assert (found.packages, found.inside) == ({"pillow": "1"}, {"torch": "2+cu1"})
    assert engine.started[0][1][-2:] == ["/mnt/packages.py", "torch"]
    assert engine.started[1][1][-2:] == ["/mnt/cudnn_verify.py", "--json"]


def test_an_image_that_does_not_answer():
    with pytest.raises(CellError, match="the engine has no image nothing"):
        measure(EngineDouble(), "nothing", probe=b"#")
    with pytest.raises(CommandError, match="does not say what is in it: it has no Python"):
        measure(EngineDouble(run=ProbeRun(), images=THERE), "image", probe=b"#")
    refused = ProbeRun(started=False, daemon_error="exec format error")
    with pytest.raises(CommandError, match="exec format error"):
        measure(EngineDouble(run=refused, images=THERE), "image", probe=b"#")


def test_a_goal_is_not_reached_if_nothing_could_be_compared():
    row = ParityRow(name="cudf-cu12", asked="1", found=None, status=ParityStatus.UNASKED)
    core = (ParityRow(name="Python", asked="3.12", found="3.12", status=ParityStatus.SAME),)
    assert not Parity(runtime="x", core=core, packages=(row,)).reached
    assert Parity(runtime="x", core=core, packages=()).reached
    assert Parity(runtime="x", core=core, packages=(row, replace(row, status=ParityStatus.SAME))).reached


def test_an_image_that_prints_something_of_its_own():
    """The page of its answer was "a fault of rtbuild"."""
    said = json.dumps({"python": "3.11.2", "packages": {"Pillow": "1"}, "inside": {}})
    runs = [
        ProbeRun(stdout=f"a banner\n{said}\n"),
        ProbeRun(stdout=f"a banner\n{json.dumps(REPORT, indent=2)}\n"),
    ]
    found = measure(EngineDouble(run=runs, images=THERE), "image", probe=b"#")
    assert found.packages == {"pillow": "1"}
    assert found.report.summary == "no GPU here"
    for text in ("a banner", '{"python": "3.11.2", "packages": {"a": null}, "inside": {}}', "[]"):
        with pytest.raises(CellError, match="does not say what is in it"):
            measure(EngineDouble(run=ProbeRun(stdout=text), images=THERE), "image", probe=b"#")


def test_a_package_is_asked_for_what_its_code_says_by_its_canonical_name(tmp_path: Path) -> None:
    (tmp_path / "A_b.C-1.0.dist-info").mkdir()
    (tmp_path / "A_b.C-1.0.dist-info" / "METADATA").write_text("Name: A_b.C\nVersion: 1.0\n")
    (tmp_path / "a_b_c").mkdir()
    (tmp_path / "a_b_c" / "version.py").write_text("__version__ = '1.0+cu124'\n")
    ran = subprocess.run(
        [sys.executable, "-c", _SCRIPT, "a-b-c"],
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        check=True,
    )
    assert json.loads(ran.stdout)["inside"] == {"A_b.C": "1.0+cu124"}
