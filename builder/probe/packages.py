"""The installed packages: which frameworks are here, and the checks P01 (pins) and P02 (files)."""

import importlib.util
import os
import re
import sys

from .distributions import read_distributions, read_text, search_folders
from .isolation import shadowed_modules, user_path
from .owners import check_owners
from .pins import check_pins
from .protocol import STAGES, stage

# The distributions that bring the module of a stage; what has "-cpu" in its name is no matter here.
_LISTED = {
    "torch": "torch",
    "tensorflow": "tensorflow|tensorflow-gpu|tf-nightly",
    "jax": "jax",
    "cupy": r"cupy|cupy-cuda\w+",
    "onnxruntime": "onnxruntime-gpu",
    "paddle": "paddlepaddle-gpu",
    "ctranslate2": "ctranslate2",
}


@stage("packages", layer="packages", timeout=60)
def packages_stage(ctx):
    """Compare packages with each other and with the disk."""
    distributions = read_distributions(search_folders())
    ctx.fact("packages", distributions)
    modules = find_modules()
    ctx.fact("installed", modules)
    ctx.fact("system_packages", system_packages())
    ctx.fact("shadowed_modules", shadowed_modules())
    check_pins(ctx, distributions)
    ctx.fact("strangers", strangers(distributions, modules))
    lost = unimportable(distributions, modules)
    if lost:
        text = "pip lists %s, and there is no module of it to import" % ", ".join(lost)
        ctx.fails("P02", text, "package-overwritten", {"lost": lost})
    else:
        check_owners(ctx, distributions)


def unimportable(distributions, modules):
    """Names of the frameworks that are listed as installed and whose module is not there to import."""
    absent = [names for stage_name, names in sorted(_LISTED.items()) if stage_name not in modules]
    pattern = re.compile(r"(%s)$" % "|".join(absent))
    return [name for name in sorted(distributions) if absent and pattern.match(name)]


def strangers(distributions, modules):
    """{stage name: file} of frameworks whose module is none of the files that pip installed for it."""
    found = {}
    for stage_name in sorted(set(_LISTED) & set(modules)):
        pattern = re.compile(r"(%s)$" % _LISTED[stage_name])
        rows = [row for name, row in sorted(distributions.items()) if pattern.match(name)]
        if rows:
            origin = importlib.util.find_spec(modules[stage_name].partition(".")[0]).origin or ""
            if not any(origin.startswith(row["location"] + os.sep) for row in rows):
                found[stage_name] = origin
            elif os.path.dirname(origin) in [row["location"] for row in rows]:
                found[stage_name] = origin
    return found


def find_modules():
    """{stage name: import name} of the frameworks that could be imported; nothing is imported."""
    found = {}
    sys.path[:] = user_path()  # a child of its own: nobody needs the path back
    for row in STAGES:
        for module in row.modules:
            try:
                spec = importlib.util.find_spec(module.partition(".")[0])
            except (ImportError, AttributeError, ValueError):
                continue
            if spec is not None and spec.origin not in (None, "namespace"):
                found[row.name] = module
                break
    return found


def system_packages():
    """cuDNN and CUDA among dpkg's installed packages: {name: version}."""
    status = read_text("/var/lib/dpkg/status", 32 << 20)
    pattern = r"^Package: ((?:libcudnn|cuda-cudart|libnvrtc|libcublas).*)\n(?:.+\n)*?Version: (.*)"
    return dict(re.findall(pattern, status, re.M))
