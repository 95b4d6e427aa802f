"""The catalogue: a static site that says which image works on which card, and how that is known."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
