"""Messages about names that releases of a package lost or brought, answered out of ``names.json``."""

from __future__ import annotations

import pytest
from pages import diagnose_score

from builder.verify.cudnn_verify.common import name_changes


def because(text: str) -> str:
    document = diagnose_score.answer(text)
    return " ".join(document["causes"][0]["because"]) if document["causes"] else ""


# https://github.com/AEON-7/vllm-ultimate-dgx-spark/pull/8: the call is in the message, the releases are below
_CALL = """\
TypeError: make_kwargs_wrapper() got an unexpected keyword argument 'map_dataclass_to_tuple'
  fused_moe/b12x_moe.py -> nvidia_cutlass_dsl ... -> tvm_ffi.utils.kwargs_wrapper

nvidia-cutlass-dsl 4.6.0, apache-tvm-ffi 0.1.9
"""
_PRIVATE = """\
transformers 5.12.1, peft 0.18.1
ImportError: cannot import name '_maybe_shard_state_dict_for_tp' from 'peft.utils.save_and_load'
"""


@pytest.mark.parametrize(
    ("text", "told", "command"),
    [
        (_CALL, "from 0.1.10 on", 'pip install "apache-tvm-ffi>=0.1.10"'),
        (_PRIVATE, "from 0.19 on", 'pip install "peft>=0.19"'),
    ],
)
def test_a_release_that_has_what_is_asked_for(text, told, command):
    document = diagnose_score.answer(text)
    assert document["cause"] == "package-pin-mismatch"
    assert told in because(text)
    assert command in [row["text"] for row in document["causes"][0]["commands"]]


@pytest.mark.parametrize(
    ("text", "is_told"),
    [
        ("ImportError: cannot import name 'frobnicate' from 'accelerate.utils'", True),
        ("AttributeError: module 'accelerate' has no attribute 'frobnicate'", True),
        ("accelerate 99.0\nImportError: cannot import name 'frobnicate' from 'accelerate.utils'", False),
        ("ImportError: cannot import name 'Accelerator' from 'accelerate'", False),  # all have it
        ("ImportError: cannot import name 'frobnicate' from 'unheard_of'", False),
        ("AttributeError: module 'torch' has no attribute 'frobnicate'", False),  # compiled code may have it
    ],
)
def test_a_name_that_no_release_has_is_said_to_be_of_none(text, is_told):
    assert ("no release of accelerate" in because(text)) == is_told


def test_a_patch_that_is_older_than_the_one_that_was_read_may_be_without_a_name():
    """Of PEFT 0.19 the newest patch was read: that 0.19.0 has the name, nobody knows."""
    document = diagnose_score.answer(_PRIVATE.replace("0.18.1", "0.19.0"))
    assert document["cause"] == "package-pin-mismatch"
    assert "another peft is imported" not in because(_PRIVATE.replace("0.18.1", "0.19.0"))
    assert 'pip install "peft>=0.19.1"' in [row["text"] for row in document["causes"][0]["commands"]]


@pytest.mark.parametrize("quote", ["'", ""])
def test_a_name_that_stands_elsewhere_from_a_release_on(quote):
    """As chats show it, without quotes, too: https://github.com/NVIDIA/Megatron-LM/pull/6545"""
    text = "AttributeError: module 'cutlass.cute.core' has no attribute 'ThrMma'".replace("'", quote)
    assert diagnose_score.answer(text)["cause"] == "package-pin-mismatch"
    assert (
        "no longer from 4.6 on (4.5 is the last release with it); it is cutlass.cute.ThrMma now"
        in because(text)
    )


@pytest.mark.parametrize(
    ("text", "is_told"),
    [
        ("ImportError: cannot import name 'BoneConfig'", False),  # a short name may be of many packages
        ("peft 0.19.1\nImportError: cannot import name 'BoneConfig'", True),
    ],
)
def test_a_message_that_is_cut_before_its_module(text, is_told):
    assert ("peft has peft.BoneConfig" in because(text)) == is_told


@pytest.mark.parametrize(
    ("line", "command", "told"),
    [
        # https://github.com/kleinlee/DH_live/issues/114
        (
            "AttributeError: module 'mediapipe' has no attribute 'solutions'",
            'pip install "mediapipe<0.10.30"',
            "0.10.21 is the last release with it",
        ),
        # https://github.com/rmarkello/snfpy/pull/24: in the marks that Python's suggestions are printed in
        (
            "TypeError: check_array() got an unexpected keyword argument `force_all_finite`.",
            'pip install "scikit-learn<1.8"',
            "it is ensure_all_finite now",
        ),
        # https://github.com/meta-pytorch/torchtune/pull/2955
        (
            "AttributeError: module 'pyarrow' has no attribute 'PyExtensionType'",
            'pip install "pyarrow<21"',
            "20.0 is the last release with it",
        ),
    ],
)
def test_a_line_alone_is_answered_out_of_the_row_of_its_package(line, command, told):
    (row,) = diagnose_score.answer(line)["causes"]
    assert [one["text"] for one in row["commands"]] == [command]
    assert told in " ".join(row["because"])


@pytest.mark.parametrize("cut", [None, 1])
def test_a_row_that_goes_without_what_releases_brought_does_not_say_that_a_release_is_too_new(
    monkeypatch, cut
):
    change = name_changes.NameChange("numpy", "numpy.x", None, "2.0", "1.26", "", None, None, "numpy<2")
    monkeypatch.setattr(name_changes, "names_row", lambda package: {"cut": cut})
    assert ("too new" in name_changes.change_told(change)) == (cut is None)
