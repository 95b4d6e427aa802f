"""cuDNN's numbers, and NVIDIA's rule."""

import pytest

from builder.verify.cudnn_verify.common.versions import cuda_tuple, cudnn_rule, cudnn_tuple, dotted, numbers


@pytest.mark.parametrize(
    ("number", "version"),
    [
        (7605, (7, 6, 5)),
        (8005, (8, 0, 5)),
        (8907, (8, 9, 7)),
        (90000, (9, 0, 0)),
        (90100, (9, 1, 0)),
        (91002, (9, 10, 2)),
        (92800, (9, 28, 0)),
    ],
)
def test_the_version_number_changed_its_scale_with_cudnn_9(number, version):
    assert cudnn_tuple(number) == version


@pytest.mark.parametrize(
    ("compiled", "loaded", "strict", "cause"),
    [
        ((8, 1, 0), (8, 0, 5), False, "cudnn-too-old"),
        ((8, 2), (8, 4, 0), False, None),
        ((8, 2), (8, 4, 0), True, "cudnn-not-equal"),
        ((8, 9, 7), (8, 9, 2), False, None),
        ((8, 9, 7), (8, 9, 2), True, "cudnn-not-equal"),
        ((9,), (9, 1, 0), True, None),
        ((8, 9), (9, 1), False, "cudnn-major-mismatch"),
        ((9, 3), (8, 9), False, "cudnn-major-mismatch"),
        ((9, 1, 0), (9, 1, 0), True, None),
        ((), (9, 1), False, None),
        ((9, 1), None, False, None),
    ],
)
def test_nvidias_rule(compiled, loaded, strict, cause):
    assert cudnn_rule(compiled, loaded, strict) == cause


def test_texts():
    assert cuda_tuple(12040) == (12, 4)
    assert cuda_tuple(11080) == (11, 8)
    assert numbers("8.9.4.25") == (8, 9, 4, 25)
    assert numbers("v2.6.0+cu124") == (2, 6, 0)
    assert numbers("none") == numbers(None) == ()
    assert dotted((9, 10, 2)) == "9.10.2"
    assert dotted(None) is None
