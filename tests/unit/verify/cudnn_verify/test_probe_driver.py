"""What the driver stage makes of device nodes and of a missing driver."""

from types import SimpleNamespace

import pytest

from builder.verify.cudnn_verify.measure import driver
from builder.verify.cudnn_verify.measure.driver import driver_stage, judge_driver, needed_cuda


@pytest.fixture
def machine(monkeypatch, recorder):
    """Run the stage on a machine with these device nodes and no libcuda."""

    def run(nodes, kernel=None, **facts):
        def no_library(_):
            raise OSError("libcuda.so.1: cannot open shared object file: No such file or directory")

        monkeypatch.setattr(driver, "device_nodes", lambda: nodes)
        monkeypatch.setattr(driver, "kernel_module_version", lambda: kernel)
        monkeypatch.setattr(driver, "in_container", lambda: None)
        monkeypatch.setattr(driver, "Driver", no_library)
        ctx = recorder(facts=facts)
        driver_stage(ctx)
        states = [line["value"] for line in ctx.lines if line["t"] == "fact" and line["key"] == "gpu_state"]
        return ctx.found("D02"), states[-1]

    return run


def test_a_windows_host_without_nvidia_is_no_fault(machine):
    """/dev/dxg is there on every WSL, for a GPU of any make."""
    check, state = machine({"/dev/dxg": None})
    assert (check["outcome"], state) == ("not_run", "none")


def test_the_driver_of_wsl_where_the_loader_does_not_look(machine):
    found = [{"name": "libcuda.so.1", "path": "/usr/lib/wsl/lib/libcuda.so.1"}]
    check, state = machine({"/dev/dxg": None}, libraries_found=found)
    assert (check["cause"], state) == ("driver-missing", "faulty")


def test_nodes_of_nvidia_without_a_driver(machine):
    check, state = machine({"/dev/nvidia0": None, "/dev/nvidiactl": None})
    assert (check["cause"], state) == ("driver-missing", "faulty")


@pytest.mark.parametrize(("state", "outcome"), [("works", "passed"), ("faulty", "failed")])
def test_closed_nodes_are_no_fault_where_one_gpu_works(state, outcome):
    """A batch system leaves all nodes in place and opens only those of the job."""
    check = {"id": "D01", "outcome": "failed", "cause": "device-access-denied", "note": None}
    judge_driver(SimpleNamespace(checks=[check], new_facts=[("gpu_state", state)]))
    assert check["outcome"] == outcome


def test_a_cudnn_wheel_that_nobody_opens_asks_nothing_of_the_driver():
    wheel = {"nvidia-cudnn-cu13": {"name": "nvidia-cudnn-cu13", "version": "9.20.0"}}
    torch = [{"framework": "torch", "cuda": "12.4"}]
    assert needed_cuda({"consumers": torch, "packages": wheel}, {}) == ((12, 4), "torch")
    assert needed_cuda({"packages": wheel}, {})[0] == (13, 0)


@pytest.mark.parametrize("code", ["ENXIO", "ENODEV"])
def test_a_node_without_a_kernel_module_is_no_trace_of_a_gpu(machine, code):
    """nvidia-smi, run as root on a machine without a GPU, leaves /dev/nvidiactl behind."""
    check, state = machine({"/dev/nvidiactl": code})
    assert (check["outcome"], state) == ("not_run", "none")
    check, state = machine({"/dev/nvidiactl": code, "/dev/nvidia0": None})
    assert (check["cause"], state) == ("driver-missing", "faulty")


def test_a_node_that_fails_beside_a_kernel_module_stays_a_trace(machine):
    check, state = machine({"/dev/nvidia0": "ENXIO"}, kernel="550.54.15")
    assert (check["cause"], state) == ("driver-missing", "faulty")
