"""From file to cells: order, merging, exclusion, and strings that stay strings."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from builder.core.errors import MatrixError
from builder.core.model import Base, Cuda, Exemption, Options, Publishing
from builder.core.suites import SUITES
from builder.image.recipe import bundle
from builder.plan.matrix import entry, load

GOLDEN = Path(__file__).parents[3] / "golden" / "matrix"
GOOD = sorted((GOLDEN / "good").glob("*.yaml"))
HEAD = "version: 1\ndefaults: {framework: torch==2.1.0, base: 'a:1', cuda: base, python: 3.9}\n"


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_the_cells_of_a_good_file(path, golden):
    matrix = load(path)
    document = {
        "name": matrix.name,
        "description": matrix.description,
        "cells": [
            {
                "id": cell.id,
                **cell.inputs(),
                "env": dict(cell.env),
                "gpus": cell.gpus,
                "excluded": cell.excluded,
                "line": cell.span.line,
            }
            for cell in matrix.cells
        ],
    }
    golden(f"matrix/good/{path.stem}.json", json.dumps(document, indent=1) + "\n")


def test_one_cell_in_all_its_fields():
    matrix = load(GOLDEN / "good" / "tf28.yaml")
    cell = matrix.cells[-1]
    assert matrix.name == cell.matrix == "tf28"
    assert matrix.description == "TensorFlow 2.8.4, on two bases"
    assert cell.id == "tensorflow2.8.4-py3.9-cuda11.2.2-cudnn8-ubuntu20.04-extra"
    assert cell.base == Base(kind="registry", name="nvidia/cuda:11.2.2-cudnn8-runtime-ubuntu20.04")
    assert cell.cuda == Cuda(provider="base")
    assert cell.pip == ("numpy==1.23.5", "scipy")
    assert cell.env == (("TF_CPP_MIN_LOG_LEVEL", "0"), ("EMPTY", ""), ("OMP_NUM_THREADS", "4"))
    assert cell.platform == "linux/amd64"
    assert cell.options == Options(compression="gzip", strict_cudnn=True, max_size=5_905_580_032)
    assert cell.span is not None
    assert cell.span.line == 19


def test_without_libyaml_the_cells_are_the_same(monkeypatch):
    fast = [load(path) for path in GOOD]
    monkeypatch.delattr(yaml, "CSafeLoader", raising=False)
    slow = [load(path) for path in GOOD]
    assert slow == fast
    assert [c.span for m in slow for c in m.cells] == [c.span for m in fast for c in m.cells]


def test_versions_stay_strings(load_text):
    matrix = load_text(HEAD + "axes:\n  python: [3.10, 3.20, '3.30']\n")
    assert [cell.python for cell in matrix.cells] == ["3.10", "3.20", "3.30"]


def test_lists_grow_and_scalars_give_way(load_text):
    matrix = load_text(
        """\
        version: 1
        defaults:
          {framework: torch==2.1.0, base: "a:1", cuda: base, python: 3.9,
           pip: a, apt: [bb], gpus: T4, env: {A: 1, B: 2}}
        include:
          - {framework: jax==0.4.1, python: 3.10, variant: v,
             pip: [c, a], apt: [], gpus: [A100, T4], env: {B: 3, C: 4}}
          - {}
        """
    )
    first, second = matrix.cells
    assert (first.frameworks, first.python) == (("jax==0.4.1",), "3.10")
    assert (first.pip, first.apt, first.gpus) == (("a", "c"), ("bb",), ("T4", "A100"))
    assert first.env == (("A", "1"), ("B", "3"), ("C", "4"))
    assert (second.python, second.pip) == ("3.9", ("a",))


SOURCES = """
    version: 1
    defaults:
      framework: torch==2.6.0
      base: rootfs:debian/bookworm
      cuda: none
      python: 3.11
      from-source: [moviepy, psycopg2]
    include:
      - variant: pure
      - variant: compiled
        from-source: [Psycopg2: [libpq-dev, pkg-config], dlib: []]
