"""Each package against an index: found at its version, or a reason."""

import dataclasses
import json

import pytest

from builder.core.errors import CellError, PackageIndexError
from builder.plan.facts.reading.observed import WheelReading
from builder.plan.matrix import load
from builder.release.colab import match as matching
from builder.release.colab.imports import choose_bases, import_runtime, matrix_text, record_text
from builder.release.colab.match import further_indexes, match_packages
from builder.release.colab.runtimes import parse_freeze, read_runtime
from builder.sources.index.simple_api import IndexFile
from builder.sources.index.target import Target

TARGET = Target(python="3.11", platform="linux/amd64", glibc="2.35")
DOWN = PackageIndexError("package index https://index.invalid/simple/x/: connection refused")


def wheel(name, tags="py3-none-any", **more):
    return IndexFile(
        name=f"{name}-{tags}.whl", url=f"https://index.invalid/{name}-{tags}.whl", sha256=None, **more
    )


def sdist(name):
    return IndexFile(name=f"{name}.tar.gz", url=f"https://index.invalid/{name}.tar.gz", sha256=None)


class PackageIndexDouble:
    """An index in memory: files by project, the further ones by their address; for the network."""

    client = None

    def __init__(self, projects, further=None):
        self.projects, self.further = projects, further or {}

    def offers(self, name):
        found = self.projects.get(name.lower(), ())
        if isinstance(found, Exception):
            raise found
        return tuple(found)

    def with_extra(self, extra):
        return self

    def offers_of(self, index, name):
        if index not in self.further:
            raise DOWN
        return tuple(self.further[index].get(name, ()))


def one(line, files, further=None):
    packages, problems = parse_freeze(line, "freeze.txt")
    assert problems == ()
    index = PackageIndexDouble({packages[0].name.lower(): files}, further)
    return match_packages(packages, index=index, target=TARGET).matches[0]


def test_a_jaxlib_with_cuda_inside_is_its_plug_in():
    plugins = {
        name: [wheel(f"{name.replace('-', '_')}-0.4.26")] for name in ("jax-cuda12-plugin", "jax-cuda12-pjrt")
    }
    projects = {
        "jaxlib": [wheel("jaxlib-0.4.26")],
        "jax": [wheel("jax-0.4.26")],
        **plugins,
    }
    url = (
        "https://storage.example.invalid/jaxlib-0.4.26%2Bcuda12.cudnn89-cp311-cp311-manylinux2014_x86_64.whl"
    )
    packages, _ = parse_freeze(f"jax==0.4.26\njaxlib @ {url}\n", "freeze.txt")
    found = match_packages(packages, index=PackageIndexDouble(projects), target=TARGET)
    jaxlib = found.matches[1]
    assert jaxlib.requirement == "jaxlib==0.4.26"
    assert jaxlib.beside == ("jax-cuda12-plugin==0.4.26", "jax-cuda12-pjrt==0.4.26")


def test_a_wheel_at_its_version():
    found = one(
        "numpy==2.0.2", [wheel("numpy-2.0.2", "cp311-cp311-manylinux_2_17_x86_64"), wheel("numpy-2.1.0")]
    )
    assert found.requirement == "numpy==2.0.2"
    assert found.reason is None


@pytest.mark.parametrize(
    ("line", "files", "reason", "words"),
    [
        ("a==1", [], "absent", "no project of this name"),
        ("a==1", [wheel("a-2")], "vanished", "no longer has 1"),
        ("a==1", [sdist("a-1"), wheel("a-2")], "source-only", "only the sources of 1"),
        ("a==1", [wheel("a-1", "cp310-cp310-manylinux_2_17_x86_64")], "python", "there are cp310"),
        ("a==1", [wheel("a-1", "cp311-cp311-win_amd64")], "platform", "only for win"),
        ("a==1", [wheel("a-1", requires_python=">=3.12")], "python", "for Python 3.11"),
        ("a @ git+https://git.invalid/a@0", [wheel("a-1")], "repository", "git+https://git.invalid/a@0"),
        ("a @ https://x.invalid/a.zip", [wheel("a-1")], "address", "no wheel"),
        ("a @ https://x.invalid/a-1-py3-none-any.whl", [], "address", "not on the index"),
        ("a @ file:///tmp/a-1.tar.gz", [], "own", "built by Google"),
        (
            "google-colab @ file:///x/google_colab-1.0.0.tar.gz",
            [wheel("google_colab-1.0.0")],
            "own",
            "nowhere",
        ),
    ],
)
def test_reasons(line, files, reason, words):
    found = one(line, files)
    assert found.requirement is None
    assert found.reason == reason
    assert words in found.detail


