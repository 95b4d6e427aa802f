"""The tables read, are strict, and say one thing only about each version."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
import typing

import pydantic
import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from builder.core import resources
from builder.core.versions import contains, key, requirement
from builder.plan.facts.tables import FactsError, Source
from builder.plan.facts.tables import loader as facts

TABLES = facts.load()


def test_reading_all_tables_is_quick() -> None:
    """In processor time, and the best of three: the machine may have other work."""

    def seconds() -> float:
        facts.load.cache_clear()
        started = time.process_time()
        facts.load()
        return time.process_time() - started

    assert min(seconds() for _ in range(3)) < 1


def test_importing_the_rules_reads_no_table() -> None:
    code = "import builder.plan.facts.rules.checking, builder.plan.facts.tables.loader as f\n"
    code += "print(f.load.cache_info().currsize)"
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True).stdout == b"0\n"


def test_every_row_has_a_dated_source() -> None:
    rows = [row for table in TABLES.frameworks.values() for row in table.rows]
    rows += [
        *TABLES.toolkits,
        *TABLES.cudnn,
        *TABLES.tags,
        *TABLES.bad,
        *TABLES.gpus.values(),
        *TABLES.builds,
    ]
    for row in rows:
        assert row.sources
        assert all(source.date for source in row.sources)


@pytest.mark.parametrize("table", TABLES.frameworks.values(), ids=lambda table: table.name)
def test_a_version_and_variant_meet_one_row(table) -> None:
    for row in table.rows:
        assert contains(row.versions, row.version)
        assert table.row(row.version, row.variant, row.distribution, row.platforms[0]) == row
        defaults = [r for r in table.of(row.version, row.distribution) if r.default]
        assert len(defaults) <= 1 or table.name == "jax"
    assert table.newest == max((row.version for row in table.rows), key=Version)


ROWS = [
    *TABLES.toolkits, *TABLES.families.values(), *TABLES.architectures, *TABLES.without.values(),
    *TABLES.cudnn, *TABLES.tags, *TABLES.bad,
    *TABLES.gpus.values(), *TABLES.systems.values(), *TABLES.wheels.values(), *TABLES.builds,
    *(row for table in TABLES.frameworks.values() for row in table.rows),
]  # fmt: skip


@pytest.mark.parametrize("kind", sorted({type(row) for row in ROWS}, key=str), ids=lambda kind: kind.__name__)
def test_values_have_the_types_of_their_fields(kind) -> None:
    """The reader itself takes text, flags and lists of text, and looks no further."""
    names = {"Mapping": dict, "Source": Source, "SpecifierSet": SpecifierSet}
    hints = typing.get_type_hints(kind, {**vars(sys.modules[kind.__module__]), **names})
    for name, hint in hints.items():
        adapter = pydantic.TypeAdapter(hint, config={"strict": True, "arbitrary_types_allowed": True})
        for row in ROWS:
            if type(row) is kind:
                adapter.validate_python(getattr(row, name))


def test_versions_and_pins_parse() -> None:
    for table in TABLES.frameworks.values():
        for row in table.rows:
            assert all(requirement(pin) for pin in (*row.pins, *row.pip))
            assert all(key(text) for text in (row.cuda, row.cudnn, row.glibc) if text)
    for row in TABLES.bad:
        assert all(requirement(text) for text in row.when), row.id


@pytest.mark.parametrize(
    ("find", "replace", "message"),
    [
        ('capability = "7.5"', "capability = 7.5", "7.5 is not"),
        ('name = "T4"', 'nmae = "T4"', "nmae"),
        ('sources = ["nvidia"]', 'sources = ["nobody"]', "nobody"),
        ('sources = ["nvidia"]', "sources = []", "without a source"),
        ('date = "2026-11-21"', "", "'nvidia' has not just a reference and a date"),
        ('date = "2026-11-21"', 'date = "2026-11-21"\nkind = "x"', "'nvidia' has not just"),
    ],
)
def test_a_wrong_table_is_an_error(tmp_path, find, replace, message) -> None:
    shutil.copytree(resources.facts(), tmp_path / "facts")
    path = tmp_path / "facts" / "gpus.toml"
    path.write_text(path.read_text().replace(find, replace))
    with pytest.raises(FactsError, match=message):
        facts.read(tmp_path / "facts")


def test_what_compiling_needs_goes_by_the_version() -> None:
    assert TABLES.build_needs("psycopg2", "2.9.10") == ("libpq-dev",)
    assert TABLES.build_needs("pygobject", "3.42.0") is not None
    assert TABLES.build_needs("pygobject", "3.52.3") is None
    assert TABLES.build_needs("numpy", "2.0.2") is None


def test_a_companion_s_release_is_the_same_however_it_is_written() -> None:
    assert (
        TABLES.companion_asks("torchvision", "0.20") == TABLES.companion_asks("torchvision", "0.20.0") != ()
    )
    assert TABLES.companion_asks("torchvision", "0.20.0+cu124") == TABLES.companion_asks(
        "torchvision", "0.20.0"
    )


def test_a_release_is_proposed_without_the_packages_that_end_its_import() -> None:
    """The resolver takes the newest of a package that a framework bounds only below: what `known-bad`
    refuses of it is left out by the pins. TensorFlow 2.8.0 asks for any protobuf from 3.9.2 on."""
    tables, held = facts.load(), 0
    for bad in tables.bad:
        framework, package = Requirement(bad.when[0]), Requirement(bad.when[-1])
        if (
            len(bad.when) != 2
            or bad.outcome != "impossible"
            or package.name not in {"protobuf", "setuptools"}
        ):
            continue
        for row in tables.frameworks[framework.name].rows:
            if row.default and framework.specifier.contains(row.version, prereleases=True):
                held += 1
                refused = next(one.version for one in package.specifier)
                pins = [one for one in map(Requirement, row.pip) if one.name == package.name]
                assert pins, f"{bad.id}: {row.version}"
                assert not any(one.specifier.contains(refused) for one in pins), f"{bad.id}: {row.version}"
    assert held > 30
