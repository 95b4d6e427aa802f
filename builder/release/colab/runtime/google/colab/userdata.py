"""Secrets, which come from the environment of the container."""

from __future__ import annotations

import os

from .errors import Error


class NotebookAccessError(Exception):
    """Never raised here: a local runtime has one person's notebooks only."""


class TimeoutException(Error):  # noqa: N818 - as Colab calls it
    """Never raised here: nobody is asked."""


class SecretNotFoundError(Error):
    """There is no such secret."""


def get(key: str) -> str:
    """The variable ``key`` of the environment. Raises SecretNotFoundError."""
    if key not in os.environ:
        raise SecretNotFoundError(
            f"Secret {key} does not exist. On a local runtime a secret is a variable of the environment:"
            f" start it with --env {key}, which hands on the one of your shell."
        )
    return os.environ[key]
