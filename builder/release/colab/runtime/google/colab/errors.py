"""What a local runtime cannot do, said under the names of the exceptions that Colab's own module has."""

from __future__ import annotations

import types
from typing import Any

_said: set[str] = set()


class Error(Exception):
    """Base of the others."""


class RuntimeManagementError(Error):
    """Raised where a runtime cannot be managed from inside."""


class LocalRuntimeError(Error, ImportError):
    """Something that only Google's own machines can do, with what to do instead.

    An ImportError, too, so that ``try: from google.colab import … except ImportError:`` goes on as it does
    anywhere outside Colab.
    """


class OnlyAtGoogle(types.ModuleType):
    """A module of Colab's that has no counterpart here: it imports, and explains itself where it is used."""

    def __init__(self, name: str, instead: str) -> None:
        super().__init__(name, "Not on a local runtime. " + instead)
        self.__path__: list[str] = []
        self._instead = instead

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        full = f"{self.__name__}.{name}"

        def explain(*_: Any, **__: Any) -> None:
            raise refusal(full, self._instead)

        explain.__name__ = explain.__qualname__ = name
        explain.__doc__ = self.__doc__
        return explain


def say(text: str) -> None:
    """Print an explanation, each text once in a session."""
    if text not in _said:
        _said.add(text)
        print(f"google.colab on a local runtime: {text}")


def refusal(name: str, instead: str) -> LocalRuntimeError:
    """The exception for a call of ``name``."""
    return LocalRuntimeError(f"{name} works on Google's own machines only. {instead}")
