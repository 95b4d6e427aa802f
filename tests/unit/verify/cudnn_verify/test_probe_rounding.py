"""What rounding may do to the canonical case: the bound that the tolerances rest on, and simulations."""

from __future__ import annotations

from fractions import Fraction

import pytest
from rounding_models import (
    PRECISIONS,
    Direct,
    Fourier,
    FourierBound,
    Precision,
    Storing,
    Winograd,
    WinogradBound,
    all_directions,
    exactly,
    planes,
    winograd,
)

from builder.verify.cudnn_verify.measure.cuda import ALGORITHMS
from builder.verify.cudnn_verify.measure.cudnn import allowed
from builder.verify.cudnn_verify.measure.reference import (
    ROUNDING,
    VARIANTS,
    answers,
    largest_difference,
    variant,
)

HALF, TF32 = Storing(2**-11, 2**-11), Storing(2**-10, 2**-24)
MODELS = {
    "direct": lambda to: [Direct(to)],
    "fft": lambda to: [Fourier(16, to)],
    "winograd": lambda to: [Winograd(2, to), Winograd(4, to)],
}
ANSWERS = {"Forward": "y", "BackwardData": "dx", "BackwardFilter": "dw"}


@pytest.fixture(scope="module")
def data():
    return answers()


@pytest.mark.parametrize("outputs", [2, 4])
def test_the_transforms_are_those_of_a_convolution(outputs, data) -> None:
    """In exact arithmetic Winograd's answer is the answer, so the matrices are right."""
    b, g, a = winograd(outputs)
    x = [Fraction(3 * i * i % 7 - 3) for i in range(outputs + 2)]
    w = [Fraction(2), Fraction(-1), Fraction(5)]
    u = [sum(p * q for p, q in zip(row, w, strict=True)) for row in g]
    v = [sum(p * q for p, q in zip(row, x, strict=True)) for row in b]
    y = [sum(p * q * r for p, q, r in zip(row, u, v, strict=True)) for row in a]
    assert y == [sum(w[j] * x[i + j] for j in range(3)) for i in range(outputs)]


@pytest.mark.parametrize("storing", [HALF, TF32], ids=["FP16", "TF32"])
@pytest.mark.parametrize(
    ("kind", "model"),
    [
        ("winograd", lambda storing: WinogradBound(2, storing)),
        ("winograd", lambda storing: WinogradBound(4, storing)),
        ("fft", lambda storing: FourierBound(16, storing)),
        ("fft", lambda storing: FourierBound(32, storing)),
    ],
    ids=["F(2,3)", "F(4,3)", "FFT-16", "FFT-32"],
)
def test_the_bound_holds_and_stays_below_half_of_a_whole_number(kind, model, storing, data) -> None:
    bound = max(max(values) for values in all_directions(model(storing), data).values())
    assert bound <= ROUNDING[kind] < 0.5


@pytest.mark.parametrize("number", [1, 6, 144 * 5, 144 << 4, 144 << 7, VARIANTS - 1])
@pytest.mark.parametrize("model", [WinogradBound(4, TF32), FourierBound(16, TF32)], ids=["F(4,3)", "FFT-16"])
def test_the_bound_of_the_case_is_that_of_each_variant(model, number, data) -> None:
    plain, other = all_directions(model, data), all_directions(model, answers(variant(number)))
    for name, values in plain.items():
        assert max(other[name]) == pytest.approx(max(values)), name


def test_the_tolerances_are_no_wider_than_the_bounds_ask_for(data) -> None:
    bounds = {"winograd": WinogradBound(4, TF32), "fft": FourierBound(16, TF32)}
    for kind, model in bounds.items():
        bound = max(max(values) for values in all_directions(model, data).values())
        assert 0.75 * ROUNDING[kind] < bound


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("kind", MODELS)
def test_a_sound_result_of_every_algorithm_in_every_precision_passes(kind, precision, data) -> None:
    for model in MODELS[kind](PRECISIONS[precision]):
        found = all_directions(model, data)
        for direction, answer in ANSWERS.items():
            tried = [n for n, known in enumerate(ALGORITHMS[direction]) if known == kind]
            off = largest_difference(found[answer], data[answer])
            assert all(off <= allowed(direction, number) for number in tried), (direction, off)


def test_rounding_is_what_is_simulated(data) -> None:
    """The models do round: F(4, 3) in FP16 is off, and by no more than the bound says."""
    off = all_directions(Winograd(4, PRECISIONS["FP16 added up in FP32"]), data)
    bound = all_directions(WinogradBound(4, HALF), data)
    for key, values in off.items():
        differences = [abs(a - b) for a, b in zip(values, data[key], strict=True)]
        # the arithmetic of the transforms, in FP32, is not in the bound
        assert all(d <= limit + 1e-3 for d, limit in zip(differences, bound[key], strict=True))
    assert largest_difference(off["y"], data["y"]) > 0.01
    exact = all_directions(Winograd(4, Precision(exactly, exactly, exactly, exactly)), data)
    assert largest_difference(exact["dx"], data["dx"]) < 1e-9


def wrong_filters(data):
    """{what is wrong: filters}: each is a mistake that a library, or a caller, makes."""
    w = planes(data["w"], data["w_shape"])
    flat = lambda nested: [v for k in nested for c in k for row in c for v in row]  # noqa: E731
    wrong = {
        "transposed": flat([[list(zip(*c, strict=True)) for c in k] for k in w]),
        "turned": flat([[[row[::-1] for row in c[::-1]] for c in k] for k in w]),
        "channels reversed": flat([k[::-1] for k in w]),
        "filters shifted": flat(w[1:] + w[:1]),
    }
    for channel in range(3):
        dropped = [[[[0] * 3] * 3 if c == channel else k[c] for c in range(3)] for k in w]
        wrong[f"channel {channel} dropped"] = flat(dropped)
    for tap in range(9):
        rest = [0 if index % 9 == tap else value for index, value in enumerate(data["w"])]
        wrong[f"tap {tap} dropped"] = rest
    return wrong


def test_a_wrong_result_is_off_by_more_than_any_algorithm_may_be(data) -> None:
    most = max(ROUNDING.values())
    for what, w in wrong_filters(data).items():
        y = answers(dict(data, w=w))["y"]
        # a sound rounding error on top of it does not hide it
        assert largest_difference(y, data["y"]) - most > most, what
    for answer in ANSWERS.values():
        right = data[answer]
        assert largest_difference([0.0] * len(right), right) > 2 * most
        for bad in (float("nan"), float("inf")):
            assert largest_difference([bad, *right[1:]], right) == float("inf")
        for index in range(len(right)):
            one = list(right)
            one[index] += 1
            assert largest_difference(one, right) > 2 * most
        assert largest_difference(right[1:] + right[:1], right) > 2 * most, "shifted by one"


def test_an_algorithm_that_no_table_knows_may_be_any() -> None:
    assert allowed("Forward", 99) == ROUNDING["winograd"]
    assert allowed("Forward", 1) == allowed("BackwardFilter", 3) == 0
