"""What of a wheel an image does without: one rule for both ways of building.

Imported by the layer room, and put into recipes as it is, where the stage ``installer`` runs it after pip. So
it is written for Python 3.6 and later, and imports the standard library only.

The rule is by path alone. What looks spare and is not stays: CUDA's headers, which CuPy and other users of
NVRTC compile kernels with (https://docs.cupy.dev/en/stable/install.html); PyTorch's, which torch.compile and
C++ extensions include; libdevice, ptxas and libcudadevrt.a, which XLA, Triton and Numba link kernels with;
and in test suites all but the tests. h5py and mpmath import theirs (``from .tests import run_tests`` in
https://github.com/h5py/h5py/blob/master/h5py/__init__.py), numpy.testing takes a helper out of NumPy's
(https://github.com/numpy/numpy/blob/main/numpy/testing/_private/utils.py).
"""

import csv
import re
import sys
from pathlib import Path

LEFT_OUT = (
    # Tests. Helpers beside them may be imported by the package itself.
    r"(^|/)tests/([^/]+/)*test_[^/]*\.py$",
    # What SciPy's, NumPy's and pandas' tests read.
    r"^(numpy|scipy|pandas)/([^/]+/)*tests/data/",
    # Libraries to link against. Numba links cooperative kernels with libcudadevrt.a when they are compiled.
    r"(^|/)(?!libcudadevrt\.a$)[^/]+\.a$",
    # Headers for custom operations: a tenth of TensorFlow.
    r"^tensorflow/include/",
    # Compiled Python that came with the wheel: the image has its own.
    r"(^|/)__pycache__/[^/]+\.pyc$",
)
"""Regular expressions over paths relative to site-packages."""

_PATTERN = re.compile("|".join("(?:" + text + ")" for text in LEFT_OUT))


def left_out(path: str) -> bool:
    """Whether an image does without this file. ``path`` is as in RECORD: relative to site-packages."""
    return not path.startswith(("/", "../")) and _PATTERN.search(path) is not None


def slim_distribution(site: Path, record: Path) -> int:
    """Remove what is left out of one distribution, and its lines from ``record``; bytes removed."""
    with record.open(encoding="utf-8", newline="") as file:
        lines = file.read().splitlines(True)
    kept, removed = [], 0
    for line in lines:
        row = next(csv.reader([line]), None)
        if not row or not left_out(row[0]):
            kept.append(line)
            continue
        target = site / row[0]
        if target.is_file():
            removed += target.stat().st_size
            target.unlink()
    if len(kept) != len(lines):
        with record.open("w", encoding="utf-8", newline="") as file:
            file.write("".join(kept))
    return removed


def main(site: Path) -> None:
    """Slim every distribution in a site-packages folder."""
    removed = sum(slim_distribution(site, record) for record in sorted(site.glob("*.dist-info/RECORD")))
    sys.stdout.write("{:.1f} MB of wheels left out\n".format(removed / 1e6))  # noqa: UP032 - as in Python 3.6


if __name__ == "__main__":
    main(Path(sys.argv[1]))
