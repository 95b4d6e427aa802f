"""Package indexes: resolving requirements, project pages, downloads, and reading members of remote wheels."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
