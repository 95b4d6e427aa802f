"""Values, errors, files: what every wing uses."""
