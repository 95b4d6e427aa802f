"""The cause of a framework's failure: a message chooses a counter-test, and the counter-test decides.

The texts are those that the frameworks print for more than one cause; each row's test tells them apart.
"""

import re

from .counter import by_counter_tests, shorten
from .cudnn import status_cause
from .framework_remedies import known_bad, known_bad_words
from .judge import default_judge, find_cause, last_words
from .versions import numbers

_MEMORY_TEXT = re.compile(
    r"out of memory|RESOURCE_EXHAUSTED|ALLOC_FAILED|ALLOCATION_FAILED|Failed to get convolution algorithm|"
    r"No algorithm worked|valid cuDNN algorithm|determine best cudnn|"
    r"CUDNN_STATUS_(INTERNAL_ERROR|NOT_INITIALIZED)|"
    r"create cudnn handle",
    re.I,
)
_KERNEL_TEXT = re.compile(r"no kernel image|MAPPING_ERROR|not compatible with the current PyTorch", re.I)
_ARCH_TEXT = re.compile(r"ARCH_MISMATCH|not compatible with devices with SM", re.I)
_DRIVER_TEXT = re.compile(r"driver version is insufficient|driver .*too old|unsupported toolchain", re.I)


def judge_framework(run):
    """Causes that only framework stages know, then the default judge for the rest."""
    for check in run.checks:
        if check["outcome"] == "failed" and not check["cause"]:
            if check["id"] in ("F02", "C03"):
                # a wrong version that goes away with a variable or a preloaded file came from there
                rule = check["evidence"].get("rule", "cudnn-sublibrary-mismatch")
                check["cause"] = by_counter_tests(run, check) or rule
            elif check["id"] == "F04":
                _explain_silent_cpu(run, check)
    flying = run.in_flight or ""
    if _excuse_import(run) or _refuses_a_part(run):
        return
    if run.ending["kind"] == "raised" and flying and not flying.startswith("import"):
        evidence = {"in_flight": flying, "ending": run.ending, "stderr": run.stderr[-4000:]}
        number = "F07" if "training" in flying else "F05" if "convolution" in flying else "F04"
        check = run.fail(number, "%s in %s" % (shorten(run.ending["text"]), flying), None, evidence)
        check["cause"] = _cause_of_exception(run, check)
    else:
        default_judge(run)


def _refuses_a_part(run):
    """True if the framework itself says that it will not use one of its parts; JAX says so by a warning."""
    said = re.search(r".*is installed, but it is not compatible with .*", run.stderr)
    if not said:
        return False
    run.prove("the framework's own words", "confirmed", shorten(said.group(0)))
    evidence = {"ending": run.ending, "stderr": run.stderr[-4000:]}
    run.fail("P03", shorten(said.group(0)), "package-pin-mismatch", evidence)
    run.excused = True
    return True


def _excuse_import(run):
    """True for an import that fails for want of the driver's libraries on a machine without a GPU."""
    absent = r"(lib(?:cuda|nvidia-ml)\.so[\w.]*): cannot open shared object file"
    named = re.search(absent, run.ending["text"])
    if run.ending["kind"] != "raised" or not named or run.facts.get("gpu_state", "none") != "none":
        return False
    text = "it cannot be imported without the driver (%s), and there is no GPU here" % named.group(1)
    run.excuse("F01", text, {"ending": run.ending})
    return True


def _explain_silent_cpu(run, check):
    """Every library that the framework asks for opens, and yet it takes no GPU."""
    again = run.again("visible")
    seen = any(c["id"] == "F04" and c["outcome"] == "passed" for c in again.checks)
    run.prove("visible", "confirmed" if seen else "refuted", "the framework sees a GPU: %s" % seen)
    check["cause"] = "device-hidden" if seen else by_counter_tests(run, check) or "framework-silent-cpu"


def _cause_of_exception(run, check):
    text = last_words(run, check)
    gpu = (run.facts.get("gpus") or [{}])[0]
    about = dict(run.new_facts).get("framework") or {}
    compiled, version = about.get("compiled") or {}, about.get("version")
    capability = gpu.get("compute_capability")
    faulty = known_bad(run.stage.name, version, compiled.get("cuda"), capability, text)
    if faulty and gpu:
        run.prove("known releases", "confirmed", "PyTorch %s is %s" % (version, known_bad_words(faulty)))
        return "framework-known-bad"
    if "HOST_ALLOCATION_FAILED" not in text and _MEMORY_TEXT.search(text):
        again = run.again("small")
        run.prove("small", "confirmed" if again.sound else "refuted", "the same with memory taken as needed")
        free, total = gpu.get("memory_free"), gpu.get("memory_total")
        if again.sound or (free is not None and free < (256 << 20)):
            run.prove("memory", "confirmed", "%s of %s bytes were free before" % (free, total))
            return "out-of-memory"
    if _DRIVER_TEXT.search(text):
        api = (run.facts.get("driver") or {}).get("api")
        older = numbers(api)[:2] < numbers(compiled.get("cuda"))[:2]
        what = "the driver serves CUDA %s, the framework is built for %s" % (api, compiled.get("cuda"))
        run.prove("driver version", "confirmed" if older else "refuted", what)
        if older:
            return "driver-too-old"
    if _KERNEL_TEXT.search(text) or _ARCH_TEXT.search(text):
        raw = "cuDNN's own convolution ran on this GPU (compute capability %s)" % capability
        run.prove("convolution", "confirmed", raw)
        return "framework-arch-missing" if _KERNEL_TEXT.search(text) else "cudnn-arch-dropped"
    cause = find_cause(run, check)
    vague = cause in ("framework-import", "execution-failed")
    return status_cause(text) or "execution-failed" if vague else cause
