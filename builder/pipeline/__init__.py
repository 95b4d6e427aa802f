"""Walks cells from a matrix to reports, several at a time, and tells what happens as events."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
