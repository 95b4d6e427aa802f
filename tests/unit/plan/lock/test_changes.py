"""Newer packages, withdrawn wheels, pushed tags: each is listed, and what nobody answered stays open."""

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from lock_values import lock_cell, lock_deb, lock_registry_base, lock_wheel

from builder.core.errors import PackageIndexError
from builder.core.model import Base, Cuda, Pinned, RootfsBase, StandalonePython
from builder.plan.lock import changes as module
from builder.plan.lock.changes import outdated
from builder.sources.debian import ReleaseFile, SuiteToday
from builder.sources.index import IndexFile

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from builder.core.model import Wheel

needs_dpkg = pytest.mark.skipif(shutil.which("dpkg") is None, reason="needs dpkg, which compares versions")


def _file(wheel: Wheel, **changes: Any) -> IndexFile:
    return IndexFile(**{"name": wheel.file, "url": "u", "sha256": wheel.sha256, **changes})


def _pinned(*wheels: Wheel, **changes: Any) -> Pinned:
    base = RootfsBase(suite="bookworm", debs=(lock_deb("libssl3"), lock_deb("tzdata")), epoch=100)
    cell = lock_cell("c", cuda=Cuda(provider="none"), base=Base(kind="rootfs", name="debian/bookworm"))
    return Pinned(**{"cell": cell, "base": base, "wheels": wheels, "epoch": 1, **changes})


NOW = int(datetime.now(UTC).timestamp())
LISTS = ReleaseFile("bookworm-security", NOW, NOW + 100_000, NOW)


def _today(*debs: tuple[str, str], security: Mapping[str, str] | None = None, **lists: Any) -> SuiteToday:
    releases = (LISTS._replace(**lists),)
    return SuiteToday(newest=dict(debs), security=security or {}, releases=releases)


SAME = _today(("libssl3", "1:2.0-3+deb11u1"), ("tzdata", "1:2.0-3+deb11u1"))


class Outside:
    """Debian and the registry as they are today; what is None does not answer."""

    def __init__(self, lists: SuiteToday | None = None, digest: str | None = None) -> None:
        self.lists, self.digest = lists, digest

    def today(self, suite: str, *, platform: str, packages: Sequence[str]) -> SuiteToday:
        assert (suite, platform, packages) == ("bookworm", "linux/amd64", ["libssl3", "tzdata"])
        if self.lists is None:
            raise PackageIndexError("the mirror did not answer")
        return self.lists

    def inspect(self, _reference: str, _platform: str) -> Any:
        if self.digest is None:
            raise PackageIndexError("the registry did not answer")
        return replace(lock_registry_base(), digest=self.digest)


@pytest.fixture(autouse=True)
def no_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "check", lambda *_, **__: ())


def _ask(pinned: Pinned, outside: Outside, **pages: Any) -> Any:
    known: Mapping[str, Any] = {wheel.name: (_file(wheel),) for wheel in pinned.wheels} | pages
    return outdated(pinned, pages=known, debian=outside, registry=outside)  # type: ignore[arg-type]


@needs_dpkg
def test_security_comes_first_and_older_is_no_update() -> None:
    ssl, zone = ("libssl3", "1:2.0-3+deb11u2"), ("tzdata", "1:2.0-3+deb11u1+b1")
    found = _ask(_pinned(), Outside(_today(zone, ssl, security={"libssl3": ssl[1], "tzdata": "1:2.0-3"})))
    assert [(one.kind, one.name, one.newer) for one in found.changes] == [
        ("security", "libssl3", "1:2.0-3+deb11u2"),
        ("package", "tzdata", "1:2.0-3+deb11u1+b1"),
    ]
    assert not found.unknown
    assert found.lists == (LISTS,)
    found = _ask(_pinned(), Outside(_today(("libssl3", "1:2.0-3+deb11u0"), zone)))
    assert [one.name for one in found.changes] == ["tzdata"]
    assert "libssl3: the archive's lists have 1:2.0-3+deb11u0, older than 1:2.0-3+deb11u1" in found.unknown[0]


@needs_dpkg
def test_a_security_update_that_a_point_release_took_in_is_one() -> None:
    today = _today(
        ("libssl3", "1:2.0-4"), ("tzdata", "1:2.0-3+deb11u1"), security={"libssl3": "1:2.0-3+deb11u2"}
    )
    assert [(one.kind, one.newer) for one in _ask(_pinned(), Outside(today)).changes] == [
        ("security", "1:2.0-4")
    ]


