"""The installed packages: which frameworks are here, and the checks P01 (pins) and P02 (files)."""

import importlib.util
import os
import re
import sys

from .data import read_frameworks
from .distributions import (
    canonical,
    packages_of,
    read_distributions,
    read_text,
    search_folders,
)
from .isolation import shadowed_modules, user_path
from .owners import check_owners
from .pins import check_pins
from .protocol import STAGES, stage


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
        ctx.fails("P02", text, "package-overwritten", {"packages": lost})
    else:
        check_owners(ctx, distributions)


def unimportable(distributions, modules):
    """Names of the frameworks that are listed as installed and whose module is not there to import."""
    absent = sorted(set(read_frameworks()) - set(modules))
    return sorted(canonical(row["name"]) for name in absent for row in packages_of(name, distributions))


def strangers(distributions, modules):
    """{stage name: file} of frameworks whose module is none of the files that pip installed for it."""
    found = {}
    for stage_name in sorted(modules):
        folders = [row["location"] for row in packages_of(stage_name, distributions)]
        origin = importlib.util.find_spec(modules[stage_name]).origin or ""
        within = any(origin.startswith(folder + os.sep) for folder in folders)
        if folders and (not within or os.path.dirname(origin) in folders):
            found[stage_name] = origin
    return found


def find_modules():
    """{stage name: import name} of the frameworks that could be imported; nothing is imported."""
    found = {}
    sys.path[:] = user_path()  # a child of its own: nobody needs the path back
    for row in STAGES:
        try:
            spec = importlib.util.find_spec(row.module) if row.module else None
        except (ImportError, AttributeError, ValueError):
            continue
        if spec is not None and spec.origin not in (None, "namespace"):
            found[row.name] = row.module
    return found


def system_packages():
    """cuDNN and CUDA among dpkg's installed packages: {name: version}."""
    status = read_text("/var/lib/dpkg/status", 32 << 20)
    pattern = r"^Package: ((?:libcudnn|cuda-cudart|libnvrtc|libcublas).*)\n(?:.+\n)*?Version: (.*)"
    return dict(re.findall(pattern, status, re.M))