def test_wheels_for_another_system_are_not_named_as_there():
    found = one(
        "a==1", [wheel("a-1", "cp310-cp310-manylinux_2_17_x86_64"), wheel("a-1", "cp311-cp311-win_amd64")]
    )
    assert found.reason == "python"
    assert found.detail.endswith("glibc 2.35; there are cp310")


def test_what_was_taken_back_is_installed_as_colab_has_it_and_said():
    found = one("a==1", [wheel("a-1", yanked="broken metadata")])
    assert found.requirement == "a==1"
    assert "taken back by its maker: broken metadata" in found.detail


def test_a_build_of_googles_own_is_stood_in_for_by_the_indexs():
    found = one("a @ file:///tmp/a-1-py3-none-linux_x86_64.whl", [wheel("a-1")])
    assert found.requirement == "a==1"
    assert "Google's own" in found.detail


TORCH = "torch @ https://wheels.invalid/whl/cu124/torch-2.6.0%2Bcu124-cp311-cp311-linux_x86_64.whl"
PLAIN = wheel("torch-2.6.0", "cp311-cp311-manylinux1_x86_64")


@pytest.mark.parametrize(
    ("said", "requirement", "index"),
    [
        ("2.6.0+cu124", "torch==2.6.0", None),
        ("2.6.0+cu126", "torch==2.6.0+cu124", "https://wheels.invalid/whl/cu124"),
    ],
)
def test_a_wheel_without_a_label_is_believed_by_its_own_code(monkeypatch, said, requirement, index):
    told = WheelReading(file=PLAIN.name, values={"version": said})
    monkeypatch.setattr(matching, "read_wheel", lambda *_: told)
    labelled = wheel("torch-2.6.0+cu124", "cp311-cp311-linux_x86_64")
    found = one(TORCH, [PLAIN], {"https://wheels.invalid/whl/cu124": {"torch": [labelled]}})
    assert (found.requirement, found.index) == (requirement, index)
    silent = one(TORCH, [PLAIN])
    assert silent.requirement == requirement
    assert ("did not answer" in silent.detail) is (index is not None)


def test_the_makers_index_is_known_from_one_address():
    text = "cudf-cu12 @ https://nv.invalid/cudf-cu12/cudf_cu12-25.2.1-cp311-cp311-manylinux_2_24_x86_64.whl\ncuml-cu12==25.2.1\n"
    packages, _ = parse_freeze(text + "nvidia-nccl-cu12==2.21.5\n", "f")
    assert {p.key: url for p, url in further_indexes(packages).items()} == {
        "cudf-cu12": "https://nv.invalid",
        "cuml-cu12": "https://nv.invalid",
    }


def test_an_index_that_is_down_ends_the_import():
    packages, _ = parse_freeze("a==1\nb==1\n", "f")
    with pytest.raises(PackageIndexError, match="connection refused"):
        match_packages(packages, index=PackageIndexDouble({"a": [wheel("a-1")], "b": DOWN}), target=TARGET)


@pytest.fixture
def runtime(tmp_path):
    (tmp_path / "pip-freeze.txt").write_text(
        "tensorflow==2.18.0\ntorch==2.6.0\njax==0.5.2\njax-cuda12-plugin==0.5.1\nnvidia-cudnn-cu12==9.3.0.75\n"
        "nvidia-cuda-runtime-cu12==12.5.82\nnvidia-cufft-cu12==11.2.3.61\nnvidia-cusolver-cu12==11.6.3.83\n"
        "nvidia-cusparse-cu12==12.5.1.3\n"
        "nvidia-cuda-cupti-cu12==12.5.82\ngone==1\nPillow==11.2.1\ngoogle-colab @ file:///x/google_colab-1.0.0.tar.gz\n"
    )
    (tmp_path / "apt-list.txt").write_text(
        "cuda-libraries-12-5/unknown,now 12.5.1-1 amd64 [installed]\n"
        "libcudnn9-cuda-12/unknown,now 9.2.1.18-1 amd64 [installed]\n"
        "libgl1/jammy,now 1.4.0-1 amd64 [installed]\nless/jammy,now 590 amd64 [installed,automatic]\n"
    )
    (tmp_path / "os-info.txt").write_text("Ubuntu 22.04.4 LTS\nPython 3.11.13\n")
    return read_runtime(tmp_path, name="2025.07")