def test_a_package_that_is_no_longer_listed_is_told() -> None:
    found = _ask(_pinned(), Outside(_today(("tzdata", "1:2.0-3+deb11u1"))))
    assert [(one.kind, one.name) for one in found.changes] == [("gone", "libssl3")]


def test_an_error_of_dpkg_is_no_sign_that_nothing_is_newer(monkeypatch: pytest.MonkeyPatch) -> None:
    today = _today(("libssl3", "9"), ("tzdata", "1:2.0-3+deb11u1"))
    failed = SimpleNamespace(returncode=2)
    monkeypatch.setattr(module.subprocess, "run", lambda *_, **__: failed)
    module._is_newer.cache_clear()
    found = _ask(_pinned(), Outside(today))
    module._is_newer.cache_clear()
    assert found.changes == ()
    assert found.unknown == ("the base: libssl3: dpkg cannot compare 9 with 1:2.0-3+deb11u1",)
    monkeypatch.undo()
    monkeypatch.setattr(module, "check", lambda *_, **__: ())
    monkeypatch.setenv("PATH", "/nowhere")
    assert "this machine lacks it" in _ask(_pinned(), Outside(today)).unknown[0]


@pytest.mark.parametrize(
    ("lists", "said"),
    [
        ({"date": 99, "newest": 99}, "older than those that the lock was made from"),
        ({"newest": NOW + 60}, "this machine had some of"),
        ({"valid_until": NOW - 60}, "were valid until"),
        ({"valid_until": None}, "have no end: Debian no longer updates them"),
        ({"suite": "bookworm"}, "the archive has no bookworm-security"),
    ],
)
def test_lists_that_may_lack_an_update_are_no_good_news(lists: dict[str, Any], said: str) -> None:
    today = replace(SAME, releases=(LISTS._replace(**lists),))
    found = _ask(_pinned(), Outside(today))
    assert found.changes == ()
    (unknown,) = found.unknown
    assert said in unknown


def test_an_archive_that_does_not_answer_is_no_good_news() -> None:
    assert _ask(_pinned(), Outside()).unknown == ("the base: the mirror did not answer",)


def test_a_tag_that_was_pushed_again() -> None:
    base = lock_registry_base("nvidia/cuda:x")
    cell = lock_cell("c", base=Base(kind="registry", name="nvidia/cuda:x"), cuda=Cuda(provider="base"))
    pinned = _pinned(base=base, cell=cell)
    assert _ask(pinned, Outside(digest=base.digest)).changes == ()
    found = _ask(pinned, Outside(digest="sha256:" + "9" * 64))
    assert [(one.kind, one.name) for one in found.changes] == [("base", "nvidia/cuda:x")]
    assert found.unasked == ("the packages inside nvidia/cuda:x: no lock lists them",)
    assert _ask(pinned, Outside()).unknown == ("the base: the registry did not answer",)


def test_wheels_that_were_yanked_or_are_gone() -> None:
    here, yanked, gone, silent = (lock_wheel(name) for name in ("here", "yanked", "gone", "silent"))
    outside = Outside(SAME)
    found = _ask(
        _pinned(here, yanked, gone, silent),
        outside,
        yanked=(_file(yanked, yanked="broken\x1b[31m"),),
        gone=(_file(gone, sha256="f" * 64),),
        silent="HTTP 503",
    )
    assert [(one.kind, one.name) for one in found.changes] == [("yanked", "yanked"), ("gone", "gone")]
    assert "\x1b" not in found.changes[0].why
    assert found.unknown == ("silent: HTTP 503",)


def test_a_newer_patch_of_cudnn_within_its_minor_release() -> None:
    wheel = lock_wheel("nvidia-cudnn-cu12", "9.3.0.75")
    others = [
        IndexFile(
            name=f"nvidia_cudnn_cu12-{version}-py3-none-manylinux2014_x86_64.whl",
            url="u",
            sha256="0",
            yanked="no" if version == "9.3.9.1" else None,
        )
        for version in ("9.3.2.1", "9.3.9.1", "9.4.0.58", "8.9.7.29")
    ]
    outside = Outside(SAME)
    found = _ask(_pinned(wheel), outside, **{"nvidia-cudnn-cu12": (_file(wheel), *others)})
    assert [(one.kind, one.locked, one.newer) for one in found.changes] == [("cudnn", "9.3.0.75", "9.3.2.1")]


