"""The build of the image, as SLSA provenance: https://slsa.dev/spec/v1.0/provenance

rtbuild states the content of its lock and recipe. It cannot detect a manipulated machine, so no SLSA level is
claimed, and the builder is the program: the signer is responsible for the statement.
"""

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any

from builder import __version__
from builder.core.model import Deb, Pinned, RegistryBase, RootfsBase, Sdist, StandalonePython, Wheel
from builder.sources.oci import Staged
from builder.verify.evidence.documents import Evidence
from builder.verify.evidence.sbom import purl

BUILD_TYPE = "https://rtbuild.io/build/v1"
"""An identifier, described in docs/evidence.md; nothing is fetched from there."""
BUILDER = "https://rtbuild.io/cli/v1"


def provenance(evidence: Evidence, image: Staged) -> dict[str, Any]:
    """The predicate. It has no time and no run: the same lock and recipe give the same document."""
    recipe = evidence.recipe
    cell, pinned = recipe.cell, recipe.pinned
    files = (("matrix", evidence.matrix), ("lock", evidence.lock))
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
                *([_part(pinned.python)] if pinned.python is not None else []),
                *({"name": name, "digest": _sha256(content)} for name, content in files if content),
                *map(_part, pinned.wheels),
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


def _part(part: Wheel | Sdist | StandalonePython | Deb, **more: Any) -> dict[str, Any]:
    """https://github.com/in-toto/attestation/blob/main/spec/v1/resource_descriptor.md"""
    name = part.file.rpartition("/")[2]
    return {"uri": purl(part), "name": name, "digest": {"sha256": part.sha256}, **more}


def _base(base: RegistryBase | RootfsBase, platform: str) -> Iterable[dict[str, Any]]:
    if isinstance(base, RootfsBase):
        return map(_part, base.debs)
    digest, notes = {"sha256": base.digest.removeprefix("sha256:")}, {"platform": platform}
    return [{"uri": f"oci://{base.reference}", "name": "base", "digest": digest, "annotations": notes}]


def _built_from(pinned: Pinned) -> Iterator[dict[str, Any]]:
    """The sources of wheels that no index has, and the wheels and compilers of their builds."""
    sources = [wheel.source for wheel in pinned.wheels if wheel.source is not None]
    yield from map(_part, dict.fromkeys(source.sdist for source in sources))
    pythons = [python for s in sources if (python := s.interpreter) is not None and python != pinned.python]
    wheels = [wheel for source in sources for wheel in source.requires]
    installed = frozenset(pinned.base.debs) if isinstance(pinned.base, RootfsBase) else frozenset()
    compilers = [source.system for source in sources if source.compiled is not None]
    debs = [deb for system in compilers for deb in system.debs if deb not in installed]
    tools: list[StandalonePython | Wheel | Deb] = [*pythons, *wheels, *debs]
    for part in dict.fromkeys(tools):
        yield _part(part, annotations={"for": "building from sources"})


def _sha256(content: bytes) -> dict[str, str]:
    return {"sha256": hashlib.sha256(content).hexdigest()}
