"""The commands, a module each; :mod:`builder.cli.app` finds them by name."""
