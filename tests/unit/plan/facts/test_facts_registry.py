"""A framework and a card stand in the tables alone, and every reader of them knows what the tables know."""

import ast
import json
import re
import shutil
from collections import namedtuple
from functools import partial
from pathlib import Path

import pytest

from builder.core import resources
from builder.core.versions import WITH_PKG_RESOURCES, canonical, requirement
from builder.plan.facts.rules import linking
from builder.plan.facts.rules.candidates import REBUILT
from builder.plan.facts.rules.checking import check
from builder.plan.facts.rules.finding import Outcome
from builder.plan.facts.rules.image_contents import stack_of
from builder.plan.facts.tables import gpus
from builder.plan.facts.tables import loader as tables
from builder.plan.facts.tables.probe_facts import portable
from builder.plan.matrix import load
from builder.plan.resolve.solve import meant
from builder.release.catalogue.values import cards_of, releases_of
from builder.verify.cudnn_verify.common import tables as data
from builder.verify.cudnn_verify.common.distributions import module_facts
from builder.verify.cudnn_verify.common.requirement_facts import COMPILED_AT_INSTALL
from builder.verify.cudnn_verify.measure.contents import watched_names
from builder.verify.cudnn_verify.measure.schedule import FRAMEWORKS
from builder.verify.cudnn_verify.read import text_facts
from builder.verify.cudnn_verify.read.text_facts import TextFacts
from builder.verify.runner.reports import family

ROOT = Path(__file__).resolve().parents[4]

BUILDER = Path(__file__).resolve().parents[4] / "builder"
Line = namedtuple("Line", "text")
ROW = """
[[rows]]
name = "madeup"
title = "Made Up"
module = "madeup"
distribution = "madeup-gpu"
told = "madeup"
aliases = ["mdp"]
packages = "madeup-gpu"
requesters = ["madeup/libmadeup.so"]
inner = ["madeup/lib"]
libraries = ["libmadeup"]
settings = ["MADEUP_"]
printed_by = '\\bmadeup[./]'
sources = ["wheels"]
"""


@pytest.fixture
def with_more(tmp_path, monkeypatch):
    """The tables with one framework and one card more."""
    where = tmp_path / "tables"
    shutil.copytree(resources.facts(), where)
    names = where / "frameworks.toml"
    text = names.read_text("utf-8")
    names.write_text(text.replace("[sources.pytorch]", ROW + "\n[sources.pytorch]", 1), "utf-8")
    cards = where / "gpus.toml"
    row = '{ name = "RTX7090", capability = "12.0", consumer = true, sources = ["nvidia"] },\n]'
    cards.write_text(cards.read_text("utf-8").replace("\n]", f"\n  {row}", 1), "utf-8")
    shutil.copy(where / "ctranslate2.toml", where / "madeup.toml")
    madeup = where / "madeup.toml"
    about = madeup.read_text("utf-8").replace("CTranslate2", "Made Up")
    madeup.write_text(about.replace('name = "ctranslate2"', 'name = "madeup-gpu"'), "utf-8")
    releases = (where / "releases/ctranslate2.json").read_text("utf-8")
    (where / "releases/madeup.json").write_text(releases.replace('"ctranslate2"', '"madeup-gpu"'), "utf-8")
    caches = (
        tables.load,
        gpus._known,
        gpus._by_words,
        gpus.card_of,
        data.read_facts,
        data.read_cards,
        text_facts._package_names,
    )
    monkeypatch.setattr(resources, "facts", lambda: where)
    for cache in caches:
        cache.cache_clear()
    monkeypatch.setattr(data, "TABLES", portable())
    yield
    monkeypatch.undo()
    for cache in caches:
        cache.cache_clear()


@pytest.mark.slow
@pytest.mark.usefixtures("with_more")
def test_a_framework_and_a_card_of_the_tables_are_known_to_every_reader(make) -> None:
    release = tables.load().frameworks["madeup-gpu"].rows[-1].version
    cell = make(
        f"madeup-gpu=={release}",
        python="3.12",
        base="nvidia/cuda:12.8.1-cudnn-devel-ubuntu24.04",
        gpus=("RTX7090",),
    )
    found = list(check(cell, suggest=False))
    assert f"Made Up {release}" in str(found)
    may_have = partial(linking._base_has, stack_of(cell))
    assert may_have("libmadeup_core.so.1") is False, "wheels alone bring a framework's libraries"
    assert may_have("libother.so.1") is None
    assert not [f for f in found if f.rule == "gpu" and f.outcome is Outcome.UNKNOWN and "RTX7090" in str(f)]
    assert meant("madeup-gpuu") == "madeup-gpu"
    assert family("mdp") == family("madeup-gpu") == "madeup"
    assert "RTX7090" in {card.name for card in cards_of()}
    assert ("madeup-gpu", "Made Up") in {(one.framework, one.title) for one in releases_of()}
    told = TextFacts([Line("mdp==1.2.3 on an NVIDIA GeForce RTX 7090, madeup/core.py")])
    assert (told.packages, told.capability, told.printed_by) == ({"madeup": "1.2.3"}, "12.0", {"madeup"})
    assert data.read_frameworks()["madeup"]["inner"] == ["madeup/lib"]
    assert watched_names().match("madeup-gpu")


def test_each_framework_that_a_matrix_can_name_has_an_adapter_and_the_other_way_round() -> None:
    assert set(FRAMEWORKS) == {row.name for row in tables.load().registry if row.distribution is not None}
    for row in tables.load().registry:
        if row.name in FRAMEWORKS:
            assert (FRAMEWORKS[row.name].title, FRAMEWORKS[row.name].module) == (row.title, row.module)
            assert tables.load().frameworks[row.distribution].title == row.title


