"""One item never ends a run: whatever the work on it raises is its own failure, and the others are done.

Two parts: every loop of the house goes through the one boundary (found in the source, not listed), and each
kind of loop is tried with every kind of exception.
"""

from __future__ import annotations

import ast
import json
import threading
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from doubles import small_image
from doubles.project import MATRIX, PROBE, Project
from doubles.registry import RegistryDouble, registry_client, serve

import builder
from builder.cli.commands import check as checking
from builder.cli.commands import list_ as listing
from builder.cli.commands.publish import exit_code as publish_exit_code
from builder.cli.walking import exit_code
from builder.core.digests import canonical_json
from builder.core.errors import (
    CellError,
    FaultError,
    MissingToolError,
    RegistryError,
    StaleLockError,
    UsageError,
)
from builder.core.items import item
from builder.image.layers.tar import INFLATE_ERRORS
from builder.pipeline.build import images_in_engine
from builder.pipeline.events import CellOutcome, CellResult, CellRun, Hooks, Stage, each
from builder.plan.facts.reading import release_survey, rereading
from builder.plan.facts.reading.observed import WheelReading
from builder.plan.facts.reading.release_survey import Budget, Survey
from builder.plan.facts.reading.row_sources import FAMILIES
from builder.plan.facts.rules.checking import check
from builder.plan.facts.rules.finding import Finding
from builder.release.audit.checks import Question
from builder.release.audit.run import audit
from builder.release.catalogue import site
from builder.release.catalogue.collection import collect, images_of
from builder.release.colab import match
from builder.release.colab.match import Match
from builder.release.colab.runtimes import PipPackage
from builder.release.dispatch.run import RenderedCell, with_images
from builder.release.publish.gate import PublishOptions
from builder.release.publish.run import publish
from builder.sources.oci.registry import Registry
from builder.verify.evidence.attach import attach_statements, failure_statement

if TYPE_CHECKING:
    from collections.abc import Iterator

BUILDER = Path(builder.__file__).parent

RAISED: tuple[Exception, ...] = (
    ValueError("odd"),
    KeyError("odd"),
    OSError(5, "Input/output error"),
    INFLATE_ERRORS[0]("Error -3 while decompressing data"),
    UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
    RecursionError("maximum recursion depth exceeded"),
    OverflowError("date value out of range"),
    TypeError("unhashable type: 'dict'"),
    UsageError("odd is no image reference"),
)
each_exception = pytest.mark.parametrize("raised", RAISED, ids=[type(one).__name__ for one in RAISED])

TWO = MATRIX + "include:\n  - {}\n  - {variant: other}\n"


@pytest.fixture
def server() -> Iterator[RegistryDouble]:
    with serve() as running:
        yield running


@pytest.fixture
def registry() -> Registry:
    return registry_client()


# The boundary itself.


@each_exception
def test_what_an_item_raises_is_its_own_failure(raised: Exception) -> None:
    with pytest.raises(CellError) as failed, item("the item"):
        raise raised
    assert failed.value.exit_code == 1
    assert failed.value.__cause__ is raised
    assert "odd" in failed.value.message or "the item" in failed.value.message


@pytest.mark.parametrize(
    "raised", [MissingToolError("no disk"), StaleLockError("stale"), CellError("itself")]
)
def test_what_the_next_item_meets_too_and_what_is_said_already_pass(raised: Exception) -> None:
    with pytest.raises(type(raised)) as passed, item("the item"):
        raise raised
    assert passed.value is raised


