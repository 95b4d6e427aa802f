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

_MOST = ("linalg", "attention", "compile", "train", "conv-kinds")
SUITES_OF = {
    "torch": (*_MOST, "vision", "loader", "comm"),
    "jax": _MOST,
    "tensorflow": (*_MOST, "vision", "loader"),
    "cupy": ("linalg", "compile", "comm"),
    "onnxruntime": ("infer",),
    "ctranslate2": ("infer",),
    "paddle": ("linalg", "attention", "train", "conv-kinds", "vision"),
}
"""{framework, by its name in the probe: the suites that the probe has in it besides ``conv``}"""
