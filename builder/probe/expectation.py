"""Differences between the matrix and this machine: ``--expect FILE``."""

import json
import os

from .distributions import canonical
from .versions import numbers

_KEYS = ("schema", "cell", "python", "frameworks", "cuda", "cudnn", "strict", "packages")


class ExpectationError(Exception):
    """The expectation file cannot be used."""


def read_expectation(path):
    """The document; raises ExpectationError with one clear line."""
    try:
        with open(path, "rb") as stream:
            document = json.loads(stream.read().decode("utf-8"))
    except OSError as error:
        raise ExpectationError("cannot read the expectation %s: %s" % (path, error.strerror or error))
    except ValueError as error:
        raise ExpectationError("the expectation %s is no JSON document: %s" % (path, error))
    if not isinstance(document, dict):
        raise ExpectationError("the expectation %s is no JSON object" % path)
    if document.get("schema") != 1:
        raise ExpectationError("the expectation %s has schema %r, not 1" % (path, document.get("schema")))
    unknown = sorted(set(document) - set(_KEYS))
    if unknown:
        raise ExpectationError("the expectation %s has an unknown key: %s" % (path, ", ".join(unknown)))
    for key in ("frameworks", "packages", "cuda"):
        if document.get(key) is not None and not isinstance(document[key], dict):
            raise ExpectationError("the expectation %s: %s is no JSON object" % (path, key))
    return document


def asked_for(stage_name, expect):
    """Whether the expectation names a stage's framework: ``onnxruntime-gpu`` and ``cupy-cuda12x``, too.

    A name that ends in ``-cpu`` asks for no GPU.
    """
    names = [canonical(name) for name in expect.get("frameworks") or {}]
    return any(stage_name in name and not name.endswith("-cpu") for name in names)


def find_differences(expect, facts):
    """[{what, asked, found}], found as text; ``nothing`` for an absent value."""
    rows = []

    def compare(what, asked, found, parts=None):
        if asked is None:
            return
        left, right = str(asked), str(found or "nothing")
        same = left == right
        if parts and numbers(left) and numbers(right):
            same = numbers(left)[:parts] == numbers(right)[: min(parts, len(numbers(left)))]
        if not same:
            rows.append({"what": what, "asked": left, "found": right})

    packages = facts.get("packages", {})
    python = expect.get("python")
    parts = str(python).count(".") + 1  # 3.12, or with the patch of a standalone one
    compare("python", python, (facts.get("python") or {}).get("version"), parts=parts)
    for name, version in sorted((expect.get("frameworks") or {}).items()):
        found = packages.get(canonical(name), {}).get("version")
        if version is None and found is None:
            version = "any version"
        compare("framework %s" % name, version, _same_release(version, found))
    compare("cudnn", expect.get("cudnn"), _found_cudnn(facts), parts=3)
    cuda = expect.get("cuda") or {}
    compare("cuda", cuda.get("version"), _found_cuda(facts, cuda.get("provider")), parts=2)
    for name, version in sorted((expect.get("packages") or {}).items()):
        found = packages.get(canonical(name), {}).get("version")
        compare("package %s" % name, version, _same_release(version, found))
    return rows


def _same_release(asked, found):
    """``2.6.0+cu124`` is the release 2.6.0, unless the local part was asked for, too."""
    if found and "+" in found and "+" not in str(asked) and found.partition("+")[0] == str(asked):
        return str(asked)
    return found


def _found_cudnn(facts):
    """The loaded cuDNN: a framework's word first, then the library's own."""
    for row in facts.get("frameworks", ()):
        version = (row.get("loaded") or {}).get("cudnn")
        if version:
            return version
    for row in facts.get("raw", ()):
        return row["version"]
    return None


def _found_cuda(facts, provider):
    """The toolkit: NVIDIA's runtime wheel, else the base image's CUDA_VERSION, else the build of a
    framework. Where the base was to provide CUDA, its word comes first: wheels may bring another one.
    """
    if provider == "base" and os.environ.get("CUDA_VERSION"):
        return os.environ["CUDA_VERSION"]
    for name, row in sorted(facts.get("packages", {}).items()):
        if name.startswith("nvidia-cuda-runtime"):
            return row["version"]
    if os.environ.get("CUDA_VERSION"):
        return os.environ["CUDA_VERSION"]
    for row in facts.get("consumers", ()):
        if row.get("cuda"):
            return row["cuda"]
    return None
