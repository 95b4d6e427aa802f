"""Runs programs that nobody trusts: setup code of sources, and the recipe's own steps over foreign files.

Bubblewrap makes the namespaces and changes the root (https://github.com/containers/bubblewrap); this room
adds a system-call filter, a user of the program's own, limits, and what the program may see. What it holds
back, and what each test tries, is in ``docs/threat-model.md``.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .bwrap import (
        View as View,
        environment as environment,
        require as require,
        run as run,
        run_script as run_script,
    )
    from .watch import Limits as Limits, control_group as control_group
else:
    from builder.core import faces

    __getattr__, __dir__, __all__ = faces.attach(__name__, __file__)
