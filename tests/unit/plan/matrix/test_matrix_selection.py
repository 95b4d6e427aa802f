"""Selectors: globs with braces, and a reason for every cell that is left out."""

from __future__ import annotations

import fnmatch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builder.core.errors import NothingSelectedError, UsageError
from builder.core.model import Base, Cell, Cuda
from builder.plan.matrix import select
from builder.plan.matrix.selection import BadGlob, braces, matches


def cell(name, excluded=None):
    return Cell(
        id=name,
        matrix="m",
        frameworks=("torch==2.1.0",),
        python="3.9",
        base=Base(kind="registry", name="a:1"),
        cuda=Cuda(provider="base"),
        excluded=excluded,
    )


CELLS = (
    cell("torch2.1-py3.8"),
    cell("torch2.1-py3.9"),
    cell("torch2.1-py3.11", "no wheels"),
    cell("tf2.8-py3.9"),
)


def ids(selection):
    return [chosen.id for chosen in selection.chosen]


def test_without_selectors_all_but_the_excluded():
    selection = select(CELLS)
    assert ids(selection) == ["torch2.1-py3.8", "torch2.1-py3.9", "tf2.8-py3.9"]
    assert selection.left_out == ((CELLS[2], "excluded: no wheels"),)
    assert selection.unmatched_skips == ()


def test_every_cell_left_out_has_its_reason():
    selection = select(CELLS, select=["torch*"], skip=["*-py3.{7,8}", "x*"])
    assert ids(selection) == ["torch2.1-py3.9"]
    assert [(left.id, reason) for left, reason in selection.left_out] == [
        ("torch2.1-py3.8", "skipped by --skip '*-py3.{7,8}'"),
        ("torch2.1-py3.11", "excluded: no wheels"),
        ("tf2.8-py3.9", "not selected"),
    ]
    assert selection.unmatched_skips == ("x*",)


def test_a_glob_that_matches_nothing_is_an_error_even_beside_one_that_does():
    with pytest.raises(NothingSelectedError) as caught:
        select(CELLS, select=["tf*", "toch2.1-py3.9"])
    assert caught.value.exit_code == 3
    assert caught.value.message == "no cell matches --select 'toch2.1-py3.9'"
    assert caught.value.hint.startswith("the nearest: torch2.1-py3.9, ")


def test_a_glob_with_no_likeness_points_to_list():
    with pytest.raises(NothingSelectedError, match="`rtbuild list` shows all cells"):
        select(CELLS, select=["@@@@"])


def test_selecting_what_is_excluded_says_why():
    with pytest.raises(NothingSelectedError) as caught:
        select(CELLS, select=["*3.11"])
    assert caught.value.message == "--select '*3.11' matches only cells that their matrix excludes"
    assert caught.value.hint == "torch2.1-py3.11: no wheels"


def test_skipping_all_is_an_error_with_the_count():
    with pytest.raises(NothingSelectedError) as caught:
        select(CELLS, skip=["*"])
    assert caught.value.hint == "3 skipped by --skip '*'; 1 excluded: no wheels"


def test_no_cells_at_all():
    with pytest.raises(NothingSelectedError, match="the matrix has no cells"):
        select(())


@pytest.mark.parametrize("glob", ["a{b", "a}b", "{a,{b}", "}{", "{a,b}" * 12])
@pytest.mark.parametrize("option", ["select", "skip"])
def test_braces_that_say_nothing_are_a_usage_error(option, glob):
    with pytest.raises(UsageError, match=f"--{option}: "):
        select(CELLS, **{option: [glob]})


@pytest.mark.parametrize(
    ("glob", "wanted"),
    [
        ("abc", ("abc",)),
        ("", ("",)),
        ("a{b,c}", ("ab", "ac")),
        ("a{b,c{d,e}}f", ("abf", "acdf", "acef")),
        ("{a,b}{1,2}", ("a1", "a2", "b1", "b2")),
        ("{,x}y", ("y", "xy")),
        ("{a}", ("a",)),
        ("a,b", ("a,b",)),
        ("{a,a}", ("a",)),
    ],
)
def test_braces_as_in_a_shell(glob, wanted):
    assert set(braces(glob)) == set(wanted)
    assert len(braces(glob)) == len(wanted)


def test_case_counts_and_the_very_text_matches():
    assert not matches("Torch", "torch")
    assert matches("jax[cuda12]==0.4", "jax[cuda12]==0.4")
    assert matches("torch2.1-py3.9", "torch2.1-py3.[89]")


TREES = st.recursive(
    st.text("ab*?.-", max_size=3),
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: ("any", parts)),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: ("row", parts)),
    ),
    max_leaves=6,
)


def written(tree):
    match tree:
        case ("any", parts):
            return "{" + ",".join(map(written, parts)) + "}"
        case ("row", parts):
            return "".join(map(written, parts))
        case text:
            return text


def meant(tree):
    match tree:
        case ("any", parts):
            return {text for part in parts for text in meant(part)}
        case ("row", parts):
            texts = {""}
            for part in parts:
                texts = {left + right for left in texts for right in meant(part)}
            return texts
        case text:
            return {text}


@given(TREES, st.text("ab.-", max_size=6))
def test_a_glob_matches_where_one_of_its_alternatives_does(tree, text):
    glob = written(tree)
    assert set(braces(glob)) == meant(tree)
    assert matches(text, glob) == (text == glob or any(fnmatch.fnmatchcase(text, one) for one in meant(tree)))


@given(st.text("{},ab", max_size=12))
def test_braces_end_or_are_refused(glob):
    try:
        found = braces(glob)
    except BadGlob:
        return
    assert found
    assert not any("{" in one or "}" in one for one in found)


@given(
    st.lists(st.sampled_from(["torch*", "*3.9", "tf*", "*{8,9}"]), max_size=3),
    st.lists(st.sampled_from(["tf*", "*3.8", "zzz"]), max_size=2),
)
def test_chosen_and_left_out_are_all_cells_in_order(chosen, skipped):
    try:
        selection = select(CELLS, select=chosen, skip=skipped)
    except NothingSelectedError:
        return
    left = [one for one, _ in selection.left_out]
    assert sorted([*ids(selection), *(one.id for one in left)]) == sorted(one.id for one in CELLS)
    assert [one for one in CELLS if one in selection.chosen] == list(selection.chosen)
    assert all(one.excluded is None for one in selection.chosen)
