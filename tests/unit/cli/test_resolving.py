"""rtbuild resolve: a matrix on stdout, talk on stderr, and only what the package index has."""

from __future__ import annotations

import json

import pytest

from builder.cli import resolving
from builder.errors import CellError, PackageIndexError, UsageError
from builder.facts.availability import ask
from builder.index.simple_api import IndexFile
from builder.matrix import load

LINUX = "manylinux_2_17_x86_64.manylinux2014_x86_64"


class Offered:
    """An index by what it lists; a project that it does not list raises as one that is down."""

    def __init__(self, own: dict[str, list[str]] | None = None, **files: list[str]) -> None:
        self.files = {name.replace("_", "-"): found for name, found in files.items()}
        self.own = own or {}
        """What indexes that a cell may name list, by the last part of their address."""
        self.asked: list[str] = []

    def offers_of(self, url: str, name: str) -> tuple[IndexFile, ...]:
        variant = url.rpartition("/")[2]
        if variant not in self.own:
            raise PackageIndexError(f"package index {url}/{name}/: the host name is unknown")
        return Offered(**{name: self.own[variant]}).offers(name)

    def offers(self, name: str) -> tuple[IndexFile, ...]:
        self.asked.append(name)
        if name not in self.files:
            raise PackageIndexError(f"package index http://index.invalid/{name}/: connection refused")
        return tuple(
            IndexFile(
                name=file.removesuffix(" yanked"),
                url="http://index.invalid/x",
                sha256=None,
                yanked="bad" if file.endswith(" yanked") else None,
            )
            for file in self.files[name]
        )


def wheel(version: str, python: str = "311", name: str = "torch") -> str:
    return f"{name}-{version}-cp{python}-cp{python}-{LINUX}.whl"


def resolve(*requirements: str, index: Offered | None, **options) -> int:
    defaults = {"python": None, "gpu": None, "driver": None, "limit": 5, "name": "resolved", "json": False}
    return resolving.run(requirements, index=index, **(defaults | options))


def test_a_matrix_on_stdout_that_loads_and_the_origin_on_stderr(capsys, tmp_path) -> None:
    index = Offered(torch=[wheel("2.8.0"), wheel("2.7.1")])
    assert resolve("torch", index=index, name="mine", limit=2) == 0
    shown = capsys.readouterr()
    path = tmp_path / "mine.yaml"
    path.write_text(shown.out)
    matrix = load(path)
    assert matrix.name == "mine"
    assert len(matrix.cells) == 2
    assert {(cell.frameworks, cell.python) for cell in matrix.cells} == {(("torch==2.8.0",), "3.11")}
    assert "torch: versions from the index: it has 2 releases" in shown.err


def test_a_yanked_release_a_candidate_and_other_systems_are_not_there() -> None:
    files = [
        wheel("2.8.0") + " yanked",
        wheel("2.9.0rc1"),
        "torch-2.9.1-cp311-none-macosx_11_0_arm64.whl",
        "torch-2.7.0-cp311-cp311-manylinux_2_28_aarch64.whl",
        "torch-2.6.0.tar.gz",
        "torch-x.whl",
        wheel("2.7.1"),
    ]
    assert ask(["Torch"], Offered(torch=files))["torch"].versions == ("2.7.1",)


def test_the_wheels_of_nvidia_are_looked_for_too(capsys) -> None:
    name = "nvidia_cudnn_cu12"
    index = Offered(
        tensorflow=[wheel("2.15.1", name="tensorflow")],
        nvidia_cudnn_cu12=[f"{name}-9.1.0.70-py3-none-{LINUX}.whl"],
    )
    assert resolve("tensorflow==2.15.*", index=index, json=True, limit=50) == 0
    document = json.loads(capsys.readouterr().out)
    packages = [cell["cell"]["cuda"]["packages"] for cell in document["proposals"]]
    assert not any("cudnn" in package for found in packages for package in found)
    assert "nvidia-cudnn-cu12" in index.asked
    assert document["requirements"] == [
        {
            "requirement": "tensorflow==2.15.*",
            "versions_from": "index",
            "reason": "it has 1 releases with wheels for Linux on x86-64",
        }
    ]
    assert document["matrix"].startswith("version: 1\n")


