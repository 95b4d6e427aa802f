"""Runs the probe in an image and turns what it says into a report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import threading
    from collections.abc import Mapping
    from pathlib import Path

    from builder.model import Image, Pinned, Report


@dataclass(frozen=True, kw_only=True)
class Expectation:
    """What was asked of an image. None: nothing in particular was asked, or it is not known."""

    python: str | None = None
    frameworks: tuple[tuple[str, str], ...] = ()
    cuda: str | None = None
    """``11.8``"""
    cudnn: str | None = None
    """``8.6.0``"""

    @classmethod
    def of(cls, pinned: Pinned) -> Expectation:
        """From a lock."""
        raise NotImplementedError

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Expectation:
        """From an image's ``expect.json``."""
        raise NotImplementedError


class ReportStore:
    """Reports by what they are about: image content, probe, GPUs and driver."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder


def verify(
    image: Image,
    *,
    engine: Any,
    expect: Expectation,
    gpus: Literal["auto"] | bool = "auto",
    timeout: float = 600.0,
    store: ReportStore | None = None,
    cancel: threading.Event | None = None,
) -> Report:
    """Probe ``image`` (or reuse a report about the same content, probe, GPUs and driver).

    Raises CellError where the probe itself failed: that is no verdict.
    """
    raise NotImplementedError
