"""Packages compiled for NumPy 1 beside NumPy 2, as their wheels say; pairs that others found broken."""

from __future__ import annotations

from dataclasses import replace

import pytest
from facts_shelf import LINUX, Shelf, metadata

from builder.plan.facts.reading.observed import Truth, WheelTruth
from builder.plan.facts.reading.release_survey import load_table, survey, table_text
from builder.plan.facts.rules.checking import check
from builder.plan.facts.rules.finding import Outcome
from builder.plan.facts.tables import load

FIRST = b"\x7fELF numpy.core._multiarray_umath\0_ARRAY_API\0"
SECOND = FIRST + b"numpy._core._multiarray_umath\0"


@pytest.fixture
def cell(make):
    def made(*pip: str, framework: str = "torch==2.4.1", python: str = "3.11"):
        return make(framework, python=python, base="rootfs:debian/bookworm", cuda="wheels", pip=pip)

    return made


def said(cell, rule: str, truth: Truth | None = None) -> tuple[str, str]:
    """The worst finding of a rule: its outcome, and its message."""
    found = [f for f in check(cell, truth, suggest=False) if f.rule == rule]
    worst = max(found, key=lambda f: f.outcome.severity, default=None)
    return (worst.outcome.value, worst.message) if worst is not None else ("", "")


@pytest.mark.parametrize(
    ("pip", "words"),
    [
        (
            ("pandas==2.0.3", "numpy==2.0.2"),
            "NumPy 2.0.2 is in the image: add numpy<2 to pip, or pandas>=2.2",
        ),
        (("pandas==2.2.1", "numpy==2.0.2"), "pandas 2.2.1 was compiled for NumPy 1"),
        (("pandas==2.0.3",), "nothing keeps the resolver from NumPy 2: add numpy<2"),
        (("pandas==1.2.0", "numpy==2.0.2"), "pandas 1.2.0 was compiled for NumPy 1"),
        (("scikit-learn==1.2.2",), "scikit-learn 1.2.2 was compiled for NumPy 1"),
        (("scipy==1.9.3", "numpy==2.1.0"), "scipy 1.9.3 was compiled for NumPy 1"),
        (("opencv-python==4.8.1.78", "numpy==2.0.2"), "opencv-python 4.8.1.78 was compiled for NumPy 1"),
        (("matplotlib==3.5.3", "numpy==2.0.2"), "matplotlib 3.5.3 was compiled for NumPy 1"),
        (("pyarrow==14.0.2", "numpy==2.0.2"), "pyarrow 14.0.2 was compiled for NumPy 1"),
        (("h5py==3.10.0", "numpy==2.0.2"), "h5py 3.10.0 was compiled for NumPy 1"),
        (("shapely==2.0.1", "numpy==2.0.2"), "shapely 2.0.1 was compiled for NumPy 1"),
        (("faiss-cpu==1.7.4", "numpy==2.0.2"), "faiss-cpu 1.7.4 was compiled for NumPy 1"),
    ],
)
def test_what_was_compiled_for_numpy_1_is_refused_beside_numpy_2(cell, pip, words) -> None:
    outcome, message = said(cell(*pip), "package-numpy")
    assert outcome == "impossible"
    assert words in message


@pytest.mark.parametrize(
    "pip",
    [
        ("pandas==2.2.2", "numpy==2.0.2"),
        ("pandas==2.0.3", "numpy<2"),
        ("pandas==2.0.3", "numpy==1.26.4"),
        ("pandas", "numpy==2.0.2"),
        ("pandas", "scipy", "scikit-learn", "matplotlib", "opencv-python-headless"),
        ("scikit-learn==1.3.2",),  # its metadata keeps NumPy 2 away
        ("scipy==1.13.0", "numpy==2.0.2"),
        ("pyarrow==22.0.0", "numpy==2.0.2"),
    ],
)
def test_what_runs_with_its_numpy_is_possible(cell, pip) -> None:
    assert Outcome.of(check(cell(*pip), suggest=False)).answer == "possible"


def test_python_3_8_has_no_numpy_2_to_take(cell) -> None:
    old = cell("pandas==2.0.3", framework="torch==2.4.1", python="3.8")
    assert said(old, "package-numpy") == ("", "")
    assert said(replace(old, pip=("pandas==2.0.3", "numpy==2.0.2")), "package-numpy")[0] == "impossible"


def test_the_way_out_is_a_bound_on_numpy(cell) -> None:
    refused, told = (
        next(f for f in check(cell("pandas==2.0.3"), suggest=suggest) if f.rule == "package-numpy")
        for suggest in (False, True)
    )
    assert (refused.outcome.value, refused.bounds) == ("impossible", ("numpy<2",))
    assert told.outcome.value == "warns"
    assert told.message.endswith("`rtbuild lock` resolves with numpy<2")


def test_a_lock_decides_by_the_numpy_in_it(cell) -> None:
    for version, expected in (("1.26.4", ""), ("2.0.2", "impossible")):
        wheels = tuple(
            WheelTruth(name=name, version=one, file=f"{name}.whl")
            for name, one in (("pandas", "2.0.3"), ("numpy", version))
        )
        truth = Truth(wheels=wheels, locked=True)
        assert said(cell("pandas==2.0.3"), "package-numpy", truth)[0] == expected