def test_a_fault_names_its_place_and_debug_shows_the_rest(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RTBUILD_DEBUG", "1")
    with (
        pytest.raises(
            FaultError, match=r"the item: unexpected TypeError: .*, at digests\.py:\d+, in canonical_json"
        ),
        item("the item"),
    ):
        canonical_json(object())
    assert "Traceback" in capsys.readouterr().err


# Every loop goes through it.

BOUNDARIES = {("builder.core.items", "item"), ("builder.release.catalogue.collection", "noted")}
OF_ONE_ITEM = {
    ("image/compose/cell_layers.py", "__enter__"): "layers of one image",
    ("image/compose/cell_layers.py", "wheel"): "layers of one image",
    ("image/compose/cell_layers.py", "plan"): "layers of one image",
    ("image/layers/tar.py", "_send"): "pieces of one layer",
    ("plan/facts/reading/wheel_modules.py", "_shelf"): "wheels of one lock",
    ("plan/lock/pinning.py", "_above_its_pythons"): "wheels of one lock",
    ("sources/index/client.py", "pages"): "pages of an index; each answers with its own reason",
    ("plan/resolve/resolver.py", "prove"): "proposals; each answers with its own reason",
    ("release/colab/match.py", "build_missing"): "sources of one runtime; each answers with its own reason",
    ("sources/index/client.py", "resolve"): "wheels of one solution",
    ("sources/net/download.py", "together"): "files of one image or of one solution",
    ("sources/oci/staging.py", "_fill"): "blobs of one image",
    ("release/dispatch/kubernetes.py", "remove"): "Jobs of one look, which is repeated",
}
"""Threads that work on the parts of a single item, which fail with it."""


def loops() -> Iterator[tuple[str, str, ast.Module]]:
    """File, function and module of every loop in threads."""
    for path in sorted(BUILDER.rglob("*.py")):
        file = str(path.relative_to(BUILDER))
        if file.startswith(("verify/cudnn_verify/", "release/colab/runtime/")):
            continue
        text = path.read_text()
        if ".map(" not in text and ".submit(" not in text:
            continue
        module = ast.parse(text)
        for function in functions_of(module).values():
            for call in ast.walk(function):
                if (
                    isinstance(call, ast.Call)
                    and isinstance(call.func, ast.Attribute)
                    and call.func.attr in ("map", "submit")
                    and "pool" in ast.unparse(call.func.value)
                ):
                    yield file, function.name, module


def functions_of(module: ast.Module) -> dict[str, ast.FunctionDef]:
    """By name: functions of the module and methods of its classes."""
    owners = [module, *(node for node in module.body if isinstance(node, ast.ClassDef))]
    return {node.name: node for owner in owners for node in owner.body if isinstance(node, ast.FunctionDef)}


def boundaries_of(module: ast.Module) -> set[str]:
    """The names of the boundary in a module: imported from its one place, or made of it here."""
    known = {
        alias.asname or alias.name
        for node in ast.walk(module)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if (node.module, alias.name) in BOUNDARIES
    }
    return known | {name for name, function in functions_of(module).items() if enters(function, known)}


def enters(function: ast.AST, names: set[str]) -> bool:
    """Whether a ``with`` statement of the function calls one of the names, with something that varies."""
    return any(
        isinstance(call := entered.context_expr, ast.Call)
        and isinstance(call.func, ast.Name)
        and call.func.id in names
        and call.args
        and not isinstance(call.args[-1], ast.Constant)
        for node in ast.walk(function)
        if isinstance(node, ast.With)
        for entered in node.items
    )


def has_boundary(name: str, module: ast.Module) -> bool:
    """Whether the function, or one of the module that it calls or hands on, enters the boundary."""
    functions, seen, left = functions_of(module), set[str](), [name]
    names = boundaries_of(module)
    while left:
        seen.add(one := left.pop())
        if enters(functions[one], names):
            return True
        nodes = list(ast.walk(functions[one]))
        used = {node.id for node in nodes if isinstance(node, ast.Name)}
        used |= {node.attr for node in nodes if isinstance(node, ast.Attribute)}
        left += used & functions.keys() - seen
    return False


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("from builder.core.items import item\ndef f():\n  with item(x): pass", True),
        ("from builder.core.items import item as one\ndef f():\n  with one(x): pass", True),
        ("from builder.core.items import item\ndef f(): g()\ndef g():\n  with item(x): pass", True),
        ("from builder.core.items import item\ndef f():\n  return item", False),
        ("from builder.core.items import item\ndef f():\n  with item('all'): pass", False),
        ("def item(x): pass\ndef f():\n  with item(x): pass", False),
        ("def f():\n  for item in x: item.do()", False),
    ],
)
def test_a_name_alone_is_no_boundary(source: str, *, found: bool) -> None:
    assert has_boundary("f", ast.parse(source)) is found


