"""The commands about published images: declared here, done in :mod:`builder.cli.auditing`."""

from __future__ import annotations

from typing import Annotated

import typer

from builder.cli import options as opt
from builder.cli.app import app


@app.command()
def audit(
    image: Annotated[str, typer.Argument(metavar="IMAGE", help="REPOSITORY:TAG, or REPOSITORY@sha256:….")],
    gpu: Annotated[
        str | None, typer.Option("--gpu", help="Answer for a machine with this GPU: T4, A100.")
    ] = None,
    driver: Annotated[
        str | None, typer.Option("--driver", help="Answer for a machine with this driver: 535, 535.104.05.")
    ] = None,
    max_age: Annotated[
        str | None,
        typer.Option("--max-age", metavar="AGE", help="Count no verification older than this: 30d, 12h."),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(
            "--key",
            metavar="FILE|URI",
            help="Count only what this public key signed (cosign.pub, or a key service's URI).",
            envvar="RTBUILD_AUDIT_KEY",
        ),
    ] = None,
    certificate_identity: Annotated[
        str | None,
        typer.Option(
            "--certificate-identity", metavar="WHO", help="Count only what this identity signed: a workflow."
        ),
    ] = None,
    certificate_oidc_issuer: Annotated[
        str | None,
        typer.Option("--certificate-oidc-issuer", metavar="URL", help="Who vouches for the identity."),
    ] = None,
    require_signature: Annotated[
        bool,
        typer.Option("--require-signature", help="Refuse to answer on evidence whose signer is not checked."),
    ] = False,
    mirror: opt.Mirror = None,
    color: opt.Color = "auto",
    json_: opt.Json = False,
) -> int:
    """Say from the registry alone whether an image is known to work: exit 0 yes, 1 no."""
    from builder.cli.auditing import run

    return run(
        image,
        gpu=gpu,
        driver=driver,
        max_age=opt.age(max_age),
        key=key,
        identity=certificate_identity,
        issuer=certificate_oidc_issuer,
        require_signature=require_signature,
        mirrors=opt.mirrors(mirror),
        terminal=opt.terminal("auto", color),
        json=json_,
    )