def test_makers_do_not_go_back_so_that_neighbours_tell_of_a_release_that_was_not_read() -> None:
    table = load().packages["pyarrow"]
    unread = [row for row in table.rows if "numpy_abi" in row.unread]
    assert [table.numpy_abi(row.version) for row in unread] == ["2"] * len(unread)
    assert (table.numpy_abi("1.0.0"), table.numpy_abi("999")) == ("1", "2")


@pytest.mark.parametrize(
    ("members", "abi", "unread"),
    [
        ({"mine/_a.so": FIRST}, "1", False),
        ({"mine/_a.so": SECOND, "mine/_b.so": SECOND}, "2", False),
        ({"mine/_a.so": SECOND, "mine/_b.so": FIRST}, "1", False),
        ({"mine/_a.so": b"\x7fELF numpy.core.multiarray", "mine.libs/libx.so": FIRST}, None, False),
        ({}, None, False),
    ],
)
def test_a_wheel_s_extension_modules_tell_which_numpy_they_are_compiled_for(
    tmp_path, members, abi, unread
) -> None:
    (tmp_path / "releases/packages").mkdir(parents=True)
    row = 'name = "mine", since = "1.0", compiled = "1.0", light = true, sources = ["index"]'
    source = '[sources.index]\nreference = "a listing"\ndate = "2026-11-24"\n'
    (tmp_path / "packages.toml").write_text(f"rows = [\n  {{ {row} }},\n]\n\n{source}")
    shelf = Shelf(
        {
            f"mine-1.0-cp311-cp311-{LINUX}.whl": {
                "mine/__init__.py": "",
                **members,
                **metadata("mine", "1.0", "numpy>=1.20"),
            }
        }
    )
    found = survey(tmp_path, shelf, only=("mine",), cache=tmp_path / "cache")
    text = table_text(found.tables["packages/mine"])
    (tmp_path / "releases/packages/mine.json").write_text(text)
    (made,) = load_table(tmp_path, "packages/mine").rows
    assert (made.get("numpy_abi"), "numpy_abi" in made.get("unread", {})) == (abi, unread)
    assert made["requires"] == ["numpy>=1.20"]


@pytest.mark.parametrize(
    ("framework", "pip", "row"),
    [
        ("tensorflow[and-cuda]==2.16.2", "tensorflow-addons==0.23.0", "tensorflow-addons-keras-3"),
        ("tensorflow==2.5.3", "keras==2.3.1", "keras-2.3-tensorflow-2.3"),
        ("tensorflow[and-cuda]==2.16.2", "tensorflow-addons", "tensorflow-addons-keras-3"),
        ("tensorflow[and-cuda]==2.16.2", "tensorflow-probability==0.23.0", "tensorflow-probability-keras-3"),
        ("tensorflow[and-cuda]==2.16.2", "tensorflow-hub==0.15.0", "tensorflow-hub-estimator"),
        ("torch==2.4.1", "gensim==4.3.2", "gensim-scipy-1.13"),
        ("torch==2.4.1", "datasets==2.13.0", "datasets-pyarrow-21"),
        ("torch==2.4.1", "statsmodels==0.14.4", "statsmodels-scipy-1.16"),
        ("torch==2.4.1", "statsmodels==0.14.5", "statsmodels-pandas-3"),
        ("torch==2.4.1", "imbalanced-learn==0.11.0", "imbalanced-learn-scikit-learn-1.5"),
        ("torch==2.4.1", "imgaug", "imgaug-numpy-2"),
        ("torch==2.4.1", "jaxlib==0.4.25", "jaxlib-numpy-2"),
        ("torch==2.6.0", "diffusers==0.25.1", "diffusers-huggingface-hub-0.26"),
        ("torch==2.1.2", "transformers", "transformers-5.20-torch"),
        ("torch==2.0.1", "transformers==4.55.0", "transformers-4.52-torch"),
        ("tensorflow[and-cuda]==2.18.1", "transformers==4.49.0", "transformers-tensorflow-keras-3"),
        ("tensorflow[and-cuda]==2.18.1", "tensorflow-hub", "tensorflow-hub-setuptools-82"),
        ("tensorflow[and-cuda]==2.18.1", "tf-agents==0.19.0", "tf-agents-keras-3"),
    ],
)
def test_a_pair_that_breaks_on_import_is_refused(cell, framework, pip, row) -> None:
    found = [f for f in check(cell(pip, framework=framework), suggest=False) if f.rule == "known-bad"]
    refused = [f.message.partition(": ")[0] for f in found if f.outcome is Outcome.IMPOSSIBLE]
    assert row in refused


