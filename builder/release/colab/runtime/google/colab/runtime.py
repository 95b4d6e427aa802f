"""The machine behind the notebook."""

from __future__ import annotations

from .errors import say


def unassign() -> None:
    """On Colab this gives the machine back; here it is yours, and goes on."""
    say("there is no machine to give back. The runtime ends by Ctrl-C where it was started.")
