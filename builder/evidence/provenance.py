"""The build of the image, as SLSA provenance: https://slsa.dev/spec/v1.0/provenance

rtbuild states the content of its lock and recipe. It cannot detect a manipulated machine, so no SLSA level is
claimed, and the builder is the program: the signer is responsible for the statement.
"""

import hashlib
from collections.abc import Iterator
from typing import Any

from builder import __version__
from builder.evidence import purl
from builder.evidence.documents import Evidence
from builder.model import Deb, Pinned, RegistryBase, RootfsBase, StandalonePython
from builder.oci.staging import Staged

BUILD_TYPE = "https://rtbuild.io/build/v1"
"""An identifier, described in docs/evidence.md; nothing is fetched from there."""
BUILDER = "https://rtbuild.io/cli/v1"


def provenance(evidence: Evidence, image: Staged) -> dict[str, Any]:
    """The predicate. It has no time and no run: the same lock and recipe give the same document."""
    recipe = evidence.recipe
    cell, pinned = recipe.cell, recipe.pinned
    return {
        "buildDefinition": {
            "buildType": BUILD_TYPE,
            "externalParameters": {
                "matrix": cell.matrix,
                "cell": {"id": cell.id, "env": dict(cell.env), "gpus": list(cell.gpus), **cell.inputs()},
            },
            "internalParameters": {
                "inputs": recipe.inputs,
                "content": image.content,
                "epoch": pinned.epoch,
                "compression": cell.options.compression,
                "strictCudnn": cell.options.strict_cudnn,
            },
            "resolvedDependencies": [
                *_base(pinned.base, cell.platform),
                *([_interpreter(pinned.python)] if pinned.python is not None else []),
                *({"name": name, "digest": _sha256(content)} for name, content in _sources(evidence)),
                *(_part(purl.of_wheel(wheel), wheel.file, wheel.sha256) for wheel in pinned.wheels),
                *_built_from(pinned),
            ],
        },
        "runDetails": {
            "builder": {
                "id": BUILDER,
                "version": {"rtbuild": image.label("io.rtbuild.version") or __version__},
            },
            "byproducts": [
                {"name": f"recipe/{name}", "digest": _sha256(file.content)}
                for name, file in sorted(recipe.files.items())
            ],
        },
    }


def _part(uri: str, name: str, sha256: str, **more: Any) -> dict[str, Any]:
    """https://github.com/in-toto/attestation/blob/main/spec/v1/resource_descriptor.md"""
    return {"uri": uri, "name": name, "digest": {"sha256": sha256}, **more}


def _base(base: RegistryBase | RootfsBase, platform: str) -> Iterator[dict[str, Any]]:
    if isinstance(base, RegistryBase):
        digest = base.digest.removeprefix("sha256:")
        yield _part(f"oci://{base.reference}", "base", digest, annotations={"platform": platform})
        return
    yield from map(_deb, base.debs)


def _interpreter(python: StandalonePython, **more: Any) -> dict[str, Any]:
    return _part(purl.of_python(python), python.file, python.sha256, **more)


def _deb(deb: Deb, **more: Any) -> dict[str, Any]:
    url = purl.of_deb(deb.package, deb.version, deb.architecture)
    return _part(url, deb.file.rpartition("/")[2], deb.sha256, **more)


def _built_from(pinned: Pinned) -> Iterator[dict[str, Any]]:
    """The sources of wheels that no index has, and the wheels and compilers of their builds."""
    sources = [wheel.source for wheel in pinned.wheels if wheel.source is not None]
    for sdist in dict.fromkeys(source.sdist for source in sources):
        yield _part(purl.of_sdist(sdist), sdist.file, sdist.sha256)
    for python in dict.fromkeys(source.interpreter for source in sources):
        if python is not None and python != pinned.python:
            yield _interpreter(python, annotations=_FOR)
    for wheel in dict.fromkeys(wheel for source in sources for wheel in source.requires):
        yield _part(purl.of_wheel(wheel), wheel.file, wheel.sha256, annotations=_FOR)
    installed = frozenset(pinned.base.debs) if isinstance(pinned.base, RootfsBase) else frozenset()
    compilers = [source.system for source in sources if source.compiled is not None]
    for deb in dict.fromkeys(deb for system in compilers for deb in system.debs):
        if deb not in installed:
            yield _deb(deb, annotations=_FOR)


_FOR = {"for": "building from sources"}


def _sources(evidence: Evidence) -> Iterator[tuple[str, bytes]]:
    if evidence.matrix:
        yield "matrix", evidence.matrix
    if evidence.lock:
        yield "lock", evidence.lock


def _sha256(content: bytes) -> dict[str, str]:
    return {"sha256": hashlib.sha256(content).hexdigest()}
