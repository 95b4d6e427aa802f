"""Wheels out of source distributions: the same bytes on each machine, from setup code that is not trusted.

Foreign code runs in :mod:`builder.image.sandbox` alone: a Debian of its own, with no network, no secret and
no file of this machine in reach. :mod:`.workshop` is the way in.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
