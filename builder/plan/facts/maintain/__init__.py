"""How the tables are read again, and what the probe carries of them: ``rtbuild facts``."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
