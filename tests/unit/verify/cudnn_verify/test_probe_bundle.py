"""One file out of many modules: the same bytes every time, readable, and for old interpreters."""

import ast
import hashlib
import re
import subprocess
import sys

import pytest
from pages import causes, checks

from builder import __version__
from builder.core import resources
from builder.image.recipe.probe_file import DATA, bundle, sources
from builder.verify.cudnn_verify.__main__ import VERSION
from builder.verify.cudnn_verify.common.causes import CAUSES
from builder.verify.cudnn_verify.measure.cuda import RESULT_CAUSES
from builder.verify.cudnn_verify.measure.run import COUNTER_TESTS
from builder.verify.cudnn_verify.read.signatures import read_signatures


def test_the_same_bytes_every_time(probe):
    assert bundle() == probe.path.read_bytes()


def test_the_file_is_a_readable_script(probe):
    text = probe.path.read_text()
    assert text.startswith("#!/usr/bin/env python3\n# cudnn-verify: ")
    assert text.count('if __name__ == "__main__":') == 1
    assert text.rstrip().endswith("sys.exit(probe())")
    assert "from ." not in text.replace("from .module", "")
    for module in resources.probe().rglob("*.py"):
        assert module.stem == "__init__" or f"\n# {module.stem}\n" in text


def test_it_is_python_3_6_and_standard_library_only(probe):
    tree = ast.parse(probe.path.read_text(), feature_version=(3, 6))
    guarded = next(node for node in tree.body if isinstance(node, ast.Try))
    statements = tree.body + guarded.body
    imported = {a.name for node in statements if isinstance(node, ast.Import) for a in node.names}
    imported |= {node.module for node in statements if isinstance(node, ast.ImportFrom)}
    assert {"json", "os", "resource"} <= imported
    assert {name.partition(".")[0] for name in imported} <= sys.stdlib_module_names
    assert not imported & {"dataclasses", "importlib.metadata", "__future__", "typing"}


def test_importing_it_does_nothing(probe):
    code = "import cudnn_verify, sys; print(cudnn_verify.VERSION, 'ctypes.util' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=probe.path.parent,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"{VERSION} False\n"
    assert done.stderr == ""


def test_version_and_hash_are_its_own(probe):
    digest = hashlib.sha256(probe.path.read_bytes()).hexdigest()
    assert probe.run("--version").stdout == f"cudnn-verify {__version__}\nsha256 {digest}\n"


def broken(paths):
    """The places where sources break a rule of the bundle, each with the rule."""
    trees = {path.name: ast.parse(path.read_text(), feature_version=(3, 6)) for path in paths}
    owner = {}
    for name, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                yield from (
                    f"{name}:{node.lineno}: {rule}" for rule in broken_by(node, top=node in tree.body)
                )
        for node in tree.body:
            if isinstance(node, (ast.Import, ast.ImportFrom)) and not getattr(node, "level", 0):
                owner.update({alias.name.partition(".")[0]: "an import" for alias in node.names})
    for name, tree in trees.items():
        for defined in names_of(tree):
            if defined in owner:
                yield f"{defined} is defined in {name} and in {owner[defined]}"
            owner[defined] = name


def broken_by(node, *, top):
    if getattr(node, "level", 0):
        if not top:
            yield "a relative import inside a function"
        if not re.fullmatch(
            r"\.\w+|\.{1,2}\w+\.\w+|\.{3,4}core\.\w+", "." * node.level + (node.module or "")
        ):
            yield "use `from .module import name` or `from ..folder.module import name`"
        if any(alias.asname or alias.name == "*" for alias in node.names):
            yield "no alias and no star, names stay what they are in one file"
    elif top:
        for alias in node.names:
            root = (getattr(node, "module", None) or alias.name).partition(".")[0]
            if root not in sys.stdlib_module_names:
                yield f"{root} is not in the standard library"
            if alias.asname:
                yield "no alias, names stay what they are in one file"


def names_of(tree):
    """The names that a module defines at its top level."""
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)):
            yield node.name
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                yield from (n.id for n in ast.walk(target) if isinstance(n, ast.Name))


def test_the_sources_break_no_rule_of_the_bundle():
    paths = sources(resources.probe())
    assert list(broken(paths)) == []
    assert len({path.stem for path in paths}) == len(paths), "modules of two folders have one name"
    beside = [path for path in resources.probe().rglob("*.*") if path.suffix not in (".py", ".pyc")]
    assert {path.suffix for path in beside} == DATA
    assert beside
    for text in (path.read_text() for path in beside):
        assert '"""' not in text, "it cannot stand in a raw string"
        assert not text.endswith(("\\", '"'))


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ({"a": "from .b import x as y\n", "b": "x = 1\n"}, "a.py:1: no alias and no star"),
        ({"a": "from .b import *\n", "b": "x = 1\n"}, "a.py:1: no alias and no star"),
        ({"a": "import os as system\n"}, "a.py:1: no alias"),
        ({"a": "import numpy\n"}, "a.py:1: numpy is not in the standard library"),
        ({"a": "from . import b\n", "b": ""}, "a.py:1: use `from .module import name`"),
        (
            {"a": "def f():\n    from .b import x\n", "b": "x = 1\n"},
            "a.py:2: a relative import inside a function",
        ),
        ({"a": "x = 1\n", "b": "def x():\n    pass\n"}, "x is defined in b.py and in a.py"),
        ({"a": "import os\n", "b": "os = 1\n"}, "os is defined in b.py and in an import"),
        ({"a": "from ...b import x\n"}, "a.py:1: use `from .module import name`"),
    ],
)
def test_a_source_that_breaks_a_rule_is_seen(tmp_path, texts, message):
    for name, text in texts.items():
        (tmp_path / f"{name}.py").write_text(text)
    assert message in "\n".join(broken(sorted(tmp_path.glob("*.py"))))