def test_a_newer_standalone_python(monkeypatch: pytest.MonkeyPatch) -> None:
    python = StandalonePython(version="3.9.9", build="20240101", file="f", sha256="0", size=1)
    monkeypatch.setattr(
        module, "choose_python", lambda *_: SimpleNamespace(version="3.9.10", build="20240201")
    )
    outside = Outside(SAME)
    pinned = _pinned(python=python)
    assert [one.newer for one in _ask(pinned, outside).changes] == ["3.9.10 (20240201)"]
    assert _ask(replace(pinned, cell=replace(pinned.cell, python_patch="3.9.9")), outside).changes == ()


def test_rules_that_judge_otherwise_today(monkeypatch: pytest.MonkeyPatch) -> None:
    from builder.plan.facts.rules import Finding, Outcome

    findings = tuple(Finding(outcome, "said", rule="known-bad") for outcome in Outcome)
    monkeypatch.setattr(module, "check", lambda *_, **__: findings)
    found = _ask(_pinned(), Outside(SAME))
    assert [one.kind for one in found.changes] == ["rules", "rules"]
    assert found.unknown == ("check: known-bad: said",)


def test_an_index_that_is_down_is_told_once() -> None:
    wheels = [lock_wheel(name) for name in ("numpy", "torch", "jax")]
    down = {
        wheel.name: f"package index https://index.example/simple/{wheel.name}/: the host name is unknown"
        for wheel in wheels
    }
    outside = Outside(SAME)
    why = "package index https://index.example/simple/: the host name is unknown"
    assert _ask(_pinned(*wheels), outside, **down).unknown == (f"the packages: {why}",)
    del down["torch"]
    assert _ask(_pinned(*wheels), outside, **down).unknown == (f"numpy, jax: {why}",)


def test_an_update_that_the_sets_own_metadata_pins_away_is_held() -> None:
    torch, cudnn = lock_wheel("torch", "2.3.1"), lock_wheel("nvidia-cudnn-cu12", "8.9.2.26")
    newer = IndexFile(
        name="nvidia_cudnn_cu12-8.9.7.29-py3-none-manylinux1_x86_64.whl", url="u", sha256="0", yanked=None
    )
    pinned = _pinned(cudnn, torch)
    pinned = replace(pinned, cell=replace(pinned.cell, frameworks=("torch==2.3.1",)))
    found = _ask(pinned, Outside(SAME), **{"nvidia-cudnn-cu12": (_file(cudnn), newer)})
    assert found.changes == ()
    (held,) = found.held
    assert (held.kind, held.locked, held.newer) == ("cudnn", "8.9.2.26", "8.9.7.29")
    assert held.why == "held by torch 2.3.1, which asks for nvidia-cudnn-cu12==8.9.2.26"
    assert found.summary == "nothing newer that the set takes"


def test_an_update_that_an_extra_or_the_matrix_pins_away_is_held() -> None:
    cudnn = lock_wheel("nvidia-cudnn-cu12", "8.9.4.25")
    newer = IndexFile(
        name="nvidia_cudnn_cu12-8.9.7.29-py3-none-manylinux1_x86_64.whl", url="u", sha256="0", yanked=None
    )
    pinned = _pinned(cudnn, lock_wheel("tensorflow", "2.15.0"))
    for frameworks, pip, by in (
        (("tensorflow[and-cuda]==2.15.0",), (), "tensorflow 2.15.0"),
        (("tensorflow==2.15.0",), ("nvidia-cudnn-cu12==8.9.4.*,<8.9.5",), "the matrix"),
        (("tensorflow==2.15.0",), (), None),
    ):
        asked = replace(pinned, cell=replace(pinned.cell, frameworks=frameworks, pip=pip))
        found = _ask(asked, Outside(SAME), **{"nvidia-cudnn-cu12": (_file(cudnn), newer)})
        assert [one.why.startswith(f"held by {by}") for one in found.held] == ([True] if by else [])
        assert len(found.changes) == (by is None)
