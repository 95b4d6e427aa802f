"""Install scripts are read, and never run: what they install by pip, conda and out of clones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from builder.core.errors import UsageError
from builder.core.model import Base, Cell, Cuda
from builder.core.versions import all_within
from builder.plan.facts.rules import Finding, Outcome, check
from builder.plan.facts.tables import cards_of
from builder.plan.resolve.dates import _named_day
from builder.plan.resolve.install_scripts import from_script, scripts_of, told_by_jobs
from builder.plan.resolve.loosening import Substitution, without_contradictions
from builder.plan.resolve.native_code import _later_nvcc, note_builds, of_sources
from builder.plan.resolve.project_files import from_file
from builder.plan.resolve.project_install import of_hand, of_override, of_told_python, told_python
from builder.plan.resolve.resolver import with_apt_told
from builder.plan.resolve.solve import Demand, Proposal, split
from builder.plan.resolve.substitutes import _without_derived
from builder.plan.resolve.wishes import Wishes, from_arguments


def script(tmp_path: Path, text: str, name: str = "setup.sh") -> Wishes:
    (tmp_path / name).write_text(text)
    return from_script(tmp_path / name)


def texts(found: Wishes) -> list[str]:
    return sorted(map(str, found.wishes))


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("pip install torch==2.1.0 \\\n  numpy # both\n", ["numpy", "torch==2.1.0"]),
        (
            "V=2.1.0\nexport W=${V%.*}\npython3 -m pip install torch==${V} 'scipy>=1'\n",
            ["scipy>=1", "torch==2.1.0"],
        ),
        ("if true; then pip install einops; else pip3 install timm; fi\n", ["einops", "timm"]),
        ("for p in numpy scipy; do\n  pip install $p\ndone\n", ["numpy", "scipy"]),
        ("P=(numpy\n  scipy)\nuv pip install ${P[@]}\n", ["numpy", "scipy"]),
        ("get() {\n  pip install \"$1\"\n}\nget numpy\nget 'scipy<2'\n", ["numpy", "scipy<2"]),
        ("base() { pip install einops; }\nbase\n", ["einops"]),
        ("mamba create -n x python=3.9 numpy=1.24\n", ["numpy==1.24.*"]),
        ("cat <<EOF\npip install nothing\nEOF\npip install numpy\n", ["numpy"]),
        ("pip install numpy && pip install scipy || exit 1\n", ["numpy", "scipy"]),
        ('if [ "$P" = hip ]; then pip install torch==1.0; fi\npip install numpy\n', ["numpy"]),
        ("pip uninstall -y numpy\npip install scipy\n", ["scipy"]),
    ],
)
def test_lines_of_a_script_in_all_their_forms(tmp_path: Path, text: str, asked: list[str]) -> None:
    found = script(tmp_path, text)
    assert texts(found) == asked
    assert all(str(wish.told) == str(wish.parsed.specifier) for wish in found.wishes)  # its author's own set


def test_of_several_releases_by_tests_any_is_taken_without_the_index_of_one(tmp_path: Path) -> None:
    """A table of releases by PyTorch's ends at that of its day, and a newer card takes a later one."""
    found = script(
        tmp_path,
        """\
case $TORCH in
    2.1.0) pip install xformers==0.0.22 --index-url https://download.pytorch.org/whl/cu118 ;;
    2.4.0) pip install xformers==0.0.27.post2 --index-url https://download.pytorch.org/whl/cu118 ;;
    *) echo "pip install unsupported" ;;
esac
case $CUDA in 11) pip install spconv-cu118 ;; 12) pip install spconv-cu120 ;; esac
""",
    )
    assert texts(found) == ["spconv-cu120", "xformers"]
    assert found.index == []
    assert any(
        "xformers: one of 2 lines" in note and "0.0.27.post2 the newest" in note for note in found.notes
    )
    assert any("spconv-cu118: left out" in note for note in found.notes)


def test_what_is_installed_out_of_clones_is_installed_from_their_repositories(tmp_path: Path) -> None:
    (tmp_path / "ops").mkdir()
    (tmp_path / "ops" / "setup.py").write_text("CUDAExtension()")
    found = script(
        tmp_path,
        """\
pip install torch
git clone --recursive https://github.com/x/ops.git /tmp/ext/ops && pip install /tmp/ext/ops
git clone -b v2 https://github.com/x/many /tmp/many
pip install /tmp/many/submodules/inner/
git clone https://github.com/x/old && cd old && git checkout abc1 && python setup.py install && cd ..
cd ops && python setup.py build_ext --inplace
""",
    )
    assert found.by_hand[:3] == [
        "git+https://github.com/x/ops.git",
        "git+https://github.com/x/many@v2#subdirectory=submodules/inner",
        "git+https://github.com/x/old@abc1",
    ]
    assert found.by_hand[3].endswith("ops")


