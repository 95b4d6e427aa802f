"""What is known of cards, toolkits, releases and systems: data in ``data/``, a row each with its sources.

:mod:`builder.plan.facts.tables.probe_facts` has what the probe carries of it.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
