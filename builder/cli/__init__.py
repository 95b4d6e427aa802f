"""The command line. Commands only translate: flags in, one typed call, an exit code out."""

from builder.cli.app import main

__all__ = ["main"]
