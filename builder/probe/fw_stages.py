"""The frameworks' stages: each of them by itself, then all of them imported together, in every order.

Two copies of cuDNN 9 do not live side by side in a process: whichever framework comes second silently uses
the sub-libraries of the first. Which cuDNN each of them gets must not depend on the order.
"""

import os
from itertools import permutations

from .fw_common import check_framework
from .fw_cupy import Cupy
from .fw_eager import Paddle, Torch
from .fw_inference import Ctranslate2, Onnxruntime
from .fw_jax import Jax
from .fw_judge import judge_framework
from .fw_libraries import framework_cudnn, unloadable
from .fw_tensorflow import Tensorflow
from .judge import default_judge
from .library_files import mapped_libraries
from .protocol import stage
from .versions import cudnn_rule, dotted, numbers

FRAMEWORKS = {kind.name: kind for kind in (Torch, Tensorflow, Jax, Cupy, Onnxruntime, Paddle, Ctranslate2)}


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
        versions[framework.name] = dotted(cudnn["version"])
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
