"""``rtbuild verify-digest``: the command that a node of a cluster runs."""

from typing import Annotated, Literal

from builder.cli import options as opt
from builder.console import say
from builder.dispatch.node import verify_digest as verify
from builder.errors import UsageError
from builder.evidence.cosign import Signer
from builder.oci.registry import Registry


def verify_digest(
    image: Annotated[str, opt.of("REPOSITORY@DIGEST: The image to verify.")],
    card: Annotated[str, opt.of("--card: The class of GPU that this machine should have.")],
    runtime: Annotated[
        Literal["auto", "docker", "podman", "apptainer"], opt.of("--runtime: What runs the container.")
    ] = "auto",
    seconds: Annotated[int, opt.of("--timeout: Time limit in seconds.", min=10)] = 2400,
    key: opt.ReportKey = None,
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
        signer=Signer(key=key) if key else None,
    )
    say(f"{found.message}{', the report is beside the image' if found.attached else ''}")
    return found.exit_code
