"""Package URLs, by which scanners recognise the packages in an SBOM and a provenance.

https://github.com/package-url/purl-spec
"""

from urllib.parse import quote

from packaging.utils import canonicalize_name

from builder.model import Deb, Sdist, StandalonePython, Wheel
from builder.oci.staging import Staged


def of(part: Wheel | Sdist | StandalonePython | Deb) -> str:
    """``pkg:pypi/nvidia-cudnn-cu12@8.9.4.25``; ``pkg:pypi/moviepy@1.0.3?file_name=moviepy-1.0.3.tar.gz``;
    ``pkg:generic/cpython@3.12.16%2B20261110?file_name=cpython-…`` of python-build-standalone."""
    if isinstance(part, Deb):
        return of_deb(part.package, part.version, part.architecture)
    file = "" if isinstance(part, Wheel) else f"?file_name={quote(part.file, safe='')}"
    if isinstance(part, StandalonePython):
        version = quote(f"{part.version}+{part.build}", safe="")
        return f"pkg:generic/cpython@{version}{file}"
    return f"pkg:pypi/{canonicalize_name(part.name)}@{quote(part.version, safe='')}{file}"


def of_deb(package: str, version: str, architecture: str, *, vendor: str = "debian") -> str:
    """``pkg:deb/debian/libc6@2.36-9%2Bdeb12u9?arch=amd64``"""
    return f"pkg:deb/{vendor}/{quote(package, safe='')}@{quote(version, safe='')}?arch={architecture}"


def of_image(image: Staged) -> str:
    """https://github.com/package-url/purl-spec/blob/main/types-doc/oci-definition.md, without the
    registry's host: a mirror of the repository has the same SBOM."""
    return f"pkg:oci/{image.repository.rpartition('/')[2].lower()}@{quote(image.digest, safe='')}"
