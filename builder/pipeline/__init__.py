"""Walks cells from a matrix to reports, several at a time, and tells what happens as events."""
