"""What nothing bounds is taken of the time that a project's pins tell, and its Python, too."""

from __future__ import annotations

import datetime
import os
import subprocess
from dataclasses import replace

import pytest

from builder.core.errors import NoSolutionError, UsageError
from builder.core.model import Wheel
from builder.plan.resolve import dates
from builder.plan.resolve import wishes as reading
from builder.plan.resolve.dates import Period, as_of, older_set, period_of, released
from builder.plan.resolve.solve import Demand, search, split
from builder.plan.resolve.wishes import NamedRequirement
from builder.sources.index import IndexFile, UploadLimit, kept_out

RELEASES = {
    "torch": {"1.6.0": "2020-07-28", "2.0.0": "2023-03-15", "2.9.0": "2025-10-15"},
    "librosa": {"0.8.0": "2020-07-22", "0.10.0": "2023-02-17"},
    "omegaconf": {"2.0.6": "2021-01-19", "2.1.0": "2021-06-09", "2.3.0": "2022-12-08"},
    "numpy": {"1.18.5": "2020-06-04", "1.26.4": "2024-02-05", "2.0.0": "2024-06-16", "2.4.0": "2025-12-20"},
    "nltk": {"3.9": "2024-08-18", "3.9.1": "2024-08-19"},
    "transformers": {"4.16.2": "2022-01-31", "5.0.0": "2026-01-26"},
}
TODAY = datetime.date(2026, 11, 30)


@pytest.fixture(autouse=True)
def listed(monkeypatch: pytest.MonkeyPatch) -> None:
    def pages(names, _index):
        return {name: files(name) if name in RELEASES else "no answer" for name in names}

    monkeypatch.setattr(dates, "pages", pages)


def files(name: str) -> tuple[IndexFile, ...]:
    return tuple(
        IndexFile(name=f"{name}-{version}-py3-none-any.whl", url="", sha256=None, uploaded=day)
        for version, day in RELEASES.get(name, {}).items()
    )


def project(*texts: str) -> list[NamedRequirement]:
    wishes = reading.from_arguments(texts).wishes
    return [replace(wish, place=f"requirements.txt:{n}") for n, wish in enumerate(wishes, 1)]


def told(*texts: str) -> Period | None:
    return period_of(project(*texts), object(), TODAY)  # type: ignore[arg-type]


def test_the_time_of_a_project_is_that_of_its_newest_pin_and_half_a_year() -> None:
    period = told("torch==1.6.0", "librosa==0.8.0", "transformers")
    assert period is not None
    assert (period.written, period.day) == ("2020-07-28", "2021-01-27")
    assert period.why == "the releases that requirements.txt names are of 2020-07"
    assert period.python == (3, 8)


def test_a_lower_bound_is_of_a_release_that_was_there() -> None:
    period = told("librosa==0.8.0", "torch>=2.0")
    assert period is not None
    assert period.written == "2023-03-15"


def test_upper_bounds_count_where_nothing_is_pinned() -> None:
    assert (period := told("omegaconf<2.1", "torch>=1.6")) is not None
    assert period.written == "2021-01-19"
    assert (period := told("omegaconf<2.1", "librosa==0.8.0", "numpy==1.18.5")) is not None
    assert period.written == "2020-07-22", "2.1 may have been to come"


def test_one_line_that_was_repaired_years_later_does_not_move_the_time() -> None:
    period = told("transformers==4.16.2", "librosa==0.8.0", "nltk==3.9")
    assert period is not None
    assert period.written == "2022-01-31"


@pytest.mark.parametrize(
    "texts",
    [
        ("torch", "transformers"),
        ("torch>=2.0", "librosa>=0.10"),
        ("numpy==1.26.4", "torch"),
        ("unheard-of==1.0", "other==2"),
        ("torch==2.9.0", "numpy==2.4.0", "transformers==5.0.0"),
    ],
    ids=[
        "nothing is named",
        "lower bounds alone",
        "what others keep back",
        "no answer",
        "of the last half-year or so",
    ],
)
def test_without_pins_of_a_time_the_newest_stays(texts) -> None:
    today = TODAY if len(texts) == 2 else datetime.date(2026, 2, 28)
    assert period_of(project(*texts), object(), today) is None  # type: ignore[arg-type]


def test_a_release_typed_beside_a_file_tells_nothing_of_its_time() -> None:
    typed = reading.from_arguments(["torch==2.9.0"]).wishes
    period = period_of([*typed, *project("librosa==0.8.0", "numpy==1.18.5")], object(), TODAY)  # type: ignore[arg-type]
    assert period is not None
    assert period.written == "2020-07-22"


def test_an_index_that_tells_no_day_tells_no_time() -> None:
    plain = (replace(one, uploaded=None) for one in files("torch"))
    assert released(plain, "torch") == {}


