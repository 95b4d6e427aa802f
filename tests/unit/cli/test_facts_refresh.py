"""rtbuild facts refresh: a diff of what can be read, nothing a person fixed, and reasons for silence."""

from __future__ import annotations

import io
import json
import shutil
import tomllib
import zipfile
from typing import TYPE_CHECKING

import pytest

from builder import resources
from builder.cli import facts as command
from builder.errors import PackageIndexError, RegistryError
from builder.facts import tables as facts
from builder.facts.refresh import refresh
from builder.index.simple_api import IndexFile
from builder.model import RegistryBase

if TYPE_CHECKING:
    from pathlib import Path

LINUX = "manylinux_2_28_x86_64"


class Nobody:
    """A registry that is down."""

    def tags(self, _repository: str) -> frozenset[str]:
        raise RegistryError("registry docker.io did not answer: connection refused")


class Tags(Nobody):
    def __init__(self, *tags: str, cudnn: str = "8.0.4.30-1+cuda11.1") -> None:
        self.listed = frozenset(tags)
        self.cudnn = cudnn

    def tags(self, _repository: str) -> frozenset[str]:
        return self.listed

    def inspect(self, reference: str, _platform: str) -> RegistryBase:
        env = (("NV_CUDNN_VERSION", self.cudnn),)
        return RegistryBase(reference=reference, digest="sha256:0", env=env, labels=(), size=1)


class Shelf:
    """An index that lists ``files`` by project, and whose wheels say what ``said`` has for them."""

    def __init__(self, files: dict[str, list[str]], said: dict[str, dict[str, str]] | None = None) -> None:
        self.files = files
        self.said = said or {}
        self.client = self

    def offers(self, name: str) -> tuple[IndexFile, ...]:
        if name not in self.files:
            raise PackageIndexError("package index: connection refused")
        return tuple(
            IndexFile(name=file, url=f"http://index.invalid/{file}", sha256=None) for file in self.files[name]
        )

    def get(self, url: str, **options: object):
        """One whole small wheel as a single range."""
        import requests

        file = url.rpartition("/")[2]
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as archive:
            for name, text in self.said.get(file, {}).items():
                archive.writestr(name, text)
        content = out.getvalue()
        wanted = options["headers"]["Range"].removeprefix("bytes=")
        first, _, last = wanted.partition("-")
        start = int(first) if first else max(0, len(content) - int(last))
        end = min(len(content), int(last) + 1) if first else len(content)
        answer = requests.Response()
        answer.status_code = 206
        answer.headers["Content-Range"] = f"bytes {start}-{end - 1}/{len(content)}"
        answer.raw = io.BytesIO(content[start:end])
        return answer


def torch_wheel(version: str, python: str) -> str:
    return f"torch-{version}-cp{python}-cp{python}-{LINUX}.whl"