def test_where_the_index_is_down_the_facts_are_asked_and_it_says_so(capsys) -> None:
    assert resolve("torch==2.9.*", index=Offered()) == 0
    assert "versions from the facts: package index http://index.invalid/torch/: connection refused" in (
        capsys.readouterr().err
    )


def test_offline_asks_nobody(capsys) -> None:
    assert resolve("torch==2.9.*", index=None, limit=1) == 0
    assert "versions from the facts: the index was not asked" in capsys.readouterr().err


def indexes(shown: str) -> dict[str, list[str]]:
    """The indexes that each proposed framework comes from, out of ``--json``."""
    return {p["cell"]["frameworks"][0]: p["cell"]["index"] for p in json.loads(shown)["proposals"]}


def test_the_index_of_a_cuda_variant_is_asked_for_what_it_is_proposed_for(capsys) -> None:
    own = {"cu118": [wheel("2.1.2+cu118"), wheel("2.1.1+cu118")]}
    assert resolve("torch==2.1.*", index=Offered(own, torch=[wheel("2.1.2")]), json=True) == 0
    found = indexes(capsys.readouterr().out)
    assert list(found) == ["torch==2.1.2", "torch==2.1.2+cu118"]
    assert found["torch==2.1.2+cu118"][0].endswith("/cu118")
    other = Offered({"cu118": [wheel("2.1.1+cu118")]}, torch=[wheel("2.1.2")])
    assert resolve("torch==2.1.*", index=other, json=True) == 0
    assert list(indexes(capsys.readouterr().out)) == ["torch==2.1.2"]
    with pytest.raises(CellError, match=r"2.1.2\+cu118: its index http\S+/cu118 has no wheel"):
        resolve("torch==2.1.2+cu118", index=other)


def test_a_variants_index_that_does_not_answer_is_said_with_the_proposal(capsys) -> None:
    index = Offered(torch=[wheel("2.8.0")])
    assert resolve("torch==2.9.1+cu126", index=index) == 0
    assert "/cu126, which may have them: package index" in capsys.readouterr().err
    assert resolve("torch==2.9.1+cu126", index=Offered({"cu126": [wheel("2.9.1+cu126")]}, torch=[])) == 0
    assert "/cu126, which has them" in capsys.readouterr().err


def test_a_variant_on_the_users_own_index_needs_no_other(capsys) -> None:
    index = Offered(torch=[wheel("2.1.2"), wheel("2.1.1+cu118")])
    assert resolve("torch==2.1.*", index=index, json=True) == 0
    assert indexes(capsys.readouterr().out) == {"torch==2.1.2": [], "torch==2.1.1+cu118": []}


def test_what_the_index_does_not_have_is_refused_by_name(capsys) -> None:
    with pytest.raises(CellError, match="no wheel of torch for Linux"):
        resolve("torch", index=Offered(torch=[]))
    with pytest.raises(CellError, match="no release on record that the package index has fits torch"):
        resolve("torch==2.9.*", index=Offered(torch=[wheel("2.8.0")]))
    one = Offered(tensorflow=[wheel("2.20.0", name="tensorflow")])
    with pytest.raises(CellError, match=r"==2.20.0: the package index has no wheel for Python 3.13"):
        resolve("tensorflow==2.20.*", index=one, python="3.13")
    with pytest.raises(UsageError, match="not a requirement"):
        resolve("torch==", index=None)
    assert capsys.readouterr().out == ""


def test_frameworks_whose_pins_clash_are_refused_with_them() -> None:
    with pytest.raises(CellError, match="nvidia-cudnn-cu11 and nvidia-cudnn-cu13 write the same files"):
        resolve("tensorflow==2.8.*", "torch==2.9.*", index=None)


def test_a_conda_environment_is_resolved_in_wheels(capsys, tmp_path) -> None:
    path = tmp_path / "environment.yml"
    path.write_text("dependencies: [python=3.9, pytorch==1.12.1, cudatoolkit=11.3, torchaudio]\n")
    environment = resolving.from_conda(path)
    assert resolve(*environment.requirements, index=None, python=environment.python, json=True) == 0
    shown = capsys.readouterr()
    assert set(indexes(shown.out)) == {"torch==1.12.1+cu113"}
    assert "in wheels: torch==1.12.1+cu113 on Python 3.9\n   torchaudio: not taken over" in shown.err
    with pytest.raises(UsageError, match="No such file"):
        resolving.from_conda(tmp_path / "nowhere.yml")
