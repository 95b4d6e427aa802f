"""What people read when a build fails, by what compilers and tools say."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builder.core.model import Sdist
from builder.image.sdist.wheel import advice, compile_advice

PSYCOPG2 = Sdist(name="psycopg2", version="2.9.10", file="psycopg2-2.9.10.tar.gz", sha256="a" * 64, size=1)


@pytest.mark.parametrize(
    ("said", "lacking"),
    [
        ("psycopg.h:36:10: fatal error: libpq-fe.h: No such file or directory", "the header libpq-fe.h"),
        ("/usr/bin/ld: cannot find -lipopt: No such file", "the library libipopt.so"),
        ("Package cairo was not found in the pkg-config search path.", "cairo.pc"),
        ("Package 'dbus-1', required by 'virtual:world', not found", "dbus-1.pc"),
        ("No package 'gobject-introspection-1.0' found", "gobject-introspection-1.0.pc"),
        ('../meson.build:31:12: ERROR: Dependency "cairo" not found, tried pkgconfig and cmake', "cairo.pc"),
        ("Error: pg_config executable not found.", "the program pg_config"),
        ("ERROR: CMake must be installed to build dlib", "the program cmake"),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'gdal-config'", "the program gdal-config"),
    ],
)  # fmt: skip
def test_what_a_build_lacks_is_named(said: str, lacking: str) -> None:
    hint = advice(f"first\n{said}\nerror: command failed\n", PSYCOPG2, compiled=True)
    assert hint == (
        f"its build lacks {lacking}: add the Debian package that has it (libpq-dev, by its own pages) to the "
        "list of psycopg2 in 'from-source'"
    )


@pytest.mark.parametrize(
    "said",
    [
        "error: command 'x86_64-linux-gnu-gcc' failed: No such file or directory",
        "Error: pg_config executable not found.",
        "configure: error: no acceptable C compiler found in $PATH",
    ],
)
def test_a_pure_build_that_wants_a_compiler_is_told_how_to_say_so(said: str) -> None:
    assert advice(said, PSYCOPG2, compiled=False).startswith("it is compiled: say so in 'from-source'")
    assert advice(said + 50 * "\nmore", PSYCOPG2, compiled=False).startswith("pin another version of it")


def test_empty_lines_do_not_hide_that_the_network_was_asked() -> None:
    said = "urllib.error.URLError: <urlopen error [Errno -3] Temporary failure in name resolution>"
    assert advice(said + 30 * "\n\nmore", PSYCOPG2, compiled=False).startswith("its build asks the network")


def test_a_file_that_the_sources_lack_is_no_program() -> None:
    said = "FileNotFoundError: [Errno 2] No such file or directory: 'README.md'"
    assert advice(said, PSYCOPG2, compiled=True).startswith("pin another version of it")


def test_the_first_counts() -> None:
    said = "fatal error: a.h: No such file or directory\nfatal error: b.h: No such file or directory\n"
    assert "the header a.h" in advice(said, PSYCOPG2, compiled=True)


def test_what_is_lost_on_the_network() -> None:
    said = "urlopen error [Errno -3] Temporary failure in name resolution; gcc"
    for compiled in (False, True):
        assert advice(said, PSYCOPG2, compiled=compiled).startswith("its build asks the network, which")


def test_what_nobody_knows() -> None:
    assert advice("SyntaxError: 2", PSYCOPG2, compiled=True).startswith("pin another version of it")
    assert advice("SyntaxError: 2", PSYCOPG2, compiled=False).startswith("pin another version of it")


def test_how_a_matrix_says_that_a_package_is_compiled() -> None:
    assert "as in 'psycopg2: [libpq-dev]';" in compile_advice(PSYCOPG2)
    assert "as in 'tiny: []';" in compile_advice(replace(PSYCOPG2, name="tiny"))
