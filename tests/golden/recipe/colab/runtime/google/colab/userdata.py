"""Secrets, which come from the environment of the container."""

from __future__ import annotations

import os

from .errors import Error

__all__ = ["NotebookAccessError", "SecretNotFoundError", "TimeoutException", "get"]


class NotebookAccessError(Exception):
    """Never raised here: a local runtime has one person's notebooks only."""


class SecretNotFoundError(Error):
    """There is no such secret."""

    def __init__(self, key: str) -> None:
        super().__init__(
            "Secret %s does not exist. On a local runtime a secret is a variable of the environment: start it"
            " with --env %s, which hands on the one of your shell." % (key, key)
        )


class TimeoutException(Error):  # noqa: N818 - as Colab calls it
    """Never raised here: nobody is asked."""


def get(key: str) -> str:
    """The variable ``key`` of the environment. Raises SecretNotFoundError."""
    try:
        return os.environ[key]
    except KeyError:
        raise SecretNotFoundError(key) from None
