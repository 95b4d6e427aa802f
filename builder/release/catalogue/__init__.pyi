from .collection import collect, images_of, tags_by_digest
from .site import write_site
from .values import CataloguedImage

__all__ = [
    "CataloguedImage",
    "collect",
    "images_of",
    "tags_by_digest",
    "write_site",
]
