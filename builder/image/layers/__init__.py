"""Layers: wheels, read without being believed and laid out as pip would, become blobs that a store keeps."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