def says(version: str, cuda: str, cudnn: str) -> dict[str, str]:
    metadata = f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n"
    metadata += f"Requires-Dist: nvidia-cudnn-cu12=={cudnn}; platform_system == 'Linux'\n"
    return {
        "torch/version.py": f"__version__ = '{version}'\ncuda = '{cuda}'\n",
        f"torch-{version}.dist-info/METADATA": metadata,
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The tables, in a checkout of their own with the page that is made from them."""
    where = tmp_path / "builder" / "facts" / "tables"
    shutil.copytree(resources.facts(), where)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "facts.md").write_text("old\n")
    return where


def torch_row(folder: Path) -> dict[str, object]:
    rows = tomllib.loads((folder / "torch.toml").read_text())["rows"]
    return next(row for row in rows if row["versions"] == "==2.9.*" and row.get("default", True))


def newer() -> Shelf:
    files = [torch_wheel("2.9.7", "312"), torch_wheel("2.9.7", "313"), torch_wheel("2.9.1", "310")]
    return Shelf(
        {"torch": [*files, torch_wheel("99.1", "313")]},
        {
            files[1]: says("2.9.7", "12.9", "9.11.0.1"),
            torch_wheel("99.1", "313"): says("99.1", "14.1", "10.0.0.1"),
        },
    )


def test_what_wheels_say_is_written_with_its_diff_and_the_page(folder, capsys) -> None:
    before = (folder / "torch.toml").read_text()
    assert command.run(index=newer(), registry=Nobody(), check=False, json=False, folder=folder) == 0
    shown = capsys.readouterr()
    row = torch_row(folder)
    assert (row["latest"], row["python"]) == ("2.9.7", ["3.10", "3.12", "3.13"])
    assert (row["cuda"], row["cudnn"]) == ("12.9", "9.11.0.1")
    assert "nvidia-cudnn-cu12==9.11.0.1" in row["pins"]
    assert '+  { versions = "==2.9.*"' in shown.out
    assert shown.out.startswith("--- a/builder/facts/tables/torch.toml\n")
    after = (folder / "torch.toml").read_text()
    changed = [
        pair for pair in zip(before.splitlines(), after.splitlines(), strict=True) if pair[0] != pair[1]
    ]
    assert [line[:24] for line, _ in changed if not line.startswith("date = ")] == [
        '  { versions = "==2.9.*"'
    ]
    facts.read.cache_clear()
    assert "9.11.0.1" in (folder.parents[2] / "docs" / "facts.md").read_text()


def test_a_release_without_a_row_is_left_to_a_person_and_silence_is_named(folder) -> None:
    found = refresh(folder, index=newer(), registry=Nobody())
    assert (
        "torch 99.1 is on the package index and no row covers it; its wheel says: CUDA 14.1, cuDNN 10.0.0.1"
        in found.notes
    )
    assert "tensorflow was not read: package index: connection refused" in found.notes
    assert any(note.startswith("the tags of nvidia/cuda were not read: registry") for note in found.notes)
    assert {change.file for change in found.changes} == {"torch.toml"}


def test_what_a_person_fixed_stays(folder) -> None:
    path = folder / "torch.toml"
    row = next(
        line
        for line in path.read_text().splitlines()
        if '"==2.9.*"' in line and "default = false" not in line
    )
    kept = row.replace(", sources =", ', kept = "the wheel is wrong", sources =')
    path.write_text(path.read_text().replace(row, kept))
    found = refresh(folder, index=newer(), registry=Nobody())
    assert found.changes == []
    assert any("latest stays 2.9.1, though 2.9.7 was read: the wheel is wrong" in text for text in found.kept)


def test_check_writes_nothing_and_exits_1(folder, capsys) -> None:
    before = {path.name: path.read_text() for path in folder.iterdir() if path.is_file()}
    assert command.run(index=newer(), registry=Nobody(), check=True, json=True, folder=folder) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["written"] is False
    assert {change["key"] for change in document["changes"]} == {"latest", "python", "cuda", "cudnn", "pins"}
    assert {path.name: path.read_text() for path in folder.iterdir() if path.is_file()} == before


def test_everybody_silent_changes_nothing(folder, capsys) -> None:
    assert command.run(index=Shelf({}), registry=Nobody(), check=True, json=False, folder=folder) == 0
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "0 values would change" in shown.err


def test_tags_that_are_gone_come_back_or_tell_their_cudnn(folder) -> None:
    rows = tomllib.loads((folder / "tags.toml").read_text())["rows"]
    everything = {
        f"{row['cuda']}-{row['infix']}-runtime-ubuntu{name}"
        for row in rows
        if row["state"] == "listed"
        for name in row["ubuntu"]
    }
    gone = next(row for row in rows if row["state"] == "listed" and "cudnn" in row)
    listed = everything - {f"{gone['cuda']}-{gone['infix']}-runtime-ubuntu{name}" for name in gone["ubuntu"]}
    new = "99.0.0-cudnn-runtime-ubuntu24.04"
    found = refresh(folder, index=Shelf({}), registry=Tags(*listed, new, "99.0.0-base-ubuntu24.04"))
    states = [(change.old, change.new) for change in found.changes if change.key == "state"]
    assert states == [("listed", "deleted")]
    told = [change for change in found.changes if change.key == "cudnn"]
    assert {(change.old, change.new) for change in told} == {(None, "8.0.4.30")}
    assert len(told) == sum(row["state"] == "listed" and "cudnn" not in row for row in rows)
    assert f"nvidia/cuda:{new} is listed and no row covers it" in found.notes
    assert command.run(index=Shelf({}), registry=Tags(*listed), check=False, json=False, folder=folder) == 0
    after = tomllib.loads((folder / "tags.toml").read_text())
    first = next(
        row for row in after["rows"] if row["state"] == "deleted" and row["sources"][0] == "registry"
    )
    assert first["cuda"] == gone["cuda"]
    facts.read.cache_clear()
    facts.load(folder)


def test_ranges_that_say_the_same_are_no_difference(folder) -> None:
    wheel = f"onnxruntime_gpu-1.23.2-cp312-cp312-{LINUX}.whl"
    about = "Metadata-Version: 2.1\nRequires-Dist: nvidia-cudnn-cu12~=9.0; extra == 'cudnn'\n"
    shelf = Shelf({"onnxruntime-gpu": [wheel]}, {wheel: {"onnxruntime_gpu-1.23.2.dist-info/METADATA": about}})
    found = refresh(folder, index=shelf, registry=Nobody())
    assert [change.key for change in found.changes] == ["python"]


def plugin_wheel(version: str, python: str) -> str:
    return f"jax_cuda12_plugin-{version}-cp{python}-cp{python}-{LINUX}.whl"


def test_jax_is_read_from_its_plug_ins_which_hold_the_pins(folder: Path) -> None:
    """JAX itself is one wheel for every Python that names no package of NVIDIA's."""
    line, beyond = plugin_wheel("0.6.2", "313"), plugin_wheel("99.0", "313")

    def asks(version: str, cudnn: str) -> dict[str, str]:
        metadata = f"Metadata-Version: 2.1\nName: jax-cuda12-plugin\nVersion: {version}\n"
        metadata += f"Requires-Dist: nvidia-cudnn-cu12<10.0,>={cudnn}; extra == 'with-cuda'\n"
        return {f"jax_cuda12_plugin-{version}.dist-info/METADATA": metadata}

    shelf = Shelf(
        {"jax-cuda12-plugin": [line, beyond]}, {line: asks("0.6.2", "9.9"), beyond: asks("99.0", "10.1")}
    )
    found = refresh(folder, index=shelf, registry=Nobody())
    changed = {change.key: change.new for change in found.changes if change.label == "jax ==0.6.* cuda12"}
    assert changed["python"] == ["3.13"]
    assert changed["pins"] == ["nvidia-cudnn-cu12>=9.9,<10.0", "nvidia-cuda-runtime-cu12>=12.1.105"]
    assert any("jax-cuda12-plugin 99.0" in n and "nvidia-cudnn-cu12<10.0,>=10.1" in n for n in found.notes)


def test_a_cuda_variant_is_refreshed_where_the_users_indexes_have_it(folder: Path) -> None:
    """One of PyTorch's own indexes as an extra one beside the default."""
    plain, ours = torch_wheel("2.1.2", "311"), torch_wheel("2.1.9+cu118", "311")
    said = {ours: says("2.1.9+cu118", "11.8", "8.9.0.1")}
    found = refresh(folder, index=Shelf({"torch": [plain, ours]}, said), registry=Nobody())
    changed = {change.key: change.new for change in found.changes if change.label == "torch ==2.1.* cu118"}
    assert changed == {"latest": "2.1.9", "python": ["3.11"], "cudnn": "8.9.0.1"}
    assert not any("2.1.9" in note for note in found.notes)
    default = {change.key: change.new for change in found.changes if change.label == "torch ==2.1.* cu121"}
    assert "latest" not in default
