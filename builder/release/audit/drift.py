"""Changes since an image was verified: its base, releases of cuDNN, known-bad combinations, time."""

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Literal

from builder.core.errors import ImageMissingError, RegistryError, UsageError
from builder.core.versions import agree, at_least, key, short
from builder.plan.facts.rules import Finding, Outcome, bad_pairs
from builder.plan.facts.tables import load
from builder.release.audit.findings import AuditFinding, fails, mind, not_run, passes
from builder.sources.oci import INDEXES, Registry, Staged, choose_manifest, parse_reference
from builder.verify.evidence import JudgedReport, python_packages, timestamp

OLD = timedelta(days=90)
"""The age from which a verification gets a remark; the user may set a stricter limit."""

BASE_NAME = "org.opencontainers.image.base.name"
BASE_DIGEST = "org.opencontainers.image.base.digest"
"""https://github.com/opencontainers/image-spec/blob/main/annotations.md"""
_CUDNN = re.compile(r"nvidia-cudnn(?:-cu\d+)?")
_CUBLAS = re.compile(r"nvidia-cublas(?:-cu\d+)?")
_VERSION = re.compile(r"\d{1,9}(\.\d{1,9}){0,7}(?![\d.])")
"""Bounded, because a report may come from anyone."""


def base(registry: Registry, image: Staged) -> AuditFinding:
    """Whether the tag of the base still leads to the digest that the image was built on."""
    name, digest = image.label(BASE_NAME), image.label(BASE_DIGEST)
    if not name or not digest:
        return not_run("base", "the base is no registry image: its Debian packages are in the SBOM")
    try:
        if not registry.may_ask(name, beside=image.repository):
            hint = f"with a mirror of it, it is asked: --registry-mirror {parse_reference(name).host}=HOST"
            return not_run(
                "base", f"{name} is in another registry, which only the image names: not asked", hint=hint
            )
        manifest = registry.manifest(name)
        now = manifest.digest
        if manifest.media_type in INDEXES:  # that of the platform, as in a lock
            platform = "/".join(image.platform.split("/")[:2])
            now = choose_manifest(manifest.document, platform, name, baseline=True)
    except ImageMissingError:
        return mind("base", f"{name} was removed from its registry: the image cannot be built again on it")
    except (RegistryError, UsageError) as error:
        return not_run("base", f"{name} could not be asked for: {error.message}")
    if now != digest:
        return mind(
            "base",
            f"{name} was pushed again since: now {now[:19]}…, and the image stands on {digest[:19]}…",
            hint="the image is what it was; to have the base's fixes: rtbuild lock --upgrade, and all anew",
        )
    return passes("base", f"{name} is what it was")


def cudnn(verified: JudgedReport) -> AuditFinding:
    """Whether the tables know a newer patch of the cuDNN that was loaded."""
    loaded = _loaded(verified, "cudnn")
    if not loaded:
        return not_run("cudnn-patch", "the report names no cuDNN that was loaded")
    packages = python_packages(verified.document) or {}
    names = sorted(name for name in packages if _CUDNN.fullmatch(name) and name in load().wheels)
    toolkits = {short(version, 2) for version in _loaded(verified, "cuda")}
    bases = [row.cudnn for row in load().tags if row.cudnn and short(row.cuda, 2) in toolkits]
    offered = [v for name in names for v in load().wheels[name].versions] or bases
    newer = [
        v
        for version in loaded
        for v in offered
        if agree(short(v, 2), short(version, 2)) and not at_least(short(version, 3), short(v, 3))
    ]
    if not newer:
        return passes("cudnn-patch", f"no newer patch of cuDNN {', '.join(loaded)} is known")
    return mind(
        "cudnn-patch",
        f"cuDNN {max(newer, key=key)} is out; the image loads {', '.join(loaded)}",
        hint="lock, build and verify anew: rtbuild lock --upgrade",
    )


def _loaded(verified: JudgedReport, what: Literal["cuda", "cudnn"]) -> list[str]:
    """``8.9.4``: as each framework says, else as the mapped library itself."""
    return sorted({text for text in verified.report.loaded(what) if _VERSION.match(text)})


def known_bad(verifications: Sequence[JudgedReport], classes: Iterable[str]) -> Iterator[AuditFinding]:
    """Whether a combination that was measured in the image has been listed as bad since."""
    gpus = [load().gpus[name.lower()] for name in sorted(set(classes)) if name.lower() in load().gpus]
    measured = [_measured(verified) for verified in verifications]
    if not any(measured):
        yield not_run("known-bad", "no report names a version to look up")
        return
    told: dict[str, Finding] = {}
    for found in (found for values in measured for found in bad_pairs(values, gpus)):
        told.setdefault(found.message, found)
    for message, found in told.items():
        hint = f"see {found.values[-1].source.reference}" if found.values else None
        yield (fails if found.outcome is Outcome.IMPOSSIBLE else mind)("known-bad", message, hint=hint)
    if not told:
        yield passes("known-bad", "nothing in it is listed as a bad combination")


def _measured(verified: JudgedReport) -> dict[str, str]:
    """The report's versions, by the names of ``known-bad.toml``."""
    texts: dict[str, str] = {}
    for name, version in (python_packages(verified.document) or {}).items():
        texts["cublas" if _CUBLAS.fullmatch(name) else name] = version
    texts |= {row.name: row.version for row in verified.report.frameworks if row.version}
    texts["python"] = verified.report.python_version() or ""
    loaded = {"cudnn": _loaded(verified, "cudnn"), "cuda": _loaded(verified, "cuda")}
    texts |= {what: versions[0] for what, versions in loaded.items() if versions}
    return {name: text for name, text in texts.items() if _VERSION.match(text)}


def rollback(verifications: Sequence[JudgedReport], seen: datetime) -> AuditFinding:
    """Whether the newest verification is older than one that the user has seen under this name.

    Signatures do not expire: anyone who may move a tag can put an earlier, verified digest back.
    """
    newest = max(verified.when for verified in verifications)
    if newest >= seen:
        return passes("rollback", f"verified {timestamp(newest)}, not before {timestamp(seen)}")
    return fails(
        "rollback",
        f"verified {timestamp(newest)}, and {timestamp(seen)} has been seen: an older image is back",
        hint="somebody moved the tag back; name the image by its digest",
    )


def age(verifications: Sequence[JudgedReport], now: datetime) -> AuditFinding:
    """How long ago the newest verification was."""
    newest = max(verified.when for verified in verifications)
    days = (now - newest).days
    text = "today" if days < 1 else "1 day ago" if days == 1 else f"{days} days ago"
    if now - newest > OLD:
        return mind(
            "age",
            f"last verified {text}: drivers and cards have moved on",
            hint="verify it anew: rtbuild verify --from; --max-age makes this a no",
        )
    return passes("age", f"last verified {text}")