@pytest.mark.parametrize(
    ("pip", "rows"),
    [
        (("torchaudio==2.9.1", "speechbrain==1.0.2"), ["speechbrain-torchaudio-2.9"]),
        (("torchaudio==2.9.1", "speechbrain==1.1.0"), []),
        (("torchaudio==2.8.0", "speechbrain==1.0.2"), []),
        (("torchaudio==2.9.1", "speechbrain==0.5.16"), []),
        (("gradio==3.50.2", "httpx==0.25.1", "httpcore==0.15.0"), ["gradio-httpx-httpcore-0.17"]),
        (("gradio==3.50.2", "httpx==0.25.1", "httpcore==0.18.0"), []),
        (("gradio==3.50.2", "httpx==0.23.3", "httpcore==0.15.0"), []),
        (("httpx==0.25.1", "httpcore==0.15.0"), []),
        (("pyopenssl==22.0.0", "cryptography==42.0.8"), ["pyopenssl-cryptography-39"]),
        (("pyopenssl==22.0.0", "cryptography==38.0.4"), []),
        (("pyopenssl==23.2.0", "cryptography==42.0.8"), []),
        (("requests-toolbelt==0.10.1", "urllib3==2.2.0"), ["requests-toolbelt-urllib3-2"]),
        (("requests-toolbelt==0.10.1", "urllib3==1.26.18"), []),
        (("requests-toolbelt==1.0.0", "urllib3==2.2.0"), []),
        (("category-encoders==2.6.3", "scikit-learn==1.7.2"), ["category-encoders-scikit-learn-1.7"]),
        (("category-encoders==2.6.3", "scikit-learn==1.6.1"), []),
        (("category-encoders==2.8.0", "scikit-learn==1.7.2"), []),
        (("umap-learn==0.5.7", "scikit-learn==1.8.0"), ["umap-learn-scikit-learn-1.8"]),
        (("umap-learn==0.5.7", "scikit-learn==1.7.2"), []),
        (("umap-learn==0.5.8", "scikit-learn==1.8.0"), []),
        (("hdbscan==0.8.40", "scikit-learn==1.8.0"), ["hdbscan-scikit-learn-1.8"]),
        (("hdbscan==0.8.42", "scikit-learn==1.8.0"), []),
        (("lightgbm==4.5.0", "scikit-learn==1.8.0"), []),  # tables of pandas go through: a reservation
    ],
)
def test_a_pair_that_no_proof_from_files_follows_is_refused_by_its_releases(cell, pip, rows) -> None:
    """A client that ``__init__`` makes by another method, a call below a parsed ``__version__``, names
    of cffi's object, an import below a test of ``requests.__build__``, and what the first ``fit()`` calls."""
    found = check(cell(*pip, framework="torch==2.9.1"), suggest=False, only=("known-bad",))
    assert [f.message.partition(": ")[0] for f in found if f.outcome is Outcome.IMPOSSIBLE] == rows


@pytest.mark.parametrize(
    ("framework", "pip"),
    [
        ("tensorflow[and-cuda]==2.15.1", ("tensorflow-addons==0.23.0",)),
        ("tensorflow[and-cuda]==2.15.1", ("tensorflow-probability==0.23.0",)),
        ("tensorflow[and-cuda]==2.18.1", ("tensorflow-hub==0.16.1", "setuptools<82")),
        ("tensorflow[and-cuda]==2.18.1", ("transformers==4.49.0", "tf-keras==2.18.0")),
        ("torch==2.4.1", ("imgaug", "numpy<2")),
        ("torch==2.6.0", ("diffusers==0.25.1", "huggingface-hub<0.26")),
        ("torch==2.6.0", ("diffusers==0.29.2",)),
        ("torch==2.4.1", ("wandb==0.16.6",)),
        ("torch==2.4.1", ("jaxlib==0.4.26",)),
        ("torch==2.4.1", ("jax==0.4.25", "jaxlib==0.4.25", "numpy<2")),
        ("torch==2.1.2", ("transformers==4.44.2", "numpy<2")),
        ("torch==2.6.0", ("transformers==4.49.0", "accelerate", "peft", "trl", "datasets")),
        ("torch==2.4.1", ("gensim==4.3.2", "scipy==1.12.0", "numpy<2")),
        ("torch==2.4.1", ("gensim==4.3.3",)),
        ("torch==2.4.1", ("datasets==2.13.0", "pyarrow==14.0.2", "numpy<2")),
        ("torch==2.4.1", ("statsmodels==0.14.4", "scipy==1.15.3", "pandas==2.2.3", "numpy==2.0.2")),
    ],
)
def test_the_pairs_that_work_stay_possible(cell, framework, pip) -> None:
    found = check(cell(*pip, framework=framework), suggest=False)
    assert [f.message for f in found if not f.outcome.is_possible] == []


def test_a_distribution_that_mends_a_pair_takes_its_refusal_away(cell) -> None:
    tensorflow = "tensorflow[and-cuda]==2.16.2"
    refused = said(cell("tensorflow-probability==0.24.0", framework=tensorflow), "known-bad")
    assert refused[0] == "impossible"
    assert refused[1].startswith("tensorflow-probability-tf-keras: ")
    for pip in (
        ("tensorflow-probability==0.24.0", "tf-keras==2.16.0"),
        ("tensorflow-probability[tf]==0.24.0",),
    ):
        assert said(cell(*pip, framework=tensorflow), "known-bad") == ("", "")
