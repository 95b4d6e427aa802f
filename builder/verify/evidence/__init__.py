"""Evidence beside an image in its registry: verification, SBOM and provenance, attached, signed, read back.

Statements are in-toto's; a registry keeps them as referrers of the image's digest; cosign signs.
docs/evidence.md says what each of them proves.
"""
