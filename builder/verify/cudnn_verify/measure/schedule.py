"""All stages in their order, each in its child, and their results: of frameworks each by itself, then all of
them imported together, in every order; then each suite in each framework. The last stage looks at a running
process beside the probe (``--pid``, a notebook's kernel): its start, and its libraries.

Two copies of cuDNN 9 do not live side by side in a process: whichever framework comes second silently uses
the sub-libraries of the first. Which cuDNN each of them gets must not depend on the order.
"""

import os
import re
import signal
import sys
import time
import traceback
from itertools import permutations

from ..common.distributions import read_record
from ..common.isolation import show_progress
from ..common.tables import known_bad, known_bad_words, read_frameworks, read_patterns
from ..common.versions import cudnn_rule, dotted, numbers
from .cuda import status_cause
from .cudnn import convolution_stage, library_stage
from .driver import driver_stage
from .environment import environment_stage, start_environment
from .files import files_stage, resolver_stage
from .fw_arrays import Cupy, CupySuites, Jax, JaxSuites
from .fw_common import check_framework
from .fw_eager import Paddle, PaddleSuites, Torch
from .fw_inference import Ctranslate2, Ctranslate2Suites, Onnxruntime, OnnxruntimeSuites
from .fw_libraries import framework_cudnn, unloadable
from .fw_tensorflow import Tensorflow, TensorflowSuites
from .judge import (
    ABSENT_LIBRARY,
    absent_cause,
    by_counter_tests,
    default_judge,
    fallback,
    find_cause,
    last_words,
    shorten,
)
from .library_files import Loader, mapped_libraries
from .packages import packages_stage
from .protocol import GROUNDWORK, LAYERS, STAGES, USES_FRAMEWORK, own_fault, stage
from .run import Run, find_stage, run_named
from .runtime import kernels_stage, runtime_stage
from .suite_judge import SUITE_CHECKS, SUITE_SECONDS, judge_results
from .suite_torch import TorchSuites

_WITH_SUITES = (
    (Torch, TorchSuites),
    (Tensorflow, TensorflowSuites),
    (Jax, JaxSuites),
    (Cupy, CupySuites),
    (Onnxruntime, OnnxruntimeSuites),
    (Paddle, PaddleSuites),
    (Ctranslate2, Ctranslate2Suites),
)
FRAMEWORKS = {kind.name: kind for kind, _ in _WITH_SUITES}
SUITE_CLASSES = {kind.name: suites for kind, suites in _WITH_SUITES}
"""{framework: the class with its suites}"""


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


_NO_DRIVER = re.compile(r"(lib(?:cuda|nvidia-ml)\.so[\w.]*): cannot open shared object file")


def _excuse_import(run):
    """True for an import that fails for want of the driver's libraries on a machine without a GPU."""
    named = _NO_DRIVER.search(run.ending["text"])
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
    said = {what for what, words in read_patterns()["said-by-frameworks"].items() if re.search(words, text)}
    gpu = (run.facts.get("gpus") or [{}])[0]
    about = dict(run.new_facts).get("framework") or {}
    compiled, version = about.get("compiled") or {}, about.get("version")
    capability = gpu.get("compute_capability")
    here = {run.stage.name: version, "cuda": compiled.get("cuda"), "gpu": capability}
    faulty = known_bad(here, text)
    if faulty and gpu:
        return run.proven("framework-known-bad", "known releases", known_bad_words(faulty))
    if "HOST_ALLOCATION_FAILED" not in text and "memory" in said:
        again = run.again("small")
        run.prove("small", "confirmed" if again.sound else "refuted", "the same with memory taken as needed")
        free, total = gpu.get("memory_free"), gpu.get("memory_total")
        if again.sound or (free is not None and free < (256 << 20)):
            return run.proven("out-of-memory", "memory", "%s of %s bytes were free before" % (free, total))
    if "driver" in said:
        api = (run.facts.get("driver") or {}).get("api")
        older = numbers(api)[:2] < numbers(compiled.get("cuda"))[:2]
        what = "the driver serves CUDA %s, the framework is built for %s" % (api, compiled.get("cuda"))
        run.prove("driver version", "confirmed" if older else "refuted", what)
        if older:
            return "driver-too-old"
    if said & {"kernel", "arch"}:
        raw = "cuDNN's own convolution ran on this GPU (compute capability %s)" % capability
        cause = "framework-arch-missing" if "kernel" in said else "cudnn-arch-dropped"
        return run.proven(cause, "convolution", raw)
    header = re.search(r'(?:cannot|could not) open source file "([^"]+)"|Failed to find CUDA headers', text)
    if header:
        name = header.group(1) or "cuda_fp16.h"  # the one that CuPy's own headers begin with
        return by_counter_tests(run, check) or _lacks_header(run, check, name)
    cause = find_cause(run, check)
    vague = cause in ("framework-import", "execution-failed")
    return status_cause(text) or "execution-failed" if vague else cause


