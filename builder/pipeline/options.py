"""The options of the commands over cells: for each command a type, with what that command uses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from builder.core.errors import UsageError

Gpus = Literal["auto"] | bool
"""Whether the probe gets the GPUs; ``auto``: if the engine can hand out any."""


@dataclass(frozen=True, kw_only=True)
class LockOptions:
    upgrade: bool | frozenset[str] = False
    """Lock anew: all, or only what has these names, and what that forces to move."""
    mirrors: Mapping[str, str] = field(default_factory=dict)
    """Registries that are read from another host, by the first one's name."""


@dataclass(frozen=True, kw_only=True)
class RenderOptions:
    folder: Path
    """Each recipe goes to a folder in it."""
    locked: bool = False
    """Refuse a lock that is missing or stale, instead of bringing it up to date."""
    text_only: bool = False
    """Leave out the large files: for reading, not for building."""
    mirrors: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """The engine that builds, and the buildx builder of the steps that it runs."""

    context: str | None = None
    builder: str | None = None
    """A buildx builder other than the engine's own; what it built is loaded into the engine."""
    cache_from: tuple[str, ...] = ()
    """The sources of buildx's own cache, in its own words: ``type=registry,ref=…``."""
    cache_to: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class LayerSource:
    """A repository that is searched for ready-made layers."""

    repository: str
    key: str
    """The public key whose signature on a layer there counts: a file, or a key service's URI."""

    @classmethod
    def named(cls, repository: str | None, key: str | None) -> LayerSource | None:
        """The source that two options name; None without a repository. UsageError for one without a key."""
        if not repository:
            return None
        if not key:
            raise UsageError(
                "--layers-from takes layers that somebody else made, "
                "and nobody can see what they were made of",
                hint="name whose signature counts: --layers-key cosign.pub; they sign by `build --key KEY`",
            )
        return cls(repository=repository, key=key)


@dataclass(frozen=True, kw_only=True)
class BuildOptions:
    """The defaults are those of ``rtbuild build`` without options."""

    jobs: int | None = None
    """Cells at a time; None: by the machine's cores."""
    locked: bool = False
    """Refuse a lock that is missing or stale, instead of bringing it up to date."""
    refuse: bool = True
    """Stop cells that the compatibility rules call impossible before anything is built."""
    no_cache: bool = False
    """Build anew even if an image with the same inputs is there."""
    gpus: Gpus | None = "auto"
    """None: nothing is verified."""
    engine: EngineOptions | None = field(default_factory=EngineOptions)
    """Puts images into a Docker Engine's store, and verifies them there; None: no engine has a part in it."""
    push: str | None = None
    """The repository to which every image that was built is pushed, under an unlisted tag."""
    output: Path | None = None
    """The folder to which images are written as an OCI layout, without an engine."""
    layers: LayerSource | None = None
    """None: every layer is made here, also for ``push``."""
    key: str | None = None
    """The key that signs what is pushed: images, and layers for others."""
    results: Path = Path("results")
    mirrors: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class VerifyOptions:
    """The defaults are those of ``rtbuild verify`` without options."""

    gpus: Gpus = "auto"
    again: bool = False
    """Run the probe even if there is a report about the same content, probe, GPUs and driver."""
    source: str | None = None
    """The staging repository that images are pulled from; None for those in the engine's store."""
    built_by: tuple[str, ...] = ()
    """Public keys: who may have built an image that ``source`` has and this machine did not make."""
    key: str | None = None
    """The key that signs the reports."""
    share_reports: bool = True
    """Attach reports to the staged image that they are about."""
    remove: bool = False
    """Remove from the engine's store what was pulled for its verification."""
    results: Path = Path("results")
    context: str | None = None
