"""K01: what is compiled as programs run, and the cards that a ptxas names."""

from __future__ import annotations

import pytest

from builder.verify.cudnn_verify.measure import runtime
from builder.verify.cudnn_verify.measure.machine_facts import commands_here
from builder.verify.cudnn_verify.measure.report import decide_verdict

TRITON = {"triton": {"name": "triton", "version": "3.5.1", "location": "/site", "info": "", "requires": []}}

PTXAS_ALONE = {"name": "triton", "unless": "", "uses": "Triton", "needs": ["ptxas"], "when": "sometimes"}


@pytest.fixture
def scene(monkeypatch, tmp_path, recorder):
    """Everything compiles; ``run`` gives K01 of a Triton whose ptxas has these bytes."""
    monkeypatch.setattr(runtime, "_problem", lambda _ctx, _need: "")
    tool = tmp_path / "ptxas"
    monkeypatch.setattr(runtime, "ptxas_here", lambda: [str(tool)])

    def run(content: bytes, *capabilities: str, expect=None):
        tool.write_bytes(content)
        gpus = [{"name": "GPU", "compute_capability": text} for text in capabilities]
        ctx = recorder(facts={"packages": TRITON, "gpus": gpus}, expect=expect or {})
        runtime.kernels_stage(ctx)
        return ctx.found("K01")

    return run


@pytest.mark.parametrize(
    ("known", "capability", "lacking"),
    [
        (b"sm_80\0sm_90a\0", "8.0", None),
        (b"sm_80\0sm_90a\0", "9.0", None),
        (b"sm_80\0sm_90\0", "9.0", "sm_90a"),
        (b"sm_120\0sm_120a\0", "12.1", "sm_121a"),
        (b"sm_86\0", "8.9", "sm_89"),
    ],
)
def test_the_name_that_triton_asks_for_has_to_be_in_the_program(scene, known, capability, lacking) -> None:
    check = scene(known, capability, expect={"compilers": True})
    assert check["outcome"] == ("failed" if lacking else "passed")
    assert check["cause"] == ("kernel-compiler-too-old" if lacking else None)
    assert (lacking or "can be compiled") in check["summary"]
    remark = scene(known, capability)
    assert (remark["outcome"], bool(remark["note"])) == ("passed", bool(lacking))


def test_a_program_that_names_no_card_is_not_blamed(scene) -> None:
    check = scene(b"#!/bin/sh\n", "12.1", expect={"compilers": True})
    assert (check["outcome"], "could not be read" in check["note"]) == ("passed", True)


def test_nothing_is_said_where_nothing_compiles(recorder) -> None:
    ctx = recorder(facts={"packages": {}}, expect={})
    runtime.kernels_stage(ctx)
    assert ctx.lines == []


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("exit 0", ""),
        (
            "echo 'x.c:1:10: fatal error: Python.h: No such file or directory'; exit 1",
            "fatal error: Python.h",
        ),
        ("exit 3", "ends with 3"),
    ],
)
def test_what_a_compiler_says_is_the_reason(recorder, tmp_path, monkeypatch, script, said) -> None:
    tool = tmp_path / "cc"
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("CC", f"{tool} -O1")
    found = runtime._problem(recorder(), "python-headers")
    assert (said in found) if said else found == ""
    monkeypatch.setenv("CC", str(tmp_path / "nowhere"))
    assert "is not there" in runtime._problem(recorder(), "cc")


@pytest.mark.parametrize(("mode", "closed"), [(0o644, True), (0o755, False)])
def test_a_ptxas_that_does_not_run_is_a_fault_whoever_asks(
    recorder, tmp_path, monkeypatch, mode, closed
) -> None:
    """Triton starts its own ptxas at the first kernel: 126 without the bit, ENOEXEC for another machine's."""
    tool = tmp_path / "triton/backends/nvidia/bin/ptxas"
    tool.parent.mkdir(parents=True)
    tool.write_bytes(b"\x7fELF\x02\x01\x01" + bytes(60))
    tool.chmod(mode)
    info = tmp_path / "triton-3.5.1.dist-info"
    info.mkdir()
    (info / "RECORD").write_text("triton/backends/nvidia/bin/ptxas,sha256=x,67\n")
    row = dict(TRITON["triton"], location=str(tmp_path), info=info.name)
    monkeypatch.setattr(runtime, "ptxas_here", lambda: [str(tool)])
    monkeypatch.setattr(runtime, "read_facts", lambda: {"kernels": [PTXAS_ALONE]})
    ctx = recorder(facts={"packages": {"triton": row}, "gpus": []}, expect={})
    runtime.kernels_stage(ctx)
    check = ctx.found("K01")
    assert (check["outcome"], check["cause"]) == ("failed", "kernel-compiler-missing")
    assert f"{tool} cannot be run: " in check["summary"]
    texts = [command["text"] for command in commands_here({"packages": {"triton": row}}, check)]
    assert texts == [f"chmod a+x {tool}"] if closed else texts[0].endswith("--no-deps triton==3.5.1")
    tool.write_text("#!/bin/sh\nexit 0\n")
    tool.chmod(0o755)
    ctx = recorder(facts={"packages": {"triton": row}, "gpus": []}, expect={})
    runtime.kernels_stage(ctx)
    assert ctx.found("K01")["outcome"] == "passed"


def test_no_compiler_is_a_remark_on_the_first_line_and_a_fault_for_who_asks_for_the_suite(
    recorder, monkeypatch
):
    monkeypatch.setattr(runtime, "_problem", lambda _ctx, need: "not on PATH" if need == "cc" else "")

    def k01(**facts):
        ctx = recorder(facts=dict(facts, packages=TRITON, gpus=[]), expect={})
        runtime.kernels_stage(ctx)
        return ctx.found("K01")

    assert k01(suites_asked=["conv", "compile"])["cause"] == "kernel-compiler-missing"
    remark = k01(suites_asked=["conv"])
    assert remark["outcome"] == "passed"
    facts = {"copies": [], "frameworks": [{"name": "torch"}]}
    said = decide_verdict([remark], facts, {})
    assert said["verdict"] == "unverified"
    assert (
        "torch.compile and kernels of Triton cannot compile here: a C compiler: not on PATH"
        in said["summary"]
    )
