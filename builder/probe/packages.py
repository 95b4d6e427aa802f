"""P01 and P02: whether the installed packages fit each other's pins, and whether their files are still
theirs.
"""

import base64
import hashlib
import importlib.util
import os
import re

from .distributions import read_distributions, read_record, read_text, requirement, search_folders
from .protocol import STAGES, stage
from .versions import numbers

_HASH_LIMIT = 64 << 20
# The distributions that bring the module of a stage; what has "-cpu" in its name is no matter here.
_LISTED = {
    "torch": "torch",
    "tensorflow": "tensorflow|tensorflow-gpu|tf-nightly",
    "jax": "jax",
    "cupy": r"cupy|cupy-cuda\w+",
    "onnxruntime": "onnxruntime-gpu",
    "paddle": "paddlepaddle-gpu",
}


@stage("packages", layer="packages", timeout=60)
def packages_stage(ctx):
    """Compare packages with each other and with the disk."""
    distributions = read_distributions(search_folders())
    ctx.fact("packages", distributions)
    modules = find_modules()
    ctx.fact("installed", modules)
    ctx.fact("system_packages", system_packages())
    _check_pins(ctx, distributions)
    lost = unimportable(distributions, modules)
    if lost:
        text = "pip lists %s, and there is no module of it to import" % ", ".join(lost)
        ctx.fails("P02", text, "package-overwritten", {"lost": lost})
    else:
        _check_owners(ctx, distributions)


def unimportable(distributions, modules):
    """Names of the frameworks that are listed as installed and whose module is not there to import."""
    found = []
    for stage_name, names in sorted(_LISTED.items()):
        listed = [name for name in sorted(distributions) if re.match(r"(%s)$" % names, name)]
        found += listed if stage_name not in modules else []
    return found


def find_modules():
    """{stage name: import name} of the frameworks that could be imported; nothing is imported."""
    found = {}
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
    found = {}
    name = None
    for line in read_text("/var/lib/dpkg/status", 32 << 20).splitlines():
        if line.startswith("Package: "):
            name = line[len("Package: ") :]
        elif (
            line.startswith("Version: ")
            and name
            and re.match(r"libcudnn|cuda-cudart|libnvrtc|libcublas", name)
        ):
            found[name] = line[len("Version: ") :]
    return found


def satisfies(version, pins):
    """Whether a version meets all (operator, version) pins; only the numbers are compared."""
    for operator, wanted in pins:
        prefix = wanted.endswith(".*")
        have, want = numbers(version), numbers(wanted)
        size = max(len(have), len(want))
        padded, aim = have + (0,) * (size - len(have)), want + (0,) * (size - len(want))
        equal = have[: len(want)] == want if prefix else padded == aim
        verdicts = {
            "==": equal,
            "===": equal,
            "!=": not equal,
            "<=": padded <= aim,
            ">=": padded >= aim,
            "<": padded < aim,
            ">": padded > aim,
            "~=": padded >= aim and have[: len(want) - 1] == want[:-1],
        }
        if not verdicts[operator]:
            return False
    return True


def _harmless(wanted, version):
    """A pin that is missed in a direction that NVIDIA allows: the same major, and no older minor."""
    for operator, text in wanted["pins"]:
        want, have = numbers(text), numbers(version)
        if operator in ("==", "===", "~=", ">=") and (have[:1] != want[:1] or have[:2] < want[:2]):
            return False
        if operator in ("<", "<=", "!=") and not satisfies(version, [(operator, text)]):
            return False
    return True


