"""The rules, by subject; :mod:`builder.plan.facts.rules.checking` has their table."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
