"""Requirements of companions, read from their wheels."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from builder.core.errors import PackageIndexError
from builder.plan.facts.maintain import side_tables as refresh
from builder.plan.facts.maintain.side_tables import Refresh

if TYPE_CHECKING:
    import pytest

ROW = {"name": "torchvision", "since": "0.1", "requires": [], "sources": []}
WHEELS = {"0.99.0": ["torchvision-0.99.0-py3-none-any.whl"]}


def read(monkeypatch: pytest.MonkeyPatch, requires: str) -> Refresh:
    listed = [SimpleNamespace(name=WHEELS["0.99.0"][0])]
    index: Any = SimpleNamespace(offers=lambda _name: listed, client=None)
    text = f"Metadata-Version: 2.1\nName: torchvision\nVersion: 0.99.0\nRequires-Dist: {requires}\n"
    told = SimpleNamespace(metadata=text)
    monkeypatch.setattr(refresh, "read_wheel", lambda _file, _client, _kind: told)
    found = Refresh()
    refresh._companion(0, ROW, WHEELS, index, found)
    return found


def test_a_marker_is_not_about_the_machine_that_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    for marker in ("platform_machine == 'x86_64'", "python_version >= '3.12'", "sys_platform == 'linux'"):
        (change,) = read(monkeypatch, f"torch==9.9.0; {marker}").changes
        assert change.new == ["0.99.0 torch==9.9.0"]
    assert not read(monkeypatch, "torch==9.9.0; python_version < '3.12'").changes


def test_an_index_that_fails_is_noted() -> None:
    def offers(_name: str) -> None:
        raise PackageIndexError("it is away")

    index: Any = SimpleNamespace(offers=offers, client=None)
    found = Refresh()
    refresh._companion(0, ROW, WHEELS, index, found)
    assert (found.changes, found.notes) == ([], ["torchvision was not read: it is away"])
