"""Tags: measured in the report, legal, bounded, in their order; and which of them may move."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from doubles.project import Project, report

from builder.core.errors import CellError, RegistryError
from builder.release.publish.gate import (
    LONGEST,
    Publication,
    TagStep,
    immutable_tag,
    measure,
    moving_tags,
    refuse_clashes,
    steps,
    tag_of,
    tags_of,
)
from builder.sources.oci.staging import NoImageError
from builder.verify.runner.reports import parse

if TYPE_CHECKING:
    from builder.core.model import Cell

DIGEST = "sha256:" + "5f0c1d2e3a4b" + "0" * 52


@pytest.fixture(scope="module")
def cell(tmp_path_factory: pytest.TempPathFactory) -> Cell:
    return Project(tmp_path_factory.mktemp("project")).cell


def measured(cell: Cell, **changes: Any) -> Any:
    return measure(parse(json.dumps(report(**changes))), cell)


def test_what_was_found_is_in_the_tag_and_not_what_was_asked(cell: Cell) -> None:
    found = measured(cell, python="3.12.9", machine={"distribution": "Ubuntu 22.04.4 LTS"})
    assert tag_of(found, cell) == "tensorflow2.15.1-py3.12.9-cuda12.2-cudnn8.9.4-ubuntu22.04"


@pytest.mark.parametrize(
    ("distribution", "system"),
    [
        ("Debian GNU/Linux 12 (bookworm)", "bookworm"),
        ("Debian GNU/Linux 11 (bullseye)", "bullseye"),
        ("Ubuntu 20.04.6 LTS", "ubuntu20.04"),
        ("Rocky Linux 9.3 (Blue Onyx)", "rocky9.3"),
        ("", ""),
    ],
)
def test_the_operating_system(cell: Cell, distribution: str, system: str) -> None:
    found = measured(cell, machine={"distribution": distribution})
    assert found.partition("-cudnn8.9.4")[2] == (f"-{system}" if system else "")


def test_where_cuda_is_read(cell: Cell) -> None:
    """Loaded, else mapped, else installed, else compiled for: the first that the report has."""
    row = {"name": "tensorflow", "version": "2.15.1", "compiled": {"cuda": "12.1", "cudnn": "8"}}
    loaded = [{**row, "loaded": {"cuda": "12.4.127", "cudnn": "8.9.4"}}]
    silent = [{**row, "loaded": {"cuda": None, "cudnn": "8.9.4"}}]
    cudart = [{"name": "libcudart.so.12", "path": "/x", "version": "12.3.101"}]
    none = {"packages": {"tensorflow": "2.15.1"}}
    assert "-cuda12.4-" in measured(cell, frameworks=loaded)
    assert "-cuda12.3-" in measured(cell, frameworks=silent, libraries=cudart)
    assert "-cuda12.2-" in measured(cell, frameworks=silent), "the wheel that is installed"
    assert "-cuda12.1-" in measured(cell, frameworks=silent, fingerprint=none)
    assert "-cuda" not in measured(cell, frameworks=[], fingerprint=none)


def test_what_cannot_be_measured_gives_no_tag(cell: Cell) -> None:
    with pytest.raises(CellError, match="which version of tensorflow"):
        measured(cell, frameworks=[], fingerprint={})
    with pytest.raises(CellError, match="which cuDNN"):
        measured(cell, frameworks=[], libraries=[])
    with pytest.raises(CellError, match="which Python"):
        measured(cell, python="unknown")
    two = [{"name": "libcudnn.so.8", "path": f"/{v}", "version": v} for v in ("8.6.0", "8.9.4")]
    with pytest.raises(CellError, match=r"several cuDNN were loaded: 8\.6\.0, 8\.9\.4"):
        measured(cell, frameworks=[], libraries=two)


def test_tags_are_legal_and_bounded(cell: Cell) -> None:
    local = [{"name": "torch", "version": "2.1.0+CU118", "loaded": {"cuda": "11.8", "cudnn": "8.7.0"}}]
    torch = replace(cell, frameworks=("torch==2.1.0+cu118",), variant="x" * 120, platform="linux/arm64")
    found = measured(torch, frameworks=local)
    assert found.startswith("torch2.1.0_cu118-py3.11.2-cuda11.8-cudnn8.7.0")
    assert "-arm64-" in tag_of(found, torch)
    assert len(tag_of(found, torch)) == LONGEST
    assert len(immutable_tag(found, torch, DIGEST)) == LONGEST
    assert immutable_tag(found, torch, DIGEST).endswith("-5f0c1d2e3a4b")


def test_the_order_of_the_tags(cell: Cell) -> None:
    aliases = (("latest", cell.id), ("other", "another-cell"), ("2.15", cell.id))
    tags = tags_of(cell, measured(cell), DIGEST, moving_tags(cell, aliases))
    assert list(tags.values()) == ["immutable", "measured", "cell", "alias", "alias"]
    assert list(tags)[2:] == [cell.id, "latest", "2.15"]


def test_two_cells_that_want_one_name_in_one_repository(cell: Cell) -> None:
    def row(target: str, name: str, *tags: str) -> Publication:
        steps = [TagStep(name=tag, kind="cell", was=None, digest=DIGEST) for tag in tags]
        return Publication(
            cell=replace(cell, id=name), source="s", target=target, moving=(), steps=tuple(steps)
        )

    rows = [row("r", "one", "x", "y"), row("r", "two", "x"), row("elsewhere", "three", "x")]
    refuse_clashes(rows)
    assert [len(row.refusals) for row in rows] == [1, 1, 0]
    assert rows[0].refusals[0].text == f"r:x is also wanted for two of {cell.matrix}"


@dataclass
class Tags:
    """A test double of a registry that has tags, and under them no image that rtbuild made."""

    tags: dict[str, str] = field(default_factory=dict)
    down: bool = False

    def digest_of(self, reference: str) -> str | None:
        return self.tags.get(reference)

    def manifest(self, reference: str) -> Any:
        raise RegistryError("HTTP 503") if self.down else NoImageError(f"{reference} cannot be read")

    def blob(self, reference: str, digest: str) -> bytes:
        raise RegistryError(f"{digest} cannot be read")


def test_which_tags_may_move(cell: Cell) -> None:
    tags: dict[str, Any] = {"i": "immutable", "m": "measured", "n": "alias"}
    registry = Tags({"r:i": "sha256:other", "r:m": "sha256:other", "r:n": DIGEST})
    found, against = steps(registry, "r", cell, tags, DIGEST, overwrite=False)
    assert [step.action for step in found] == ["move", "move", "there"]
    assert [refusal.text.partition(",")[0] for refusal in against] == [
        "r:i names sha256:other and never moves",
        "r:m is sha256:other",
    ]
    _, against = steps(registry, "r", cell, tags, DIGEST, overwrite=True)
    assert len(against) == 1, "what never moves does not move by --overwrite either"


def test_a_registry_that_does_not_answer_is_nobody_else_s_tag(cell: Cell) -> None:
    """Nobody is told to use --overwrite over a fault that passes."""
    registry = Tags({"r:m": "sha256:other"}, down=True)
    with pytest.raises(RegistryError, match="HTTP 503"):
        steps(registry, "r", cell, {"m": "measured"}, DIGEST, overwrite=False)


def test_a_measured_tag_of_another_cell_of_the_matrix_stays(
    cell: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Published one after the other they are told apart as well; a cell that is gone leaves its tag."""
    labels = {"io.rtbuild.matrix": cell.matrix, "io.rtbuild.cell": "other"}
    image = SimpleNamespace(label=labels.get)
    monkeypatch.setattr("builder.release.publish.gate.look", lambda _registry, _reference: image)
    registry = Tags({"r:m": "sha256:other", "r:latest": "sha256:other"})
    tags: dict[str, Any] = {"m": "measured", "latest": "alias"}

    def against(*, others: set[str], overwrite: bool = False) -> list[str]:
        _, refusals = steps(registry, "r", cell, tags, DIGEST, others=others, overwrite=overwrite)
        return [refusal.text for refusal in refusals]

    assert against(others={"other"}) == ["r:m is sha256:other, the image of other, which has the same tag"]
    assert against(others={"other"}, overwrite=True) == []
    assert against(others=set()) == []
