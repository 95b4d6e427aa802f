"""What a failed check of a framework is laid to, by running the stage again under other conditions."""

from .judge import default_judge


def judge_framework(run):
    """First the checks whose meaning only the framework stages know, then the default judge for the rest."""
    for check in run.checks:
        if check["outcome"] == "failed" and not check["cause"]:
            if check["id"] in ("F02", "C03"):
                _explain_version(run, check)
            elif check["id"] == "F04":
                _explain_silent_cpu(run, check)
    default_judge(run)


def _explain_version(run, check):
    """A wrong version that goes away with LD_LIBRARY_PATH came from there; else it is what is installed."""
    cleared = run.again("cleared-env")
    failed = [c["id"] for c in cleared.checks if c["outcome"] == "failed"]
    sound = cleared.ending["kind"] == "done" and check["id"] not in failed
    what = "%s %s without LD_LIBRARY_PATH and LD_PRELOAD" % (check["id"], "passes" if sound else "fails too")
    run.prove("cleared-env", "confirmed" if sound else "refuted", what)
    rule = (check["evidence"] or {}).get("rule", "cudnn-sublibrary-mismatch")
    run.decide(check, "cudnn-shadowed" if sound else rule)


def _explain_silent_cpu(run, check):
    """Every library that the framework asks for opens, and yet it takes no GPU."""
    for counter, cause in (("visible", "device-hidden"), ("cleared-env", "cudnn-shadowed")):
        again = run.again(counter)
        seen = any(c["id"] == "F04" and c["outcome"] == "passed" for c in again.checks)
        run.prove(counter, "confirmed" if seen else "refuted", "the framework sees a GPU: %s" % seen)
        if seen:
            run.decide(check, cause)
            return
    run.decide(check, "framework-silent-cpu")
