"""The report as one JSON document, and its differences to an older one. It has one verdict and one cause:
the first layer that failed; later failures are consequences.
"""

import hashlib
import json
import os
import re
import traceback

from ..common.causes import CAUSES, EXIT_CODES, PROBE_FAULT, VERDICT_OF_SIDE
from ..common.distributions import packages_of, requirement
from ..common.tables import read_frameworks
from .expectation import asked_for, find_differences
from .judge import ABSENT_LIBRARY
from .library_files import read_elf
from .machine_facts import commands_here, why_no_command
from .protocol import GROUNDWORK, new_check, own_fault
from .suite_judge import suite_rows


def exit_code(report):
    return EXIT_CODES.get(report["verdict"], PROBE_FAULT)


def make_report(program, checks, libraries, identity, seconds):
    """The document of ``--json``. ``identity``: {version, sha256} of the probe's own file."""
    facts, options = program.facts, program.options
    expect = options.get("expect") or {}
    differences = []
    if expect and not options.get("only"):
        try:
            differences = find_differences(expect, facts)
        except Exception as error:
            checks = checks + [own_fault("expectation", "X01", error, traceback.format_exc())]
        else:
            checks = checks + [_expected(differences)]
    suggested = list(options.get("suggested") or ())
    suites = suite_rows(list(options.get("suites") or ["conv"]) + suggested, checks, facts)
    suites = [dict(row, suggested=row["suite"] in suggested) for row in suites]
    checks = [_without_effect(check) if check["stage"] in suggested else check for check in checks]
    decision = decide_verdict(checks, facts, options)
    if decision["verdict"] == "works":
        decision["summary"] += _in_suites(suites)
    proof = list(program.proof)
    first = decision.pop("first")
    if first is not None:
        mine = {"stage": first["stage"], "test": first["id"], "outcome": "failed", "detail": first["summary"]}
        proof = [dict(mine, evidence=first["evidence"])] + [p for p in proof if p["stage"] == first["stage"]]
    report = {"schema": 1, "probe": identity}
    report.update(decision, proof=proof, checks=checks, libraries=libraries, differences=differences)
    report["suites"] = suites
    empty = {"variables": {}, "gpus": [], "frameworks": [], "copies": []}
    for key in ("python", "machine", "variables", "gpus", "driver", "frameworks", "copies"):
        report[key] = facts.get(key, empty.get(key))
    report.update(expectation=expect.get("cell"), fingerprint=fingerprint(facts))
    report.update(test_double=bool(facts.get("test_double")), seconds=round(seconds, 3))
    return report


def _without_effect(check):
    """A check of a suite that nobody named: one that failed, or that the probe failed over, was not made."""
    trace = {"trace" if key == "probe_fault" else key: value for key, value in check["evidence"].items()}
    if check["outcome"] != "failed":
        return dict(check, evidence=trace)
    note = "it failed (%s), and no verdict turns on a suite that nobody named" % check["cause"]
    return dict(check, outcome="not_run", cause=None, note=note, evidence=trace)


def _in_suites(suites):
    """The words on the suites beyond ``conv``: those that passed, did not run, or failed unnamed."""
    told = ""
    outcomes = (("passed", "; also ran: "), ("not_run", "; did not run: "))
    outcomes += (("failed", "; failed, and nobody asks for them: "),)
    for outcome, words in outcomes:
        rows = [row for row in suites if row["suite"] != "conv" and row["outcome"] == outcome]
        names = ["%s (%s)" % (row["suite"], row["framework"] or row["reason"]) for row in rows]
        told += words + ", ".join(names) if names else ""
    return told


def _expected(differences):
    """X01."""
    told = ["%(what)s: asked %(asked)s, found %(found)s" % row for row in differences[:4]]
    row = ("failed", "; ".join(told), "expect-mismatch", {"differences": differences})
    return new_check(
        "expectation", "X01", *(row if differences else ("passed", "all that was asked for is here"))
    )


def decide_verdict(checks, facts, options):
    """{verdict, cause, side, summary, remedy, commands, no_command, consequences, first} by the checks.

    The verdict is None if nothing failed and the probe itself could not make a check.
    """
    excuse_bystanders(checks, facts, options)
    excuse_proven(checks, facts)
    failed = [check for check in checks if check["outcome"] == "failed"]
    decision = dict.fromkeys(("cause", "side", "remedy", "first"))
    if not failed:
        verdict, summary = _without_failure(checks, facts, options)
        return dict(decision, verdict=verdict, summary=summary, commands=[], consequences=[], no_command=None)
    first = _explaining(failed)
    cause, side = CAUSES[first["cause"]], side_of(first)
    rest = [check for check in failed if check is not first]
    decision.update(cause=cause.id, side=side, remedy=cause.remedy, first=first)
    decision["verdict"] = VERDICT_OF_SIDE[side]
    decision["summary"] = "%s: %s" % (cause.title, first["summary"])
    decision["commands"] = _commands_for(checks, facts, first)
    decision["no_command"] = None if decision["commands"] else why_no_command(cause.id, side)
    decision["consequences"] = [{key: c[key] for key in ("id", "stage", "cause", "summary")} for c in rest]
    return decision