def _lacks_header(run, check, header):
    """A header of CUDA's that NVRTC does not find, and the installed packages that had it."""
    packages, gone = run.facts.get("packages") or {}, []
    for name, row in sorted(packages.items()):
        rows = read_record(row, lambda path: path.endswith("/" + header)) if "-cuda-" in name else []
        gone += [name] if any(not os.path.exists(entry["path"]) for entry in rows) else []
    check["evidence"].update(header=header, packages=gone)
    where = "; %s installed it, and it is gone" % ", ".join(gone) if gone else ""
    return run.proven("kernel-compiler-missing", "headers", "the compiler finds no %s%s" % (header, where))


def framework_stage(ctx):
    check_framework(ctx, FRAMEWORKS[ctx.stage](ctx))


for _kind in FRAMEWORKS.values():
    stage(_kind.name, "framework", 300, _kind.module, judge=judge_framework)(framework_stage)


def coimport_orders(facts):
    """Every order of the frameworks that could be imported by themselves; nothing for fewer than two.

    Of more than three, each comes first once and last once: the first one's cuDNN is what the others get.
    """
    names = list(facts.get("imported") or [])
    if len(names) < 2:
        return []
    if len(names) <= 3:
        return [{"order": list(order)} for order in permutations(names)]
    turns = [names[at:] + names[:at] for at in range(len(names))]
    return [{"order": order} for turn in turns for order in (turn, turn[::-1])]


def judge_coimport(run):
    """An order that fails where each framework alone does not is a conflict of import order."""
    if run.ending["kind"] not in ("raised", "signal", "exit"):
        default_judge(run)
        return
    order = run.params["order"]
    what = "%s: %s in %s" % (", then ".join(order), run.ending["text"].strip()[:200], run.in_flight)
    evidence = {"order": order, "in_flight": run.in_flight, "stderr": run.stderr[-4000:]}
    run.prove("import alone", "confirmed", "each of them imports by itself, in a process of its own")
    run.fail("F06", what, "import-order-conflict", evidence)


@stage("coimport", layer="coimport", timeout=600, runs=coimport_orders, judge=judge_coimport)
def coimport_stage(ctx):
    """Import them all in one process, each made to load its cuDNN before the next comes."""
    order = ctx.params["order"]
    frameworks = [FRAMEWORKS[name](ctx) for name in order]
    without = set()
    for framework in frameworks:
        with ctx.call("import %s" % framework.module):
            framework.load()
        with ctx.call("%s: load cuDNN" % framework.module):
            if not framework.touch() and not framework.needs_cudnn:
                without.add(framework.name)  # what others have mapped is none of its
        names, requesters = framework.wanted()
        unloadable(ctx, [name for name in names if name.startswith("libcudnn.so")], requesters)
    versions = dict.fromkeys(without, "none")
    for framework in [framework for framework in frameworks if framework.name not in without]:
        cudnn = framework_cudnn(ctx, framework)
        versions[framework.name] = dotted(cudnn["version"] or None) or "none"
        cause = cudnn_rule(numbers(framework.compiled()["cudnn"]), cudnn["version"] or (), ctx.strict)
        if cause:
            told = (framework.title, versions[framework.name], ", ".join(order))
            text, evidence = "%s gets cuDNN %s when imported in the order %s", {"order": order, "rule": cause}
            return ctx.fails("F06", text % told, cause="import-order-conflict", evidence=evidence)
    files = [row["path"] for row in mapped_libraries() or [] if row["name"].startswith("libcudnn")]
    return _compare_orders(ctx, {"order": order, "cudnn": versions, "files": files})