@pytest.mark.parametrize(
    ("text", "day"),
    [
        ("2021", "2021-12-31"),
        ("2021-06", "2021-06-30"),
        ("2020-2", "2020-02-29"),
        ("2021-06-14", "2021-06-14"),
    ],
)
def test_a_date_is_the_end_of_what_it_names(text: str, day: str) -> None:
    period = as_of(text)
    assert period is not None
    assert period.day == day


def test_today_is_no_time_and_other_words_are_refused() -> None:
    assert as_of("today") is None
    for text in ("2021-13", "last year", "21-06", ""):
        with pytest.raises(UsageError, match="names no day"):
            as_of(text)


def test_pythons_of_the_time_come_first_and_such_as_no_system_has_last() -> None:
    period = as_of("2022-10")
    assert period is not None
    pythons = ["3.13", "3.12", "3.11", "3.10", "3.9", "3.8", "3.7"]
    assert sorted(pythons, key=period.rank) == ["3.10", "3.9", "3.8", "3.11", "3.12", "3.13", "3.7"]


def test_the_first_proposal_has_a_python_of_the_time() -> None:
    frameworks, _ = split(reading.from_arguments(["torch==2.5.1"]))
    demand = Demand(frameworks=frameworks, gpus=("T4",))
    newest = search(demand).possible[0].cell.python
    old = search(replace(demand, period=as_of("2022-10"))).possible[0].cell.python
    assert (newest > "3.10", old) == (True, "3.10")


def test_a_file_that_names_nothing_is_of_the_time_of_its_clones_newest_commit(tmp_path) -> None:
    file = tmp_path / "requirements.txt"
    file.write_text("torch\ntransformers\n")
    assert dates.committed(file, TODAY) is None, "no clone"
    told = {
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_COMMITTER_DATE": "2021-06-14T12:00:00Z",
        **{f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
    }
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "first"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True, env={**os.environ, **told})
    for place in (file, tmp_path):
        period = dates.committed(place, TODAY)
        assert period is not None
        assert (period.day, period.python) == ("2021-06-14", (3, 9))
    assert dates.committed(file, datetime.date(2021, 10, 1)) is None, "of the last half-year"


# -- the set of a time


def wheel(name: str, version: str, day: str = "2026-01-01") -> Wheel:
    uploaded = int(datetime.datetime.fromisoformat(f"{day}T00:00:00+00:00").timestamp())
    return Wheel(name=name, version=version, file="", sha256="", size=1, uploaded=uploaded)


NEWEST = (
    wheel("torch", "1.13.1", "2022-12-15"),
    wheel("nvidia-cublas-cu11", "11.10", "2022-10-01"),
    wheel("tensorboard", "2.3.0", "2020-07-29"),
    wheel("transformers", "5.0"),
    wheel("protobuf", "6.0"),
    wheel("certifi", "2026.1"),
    wheel("numpy", "1.26.4", "2024-02-05"),
    wheel("tqdm", "4.67"),
)
OLDER = {"transformers": "4.2", "protobuf": "3.14", "certifi": "2020.12", "numpy": "1.20", "tqdm": "4.55"}


class Resolver:
    """A resolver's double: what it was asked, with which limits; some packages are kept out at first."""

    def __init__(self, *kept: str, ends: str = "") -> None:
        self.limits: list[UploadLimit | None] = []
        self.kept, self.ends = [*kept], ends

    def __call__(self, _cell, limit):
        self.limits.append(limit)
        if limit is not None and limit.day < self.ends:
            raise NoSolutionError("no versions of anything")
        if limit is not None and self.kept:
            raise NoSolutionError(f"hint: `{self.kept.pop()}` was filtered by `exclude-newer` to ...")
        return [replace(one, version=OLDER.get(one.name, one.version)) for one in NEWEST]


@pytest.fixture
def old_cell(make):
    return make("torch==1.13.1", python="3.8", pip=("tensorboard==2.3.0", "transformers", "numpy<2"))


@pytest.fixture
def make():
    frameworks, _ = split(reading.from_arguments(["torch==1.13.1"]))
    cell = search(Demand(frameworks=frameworks)).possible[0].cell
    return lambda *frameworks, **more: replace(cell, frameworks=frameworks, **more)


PERIOD = Period(day="2021-01-27", written="2020-07-28", why="the releases that it names are of 2020-07")


def test_what_is_asked_for_and_what_it_brings_is_bounded_to_the_time(old_cell) -> None:
    resolver = Resolver()
    found = older_set(old_cell, NEWEST, PERIOD, resolver, files)
    assert found is not None
    cell, _, why = found
    assert cell.pip == ("tensorboard==2.3.0", "transformers<=4.2", "numpy<2,<=1.20", "protobuf<=3.14")
    assert why.startswith("numpy<=1.20, transformers<=4.2, protobuf<=3.14: the releases that it names are of")
    first, last = resolver.limits
    assert first is not None
    assert first.day == "2021-01-27"
    assert set(first.packages) == {"torch", "nvidia-cublas-cu11", "tensorboard", "pip"}
    assert last is None, "the set is that which the lock finds by the bounds"


