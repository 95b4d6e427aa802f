"""``rtbuild audit``: the answer of a registry about an image, and its exit code."""

from __future__ import annotations

import sys
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

from builder.cli import options as opt
from builder.documents import MalformedError, parse_moment
from builder.errors import UsageError

if TYPE_CHECKING:
    from builder.evidence.cosign import Verifier


def audit(
    image: Annotated[str, opt.of("IMAGE: REPOSITORY:TAG, or REPOSITORY@sha256:….")],
    gpu: Annotated[str | None, opt.of("--gpu: Answer for a machine with this GPU: T4, A100.")] = None,
    driver: Annotated[
        str | None, opt.of("--driver: Answer for a machine with this driver: 535, 535.104.05.")
    ] = None,
    max_age: Annotated[
        str | None, opt.of("--max-age AGE: Count no verification older than this: 30d, 12h.")
    ] = None,
    at_least: Annotated[
        str | None,
        opt.of(
            "--at-least TIME: Refuse an image verified before this time, which an earlier audit printed: "
            "2026-11-21T06:30:00Z."
        ),
    ] = None,
    key: Annotated[
        str | None,
        opt.of("--key FILE|URI $RTBUILD_AUDIT_KEY: Count only evidence that this public key signed."),
    ] = None,
    certificate_identity: Annotated[
        str | None, opt.of("--certificate-identity WHO: Count only what this identity signed: a workflow.")
    ] = None,
    certificate_oidc_issuer: Annotated[
        str | None, opt.of("--certificate-oidc-issuer URL: Who vouches for the identity.")
    ] = None,
    require_signature: Annotated[
        bool, opt.of("--require-signature: Refuse to answer on evidence whose signer is not checked.")
    ] = False,
    mirror: opt.Mirror = None,
    color: opt.Color = "auto",
    json_: opt.Json = False,
) -> int:
    """Say from the registry alone whether an image is known to work: exit 0 yes, 1 no."""
    from builder.audit import Question
    from builder.audit import audit as ask
    from builder.console import print_json, show
    from builder.console.audit import clean, document, lines, page
    from builder.oci.registry import Registry

    question = Question(
        verifier=_verifier(key, certificate_identity, certificate_oidc_issuer, required=require_signature),
        gpu=opt.card(gpu, alike=False) if gpu is not None else None,
        driver=opt.driver(driver),
        max_age=opt.age(max_age),
        at_least=_moment(at_least),
    )
    terminal = opt.terminal("auto", color)

    def note(text: str) -> None:
        if terminal.progress == "tty":
            terminal.say(clean(text))

    found = ask(Registry.from_user(opt.mirrors(mirror)), image, question, note=note)
    if json_:
        print_json(document(found))
    else:
        show(*(page(found, terminal) if sys.stdout.isatty() else lines(found)))
    return 0 if found.works else 1


def _moment(text: str | None) -> datetime | None:
    try:
        return None if text is None else parse_moment(text)
    except MalformedError as problem:
        raise UsageError(f"--at-least: {problem}", hint="as in 2026-11-21T06:30:00Z") from problem


def _verifier(
    key: str | None, identity: str | None, issuer: str | None, *, required: bool
) -> Verifier | None:
    from builder.evidence.cosign import Verifier

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
