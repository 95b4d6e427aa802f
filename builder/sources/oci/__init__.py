"""Container registries: images, blobs and referrers in both directions, by the OCI specifications."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
