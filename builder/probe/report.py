"""The report as one JSON document, and its differences to an older one."""

import hashlib
import json
import re

from .expectation import find_differences
from .protocol import new_check
from .verdict import decide_verdict


def make_report(program, checks, libraries, identity, seconds):
    """The document of ``--json``. ``identity``: {version, sha256} of the probe's own file."""
    facts, options = program.facts, program.options
    expect = options.get("expect") or {}
    differences = []
    if expect and not options.get("only"):
        differences = find_differences(expect, facts)
        told = ["%(what)s: asked %(asked)s, found %(found)s" % row for row in differences[:4]]
        row = ("failed", "; ".join(told), "expect-mismatch", {"differences": differences})
        row = row if differences else ("passed", "all that was asked for is here")
        checks = checks + [new_check("expectation", "X01", *row)]
    decision = decide_verdict(checks, facts, options)
    proof = list(program.proof)
    first = decision.pop("first")
    if first is not None:
        mine = {"stage": first["stage"], "test": first["id"], "outcome": "failed", "detail": first["summary"]}
        proof = [dict(mine, evidence=first["evidence"])] + [p for p in proof if p["stage"] == first["stage"]]
    report = {"schema": 1, "probe": identity}
    report.update(decision, proof=proof, checks=checks, libraries=libraries, differences=differences)
    empty = {"variables": {}, "gpus": [], "frameworks": [], "copies": []}
    for key in ("python", "machine", "variables", "gpus", "driver", "frameworks", "copies"):
        report[key] = facts.get(key, empty.get(key))
    report.update(expectation=expect.get("cell"), fingerprint=fingerprint(facts))
    report.update(test_double=bool(facts.get("test_double")), seconds=round(seconds, 3))
    return report


def printed_report(text):
    """The last report that ``--json`` printed, whatever else is printed; ValueError without a verdict."""
    for found in reversed(list(re.finditer(r"^\{", text, re.MULTILINE))):
        try:
            document = json.JSONDecoder().raw_decode(text, found.start())[0]
        except (ValueError, RecursionError):
            continue
        if document.get("verdict") is not None:
            return document
    raise ValueError("no verdict")


def without_infinities(document):
    """The same document with NaN and infinite numbers as text, for which JSON has no numbers."""
    texts = {"NaN": "nan", "Infinity": "inf", "-Infinity": "-inf"}
    return json.loads(json.dumps(document, default=str), parse_constant=texts.get)


def fingerprint(facts):
    """S01: the facts that tell two sessions apart, and a digest of them."""
    names = ("libcudnn", "libcuda.so", "libcudart", "libcublas")
    rows = [row for row in facts.get("libraries_found", ()) if row["name"].startswith(names)]
    parts = {
        "packages": {name: row["version"] for name, row in facts.get("packages", {}).items()},
        "system_packages": facts.get("system_packages", {}),
        "libraries": {row["path"]: row["size"] for row in rows},
        "driver": facts.get("driver"),
        "gpus": [row["name"] for row in facts.get("gpus", ())],
        "python": (facts.get("python") or {}).get("version"),
        "variables": {k: v for k, v in facts.get("variables", {}).items() if k.startswith("LD_")},
    }
    text = json.dumps(parts, sort_keys=True, default=str).encode("ascii")
    return dict(parts, digest=hashlib.sha256(text).hexdigest())


def compare_reports(old, new):
    """[{what, before, now}] of all that changed between two reports' fingerprints and verdicts."""
    rows = [(key, old.get(key), new[key]) for key in ("verdict", "cause")]
    before, now = old.get("fingerprint") or {}, new["fingerprint"]
    for key in sorted((set(before) | set(now)) - {"digest"}):
        left, right = before.get(key), now.get(key)
        if isinstance(left, dict) and isinstance(right, dict):
            names = sorted(set(left) | set(right))
            rows += [("%s %s" % (key, name), left.get(name), right.get(name)) for name in names]
        else:
            rows.append((key, left, right))
    return [dict(zip(("what", "before", "now"), row)) for row in rows if row[1] != row[2]]