def _commands_for(checks, facts, first):
    """The commands for the first failure; none, and a check that says so, if the probe fails over them."""
    try:
        return commands_here(facts, first)
    except Exception as error:
        checks.append(own_fault(first["stage"], "H01", error, traceback.format_exc()))
        return []


def side_of(check):
    """Whose fault it is: the cause's side; a driver that hangs or kills the process is the machine's."""
    if check["stage"] == "driver" and check["cause"] in ("hang", "crash"):
        return "host"
    return CAUSES[check["cause"]].side


def _explaining(failed):
    """The finding that explains the others: the first, or the file from which that follows."""
    first = ([check for check in failed if not _steps_back(check)] or failed)[0]
    about_files = (check for check in failed if check["evidence"].get("not_as_installed"))
    return next(
        (check for check in about_files if _follows(first, check["evidence"]["not_as_installed"])), first
    )


def _follows(check, files):
    """True for a failure that a damaged, missing or foreign file among these brings about.

    Not a finding made before anything was loaded, but for a search that misses one of the files; nor one that
    a counter-test has laid to something else, nor the absence of a library that is none of the files and that
    none of them asks for.
    """
    evidence = check["evidence"]
    if any(path.endswith(".py") for path in files):
        return check["stage"] in read_frameworks() and not evidence.get("cured_by")
    names = {os.path.basename(path) for path in files}
    if check["stage"] in GROUNDWORK or evidence.get("cured_by"):
        missed = check["id"] == "E06" and check["cause"] == "cudnn-missing"
        return missed and any(name in check["summary"] for name in names)
    text = check["summary"] + json.dumps(evidence, default=str)
    if CAUSES[check["cause"]].follows != "yes":
        return "map segment" in text and any(name in text for name in names)
    lost = {row["name"] for row in evidence.get("absent") or ()} | set(
        ABSENT_LIBRARY.findall(check["summary"])
    )
    return not lost or bool(lost & names.union(*(read_elf(path)["needed"] for path in files)))


def _steps_back(check):
    """True for findings that explain no failure, or less than any other finding would."""
    evidence = check["evidence"]
    late = check["cause"] in ("check-disabled", "expect-mismatch")
    return bool(evidence.get("weak") or evidence.get("yields") or late)


def excuse_bystanders(checks, facts, options):
    """A CPU build of a framework that nobody asked for, beside one with CUDA, is a remark and no fault.

    One with CUDA opens cuDNN; beside a build for the CPU that another package brings, any framework that is
    built for CUDA is one.
    """
    expect = options.get("expect") or {}
    with_cuda = {row["framework"] for row in facts.get("consumers", ()) if not row["optional"]}
    built = {c["stage"] for c in checks if c["id"] == "P03" and c["outcome"] == "passed" and not c["note"]}
    for check in checks:
        others = with_cuda | built if _brought(check["stage"], facts.get("packages") or {}) else with_cuda
        beside = expect.get("frameworks") or others - {check["stage"]}
        cpu_build = check["outcome"] == "failed" and check["cause"] == "framework-cpu-build"
        if cpu_build and beside and not asked_for(check["stage"], expect):
            check.update(outcome="passed", cause=None, note=check["summary"])


def _brought(framework, packages):
    """True if its package is one for the CPU alone, and another asks for it, as faster-whisper does."""
    package = read_frameworks().get(framework, {}).get("module")
    if package not in packages or packages_of(framework, packages):
        return False
    needs = [need for row in packages.values() for need in map(requirement, row["requires"])]
    return any(need and need["name"] == package and not need["optional"] for need in needs)


def excuse_proven(checks, facts):
    """A missed pin or a file of unknown origin is a remark if all convolutions ran on the GPU."""
    ran = {c["stage"] for c in checks if c["id"] in ("C07", "F05") and c["outcome"] == "passed"}
    wanted = must_convolve(checks, facts)
    if facts.get("candidates") or not wanted:
        wanted = wanted | {"convolution"}
    failed = [c for c in checks if c["outcome"] == "failed"]
    slight = [c for c in failed if c["cause"] == "package-pin-mismatch" or c["evidence"].get("weak")]
    unmade = any("probe_fault" in c["evidence"] for c in checks)
    if wanted <= ran and failed == slight and not unmade:
        for check in failed:
            check.update(outcome="passed", cause=None, note="and yet it works: " + check["summary"])


