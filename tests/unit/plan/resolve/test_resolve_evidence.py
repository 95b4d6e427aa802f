"""What a project's own sources and its README tell of the releases that it was written for."""

from __future__ import annotations

import datetime
import json
from typing import TYPE_CHECKING

import pytest
from facts_shelf import names_row_of

from builder.core.errors import UsageError
from builder.plan.facts.reading import release_names
from builder.plan.facts.tables import name_spans
from builder.plan.resolve import dates, evidence
from builder.plan.resolve.dates import Period, period_of
from builder.plan.resolve.evidence import (
    add_told,
    bound_by_sources,
    releases_for_repositories,
    used_names,
    with_told,
)
from builder.plan.resolve.loosening import Substitution
from builder.plan.resolve.project_files import from_file
from builder.plan.resolve.solve import Demand, split
from builder.plan.resolve.substitutes import _one_of_each, _siblings
from builder.plan.resolve.wishes import Wishes, from_arguments
from builder.sources.index import IndexFile

if TYPE_CHECKING:
    from pathlib import Path

OLD = """\
import tensorflow as tf
import numpy as np
from scipy.misc import imread, imresize
import imp
print "of Python 2", np.float(2)
x = tf.placeholder(tf.float32)
try:
    from torch._six import inf
except ImportError:
    inf = 1
if tf.__version__ >= "1.0":
    tf.contrib.layers
text = "np.int is no use, np.bool neither"  # np.object
"""


def bounded(text: str, *asked: str, python: str | None = None) -> Wishes:
    found = from_arguments(asked)
    found.python = python
    bound_by_sources([("train.py", text, "train.py:{}".format)], found)
    return found


def test_names_are_read_through_their_aliases_by_line_and_in_python_2_too() -> None:
    found, modules = used_names(OLD, "a.py:{}".format)
    assert {(one.name, one.place) for one in found} >= {
        ("numpy.float", "a.py:5"),
        ("tensorflow.placeholder", "a.py:6"),
        ("scipy.misc.imresize", "a.py:3"),
    }
    assert not {one.name for one in found} & {"torch._six.inf", "tensorflow.contrib.layers", "numpy.int"}
    assert modules == {"tensorflow", "numpy", "scipy.misc", "imp", "torch._six"}


def test_what_sources_take_bounds_each_package_with_line_and_reason() -> None:
    found = bounded(OLD, "tensorflow", "numpy>=1.16").merged()
    assert {str(wish) for wish in found.wishes} == {"tensorflow<2", "numpy<1.24,>=1.16", "scipy<1.3"}
    told = "\n".join(found.notes)
    assert "tensorflow<2: train.py:6 uses tensorflow.placeholder, which tensorflow has no longer" in told
    assert "numpy<1.24: train.py:5 uses numpy.float" in told
    assert found.python == "<3.12"
    assert "train.py:4 uses imp, which Python 3.12 has no more" in told


def test_a_pin_stays_and_the_difference_is_said() -> None:
    found = bounded(OLD, "tensorflow==2.4.1", "numpy==1.26.4", python="3.12").merged()
    assert {"tensorflow==2.4.1", "numpy==1.26.4"} < {str(wish) for wish in found.wishes}
    assert found.python == "3.12"
    assert "tensorflow==2.4.1 (as typed) stays: but train.py:6 uses tensorflow.placeholder" in str(
        found.notes
    )


def test_a_release_that_brought_a_name_is_a_lower_bound() -> None:
    text = "from transformers import LlamaTokenizer\n"
    assert [str(one) for one in bounded(text, "transformers").merged().wishes] == ["transformers>=4.28"]
    assert bounded(text, "transformers==4.30.2").notes == []


