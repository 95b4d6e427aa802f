"""Runs the probe in an image, reads what it found, keeps the reports."""
