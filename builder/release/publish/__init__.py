"""Verified digests get tags in a public repository."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .gate import (
        Publication as Publication,
        PublishOptions as PublishOptions,
        publication_document as publication_document,
    )
    from .run import publish as publish
else:
    from builder.core import faces

    __getattr__, __dir__, __all__ = faces.attach(__name__, __file__)