def _compare_orders(ctx, mine):
    """F06: each framework must get the cuDNN of the order before; under --strict a difference fails."""
    before = ctx.facts.get("coimport")
    ctx.fact("coimport", mine)
    order = ", then ".join(mine["order"])
    folders = sorted({os.path.dirname(path) for path in mine["files"]})
    evidence = dict(mine, before=before)
    if not before or before["cudnn"] == mine["cudnn"]:
        text = "%s: cuDNN from %s" % (order, " and ".join(folders) or "nowhere")
        return ctx.passed("F06", text, evidence)
    name = min(key for key in mine["cudnn"] if mine["cudnn"][key] != before["cudnn"].get(key))
    text = "%s gets cuDNN %s in the order %s, and %s in the one before"
    text = text % (name, mine["cudnn"][name], order, before["cudnn"].get(name))
    if ctx.strict:
        return ctx.fails("F06", text, cause="import-order-conflict", evidence=evidence)
    return ctx.passed("F06", text, evidence, note="both serve it by NVIDIA's rule, but the order decides")


def judge_imports(run):
    """An import that fails is not what was asked for, unless it lacks a library, which has its own cause."""
    for check in run.checks:
        if check["outcome"] == "failed" and not check["cause"]:
            lost = ABSENT_LIBRARY.search(check["summary"])
            cause = absent_cause(lost.group(1), Loader(), run.facts) if lost else None
            check["cause"] = cause or "expect-mismatch"
    default_judge(run)


@stage("imports", layer="imports", timeout=300, judge=judge_imports)
def imports_stage(ctx):
    """Execute in one process, in order, what the expectation says that code here imports."""
    sys.argv[:] = [""]  # some modules read the arguments of the program
    told, open_ = {}, []
    for text in ctx.facts["imports_asked"]:
        module, _, name = text.partition(":")
        statement = "from %s import %s" % (module, name) if name else "import %s" % module
        told[statement] = None
        try:
            with ctx.call(statement):
                exec(statement, {})  # the expectation's reader takes names alone
        except BaseException as error:
            last = "".join(traceback.format_exception_only(type(error), error)).strip()
            told[statement] = shorten(last)
            if _NO_DRIVER.search(last) and ctx.facts.get("gpu_state", "none") == "none":
                open_.append(statement)
    failed = [one for one in told if told[one] and one not in open_]
    if failed:
        more = "; and %d more of %d imports fail" % (len(failed) - 1, len(told)) if len(failed) > 1 else ""
        text = "%s: %s%s" % (failed[0], told[failed[0]], more)
        ctx.fails("F08", text, evidence={"imports": told})
    elif open_:
        text = "%s: %s: not decided without the driver, and there is no GPU here"
        ctx.not_run("F08", text % (open_[0], told[open_[0]]), {"imports": told})
    else:
        ctx.passed("F08", "%d imports that were asked for run" % len(told), {"imports": told})


# -- suites: each in each framework has a child of its own, and ends by its own limit
#
# They run only where a GPU works and the framework has passed its own checks; otherwise no child is started,
# and the report says why.

SUGGESTED_SECONDS = 300
"""From the probe's start; later than that no suite starts that nobody named."""
_LIMIT = "ended by the limit of the suite: it did not come to its end within %d s of the import"


def frameworks_with(suite, facts):
    """[(framework, why the suite cannot run in it, or None)] of the frameworks here that have the suite."""
    state = facts.get("gpu_state", "none")
    without = {"works": None, "none": "no GPU here"}.get(state, "the driver or the GPU does not work")
    rows = []
    for name in sorted(set(SUITE_CLASSES) & set(facts.get("installed") or {})):
        if suite in read_frameworks()[name]["suites"]:
            failed = None if name in facts.get("imported", ()) else "%s did not pass its own checks" % name
            rows.append((name, without or failed))
    return rows


