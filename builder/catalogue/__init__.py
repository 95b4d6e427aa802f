"""The catalogue: a static site that says which image works on which card, and how that is known."""

from builder.catalogue.collect import collect
from builder.catalogue.site import write_site

__all__ = ["collect", "write_site"]