def must_convolve(checks, facts):
    """The frameworks here that have to convolve on the GPU before anything is said to work.

    All that are installed or were found to open cuDNN, whether or not the probe has a stage for them; not
    builds for the CPU that nobody asked for, and not those that have no convolutions without cuDNN.
    """
    wanted = {row["framework"] for row in facts.get("consumers", ()) if not row["optional"]}
    wanted |= set(facts.get("installed", ())) | {row.get("name") for row in facts.get("frameworks", ())}
    # a build that passed P03 with a remark is one for the CPU
    wanted -= {c["stage"] for c in checks if c["id"] == "P03" and c["outcome"] == "passed" and c["note"]}
    return wanted - {row.get("name") for row in facts.get("frameworks", ()) if row.get("linkage") == "none"}


def _without_failure(checks, facts, options):
    silent = {c["stage"] for c in checks if c["id"] == "H01" and c["outcome"] == "not_run"}
    silent = " and ".join(sorted(silent & set(GROUNDWORK)))
    faults = [check for check in checks if "probe_fault" in check["evidence"]]
    but = ", but the stage %s did not come to its end" % silent if silent else ""
    # what a program may do without, and whoever reads one line alone should know
    told = [check["note"] for check in checks if check["id"] == "K01" and check["note"]]
    told += [text for check in checks for text in check["evidence"].get("remarks") or ()]
    told = "".join("; but %s" % text for text in told)
    if faults:
        return None, "%(id)s of the stage %(stage)s was not made: %(summary)s" % faults[0]
    if options.get("only"):
        return "unverified", "nothing failed, but only the stage %s was asked for%s" % (options["only"], but)
    if facts.get("gpus"):
        return _with_gpu(checks, facts, options, but)
    if options.get("no_gpu"):
        return "unverified", "all that can be checked without a GPU is sound (--no-gpu)" + but + told
    if not facts.get("copies") and not facts.get("frameworks"):
        return "unverified", "there is neither a GPU nor cuDNN nor a framework here: nothing to check" + but
    return "unverified", "no GPU here; all that can be checked without one is sound" + but + told


def _with_gpu(checks, facts, options, but):
    """``works`` if nothing failed, and all that has to convolve on the GPU did."""
    passed = {(c["stage"], c["id"]) for c in checks if c["outcome"] == "passed"}
    raw = ("convolution", "C07") in passed
    in_frameworks = sorted(stage for stage, number in passed if number == "F05")
    missed = sorted(must_convolve(checks, facts) - set(in_frameworks))
    without = sorted(row["name"] for row in facts.get("frameworks", ()) if row.get("linkage") == "absent")
    asked = (options.get("expect") or {}).get("imports")
    if but:
        return "unverified", "there is a GPU" + but
    if asked and not any(number == "F08" for _, number in passed):
        return "unverified", "there is a GPU, but the imports that were asked for were not executed"
    if missed:
        return "unverified", "there is a GPU, but %s ran no convolution on it" % ", ".join(missed)
    if without:
        return "unverified", "%s convolved on the GPU without cuDNN" % ", ".join(without)
    if not raw and (facts.get("candidates") or not in_frameworks):
        return "unverified", "there is a GPU, but no convolution was run"
    if facts.get("test_double"):
        return "unverified", "every check passed, but a test double took part: that is evidence for nothing"
    first = facts["gpus"][0]["name"]
    if len(facts["gpus"]) > 1:
        cards = {c["evidence"]["card"] for c in checks if c["id"] == "D06" and c["outcome"] == "passed"}
        others = (
            "cuDNN's are right on %d of the others, too" % len(cards)
            if cards
            else "the others were not tried"
        )
        first += " (the first of %d GPUs; %s)" % (len(facts["gpus"]), others)
    who = (["cuDNN itself"] if raw else []) + in_frameworks
    return "works", "convolutions on %s are right, by %s" % (first, ", ".join(who))


def printed_report(text):
    """The last report that ``--json`` printed, whatever else is printed; ValueError if there is none."""
    for found in reversed(list(re.finditer(r"^\{", text, re.MULTILINE))):
        try:
            document = json.JSONDecoder().raw_decode(text, found.start())[0]
        except (ValueError, RecursionError):
            continue
        if "verdict" in document and "checks" in document:
            return document
    raise ValueError("no report")


def without_infinities(document):
    """The document with NaN and infinite numbers as text, for which JSON has no numbers."""
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