def test_every_loop_in_threads_has_the_boundary() -> None:
    found = {(file, name): has_boundary(name, module) for file, name, module in loops()}
    assert len(found) > 10
    assert {pair for pair, bounded in found.items() if not bounded} == OF_ONE_ITEM.keys()


@pytest.mark.parametrize(
    ("file", "function"),
    [
        ("cli/commands/list_.py", "list_"), ("cli/commands/size.py", "size"),
        ("cli/commands/check.py", "check"), ("cli/commands/cache.py", "cache"),
        ("cli/commands/colab.py", "diff"), ("cli/commands/colab.py", "probe"),
        ("release/colab/match.py", "match_packages"), ("release/catalogue/site.py", "write_site"),
        ("release/catalogue/collection.py", "collect"), ("release/catalogue/collection.py", "images_of"),
        ("plan/facts/reading/release_survey.py", "survey"),
        ("plan/facts/reading/release_survey.py", "_reader"),
        ("plan/facts/reading/rereading.py", "read_side_tables"),
    ],
)  # fmt: skip
def test_loops_without_threads_have_it_too(file: str, function: str) -> None:
    assert has_boundary(function, ast.parse((BUILDER / file).read_text()))


@pytest.mark.parametrize(
    ("file", "command"),
    [
        ("pipeline/stages.py", "lock_cells"), ("pipeline/stages.py", "render_cells"),
        ("pipeline/build.py", "build_cells"), ("pipeline/verifying.py", "verify_cells"),
        ("pipeline/reproduce.py", "check_reproducible"), ("release/publish/run.py", "publish"),
    ],
)  # fmt: skip
def test_every_command_over_cells_goes_through_the_schedule(file: str, command: str) -> None:
    tree = ast.parse((BUILDER / file).read_text())
    (function,) = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == command]
    calls = {
        n.func.id for n in ast.walk(function) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)
    }
    assert calls & {"each", "walk_all"}


# Each kind of loop, with each kind of exception.


@each_exception
def test_a_cell(raised: Exception, tmp_path: Path) -> None:
    cells = Project(tmp_path, TWO).matrix.cells
    hooks = Hooks(emit=lambda _event: None, cancel=threading.Event())
    walks = [CellRun(cell, hooks.emit, hooks.cancel) for cell in cells]

    def function(walk: CellRun) -> CellResult:
        with walk.stage(Stage.BUILD):
            if walk.cell is cells[0]:
                raise raised
        return walk.ended(CellOutcome.DONE)

    results = [result for result in each(walks, function, hooks, jobs=2) if result]
    assert [result.outcome for result in results] == [CellOutcome.FAILED, CellOutcome.DONE]
    assert results[0].error is not None
    assert exit_code(results) == 1
    assert not hooks.cancel.is_set()


@pytest.mark.slow
@each_exception
@pytest.mark.parametrize(
    "place",
    [
        "builder.release.publish.run.origin_of",
        "builder.release.publish.run.decide",
        "builder.release.publish.run.copy_image",
    ],
)
def test_a_cell_that_is_published(
    raised: Exception,
    place: str,
    server: RegistryDouble,
    registry: Registry,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Registry, "to_write", lambda: registry)
    monkeypatch.setattr("builder.release.publish.run.bundle", lambda: PROBE)
    project = Project(tmp_path / "project", TWO)
    first, second = project.matrix.cells
    images = {cell.id: project.stage(registry, f"{server.host}/staging", cell) for cell in (first, second)}
    for image in images.values():
        project.report(image)
    module, _, name = place.rpartition(".")
    real = getattr(__import__(module, fromlist=[name]), name)

    def fails(*given: Any, **options: Any) -> Any:
        about = images[first.id].digest
        if any(about == getattr(one, "digest", None) for one in given):
            raise raised
        return real(*given, **options)

    monkeypatch.setattr(place, fails)
    options = PublishOptions(
        results=project.results,
        source=f"{server.host}/staging",
        target=f"{server.host}/public",
        cache=tmp_path,
    )
    hooks = Hooks(emit=lambda _event: None, cancel=threading.Event())
    rows = publish([project.matrix], [first, second], options, hooks)
    assert [row.state for row in rows] == ["failed", "published"]
    assert rows[0].error is not None
    assert publish_exit_code(rows) == 1
    assert first.id not in server.tags
    assert second.id in server.tags


