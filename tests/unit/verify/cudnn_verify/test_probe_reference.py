"""The convolution in whole numbers."""

import struct

from builder.verify.cudnn_verify.measure.cuda import FLOAT, HALF
from builder.verify.cudnn_verify.measure.cudnn import decode, encode
from builder.verify.cudnn_verify.measure.reference import (
    VARIANTS,
    answers,
    bias_relu,
    case,
    fresh_answers,
    largest_difference,
    variant,
)


def dot(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True))


def test_a_convolution_done_by_hand():
    case = {"x": [1, 2, 3, 4], "x_shape": (1, 1, 2, 2), "w": [1, 0, 0, 0, 1, 0, 0, 0, 2], "dy": [0] * 4}
    assert answers(dict(case, w_shape=(1, 1, 3, 3)))["y"] == [1 + 2 * 4, 2, 3, 4 + 1]


def test_gradients_belong_to_the_forward_pass():
    """y is linear in x and in w, so <y, dy> = <x, dx> = <w, dw>: an error in any of the three shows."""
    data = answers()
    energy = dot(data["y"], data["dy"])
    assert energy == dot(data["x"], data["dx"]) == dot(data["w"], data["dw"])
    assert energy != 0


def test_each_gradient_is_the_derivative():
    data = answers()
    for name, where, gradient in (("x", 37, data["dx"]), ("w", 11, data["dw"])):
        moved = {"x": list(data["x"]), "w": list(data["w"])}
        moved[name][where] += 1
        y = answers(dict(data, **moved))["y"]
        assert dot(y, data["dy"]) - dot(data["y"], data["dy"]) == gradient[where]


def test_every_value_is_exact_in_half_precision():
    data = answers()
    for name in ("x", "w", "dy", "y", "dx", "dw"):
        packed = struct.pack(f"<{len(data[name])}e", *data[name])
        assert list(struct.unpack(f"<{len(data[name])}e", packed)) == data[name]
    largest = {name: max(map(abs, data[name])) for name in ("x", "w", "dy")}
    assert 27 * largest["x"] * largest["w"] < 2048, (
        "FP16 holds every whole number up to 2048, in any order of adding"
    )
    assert 36 * largest["dy"] * largest["w"] < 2048
    assert 64 * largest["x"] * largest["dy"] < 2048


def test_numbers_survive_the_way_to_the_gpu():
    for kind in (FLOAT, HALF):
        assert decode(encode([-3, 0, 129], kind), kind) == [-3.0, 0.0, 129.0]


def test_differences():
    assert largest_difference([1.0, 2.0], [1, 4]) == 2
    assert largest_difference([1.0, float("nan")], [1, 4]) == float("inf")
    assert largest_difference([1.0], [1, 4]) == float("inf")
    assert bias_relu([1, -5, 2, 2], [1, -2], 2) == [2, 0, 0, 0]
    one = {"x": [2], "x_shape": (1, 1, 1, 1), "w": [0] * 4 + [5] + [0] * 4, "dy": [3]}
    found = answers(dict(one, w_shape=(1, 1, 3, 3)))
    assert (found["y"], found["dx"], found["dw"]) == ([10], [15], [0] * 4 + [6] + [0] * 4)


def test_variants_are_the_case_in_other_orders_and_with_other_signs():
    """What the bound on rounding looks at, absolute values and how they meet, is the same in each."""
    plain, right = case(), answers()
    assert variant(0) == plain
    for number in (*range(1, VARIANTS, VARIANTS // 97), VARIANTS - 1):
        data = answers(variant(number))
        for name in ("x", "w", "dy", "y", "dx", "dw"):
            assert sorted(map(abs, data[name])) == sorted(map(abs, right[name])), (number, name)


def test_no_answer_fits_the_next_question():
    assert len({fresh_answers()["variant"] for _ in range(12)}) > 8
    found = [answers(variant(number)) for number in range(0, VARIANTS, VARIANTS // 199)]
    for name in ("y", "dx", "dw"):
        assert len({tuple(data[name]) for data in found}) >= 30, name


def test_every_part_of_a_variant_counts():
    """Channels, filters and each sign: a neighbour in each has another answer."""
    right = answers()
    for step in (1, 6, 144, 144 << 3, 144 << 7):
        data = answers(variant(step))
        assert any(data[name] != right[name] for name in ("y", "dx", "dw")), step
