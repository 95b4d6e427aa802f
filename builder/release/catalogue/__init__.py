"""The catalogue: a static site that says which image works on which card, and how that is known."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .collection import collect as collect, images_of as images_of, tags_by_digest as tags_by_digest
    from .site import write_site as write_site
    from .values import CataloguedImage as CataloguedImage
else:
    from builder.core import faces

    __getattr__, __dir__, __all__ = faces.attach(__name__, __file__)
