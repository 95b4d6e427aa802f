"""The only place that talks to Docker: :class:`builder.image.engine.engine.Engine`."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
