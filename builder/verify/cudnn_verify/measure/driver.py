"""D01 to D05 and R01: device nodes, the driver library, its version, the devices, a context and a copy."""

import errno
import glob
import os
import re
import stat

from ..common.distributions import cudnn_wheels, read_text
from ..common.versions import cuda_tuple, dotted, numbers
from .cuda import RESULT_CAUSES, CudaError, Driver, MissingSymbolError, result_name
from .environment import in_container
from .library_files import Loader
from .protocol import stage

_PROBE_BYTES = 1 << 20
# Errors of opening a node without a kernel module behind it. NVIDIA's libraries make such nodes as root on
# machines without a GPU, too: nvidia-smi of 470 and 535 leaves a /dev/nvidiactl.
_NOBODY_THERE = ("ENXIO", "ENODEV")


def device_nodes():
    """{path: None or the errno name with which opening it read-write fails} of NVIDIA's device nodes."""
    found = {}
    patterns = ("/dev/nvidia[0-9]*", "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/dxg")
    nodes = {path for pattern in patterns for path in glob.glob(pattern)}
    for path in sorted(path for path in nodes if stat.S_ISCHR(os.stat(path).st_mode)):
        try:
            os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK))
            found[path] = None
        except OSError as error:
            found[path] = errno.errorcode.get(error.errno, str(error.errno))
    return found


def kernel_module_version():
    """The loaded NVIDIA kernel module's version (``550.54.15``), or None without one."""
    text = read_text("/proc/driver/nvidia/version")
    found = re.search(r"\b(\d{3}\.\d+(?:\.\d+)?)\b", text)
    return found.group(1) if found else ("unknown" if text else None)


def library_file_version(path):
    """``550.54.15`` out of ``libcuda.so.550.54.15``, or None."""
    found = re.search(r"\.so\.(\d{3}\.\d+(?:\.\d+)?)$", os.path.realpath(path)) if path else None
    return found.group(1) if found else None


def judge_driver(run):
    """Corrections that the child could not make.

    If no device answers although CUDA_VISIBLE_DEVICES is set: look once more without the variable.
    """
    if dict(run.new_facts).get("gpu_state") == "works":
        for check in run.checks:
            # a batch system allows one GPU of several: the others' nodes are there and closed
            if check["outcome"] == "failed" and check["cause"] == "device-access-denied":
                check.update(outcome="passed", cause=None, note="a GPU works all the same")
    blamed = [c for c in run.checks if c["cause"] in ("no-device", "container-no-gpu")]
    setting = os.environ.get("CUDA_VISIBLE_DEVICES")
    if not blamed or setting is None:
        return
    again = run.again("visible")
    count = len(dict(again.new_facts).get("gpus", []))
    outcome = "%d device%s without CUDA_VISIBLE_DEVICES=%r" % (count, "" if count == 1 else "s", setting)
    run.prove("visible", "confirmed" if count else "refuted", outcome)
    if count:
        blamed[0]["summary"] = "CUDA_VISIBLE_DEVICES=%r hides every GPU" % setting
        blamed[0]["cause"] = "device-hidden"


@stage("driver", layer="driver", timeout=60, judge=judge_driver)
def driver_stage(ctx):
    """From the device node to a copy there and back."""
    if ctx.no_gpu:
        ctx.fact("gpu_state", "none")
        for number in ("D01", "D02", "D03", "D04", "D05", "R01"):
            ctx.not_run(number, "--no-gpu was given")
        return
    found, kernel = device_nodes(), kernel_module_version()
    nodes = {path: code for path, code in found.items() if kernel or code not in _NOBODY_THERE}
    trace = {"nodes": nodes, "kernel_module": kernel, "container": in_container()}
    trace["dead_nodes"] = sorted(set(found) - set(nodes))
    trace["nvidia"] = bool(kernel or set(nodes) - {"/dev/dxg"})
    ctx.fact("gpu_state", "faulty" if trace["nvidia"] else "none")
    _check_nodes(ctx, trace)
    driver = _open_driver(ctx, trace)
    try:
        if driver and _start_driver(ctx, driver, trace):
            _check_devices(ctx, driver)
    except MissingSymbolError as error:
        ctx.fails("D03", str(error), "driver-error", {"symbol": error.symbol})


def _check_nodes(ctx, trace):
    denied = sorted(row for row in trace["nodes"].items() if row[1] in ("EPERM", "EACCES"))
    if denied:
        ctx.fails("D01", "%s cannot be opened: %s" % denied[0], "device-access-denied", trace)
    elif trace["nodes"]:
        ctx.passed("D01", "device nodes: %s" % ", ".join(sorted(trace["nodes"])), trace)
    else:
        dead = ", ".join(trace["dead_nodes"])
        text = "no kernel module is behind %s" % dead if dead else "no NVIDIA device node in /dev"
        ctx.not_run("D01", text, trace)