def test_system_packages_and_what_is_for_another_use_are_told(tmp_path: Path) -> None:
    found = script(
        tmp_path,
        "sudo apt-get install -y libgl1 ninja-build\n[ x ] && pip install torch\n"
        'if [ "$TRAIN" = true ]; then pip install lpips; fi\n',
    )
    assert texts(found) == ["torch"]
    assert any("sudo apt-get install -y libgl1 ninja-build" in note for note in found.notes)
    assert any("lpips: left out: not for every use" in note for note in found.notes)


def test_makefiles_and_definitions_are_scripts_too(tmp_path: Path) -> None:
    text = "T := 2.1.0\ninstall: venv\n\t@pip install torch==$(T)\ntest:\n\tpip install pytest\n"
    assert texts(script(tmp_path, text, "Makefile")) == ["torch==2.1.0"]
    text = "Bootstrap: docker\nFrom: pytorch/pytorch:2.1.0-cuda12.1-cudnn8-runtime\n"
    text += "%post\n  pip install timm\n%test\n  pip install x\n"
    assert texts(script(tmp_path, text, "x.def")) == ["timm", "torch==2.1.0"]


def test_a_script_that_installs_nothing_is_none(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="installs nothing by pip"):
        script(tmp_path, "echo pip install torch is not run\n")


def test_a_folder_without_lists_is_told_by_its_script_and_one_with_lists_filled(tmp_path: Path) -> None:
    (tmp_path / "setup.sh").write_text("pip install torch==2.1.0 flash-attn timm black\n")
    (tmp_path / "run.py").write_text("import torch, timm\n")
    assert texts(from_file(tmp_path)) == ["black", "flash-attn", "timm", "torch==2.1.0"]
    (tmp_path / "requirements.txt").write_text("torch==2.0.1\n")
    found = from_file(tmp_path)
    assert texts(found) == [
        "flash-attn",
        "timm",
        "torch==2.0.1",
    ]  # what the sources import, and is built last
    assert any(
        "setup.sh:1 `pip install torch==2.1.0" in note and "no release is both" in note
        for note in found.notes
    )
    assert [path.name for path in scripts_of(tmp_path)] == ["setup.sh"]


def test_a_script_that_installs_nothing_leaves_the_folder_to_its_sources(tmp_path: Path) -> None:
    (tmp_path / "download.sh").write_text("curl -O https://example.org/x\n")
    (tmp_path / "run.py").write_text("import torch\n")
    found = from_file(tmp_path)
    assert texts(found) == ["torch"]
    assert not any("download.sh" in note for note in found.notes)


def test_jobs_tell_of_their_authors_set(tmp_path: Path) -> None:
    jobs = tmp_path / ".github" / "workflows"
    jobs.mkdir(parents=True)
    (jobs / "test.yml").write_text(
        "jobs:\n  t:\n    strategy: {matrix: {python-version: ['3.7', '3.8']}}\n    steps:\n"
        "    - run: |\n        pip install torch==1.8.1\n        pytest\n"
    )
    found = Wishes()
    told_by_jobs(tmp_path, found)
    assert {name: str(one) for name, one in found.told.items()} == {
        "python": "python==3.8",
        "torch": "torch==1.8.1",
    }


