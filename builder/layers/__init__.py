"""Layers: their values, how their blobs are written and read, and the store that keeps them.

Nothing is compressed or hashed twice.
"""
