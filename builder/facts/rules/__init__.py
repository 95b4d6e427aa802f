"""The rules, by subject; :mod:`builder.facts.check` has their table."""