def test_source_of_python_2_and_the_python_of_notebooks_are_told(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("tensorflow==1.15.0\n")
    (tmp_path / "train.py").write_text("import cPickle\nprint 'epoch %d' % 1\n")
    (tmp_path / "both.py").write_text(
        "import six\nfrom six.moves import xrange\nfor n in xrange(3): print(n)\n"
    )
    (tmp_path / "new.py").write_text("'''print it'''\nprint(1)\n")
    (tmp_path / "n.ipynb").write_text(
        '{"cells": [], "metadata": {"language_info": {"version": "3.7.3"}}, "nbformat": 4}'
    )
    found = from_file(tmp_path)
    (note,) = (one for one in found.notes if "source of Python 2" in one)
    assert "train.py:" in note
    assert not {"both.py", "new.py"} & {*note.replace(":", "/").split("/")}
    assert str(found.told["python"]) == "python==3.7"


@pytest.mark.parametrize(
    ("readme", "told"),
    [
        ("You need to use [fastai1](https://x) with these notebooks", "fastai==1.*"),
        ("## Requirements\nTensorFlow 1.x or so", "tensorflow==1.*"),
        ("Requires Keras 2", "keras==2.*"),
        ("Requires Python 2.7 and PyTorch 1.4", "torch==1.4"),
    ],
)
def test_a_line_of_releases_by_its_major_is_told(tmp_path: Path, readme: str, told: str) -> None:
    (tmp_path / "README.md").write_text(readme + "\n")
    (tmp_path / "a.py").write_text("import torch\n")
    found = from_file(tmp_path)
    assert told in {str(one) for one in found.told.values()}
    assert "python" not in found.told


def test_the_project_and_its_compiled_folders_are_in_the_line_by_hand(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("torch==2.1.0\n")
    (tmp_path / "setup.py").write_text("from setuptools import setup\nsetup(name='x')\n")
    (tmp_path / "ops").mkdir()
    (tmp_path / "ops" / "setup.py").write_text("from torch.utils.cpp_extension import CUDAExtension\n")
    found = from_file(tmp_path)
    assert found.itself == str(tmp_path)
    assert found.by_hand == [str(tmp_path / "ops")]
    assert not found.compiles_itself
    (tmp_path / "setup.py").write_text("from setuptools import setup\nsetup(ext_modules=[CUDAExtension()])\n")
    (tmp_path / "Dockerfile").write_text("FROM ubuntu\nCOPY . /x\nRUN pip install /x numpy\n")
    found = from_file(tmp_path)
    assert found.compiles_itself
    assert found.by_hand == [str(tmp_path / "ops")]


# -- what a project says against itself, and what gives way


def demand(*asked: str) -> Demand:
    frameworks, companions = split(from_arguments(asked))
    return Demand(frameworks=frameworks, companions=companions)


@pytest.mark.parametrize(
    ("asked", "within", "answer"),
    [
        ("<=2.3.1,>=2.0.9", "<2.4", True),
        ("~=2.3.0", ">=2.3,<2.4", True),
        (">=2.0.9", "<2.4", False),
        ("<2.3", ">=2.3,<2.4", False),
        ("", "<2.4", False),
    ],
)
def test_whether_all_that_is_admitted_lies_in_a_range(asked: str, within: str, answer: bool) -> None:
    assert all_within(SpecifierSet(asked), SpecifierSet(within)) is answer


def test_a_keras_that_no_tensorflow_asked_for_goes_with_gives_way_by_name() -> None:
    """Keras 2.3 beside TensorFlow 2.3 fails at the first layer: https://github.com/tensorflow/tensorflow/issues/38589"""
    found, changes = without_contradictions(demand("tensorflow>=2.3", "keras<=2.3.1,>=2.0.9"))
    assert [str(one) for one in found.companions] == ["keras"]
    assert "tensorflow>=2.3 (as typed) goes with none of these" in str(changes[0])
    for good in (("tensorflow>=2.1", "keras<=2.3.1"), ("tensorflow>=2.3", "keras>=2.0.9")):
        assert without_contradictions(demand(*good)) == (demand(*good), [])


def cell(*pip: str, framework: str = "tensorflow==2.5.3", gpus: tuple[str, ...] = ()) -> Cell:
    return Cell(
        id="x",
        matrix="x",
        frameworks=(framework,),
        python="3.8",
        base=Base(kind="registry", name="nvidia/cuda:11.2.2-cudnn8-runtime-ubuntu20.04"),
        cuda=Cuda(provider="base"),
        pip=pip,
        gpus=gpus,
    )


@pytest.mark.parametrize(
    ("pip", "bad"), [("keras<=2.3.1", True), ("keras", True), ("keras<2.6", False), ("keras==2.4.3", False)]
)
def test_a_range_of_keras_is_held_against_tensorflow(pip: str, bad: bool) -> None:
    found = check(cell(pip), only=("known-bad",))
    assert any(one.outcome is Outcome.IMPOSSIBLE for one in found) is bad


def test_a_driver_of_an_older_list_is_a_reservation() -> None:
    (one,) = (
        one
        for one in check(cell(gpus=("RTX4070-SUPER",)), driver="545.29.06", only=("gpu",))
        if "first driver that lists" in one.message
    )
    assert one.outcome is Outcome.WARNS
    assert "`nvidia-smi` names the card" in one.message


def test_a_library_that_apt_brings_is_a_reservation_with_its_line() -> None:
    text = "the import of x loads libGL.so.1, which nothing in the lock brings; write libgl1 into `apt`"
    lacks = Finding(Outcome.IMPOSSIBLE, text, rule="links", apt=("libgl1",))
    (told,) = with_apt_told([lacks], ("libgl1",))
    assert told.outcome is Outcome.WARNS
    assert "`sudo apt-get install -y libgl1`" in told.message
    assert with_apt_told([lacks], ()) == (lacks,)


def test_pins_that_follow_from_a_framework_give_way_as_it_moves() -> None:
    asked = demand("torch==2.8.0", "nvidia-cublas-cu12==12.1.3.1", "triton==3.0.0", "numpy==1.26.4")
    asked = replace(asked, companions=tuple(replace(one, place="r.txt:1") for one in asked.companions))
    change = Substitution(asked=asked.frameworks[0], instead="torch==2.8.0")
    (found, _), freed = _without_derived((asked, [change]))
    assert [one.name for one in found.companions] == ["numpy"]
    assert [one.name for one in freed] == ["nvidia-cublas-cu12", "triton"]
    assert _without_derived((asked, [])) == ((asked, []), [])


def test_how_a_lock_keeps_the_releases_is_told(tmp_path: Path) -> None:
    (tmp_path / "uv.lock").write_text("")
    torch = demand("torch==2.4.1").frameworks[0]
    best = Proposal(
        cell=replace(cell(framework="torch==2.7.1+cu128"), index=("https://download.pytorch.org/whl/cu128",)),
        findings=(),
    )
    (told,) = of_override(best, [Substitution(asked=torch, instead="torch==2.7.1+cu128")], [tmp_path])
    assert 'override-dependencies = ["torch==2.7.1"]' in told
    assert 'torch = { index = "pytorch-cu128" }' in told
    assert not [*of_override(best, [], [tmp_path])]
    (tmp_path / "uv.lock").rename(tmp_path / "poetry.lock")
    (told,) = of_override(best, [Substitution(asked=torch, instead="torch==2.7.1+cu128")], [tmp_path])
    assert "`poetry add torch==2.7.1`" in told


def test_the_python_that_a_readme_tells_is_taken_first_and_said(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("## Requirements\nPython 3.9, tested\n")
    (tmp_path / "requirements.txt").write_text("torch\n")
    asked = from_file(tmp_path)
    assert told_python(asked) == "3.9"
    hinted = replace(demand("torch"), told_python="3.9")
    assert sorted(["3.12", "3.8", "3.9", "3.10"], key=hinted.python_rank) == ["3.9", "3.10", "3.8", "3.12"]
    (said,) = of_told_python(Proposal(cell=cell(), findings=()), hinted, asked)
    assert "Python 3.9" in said
    assert "3.8 is the nearest" in said


def test_a_refusal_has_the_line_by_hand() -> None:
    (line,) = of_hand(Wishes(itself=".", by_hand=["./ops"]))
    assert line.endswith("pip install --no-build-isolation ./ops && pip install --no-deps .")
    (line,) = of_hand(Wishes(itself=".", by_hand=["./ops"]), ["FORCE_CUDA=1", "TORCH_CUDA_ARCH_LIST=8.6"])
    before = "FORCE_CUDA=1 TORCH_CUDA_ARCH_LIST=8.6 pip install --no-build-isolation ./ops"
    assert line == f"then, by hand: {before} && pip install --no-deps ."


def test_a_line_that_has_ended_is_of_the_time_of_its_last_release() -> None:
    """``fastai==1.*`` is 1.0.61 of 2020, and no 1.0.0 of 2018."""
    days = {"1.0.0": "2018-10-02", "1.0.61": "2020-05-01", "2.0.0": "2020-08-21", "2.8.0": "2025-04-01"}
    assert _named_day(Requirement("fastai==1.*"), days, upper=False) == "2020-05-01"
    assert _named_day(Requirement("fastai==1.0.0"), days, upper=False) == "2018-10-02"
    assert _named_day(Requirement("fastai==2.*"), days, upper=False) == "2020-08-21"


def test_an_nvcc_of_the_same_major_that_knows_the_card_is_named() -> None:
    """CUDA 11.8 is the first with 8.9: https://docs.nvidia.com/cuda/ada-compatibility-guide/"""
    assert "CUDA 11.8, of the same major, which knows RTX4090 (8.9)" in _later_nvcc(
        "11.7", cards_of(["RTX4090"])
    )
    assert _later_nvcc("12.1", cards_of(["RTX4090"])) == ""
    assert _later_nvcc("11.7", cards_of(["RTX3090"])) == ""
    assert _later_nvcc("11.8", cards_of(["RTX5090"])) == ""  # of another major


def test_scripts_that_compile_against_tensorflow_are_told_its_own_flags(tmp_path: Path) -> None:
    (tmp_path / "compile.sh").write_text(
        "/usr/local/cuda-8.0/bin/nvcc op.cu -o op.cu.o -c\n"
        "g++ -shared op.cpp op.cu.o -I /usr/lib/python2.7/dist-packages/tensorflow/include\n"
    )
    found = Wishes()
    note_builds([tmp_path / "compile.sh"], found)
    assert {kind for kind, _, _ in found.compiling} == {"tensorflow", "script"}
    best = Proposal(cell=cell(gpus=("RTX3090",)), findings=())
    lines = [*of_sources(found, best, replace(demand("tensorflow"), gpus=("RTX3090",)))]
    (told,) = (line for line in lines if "tf.sysconfig.get_link_flags" in line)
    assert "/usr/local/cuda-11.2 in that of /usr/local/cuda-8.0" in told
