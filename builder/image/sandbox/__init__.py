"""Runs programs that nobody trusts: setup code of sources, and the recipe's own steps over foreign files.

Bubblewrap makes the namespaces and changes the root (https://github.com/containers/bubblewrap); this room
adds a system-call filter, a user of the program's own, limits, and what the program may see. What it holds
back, and what each test tries, is in ``docs/threat-model.md``.
"""

from builder.image.sandbox.run import View, environment, require, run, run_script
from builder.image.sandbox.watch import Limits

__all__ = ["Limits", "View", "environment", "require", "run", "run_script"]
