"""The rules, by subject; :mod:`builder.plan.facts.check` has their table."""
