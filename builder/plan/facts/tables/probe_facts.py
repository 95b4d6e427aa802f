"""The facts that the probe carries: ``builder/verify/cudnn_verify/common/facts.json``, which ``rtbuild facts
export`` writes.

The probe imports nothing of rtbuild, and has to name the cards, releases and limits that the tables know.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any

from packaging.requirements import Requirement
from packaging.version import Version

from builder.core.versions import key, requirement
from builder.plan.facts.tables.frameworks import FrameworkRow, FrameworkTable
from builder.plan.facts.tables.gpus import known_cards
from builder.plan.facts.tables.loader import Facts, load
from builder.plan.facts.tables.packages import PackageRow
from builder.plan.facts.tables.rows import BadRow, FrameworkName, KernelRow, WheelFamilyRow

_ELSEWHERE = frozenset({"name", "sources", "brings", "colab", "libraries"})
"""Values of a framework's row that the probe has no use for."""
_THOR = "11.0"
"""Its wheels are those for ARM, whose list of architectures is not on record: nothing is proposed for it."""
_PAIRED = (
    "torchvision", "torchaudio", "torchtext", "torchcodec", "torchao", "xformers", "vllm", "sglang",
    "sgl-kernel",
    "sglang-kernel", "lmdeploy", "fbgemm-gpu", "triton", "bitsandbytes",
)  # fmt: skip
"""Packages of which a release is for one PyTorch, and that messages are about."""


def portable() -> str:
    """One JSON object, with a line for each row: a change of one row is a change of one line."""
    parts = _parts(load()).items()
    return "{\n" + ",\n".join(f"{_json(name)}: {_body(part)}" for name, part in parts) + "\n}\n"


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _body(part: dict[str, Any] | list[Any]) -> str:
    if isinstance(part, list):
        return "[\n" + ",\n".join(map(_json, part)) + "\n]"
    return "{\n" + ",\n".join(f"{_json(name)}: {_json(value)}" for name, value in part.items()) + "\n}"


def _parts(facts: Facts) -> dict[str, dict[str, Any] | list[Any]]:
    cards = known_cards(facts)
    names: dict[str, list[str]] = {}
    for words, capability in sorted(cards.capabilities.items(), key=lambda item: (key(item[1]), item[0])):
        names.setdefault(capability, []).append(words)
    return {
        "frameworks": {row.name: _framework(row) for row in facts.registry},
        "cards": names,
        "short": sorted(cards.short),
        "boards": sorted({row.capability for row in facts.gpus.values() if row.tegra} | {_THOR}, key=key),
        "generations": {name: list(served) for name, served in cards.generations.items()},
        "cuda": {
            row.major: [row.floor, row.capability_min, row.capability_max] for row in facts.families.values()
        },
        "drivers": _own_drivers(facts),
        "shipped": {
            version: row.driver for version, row in facts.own_drivers.items() if key(version) >= (11,)
        },
        "jetpacks": {row.l4t: [row.index, row.packages] for row in facts.jetpacks.values() if row.index},
        "known_bad": list(_known_bad(facts.bad)),
        "bad_releases": list(_bad_releases(facts.bad)),
        "refused": list(_refused(facts)),
        "families": {row.name: _family(row) for row in facts.wheel_families.values()},
        "kernels": [_kernels(row) for row in facts.kernels.values()],
        "wheels": {wheel.name: wheel.versions for wheel in facts.wheels.values() if "cudnn" in wheel.name},
        "complete": {
            table.name: [table.variants_since, table.variants_before]
            for table in facts.frameworks.values()
            if table.variants_since
        },
        "builds": [line for table in facts.frameworks.values() for line in _lines(table)],
        "pairs": {name: list(_pairs(facts.packages[name].rows)) for name in _PAIRED},
        "same_files": {row.file: [list(row.names), row.reason] for row in facts.same_files},
        "pages": {
            row.name: [row.page, list(row.builds), list(row.beside)] for row in facts.wheel_pages.values()
        },
        "followers": {
            name: lines for name, table in facts.packages.items() if (lines := list(_follows(table.rows)))
        },
    }


def _framework(row: FrameworkName) -> dict[str, Any]:
    """The values of a row, without its sources."""
    return {name: value for name, value in vars(row).items() if value and name not in _ELSEWHERE}


def _family(row: WheelFamilyRow) -> dict[str, Any]:
    return {"plain": int(row.plain_from) if row.plain_from else None, "libraries": list(row.libraries)}


def _kernels(row: KernelRow) -> dict[str, Any]:
    needs = [one for one in row.needs if one not in row.brings or one == "ptxas"]
    return {"name": row.name, "uses": row.uses, "when": row.when, "needs": needs, "unless": row.unless}


def _own_drivers(facts: Facts) -> dict[str, str]:
    """The first driver of each CUDA before 11, when each minor version needed its own."""
    return {version: row.driver for version, row in facts.own_drivers.items() if key(version) < (11,)}


