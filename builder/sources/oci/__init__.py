"""Container registries: images, blobs and referrers in both directions, by the OCI specifications."""
