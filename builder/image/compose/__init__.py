"""Images put together: a base, layers of wheels, and on top the small layers that the recipe's steps make."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
