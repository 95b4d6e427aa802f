"""``docs/faults.md`` is the list of faults; it is written from the list, and this fails when it drifts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import faults_driver  # noqa: F401
import faults_files  # noqa: F401
import faults_framework  # noqa: F401
import faults_gpu  # noqa: F401
import faults_hosts  # noqa: F401
import faults_kernels  # noqa: F401
import faults_packages  # noqa: F401
import faults_pairs  # noqa: F401
import faults_real  # noqa: F401
import faults_real_frameworks  # noqa: F401
import faults_session  # noqa: F401
import faults_surroundings  # noqa: F401
import faults_together  # noqa: F401
import faults_toolkit  # noqa: F401
from fault_list import FAULTS
from healthy import HEALTHY

from builder.verify.cudnn_verify.common.causes import CAUSES

if TYPE_CHECKING:
    import pytest

HEAD = Path(__file__).with_name("faults_head.md")
PAGE = Path(__file__).resolve().parents[2] / "docs" / "faults.md"
_SOUND = """\
## Sound environments

Nothing is wrong in these: the verdict is `unverified` without a GPU, and there is no cause.

"""
_DOUBLES = """\
gcc compiles a fake driver and a fake cuDNN 7, 8 or 9 that convolves on the CPU, from NVIDIA's own headers;
both refuse every wrong argument. A dlopen wrapper is compiled, too, and a fake PyTorch stands in for the
frameworks. A report made with them says `test_double: true`, which nothing accepts as evidence."""
_REAL = """\
cuDNN 7.6.5, 8.9.7, 9.1.0 and 9.10.2, cuBLAS and NVRTC out of their wheels, and NVIDIA's driver libraries
470 and 535 out of Debian's packages, downloaded once into `RTBUILD_CACHE` (pytest marker `wheels`). The
aborts, bus errors and loader messages are the real ones."""
_FRAMEWORKS = """\
TensorFlow 2.18, JAX 0.6.2, ONNX Runtime 1.22, CuPy 13.4, CTranslate2 4.6 and Paddle 3.2 without a GPU (marker
`wheels`). The row without a cause is no fault: an optional library that is absent is a remark."""
_PARTS = {
    "doubles": ("With test doubles", _DOUBLES),
    "real": ("In NVIDIA's own files", _REAL),
    "framework": ("In real frameworks", _FRAMEWORKS),
}


def page() -> str:
    text = HEAD.read_text(encoding="utf-8")
    for parts, (title, about) in _PARTS.items():
        text += f"## {title}\n\n{about}\n\n| cause | verdict | faults |\n|---|---|---|\n"
        found: dict[tuple[str, str], list[str]] = {}
        for row in sorted((r for r in FAULTS if r.parts == parts), key=lambda r: (r.cause or "", r.name)):
            found.setdefault((row.cause or "", row.verdict), []).append(row.title)
        for (name, verdict), titles in found.items():
            cause = f"[`{name}`](causes.md#{name})" if name else ""
            text += f"| {cause} | `{verdict}` | {'; '.join(titles)} |\n"
        text += "\n"
    text += _SOUND + "".join(f"- {title}\n" for title in HEALTHY)
    return text.rstrip("\n") + "\n"


def test_page_lists_every_fault(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--update-golden"):
        PAGE.write_text(page(), encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == page()


def test_every_cause_has_a_fault() -> None:
    looked_for = {cause.id for cause in CAUSES.values() if not cause.texts}
    assert looked_for - {row.cause for row in FAULTS} == set()
    assert len(FAULTS) >= 250
    assert len(HEALTHY) >= 80


def test_names_are_distinct() -> None:
    names = [row.name for row in FAULTS]
    assert len(names) == len(set(names))
