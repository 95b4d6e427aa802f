"""Debian archives: which packages make an operating system, and the packages themselves."""
