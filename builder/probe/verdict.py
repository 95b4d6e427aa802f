"""One verdict, one cause: the first layer that failed; what came after it is a consequence."""

from .causes import CAUSES, VERDICT_OF_SIDE


def decide_verdict(checks, facts, options):
    """{verdict, cause, side, summary, remedy, consequences} out of the checks, in the order they ran."""
    excuse_bystanders(checks, facts, options)
    excuse_proven(checks, facts)
    failed = [check for check in checks if check["outcome"] == "failed"]
    if failed:
        strong = [check for check in failed if not (check["evidence"] or {}).get("weak") and not _late(check)]
        first = (strong or failed)[0]
        cause = CAUSES[first["cause"]]
        side = side_of(first)
        rest = [check for check in failed if check is not first]
        return {
            "verdict": VERDICT_OF_SIDE[side],
            "cause": cause.id,
            "side": side,
            "summary": "%s: %s" % (cause.title, first["summary"]),
            "remedy": cause.remedy,
            "consequences": [{key: c[key] for key in ("id", "stage", "cause", "summary")} for c in rest],
            "first": first,
        }
    verdict, summary = _without_failure(checks, facts, options)
    return {
        "verdict": verdict,
        "cause": None,
        "side": None,
        "summary": summary,
        "remedy": None,
        "consequences": [],
        "first": None,
    }


def side_of(check):
    """Whose fault it is: the cause's side; a driver that hangs or kills the process is the machine's."""
    if check["stage"] == "driver" and check["cause"] in ("hang", "crash"):
        return "host"
    return CAUSES[check["cause"]].side


def _late(check):
    """Findings that only stand where nothing else failed: they explain no failure."""
    return check["cause"] in ("check-disabled", "expect-mismatch")


def excuse_bystanders(checks, facts, options):
    """A CPU build of a framework that nobody asked for, beside one with CUDA, is a remark and no fault."""
    asked = (options.get("expect") or {}).get("frameworks") or {}
    with_cuda = {row["framework"] for row in facts.get("consumers", ()) if not row["optional"]}
    for check in checks:
        if check["outcome"] == "failed" and check["cause"] == "framework-cpu-build":
            expected = any(check["stage"] in name for name in asked)
            if not expected and (asked or with_cuda - {check["stage"]}):
                check.update(outcome="passed", cause=None, note=check["summary"])


def excuse_proven(checks, facts):
    """A missed pin is a remark where every framework and the raw convolution ran on the GPU all the same."""
    ran = {
        check["stage"] for check in checks if check["id"] in ("C07", "F05") and check["outcome"] == "passed"
    }
    wanted = {row.get("name") for row in facts.get("frameworks", ())} | {"convolution"}
    others = [c for c in checks if c["outcome"] == "failed" and c["cause"] != "package-pin-mismatch"]
    if others or not wanted <= ran:
        return
    for check in checks:
        if check["outcome"] == "failed":
            check.update(outcome="passed", cause=None, note="missed, and yet it works: " + check["summary"])


def _without_failure(checks, facts, options):
    passed = {(c["stage"], c["id"]) for c in checks if c["outcome"] == "passed"}
    raw = ("convolution", "C07") in passed
    in_frameworks = sorted(stage for stage, number in passed if number == "F05")
    missed = [c["stage"] for c in checks if c["id"] == "F05" and c["outcome"] == "not_run"]
    gpus = facts.get("gpus") or []
    if options.get("only"):
        return "unverified", "nothing failed, but only the stage %s was asked for" % options["only"]
    if gpus and (raw or in_frameworks) and not missed and _complete(facts, in_frameworks):
        who = ["cuDNN itself"] if raw else []
        text = "convolutions on %s are right, by %s" % (gpus[0]["name"], ", ".join(who + in_frameworks))
        return "works", text
    if gpus:
        why = "%s ran none" % ", ".join(missed) if missed else "no convolution was run"
        return "unverified", "there is a GPU, but %s" % why
    if options.get("no_gpu"):
        return "unverified", "all that can be checked without a GPU is sound (--no-gpu)"
    if not facts.get("copies") and not facts.get("frameworks"):
        return "unverified", "there is neither a GPU nor cuDNN nor a framework here: nothing to check"
    return "unverified", "no GPU here; all that can be checked without one is sound"


def _complete(facts, in_frameworks):
    """True where every framework that opens cuDNN and whose stage ran has convolved."""
    reported = {row.get("name") for row in facts.get("frameworks", ()) if row.get("linkage") != "none"}
    return reported <= set(in_frameworks) or not reported