"""


def test_a_package_that_is_compiled_names_what_its_build_needs(load_text):
    pure, compiled = load_text(SOURCES).cells
    assert (pure.from_source, pure.compiled) == (("moviepy", "psycopg2"), ())
    assert compiled.from_source == ("moviepy",)
    assert compiled.compiled == (("psycopg2", ("libpq-dev", "pkg-config")), ("dlib", ()))
    assert pure.inputs()["from-source"] == ["moviepy", "psycopg2"]
    assert compiled.inputs()["from-source"] == [
        "moviepy",
        {"psycopg2": ["libpq-dev", "pkg-config"]},
        {"dlib": []},
    ]


def test_a_rule_goes_by_the_name_of_what_is_compiled(load_text):
    rule = "\n    exclude: [{from-source: dlib, reason: slow}]\n"
    assert [cell.excluded for cell in load_text(SOURCES + rule).cells] == [None, "slow"]


def test_an_axis_may_replace_a_default(load_text):
    matrix = load_text(HEAD + "axes:\n  python: [3.8, 3.10]\ninclude:\n  - {variant: plain}\n")
    assert [cell.python for cell in matrix.cells] == ["3.8", "3.10", "3.9"]


def test_an_axis_of_lists_with_its_names(load_text):
    text = (
        HEAD
        + "axes:\n  pip: [[], numpy, [numpy, scipy]]\n  variant: [bare, np, sci]\nzip: [[pip, variant]]\n"
    )
    assert [(cell.variant, cell.pip) for cell in load_text(text).cells] == [
        ("bare", ()),
        ("np", ("numpy",)),
        ("sci", ("numpy", "scipy")),
    ]


def test_the_first_of_two_rules_gives_the_reason(load_text):
    rules = "exclude:\n  - python: 3.8\n    reason: >\n      too\n      old\n"
    text = HEAD + "axes:\n  python: [3.8, 3.9]\n" + rules + "  - {python: 3.*, reason: all}\n"
    assert [cell.excluded for cell in load_text(text).cells] == ["too old", "all"]


@pytest.mark.parametrize(
    "glob",
    [
        "framework: torch==2.*",
        "base: 'a:?'",
        "cuda: wheels",
        "cuda: nvidia-cudnn-cu11*",
        "pip: 'sci*'",
        "env: A=1",
        "gpus: T*",
        "platform: linux/amd64",
        "index: '*example.invalid*'",
        "apt: libgomp1",
        "variant: v",
        "id: 'torch2.1.0-*-v'",
        "python: '3.{7,{8,9}}'",
    ],
)
def test_a_rule_can_go_by_any_key(load_text, glob):
    text = f"""\
    version: 1
    defaults: {{framework: torch==2.1.0, base: "a:1", python: 3.9}}
    include:
      - cuda: {{from: wheels, packages: [nvidia-cudnn-cu11==8.6.0.163]}}
        pip: [numpy, scipy]
        env: {{A: 1}}
        gpus: T4
        index: https://wheels.example.invalid/
        apt: libgomp1
        variant: v
      - {{cuda: base, base: "b:22", framework: jax==0.4.1, python: 3.11, platform: linux/arm64}}
    exclude:
      - {{{glob}, reason: why}}
    """
    assert [cell.excluded for cell in load_text(text).cells] == ["why", None]


def test_an_error_elsewhere_does_not_hide_an_idle_rule(load_text):
    text = HEAD + "axes:\n  python: [3.9]\nexclude:\n  - {python: 3.8, reason: no}\noptions: {speed: fast}\n"
    with pytest.raises(MatrixError) as caught:
        load_text(text)
    assert [d.message for d in caught.value.diagnostics] == [
        "this rule matches no cell: none has python '3.8'",
        "unknown key 'speed' in 'options'",
    ]


def test_a_broken_entry_does_not_make_a_rule_idle(load_text):
    text = (
        HEAD + "include:\n  - {python: 3.8.x, variant: v}\n  - {}\nexclude:\n  - {variant: v, reason: no}\n"
    )
    with pytest.raises(MatrixError) as caught:
        load_text(text)
    assert [d.message for d in caught.value.diagnostics] == ["'3.8.x' is no Python version"]


def test_a_thousand_cells_load_in_one_pass(load_text):
    product = HEAD + (
        "axes:\n  python: [" + ", ".join(f"3.{n}" for n in range(6, 26)) + "]\n"
        "  variant: [" + ", ".join(f"v{n}" for n in range(50)) + "]\n"
        "exclude:\n  - {python: '3.{6,7}', variant: 'v1*', reason: old}\n"
    )
    entries = (
        HEAD
        + "include:\n"
        + "".join(
            f"  - {{python: 3.{6 + n % 20}, pip: [numpy==1.{n}.0, scipy], env: {{N: {n}}}, variant: v{n}}}\n"
            for n in range(1000)
        )
    )
    for text in (product, entries):
        started = time.process_time()
        cells = load_text(text).cells
        assert len(cells) == 1000
        # a quarter of a second; every cell beside every other takes minutes
        assert time.process_time() - started < 5


# -- properties

AXES = {
    "framework": [f"torch==2.{n}.0" for n in range(6)],
    "base": [f"image{n}:1" for n in range(6)],
    "python": [f"3.{n}" for n in range(6, 24)],
    "platform": ["linux/amd64", "linux/arm64"],
    "variant": [f"v{n}" for n in range(6)],
}


@st.composite
def axes(draw):
    names = draw(st.lists(st.sampled_from(sorted(AXES)), min_size=1, unique=True))
    return {
        name: draw(st.lists(st.sampled_from(AXES[name]), min_size=1, max_size=3, unique=True))
        for name in names
    }


def point(cell):
    return {
        "framework": cell.frameworks[0],
        "base": str(cell.base),
        "python": cell.python,
        "platform": cell.platform,
        "variant": cell.variant,
    }


@settings(max_examples=60, deadline=None)
@given(axes())
def test_cells_are_the_product_in_file_order(load_text, chosen):
    text = HEAD + "axes:\n" + "".join(f"  {name}: [{', '.join(values)}]\n" for name, values in chosen.items())
    cells = load_text(text).cells
    assert [tuple(point(cell)[name] for name in chosen) for cell in cells] == list(
        itertools.product(*chosen.values())
    )
    assert len({cell.id for cell in cells}) == len(cells)
    assert all(re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}", cell.id) for cell in cells)
    assert load_text(text).cells == cells


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 4), st.integers(1, 4), st.permutations(["base", "python", "variant", "framework"]))
def test_a_zipped_group_moves_as_one_axis(load_text, length, width, order):
    chosen = {name: AXES[name][: width if name == "framework" else length] for name in order}
    text = HEAD + "axes:\n" + "".join(f"  {name}: [{', '.join(values)}]\n" for name, values in chosen.items())
    cells = load_text(text + "zip: [[variant, base, python]]\n").cells
    group = list(zip(*(chosen[name] for name in ("variant", "base", "python")), strict=True))
    pairs = (
        [(f, g) for f in chosen["framework"] for g in group]
        if order[0] == "framework"
        else [(f, g) for g in group for f in chosen["framework"]]
    )
    found = [point(cell) for cell in cells]
    assert [(p["framework"], (p["variant"], p["base"], p["python"])) for p in found] == pairs


# What YAML reads as something other than text, and what a hand writes without quotes.
PLAIN = st.one_of(
    st.sampled_from(
        [
            "3.10",
            "1e3",
            "0x1F",
            "010",
            "12:30:45",
            "yes",
            "No",
            "on",
            "~",
            "null",
            "2024-01-01",
            ".5",
            "=",
            "+1",
        ]
    ),
    st.integers().map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(str),
)


@settings(max_examples=60, deadline=None)
@given(PLAIN)
def test_a_plain_scalar_is_the_text_that_stands_there(load_text, plain):
    (cell,) = load_text(HEAD + f"include:\n  - env: {{A: {plain}}}\n").cells
    assert cell.env == (("A", plain),)


@settings(max_examples=60, deadline=None)
@given(st.text(st.characters(exclude_categories=["C", "Zl", "Zp"]), max_size=60).filter(str.isprintable))
def test_a_quoted_scalar_is_its_text(load_text, text):
    quoted = text.replace("'", "''")
    (cell,) = load_text(HEAD + f"include:\n  - env:\n      A: '{quoted}'\n").cells
    assert cell.env == (("A", text),)


@settings(max_examples=150, deadline=None)
@given(st.text(st.sampled_from("version: 1\naxes[]{}-'\"*&<|>#,?!%@`\t\\é\x07 python base cuda")))
def test_no_text_at_all_breaks_the_reader(load_text, text):
    try:
        diagnostics = ()
        cells = load_text(text).cells
    except MatrixError as error:
        cells, diagnostics = (), error.diagnostics
    assert bool(cells) != bool(diagnostics)


def test_what_a_matrix_says_of_publishing():
    publish = load(GOLDEN / "good" / "publish.yaml").publish
    cell = "tensorflow2.8.4-py3.9-bullseye-cudawheels"
    assert publish == Publishing(
        staging="registry.example:5000/staging/tf",
        repository="registry.example/tf",
        max_age=30 * 24 * 3600,
        aliases=(("latest", cell), ("2.8", cell)),
        exempt=(Exemption(gpu="P100", cells="*-py3.9-*", reason="no kernels"),),
    )
    assert load(GOLDEN / "good" / "tf28.yaml").publish == Publishing()


@pytest.mark.parametrize(
    ("line", "named", "compilers", "suites"),
    [
        ("", (), False, ("conv",)),
        ("compilers: true", (), True, ("conv",)),
        ("verify: [conv]", ("conv",), False, ("conv",)),
        ("verify: [train, compile]", ("train", "compile"), True, ("conv", "compile", "train")),
    ],
)
def test_the_suites_of_a_cell(load_text, line, named, compilers, suites):
    (cell,) = load_text(
        "version: 1\nname: x\naxes:\n  python: ['3.11']\n  base: [rootfs:debian/bookworm]\n  cuda: [wheels]\n"
        f"defaults:\n  apt: [git]\n  framework: torch==2.9.1\n  {line}\n"
    ).cells
    assert (cell.verify, cell.compilers, cell.suites()) == (named, compilers, suites)
    assert "verify" not in cell.inputs()
    assert any("    verify: " in text for text in entry(cell)) is bool(named)


def test_the_suites_are_those_of_the_probe(tmp_path):
    """Of the one file that goes into images."""
    path = tmp_path / "cudnn_verify.py"
    path.write_bytes(bundle())
    asked = subprocess.run(
        [sys.executable, path, "--suite", "none"], capture_output=True, text=True, check=False
    )
    assert f"there are: {', '.join(SUITES)}\n" in asked.stderr


def test_imports_of_a_cell_come_after_those_of_the_defaults(load_text):
    (cell,) = load_text(
        "version: 1\nname: x\ndefaults:\n  imports: [moviepy.editor]\ninclude:\n"
        "  - {framework: numpy==1.26.4, python: '3.11', base: rootfs:debian/bookworm, cuda: none,\n"
        "     imports: [openai:OpenAI, moviepy.editor]}\n"
    ).cells
    assert cell.imports == ("moviepy.editor", "openai:OpenAI")
    assert '    imports: ["moviepy.editor", "openai:OpenAI"]' in entry(cell)


@pytest.mark.parametrize(
    ("line", "wanted"), [("", False), ("compilers: true", True), ("compilers: false", False)]
)
def test_compilers_are_asked_for_by_the_matrix(load_text, line, wanted):
    (cell,) = load_text(
        "version: 1\nname: x\naxes:\n  framework: [numpy==1.26.4]\n  python: ['3.11']\n"
        f"  base: [rootfs:debian/bookworm]\n  cuda: [none]\ndefaults:\n  apt: [git]\n  {line}\n"
    ).cells
    assert (cell.compilers, cell.apt) == (wanted, ("git",))
    assert ("    compilers: true" in entry(cell)) is wanted
