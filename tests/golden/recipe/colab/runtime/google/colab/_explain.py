"""How this module says what a local runtime cannot do, and what to do instead."""

from __future__ import annotations

import types
from typing import Any

from .errors import LocalRuntimeError

_said: set[str] = set()


def say(text: str) -> None:
    """Print an explanation, each text once in a session."""
    if text not in _said:
        _said.add(text)
        print("google.colab on a local runtime: %s" % text)


def refusal(name: str, instead: str) -> LocalRuntimeError:
    """The exception for a call of ``name``."""
    return LocalRuntimeError("%s works on Google's own machines only. %s" % (name, instead))


class OnlyAtGoogle(types.ModuleType):
    """A module of Colab's that has no counterpart here: it imports, and explains itself where it is used."""

    def __init__(self, name: str, instead: str) -> None:
        super().__init__(name, "Not on a local runtime. " + instead)
        self.__path__: list[str] = []
        self._instead = instead

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        full = "%s.%s" % (self.__name__, name)

        def explain(*_: Any, **__: Any) -> None:
            raise refusal(full, self._instead)

        explain.__name__ = explain.__qualname__ = name
        explain.__doc__ = self.__doc__
        return explain