def _open_driver(ctx, trace):
    """D02: the open driver, or a false value."""
    taken = Loader().resolve("libcuda.so.1")
    if taken["path"] and taken["problem"]:
        # loading a file that ends early kills the process
        ctx.fact("gpu_state", "faulty")
        text = "%(path)s cannot be loaded: %(problem)s" % taken
        return ctx.fails("D02", text, "driver-error", dict(trace, unusable=[taken]))
    try:
        driver = Driver(ctx)
    except OSError as error:
        return _no_driver(ctx, trace, str(error))
    path, version = driver.path, library_file_version(driver.path)
    ctx.fact("test_double", driver.test_double)
    evidence = {"path": path, "file_version": version, "kernel_module": trace["kernel_module"]}
    ctx.fact("libraries", [{"name": "libcuda.so.1", "path": path, "version": version}])
    if "/stubs/" in path or path.endswith("/stubs"):
        ctx.fact("gpu_state", "faulty")
        text = "the loader gives %s, a stub made for linking" % path
        return ctx.fails("D02", text, "driver-stub", evidence)
    note = "from cuda-compat: valid on data-centre GPUs only" if "/compat" in path else None
    ctx.passed("D02", "driver library %s" % path, evidence, note=note)
    return driver


def _no_driver(ctx, trace, text):
    elsewhere = [r["path"] for r in ctx.facts.get("libraries_found", ()) if r["name"] == "libcuda.so.1"]
    unusable = Loader().resolve("libcuda.so.1")["passed"]
    evidence = dict(trace, dlerror=text, elsewhere=elsewhere, unusable=unusable)
    capabilities = os.environ.get("NVIDIA_DRIVER_CAPABILITIES", "")
    granted = not capabilities or {word.strip() for word in capabilities.split(",")} & {"compute", "all"}
    kernel, cause = trace["kernel_module"], "driver-missing"
    if "cannot open shared object file" not in text:
        cause, why = "driver-error", "libcuda.so.1 does not load: %s" % text
    elif unusable:
        cause, why = "driver-error", "%(path)s cannot be loaded: %(problem)s" % unusable[0]
    elif trace["nodes"] and not trace["nvidia"] and not elsewhere:
        # every WSL has /dev/dxg, whoever made the GPU
        cause, why = None, "WSL without a driver from NVIDIA: no libcuda.so.1"
    elif trace["nodes"] and not granted:
        why = "NVIDIA_DRIVER_CAPABILITIES=%s lacks compute, so the container got no libcuda.so.1"
        cause, why = "driver-capabilities", why % capabilities
    elif trace["nodes"]:
        why = "there are device nodes, but no libcuda.so.1 where the loader looks"
    elif kernel and trace["container"]:
        cause = "container-no-gpu"
        why = "the host runs driver %s, but this container was given no GPU" % kernel
    elif kernel:
        why = "kernel module %s is loaded, but there is no libcuda.so.1" % kernel
    else:
        cause, why = None, "no trace of a GPU: no device node, no kernel module, no libcuda.so.1"
    if cause is None:
        ctx.not_run("D02", why, evidence)
    else:
        ctx.fact("gpu_state", "faulty")
        ctx.fails("D02", why, cause, evidence)


def _start_driver(ctx, driver, trace):
    """cuInit and the driver's version; true if the devices can be asked."""
    path, compat = driver.path, "/compat" in driver.path
    result = driver.status("cuInit", 0)
    try:
        number = driver.number("cuDriverGetVersion")
    except (CudaError, MissingSymbolError):
        number = 0
    api, version = dotted(cuda_tuple(number)) if number else None, library_file_version(path)
    evidence = dict(trace, cuInit=result, name=result_name(result), api=api, path=path, file_version=version)
    version = version or trace["kernel_module"]
    ctx.fact("driver", {"version": version, "api": api, "path": path})
    if result == 100 and compat and not (trace["nodes"] or trace["kernel_module"]):
        ctx.not_run("D03", "%s belongs to cuda-compat; there is no trace of a GPU" % path, evidence)
        return False
    ctx.fact("gpu_state", "faulty")
    if result != 0:
        cause, why = _init_cause(result, trace)
        if result == 803 and compat:
            # the image's cuda-compat was taken, and this host's driver is none that it is made for
            cause, why = "compat-unsupported", "; %s is of cuda-compat" % path
        text = "cuInit returned %d (%s)%s" % (result, result_name(result), why)
        return ctx.fails("D03", text, cause, evidence)
    ctx.passed("D03", "driver %s, CUDA up to %s" % (version or "of unknown version", api), evidence)
    return _check_age(ctx, number)


