"""The target of wheels (Python, platform, glibc), and the wheel that fits it best."""

import functools
import platform
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from packaging import tags
from packaging.specifiers import SpecifierSet
from packaging.utils import BuildTag, NormalizedName, parse_wheel_filename
from packaging.version import Version

from builder.core.errors import UsageError

MACHINES: Mapping[str, str] = {"linux/amd64": "x86_64", "linux/arm64": "aarch64"}
"""Docker's platforms that rtbuild builds for, and their machines as Python and wheels call them."""

# The aliases that came before PEP 600: https://peps.python.org/pep-0600/#legacy-manylinux-tags
_LEGACY = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}
# The minor versions of glibc in uv's --python-platform; the highest one not above the target's is taken.
_UV_GLIBC = (17, 28, *range(31, 41))


@dataclass(frozen=True, kw_only=True)
class Target:
    """CPython on glibc. ``python``: ``3.9``; ``platform``: Docker's ``linux/amd64``; ``glibc``: ``2.31``."""

    python: str
    platform: str
    glibc: str
    release: str = ""
    """The patch release, ``3.9.25``, of a Python that is known; empty: requirements hold with ``3.9.0``."""

    def __post_init__(self) -> None:
        if self.platform not in MACHINES:
            hint = f"one of: {', '.join(sorted(MACHINES))}"
            raise UsageError(f"platform {self.platform} is not supported", hint=hint)

    @property
    def machine(self) -> str:
        return MACHINES[self.platform]

    @property
    def _glibc_minor(self) -> int:
        return int(self.glibc.split(".")[1])

    @property
    def uv_platform(self) -> str:
        """uv's name for the platform, with the nearest glibc that uv knows and that is not newer.

        uv then misses wheels for exactly the skipped version; all wheels that it finds load.
        """
        minor = max((known for known in _UV_GLIBC if known <= self._glibc_minor), default=17)
        return f"{self.machine}-manylinux_2_{minor}"

    @property
    def environment(self) -> dict[str, str]:
        return environment(self.release or f"{self.python}.0", machine=self.machine)

    def tags(self) -> dict[tags.Tag, int]:
        """Every wheel tag that the target loads, with its rank: 0 is best."""
        version = tuple(int(part) for part in self.python.split("."))
        # Until 3.8 the ABI had a letter for pymalloc: https://docs.python.org/3.8/whatsnew/3.8.html#build-and-c-api-changes
        abi = f"cp{version[0]}{version[1]}" + ("m" if version < (3, 8) else "")
        platforms = list(self._platforms())
        ordered = [
            *tags.cpython_tags(version, [abi], platforms),
            *tags.compatible_tags(version, f"cp{version[0]}{version[1]}", platforms),
        ]
        return {tag: rank for rank, tag in reversed(list(enumerate(ordered)))}

    def _platforms(self) -> Iterator[str]:
        oldest = 5 if self.machine == "x86_64" else 17
        for minor in range(self._glibc_minor, oldest - 1, -1):
            yield f"manylinux_2_{minor}_{self.machine}"
            if minor in _LEGACY:
                yield f"{_LEGACY[minor]}_{self.machine}"
        yield f"linux_{self.machine}"


def environment(python: str, *, machine: str = "x86_64", extra: str = "") -> dict[str, str]:
    """Values of the environment markers for CPython ``3.12.0`` on Linux, with an extra asked for.

    https://packaging.python.org/en/latest/specifications/dependency-specifiers/
    """
    return {
        "extra": extra,
        "implementation_name": "cpython",
        "implementation_version": python,
        "os_name": "posix",
        "platform_machine": machine,
        "platform_python_implementation": "CPython",
        "platform_release": "",
        "platform_system": "Linux",
        "platform_version": "",
        "python_full_version": python,
        "python_version": ".".join(python.split(".")[:2]),
        "sys_platform": "linux",
    }


def host_platform() -> str:
    """This machine's platform: its own programs run here, and pure Python is the same on each."""
    machine = platform.machine()
    return next((name for name, known in MACHINES.items() if known == machine), "linux/amd64")


class WheelName(NamedTuple):
    """The parts of a wheel's file name."""

    name: NormalizedName
    version: Version
    build: BuildTag
    tags: frozenset[tags.Tag]


@functools.lru_cache(maxsize=1 << 16)
def wheel_name(file: str) -> WheelName | None:
    """None for a file that is not named as a wheel."""
    try:
        return WheelName(*parse_wheel_filename(file))
    except ValueError:  # also for a version of more digits than Python reads
        return None


def glibc_of(platform: str) -> str | None:
    """The oldest glibc that a wheel's platform tag promises to run on; None for another kind of tag."""
    found = re.fullmatch(r"manylinux_(\d+)_(\d+)_.*", platform)
    if found:
        return f"{found[1]}.{found[2]}"
    return next((f"2.{minor}" for minor, name in _LEGACY.items() if platform.startswith(f"{name}_")), None)


@functools.lru_cache(maxsize=4096)
def takes(requires_python: str | None, python: str) -> bool:
    """Whether ``Requires-Python`` admits ``3.11.9``, or some patch release of ``3.11``.

    An invalid one admits any, as for pip.
    """
    try:
        admitted = SpecifierSet(requires_python or "")
        # more than a Python has had; which one an image has, its base decides
        patches = [python] if python.count(".") > 1 else [f"{python}.{patch}" for patch in range(60)]
        return any(admitted.contains(version, True) for version in patches)
    except ValueError:
        return True


def rank(file: str, fitting: Mapping[tags.Tag, int]) -> tuple[int, tuple[int, str]] | None:
    """Sort key of a wheel, lowest best: its best tag, then the highest build number; None: does not fit."""
    wheel = wheel_name(file)
    ranks = [fitting[tag] for tag in wheel.tags if tag in fitting] if wheel is not None else []
    if wheel is None or not ranks:
        return None
    number, letter = wheel.build or (-1, "")
    return min(ranks), (-number, letter)
