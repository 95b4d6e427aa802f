"""The suites' stages: each suite in each framework has a child of its own, and ends by its own limit.

They run only where a GPU works and the framework has passed its own checks; otherwise no child is started,
and the report says why.
"""

import re
import signal
import time

from ..common.tables import read_frameworks
from .fw_arrays import Cupy, CupySuites, Jax, JaxSuites
from .fw_eager import Paddle, PaddleSuites, Torch
from .fw_inference import Ctranslate2, Ctranslate2Suites, Onnxruntime, OnnxruntimeSuites
from .fw_stages import FRAMEWORKS, judge_framework
from .fw_tensorflow import Tensorflow, TensorflowSuites
from .judge import fallback, shorten
from .protocol import stage
from .suite_judge import SUITE_CHECKS, SUITE_SECONDS, judge_results
from .suite_torch import TorchSuites

SUITE_CLASSES = {
    Torch.name: TorchSuites,
    Jax.name: JaxSuites,
    Tensorflow.name: TensorflowSuites,
    Cupy.name: CupySuites,
    Onnxruntime.name: OnnxruntimeSuites,
    Ctranslate2.name: Ctranslate2Suites,
    Paddle.name: PaddleSuites,
}
"""{framework: the class with its suites}"""
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
