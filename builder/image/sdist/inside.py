"""Runs in the sandbox, on its own Python: calls one hook of a project's build backend (PEP 517).

``python inside.py JOB``, where JOB is JSON: ``hook`` (``requires`` or ``wheel``), ``backend``, ``path``,
``source``, ``work``, ``epoch``. Standard output is for what the hook gives: JSON, and a wheel's bytes behind
it. All that anybody prints goes to standard error. Standard library only, Python 3.6 and later.
"""

import importlib
import json
import os
import shutil
import sys


def main(job):
    result = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    work = os.path.join(job["work"], "source")
    shutil.copytree(job["source"], work, symlinks=True)
    for folder, _, files in os.walk(work):
        for name in ["", *files]:
            os.utime(os.path.join(folder, name), (job["epoch"], job["epoch"]))
    os.chdir(work)
    sys.argv = ["setup.py"]
    # A setup.py is run with its own folder first; a backend in the source is found on its path.
    sys.path[:0] = [os.path.join(work, folder) for folder in job["path"]]
    module, _, name = job["backend"].partition(":")
    backend = importlib.import_module(module)
    for part in name.split(".") if name else []:
        backend = getattr(backend, part)
    if job["hook"] == "requires":
        hook = getattr(backend, "get_requires_for_build_wheel", None)
        result.write(json.dumps(list(hook({})) if hook else []).encode())
    else:
        made = os.path.join(job["work"], "made")
        os.mkdir(made)
        name = backend.build_wheel(made, {})
        result.write(json.dumps(name).encode() + b"\n")
        with open(os.path.join(made, name), "rb") as wheel:
            shutil.copyfileobj(wheel, result)
    result.close()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
