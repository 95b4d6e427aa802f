"""From a failed run to the one cause: what is asked of the loader, and what follows from its answer."""

from types import SimpleNamespace

import pytest
from probe_elf import mapped_libc, write_elf

from builder.verify.cudnn_verify.measure import judge, schedule
from builder.verify.cudnn_verify.measure.cudnn import _own_version
from builder.verify.cudnn_verify.measure.fw_common import of_another_release
from builder.verify.cudnn_verify.measure.library_files import Loader
from builder.verify.cudnn_verify.measure.protocol import Stage
from builder.verify.cudnn_verify.measure.run import Program, Run


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch):
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    monkeypatch.delenv("LD_PRELOAD", raising=False)


def make_run(kind, text, in_flight, *, layer="cudnn", stderr="", **ending):
    row = Stage("under-test", layer, None, 60, (), None, None)
    run = Run(Program({}, None), row, {})
    run.ending = dict(ending, kind=kind, text=text)
    run.in_flight, run.stderr = in_flight, stderr
    return run


@pytest.mark.parametrize(
    ("stderr", "cause"),
    [
        (
            "Unable to load any of {libcudnn_ops.so.9.10.2, libcudnn_ops.so.9, libcudnn_ops.so}",
            "cudnn-sublibrary-missing",
        ),
        (
            (
                "Could not load library libcudnn_cnn_infer.so.8. Error: "
                "libnvrtc.so: cannot open shared object file: No such file or directory"
            ),
            "nvrtc-missing",
        ),
        (
            (
                "Could not load library libcudnn_ops_infer.so.8. Error: "
                "libcublas.so.11: cannot open shared object file: No such file or directory"
            ),
            "toolkit-library-missing",
        ),
        (
            "python: symbol lookup error: x.so: undefined symbol: _Z1x, version libcudnn_ops_infer.so.8",
            "cudnn-sublibrary-mismatch",
        ),
        (
            "/s/libcublasLt.so.13: version `libcublasLt.so.13' not found (required by libcublas)",
            "toolkit-mixed",
        ),
        ("nothing that helps", "crash"),
    ],
)
def test_an_abort_of_cudnn(stderr, cause):
    assert schedule.REGISTERED  # a counter-test finds its stage by name
    run = make_run("signal", "killed by signal 6", "cudnnCreate", stderr=stderr, signal=6)
    judge.default_judge(run)
    assert [(c["id"], c["cause"]) for c in run.checks] == [("C06", cause)]
    assert cause == "crash" or run.program.proof


@pytest.mark.parametrize(
    ("text", "in_flight", "cause"),
    [
        ("ImportError: libcudnn.so.9: cannot open shared object file", "import torch", "cudnn-missing"),
        ("ModuleNotFoundError: No module named 'numpy'", "import torch", "framework-import"),
        ("RuntimeError: cuDNN error: CUDNN_STATUS_EXECUTION_FAILED", "conv2d", "execution-failed"),
    ],
)
def test_a_framework_that_raises(text, in_flight, cause):
    run = make_run("raised", text, in_flight, layer="framework")
    judge.default_judge(run)
    assert run.checks[-1]["cause"] == cause


@pytest.mark.parametrize(
    ("package", "cause"), [("numpy", "package-overwritten"), ("jax", "framework-import")]
)
def test_an_import_that_fails_is_laid_to_a_python_file_of_another_size(package, cause):
    """Not to a file of another framework."""
    run = make_run("raised", "AttributeError: no get_available_providers", "import torch", layer="framework")
    run.stage = run.stage._replace(name="torch")
    run.ending["trace"] = []
    run.facts["resized"] = {package: [f"/site/{package}/__init__.py"]}
    judge.default_judge(run)
    assert run.checks[0]["cause"] == cause


def test_the_pth_file_that_puts_a_shadowing_module_first_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(judge, "set_by", lambda folder: f"/site/zz.pth of {folder}.pth")
    monkeypatch.delenv("PYTHONPATH", raising=False)
    run = make_run("raised", "ImportError: no ParamSpec", "import torch", layer="framework")
    run.facts["shadowed_modules"] = {"typing_extensions": f"{tmp_path}/typing_extensions.py"}
    cured = SimpleNamespace(
        sound=True, checks=[], new_facts=[], ending={"kind": "done", "text": ""}, stderr=""
    )
    run.again = lambda *_tests, **_params: cured
    judge.default_judge(run)
    assert run.checks[0]["cause"] == "module-shadowed"
    assert run.checks[0]["summary"].endswith(f"puts {tmp_path} on the path")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert judge._put_first(run) == ""


