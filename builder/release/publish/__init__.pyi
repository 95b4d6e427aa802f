from .publication import Publication, PublishOptions, publication_document
from .run import publish

__all__ = [
    "Publication",
    "PublishOptions",
    "publication_document",
    "publish",
]
