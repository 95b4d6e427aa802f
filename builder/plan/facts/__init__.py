"""Can this combination work? Facts, what is read of wheels and bases, and the rules that weigh both.

Three rooms, each of which imports only those before it: ``tables`` (what is known of cards, toolkits and
releases), ``reading`` (what wheels and registries say of themselves; the tables are read again by it),
``rules`` (findings on a cell). :mod:`builder.plan.resolve` goes the other way, from requirements to cells.
"""
