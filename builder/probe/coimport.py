"""Frameworks imported together, in both orders: which cuDNN each of them gets must not depend on it.

Two copies of cuDNN 9 do not live side by side in a process: whichever framework comes second silently uses
the sub-libraries of the first.
"""

import os

from .fw_libraries import framework_cudnn
from .fw_registry import framework_by_stage
from .judge import default_judge
from .maps import mapped_libraries
from .protocol import stage
from .versions import cudnn_rule, dotted, numbers


def coimport_orders(facts):
    """Both orders of the frameworks that could be imported by themselves; nothing for fewer than two."""
    names = list(facts.get("imported") or [])
    if len(names) < 2:
        return []
    return [{"order": names}, {"order": names[::-1]}]


def judge_coimport(run):
    """An order that fails where each framework alone does not is a conflict of import order."""
    if run.ending["kind"] in ("raised", "signal", "exit"):
        what = "%s in %s" % (run.ending["text"].strip()[:200], run.in_flight)
        order = ", then ".join(run.params["order"])
        evidence = {"order": run.params["order"], "in_flight": run.in_flight, "stderr": run.stderr[-4000:]}
        run.prove("import alone", "confirmed", "each of them imports by itself, in a process of its own")
        run.fail("F06", "%s: %s" % (order, what), "import-order-conflict", evidence)
        return
    default_judge(run)


@stage("coimport", layer="coimport", timeout=600, runs=coimport_orders, judge=judge_coimport)
def coimport_stage(ctx):
    order = ctx.params["order"]
    frameworks, versions = [], {}
    for name in order:
        framework = framework_by_stage(name, ctx)
        with ctx.call("import %s" % framework.module, order=order):
            framework.load()
        frameworks.append(framework)
    for framework in frameworks:
        with ctx.call("%s: load cuDNN" % framework.module, order=order):
            reported = framework.touch()
        cudnn = framework_cudnn(ctx, framework, reported)
        versions[framework.name] = dotted(cudnn["version"])
        cause = cudnn_rule(numbers(framework.compiled()["cudnn"]), cudnn["version"] or (), ctx.strict)
        if cause:
            summary = "%s gets cuDNN %s when imported in the order %s"
            summary = summary % (framework.title, versions[framework.name], ", ".join(order))
            ctx.fails("F06", summary, cause="import-order-conflict", evidence={"order": order, "rule": cause})
            return
    files = [row["path"] for row in mapped_libraries() or [] if row["name"].startswith("libcudnn")]
    evidence = {"order": order, "cudnn": versions, "files": files}
    if not _same_as_before(ctx, order, versions, files):
        return
    ctx.passed("F06", "imported together: %s" % ", then ".join(order), evidence)


def _same_as_before(ctx, order, versions, files):
    """Compare with the other order's cuDNN; false, with a failed check, where they differ."""
    mine = {"order": order, "cudnn": versions, "folders": sorted({os.path.dirname(path) for path in files})}
    before = ctx.facts.get("coimport")
    ctx.fact("coimport", mine)
    if not before or before["order"] == order:
        return True
    differ = sorted(name for name in versions if versions[name] != before["cudnn"].get(name))
    if not differ:
        return True
    name = differ[0]
    summary = "%s gets cuDNN %s in one order of imports and %s in the other"
    summary = summary % (name, versions[name], before["cudnn"].get(name))
    ctx.fails("F06", summary, cause="import-order-conflict", evidence={"orders": [before, mine]})
    return False
