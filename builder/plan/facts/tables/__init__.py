"""What is known of cards, toolkits, releases and systems: data in ``data/``, a row each with its sources."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
