"""Package URLs, by which scanners recognise the packages in an SBOM and a provenance.

https://github.com/package-url/purl-spec
"""

from urllib.parse import quote

from packaging.utils import canonicalize_name

from builder.model import Sdist, StandalonePython, Wheel
from builder.oci.staging import Staged


def of_wheel(wheel: Wheel) -> str:
    """``pkg:pypi/nvidia-cudnn-cu12@8.9.4.25``"""
    return f"pkg:pypi/{canonicalize_name(wheel.name)}@{quote(wheel.version, safe='')}"


def of_sdist(sdist: Sdist) -> str:
    """``pkg:pypi/moviepy@1.0.3?file_name=moviepy-1.0.3.tar.gz``"""
    version, file = quote(sdist.version, safe=""), quote(sdist.file, safe="")
    return f"pkg:pypi/{canonicalize_name(sdist.name)}@{version}?file_name={file}"


def of_python(python: StandalonePython) -> str:
    """``pkg:generic/cpython@3.12.16%2B20261110?file_name=cpython-…`` of python-build-standalone."""
    version, file = f"{python.version}+{python.build}", quote(python.file, safe="")
    return f"pkg:generic/cpython@{quote(version, safe='')}?file_name={file}"


def of_deb(package: str, version: str, architecture: str, *, vendor: str = "debian") -> str:
    """``pkg:deb/debian/libc6@2.36-9%2Bdeb12u9?arch=amd64``"""
    return f"pkg:deb/{vendor}/{quote(package, safe='')}@{quote(version, safe='')}?arch={architecture}"


def of_image(image: Staged) -> str:
    """https://github.com/package-url/purl-spec/blob/main/types-doc/oci-definition.md, without the
    registry's host: a mirror of the repository has the same SBOM."""
    return f"pkg:oci/{image.repository.rpartition('/')[2].lower()}@{quote(image.digest, safe='')}"
