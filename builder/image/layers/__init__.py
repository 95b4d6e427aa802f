"""Layers: their values, how blobs are written and read, once each, and the store that keeps them."""