def runs_of(suite):
    """The parameters of a suite's runs, out of the facts; reasons of the others become a fact."""

    def runs(facts):
        rows = frameworks_with(suite, facts)
        if suite in facts.get("suites_suggested", ()) and time.time() > facts["suggested_until"]:
            late = "nobody named it, and the probe had run for %d s" % SUGGESTED_SECONDS
            rows = [(name, reason or late) for name, reason in rows]
        left = facts.setdefault("suites_left", {})
        left[suite] = [(name, reason) for name, reason in rows if reason]
        return [{"framework": name} for name, reason in rows if not reason]

    return runs


def judge_suite(run):
    """A suite that its own limit has ended is a hang; everything else as for a framework's stage."""
    suite, framework = run.stage.name, run.params["framework"]
    if run.ending["kind"] == "signal" and run.ending.get("signal") == signal.SIGALRM:
        run.ending = dict(run.ending, kind="hang", text=_LIMIT % seconds_for(suite, run.program.options))
    if _lacks_compiler(run):
        return
    before = len(run.checks)
    if suite in (run.program.options.get("suggested") or ()):
        # no counter-test looks for the cause of what no verdict turns on
        if run.ending["kind"] != "done":
            hang = run.ending["kind"] == "hang"
            evidence = {"ending": run.ending, "stderr": run.stderr[-4000:]}
            cause = "hang" if hang else fallback(run)
            run.fail("H01" if hang else SUITE_CHECKS[suite], shorten(run.ending["text"]), cause, evidence)
    elif _lacks_shared_memory(run):
        return
    else:
        judge_framework(run)
    for check in run.checks[before:]:
        check["evidence"].setdefault("framework", framework)
        check["summary"] = "%s, suite %s: %s" % (framework, suite, check["summary"])
        if check["id"] not in ("H01", "H02"):
            check["id"] = SUITE_CHECKS[suite]


def _lacks_compiler(run):
    """True for a suite that compiles kernels where no compiler is; K01 fails if one was asked for."""
    words = r"(?i)\bC(\+\+|xx)? ?compiler|Python\.h|\b(gcc|g\+\+|cc)\b.*(not found|No such file)"
    said = run.ending["kind"] == "raised" and re.search(words, run.ending["text"] + run.stderr[-4000:])
    if not said or run.stage.name != "compile" or (run.program.options.get("expect") or {}).get("compilers"):
        return False
    evidence = {"framework": run.params["framework"], "ending": run.ending}
    run.excuse(
        SUITE_CHECKS["compile"], "there is no compiler here that it could use: %s" % said.group(0), evidence
    )
    return True


def _lacks_shared_memory(run):
    """True if workers died of a full /dev/shm, which is the machine's or the container's."""
    if run.ending["kind"] != "raised" or not re.search(
        r"shared memory|\bshm\b|Bus error", run.ending["text"]
    ):
        return False
    text = "%s, suite %s: %s" % (run.params["framework"], run.stage.name, shorten(run.ending["text"]))
    cause = run.proven("host-memory", "/dev/shm", shorten(run.ending["text"]))
    run.fail(
        SUITE_CHECKS[run.stage.name],
        text,
        cause,
        {"framework": run.params["framework"], "ending": run.ending},
    )
    return True


def seconds_for(suite, options):
    return int(options.get("timeout") or SUITE_SECONDS.get(suite, SUITE_SECONDS["others"]))


def suite_stage(ctx):
    """Import the framework, then run the suite; SIGALRM ends a call that does not return in time."""
    suite, name = ctx.stage, ctx.params["framework"]
    framework = FRAMEWORKS[name](ctx)
    with ctx.call("import %s" % framework.module):
        framework.load()
    with ctx.call("%s: load cuDNN" % framework.module):
        framework.touch()
    device = next(iter(framework.devices()), None)
    if device is None:
        ctx.fails(
            SUITE_CHECKS[suite], "%s sees no GPU any more" % name, "framework-silent-cpu", {"framework": name}
        )
        return
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(seconds_for(suite, ctx.params))
    with ctx.call("%s: suite %s" % (framework.module, suite)):
        rows, skipped, seconds = run_suite(SUITE_CLASSES[name], framework, device, suite)
    signal.alarm(0)
    tell_suite(ctx, suite, name, (rows, skipped, seconds))


