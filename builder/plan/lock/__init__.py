"""What a matrix resolves to, fixed by content: base digests, wheels and Debian packages by sha256."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
