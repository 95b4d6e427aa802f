"""What a rendered Dockerfile asks for beyond the wheels: steps that make small files, and the image's config.

Reads recipes that :mod:`builder.recipe` rendered, and no other Dockerfile: every instruction has one form
there. Whatever this cannot do without an engine is an error that names the instruction.
"""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from builder.errors import CellError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_HEREDOC = re.compile(r"<<'(\w+)'$")
_PAIR = re.compile(r'(?P<name>[A-Za-z0-9_.-]+)="(?P<value>(?:[^"\\]|\\.)*)"')
_FROM = re.compile(r"(?P<base>\S+) AS (?P<stage>\S+)")
_COPY = re.compile(r"--link --from=(?P<stage>\S+) /out/(?P<name>[\w-]+)/ /")
_BIND = re.compile(r"--mount=type=bind,source=(?P<source>[^,\s]+),target=(?P<target>/[^,\s]+)")
_DURATIONS = {
    "interval": "Interval",
    "timeout": "Timeout",
    "start-period": "StartPeriod",
    "start-interval": "StartInterval",
}
"""In the order of the fields of Go's structure."""
_DURATION = re.compile(r"--(interval|timeout|start-period|start-interval)=(\d+)s")
_OUT = re.compile(r"/out/([\w-]+)")


@dataclass(frozen=True, kw_only=True)
class Step:
    """A script that runs without network and leaves folders below ``/out``."""

    script: str
    files: tuple[tuple[str, str], ...]
    """Files of the recipe that it sees, as (name, path in the image)."""

    @property
    def makes(self) -> frozenset[str]:
        """Which folders of ``/out`` it names: makes, or looks into."""
        return frozenset(_OUT.findall(self.script))


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A line that changes the image's config and no file. ``value`` is the config's own JSON."""

    kind: str
    """``ENV``, ``LABEL``, ``CMD``, ``ENTRYPOINT``, ``HEALTHCHECK``, ``WORKDIR``, ``USER`` or ``EXPOSE``."""
    name: str
    value: str | list[str]
    durations: tuple[tuple[str, int], ...] = ()
    """Of a ``HEALTHCHECK``: the config's names and seconds."""

    @property
    def said(self) -> str:
        """The image's history of it, in BuildKit's words."""
        if self.kind in ("ENV", "LABEL"):
            return f"{self.kind} {self.name}={self.value}"
        if self.kind == "HEALTHCHECK":
            words = " ".join(json.dumps(word, ensure_ascii=False) for word in self.value)
            given = dict(self.durations)
            lengths = " ".join(f'"{_go_duration(given.get(name, 0))}"' for name in _DURATIONS.values())
            return f"HEALTHCHECK &{{[{words}] {lengths} '\\x00'}}"
        if isinstance(self.value, list):
            words = " ".join(json.dumps(word, ensure_ascii=False) for word in self.value)
            return f"{self.kind} [{words}]"
        return f"{self.kind} {self.value}"


@dataclass(frozen=True, kw_only=True)
class Ending:
    """What comes on top of the stage ``wheels``."""

    steps: tuple[Step, ...]
    copies: tuple[str, ...]
    """Folders of ``/out``, each a layer of the image, lowest first."""
    settings: tuple[Setting, ...]

    def steps_of(self, name: str) -> tuple[Step, ...]:
        """The steps that ``/out/<name>`` depends on: those that name it, and whose folders those name."""
        names, needed = {name}, set[int]()
        for number in reversed(range(len(self.steps))):
            if self.steps[number].makes & names:
                needed.add(number)
                names |= self.steps[number].makes
        return tuple(self.steps[number] for number in sorted(needed))


@dataclass(frozen=True, kw_only=True)
class _Instruction:
    stage: str
    keyword: str
    rest: str
    script: str | None