def run_suite(kind, framework, device, suite):
    """(rows, {what: why not}, seconds) of one suite; ``kind``: the class with the framework's suites."""
    started = time.time()
    bench = kind(framework, device)
    rows = bench.run(suite)
    return rows, bench.skipped, round(time.time() - started, 2)


def tell_suite(ctx, suite, name, outcome):
    """The check of a suite's rows; ``outcome``: (rows, {what: why not}, seconds)."""
    rows, skipped, seconds = outcome
    check = SUITE_CHECKS[suite]
    evidence = {"framework": name, "seconds": seconds, "skipped": skipped}
    if not rows and skipped:
        return ctx.not_run(check, "; ".join(sorted(set(skipped.values()))), evidence)
    judged = judge_results(rows)
    evidence.update(ran=judged["ran"], worst=judged["worst"], results=[row["what"] for row in rows])
    if not judged["faults"]:
        text = "%s, suite %s: %d results are right" % (name, suite, judged["ran"])
        return ctx.passed(check, text, evidence)
    first = judged["faults"][0]
    causes = {
        "device": "framework-silent-cpu",
        "numbers": "training-loss" if suite == "train" else "wrong-result",
    }
    evidence["faults"] = judged["faults"][:20]
    text = "%s, suite %s: %s" % (name, suite, shorten(first["says"]))
    return ctx.fails(check, text, causes[first["fault"]], evidence)


for _suite in SUITE_CHECKS:
    stage(_suite, "suite", 300, runs=runs_of(_suite), judge=judge_suite)(suite_stage)


# Their import registers them; the frameworks' come with coimport.
REGISTERED = (environment_stage, files_stage, packages_stage, resolver_stage, driver_stage, runtime_stage)
REGISTERED += (kernels_stage, library_stage, convolution_stage, coimport_stage, imports_stage, suite_stage)


def run_all(program):
    """Run the stages; returns (checks, libraries)."""
    checks, libraries = [], {}
    program.facts["imports_asked"] = list((program.options.get("expect") or {}).get("imports") or ())
    program.facts["suites_asked"] = list(program.options.get("suites") or ())
    program.facts["suites_suggested"] = list(program.options.get("suggested") or ())
    program.facts["suggested_until"] = time.time() + SUGGESTED_SECONDS
    for row in in_order():
        if not _wanted(row, program.options["only"], program.facts):
            continue
        show_progress(row.name)
        sound = True
        for params in _parameters(row, program.facts, checks):
            run = Run(program, row, params).start()
            try:
                _judge(row, run)
            except Exception as error:
                _judge_failed(row, run, error)
            checks.extend(run.checks)
            sound = sound and run.sound
            for key, value in run.new_facts:
                _take(program.facts, libraries, row, key, value)
        if row.layer == "framework" and sound:
            program.facts.setdefault("imported", []).append(row.name)
    return checks, [libraries[path] for path in sorted(libraries)]


def _parameters(row, facts, checks):
    """The parameters of each run of a stage; of none if the probe itself fails over them."""
    try:
        return [{}] if row.runs is None else row.runs(facts)
    except Exception as error:
        checks.append(own_fault(row.name, "H01", error, traceback.format_exc()))
        return []


def in_order():
    """The stages by layer, and by name within one."""
    return sorted((s for s in STAGES if s.layer in LAYERS), key=lambda s: (LAYERS.index(s.layer), s.name))


def _wanted(row, only, facts):
    if row.module and row.name not in facts.get("installed", {}):
        return False
    if row.layer == "imports" and not facts["imports_asked"]:
        return False
    if row.layer == "suite" and row.name not in facts["suites_asked"] + facts["suites_suggested"]:
        return False
    if row.layer not in GROUNDWORK and (facts.get("ctypes") is False or facts.get("waits")):
        return False
    if only is None or row.layer in GROUNDWORK:
        return True
    # the driver's facts tell every later stage whether there is a GPU
    after = LAYERS[LAYERS.index("driver") + 1 :]
    return row.name == only or (row.layer == "driver" and find_stage(only).layer in after)


