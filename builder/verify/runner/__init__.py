"""Runs the probe in an image, reads what it found, keeps the reports."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
