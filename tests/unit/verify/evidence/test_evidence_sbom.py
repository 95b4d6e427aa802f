"""The SBOM is what is in the image, or there is none; and a provenance is read as it was written."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from doubles import small_image

from builder.core.errors import EvidenceError
from builder.core.model import Compilation, RootfsBase, Sdist, StandalonePython, Wheel, WheelSource
from builder.verify.evidence.contents import (
    DpkgList,
    parse_status,
    pinned_of,
    provenance,
    refuse_difference,
    sbom,
)

if TYPE_CHECKING:
    from builder.sources.oci.staging import Staged

SYSTEM = DpkgList(packages=parse_status(small_image.status_file().decode()))


def test_it_is_valid_cyclonedx(image: Staged) -> None:
    document = sbom(small_image.evidence(image), image, SYSTEM)
    assert JsonStrictValidator(SchemaVersion.V1_5).validate_str(json.dumps(document)) is None
    purls = {row["purl"] for row in document["components"]}
    assert "pkg:pypi/nvidia-cudnn-cu12@8.9.4.25" in purls
    assert "pkg:deb/debian/libc6@2.36-9%2Bdeb12u9?arch=amd64" in purls
    assert len(purls) == len(small_image.WHEELS) + len(small_image.DEBS)
    libc = next(row for row in document["components"] if row["name"] == "libc6")
    assert libc["hashes"] == [{"alg": "SHA-256", "content": "c6" * 32}]


def test_what_was_built_from_sources_says_so(image: Staged) -> None:
    base = small_image.pinned().base
    assert isinstance(base, RootfsBase)
    sdist = Sdist(name="tiny", version="1.0", file="tiny-1.0.tar.gz", sha256="ab" * 32, size=1)
    source = WheelSource(sdist=sdist, requires=(small_image.WHEELS[-1],), system=base, python="3.11")
    built = Wheel(
        name="tiny", version="1.0", file="tiny-1.0-py3-none-any.whl", sha256="cd" * 32, size=1, source=source
    )
    lock = replace(small_image.pinned(), wheels=(*small_image.WHEELS, built))
    evidence = small_image.evidence(image, recipe=small_image.recipe(lock))
    document = sbom(evidence, image, SYSTEM)
    assert JsonStrictValidator(SchemaVersion.V1_5).validate_str(json.dumps(document)) is None
    (ancestor,) = next(row for row in document["components"] if row["name"] == "tiny")["pedigree"][
        "ancestors"
    ]
    assert ancestor["purl"] == "pkg:pypi/tiny@1.0?file_name=tiny-1.0.tar.gz"
    assert ancestor["hashes"] == [{"alg": "SHA-256", "content": "ab" * 32}]
    assert {"name": "rtbuild:built-with", "value": small_image.WHEELS[-1].file} in ancestor["properties"]
    resolved = provenance(evidence, image)["buildDefinition"]["resolvedDependencies"]
    assert [row["digest"] for row in resolved if row["name"] == "tiny-1.0.tar.gz"] == [{"sha256": "ab" * 32}]
    assert any(row.get("annotations") == {"for": "building from sources"} for row in resolved)


def test_what_compiled_a_wheel_is_named(image: Staged) -> None:
    base = small_image.pinned().base
    assert isinstance(base, RootfsBase)
    gcc = replace(base.debs[0], package="gcc", version="4:12.2", sha256="9c" * 32, file="pool/g/gcc.deb")
    source = WheelSource(
        sdist=Sdist(name="tiny", version="1.0", file="tiny-1.0.tar.gz", sha256="ab" * 32, size=1),
        requires=(),
        system=replace(base, debs=(*base.debs, gcc)),
        python="3.11",
        compiled=Compilation(needs=(), libraries=("libc6",)),
    )
    file = "tiny-1.0-cp311-cp311-linux_x86_64.whl"
    built = Wheel(name="tiny", version="1.0", file=file, sha256="cd" * 32, size=1, source=source)
    lock = replace(small_image.pinned(), wheels=(*small_image.WHEELS, built))
    evidence = small_image.evidence(image, recipe=small_image.recipe(lock))
    resolved = provenance(evidence, image)["buildDefinition"]["resolvedDependencies"]
    assert [row["digest"] for row in resolved if row["name"] == "gcc.deb"] == [{"sha256": "9c" * 32}]
    names = [row["name"] for row in resolved]
    assert len(names) == len(set(names))
    components = sbom(evidence, image, SYSTEM)["components"]
    (ancestor,) = next(row for row in components if row["name"] == "tiny")["pedigree"]["ancestors"]
    assert {"name": "rtbuild:compiled-with", "value": "gcc 4:12.2"} in ancestor["properties"]
    assert "gcc" not in {row["name"] for row in components}


def test_the_same_image_has_the_same_one(image: Staged) -> None:
    one, other = (sbom(small_image.evidence(image), image, SYSTEM) for _ in range(2))
    assert one == other
    elsewhere = sbom(
        small_image.evidence(image),
        replace(image, manifest=replace(image.manifest, digest="sha256:" + "7" * 64)),
        SYSTEM,
    )
    assert elsewhere["serialNumber"] != one["serialNumber"]


def test_a_base_from_a_registry(image: Staged) -> None:
    lock = small_image.on_registry_base("nvidia/cuda:12.2.2-base-ubuntu22.04", "sha256:" + "b" * 64)
    document = sbom(small_image.evidence(image, recipe=small_image.recipe(lock)), image, SYSTEM)
    assert JsonStrictValidator(SchemaVersion.V1_5).validate_str(json.dumps(document)) is None
    assert {row["purl"].split("/")[1] for row in document["components"] if "deb/" in row["purl"]} == {
        "ubuntu"
    }
    properties = {row["name"]: row["value"] for row in document["metadata"]["properties"]}
    assert properties["rtbuild:base"].startswith("nvidia/cuda:12.2.2")


def packages(**changes: str | None) -> dict[str, Any]:
    found: dict[str, Any] = {wheel.name: wheel.version for wheel in small_image.WHEELS}
    found |= {name.replace("_", "-"): version for name, version in changes.items()}
    kept = {name: version for name, version in found.items() if version is not None}
    return small_image.double_report(fingerprint={"packages": kept, "system_packages": {}})


def test_what_agrees(image: Staged) -> None:
    report = packages(Pip=None, pip="25.3")
    report["fingerprint"]["packages"]["NumPy"] = report["fingerprint"]["packages"].pop("numpy") + ".0"
    refuse_difference(small_image.evidence(image), SYSTEM, [report])


@pytest.mark.parametrize(
    ("report", "reason"),
    [
        (packages(requests="2.0"), "requests 2.0 is in the image and not in the lock"),
        (packages(numpy=None), "numpy 1.26.4 is in the lock and not in the image"),
        (packages(numpy="1.26.5"), "numpy is 1.26.4 in the lock and 1.26.5 in the image"),
        (small_image.double_report(fingerprint={}), "does not list the packages"),
        (small_image.double_report(fingerprint=None), "does not list the packages"),
    ],
)
def test_python_differs(report: dict[str, Any], reason: str, image: Staged) -> None:
    with pytest.raises(EvidenceError, match=reason):
        refuse_difference(small_image.evidence(image), SYSTEM, [report])


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (small_image.status_file("Package: vim\nStatus: install ok installed\nVersion: 9"), "vim 9"),
        (
            small_image.status_file().replace(b"u9", b"u8"),
            r"u8 amd64 is in the image.*u9 amd64 is in the lock",
        ),
        (b"", "libc6"),
    ],
)
def test_debian_differs(status: bytes, reason: str, image: Staged) -> None:
    with pytest.raises(EvidenceError, match=reason):
        refuse_difference(
            small_image.evidence(image), DpkgList(packages=parse_status(status.decode())), [packages()]
        )


def test_a_rootfs_without_dpkg(image: Staged) -> None:
    with pytest.raises(EvidenceError, match="has no list of them"):
        refuse_difference(small_image.evidence(image), DpkgList(packages=None), [packages()])


def test_the_probe_found_another_cudnn_than_dpkg_lists(image: Staged) -> None:
    report = packages()
    report["fingerprint"]["system_packages"] = {"libcudnn8": "8.9.6.50-1+cuda12.2"}
    with pytest.raises(EvidenceError, match=r"libcudnn8 is absent by dpkg and 8\.9\.6"):
        refuse_difference(small_image.evidence(image), SYSTEM, [report])


def test_many_differences_are_counted(image: Staged) -> None:
    lock = small_image.pinned()
    more = tuple(
        Wheel(name=f"w{n}", version="1", file=f"w{n}.whl", sha256="0" * 64, size=1) for n in range(20)
    )
    evidence = small_image.evidence(
        image, recipe=small_image.recipe(replace(lock, wheels=lock.wheels + more))
    )
    with pytest.raises(EvidenceError, match="and 12 more"):
        refuse_difference(evidence, SYSTEM, [packages()])


def test_the_cell_comes_back_out_of_its_provenance(image: Staged) -> None:
    made = pinned_of(provenance(small_image.evidence(image), image))
    assert made is not None
    assert replace(small_image.cell(), gpus=()) == replace(made.cell, gpus=())
    assert [(w.name, w.version, w.sha256) for w in made.wheels] == [
        (w.name, w.version, w.sha256) for w in small_image.WHEELS
    ]


def test_the_cell_of_a_registry_s_base(image: Staged) -> None:
    lock = small_image.on_registry_base("nvidia/cuda:12.2.2-base-ubuntu22.04", "sha256:" + "b" * 64)
    made = pinned_of(provenance(small_image.evidence(image, recipe=small_image.recipe(lock)), image))
    assert made is not None
    assert made.cell.base == lock.cell.base


def test_the_lock_comes_back_out_of_its_provenance(image: Staged) -> None:
    """A Python of its own, a wheel that is built from sources, and none of the tools of that build."""
    tool = replace(
        small_image.WHEELS[0], name="setuptools", version="80.9.0", file="setuptools.whl", source=None
    )
    sdist = Sdist(name="six", version="1.17.0", file="six-1.17.0.tar.gz", sha256="56" * 32, size=0)
    system = RootfsBase(suite="bookworm", debs=(), epoch=0)
    source = WheelSource(sdist=sdist, requires=(tool,), system=system, python="3.11")
    six = replace(tool, name="six", version="1.17.0", file="six-1.17.0-py3-none-any.whl", source=source)
    python = StandalonePython(
        version="3.11.14", build="20251110", file="20251110/cpython.tar.gz", sha256="a1" * 32, size=0
    )
    lock = small_image.pinned(python=python, wheels=(*small_image.WHEELS, six))
    made = pinned_of(provenance(small_image.evidence(image, recipe=small_image.recipe(lock)), image))
    assert made is not None
    assert [(one.package, one.version, one.architecture) for one in made.base.debs] == [  # type: ignore[union-attr]
        (one.package, one.version, one.architecture) for one in small_image.DEBS
    ]
    assert made.python is not None
    assert (made.python.version, made.python.build, made.python.sha256) == ("3.11.14", "20251110", "a1" * 32)
    assert [wheel.name for wheel in made.wheels] == [wheel.name for wheel in lock.wheels]
    assert made.wheels[-1].source is not None
    assert made.wheels[-1].source.sdist == sdist
