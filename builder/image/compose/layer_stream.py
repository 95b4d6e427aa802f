"""The layers of an image on their way to whoever takes them: each as soon as it is known, in any order."""

from dataclasses import dataclass
from typing import Protocol

from builder.image.layers import Layer


@dataclass(frozen=True, kw_only=True)
class LayersReady:
    """A part of an image whose layers are known and at hand: one layer of wheels, or all of the base."""

    place: int
    """Of the part in the image, from 0, the lowest."""
    layers: tuple[Layer, ...]
    """Lowest first."""


class LayerSink(Protocol):
    """Takes the layers of one image by :meth:`add`, until :meth:`finish`."""

    @property
    def lowest_first(self) -> bool:
        """Whether it can do more with the lowest layers than with others."""

    def add(self, ready: LayersReady) -> None:
        """One part more. From any thread."""

    def finish(self) -> int:
        """Begin nothing more, and wait for what is on its way; how many layers were taken here.

        Raises what went wrong with one, if nobody else would meet it.
        """