def _judge(row, run):
    kind = run.ending["kind"]
    own = row.layer in GROUNDWORK + ("session",)
    if kind == "raised" and (own or (run.in_flight is None and not _of_a_framework(row, run))):
        text = "the probe's own fault in the stage %s: %s" % (row.name, run.ending["text"])
        run.excuse("H01", text, {"probe_fault": run.ending["trace"]})
        return
    if own and kind != "done":
        run.excuse("H01", "the %s stage: %s" % (row.name, run.ending["text"]), {"kernel": run.kernel})
        return
    (row.judge or default_judge)(run)
    failed = [check for check in run.checks if check["outcome"] == "failed"]
    unexplained = run.ending["kind"] != "done" and not run.excused and not failed
    if unexplained or any(check["cause"] is None for check in failed):
        default_judge(run)


def _of_a_framework(row, run):
    """True for an exception that a framework may have brought about outside of an announced call."""
    return row.layer in USES_FRAMEWORK and not run.ending["own"]


def _judge_failed(row, run, error):
    """A judge fell over: failed checks go on failing, by the cause that needs no judge."""
    run.checks.append(own_fault(row.name, "H01", error, traceback.format_exc()))
    for check in run.checks:
        if check["outcome"] == "failed" and check["cause"] is None:
            check["cause"] = fallback(run)


def _take(facts, libraries, row, key, value):
    if key == "framework":
        # a stage tells early what it knows and completes it later
        others = [other for other in facts.get("frameworks", ()) if other.get("name") != value.get("name")]
        facts["frameworks"] = others + [value]
    elif key == "raw":
        facts.setdefault("raw", []).append(value)
    elif key == "libraries":
        for library in value:
            fresh = {"name": library["name"], "path": library["path"], "mapped_by": []}
            entry = libraries.setdefault(library["path"], fresh)
            entry["version"] = library.get("version") or entry.get("version")
            if row.name not in entry["mapped_by"]:
                entry["mapped_by"].append(row.name)
    else:
        facts[key] = value


def judge_session(run):
    """Variables that were changed later matter only if cuDNN loads with them and not without."""
    late = dict(run.new_facts).get("late")
    if not late:
        return
    for candidate in run.facts.get("candidates", ())[:1]:
        now = run_named(run.program, "cudnn", candidate=candidate).sound
        then = _sound_then(run.program, candidate, {name: start for name, (start, _) in late.items()})
        outcome = "confirmed" if now and not then else "refuted"
        detail = "cuDNN %s with the variables as they are, %s as the process was started"
        words = {True: "loads", False: "does not load"}
        run.prove("start environment", outcome, detail % (words[now], words[then]))
        if outcome == "confirmed":
            names = ", ".join(sorted(late))
            text = "%s was changed inside the process: a new one would find cuDNN, this one does not" % names
            run.fail("E02", text, "env-set-too-late", {"late": late})


def _sound_then(program, candidate, environment):
    """Whether the process, as it was started, could load the cuDNN that the loader would have given it."""
    if candidate["by"] == "LD_LIBRARY_PATH":
        loader = Loader(library_path=environment.get("LD_LIBRARY_PATH") or "")
        path = loader.resolve(os.path.basename(candidate["path"]))["path"]
        if path is None:
            return False
        candidate = dict(candidate, path=path)
    return run_named(program, "cudnn", candidate=candidate, environment=environment).sound


@stage("session", layer="session", timeout=20, judge=judge_session)
def session_stage(ctx):
    pid = ctx.params.get("pid")
    if pid is None:
        return
    start, libraries = start_environment(pid), mapped_libraries(pid)
    if start is None or libraries is None:
        ctx.not_run("C05", "nothing can be seen of process %d" % pid)
        return
    names = ("LD_LIBRARY_PATH", "LD_PRELOAD")
    pairs = {name: (start.get(name), os.environ.get(name)) for name in names}
    late = {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
    ctx.fact("late", late)
    deleted = [row["path"] for row in libraries if row["deleted"]]
    evidence = {"pid": pid, "libraries": libraries, "late": late}
    if deleted:
        text = "process %d still holds %s, which was replaced on disk" % (pid, deleted[0])
        ctx.fails("C05", text, "stale-process", evidence)
        return
    note = "%s differs from what the process was started with, and has no effect in it" % ", ".join(late)
    ctx.passed("C05", "process %d holds no library that is gone from disk" % pid, evidence, late and note)
