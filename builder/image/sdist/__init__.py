"""Wheels out of source distributions: the same bytes on each machine, from setup code that is not trusted.

Foreign code runs in :mod:`builder.image.sandbox` alone: a Debian of its own, with no network, no secret and
no file of this machine in reach. :mod:`.workshop` is the way in.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .wheel import COMPILED as COMPILED, LACKS as LACKS, NETWORK as NETWORK
    from .workshop import Workshop as Workshop
else:
    from builder.core import faces

    __getattr__, __dir__, __all__ = faces.attach(__name__, __file__)
