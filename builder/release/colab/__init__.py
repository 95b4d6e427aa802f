"""Colab: its dated runtimes as matrices, how near an image is to one, and images as local runtimes."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