@pytest.mark.parametrize(
    ("text", "wishes"),
    [
        ("from huggingface_hub import snapshot_download\nsnapshot_download('x')\n", {"huggingface-hub"}),
        ("from huggingface_hub import snapshot_download as get\nget(\n  'x')\n", {"huggingface-hub"}),
        ("import huggingface_hub as hub\nhub.snapshot_download('x')\n", {"huggingface-hub"}),
        ("from huggingface_hub import snapshot_download as get; x = get(\n'x')\n", {"huggingface-hub"}),
        ("from huggingface_hub.snapshot_download import x\n", {"huggingface-hub<0.11"}),
        ("from huggingface_hub import snapshot_download as one\none.x('x')\n", {"huggingface-hub<0.11"}),
    ],
)
def test_a_function_that_is_called_is_not_the_module_of_its_name_that_went(
    text: str, wishes: set[str]
) -> None:
    """`huggingface_hub/snapshot_download.py` went with 0.11, and the function of that name stayed."""
    assert {str(one) for one in bounded(text, "huggingface-hub").merged().wishes} == wishes


def test_one_script_of_another_framework_says_nothing_of_the_rest() -> None:
    found = from_arguments(["tensorflow"])
    new = "import tensorflow as tf\ntf.function\n"
    others = [(f"{n}.py", new, "{}".format) for n in range(6)]
    bound_by_sources([("convert.py", OLD, "convert.py:{}".format), *others], found)
    assert "tensorflow" in [str(one) for one in found.merged().wishes]


def test_the_projects_own_modules_are_of_no_package() -> None:
    found = from_arguments(["numpy"])
    bound_by_sources([("a.py", "import numpy\nnumpy.float\n", "{}".format)], found, {"numpy"})
    assert found.notes == []


def test_the_time_is_before_the_release_that_lacks_what_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    days = {"1.15.0": "2019-10-16", "2.0.0": "2019-09-30", "2.9.0": "2022-05-16"}
    files = tuple(
        IndexFile(
            name=f"tensorflow-{one}-cp37-cp37m-manylinux1_x86_64.whl", url="", sha256=None, uploaded=day
        )
        for one, day in days.items()
    )
    monkeypatch.setattr(dates, "pages", lambda names, _index: dict.fromkeys(names, files))
    found = bounded("import tensorflow as tf\ntf.Session()\n", "tensorflow").merged()
    period = period_of(found.wishes, object(), datetime.date(2026, 11, 30))  # type: ignore[arg-type]
    assert period is not None
    assert period.day == "2019-09-29"
    assert period.why == "train.py:2 uses tensorflow.Session, which tensorflow has no longer since 2019-09"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("## Requirements\n- PyTorch 1.7.1, CUDA 11.0, Python 3.8\n", {"torch==1.7.1", "python==3.8"}),
        ("The code is tested with Pytorch v1.1, TensorFlow v1.14.\n", {"torch==1.1", "tensorflow==1.14"}),
        (
            "1. The test environment is\n    - Python 3.5.2\n    - Keras 2.1.5\n",
            {"python==3.5.2", "keras==2.1.5"},
        ),
        ("# Setup\nPyTorch >= 1.3 and numpy 1.16 or later\n", {"torch>=1.3", "numpy>=1.16"}),
        ("![](https://img.shields.io/badge/PyTorch-1.9-red) requirements\n", {"torch==1.9"}),
        ("# Prerequisites\n* tensorflow 1.x\n", {"tensorflow==1.*"}),
        ("We beat PyTorch 1.7 by 3.4 points.\n", set()),
    ],
)
def test_releases_are_read_of_a_readmes_words(tmp_path: Path, text: str, told: set[str]) -> None:
    path = tmp_path / "README.md"
    path.write_text(text)
    found = Wishes()
    add_told(path, found)
    assert {str(one.parsed) for one in found.told.values()} == told


def demand(*texts: str) -> Demand:
    frameworks, companions = split(from_arguments(texts))
    return Demand(frameworks=frameworks, companions=companions, gpus=("T4",), driver="580")


def told_by(tmp_path: Path, text: str) -> Wishes:
    (tmp_path / "README.md").write_text(f"# Requirements\n{text}\n")
    found = Wishes()
    add_told(tmp_path / "README.md", found)
    return found


