"""Matrices, compatibility, requirements and locks: what is to be made, and whether it can work."""
