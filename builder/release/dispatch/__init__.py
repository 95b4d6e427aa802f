"""Verifies many cells on many kinds of cards, by the scheduler that people already run.

The registry is the only meeting point: images come from it, reports go to it. There is no shared file system,
no database and no daemon, so whoever stops may start again anywhere.
"""