@pytest.mark.slow
@each_exception
@pytest.mark.parametrize(
    "place",
    ["builder.verify.evidence.statement.parse_statement", "builder.release.audit.checks.judge"],
)
def test_a_statement(
    raised: Exception,
    place: str,
    server: RegistryDouble,
    registry: Registry,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The image is not known to work then, since the statement may have been one against it."""
    pushed = small_image.push_image(registry, f"{server.host}/team/tf", tmp_path)
    small_image.attach_all(registry, pushed, small_image.evidence(pushed))
    assert audit(registry, pushed.reference, Question()).works

    def fails(*_: object) -> None:
        raise raised

    monkeypatch.setattr(place, fails)
    found = audit(registry, pushed.reference, Question())
    assert not found.works
    assert "unread" in [row.what for row in found.against]
    reasons = [row.reason for row in (*found.evidence, *found.refused)]
    assert any(
        "odd" in reason or type(raised).__name__ in reason or "Input/output" in reason for reason in reasons
    )


def test_one_statement_that_a_fault_keeps_from_judgement_takes_the_yes_away(
    server: RegistryDouble, registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are for the image, and this one may be against it."""
    pushed = small_image.push_image(registry, f"{server.host}/team/tf", tmp_path)
    small_image.attach_all(registry, pushed, small_image.evidence(pushed))
    attach_statements(
        registry,
        pushed,
        [
            failure_statement(
                pushed,
                small_image.verification(
                    pushed, document=small_image.double_report(verdict="broken", cause="cudnn-shadowed")
                ),
            )
        ],
    )
    from builder.release.audit import checks

    real = checks.judge

    def fails(predicate: Any, *given: Any) -> Any:
        if predicate.get("result") == "FAILED":
            raise KeyError("odd")
        return real(predicate, *given)

    monkeypatch.setattr(checks, "judge", fails)
    found = audit(registry, pushed.reference, Question())
    assert found.verified
    assert not found.works
    assert [row.what for row in found.against] == ["unread"]
    (shown,), _ = images_of(registry, pushed.repository, now=datetime.now(UTC), say=lambda _: None)
    assert not shown.works_on


@each_exception
def test_an_image_of_a_catalogue(
    raised: Exception,
    server: RegistryDouble,
    registry: Registry,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    good = small_image.push_image(registry, f"{server.host}/team/tf", tmp_path, tag="good")
    bad = small_image.push_image(
        registry, f"{server.host}/team/tf", tmp_path, tag="bad", labels={"io.rtbuild.version": "2"}
    )
    from builder.release.catalogue import collection as room

    real = room._cell

    def fails(cell: str, matrix: str, image: Any, provenance: Any) -> Any:
        if image.digest == bad.digest:
            raise raised
        return real(cell, matrix, image, provenance)

    monkeypatch.setattr(room, "_cell", fails)
    images, notes = images_of(registry, good.repository, now=datetime.now(UTC), say=lambda _: None)
    assert [image.digest for image in images] == [good.digest]
    (note,) = notes
    assert ":bad is not shown" in note


@each_exception
def test_a_cell_and_a_report_of_a_catalogue(
    raised: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = Project(tmp_path, TWO)
    first, second = project.matrix.cells
    real = check

    def fails(cell: Any, *given: Any, **options: Any) -> Any:
        if cell == first:
            raise raised
        return real(cell, *given, **options)

    monkeypatch.setattr("builder.release.catalogue.collection.check", fails)
    monkeypatch.setattr("builder.release.catalogue.collection.releases_of", lambda: ())
    reports = project.results / "reports"
    reports.mkdir(parents=True)
    (reports / "x.json").write_text("{}")
    monkeypatch.setattr("builder.verify.runner.reports.read_entry", lambda *_: fails(first))
    made = collect([project.matrix], results=project.results, runtimes=tmp_path)
    assert [image.cell.id for image in made.images] == [second.id]
    assert any(note.startswith(f"{first.id} of tf is not shown") for note in made.notes)
    assert any("x.json is not shown" in note for note in made.notes)


@each_exception
def test_a_cell_that_is_checked(
    raised: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    project = Project(tmp_path, TWO)
    first, second = project.matrix.cells

    def fails(cell: Any, *_: object, **__: object) -> tuple[Finding, ...]:
        if cell.id == first.id:
            raise raised
        return ()

    monkeypatch.setattr("builder.cli.commands.check.check_cell", fails)
    options: dict[str, Any] = dict.fromkeys(("select", "skip", "gpu", "driver", "mirror"))
    more: dict[str, Any] = {"read": False, "deep": False, "fix": False, "junit": None, "verbose": 0}
    code = checking.check([project.path], **options, **more, json_=True)
    rows = {row["id"]: row for row in json.loads(capsys.readouterr().out)["cells"]}
    assert code == 1
    assert (rows[first.id]["answer"], rows[second.id]["answer"]) == ("unknown", "possible")
    assert rows[first.id]["findings"][0]["rule"] == checking.FAULT
    assert rows[first.id]["files_unread"] == "the cell could not be judged"


@each_exception
def test_an_image_that_the_engine_may_have(raised: Exception, tmp_path: Path) -> None:
    """It is built again, and the others are taken as they are."""
    first, second = Project(tmp_path, TWO).recipes.values()
    there: Any = SimpleNamespace(content="sha256:" + "3" * 64)

    def find(inputs: str, _names: object) -> Any:
        if inputs == first.inputs:
            raise raised
        return there

    notes: list[Any] = []
    made = SimpleNamespace(content=lambda _inputs: there.content)
    site: Any = SimpleNamespace(
        engine=SimpleNamespace(find=find, built=dict),
        stores=SimpleNamespace(image_name=lambda cell: cell.id, made=made),
        emit=notes.append,
    )
    assert images_in_engine(site, [first, second]) == {second.inputs: there}
    assert {note.cell for note in notes} == {first.cell.id}


@each_exception
def test_a_cell_that_is_dispatched(
    raised: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = Project(tmp_path, TWO)
    rendered = [
        RenderedCell(matrix=project.matrix, recipe=recipe, repository="r.example/x")
        for recipe in project.recipes.values()
    ]
    first, second = rendered

    def fails(_registry: object, _repository: str, inputs: str) -> Any:
        if inputs == first.recipe.inputs:
            raise raised
        return SimpleNamespace(digest="x")

    monkeypatch.setattr("builder.release.dispatch.run.find_staged", fails)
    lost: dict[str, str] = {}
    nothing: Any = None
    assert [one for one, _ in with_images(nothing, rendered, lost)] == [second]
    assert lost.keys() == {first.recipe.cell.id}
    with pytest.raises(CellError):
        with_images(nothing, [first], lost)


def test_a_registry_that_is_away_is_the_fault_of_no_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = Project(tmp_path, TWO)
    rendered = [
        RenderedCell(matrix=project.matrix, recipe=recipe, repository="r.example/x")
        for recipe in project.recipes.values()
    ]

    def away(*_: object) -> None:
        raise RegistryError("no answer")

    monkeypatch.setattr("builder.release.dispatch.run.find_staged", away)
    nothing: Any = None
    with pytest.raises(RegistryError):
        with_images(nothing, rendered, {})


@each_exception
@pytest.mark.parametrize("form", ["table", "image", "github", "json"])
def test_a_cell_that_is_listed(
    raised: Exception,
    form: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    project = Project(tmp_path, TWO)
    first, second = project.matrix.cells
    for name in ("_row", "_jobs", "describe"):
        monkeypatch.setattr(listing, name, fails_for(first, raised, getattr(listing, name)))
    monkeypatch.setattr(type(first), "image_name", fails_for(first, raised, type(first).image_name))
    code = listing.list_([project.path], None, None, form if form != "json" else "table", form == "json")
    told = capsys.readouterr()
    shown = told.out.replace(f"rtbuild/tf:{second.id}", second.id)
    assert code == 1
    assert second.id in shown
    assert f"  * {first.id} " not in shown
    assert f'"{first.id}"' not in shown
    assert "error: " in told.err


def fails_for(about: Any, raised: Exception, real: Any) -> Any:
    def one(given: Any, *more: Any, **options: Any) -> Any:
        if given is about or getattr(given, "id", None) == about.id:
            raise raised
        return real(given, *more, **options)

    return one


@each_exception
def test_a_wheel_and_a_table_that_are_read_again(
    raised: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row of the wheel stays, and the other tables are read."""
    read: list[str] = []

    def fails(file: Any, *_: object, **__: object) -> WheelReading:
        read.append(file.name)
        if file.name == "a":
            raise raised
        return WheelReading(file=file.name, metadata="x")

    monkeypatch.setattr(release_survey, "read_wheel", fails)
    found = Survey()
    nothing: Any = SimpleNamespace(client=None)
    releases = [SimpleNamespace(told={}) for _ in "ab"]
    jobs: list[Any] = [
        SimpleNamespace(release=release, place="p", kind="deep", file=SimpleNamespace(name=name))
        for release, name in zip(releases, "ab", strict=True)
    ]
    release_survey._reader(nothing, found, Budget(), None, tmp_path)(jobs)
    assert sorted(read) == ["a", "b"]
    assert [bool(release.told) for release in releases] == [False, True]
    assert [note for note in found.notes if note.startswith("a: ")]

    asked: list[str] = []

    def table(_folder: Path, stem: str) -> Any:
        asked.append(stem)
        if stem == FAMILIES[0].stem:
            raise raised
        return release_survey.ReleaseTable()

    monkeypatch.setattr(release_survey, "load_table", table)
    monkeypatch.setattr(release_survey, "_listed", lambda *_: None)
    done = release_survey.survey(tmp_path, nothing)
    assert asked == [family.stem for family in FAMILIES]
    assert FAMILIES[0].stem not in done.tables
    assert [note for note in done.notes if f"the table of {FAMILIES[0].stem} stays" in note]


@each_exception
def test_a_row_of_a_side_table(raised: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = BUILDER / "plan/facts/tables/data"
    seen: list[int] = []

    def fails(number: int, *_: object) -> None:
        seen.append(number)
        if number == 0:
            raise raised

    monkeypatch.setattr(rereading, "_versions", fails)
    monkeypatch.setattr(rereading, "_tags", lambda *_: fails(0))
    monkeypatch.setattr(rereading, "differences", lambda _index: fails(0))
    offer = SimpleNamespace(wheels=("x",), unknown=None)
    monkeypatch.setattr(rereading, "ask", lambda names, _index: dict.fromkeys(names, offer))
    nothing: Any = None
    found = rereading.read_side_tables(folder, index=nothing, registry=nothing)
    assert max(seen) > 0
    assert len([note for note in found.notes if "was not read" in note]) == seen.count(0) == 3


@each_exception
def test_a_package_of_a_runtime(raised: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_self: object, package: Any) -> Match:
        if package.name == "a":
            raise raised
        return Match(package=package, requirement="b==1")

    monkeypatch.setattr(match._Asker, "_ask", fails)
    packages = [PipPackage(name=name, version="1", line=1) for name in "ab"]
    nothing: Any = SimpleNamespace(tags=dict)
    found = match.match_packages(packages, index=nothing, target=nothing)
    assert [one.package.name for one in found.found] == ["b"]
    assert [(one.package.name, one.reason) for one in found.missing] == [("a", "unread")]


@pytest.mark.slow
@each_exception
def test_a_page_of_a_catalogue(raised: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are written, and what an earlier run wrote in its place is no longer there."""
    project = Project(tmp_path / "project", TWO)
    monkeypatch.setattr("builder.release.catalogue.collection.releases_of", lambda: ())
    made = collect([project.matrix], results=project.results, runtimes=tmp_path)
    first, second = made.images
    site.write_site(made, tmp_path / "site", made="2026-01-02")
    monkeypatch.setattr(site, "_image", _of_cell(first, raised, site._image))
    with pytest.raises(CellError, match="1 pages are not written"):
        site.write_site(made, tmp_path / "site", made="2026-01-03")
    pages = tmp_path / "site" / "images"
    assert not (pages / first.page).exists()
    assert "2026-01-03" in (pages / second.page).read_text()
    assert "2026-01-03" in (tmp_path / "site" / "index.html").read_text()


def _of_cell(about: Any, raised: Exception, real: Any) -> Any:
    def one(image: Any, catalogue: Any) -> Any:
        if image is about:
            raise raised
        return real(image, catalogue)

    return one