def test_what_a_readme_tells_counts_less_than_a_requirement_and_more_than_the_newest(tmp_path: Path) -> None:
    told = told_by(tmp_path, "- PyTorch 2.1.2").told
    first, *_, last = with_told(demand("torch", "numpy"), told, {})
    assert str(first[0].frameworks[0]) == "torch==2.1.2"
    assert "README.md:2 says torch==2.1.2" in first[1][0]
    assert str(last[0].frameworks[0]) == "torch"
    assert "nothing goes with it" in last[1][0]
    assert [str(one.frameworks[0]) for one, _ in with_told(demand("torch==2.4.0"), told, {})] == [
        "torch==2.4.0"
    ]


def test_a_lower_bound_that_a_requirement_has_anyway_is_not_told_again(tmp_path: Path) -> None:
    told = told_by(tmp_path, "- PyTorch >= 1.7").told
    assert [said for _, said in with_told(demand("torch>=1.7"), told, {})] == [[]]


def test_a_release_that_no_card_has_gives_way_to_its_line(tmp_path: Path) -> None:
    told = told_by(tmp_path, "- PyTorch 0.4.0").told
    assert str(with_told(demand("torch"), told, {})[0][0].frameworks[0]) == "torch<2,>=0.4.0"


def test_a_folder_without_requirements_has_what_its_sources_import(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import tensorflow as tf\nimport cv2, scipy.misc\nimport utils\ntf.Session\n"
    )
    (tmp_path / "utils.py").write_text("from PIL import Image\n")
    found = from_file(tmp_path).merged()
    assert {str(one) for one in found.wishes} == {"tensorflow<2", "opencv-python", "pillow", "scipy"}
    assert "taken: its sources import it" in "\n".join(found.notes)