def _init_cause(result, trace):
    nodes = trace["nodes"]
    if result == 100 and not nodes and trace["container"] and trace["kernel_module"]:
        return "container-no-gpu", "; the host has a driver, this container no device node"
    if result in RESULT_CAUSES:
        return RESULT_CAUSES[result], ""
    if result == 999:
        if any(code for code in nodes.values() if code in ("EPERM", "EACCES")):
            return "device-access-denied", "; a device node cannot be opened"
        if "/dev/nvidia-uvm" not in nodes and "/dev/dxg" not in nodes:
            return "device-node-missing", "; /dev/nvidia-uvm is not there"
    return "driver-error", ""


def needed_cuda(facts, expect):
    """((major, minor or 0), who says so) of the newest CUDA that something here was built for; else Nones."""
    rows = [row for row in facts.get("consumers", ()) if row.get("cuda")]
    found = [(numbers(row["cuda"]), row["framework"]) for row in rows]
    packages = {} if found else facts.get("packages", {})  # one that no framework here opens asks for nothing
    wheels = cudnn_wheels(packages).items()
    found += [((major,), "%(name)s %(version)s" % packages[name]) for name, major in wheels]
    asked = (expect.get("cuda") or {}).get("version") or os.environ.get("CUDA_VERSION")
    if not found and numbers(asked):
        found.append((numbers(asked), "CUDA_VERSION" if not expect.get("cuda") else "the expectation"))
    if not found:
        return None, None
    wanted, who = max(found)
    return (wanted + (0,))[:2], who


def _check_age(ctx, number):
    """R01. From CUDA 11 on every driver of its major serves it, before that only one that is not older:
    https://docs.nvidia.com/deploy/cuda-compatibility/
    """
    wanted, who = needed_cuda(ctx.facts, ctx.expect)
    if wanted is None:
        return ctx.not_run("R01", "nothing here says which CUDA it was built for")
    api = cuda_tuple(number)
    evidence = {"driver_api": dotted(api), "needed": dotted(wanted), "by": who}
    if number and (api[0] < wanted[0] if wanted[0] >= 11 else api < wanted):
        text = "the driver serves CUDA up to %s; %s needs %s" % (dotted(api), who, dotted(wanted))
        return ctx.fails("R01", text, "driver-too-old", evidence)
    older = "the driver is older than the toolkit: compiled kernels run, PTX of CUDA %s does not"
    note = number and api < wanted and older % dotted(wanted)
    text = "driver API %s serves CUDA %s" % (dotted(api), dotted(wanted))
    return ctx.passed("R01", text, evidence, note=note)


def _check_devices(ctx, driver):
    count = driver.number("cuDeviceGetCount")
    if count == 0:
        return ctx.fails("D04", "the driver works but shows no device", "no-device", {"count": 0})
    rows = [driver.describe(index) for index in range(count)]
    ctx.fact("gpus", rows)
    if all(row["compute_mode"] == 2 for row in rows):
        return ctx.fails("D04", "every GPU is in compute mode PROHIBITED", "device-busy", {"gpus": rows})
    names = ", ".join("%(name)s (%(compute_capability)s)" % row for row in rows)
    ctx.passed("D04", "%d GPU%s: %s" % (count, "" if count == 1 else "s", names), {"gpus": rows})
    return _check_memory(ctx, driver, rows)


def _check_memory(ctx, driver, rows):
    evidence = {"compute_mode": rows[0]["compute_mode"]}
    try:
        driver.use(0)
        free, total = driver.memory()
        evidence.update(free=free, total=total, asked=_PROBE_BYTES)
        address = driver.allocate(_PROBE_BYTES)
        data = os.urandom(4096)
        driver.call("cuMemcpyHtoD_v2", address, data, len(data))
        back = driver.download(address, len(data))
        driver.call("cuMemFree_v2", address)
    except CudaError as error:
        cause = RESULT_CAUSES.get(error.result, "driver-error")
        if error.result in (3, 101) and rows[0]["compute_mode"] == 3:
            cause = "device-busy"
        evidence.update(call=error.call, result=error.result)
        return ctx.fails("D05", str(error), cause, evidence)
    rows[0]["memory_free"] = free
    ctx.fact("gpus", rows)
    if back != data:
        return ctx.fails("D05", "4096 bytes came back from the GPU changed", "driver-error", evidence)
    ctx.fact("gpu_state", "works")
    text = "context, 1 MiB and a copy there and back; %d MiB free" % (free >> 20)
    return ctx.passed("D05", text, evidence)
