"""A running process beside the probe (``--pid``, a notebook's kernel): its start, and its libraries."""

import os

from .environment import start_environment
from .library_files import mapped_libraries
from .protocol import stage
from .resolver import Loader
from .run import run_named


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