def _known_bad(rows: Iterable[BadRow]) -> Iterator[dict[str, Any]]:
    """Rows that can be told from a failure: by its words, or because the cuDNN alone is at fault."""
    for row in rows:
        parsed = [found for text in row.when if (found := requirement(text)) is not None]
        if row.says is None and {found.name for found in parsed} != {"cudnn"}:
            continue
        when = {found.name: str(found.specifier) for found in parsed}
        for extra in (extra for found in parsed for extra in found.extras if extra.startswith("cu")):
            when["cuda"] = f"=={extra[2:-1]}.{extra[-1]}.*"  # cu102 is CUDA 10.2
        about = {"message": row.message, "remedy": row.remedy, "source": row.source.reference}
        told = {"mend": list(row.mend), "named": row.named, "example": row.example} if row.mend else {}
        yield {"id": row.id, "when": when, "says": row.says, **about, **told}


def _bad_releases(rows: Iterable[BadRow]) -> Iterator[list[str]]:
    """[distribution, its releases, what stands in for them, why] of rows on releases of one package alone,
    which no words of a failure tell.
    """
    for row in rows:
        if row.says is None and row.mend and len(row.when) == 1:
            parsed = Requirement(row.when[0])
            yield [parsed.name, str(parsed.specifier), row.mend[0], row.message]


def _refused(facts: Facts) -> Iterator[list[str]]:
    """[framework, releases, compute capabilities] of what is known to fail on a card by these two alone."""
    for row in facts.bad:
        found = [
            parsed for text in row.when if (parsed := requirement(text)) is not None and not parsed.extras
        ]
        when = {parsed.name: str(parsed.specifier) for parsed in found}
        name = next((name for name in facts.frameworks if name in when), None)
        if (
            row.outcome == "impossible"
            and name
            and when.keys() == {name, "gpu"}
            and len(found) == len(row.when)
        ):
            yield [name, when[name], when["gpu"]]


def _pairs(rows: Iterable[PackageRow]) -> Iterator[list[Any]]:
    """[first release, last one, its requirement on PyTorch or the minor releases whose symbols it asks for,
    CUDA's major, first Python, last one, whether there are wheels for ARM, too] of releases of which all
    that is the same.
    """
    held: list[Any] = []
    for row in sorted(rows, key=lambda row: Version(row.version)):
        if row.archive or row.yanked is not None or not row.python:
            continue
        asked = ",".join(str(one.specifier) for one in row.asks("torch"))
        line: list[Any] = [asked or " ".join(row.torch), row.cuda and row.cuda.partition(".")[0]]
        line += [row.python[0], row.python[-1], "linux/arm64" in row.platforms]
        if held and held[2:] == line:
            held[1] = row.version
            continue
        if held:
            yield held
        held = [row.version, row.version, *line]
    if held:
        yield held


def _follows(rows: Iterable[PackageRow]) -> Iterator[list[str]]:
    """[release, framework, its requirement] of releases that go with one minor release of TensorFlow or of
    JAX: pip takes the newest of such a package, and with it another framework, where nothing holds both.
    """
    for row in sorted(rows, key=lambda row: Version(row.version)):
        for name in ("tensorflow", "jax") if row.yanked is None else ():
            for spec in (str(one.specifier) for one in row.asks(name)):
                if "<" in spec or "==" in spec:
                    yield [row.version, name, spec]


def _lines(table: FrameworkTable) -> Iterator[dict[str, Any]]:
    """The rows of a table; exact releases in sequence of which all the same is known are one line."""
    rows = [row for row in table.rows if getattr(row, "distribution", table.name) != "tensorflow-gpu"]
    rows.sort(key=lambda row: (row.variant, Version(row.version)))
    held: dict[str, Any] = {}
    first = ""
    for row in rows:
        line = _line(table.name, row)
        exact = line["versions"] == f"=={row.version}"
        if held and exact and first and _same(held, line):
            held.update(versions=f">={first},<={row.version}", latest=row.version)
            continue
        if held:
            yield held
        held, first = line, row.version if exact else ""
    if held:
        yield held


def _same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return all(one[key] == other[key] for key in one if key not in {"versions", "latest"})


def _line(name: str, row: FrameworkRow) -> dict[str, Any]:
    return {
        "framework": name,
        "versions": str(row.versions),
        "latest": row.version,
        "variant": row.variant,
        "default": row.default,
        "cuda": row.cuda,
        "cudnn": row.cudnn,
        "extra": row.extra,
        "brings": row.brings,
        "python": [row.python[0], row.python[-1]] if row.python else ["3.0", "3.0"],
        "archs": None if not row.architectures and "architectures" in row.unread else list(row.architectures),
        "pins": [pin for pin in row.pins if "cudnn" in pin],
    }
