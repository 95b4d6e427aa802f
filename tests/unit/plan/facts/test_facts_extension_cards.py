"""The cards that PyTorch's tool for extensions refuses, by its source; the table against each release."""

from types import SimpleNamespace
from typing import Any

import pytest

from builder.plan.facts.reading import extension_cards
from builder.plan.facts.reading.extension_cards import (
    differences,
    newest_known,
    on_record,
    read_releases,
)
from builder.sources.index import Index, UnknownError

_TOOL = """
def _get_cuda_arch_flags(cflags=None):
    named_arches = {"Ampere": "8.0;8.6+PTX"}
    supported_arches = ["3.5", "7.2",
                        "7.5", "%s"]
    if not _arch_list:
        capability = %s
    raise ValueError("Unknown CUDA arch ({}) or GPU not supported".format(arch))
"""
_OF_THE_CARD = "torch.cuda.get_device_capability()"
_OF_THE_BUILD = "min(max(torch.cuda.get_arch_list()), torch.cuda.get_device_capability())"


@pytest.mark.parametrize(
    ("source", "newest"),
    [
        (_TOOL % ("8.0", _OF_THE_CARD), "8.0"),
        (_TOOL % ("9.0a", _OF_THE_CARD), "7.5"),
        (_TOOL % ("8.6", _OF_THE_BUILD), None),  # from 1.8 on
        ("def load(name): ...", None),  # before 1.3
    ],
)
def test_the_newest_card_that_the_tool_names(source: str, newest: str | None) -> None:
    assert newest_known(source.encode()) == newest


@pytest.mark.parametrize(
    "source",
    [
        "def _get_cuda_arch_flags(): ...",
        "def arches(): raise ValueError('Unknown CUDA arch')",
        "def (",
    ],
)
def test_a_source_that_does_not_tell_is_unknown(source: str) -> None:
    with pytest.raises(UnknownError):
        newest_known(source.encode())


@pytest.mark.parametrize(
    ("version", "newest"),
    [
        ("1.2.0", None),
        ("1.3.0", "7.5"),
        ("1.5.1", "7.5"),
        ("1.6.0", "8.0"),
        ("1.7.1", "8.6"),
        ("1.10.0", None),
    ],
)
def test_what_the_table_has_of_a_release(version: str, newest: str | None) -> None:
    assert on_record(version) == newest


def test_what_differs_and_what_was_not_read_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def wheel(version: str) -> SimpleNamespace:
        return SimpleNamespace(name=f"torch-{version}-cp38-cp38-manylinux1_x86_64.whl")

    files = (wheel("1.10.0"), wheel("1.7.0"), wheel("1.2.0"), wheel("1.6.0.post1"))
    texts = {
        "1.2.0": _TOOL % ("7.0", _OF_THE_CARD),
        "1.7.0": _TOOL % ("8.6", _OF_THE_CARD),
        "1.10.0": _TOOL % ("8.6", _OF_THE_BUILD),
    }

    def source(file: SimpleNamespace, _index: object) -> bytes:
        version = file.name.split("-")[1]
        if version not in texts:
            raise UnknownError("its server is down")
        return texts[version].encode()

    monkeypatch.setattr(extension_cards, "page", lambda *_: files)
    monkeypatch.setattr(extension_cards, "_source", source)
    nothing: Any = None
    assert [version for version, _ in read_releases(nothing)] == ["1.2.0", "1.6.0", "1.7.0", "1.10.0"]
    assert [*differences(nothing)] == [
        (
            "the tool for extensions of torch 1.2.0 refuses cards above 7.5; "
            "kernel-compilers.toml: refuses no card"
        ),
        "the tool for extensions of torch 1.6.0 was not read: its server is down",
    ]
    monkeypatch.setattr(extension_cards, "page", lambda *_: "the index is silent")
    (line,) = differences(nothing)
    assert "not read: the index is silent" in line


def test_a_wheel_without_the_tool_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    class Archive:
        def __init__(self, **_: object) -> None: ...

        def find(self, patterns: list[str], **_: object) -> tuple[dict[str, list[object]], None]:
            return {pattern: [] for pattern in patterns}, None

    monkeypatch.setattr(extension_cards, "RemoteZip", Archive)
    file: Any = SimpleNamespace(name="torch-1.5.0", url="", size=1)
    index: Any = SimpleNamespace(client=None)
    with pytest.raises(UnknownError, match=r"no cpp_extension\.py"):
        extension_cards._source(file, index)


@pytest.mark.wheels
def test_the_table_says_what_the_wheels_of_each_release_say() -> None:
    """15 MB in parts of the wheels; the index is that of the user's configuration."""
    read = dict(read_releases(Index.from_user()))
    assert {"1.2.0", "1.4.0", "1.6.0", "1.7.1", "1.8.0", "2.1.0"} <= read.keys()
    assert read == {version: on_record(version) for version in read}
