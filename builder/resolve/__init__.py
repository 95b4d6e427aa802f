"""From requirements to cells: demands, possible cells, and whether there are wheels.

``requirements`` and ``conda`` read people's files, ``solve`` puts frameworks together in every way on
record and asks the rules, ``clash`` names the two demands of which one has to give way, and ``proof`` sends
what is possible through the resolver.
"""
