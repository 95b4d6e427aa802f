"""Registries, package indexes and Debian archives, from which the parts come, and the network below them."""
