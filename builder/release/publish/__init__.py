"""Verified digests get tags in a public repository."""
