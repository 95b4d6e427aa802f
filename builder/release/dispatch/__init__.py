"""Verifies many cells on many kinds of cards, by the scheduler that people already run.

The registry is the only meeting point: images come from it, reports go to it. There is no shared file system,
no database and no daemon, so whoever stops may start again anywhere.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
