"""What wheels and base images say of themselves, read in small parts, and kept in the user's cache.

The tables are read again from the same places: :mod:`builder.plan.facts.reading.rereading`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
