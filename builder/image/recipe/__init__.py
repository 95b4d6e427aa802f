"""A lock as a build context: a Dockerfile and all that it needs, which plain ``docker build`` accepts."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
