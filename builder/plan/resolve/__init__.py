"""From requirements to cells: demands, possible cells, and whether there are wheels."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
