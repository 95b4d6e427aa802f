"""The form of a lock file, as pydantic models."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

VERSION = 1

Digest = Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$")]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
# Names and paths from a lock become paths in the cache and addresses on a mirror: none may climb out.
FileName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.+!-]*\.whl$")]
SdistName = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.+!-]*\.(?:tar\.(?:gz|bz2|xz)|tgz|zip)$")
]
ArchiveName = Annotated[str, StringConstraints(pattern=r"^cpython-[A-Za-z0-9_.+-]+\.tar\.gz$")]
PoolPath = Annotated[
    str, StringConstraints(pattern=r"^(?:[A-Za-z0-9_+~:%-][A-Za-z0-9_.+~:%-]*/)+[A-Za-z0-9][^/\s]*\.deb$")
]
Word = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.+~:!-]*$")]
Package = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9+.-]+(?:=[A-Za-z0-9.+:~-]+)?$")]
Count = Annotated[int, Field(ge=0)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class LockedSdist(_Strict):
    """A source distribution that wheels are built from."""

    name: Word
    version: Word
    file: SdistName
    sha256: Sha256
    size: Count = Field(description="Bytes.")


class LockedCompilation(_Strict):
    """Debian packages of a wheel that is compiled, by name."""

    needs: list[Package] = Field(description="What the matrix names for its build.")
    libraries: list[Word] = Field(description="Whose libraries it loads: they are in the image.")


class LockedPython(_Strict):
    """An archive of python-build-standalone. No field says where it is: that is uv's configuration."""

    version: Word
    build: Word = Field(description="The release that it is from.")
    file: ArchiveName
    sha256: Sha256
    size: Count = Field(description="Bytes; 0 if it was locked without being fetched.")


class LockedSource(_Strict):
    """What a wheel is built from, for one that no index has."""

    sdist: str = Field(description="Key of `sdists`.")
    requires: list[str] = Field(description="What its build needs: keys of `wheels`.")
    rootfs: str = Field(description="What it is built in: key of `rootfs`.")
    python: str = Field(description="Minor version of Python that it is for.")
    interpreter: str | None = Field(None, description="Key of `pythons`, if `rootfs` has no Python.")
    compiled: LockedCompilation | None = None


class LockedWheel(_Strict):
    """A wheel. No field says where it comes from: that is the reader's own package index."""

    name: Word
    version: Word
    file: FileName
    sha256: Sha256
    size: Count = Field(description="Bytes.")
    uploaded: Count = Field(description="Seconds since 1970, by the index; 0 if it does not say.")
    source: LockedSource | None = None


class LockedDeb(_Strict):
    """A Debian package."""

    package: Word
    version: Word
    architecture: Word
    file: PoolPath = Field(description="Path below the archive's root.")
    sha256: Sha256
    size: Count = Field(description="Bytes.")
    archive: Literal["debian", "debian-security"]


class LockedImage(_Strict):
    """What a registry image's config says, under the digest of its manifest."""

    env: dict[str, str]
    labels: dict[str, str]
    size: Count = Field(description="Sum of the compressed layers, in bytes.")


class LockedRootfs(_Strict):
    """An operating system out of Debian packages."""

    suite: Word
    epoch: Count = Field(description="Newest date of the suite's Release files, seconds since 1970.")
    debs: list[str] = Field(description="Keys of `debs`.")


class ImageName(_Strict):
    image: str = Field(description="The reference as the matrix has it.")
    digest: Digest = Field(description="Key of `images`.")


class RootfsName(_Strict):
    rootfs: str = Field(description="Key of `rootfs`.")


class LockedCell(_Strict):
    """One cell of the matrix."""

    inputs: Digest = Field(description="Digest of what the matrix said when the cell was locked.")
    platform: str
    epoch: Count = Field(description="SOURCE_DATE_EPOCH of the image.")
    base: ImageName | RootfsName
    apt: list[str]
    wheels: list[str] = Field(description="Keys of `wheels`, in the order of their layers.")
    python: str | None = Field(None, description="Key of `pythons`; none if it is the base's own.")


class Document(_Strict):
    """A lock file of rtbuild."""

    version: Literal[1] = Field(alias="schema")
    matrix: str
    cells: dict[str, LockedCell]
    images: dict[str, LockedImage]
    rootfs: dict[str, LockedRootfs]
    debs: dict[str, LockedDeb]
    wheels: dict[str, LockedWheel]
    sdists: dict[str, LockedSdist] = Field(default_factory=dict)
    pythons: dict[str, LockedPython] = Field(default_factory=dict)