def lists_of_frameworks(path: Path) -> list[str]:
    """Literals with the names of three frameworks or more, ``file:line``."""
    rows = tables.load().registry
    names = {name for row in rows for name in (row.name, row.distribution, row.told)} - {None}
    found = []
    text = path.read_text("utf-8")
    if sum(name in text for name in names) < 3:
        return []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Dict):
            parts = [*node.keys, *node.values]
        elif isinstance(node, ast.Tuple | ast.List | ast.Set):
            parts = node.elts
        else:
            continue
        texts = {part.value for part in parts if isinstance(part, ast.Constant)}
        if len(texts & names) >= 3:
            found.append(f"{path.relative_to(BUILDER)}:{node.lineno}")
    return found


def test_frameworks_are_listed_in_the_registry_alone() -> None:
    found = {place for path in BUILDER.rglob("*.py") for place in lists_of_frameworks(path)}
    assert found == set(), "a row of facts/tables/frameworks.toml has it"


def test_the_registry_is_read_where_the_probe_reads_it() -> None:
    carried = json.loads(data.TABLES)["frameworks"]
    assert list(carried) == [row.name for row in tables.load().registry]


WITHOUT_A_TABLE = {
    *("gpu", "cuda", "cudnn", "cublas", "python"),  # conditions that are no distributions
    *("numpy", "protobuf", "setuptools"),  # a version is all that decides
    # broken by a major release of what it stands beside, whichever else is there
    *(
        "basicsr",
        "chromadb",
        "dgl",
        "e3nn",
        "gradio",
        "httpcore",
        "httpx",
        "imgaug",
        "jaxlib",
        "keras-cv",
        "librosa",
        "networkx",
        "pytorchvideo",
        "segmentation-models",
        "speechbrain",
        "tensorboard",
        "tf-agents",
    ),
    *("tensorflow-model-optimization", "wandb"),
    *("fastapi", "openai", "httpx", "pydantic", "typing-extensions"),  # a version is all that decides
    *("cryptography", "pyopenssl", "requests-toolbelt", "urllib3"),  # the same
    *("arviz", "click", "gevent", "greenlet", "ray"),  # the same
    *("albucore", "antlr4-python3-runtime", "apache-tvm-ffi", "category-encoders", "coverage"),  # the same
    *("environs", "fsspec", "kernels", "marshmallow", "mlx-lm", "omegaconf", "onnx-ir"),  # the same
    *("packaging", "tilelang", "typer"),  # the same
    *("litellm", "ultralytics"),  # releases that others put on the index
    *("pyserial", "serial", "thop", "ultralytics-thop"),  # only that they are two of one file
    *("faiss-gpu-cuvs", "librmm-cu13"),  # one release of the one beside later ones of the other
    "faiss-gpu-cu11",  # given up before the releases on record: only that they are two of one file
    *(f"spconv-cu{n}" for n in (102, 111, 113, 114, 116, 117, 118, 120, 121, 124, 126)),  # one for each CUDA
    "flashinfer-jit-cache",  # on an index of its maker's alone
}


def test_a_package_that_one_table_names_has_a_table_of_its_releases() -> None:
    """Kernels, files of two owners and bad combinations name no package that no other rule knows."""
    facts = tables.load()
    named = {name for row in facts.kernels.values() for name in (row.name, row.unless) if name}
    named |= {name for row in facts.same_files for name in row.names}
    conditions = (requirement(text) for row in facts.bad for text in (*row.when, *row.open))
    named |= {canonical(parsed.name) for parsed in conditions if parsed is not None}
    brought = [row.packages for row in facts.registry if row.packages]
    unknown = {
        name
        for name in named
        if name not in {*facts.package_names, *facts.without, *facts.frameworks}
        and not name.startswith("nvidia-")
        and not any(re.fullmatch(packages, name) for packages in brought)
    }
    assert unknown == WITHOUT_A_TABLE


def test_what_is_compiled_against_pytorch_is_known_to_the_probe() -> None:
    """But for diso, which is a part of other words."""
    against = {row.name for row in tables.load().builds if row.against == "torch"}
    assert against - {*COMPILED_AT_INSTALL} == {"diso"}


def test_the_probe_installs_for_a_module_what_the_tables_name_in_its_place() -> None:
    owners = [set(row.names) for row in tables.load().same_files]
    mistaken = tables.load().mistaken_names
    both = {name: package for name in mistaken if (package := module_facts(name)) is not None}
    assert set(both) >= {"cv2", "sklearn", "skimage"}
    for name, package in both.items():
        pair = {package, mistaken[name].instead}  # OpenCV's distributions own one file
        assert len(pair) == 1 or any(pair <= one for one in owners), name
    assert module_facts("pkg_resources") == WITH_PKG_RESOURCES


def test_an_image_that_nvidia_deleted_is_proposed_where_the_matrix_of_tensorflow_1_has_it() -> None:
    bases = [
        cell.base.name for cell in load(ROOT / "matrices" / "tf1.yaml").cells if cell.base.kind == "registry"
    ]
    assert bases
    assert all(name.startswith(f"{REBUILT}/nvidia/cuda:") for name in bases)


def test_rules_and_diagnose_name_one_container_of_tensorflow_for_blackwell() -> None:
    row = next(row for row in tables.load().bad if row.id == "tensorflow-blackwell-ptx")
    causes = (ROOT / "builder/verify/cudnn_verify/common/causes.ini").read_text()
    image = r"nvcr\.io/nvidia/tensorflow:[\w.-]+"
    assert set(re.findall(image, row.remedy)) == set(re.findall(image, causes)) != set()