def test_what_the_framework_asks_for_is_of_the_frameworks_time(old_cell) -> None:
    resolver = Resolver("sympy")
    found = older_set(old_cell, NEWEST, PERIOD, resolver, files)
    assert found is not None
    second = resolver.limits[1]
    assert second is not None
    assert second.packages["sympy"] == "2023-06-16"


def test_where_nothing_of_the_time_goes_the_frameworks_time_is_next(old_cell) -> None:
    found = older_set(old_cell, NEWEST, PERIOD, Resolver(ends="2023"), files)
    assert found is not None
    assert "of the time of torch==1.13.1" in found[2]
    found = older_set(old_cell, NEWEST, PERIOD, Resolver(ends="2026"), files)
    assert found is not None
    assert found[0] == old_cell
    assert "nothing goes with torch==1.13.1 on Python 3.8: the newest is taken" in found[2]


def test_in_place_of_a_release_of_years_before_that_of_the_time_is_taken(old_cell, monkeypatch) -> None:
    """Of gradio the resolver goes back to 2021: those of the time bring what has sources alone, of which a
    later release has a wheel.
    """
    monkeypatch.setitem(
        RELEASES, "transformers", {"1.0": "2017-02-01", "4.1": "2020-11-15", "4.2": "2021-01-15"}
    )

    def resolve(cell, limit):
        of_time = any("transformers>=4.1" in text for text in cell.pip)
        if of_time and limit is not None and "tokenizers" not in limit.packages:
            raise NoSolutionError(
                "tokenizers==9 was published after the exclude newer time and there are no versions of it"
            )
        old = wheel("transformers", "4.2" if of_time else "1.0", "2021-01-15" if of_time else "2017-02-01")
        return [one if limit is None or one.name != "transformers" else old for one in NEWEST]

    monkeypatch.setattr(dates, "kept_out", lambda _message: ["tokenizers"])
    found = older_set(old_cell, NEWEST, PERIOD, resolve, files)
    assert found is not None
    assert any("transformers" in text and "<=4.2" in text for text in found[0].pip)


def test_a_release_of_years_before_is_not_of_the_time(old_cell, monkeypatch) -> None:
    """Of wandb the resolver goes back to 2017, and with those of the time nothing goes."""
    monkeypatch.setitem(RELEASES, "transformers", {"1.0": "2017-02-01", "4.2": "2021-01-15"})
    asked: list[UploadLimit | None] = []

    def resolve(cell, limit):
        asked.append(limit)
        if any("transformers>=" in text for text in cell.pip):
            raise NoSolutionError("none")
        old = wheel("transformers", "1.0", "2017-02-01")
        late = limit is None or "transformers" in limit.packages
        return [one if late or one.name != "transformers" else old for one in NEWEST]

    assert older_set(old_cell, NEWEST, PERIOD, resolve, files) is None
    last = asked[-1]
    assert last is not None
    assert last.packages["transformers"] == "2023-06-16"


def test_packages_of_a_later_python_know_it(old_cell) -> None:
    resolver = Resolver()
    found = older_set(replace(old_cell, python="3.12"), NEWEST, PERIOD, resolver, files)
    assert found is not None
    assert resolver.limits[0] is not None
    assert resolver.limits[0].day == "2024-04-01"
    assert "of the time of Python 3.12" in found[2]


def test_a_set_that_is_of_the_time_stays(old_cell) -> None:
    fixed = [one for one in NEWEST if one.name in {"torch", "tensorboard", "nvidia-cublas-cu11"}]
    assert older_set(old_cell, fixed, PERIOD, Resolver(), files) is None


def test_uv_is_told_the_days() -> None:
    limit = UploadLimit(day="2021-01-27", packages={"torch": None, "sympy": "2023-06-16"})
    assert limit.options == [
        *("--exclude-newer", "2021-01-27T23:59:59Z"),
        *("--exclude-newer-package", "sympy=2023-06-16T23:59:59Z"),
        *("--exclude-newer-package", "torch=false"),
    ]


def test_what_a_limit_keeps_out_is_read_off_uvs_words() -> None:
    said = (
        "Because audioread>=2.0.0 has no usable wheels and you require librosa==0.8.0\n"
        "numpy<=1.19.5 has no wheels with a matching Python ABI tag\n"
        "hint: `sympy` was filtered by `exclude-newer` to only include packages uploaded before 2022\n"
    )
    assert sorted(kept_out(said)) == ["audioread", "numpy", "sympy"]
