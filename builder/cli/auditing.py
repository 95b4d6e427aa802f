"""``rtbuild audit``: what a registry tells of an image, and the exit code that follows from it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from builder.audit import Question, audit
from builder.cli.options import card
from builder.cli.options import driver as checked
from builder.console import print_json
from builder.console.audit import clean, document, lines, page
from builder.errors import UsageError
from builder.evidence import Verifier
from builder.oci.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import timedelta

    from builder.console import Terminal


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
        gpu=card(gpu, alike=False) if gpu is not None else None,
        driver=checked(driver),
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