def _check_pins(ctx, distributions):
    missed, allowed, absent = [], [], []
    for row in sorted(distributions.values(), key=lambda d: d["name"].lower()):
        for text in row["requires"]:
            wanted = requirement(text)
            if wanted is None or not wanted["name"].startswith("nvidia-") or "win32" in wanted["marker"]:
                continue
            there = distributions.get(wanted["name"])
            entry = {"by": "%s %s" % (row["name"], row["version"]), "wants": text.partition(";")[0].strip()}
            if there is None:
                if not wanted["optional"]:
                    absent.append(entry)
            elif not satisfies(there["version"], wanted["pins"]):
                entry["found"] = there["version"]
                harmless = _harmless(wanted, there["version"]) and not ctx.strict
                (allowed if harmless or wanted["optional"] else missed).append(entry)
    evidence = {"missed": missed, "allowed": allowed, "absent": absent}
    if missed:
        first = missed[0]
        text = "%(by)s needs %(wants)s, installed is %(found)s" % first
        ctx.fails("P01", text, "package-pin-mismatch", evidence)
        return
    notes = ["%(by)s asks for %(wants)s, installed is %(found)s" % entry for entry in allowed]
    notes += ["%(by)s asks for %(wants)s, which is not installed" % entry for entry in absent]
    summary = "pins on NVIDIA's packages are met" if not allowed else "no pin is missed in a way that breaks"
    ctx.passed("P01", summary, evidence, note="; ".join(notes[:4]) or None)


def _check_owners(ctx, distributions):
    owners = {}
    for name, row in sorted(distributions.items()):
        if _by_conda(row):
            continue
        if name.startswith("nvidia-") or name in ("torch", "jaxlib"):
            for entry in read_record(row):
                if ".so" in os.path.basename(entry["path"]) and entry["sha256"]:
                    owners.setdefault(entry["path"], []).append((name, entry))
    gone, changed, shared = {}, [], []
    present = {}
    for path in sorted(owners):
        names = [name for name, _ in owners[path]]
        try:
            size = os.path.getsize(path)
        except OSError:
            for name in names:
                gone.setdefault(name, []).append(path)
            continue
        for name in names:
            present[name] = present.get(name, 0) + 1
        matching = [name for name, entry in owners[path] if entry["size"] in (None, size)]
        if len(names) > 1:
            shared.append({"path": path, "owners": names})
            matching = _by_hash(path, size, owners[path]) or matching
        strangers = [name for name in names if name not in matching]
        if strangers:
            changed.append({"path": path, "size": size, "not_as_in": strangers, "as_in": matching})
    vanished = sorted(name for name in gone if not present.get(name))
    evidence = {"changed": changed[:50], "shared": shared[:50], "gone": {n: gone[n] for n in sorted(gone)}}
    overwritten = [row for row in changed if row["as_in"]]
    if overwritten:
        row = overwritten[0]
        text = "%s belongs to %s but is the file of %s" % (row["path"], row["not_as_in"][0], row["as_in"][0])
        ctx.fails("P02", text, "package-overwritten", evidence)
    elif vanished:
        text = "pip lists %s, but its libraries are gone" % ", ".join(vanished)
        ctx.fails("P02", text, "package-overwritten", evidence)
    elif changed:
        evidence["weak"] = True
        text = "%s is not the file that its package installed" % changed[0]["path"]
        ctx.fails("P02", text, "package-overwritten", evidence)
    else:
        note = "%d files have two owners with the same content" % len(shared) if shared else None
        if gone:
            note = "missing since installation: " + ", ".join(sum((gone[n][:3] for n in sorted(gone)), []))
        ctx.passed(
            "P02", "%d libraries are as their packages installed them" % len(owners), evidence, note=note
        )


def _by_conda(distribution):
    """True for what conda installed: it sets run paths anew after RECORD was written, so sizes differ."""
    path = os.path.join(distribution["location"], distribution["info"], "INSTALLER")
    return read_text(path, 100).strip() == "conda"


def _by_hash(path, size, rows):
    """Which owners' hash a file has; [] where it is too large to hash in good time and the sizes already
    tell.
    """
    if len({entry["size"] for _, entry in rows}) > 1 or size > _HASH_LIMIT:
        return []
    digest = hashlib.sha256()
    try:
        with open(path, "rb") as stream:
            for block in iter(lambda: stream.read(1 << 20), b""):
                digest.update(block)
    except OSError:
        return []
    text = base64.urlsafe_b64encode(digest.digest()).rstrip(b"=").decode("ascii")
    return [name for name, entry in rows if entry["sha256"].rstrip("=") == text]
