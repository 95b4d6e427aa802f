"""One verdict, one cause: the first layer that failed; later failures are consequences."""

from .causes import CAUSES, VERDICT_OF_SIDE
from .expectation import asked_for
from .measured import commands_here
from .protocol import GROUNDWORK


def decide_verdict(checks, facts, options):
    """{verdict, cause, side, summary, remedy, commands, consequences, first} by the checks."""
    excuse_bystanders(checks, facts, options)
    excuse_proven(checks, facts)
    failed = [check for check in checks if check["outcome"] == "failed"]
    decision = dict.fromkeys(("cause", "side", "remedy", "first"))
    if not failed:
        verdict, summary = _without_failure(checks, facts, options)
        return dict(decision, verdict=verdict, summary=summary, commands=[], consequences=[])
    first = ([check for check in failed if not _steps_back(check)] or failed)[0]
    cause, side = CAUSES[first["cause"]], side_of(first)
    rest = [check for check in failed if check is not first]
    decision.update(cause=cause.id, side=side, remedy=cause.remedy, first=first)
    decision["verdict"] = VERDICT_OF_SIDE[side]
    decision["summary"] = "%s: %s" % (cause.title, first["summary"])
    decision["commands"] = commands_here(facts, first)
    decision["consequences"] = [{key: c[key] for key in ("id", "stage", "cause", "summary")} for c in rest]
    return decision


def side_of(check):
    """Whose fault it is: the cause's side; a driver that hangs or kills the process is the machine's."""
    if check["stage"] == "driver" and check["cause"] in ("hang", "crash"):
        return "host"
    return CAUSES[check["cause"]].side


def _steps_back(check):
    """True for findings that explain no failure, or less than any other finding would."""
    evidence = check["evidence"]
    late = check["cause"] in ("check-disabled", "expect-mismatch")
    return bool(evidence.get("weak") or evidence.get("yields") or late)


def excuse_bystanders(checks, facts, options):
    """A CPU build of a framework that nobody asked for, beside one with CUDA, is a remark and no fault."""
    expect = options.get("expect") or {}
    with_cuda = {row["framework"] for row in facts.get("consumers", ()) if not row["optional"]}
    for check in checks:
        beside = expect.get("frameworks") or with_cuda - {check["stage"]}
        cpu_build = check["outcome"] == "failed" and check["cause"] == "framework-cpu-build"
        if cpu_build and beside and not asked_for(check["stage"], expect):
            check.update(outcome="passed", cause=None, note=check["summary"])


def excuse_proven(checks, facts):
    """A missed pin or a file of unknown origin is a remark if all convolutions ran on the GPU."""
    ran = {c["stage"] for c in checks if c["id"] in ("C07", "F05") and c["outcome"] == "passed"}
    wanted = must_convolve(checks, facts)
    if facts.get("candidates") or not wanted:
        wanted = wanted | {"convolution"}
    failed = [c for c in checks if c["outcome"] == "failed"]
    slight = [c for c in failed if c["cause"] == "package-pin-mismatch" or c["evidence"].get("weak")]
    if wanted <= ran and failed == slight:
        for check in failed:
            check.update(outcome="passed", cause=None, note="and yet it works: " + check["summary"])


def must_convolve(checks, facts):
    """The frameworks here that have to convolve on the GPU before anything is said to work.

    All that are installed or were found to open cuDNN, whether or not the probe has a stage for them; not
    builds for the CPU that nobody asked for, and not those that have no convolutions without cuDNN.
    """
    wanted = {row["framework"] for row in facts.get("consumers", ()) if not row["optional"]}
    wanted |= set(facts.get("installed", ())) | {row.get("name") for row in facts.get("frameworks", ())}
    # a build that passed P03 with a remark is one for the CPU
    wanted -= {c["stage"] for c in checks if c["id"] == "P03" and c["outcome"] == "passed" and c["note"]}
    return wanted - {row.get("name") for row in facts.get("frameworks", ()) if row.get("linkage") == "none"}


def _without_failure(checks, facts, options):
    silent = {c["stage"] for c in checks if c["id"] == "H01" and c["outcome"] == "not_run"}
    silent = " and ".join(sorted(silent & set(GROUNDWORK)))
    but = ", but the stage %s did not come to its end" % silent if silent else ""
    if options.get("only"):
        return "unverified", "nothing failed, but only the stage %s was asked for" % options["only"]
    if facts.get("gpus"):
        return _with_gpu(checks, facts, but)
    if options.get("no_gpu"):
        return "unverified", "all that can be checked without a GPU is sound (--no-gpu)" + but
    if not facts.get("copies") and not facts.get("frameworks"):
        return "unverified", "there is neither a GPU nor cuDNN nor a framework here: nothing to check" + but
    return "unverified", "no GPU here; all that can be checked without one is sound" + but


def _with_gpu(checks, facts, but):
    """``works`` if nothing failed, and all that has to convolve on the GPU did."""
    passed = {(c["stage"], c["id"]) for c in checks if c["outcome"] == "passed"}
    raw = ("convolution", "C07") in passed
    in_frameworks = sorted(stage for stage, number in passed if number == "F05")
    missed = sorted(must_convolve(checks, facts) - set(in_frameworks))
    without = sorted(row["name"] for row in facts.get("frameworks", ()) if row.get("linkage") == "absent")
    if but:
        return "unverified", "there is a GPU" + but
    if missed:
        return "unverified", "there is a GPU, but %s ran no convolution on it" % ", ".join(missed)
    if without:
        return "unverified", "%s convolved on the GPU without cuDNN" % ", ".join(without)
    if not raw and (facts.get("candidates") or not in_frameworks):
        return "unverified", "there is a GPU, but no convolution was run"
    if facts.get("test_double"):
        return "unverified", "every check passed, but a test double took part: that is evidence for nothing"
    first = facts["gpus"][0]["name"]
    if len(facts["gpus"]) > 1:
        first += " (the first of %d GPUs; the others were not tried)" % len(facts["gpus"])
    who = (["cuDNN itself"] if raw else []) + in_frameworks
    return "works", "convolutions on %s are right, by %s" % (first, ", ".join(who))
