"""The rules, by subject; :mod:`builder.plan.facts.rules.checking` has their table."""
