"""``rtbuild audit``: what a registry tells of an image, and the exit code that follows from it."""

from __future__ import annotations

import difflib
import re
import sys
from typing import TYPE_CHECKING

from builder.audit import Question, audit
from builder.console import print_json
from builder.console.audit import clean, document, lines, page
from builder.errors import UsageError
from builder.evidence import Verifier
from builder.facts.gpus import known_class
from builder.facts.tables import load
from builder.oci.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import timedelta

    from builder.console import Terminal

_DRIVER = re.compile(r"\d{1,4}(\.\d{1,4}){0,3}")


def run(
    image: str,
    *,
    gpu: str | None,
    driver: str | None,
    max_age: timedelta | None,
    key: str | None,
    identity: str | None,
    issuer: str | None,
    require_signature: bool,
    mirrors: Mapping[str, str],
    terminal: Terminal,
    json: bool,
) -> int:
    """Exit 0 only where the image is known to work, for the machine asked about if one was; else 1."""
    question = Question(
        verifier=_verifier(key, identity, issuer, required=require_signature),
        gpu=_gpu(gpu),
        driver=_driver(driver),
        max_age=max_age,
    )
    registry = Registry.from_user(mirrors)

    def note(text: str) -> None:
        if terminal.progress == "tty":
            terminal.say(clean(text))

    found = audit(registry, image, question, note=note)
    if json:
        print_json(document(found))
    elif sys.stdout.isatty():
        sys.stdout.write("\n".join(page(found, terminal)) + "\n")
    else:
        sys.stdout.write("\n".join(lines(found)) + "\n")
    return 0 if found.works else 1


def _verifier(
    key: str | None, identity: str | None, issuer: str | None, *, required: bool
) -> Verifier | None:
    if key and (identity or issuer):
        raise UsageError(
            "--key and --certificate-identity exclude each other", hint="give the one that signed"
        )
    if bool(identity) != bool(issuer):
        raise UsageError(
            "--certificate-identity and --certificate-oidc-issuer belong together",
            hint="as in --certificate-oidc-issuer https://token.actions.githubusercontent.com",
        )
    if key or identity:
        return Verifier(key=key or None, identity=identity, issuer=issuer)
    if required:
        raise UsageError(
            "--require-signature, and nobody is named whose signature would count",
            hint="--key cosign.pub; or --certificate-identity and --certificate-oidc-issuer",
        )
    return None


def _gpu(text: str | None) -> str | None:
    if text is None:
        return None
    found = known_class(text)
    if found is None:
        names = [row.name for row in load().gpus.values()]
        near = difflib.get_close_matches(text.upper(), names, n=3, cutoff=0.5)
        raise UsageError(
            f"--gpu {text} is no GPU that rtbuild knows", hint=f"one of {', '.join(near or names)}"
        )
    return found


def _driver(text: str | None) -> str | None:
    if text is not None and not _DRIVER.fullmatch(text):
        raise UsageError(f"--driver {text} is no driver version", hint="as in 535, or 535.104.05")
    return text
