"""What a person reads: lines, boards, tables and documents, on a terminal and in a pipe."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
