"""The command line. Commands only translate: flags in, one typed call, an exit code out."""

from __future__ import annotations

from builder.cli import catalogue, colab, diagnose, publish, runtimes, schema, site, walk
from builder.cli.app import main

__all__ = ["catalogue", "colab", "diagnose", "main", "publish", "runtimes", "schema", "site", "walk"]
