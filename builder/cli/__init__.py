"""The command line. Commands only translate: flags in, one typed call, an exit code out."""

from __future__ import annotations

from builder.cli import (
    audit,
    catalogue,
    colab,
    diagnose,
    dispatch,
    init,
    publish,
    runtimes,
    schema,
    up,
    venv,
    walk,
)
from builder.cli.app import main

__all__ = [
    "audit",
    "catalogue",
    "colab",
    "diagnose",
    "dispatch",
    "init",
    "main",
    "publish",
    "runtimes",
    "schema",
    "up",
    "venv",
    "walk",
]