@pytest.mark.parametrize(
    "texts",
    [
        {"a": "from .b import x\nz = 1\n", "b": "from .a import z\nx = 1\n"},
        {"a": "from .nowhere import x\n"},
        {"a": "from ...core.nowhere import x\n"},
    ],
)
def test_modules_that_have_no_order_are_refused(tmp_path, texts):
    for name, text in texts.items():
        (tmp_path / f"{name}.py").write_text(text)
    with pytest.raises(ValueError, match="a circle of imports, or a module that is not there"):
        bundle(tmp_path)


FIRST = """import sys

USER_PATH = sys.path


def isolate():
    pass
"""
"""Of the probe's first module, as much as the others need."""


def test_modules_come_after_what_they_need(tmp_path):
    (tmp_path / "isolation.py").write_text(FIRST)
    (tmp_path / "a.py").write_text('"""First by name."""\n\nfrom .z import deep\n\nvalue = deep + 1\n')
    (tmp_path / "z.py").write_text('"""Last by name."""\n\nimport os\n\ndeep = len(os.sep)\n')
    scope = {}
    exec(compile(bundle(tmp_path), "bundled", "exec"), scope)
    assert scope["value"] == 2


def test_a_module_is_shared_with_the_package_around_it(tmp_path):
    (tmp_path / "verify/probe").mkdir(parents=True)
    (tmp_path / "core").mkdir()
    (tmp_path / "verify/probe/isolation.py").write_text(FIRST)
    (tmp_path / "verify/probe/a.py").write_text(
        "import os\n\nfrom ...core.shared import deep\n\nvalue = deep + 1\n"
    )
    (tmp_path / "core/shared.py").write_text("deep = 1\n")
    scope = {}
    exec(compile(bundle(tmp_path / "verify/probe"), "bundled", "exec"), scope)
    assert scope["value"] == 2
    assert {path.name for path in sources(resources.probe()) if resources.probe() not in path.parents} == {
        "cards.py",
        "elf.py",
        "packed_text.py",
        "link.py",
        "suites.py",
    }


def test_a_folder_of_the_probe_may_use_another_and_its_data(tmp_path):
    for name in ("measure", "common"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("")
    (tmp_path / "common/isolation.py").write_text(FIRST)
    (tmp_path / "common/tables.py").write_text("import os\n\n\ndef beside(name):\n    raise OSError(name)\n")
    (tmp_path / "measure/numbers.txt").write_text("41")
    code = 'from ..common.tables import beside\n\nNUMBERS = beside("measure/numbers.txt")\n'
    (tmp_path / "measure/reader.py").write_text(code)
    (tmp_path / "a.py").write_text("from .measure.reader import NUMBERS\n\nvalue = int(NUMBERS) + 1\n")
    scope = {}
    exec(compile(bundle(tmp_path), "bundled", "exec"), scope)
    assert scope["value"] == 42


def test_the_page_of_causes_is_generated(generated):
    generated("docs/causes.md", causes.markdown())


def test_the_page_of_checks_is_generated(generated):
    generated("docs/checks.md", checks.markdown())


def test_every_cause_has_a_proof_and_a_check_and_every_counter_test_proves_something():
    given = [cause._replace(judged="-", texts="-", without="-", follows="-") for cause in CAUSES.values()]
    assert all(map(all, given)), "an empty field"
    judged = {cause.id for cause in CAUSES.values() if cause.judged or cause.texts}
    assert judged.union(*(row.causes.split() for row in checks.read_checks())) == set(CAUSES)
    tests = {name for cause in CAUSES.values() for name in re.findall(r"`([a-z-]+)`", cause.proof)}
    assert tests - {"dlopen"} == set(COUNTER_TESTS)


def test_every_check_of_the_code_is_in_the_table():
    sources = "".join(p.read_text() for p in resources.probe().rglob("*.py"))
    used = set(re.findall(r'"([A-Z]0[1-9])"', sources))
    assert used == {row.id for row in checks.read_checks()}


def test_no_cause_is_only_on_paper():
    """Every cause of the closed list is given by some stage or judge, or by a signature."""
    sources = "".join(p.read_text() for p in resources.probe().rglob("*.py"))
    by_number = set(RESULT_CAUSES.values())
    told = {cause for row in read_signatures() for cause in row.causes}
    given = by_number | {cause.id for cause in CAUSES.values() if cause.texts and cause.id in told}
    assert [cause for cause in CAUSES if f'"{cause}"' not in sources and cause not in given] == []