def test_a_file_that_names_no_framework_gets_that_of_the_sources(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("tqdm==4.45.0\n")
    (tmp_path / "train.py").write_text("import torch\nimport cv2\n")
    assert {str(one) for one in from_file(tmp_path).wishes} == {"tqdm==4.45.0", "torch"}


@pytest.mark.parametrize(
    ("code", "bound"),
    [
        ("import yaml\ndef f(p):\n    with open(p, 'r') as s:\n        return yaml.load(s)\n", True),
        ("import yaml as y\nx = dict(y.load(open('a', 'r')))\n", True),
        ("from yaml import load\nx = load('a: 1')\n", True),
        ("import yaml\nx = yaml.load(s, Loader=yaml.SafeLoader)\n", False),
        ("import yaml\nx = yaml.load(s, yaml.FullLoader)\n", False),
        ("import yaml\nx = yaml.load(*s)\nyaml.safe_load(s)\n", False),
        ("from ruamel import yaml\nx = yaml.load(s)\n", False),
        ("import numpy, yaml\nx = numpy.load(s)\n", False),
        ("import yaml\nif yaml.__version__ < '6':\n    x = yaml.load(s)\n", False),
    ],
)
def test_a_call_without_what_a_later_release_requires_bounds_the_package(tmp_path, code, bound) -> None:
    (tmp_path / "requirements.txt").write_text("torch\npyyaml\n")
    (tmp_path / "config.py").write_text(code)
    found = from_file(tmp_path)
    assert [str(one) for one in found.bounds if one.name == "pyyaml"] == ["pyyaml<6"] * bound
    assert ("yaml.load with one argument" in "\n".join(found.notes)) is bound


def test_sources_that_open_windows_take_opencv_with_windows(tmp_path: Path) -> None:
    conda = "name: x\nchannels: [c]\ndependencies:\n- pytorch=1.12.1\n- opencv\n"
    (tmp_path / "environment.yml").write_text(conda)
    (tmp_path / "demo.py").write_text("import cv2\ncv2.imwrite('a', b)\n")
    assert "opencv-python-headless" in {one.name for one in from_file(tmp_path).wishes}
    (tmp_path / "demo.py").write_text("import cv2\ndef show(image):\n    cv2.imshow('a', image)\n")
    found = from_file(tmp_path)
    assert [str(one) for one in found.wishes][1:] == ["opencv-python"]
    assert "demo.py:3 uses cv2.imshow, which opens windows" in "\n".join(found.notes)
    (tmp_path / "requirements.txt").write_text("torch\nopencv-python-headless\n")
    found = from_file(tmp_path)
    assert "opencv-python-headless" in {one.name for one in found.wishes}
    assert "stays: but" in "\n".join(found.notes)


def test_a_notebook_is_read_cell_by_cell(tmp_path: Path) -> None:
    cells = [["!pip install tensorflow numpy\n", "import numpy as np"], ["np.int"]]
    document = {"cells": [{"cell_type": "code", "source": one} for one in cells]}
    (tmp_path / "a.ipynb").write_text(json.dumps(document))
    assert "a.ipynb, code cell 2 uses numpy.int" in "\n".join(from_file(tmp_path / "a.ipynb").notes)


def test_tensorflows_own_table_tells_the_names_of_1(monkeypatch: pytest.MonkeyPatch) -> None:
    table = b"renames = {\n    'tf.Session': 'tf.compat.v1.Session',\n    'tf.log': 'tf.math.log',\n}\n"

    class Sources:
        def read(self, path: str) -> bytes | None:
            return table if path.endswith("renames_v2.py") else None

    class Shelf:
        def offers(self, _name: str) -> tuple[IndexFile, ...]:
            name = "tensorflow-2.9.0-cp310-cp310-manylinux2014_x86_64.whl"
            return (IndexFile(name=name, url="", sha256="0" * 64),)

    monkeypatch.setattr(release_names, "opener", lambda *_: lambda _wheel: Sources())
    text = release_names.names_table(Shelf(), lambda _: None, ("tensorflow",))  # type: ignore[arg-type]
    row = names_row_of(text, "tensorflow")
    assert row["gone"] == {"2.0 1.15": {"tensorflow": "Session>tensorflow.compat.v1 log>tensorflow.math"}}


def test_the_table_has_what_wheels_told_and_what_stands_by_hand() -> None:
    spans = name_spans()
    assert spans["tensorflow.Session"].bounds == "<2"
    assert spans["transformers.AutoModelForVision2Seq"].bounds == ">=4.31,<5"
    assert spans["scipy.misc.imresize"].bounds == "<1.3"
    assert spans["skimage.measure.compare_ssim"].package == "scikit-image"
    assert spans["tensorflow.keras.layers.DenseFeatures"].bounds == "<2.16"
    assert not {"torch.no_grad", "keras.Layer", "tensorflow.keras.losses.MSE"} & {*spans}


def test_sources_that_cannot_be_read_bound_nothing(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_bytes(b"\xff\xfe import torch")
    with pytest.raises(UsageError):
        from_file(tmp_path)


PERIOD = dates.Period(day="2023-07-24", written="2023-07-24", why="its newest commit is of 2023-07-24")
PEFT = "git+https://github.com/huggingface/peft"


def of_repositories(
    monkeypatch: pytest.MonkeyPatch, line: str, homes: dict[str, str]
) -> tuple[Wishes, list[str]]:
    days = {"0.4.0": "2023-07-17", "0.5.0": "2023-08-22"}
    files = tuple(
        IndexFile(name=f"peft-{one}-py3-none-any.whl", url=one, sha256="0" * 64, uploaded=day)
        for one, day in days.items()
    )
    monkeypatch.setattr(evidence, "page", lambda name, _index: files if name == "peft" else "no such package")
    monkeypatch.setattr(evidence, "_is_of", lambda address, file, _index: homes.get(file.url) == address)
    found = Wishes()
    found.add(line, "requirements.txt:1")
    taken = releases_for_repositories(found, PERIOD, object())  # type: ignore[arg-type]
    return found, [str(one) for one in taken]


def test_a_branch_of_a_repository_becomes_the_release_of_the_projects_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    home = {"0.4.0": "github.com/huggingface/peft"}
    for line in (PEFT, f"{PEFT}.git", f"{PEFT}@main", f"peft @ {PEFT}.git@main", f"{PEFT}.git#egg=peft"):
        found, taken = of_repositories(monkeypatch, line, home)
        assert taken == ["peft<=0.4.0"], line
        assert (found.by_hand, found.sources) == ([], [])
        (note,) = found.notes
        assert "taken as peft<=0.4.0, its newest release of the project's time" in note


def test_a_commit_or_tag_and_another_projects_name_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    home = {"0.4.0": "github.com/huggingface/peft"}
    for line in (
        f"{PEFT}@v0.3.0",
        f"{PEFT}@1a2b3c4d",
        "git+https://github.com/other/peft",
        "git+https://github.com/a/b",
    ):
        found, taken = of_repositories(monkeypatch, line, home)
        assert taken == [], line
        assert found.by_hand == [line]


def test_builds_of_last_night_are_no_index_of_an_old_project() -> None:
    found = Wishes()
    found.add_index("https://download.pytorch.org/whl/nightly/cu118", "Dockerfile:14")
    assert found.index == []
    assert "its builds are of last night" in found.notes[0]


def test_what_is_typed_stays_of_two_distributions_of_a_framework(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("tensorflow\n")
    wishes = from_arguments(["tensorflow-gpu==1.15"])
    wishes.take_over(from_file(tmp_path / "requirements.txt"))
    frameworks, _ = split(wishes)
    single, dropped = _one_of_each(Demand(frameworks=frameworks))
    assert [str(one) for one in single.frameworks] == ["tensorflow-gpu==1.15"]
    assert [str(one.asked) for one in dropped] == ["tensorflow"]


def test_the_same_release_by_its_distribution_with_cuda_is_nearer_than_another() -> None:
    (wish,) = from_arguments(["tensorflow==1.15.2"]).wishes
    assert [str(one) for one in _siblings(wish)] == ["tensorflow-gpu==1.15.2"]
    (newer,) = from_arguments(["tensorflow==2.15.0"]).wishes
    assert list(_siblings(newer)) == []


def test_a_release_above_an_upper_bound_may_be_of_another_major() -> None:
    (wish,) = from_arguments(["tensorflow<2"]).wishes
    assert "another major version" in str(Substitution(asked=wish, instead="tensorflow==2.5.3"))
    assert "another major version" not in str(Substitution(asked=wish, instead="tensorflow==1.15.0"))


def test_what_is_typed_counts_more_than_what_sources_take(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("tensorflow\ntensorflow\n")
    (tmp_path / "train.py").write_text("import tensorflow as tf\ntf.Session()\n")
    wishes = from_arguments(["tensorflow==2.4.1"])
    wishes.take_over(from_file(tmp_path))
    assert [str(one) for one in wishes.merged().wishes] == ["tensorflow==2.4.1"]
    (alone,) = from_file(tmp_path).merged().wishes
    assert alone.place.count(" uses ") == 1


def test_an_open_framework_is_of_the_time_of_a_compiled_package_that_is_pinned_beside_it(monkeypatch) -> None:
    """Who pins bitsandbytes 0.40 has the PyTorch of that summer, whose CUDA it has a library for."""
    days = {"2.0.1": "2023-05-08", "2.1.2": "2023-12-15", "2.8.0": "2025-08-06"}
    listed = [
        IndexFile(
            name=f"torch-{version}-cp310-cp310-manylinux1_x86_64.whl",
            url="https://x",
            sha256=None,
            uploaded=day,
        )
        for version, day in days.items()
    ]
    monkeypatch.setattr(evidence, "page", lambda *_: listed)
    period = Period(day="2024-01-20", written="2023-07-24", why="the releases that x names are of 2023")

    def bound(*texts: str) -> str | None:
        frameworks, companions = split(from_arguments(texts))
        demand = Demand(frameworks=frameworks, companions=companions, gpus=("T4",))
        found = evidence._frameworks_of_time(demand, period, {}, None)
        return str(found[0].frameworks[0]) if found is not None else None

    assert bound("torch", "bitsandbytes==0.40.0") == "torch<=2.1.2"
    assert bound("torch>=1.10", "bitsandbytes==0.40.0") == "torch<=2.1.2,>=1.10"
    assert bound("torch", "transformers==4.31.0") is None  # it has no code for a CUDA
    assert bound("torch", "bitsandbytes") is None
    assert bound("torch==2.8.0", "bitsandbytes==0.40.0") is None