def index_of(runtime):
    names = [p for p in runtime.packages if p.kind == "pinned" and p.name != "gone"]
    return PackageIndexDouble(
        {p.name.lower(): [wheel(f"{p.name.lower().replace('-', '_')}-{p.version}")] for p in names}
    )


def test_a_matrix_and_its_record(runtime, tmp_path):
    seen = []
    imported = import_runtime(runtime, index=index_of(runtime), progress=lambda *row: seen.append(row))
    assert seen[-1][1:] == (13, 13)
    path = tmp_path / f"{imported.name}.yaml"
    path.write_text(matrix_text(imported))
    matrix = load(path)
    base, rootfs = matrix.cells
    assert str(base.base) == "nvidia/cuda:12.5.1-cudnn-runtime-ubuntu22.04"
    assert str(rootfs.base) == "rootfs:debian/bookworm"
    assert rootfs.frameworks == ("tensorflow==2.18.0", "torch==2.6.0", "jax[cuda12]==0.5.2")
    assert rootfs.cuda.packages == ("nvidia-cudnn-cu12==9.3.0.75", "nvidia-cuda-runtime-cu12==12.5.82")
    assert "Pillow==11.2.1" in rootfs.pip
    assert {"libgl1", "libgomp1"} <= set(rootfs.apt)
    assert "vim" not in rootfs.apt
    assert (rootfs.dependencies, rootfs.profile, rootfs.python) == ("listed", "colab", "3.11")
    document = json.loads(record_text(imported))
    assert [(row["name"], row["reason"]) for row in document["missing"]] == [
        ("gone", "absent"),
        ("google-colab", "own"),
    ]
    assert document["packages"]["Pillow"] == "11.2.1"


def test_without_a_framework_there_is_nothing_to_build(runtime):
    with pytest.raises(CellError, match=r"none of tensorflow, torch, jax .* the index has no project"):
        import_runtime(runtime, index=PackageIndexDouble({"pillow": [wheel("pillow-11.2.1")]}))


@pytest.mark.parametrize(
    ("python", "cuda", "bases", "reasons"),
    [
        ("3.11.13", "12.5.1", ["nvidia/cuda:12.5.1-cudnn-runtime-ubuntu22.04", "rootfs:debian/bookworm"], []),
        ("3.12.13", "12.8.1", ["nvidia/cuda:12.8.1-cudnn-runtime-ubuntu24.04"], ["no Debian release"]),
        ("3.12.12", "12.5.1", [], ["no nvidia/cuda image has both", "no Debian release"]),
        ("3.13.15", None, ["rootfs:debian/trixie"], ["nvidia/cuda has no image of CUDA"]),
        ("3.2.1", "12.5.1", [], ["no nvidia/cuda image has both", "no Debian release"]),
    ],
)
def test_bases_have_the_runtimes_own_python(runtime, python, cuda, bases, reasons):
    choices, why = choose_bases(dataclasses.replace(runtime, python=python, cuda=cuda), any_python=False)
    assert [choice.base for choice in choices] == bases
    assert len(why) == len(reasons)
    assert all(text.startswith(start) for text, start in zip(why, reasons, strict=True))


@pytest.mark.parametrize(
    ("system", "cuda", "bases"),
    [
        (
            "Ubuntu 22.04.5",
            "12.8.1",
            ["nvidia/cuda:12.8.1-cudnn-runtime-ubuntu22.04", "rootfs:debian/bookworm"],
        ),
        (
            "Ubuntu 22.04.4",
            "12.5.1",
            ["nvidia/cuda:12.5.1-cudnn-runtime-ubuntu22.04", "rootfs:debian/bookworm"],
        ),
        ("Ubuntu 24.04.1", None, ["rootfs:debian/trixie"]),
        (None, None, ["rootfs:debian/bookworm"]),
    ],
)
def test_with_a_python_of_its_own_the_base_is_colabs(runtime, system, cuda, bases):
    asked = dataclasses.replace(runtime, python="3.12.13", system=system, cuda=cuda)
    choices, why = choose_bases(asked, any_python=True)
    assert [choice.base for choice in choices] == bases
    assert all(text.startswith("nvidia/cuda has no image") for text in why)


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://download.pytorch.org/whl/cu121/xformers-0.0.1.whl", "PyTorch's own index"),
        ("https://pypi.nvidia.com/cudf-cu12/", "NVIDIA's own index"),
        ("https://user:secret@wheels.example.org/simple", "the index at wheels.example.org"),
    ],
)
def test_an_index_is_named_by_its_address(url, name):
    assert matching._own_index(url) == name
