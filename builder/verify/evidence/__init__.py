"""Evidence beside an image in its registry: verification, SBOM and provenance, attached, signed, read back.

Statements are in-toto's; a registry keeps them as referrers of the image's digest; cosign signs.
docs/evidence.md says what each of them proves.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
