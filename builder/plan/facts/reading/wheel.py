"""What is read of one wheel, kept in the user's cache under the wheel's hash, and the observed values of it.

Nothing here asks the network: :mod:`.wheelread` reads wheels there.
"""

from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from builder.core import resources
from builder.core.files import read_cached, write_cached
from builder.core.versions import canonical, exact_pin, key, more_exact, short
from builder.plan.facts.reading.observed import WheelTruth
from builder.sources.index import wheel_name

Values = dict[str, Any]
"""``cuda``, ``cudnn``, ``numpy_abi``, ``version``, ``glibc``, ``linked_glibc``: text; ``architectures``,
``needed``: several texts; ``gpu``: bool. An absent value was not found."""

_SCHEMA = 1
Kind = Literal[
    "small", "deep", "other", "metadata", "package", "numpy", "source", "symbols", "links-2", "modules"
]
"""``other``: the parts that are read of a second wheel; ``metadata``: none. ``package``: a compiled package's
libraries; ``numpy``: which NumPy they are compiled for; ``source``: the build files of its source archive;
``symbols``: what a PyTorch defines; ``links``: what the loader goes by; ``modules``: what an import takes."""


@dataclass(kw_only=True)
class WheelReading:
    """Values read from one wheel, by one kind of reading."""

    file: str
    metadata: str | None = None
    """Its ``METADATA``, up to the description."""
    values: Values = field(default_factory=dict)
    read: dict[str, str] = field(default_factory=dict)
    """The member that told each value."""
    unread: list[str] = field(default_factory=list)
    """Parts that could not be read, with the reason."""
    beyond: list[str] = field(default_factory=list)
    """Values that may stand in the unread rest of a library."""
    transferred: int = 0


def reading_path(sha256: str | None, kind: Kind, cache: Path | None = None) -> Path | None:
    """The file of one reading, below ``cache`` or the user's; None for a wheel without a hash."""
    if not sha256:
        return None
    return (cache or resources.cache() / "wheelfacts") / sha256[:2] / f"{sha256}.{kind}.json"


def load_reading(place: Path | None) -> WheelReading | None:
    """The reading in this file; None if there is none of this program's format."""

    def parsed(document: dict[str, Any]) -> WheelReading | None:
        return WheelReading(**document | {"transferred": 0}) if document.pop("schema") == _SCHEMA else None

    return read_cached(place, parsed)


def save_reading(place: Path, reading: WheelReading) -> None:
    write_cached(place, {"schema": _SCHEMA, **asdict(reading)})


def add_values(known: Values, found: Values) -> tuple[str, ...]:
    """Add values that are not known yet, or that say the same more exactly; their names."""
    new = tuple(
        name
        for name, value in found.items()
        if name not in known or (isinstance(value, str) and more_exact(known[name], value))
    )
    known |= {name: found[name] for name in new}
    return new


def truth_of(file: str, small: WheelReading, *, sha256: str | None = None) -> WheelTruth:
    """A wheel's truth from a small reading. A value that is absent or does not parse stays None."""
    said, values, named = metadata_of(small.metadata), small.values, wheel_name(file)
    first, _, rest = file.removesuffix(".whl").partition("-")
    name = named.name if named is not None else canonical(first)
    version = str(named.version) if named is not None else rest.partition("-")[0]
    local = values.get("version")
    return WheelTruth(
        name=name,
        version=local if isinstance(local, str) and local.split("+")[0] == version else version,
        file=file,
        sha256=sha256,
        requires_python=said.python,
        requires=said.requires,
        tags=tuple(sorted(map(str, named.tags))) if named is not None else (),
        cuda=values.get("cuda"),
        cudnn=_pinned_cudnn(values.get("cudnn"), said.requires, name),
        architectures=tuple(values.get("architectures", ())),
        numpy_abi=values.get("numpy_abi"),
        gpu=values.get("gpu", True if "cuda" in values else None),
        needed=tuple(values.get("needed", ())),
        glibc=values.get("linked_glibc"),
    )


def with_deep(truth: WheelTruth, values: Values) -> WheelTruth:
    """The truth with the values of a deep reading of the same wheel."""
    exact = {name: told for name in ("cuda", "cudnn") if (told := getattr(truth, name)) is not None}
    add_values(exact, {name: values[name] for name in ("cuda", "cudnn") if name in values})
    return replace(
        truth,
        cuda=exact.get("cuda"),
        cudnn=exact.get("cudnn"),
        glibc=max(filter(None, (truth.glibc, values.get("glibc"))), key=key, default=None),
        architectures=tuple(values.get("architectures", truth.architectures)),
        numpy_abi=values.get("numpy_abi", truth.numpy_abi),
        gpu=values.get("gpu", truth.gpu),
    )


@dataclass(frozen=True)
class Metadata:
    """The fields of a wheel's ``METADATA`` that decide anything."""

    python: str | None
    requires: tuple[str, ...]
    extras: tuple[str, ...]


def metadata_of(text: str | None) -> Metadata:
    """The fields, empty for a wheel without ``METADATA``."""
    import email.parser  # a tenth of a second, for a wheel that was read alone
    import email.policy

    message = email.parser.Parser(policy=email.policy.compat32).parsestr(text or "", headersonly=True)

    def lines(name: str) -> tuple[str, ...]:
        return tuple(str(line) for line in message.get_all(name) or ())

    extras = tuple(canonical(name) for name in lines("Provides-Extra"))
    return Metadata(next(iter(lines("Requires-Python")), None) or None, lines("Requires-Dist"), extras)


def _pinned_cudnn(told: str | None, requires: tuple[str, ...], name: str) -> str | None:
    """The exact pin on NVIDIA's cuDNN, with which the wheel was built; more exact than its own value.

    A range is not: it says what the wheel accepts, so only its lower bound's major and minor would count.
    """
    exact = exact_pin(requires, r"nvidia-cudnn-cu\d+")
    if exact is None or (told is not None and short(exact, len(told.split("."))) != told):
        return told
    # PyTorch's pin is the very version; TensorFlow's a patch of the minor it was built with
    return exact if name == "torch" else short(exact, 2)
