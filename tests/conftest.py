"""What all tests share: comparison with files that a person reviews.

``pytest --update-golden`` rewrites those files; the diff is then the review.
"""

from __future__ import annotations

import difflib
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "tests" / "golden"
collect_ignore = ["nightly"]  # run by its file's name alone

# Where the machine sets it, each program that a test starts would compile the whole package again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# jsonschema compiles its grammars of addresses at its import, which takes seconds; no test checks formats.
sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]

for _number in (signal.SIGINT, signal.SIGHUP):
    # `nohup pytest &` has them ignored, and every program that a test starts and stops would inherit that.
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, signal.default_int_handler if _number == signal.SIGINT else signal.SIG_DFL)


class Golden(Protocol):
    def __call__(self, name: str, actual: str | bytes) -> None: ...


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="rewrite tests/golden and the generated files in docs with what the tests found",
    )


def _compare(path: Path, actual: str | bytes, *, update: bool) -> None:
    found = actual.encode() if isinstance(actual, str) else actual
    if update:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.is_file() or path.read_bytes() != found:
            path.write_bytes(found)
        return
    name = path.relative_to(ROOT)
    if not path.is_file():
        pytest.fail(f"{name} does not exist; `pytest --update-golden` writes it", pytrace=False)
    wanted = path.read_bytes()
    if found == wanted:
        return
    try:
        diff = "\n".join(
            difflib.unified_diff(
                wanted.decode().splitlines(), found.decode().splitlines(), str(name), "this run", lineterm=""
            )
        )
    except UnicodeDecodeError:
        diff = f"{len(wanted)} bytes are wanted, this run made {len(found)} others"
    pytest.fail(
        f"{name} differs:\n{diff}\nif the change is meant: `pytest --update-golden`, and review the diff",
        pytrace=False,
    )


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """``golden(name, actual)`` compares with ``tests/golden/<name>``."""
    update = bool(request.config.getoption("--update-golden"))

    def compare(name: str, actual: str | bytes) -> None:
        _compare(GOLDEN / name, actual, update=update)

    return compare


@pytest.fixture
def generated(request: pytest.FixtureRequest) -> Callable[[str, str | bytes], None]:
    """``generated(path, actual)`` compares with a committed file that is made from data."""
    update = bool(request.config.getoption("--update-golden"))

    def compare(path: str, actual: str | bytes) -> None:
        _compare(ROOT / path, actual, update=update)

    return compare
