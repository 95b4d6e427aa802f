"""Differences between the matrix and this machine: ``--expect FILE``."""

import json
import os
import re

from ..common.distributions import canonical
from ..common.versions import numbers
from .protocol import UsageError

_KEYS = (
    "schema",
    "cell",
    "python",
    "frameworks",
    "cuda",
    "cudnn",
    "strict",
    "packages",
    "compilers",
    "imports",
)

_IMPORT = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*(:[A-Za-z_]\w*)?\Z")


def read_expectation(path):
    """The document; raises UsageError with one clear line."""
    which = "the expectation %s" % path
    try:
        with open(path, "rb") as stream:
            document = json.loads(stream.read().decode("utf-8"))
    except OSError as error:
        raise UsageError("cannot read %s: %s" % (which, error.strerror or error))
    except ValueError as error:
        raise UsageError("%s is no JSON document: %s" % (which, error))
    if not isinstance(document, dict):
        raise UsageError("%s is no JSON object" % which)
    if document.get("schema") != 1:
        raise UsageError("%s has schema %r, not 1" % (which, document.get("schema")))
    unknown = sorted(set(document) - set(_KEYS))
    if unknown:
        raise UsageError("%s has an unknown key: %s" % (which, ", ".join(unknown)))
    for key in ("frameworks", "packages", "cuda"):
        if document.get(key) is not None and not isinstance(document[key], dict):
            raise UsageError("%s: %s is no JSON object" % (which, key))
    imports = document.get("imports") or []
    if not isinstance(imports, list) or not all(_IMPORT.match(str(text)) for text in imports):
        raise UsageError("%s: imports is no list of modules, as in moviepy.editor, openai:OpenAI" % which)
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
        left, right = str(asked), str(found or "nothing")
        same = left in (right, right.partition("+")[0])  # 2.6.0+cu124 is the release 2.6.0
        if parts and numbers(left) and numbers(right):
            same = numbers(left)[:parts] == numbers(right)[: min(parts, len(numbers(left)))]
        if asked is not None and not same:
            rows.append({"what": what, "asked": left, "found": right})

    packages = facts.get("packages", {})
    python = expect.get("python")
    parts = str(python).count(".") + 1  # 3.12, or with the patch of a standalone one
    compare("python", python, (facts.get("python") or {}).get("version"), parts=parts)

    def installed(key):
        for name, version in sorted((expect.get(key + "s") or {}).items()):
            found = packages.get(canonical(name), {}).get("version")
            if version is None and found is None and key == "framework":
                version = "any version"
            compare("%s %s" % (key, name), version, found)

    installed("framework")
    compare("cudnn", expect.get("cudnn"), _found_cudnn(facts), parts=3)
    cuda = expect.get("cuda") or {}
    compare("cuda", cuda.get("version"), _found_cuda(facts, cuda.get("provider")), parts=2)
    installed("package")
    return rows


def _found_cudnn(facts):
    """The loaded cuDNN: a framework's word first, then the library's own."""
    found = [(row.get("loaded") or {}).get("cudnn") for row in facts.get("frameworks", ())]
    return next(filter(None, found + [row["version"] for row in facts.get("raw", ())]), None)


def _found_cuda(facts, provider):
    """The toolkit: NVIDIA's runtime wheel, else the base image's CUDA_VERSION, else the build of a
    framework. Where the base was to provide CUDA, its word comes first: wheels may bring another one.
    """
    packages, base = sorted(facts.get("packages", {}).items()), [os.environ.get("CUDA_VERSION")]
    wheels = [row["version"] for name, row in packages if name.startswith("nvidia-cuda-runtime")]
    found = base + wheels if provider == "base" else wheels + base
    return next(filter(None, found + [row.get("cuda") for row in facts.get("consumers", ())]), None)