def read_ending(text: str) -> Ending:
    """Read a rendered Dockerfile. Raises :class:`~builder.errors.CellError` for what needs an engine."""
    stages: dict[str, str] = {}
    steps: list[Step] = []
    copies: list[str] = []
    settings: list[Setting] = []
    for one in _instructions(text):
        if one.keyword == "FROM":
            match = _matching(_FROM, one)
            stages[match["stage"]] = match["base"]
        elif one.stage == "additions" and one.keyword == "RUN":
            steps.append(_step(one))
        elif one.stage == "runtime" and one.keyword == "COPY":
            copies.append(_matching(_COPY, one)["name"])
        elif one.stage == "runtime":
            settings.append(_setting(one))
        elif one.stage not in ("", "base", "installer", "wheels"):
            raise needs_engine(one.keyword, f"{one.rest} (in stage {one.stage})")
    for stage in ("additions", "runtime"):
        if stages.get(stage) != "wheels":
            raise needs_engine("FROM", f"{stages.get(stage)} AS {stage}")
    return Ending(steps=tuple(steps), copies=tuple(copies), settings=tuple(settings))


def needs_engine(keyword: str, rest: str) -> CellError:
    return CellError(
        f"the recipe's `{keyword} {rest.strip()[:100]}` cannot be done without an engine",
        hint="build this cell where Docker is: leave out `--engine none`",
    )


def _instructions(text: str) -> Iterator[_Instruction]:
    lines = iter(text.splitlines())
    stage = ""
    for line in lines:
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        joined = line
        while joined.endswith("\\"):
            joined = joined[:-1] + next(lines).strip()
        keyword, _, rest = joined.partition(" ")
        script = None
        heredoc = _HEREDOC.search(rest)
        if heredoc:
            body = []
            for inner in lines:
                if inner == heredoc[1]:
                    break
                body.append(inner)
            script, rest = "\n".join(body) + "\n", rest[: heredoc.start()]
        if keyword == "FROM":
            stage = rest.rpartition(" ")[2]
        yield _Instruction(stage=stage, keyword=keyword, rest=rest, script=script)


def _step(one: _Instruction) -> Step:
    options = shlex.split(one.rest)
    files = []
    for option in options:
        bind = _BIND.fullmatch(option)
        if bind:
            files.append((bind["source"], bind["target"]))
        elif option != "--network=none":
            raise needs_engine("RUN", one.rest)
    if one.script is None or "--network=none" not in options:
        raise needs_engine("RUN", one.rest)
    return Step(script=one.script, files=tuple(files))


def _setting(one: _Instruction) -> Setting:
    if one.keyword in ("ENV", "LABEL"):
        match = _matching(_PAIR, one)
        return Setting(kind=one.keyword, name=match["name"], value=_unquoted(match["value"]))
    if one.keyword in ("CMD", "ENTRYPOINT"):
        try:
            words = json.loads(one.rest)
        except ValueError:
            raise needs_engine(one.keyword, one.rest) from None
        return Setting(kind=one.keyword, name="", value=[str(word) for word in words])
    if one.keyword == "HEALTHCHECK":
        return _health_check(one)
    if one.keyword in ("WORKDIR", "USER", "EXPOSE") and re.fullmatch(r"[\w./:-]+", one.rest):
        return Setting(kind=one.keyword, name="", value=one.rest)
    raise needs_engine(one.keyword, one.rest)


def _health_check(one: _Instruction) -> Setting:
    options, _, command = one.rest.partition(" CMD ")
    found = [_DURATION.fullmatch(option) for option in options.split()]
    if not command.startswith("[") or not all(found):
        raise needs_engine(one.keyword, one.rest)
    durations = tuple((_DURATIONS[match[1]], int(match[2])) for match in found if match)
    return Setting(kind="HEALTHCHECK", name="", value=["CMD", *json.loads(command)], durations=durations)


def _go_duration(seconds: int) -> str:
    """``1m0s``, as Go writes it."""
    hours, minutes = seconds // 3600, seconds // 60
    text = f"{hours}h" if hours else ""
    text += f"{minutes % 60}m" if minutes else ""
    return f"{text}{seconds % 60}s"


def _unquoted(text: str) -> str:
    """The meaning of what :func:`builder.recipe.quote.value` wrote."""
    return re.sub(r"\\(.)", r"\1", text)


def _matching(pattern: re.Pattern[str], one: _Instruction) -> Mapping[str, str]:
    match = pattern.fullmatch(one.rest)
    if match is None:
        raise needs_engine(one.keyword, one.rest)
    return match.groupdict()