def test_a_hang_says_what_was_in_flight():
    run = make_run("hang", "no answer within 60 s", "cudnnCreate")
    judge.default_judge(run)
    assert (run.checks[0]["id"], run.checks[0]["cause"]) == ("H01", "hang")
    assert "cudnnCreate" in run.program.proof[0]["detail"]


def test_the_variable_is_blamed_only_where_the_counter_test_passes(monkeypatch):
    monkeypatch.setenv("LD_LIBRARY_PATH", "/elsewhere")
    for sound, cause in ((True, "cudnn-shadowed"), (False, "cudnn-sublibrary-missing")):
        run = make_run(
            "signal", "killed", "cudnnCreate", stderr="Unable to load any of {libcudnn_ops.so.9}", signal=6
        )
        other = make_run("done" if sound else "signal", "died", None)
        monkeypatch.setattr(run, "again", lambda *tests, other=other: other)
        judge.default_judge(run)
        assert run.checks[0]["cause"] == cause
        assert run.program.proof[0]["outcome"] == ("confirmed" if sound else "refuted")


def test_a_version_status_is_a_mismatch():
    run = make_run("done", "", None)
    check = run.fail("C03", "cudnnCnnVersionCheck: CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH", None)
    judge.default_judge(run)
    assert check["cause"] == "cudnn-sublibrary-mismatch"


def test_the_loaders_own_words(tmp_path):
    damaged = tmp_path / "libcudnn_ops.so.9"
    damaged.write_text("hello")
    assert judge.dlerror_of(str(mapped_libc())) is None
    assert "file too short" in judge.dlerror_of(str(damaged))
    assert "cannot open shared object file" in judge.dlerror_of(str(tmp_path / "none.so"))


@pytest.mark.parametrize(
    ("name", "there", "cause"),
    [
        ("libcuda.so", ["libcuda.so.1"], "unversioned-name-missing"),
        ("libcuda.so.1", [], "driver-missing"),
        ("libcudnn.so", ["libcudnn.so.8"], "unversioned-name-missing"),
        ("libcudnn.so", [], "cudnn-missing"),
        ("libcudnn.so.8", [], "cudnn-missing"),
        ("libcudnn_adv.so.9", [], "cudnn-sublibrary-missing"),
        ("libnvrtc-builtins.so.12.4", [], "nvrtc-missing"),
        ("libcusparse.so.12", [], "toolkit-library-missing"),
    ],
)
def test_a_name_that_the_loader_does_not_find(tmp_path, name, there, cause):
    for other in there:
        write_elf(tmp_path / other)
    loader = Loader(library_path=str(tmp_path), cache=[], defaults=[])
    assert judge.absent_cause(name, loader, {"gpu_state": "faulty"}) == cause


def test_the_driver_is_not_missed_where_there_is_no_gpu(tmp_path):
    loader = Loader(library_path=str(tmp_path), cache=[], defaults=[])
    assert judge.absent_cause("libcuda.so.1", loader, {"gpu_state": "none"}) is None


def test_a_framework_s_own_cudnn_is_no_file_of_nvidia_s_package_beside_it(recorder, tmp_path):
    packages = {"nvidia-cudnn-cu11": {"version": "8.6.0.163", "location": str(tmp_path)}}
    ctx = recorder(facts={"packages": packages})
    inside, package = tmp_path / "torch" / "lib", tmp_path / "nvidia" / "cudnn" / "lib"
    for folder in (inside, package):
        folder.mkdir(parents=True)
        (folder / "libcudnn.so.8").touch()
    mine, its = (SimpleNamespace(path=str(one / "libcudnn.so.8"), major=8) for one in (inside, package))
    assert _own_version(ctx, mine) == ([], ())
    assert _own_version(ctx, its) == (["nvidia-cudnn-cu11"], (8, 6, 0))


@pytest.mark.parametrize(("version", "named"), [("unknown", []), ("2.6", []), ("2.5.1", ["torch"])])
def test_only_a_version_that_was_read_is_another_release(version, named):
    framework = SimpleNamespace(name="torch", version=lambda: version)
    packages = {"torch": {"name": "torch", "version": "2.6.0", "location": "/site"}}
    assert of_another_release(framework, "/site/torch", packages) == named
