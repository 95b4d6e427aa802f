"""The command line. Commands only translate: flags in, one typed call, an exit code out."""

from __future__ import annotations

from builder.cli import (
    audit,
    colab,
    diagnose,
    init,
    publish,
    runtimes,
    schema,
    site,
    up,
    venv,
    walk,
)
from builder.cli.app import main

__all__ = [
    "audit",
    "colab",
    "diagnose",
    "init",
    "main",
    "publish",
    "runtimes",
    "schema",
    "site",
    "up",
    "venv",
    "walk",
]
