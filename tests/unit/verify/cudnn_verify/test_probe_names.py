"""Messages about names that releases of a package lost or brought, answered out of ``names.json``."""

from __future__ import annotations

import pytest
from pages import diagnose_score


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
