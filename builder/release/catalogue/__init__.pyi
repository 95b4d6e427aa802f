from .collection import collect
from .registry import images_of
from .site import write_site
from .values import CataloguedImage

__all__ = [
    "CataloguedImage",
    "collect",
    "images_of",
    "write_site",
]
