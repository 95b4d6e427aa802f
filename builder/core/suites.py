"""The names of the probe's suites, for a matrix and for the probe, which this module goes into."""

SUITES = (
    "conv",
    "linalg",
    "attention",
    "compile",
    "train",
    "vision",
    "loader",
    "comm",
    "infer",
    "conv-kinds",
)
"""In the order in which they run: docs/suites.md."""
