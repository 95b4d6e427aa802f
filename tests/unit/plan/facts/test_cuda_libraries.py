"""Names of CUDA's libraries, as wheels on record are linked with them and bring them."""

import pytest

from builder.plan.facts.tables import CUDA_LIBRARY, NUMBERED


@pytest.mark.parametrize(
    ("name", "stem", "number", "major"),
    [
        ("libcudart.so.12", "libcudart", "12", "12"),
        ("libcublasLt.so.13.0.1", "libcublasLt", "13", "13"),
        ("libnppicc.so.13", "libnppicc", "13", "13"),
        ("libcudnn_ops.so.9", "libcudnn_ops", "9", None),
        ("libcufft.so.11", "libcufft", "11", None),
        ("libcusparseLt.so.0", "libcusparseLt", "0", None),
        ("libcupti.so", "libcupti", None, None),
        ("libcudart-d0da41ae.so.11.0", "libcudart", None, None),
        ("libnvrtc-builtins.so.12.4", "libnvrtc", None, None),
    ],
)
def test_a_library_of_cuda(name: str, stem: str, number: str | None, major: str | None) -> None:
    found, numbered = CUDA_LIBRARY.fullmatch(name), NUMBERED.fullmatch(name)
    assert found is not None
    assert found.groups() == (stem, number)
    assert (numbered and numbered[1]) == major


@pytest.mark.parametrize(
    "name", ["libcuda.so.1", "libcudf.so", "libcuml++.so", "libnuma.so.1", "libnvinfer.so.10"]
)
def test_a_library_of_the_driver_or_of_somebody_else(name: str) -> None:
    assert CUDA_LIBRARY.fullmatch(name) is None
    assert NUMBERED.fullmatch(name) is None
