"""``rtbuild verify-digest``: what a cluster's node runs."""

from __future__ import annotations

import sys
from typing import Annotated, Literal

import typer

from builder.dispatch.node import verify_digest as verify
from builder.errors import UsageError
from builder.oci.registry import Registry


def verify_digest(
    image: Annotated[str, typer.Argument(metavar="REPOSITORY@DIGEST")],
    card: Annotated[str, typer.Option("--card", help="The class of GPU that this machine should have.")],
    runtime: Annotated[
        Literal["auto", "docker", "podman", "apptainer"],
        typer.Option("--runtime", help="What runs the container."),
    ] = "auto",
    seconds: Annotated[int, typer.Option("--timeout", min=10, help="Time limit in seconds.")] = 2400,
) -> int:
    """Exit as the probe's verdict says."""
    repository, at, digest = image.partition("@")
    if not at or not digest.startswith("sha256:"):
        raise UsageError(f"{image} names no digest", hint="as in registry.example/staging@sha256:…")
    found = verify(
        Registry.to_write(),
        repository,
        digest,
        card=card,
        tool=None if runtime == "auto" else runtime,
        seconds=seconds,
    )
    sys.stderr.write(f"{found.message}{', the report is beside the image' if found.attached else ''}\n")
    return found.exit_code
