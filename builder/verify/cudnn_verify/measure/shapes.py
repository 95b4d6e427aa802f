"""The shape of what one part of the probe stores and another reads: evidence of checks, and facts.

A key has one shape, whichever check or stage stores it; other keys are for people. A shape is a type, None, a
tuple of alternatives, ``[shape]`` for a list, ``{str: shape}`` for a map, or ``{"key": shape, ...}`` for a
record, which may hold other keys, too.
"""

_TEXT_OR_NONE = (str, None)
_TEXTS = [str]
_REQUIREMENT = {"by": str, "wants": str, "name": str}
"""A requirement that is not met: ``torch 2.9.1``, ``nvidia-nccl-cu12==2.27.5``, the canonical name."""

EVIDENCE_SHAPES = {
    "absent": [{"name": str, "by": str}],  # libraries that are not found, and who needs them
    "by": str,
    "by_status": _TEXT_OR_NONE,
    "builtins": _TEXT_OR_NONE,
    "cannot be opened": {str: str},  # library: the loader's message
    "card": int,
    "changed": [{"path": str, "not_as_in": _TEXTS, "as_in": _TEXTS}],
    "closed": _TEXTS,
    "compiled": (str, dict, None),
    "cured_by": str,
    "dlerror": str,
    "ending": {"kind": str, "text": str},
    "framework": str,
    "header": str,
    "loaded": (str, dict, None),
    "lost": [_REQUIREMENT],
    "memory": (bool, int),
    "missed": [_REQUIREMENT],
    "not_installed": [_REQUIREMENT],
    "not_as_installed": _TEXTS,
    "off": _TEXTS,
    "otherwise": str,
    "packages": _TEXTS,
    "probe_fault": _TEXTS,
    "problem": str,
    "remarks": _TEXTS,
    "rule": _TEXT_OR_NONE,
    "rows": [dict],
    "set_by": str,
    "shadow": str,
    "stderr": str,
    "types": dict,
    "unloadable": [{"package": str, "file": str, "library": str, "fault": str}],
    "variable": str,
    "wanted_majors": [int],
    "weak": bool,
    "yields": bool,
}

_COPY = {"folder": str, "major": int, "kind": str, "shim": str, "missing": _TEXTS}
_GPU = {"name": str, "compute_capability": str}
_FILE = {"name": str, "path": str}
_DISTRIBUTION = {"name": str, "version": str, "location": str, "info": str, "requires": _TEXTS}

FACT_SHAPES = {
    "candidates": [{"path": str, "by": str, "for": _TEXT_OR_NONE}],
    "coimport": {"order": _TEXTS, "cudnn": {str: str}, "files": _TEXTS},
    "consumers": [{"framework": str, "requester": str, "name": str, "optional": bool, "cuda": _TEXT_OR_NONE}],
    "copies": [_COPY],
    "ctypes": bool,
    "damaged": [{"path": str, "not_as_in": _TEXTS, "problem": str}],
    "driver": {"version": _TEXT_OR_NONE, "api": _TEXT_OR_NONE, "path": str},
    "framework": {"name": str, "version": str, "compiled": {str: _TEXT_OR_NONE}, "loaded": dict},
    "gpu_state": str,
    "gpus": [_GPU],
    "installed": {str: str},
    "late": {str: [_TEXT_OR_NONE]},
    "libraries": [_FILE],
    "libraries_found": [dict(_FILE, real=str, kind=str, problem=_TEXT_OR_NONE)],
    "machine": {"python": str, "executable": str, "machine": str},
    "mapped_at_start": _TEXTS,
    "not_installed": [_REQUIREMENT],
    "nvrtc": _TEXT_OR_NONE,
    "orphans": [{"folder": str, "major": int, "files": int}],
    "packages": {str: _DISTRIBUTION},
    "python": {"version": str, "executable": str},
    "raw": {"path": str, "version": _TEXT_OR_NONE},
    "resized": {str: _TEXTS},
    "shadowed_modules": {str: str},
    "strangers": {str: str},
    "system_packages": {str: str},
    "test_double": (bool, int),
    "uncompared": _TEXTS,
    "unmet": [_REQUIREMENT],
    "variables": {str: str},
    "waits": _TEXTS,
    "wheel_folders": _TEXTS,
}


class ShapeError(Exception):
    """One part of the probe stored what another could not read."""


def check_shapes(table, values):
    """Raise ShapeError for the first value whose key is in the table and whose shape is another."""
    for key in sorted(set(values) & set(table)):
        fault = _fault(table[key], values[key], key)
        if fault:
            raise ShapeError(fault)


def _fault(shape, value, where):
    """What is wrong, with the place; None if the value has the shape."""
    if isinstance(shape, tuple):
        faults = [_fault(one, value, where) for one in shape]
        return None if None in faults else faults[0]
    if isinstance(shape, list):
        parts = enumerate(value) if isinstance(value, (list, tuple)) else None
        inner = [(shape[0], part, "%s[%d]" % (where, index)) for index, part in parts or ()]
    elif isinstance(shape, dict):
        parts = value if isinstance(value, dict) else None
        pairs = [(key, shape.get(key, shape.get(str))) for key in (parts or () if str in shape else shape)]
        if parts is not None and not {key for key, _ in pairs} <= set(parts):
            return "%s lacks %s" % (where, ", ".join(sorted({key for key, _ in pairs} - set(parts))))
        inner = [(part, parts[key], "%s.%s" % (where, key)) for key, part in pairs if parts is not None]
    else:
        fits = value is None if shape is None else isinstance(value, shape)
        name = "None" if shape is None else shape.__name__
        return None if fits else "%s is %s and no %s" % (where, type(value).__name__, name)
    if parts is None:
        return "%s is %s and no %s" % (where, type(value).__name__, type(shape).__name__)
    return next(filter(None, (_fault(*row) for row in inner)), None)
