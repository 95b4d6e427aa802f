"""Runs programs that nobody trusts: setup code of sources, and the recipe's own steps over foreign files.

Bubblewrap makes the namespaces and changes the root (https://github.com/containers/bubblewrap); this room
adds a system-call filter, a user of the program's own, limits, and what the program may see. What it holds
back, and what each test tries, is in ``docs/threat-model.md``.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
